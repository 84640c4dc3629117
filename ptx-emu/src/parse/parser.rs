//! Recursive descent over the tokens; never deeper than a vector in an operand.

use super::ast::*;
use super::lexer::{Lexer, Token};
use super::types::Type;
use super::{At, Error, Parsed, error};

/// Errors after which the parser gives up.
pub(crate) const MOST_ERRORS: usize = 20;
/// Bytes of text accepted.
pub(crate) const MOST_TEXT: usize = 64 << 20;
/// Depth of nested scopes accepted.
const MOST_SCOPES: usize = 64;
/// Elements of a vector operand accepted.
const MOST_VECTOR: usize = 8;

/// Parses a module, going on after an error with the next statement.
pub(crate) fn parse(text: &str) -> Result<Module<'_>, Vec<Error>> {
    if text.len() > MOST_TEXT {
        let what = format!("the text has {} bytes, at most {MOST_TEXT} are accepted", text.len());
        return Err(vec![Error { at: 0, what }]);
    }
    let mut p = Parser { lexer: Lexer::new(text), token: Token::End, at: 0, end: 0, errors: Vec::new() };
    let mut module = Module::default();
    p.recovering(|p| p.advance());
    while p.token != Token::End && p.errors.len() < MOST_ERRORS {
        p.recovering(|p| p.item(&mut module));
    }
    if module.version.is_none() && p.errors.is_empty() {
        p.errors.push(Error { at: 0, what: "no `.version` directive: a module starts with it".into() });
    }
    if p.errors.is_empty() { Ok(module) } else { Err(p.errors) }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// Where `token` starts.
    at: At,
    /// Where the token before it started.
    end: At,
    errors: Vec<Error>,
}

/// What an unexpected token is called in an error.
fn show(token: Token<'_>) -> String {
    match token {
        Token::Name(s) | Token::Dot(s) => format!("`{s}`"),
        Token::Number(_) => "a number".into(),
        Token::Text(s) => format!("\"{s}\""),
        Token::Mark(c) => format!("`{c}`"),
        Token::End => "the end of the text".into(),
    }
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Parsed<()> {
        self.end = self.at;
        (self.token, self.at) = self.lexer.next()?;
        Ok(())
    }

    /// Runs `f`; after an error, records it and skips past the next `;`, or to a brace.
    fn recovering(&mut self, f: impl FnOnce(&mut Self) -> Parsed<()>) {
        let Err(e) = f(self) else { return };
        self.errors.push(e);
        loop {
            match self.advance() {
                Err(_) => self.lexer.skip_line(),
                Ok(()) if matches!(self.token, Token::End | Token::Mark('}')) => return,
                Ok(()) if self.token == Token::Mark(';') => {
                    if self.advance().is_ok() {
                        return;
                    }
                }
                Ok(()) => {}
            }
        }
    }

    fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        error(self.at, format!("{} where {wanted} was expected", show(self.token)))
    }

    fn eat(&mut self, mark: char) -> Parsed<bool> {
        let found = self.token == Token::Mark(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, mark: char) -> Parsed<()> {
        if self.eat(mark)? { Ok(()) } else { self.unexpected(&format!("`{mark}`")) }
    }

    fn eat_dot(&mut self, word: &str) -> Parsed<bool> {
        let found = self.token == Token::Dot(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn name(&mut self, what: &str) -> Parsed<(&'a str, At)> {
        match self.token {
            Token::Name(name) => {
                let at = self.at;
                self.advance()?;
                Ok((name, at))
            }
            _ => self.unexpected(what),
        }
    }

    fn int(&mut self, what: &str, most: u64) -> Parsed<u64> {
        match self.token {
            Token::Number(Number::Int(n)) if n <= most.into() => {
                self.advance()?;
                Ok(n as u64)
            }
            Token::Number(Number::Int(n)) => {
                error(self.at, format!("{n} is too large for {what}: at most {most}"))
            }
            _ => self.unexpected(what),
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(',')? {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn item(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let Token::Dot(word) = self.token else { return self.unexpected("a directive") };
        let at = self.at;
        match word {
            ".version" => {
                module.version = Some((self.version()?, at));
                Ok(())
            }
            ".target" => self.target(module),
            ".address_size" => self.address_size(),
            ".file" => self.file(module),
            ".section" => self.section(),
            ".pragma" => self.pragma(),
            ".func" => {
                error(at, "unsupported in ptx-emu: .func (device functions); inline it into the .entry")
            }
            ".alias" | ".common" => error(at, format!("unsupported in ptx-emu: {word}")),
            ".visible" | ".weak" | ".extern" => {
                self.advance()?;
                self.declaration(module, word == ".extern")
            }
            _ => self.declaration(module, false),
        }
    }

    fn declaration(&mut self, module: &mut Module<'a>, external: bool) -> Parsed<()> {
        let at = self.at;
        match self.token {
            Token::Dot(".entry") => {
                let entry = self.entry()?;
                module.entries.push(entry);
                Ok(())
            }
            Token::Dot(".func") => {
                error(at, "unsupported in ptx-emu: .func (device functions); inline it into the .entry")
            }
            Token::Dot(word) if space(word).is_some() => {
                module.variables.extend(self.variables(external)?);
                Ok(())
            }
            _ => self.unexpected("a directive such as .entry, .global, .const or .shared"),
        }
    }

    fn version(&mut self) -> Parsed<(u32, u32)> {
        self.advance()?;
        let at = self.at;
        let Token::Number(Number::F64(bits)) = self.token else {
            return self.unexpected("a version such as 7.0");
        };
        let text = format!("{:?}", f64::from_bits(bits));
        self.advance()?;
        let parsed = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        parsed.map_or_else(|| error(at, "not a version such as 7.0"), Ok)
    }

    fn target(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        self.advance()?;
        let words = self.list(|p| p.name("a target such as sm_80"))?;
        module.target = words.iter().copied().find(|(w, _)| w.starts_with("sm_")).or(Some(words[0]));
        Ok(())
    }

    fn address_size(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.at;
        match self.int("the address size", 64)? {
            64 => Ok(()),
            n => error(at, format!("address size {n} is not supported, only 64")),
        }
    }

    fn file(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        self.advance()?;
        let index = self.int("a file index", u32::MAX.into())? as u32;
        let Token::Text(name) = self.token else { return self.unexpected("a file name in quotes") };
        self.advance()?;
        module.files.push((index, name));
        while self.eat(',')? {
            self.int("a time stamp or a size", u64::MAX)?;
        }
        Ok(())
    }

    /// Debug sections hold nothing that executes: skips to the closing brace.
    fn section(&mut self) -> Parsed<()> {
        while !matches!(self.token, Token::Mark('}') | Token::End) {
            self.advance()?;
        }
        self.expect('}')
    }

    fn pragma(&mut self) -> Parsed<()> {
        self.advance()?;
        self.list(|p| match p.token {
            Token::Text(_) => p.advance(),
            _ => p.unexpected("a string"),
        })?;
        self.expect(';')
    }

    fn variables(&mut self, external: bool) -> Parsed<Vec<Variable<'a>>> {
        let Token::Dot(word) = self.token else { return self.unexpected("a state space") };
        let Some(space) = space(word) else { return self.unexpected("a state space") };
        self.advance()?;
        let (ty, vector, align) = self.variable_type()?;
        let variables = self.list(|p| p.variable(space, ty, vector, align, external))?;
        self.expect(';')?;
        Ok(variables)
    }

    /// `.align 16 .v4 .f32`, and for parameters `.ptr .global .align 16` after the type.
    fn variable_type(&mut self) -> Parsed<(Type, u32, u32)> {
        let (mut align, mut vector, mut ty) = (0, 1, None);
        while let Token::Dot(word) = self.token {
            let at = self.at;
            self.advance()?;
            match word {
                ".align" if ty.is_none() => align = self.alignment()?,
                // The alignment of what a pointer points to is a promise of the caller.
                ".align" => _ = self.alignment()?,
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                ".ptr" | ".global" | ".shared" | ".const" | ".local" if ty.is_some() => {}
                _ => match Type::parse(word) {
                    Some(t) if ty.is_none() && t != Type::Pred => ty = Some(t),
                    _ => return error(at, format!("`{word}` is not a type of a variable")),
                },
            }
        }
        match ty {
            Some(ty) => Ok((ty, vector, align)),
            None => self.unexpected("a type such as .b32"),
        }
    }

    fn alignment(&mut self) -> Parsed<u32> {
        let at = self.at;
        let align = self.int("an alignment", 1 << 20)? as u32;
        if align.is_power_of_two() {
            Ok(align)
        } else {
            error(at, format!("alignment {align} is not a power of two"))
        }
    }

    fn variable(
        &mut self,
        space: Space,
        ty: Type,
        vector: u32,
        align: u32,
        external: bool,
    ) -> Parsed<Variable<'a>> {
        let (name, at) = self.name("a variable name")?;
        let (mut count, mut array) = (Some(1), false);
        while self.eat('[')? {
            array = true;
            count = match self.token {
                Token::Mark(']') => None,
                _ => {
                    let n = self.int("an array size", 1 << 40)?;
                    count.and_then(|c: u64| c.checked_mul(n))
                }
            };
            self.expect(']')?;
        }
        let init = if self.eat('=')? { self.initialiser()? } else { Vec::new() };
        Ok(Variable { space, ty, vector, name, at, align, count, array, external, init })
    }

    /// A number, or numbers in braces nested one or two deep; the shape is not kept.
    fn initialiser(&mut self) -> Parsed<Vec<Number>> {
        let (mut depth, mut values) = (0, Vec::new());
        loop {
            match self.token {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') if depth > 0 => depth -= 1,
                Token::Mark(',') if depth > 0 => {}
                Token::Number(_) | Token::Mark('-') => {
                    values.push(self.number()?);
                    if depth == 0 {
                        return Ok(values);
                    }
                    continue;
                }
                Token::Name(_) => return error(self.at, "unsupported in ptx-emu: addresses in initialisers"),
                _ => return self.unexpected("a value"),
            }
            self.advance()?;
            if depth == 0 {
                return Ok(values);
            }
        }
    }

    fn number(&mut self) -> Parsed<Number> {
        let negative = self.eat('-')?;
        let Token::Number(n) = self.token else { return self.unexpected("a number") };
        self.advance()?;
        Ok(match n {
            Number::Int(v) if negative => Number::Int(-v),
            Number::F32(b) if negative => Number::F32(b ^ 1 << 31),
            Number::F64(b) if negative => Number::F64(b ^ 1 << 63),
            _ => n,
        })
    }

    fn entry(&mut self) -> Parsed<Entry<'a>> {
        self.advance()?;
        let (name, at) = self.name("a kernel name")?;
        let mut entry =
            Entry { name, at, params: Vec::new(), reqntid: None, maxntid: None, body: Vec::new() };
        if self.eat('(')? && !self.eat(')')? {
            entry.params = self.list(Self::parameter)?;
            self.expect(')')?;
        }
        self.performance(&mut entry)?;
        if self.token != Token::Mark('{') {
            return self.unexpected("`{`");
        }
        self.advance()?;
        self.body(&mut entry.body)?;
        Ok(entry)
    }

    fn parameter(&mut self) -> Parsed<Variable<'a>> {
        if !self.eat_dot(".param")? {
            return self.unexpected("`.param`");
        }
        let (ty, vector, align) = self.variable_type()?;
        self.variable(Space::Param, ty, vector, align, false)
    }

    fn performance(&mut self, entry: &mut Entry<'a>) -> Parsed<()> {
        while let Token::Dot(word) = self.token {
            let at = self.at;
            if word == ".pragma" {
                self.pragma()?;
                continue;
            }
            self.advance()?;
            match word {
                ".reqntid" => entry.reqntid = Some(self.extent()?),
                ".maxntid" => entry.maxntid = Some(self.extent()?),
                ".minnctapersm" | ".maxnctapersm" | ".maxnreg" => _ = self.int("a count", 1 << 20)?,
                _ => return error(at, format!("unsupported in ptx-emu: directive `{word}` of a kernel")),
            }
        }
        Ok(())
    }

    fn extent(&mut self) -> Parsed<[u32; 3]> {
        let at = self.at;
        let sizes = self.list(|p| p.int("a number of threads", 1024))?;
        match *sizes {
            [x] => Ok([x as u32, 1, 1]),
            [x, y] => Ok([x as u32, y as u32, 1]),
            [x, y, z] => Ok([x as u32, y as u32, z as u32]),
            _ => error(at, "more than three dimensions"),
        }
    }

    fn body(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let mut depth = 1;
        while depth > 0 {
            if self.token == Token::End || self.errors.len() >= MOST_ERRORS {
                return self.unexpected("`}`");
            }
            self.recovering(|p| p.statement(body, &mut depth));
        }
        Ok(())
    }

    fn statement(&mut self, body: &mut Vec<Statement<'a>>, depth: &mut usize) -> Parsed<()> {
        match self.token {
            Token::Mark('{') if *depth < MOST_SCOPES => {
                *depth += 1;
                body.push(Statement::Open);
                self.advance()
            }
            Token::Mark('{') => error(self.at, format!("scopes nested deeper than {MOST_SCOPES}")),
            Token::Mark('}') => {
                *depth -= 1;
                if *depth > 0 {
                    body.push(Statement::Close);
                }
                self.advance()
            }
            Token::Mark(';') => self.advance(),
            Token::Dot(word) => self.directive(word, body),
            _ => self.labelled(body),
        }
    }

    fn directive(&mut self, word: &'a str, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        match word {
            ".reg" => {
                self.advance()?;
                body.push(self.registers()?);
                Ok(())
            }
            ".loc" => {
                self.advance()?;
                body.push(Statement::Loc(self.loc()?));
                Ok(())
            }
            ".pragma" => self.pragma(),
            _ if space(word).is_some() => {
                body.extend(self.variables(false)?.into_iter().map(Statement::Variable));
                Ok(())
            }
            _ => error(self.at, format!("unsupported in ptx-emu: directive `{word}` in a kernel")),
        }
    }

    fn registers(&mut self) -> Parsed<Statement<'a>> {
        let Token::Dot(word) = self.token else { return self.unexpected("a register type") };
        let Some(ty) = Type::parse(word).filter(|t| t.bits() != 8 || t.kind() != super::types::Kind::Float)
        else {
            return error(self.at, format!("`{word}` is not a register type that ptx-emu supports"));
        };
        self.advance()?;
        let names = self.list(|p| {
            let (name, at) = p.name("a register name")?;
            let count = if p.eat('<')? {
                let n = p.int("a number of registers", 1_000_000)? as u32;
                p.expect('>')?;
                Some(n)
            } else {
                None
            };
            Ok(RegisterName { name, at, count })
        })?;
        self.expect(';')?;
        Ok(Statement::Registers(ty, names))
    }

    /// `.loc file line column` and what may follow for inlined code, which is skipped.
    fn loc(&mut self) -> Parsed<Loc> {
        let most = u32::MAX.into();
        let file = self.int("a file index", most)? as u32;
        let line = self.int("a line", most)? as u32;
        let column = self.int("a column", most)? as u32;
        while self.eat(',')? {
            self.name("function_name or inlined_at")?;
            while !matches!(self.token, Token::Mark(',') | Token::End) && self.on_loc_line()? {}
        }
        Ok(Loc { file, line, column })
    }

    fn on_loc_line(&mut self) -> Parsed<bool> {
        let part = match self.token {
            Token::Number(_) | Token::Mark('+') => true,
            Token::Name(name) => name.starts_with("$") || name.starts_with("info_string"),
            _ => false,
        };
        if part {
            self.advance()?;
        }
        Ok(part)
    }

    fn labelled(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let start = self.at;
        let guard = self.guard()?;
        let (name, at) = self.name("an instruction")?;
        if guard.is_none() && self.eat(':')? {
            body.push(match self.token {
                Token::Dot(".branchtargets") => {
                    self.advance()?;
                    let targets = self.list(|p| p.name("a label"))?;
                    self.expect(';')?;
                    Statement::Targets(name, targets)
                }
                _ => Statement::Label(name, at),
            });
            return Ok(());
        }
        let inst = self.inst(start, guard, name)?;
        body.push(Statement::Inst(inst));
        Ok(())
    }

    fn guard(&mut self) -> Parsed<Option<Guard<'a>>> {
        if !self.eat('@')? {
            return Ok(None);
        }
        let negated = self.eat('!')?;
        let (name, at) = self.name("a predicate")?;
        Ok(Some(Guard { name, at, negated }))
    }

    fn inst(&mut self, at: At, guard: Option<Guard<'a>>, opcode: &'a str) -> Parsed<Inst<'a>> {
        let mut mods = Vec::new();
        while let Token::Dot(word) = self.token {
            mods.push((word, self.at));
            self.advance()?;
        }
        if opcode == "call" {
            return error(at, "unsupported in ptx-emu: call");
        }
        let operands = match self.token {
            Token::Mark(';') => Vec::new(),
            _ => self.list(Self::operand)?,
        };
        let end = self.at;
        self.expect(';')?;
        Ok(Inst { at, end, guard, opcode, mods, operands })
    }

    fn operand(&mut self) -> Parsed<Operand<'a>> {
        let at = self.at;
        let kind = match self.token {
            Token::Mark('{') => {
                self.advance()?;
                let elements = self.list(Self::scalar)?;
                self.expect('}')?;
                if elements.len() > MOST_VECTOR {
                    return error(
                        at,
                        format!("a vector of {} elements, at most {MOST_VECTOR}", elements.len()),
                    );
                }
                OperandKind::Vector(elements)
            }
            Token::Mark('[') => {
                self.advance()?;
                self.address()?
            }
            _ => return self.scalar(),
        };
        Ok(Operand { at, kind })
    }

    fn address(&mut self) -> Parsed<OperandKind<'a>> {
        let base = match self.token {
            Token::Name(name) => {
                self.advance()?;
                Some(name)
            }
            _ => None,
        };
        let offset =
            if base.is_none() || !matches!(self.token, Token::Mark(']')) { self.offset()? } else { 0 };
        if self.token == Token::Mark(',') {
            return error(self.at, "unsupported in ptx-emu: tensor addresses");
        }
        self.expect(']')?;
        Ok(OperandKind::Address(base, offset))
    }

    /// `+4`, `-4`, `+-4` or `4`.
    fn offset(&mut self) -> Parsed<i64> {
        self.eat('+')?;
        let at = self.at;
        match self.number()? {
            Number::Int(n) => i64::try_from(n).or_else(|_| error(at, "the offset does not fit 64 bits")),
            _ => error(at, "an offset is an integer"),
        }
    }

    fn scalar(&mut self) -> Parsed<Operand<'a>> {
        let at = self.at;
        let kind = match self.token {
            Token::Mark('!') => {
                self.advance()?;
                OperandKind::Not(self.name("a predicate")?.0)
            }
            Token::Name("_") => {
                self.advance()?;
                if self.token == Token::Mark('|') { self.after_name("_", at)? } else { OperandKind::Sink }
            }
            Token::Name(name) => {
                self.advance()?;
                self.after_name(name, at)?
            }
            Token::Number(_) | Token::Mark('-') => OperandKind::Number(self.number()?),
            _ => return self.unexpected("an operand"),
        };
        Ok(Operand { at, kind })
    }

    fn after_name(&mut self, name: &'a str, at: At) -> Parsed<OperandKind<'a>> {
        match self.token {
            Token::Dot(".x" | ".y" | ".z" | ".w") => {
                let Token::Dot(part) = self.token else { return self.unexpected("a component") };
                let whole = self.lexer.text().get(at as usize..self.at as usize + part.len());
                self.advance()?;
                whole.filter(|w| w.len() == name.len() + part.len()).map_or_else(
                    || error(at, format!("`{name}` and `{part}` must stand together")),
                    |w| Ok(OperandKind::Name(w)),
                )
            }
            Token::Mark('|') => {
                self.advance()?;
                Ok(OperandKind::Pair(name, self.name("a predicate")?.0))
            }
            Token::Mark('+' | '-') => Ok(OperandKind::Sum(name, self.offset()?)),
            _ => Ok(OperandKind::Name(name)),
        }
    }
}

/// The state space a directive such as `.shared` names.
fn space(word: &str) -> Option<Space> {
    Some(match word {
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        _ => return None,
    })
}
