//! Recursive descent over the tokens: modules, kernels and statements.
//!
//! It never descends deeper than a vector in an operand. Directives of a module are in [`super::directives`], variables in
//! [`super::variables`], operands in [`super::operands`].

use super::ast::*;
use super::lexer::{Lexer, Token};
use super::types::{Kind, Type};
use super::{At, Error, Parsed, error};

/// Errors after which the parser gives up.
pub(crate) const MOST_ERRORS: usize = 20;
/// Bytes of text accepted.
pub(crate) const MOST_TEXT: usize = 64 << 20;
/// Depth of nested scopes accepted.
const MOST_SCOPES: usize = 64;

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

pub(super) struct Parser<'a> {
    pub(super) lexer: Lexer<'a>,
    pub(super) token: Token<'a>,
    /// Where `token` starts.
    pub(super) at: At,
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
    pub(super) fn advance(&mut self) -> Parsed<()> {
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

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        error(self.at, format!("{} where {wanted} was expected", show(self.token)))
    }

    pub(super) fn eat(&mut self, mark: char) -> Parsed<bool> {
        let found = self.token == Token::Mark(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, mark: char) -> Parsed<()> {
        if self.eat(mark)? { Ok(()) } else { self.unexpected(&format!("`{mark}`")) }
    }

    fn eat_dot(&mut self, word: &str) -> Parsed<bool> {
        let found = self.token == Token::Dot(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn name(&mut self, what: &str) -> Parsed<(&'a str, At)> {
        match self.token {
            Token::Name(name) => {
                let at = self.at;
                self.advance()?;
                Ok((name, at))
            }
            _ => self.unexpected(what),
        }
    }

    pub(super) fn int(&mut self, what: &str, most: u64) -> Parsed<u64> {
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

    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
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
            ".alias" => error(at, format!("unsupported in ptx-emu: {word}")),
            ".visible" | ".weak" | ".common" | ".extern" => {
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
            Token::Dot(".func") if external => self.function(module),
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

    /// The declaration of the one function that may be called: its handle and its value.
    fn function(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let at = self.at;
        self.advance()?;
        let known = self.token == Token::Name(SET_CONDITIONAL);
        if !known {
            return error(
                at,
                format!("unsupported in ptx-emu: .func (device functions); only {SET_CONDITIONAL} is known"),
            );
        }
        self.advance()?;
        self.expect('(')?;
        let params = self.list(Self::parameter)?;
        self.expect(')')?;
        self.expect(';')?;
        if params.iter().map(|p| p.ty.bytes()).ne([8, 4]) {
            return error(at, format!("{SET_CONDITIONAL} takes a .b64 and a .b32"));
        }
        module.sets_conditions = true;
        Ok(())
    }

    pub(super) fn number(&mut self) -> Parsed<Number> {
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
        let mut entry = Entry {
            name,
            at,
            params: Vec::new(),
            reqntid: None,
            maxntid: None,
            minnctapersm: None,
            cluster: None,
            body: Vec::new(),
        };
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
        self.variable(StateSpace::Param, ty, vector, align, false)
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
                ".reqnctapercluster" => entry.cluster = Some(self.extent()?),
                ".minnctapersm" => entry.minnctapersm = Some(self.int("a count", 1 << 20)? as u32),
                ".explicitcluster" => {}
                ".maxnctapersm" | ".maxnreg" => _ = self.int("a count", 1 << 20)?,
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
            ".param" => {
                self.advance()?;
                let (ty, vector, align) = self.variable_type()?;
                let passed = self.list(|p| p.variable(StateSpace::Param, ty, vector, align, false))?;
                body.extend(passed.into_iter().map(Statement::Variable));
                self.expect(';')
            }
            _ if space(word).is_some() => {
                body.extend(self.variables(false)?.into_iter().map(Statement::Variable));
                Ok(())
            }
            _ => error(self.at, format!("unsupported in ptx-emu: directive `{word}` in a kernel")),
        }
    }

    fn registers(&mut self) -> Parsed<Statement<'a>> {
        let Token::Dot(word) = self.token else { return self.unexpected("a register type") };
        let Some(ty) = Type::parse(word).filter(|t| t.bits() != 8 || t.kind() != Kind::Float) else {
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
        let operands = match self.token {
            _ if opcode == "call" => self.call(at)?,
            Token::Mark(';') => Vec::new(),
            _ => self.list(Self::operand)?,
        };
        let end = self.at;
        self.expect(';')?;
        Ok(Inst { at, end, guard, opcode, mods, operands })
    }
}

impl<'a> Parser<'a> {
    /// `name, (handle, value)`: what a call passes, each as an address.
    fn call(&mut self, at: At) -> Parsed<Vec<Operand<'a>>> {
        if self.token != Token::Name(SET_CONDITIONAL) {
            return error(at, "unsupported in ptx-emu: call");
        }
        self.advance()?;
        self.expect(',')?;
        self.expect('(')?;
        let passed = self.list(|p| {
            let (name, at) = p.name("a parameter")?;
            Ok(Operand { at, kind: OperandKind::Address(Some(name), 0) })
        })?;
        self.expect(')')?;
        Ok(passed)
    }
}

/// The state space a directive such as `.shared` names.
pub(super) fn space(word: &str) -> Option<StateSpace> {
    Some(match word {
        ".global" => StateSpace::Global,
        ".const" => StateSpace::Const,
        ".shared" => StateSpace::Shared,
        ".local" => StateSpace::Local,
        _ => return None,
    })
}
