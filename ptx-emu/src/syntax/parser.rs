//! A recursive descent parser for modules, kernels and statements.
//!
//! The recursion is never deeper than a vector in an operand. Directives of a module are in
//! [`crate::syntax::directives`], variables in [`crate::syntax::variables`], and operands in
//! [`crate::syntax::operands`].

use std::collections::HashMap;

use crate::syntax::ast::{WARP_SIZE, *};
use crate::syntax::lexer::{PtxLexer, PtxToken};
use crate::syntax::types::{Type, TypeKind};
use crate::syntax::vector_names::{Vector, VectorNames, size};
use crate::syntax::{At, Error, Parsed, error, unsupported};

/// The number of errors after which the parser stops.
pub(crate) const MOST_ERRORS: usize = 10_000;
/// The maximum size of the text in bytes.
pub(crate) const MOST_TEXT: usize = 64 << 20;
/// The maximum depth of nested scopes.
const MOST_SCOPES: usize = 64;
/// Linking directives, which precede the directive to which they belong.
const LINKING: &[&str] = &[".visible", ".weak", ".common", ".extern"];
/// The directives that every module needs.
const HEADER: &[&str] = &[".version", ".target", ".address_size"];
/// The directives with which an item of a module begins.
const ITEMS: &[&str] = &[
    ".version",
    ".target",
    ".address_size",
    ".file",
    ".section",
    ".alias",
    ".entry",
    ".func",
    ".visible",
    ".weak",
    ".common",
    ".extern",
    ".global",
    ".const",
    ".shared",
];

/// Parses a module. `names` are the elements of vector registers.
///
/// After an error, the parser continues with the next statement or the next item of the module.
/// Errors in the body of a kernel belong to the kernel.
///
/// # Errors
/// Returns an error if the text is too long.
pub(crate) fn parse<'a>(text: &'a str, names: &'a VectorNames) -> Result<Module<'a>, Vec<Error>> {
    if text.len() > MOST_TEXT {
        let what = format!(
            "the text has {} bytes, at most {MOST_TEXT} are accepted",
            text.len()
        );
        return Err(vec![Error::ill_formed(0, what)]);
    }

    let mut p = PtxParser::new(text, names);
    let mut module = Module::default();
    p.next();
    while p.token != PtxToken::End && p.count < MOST_ERRORS {
        p.recover_item(&mut module);
    }

    // A text with other errors may lack the directive because of them, so it is reported only
    // alone.
    if module.version.is_none() && p.count == 0 {
        let what = "no `.version` directive: a module starts with it";
        p.fail(Error::ill_formed(0, what));
    }

    // Variables of kernels join those of the module last, when all names are known.
    p.hoist(&mut module);
    module.errors = p.errors;
    module.broken = p.broken;
    Ok(module)
}

pub(crate) struct PtxParser<'a> {
    pub(crate) lexer: PtxLexer<'a>,
    pub(crate) token: PtxToken<'a>,
    /// The offset of `token`.
    pub(crate) at: At,
    /// The errors of the current kernel, or of the module outside of kernels.
    pub(crate) errors: Vec<Error>,
    /// The total number of errors.
    count: usize,
    /// Names whose declarations have errors.
    broken: Vec<&'a str>,
    /// The elements of registers that are vectors in some scope of the text.
    pub(crate) names: &'a VectorNames,
    /// The vector registers of the open scopes, and registers that hide one.
    pub(crate) vectors: Vec<Vector<'a>>,
    /// The variables of the open scopes, in order of declaration.
    arrays: Vec<DeclaredArray<'a>>,
    /// The opcode of the instruction whose operands are parsed.
    pub(crate) opcode: &'a str,
    /// The number of open scopes.
    pub(crate) depth: usize,
    /// Variables of the module that are declared within kernels.
    inner: Vec<DeclaredVariable<'a>>,
}

/// The properties of a variable that an index into it needs.
struct DeclaredArray<'a> {
    name: &'a str,
    /// The size of an element in bytes, or `None` if the variable is not an array.
    element: Option<u32>,
    depth: usize,
}

/// A position to which the parser can return.
pub(crate) type Mark<'a> = (PtxLexer<'a>, PtxToken<'a>, At);

/// The message of an error that follows from another error.
const FOLLOWS: &str = "";

/// Returns the description of an unexpected token.
fn show(token: PtxToken<'_>) -> String {
    match token {
        PtxToken::Name(s) | PtxToken::Dot(s) => format!("`{s}`"),
        PtxToken::Number(_) => "a number".into(),
        PtxToken::Text(s) => format!("\"{s}\""),
        PtxToken::Mark(c) => format!("`{c}`"),
        PtxToken::Bad => "something unreadable".into(),
        PtxToken::End => "the end of the text".into(),
    }
}

impl<'a> PtxParser<'a> {
    fn new(text: &'a str, names: &'a VectorNames) -> Self {
        PtxParser {
            lexer: PtxLexer::new(text),
            token: PtxToken::End,
            at: 0,
            errors: Vec::new(),
            count: 0,
            broken: Vec::new(),
            names,
            vectors: Vec::new(),
            arrays: Vec::new(),
            opcode: "",
            depth: 0,
            inner: Vec::new(),
        }
    }

    /// Advances to the next token. Invalid text is recorded.
    pub(crate) fn advance(&mut self) -> Parsed<()> {
        self.next();
        Ok(())
    }

    /// Advances to the next token and records invalid text.
    fn next(&mut self) {
        let before = self.errors.len();
        (self.token, self.at) = self.lexer.next(&mut self.errors);
        self.count += self.errors.len() - before;
    }

    /// Records an error, unless it follows from another error.
    pub(crate) fn fail(&mut self, error: Error) {
        if error.what != FOLLOWS {
            self.count += 1;
            self.errors.push(error);
        }
    }

    /// Records a variable of the current scope, so that `name[1]` finds the size of its elements.
    pub(crate) fn declare_array(&mut self, v: &DeclaredVariable<'a>) {
        let element = v.array.then(|| v.ty.bytes());
        self.arrays.push(DeclaredArray {
            name: v.name,
            element,
            depth: self.depth,
        });
    }

    /// Returns the size of an element of the array `name` in bytes, or `None` if there is no such
    /// array.
    pub(crate) fn element_size(&self, name: &str) -> Option<u32> {
        self.arrays
            .iter()
            .rev()
            .find(|array| array.name == name)?
            .element
    }

    /// Records that a register hides the array of the same name.
    pub(crate) fn hide_array(&mut self, name: &'a str) {
        if self.element_size(name).is_some() {
            self.arrays.push(DeclaredArray {
                name,
                element: None,
                depth: self.depth,
            });
        }
    }

    /// Returns the number of variables declared so far, for
    /// [`forget_arrays`](PtxParser::forget_arrays).
    pub(crate) fn known_arrays(&self) -> usize {
        self.arrays.len()
    }

    /// Removes the variables after the first `known`, for example the parameters of a kernel at its
    /// end.
    pub(crate) fn forget_arrays(&mut self, known: usize) {
        self.arrays.truncate(known);
    }

    pub(crate) fn mark(&self) -> Mark<'a> {
        (self.lexer.clone(), self.token, self.at)
    }

    /// Parses an item of the module. After an error, skips to the next item.
    fn recover_item(&mut self, module: &mut Module<'a>) {
        if self.token == PtxToken::Bad {
            module.unusable = true;
            return self.next();
        }

        let mark = self.mark();

        // Without a directive, the meaning of the following text is unknown. A wrong header
        // concerns all of it.
        let essential = !matches!(self.token, PtxToken::Dot(word) if !HEADER.contains(&word));
        if let Err(e) = self.item(module) {
            module.unusable |= essential;
            self.fail(e);
            self.skip_item(mark);
        }
    }

    /// Skips the item that begins at a mark, up to its `;`, its closing brace, or the start of
    /// another item.
    fn skip_item(&mut self, mark: Mark<'a>) {
        let start = mark.2;
        self.lexer = mark.0;
        self.token = mark.1;
        self.at = mark.2;
        let mut depth = 0usize;
        let mut linking = true;
        let mut named = false;
        while self.token != PtxToken::End {
            match self.token {
                PtxToken::Mark('{' | '(') => depth += 1,
                PtxToken::Mark(')') => depth = depth.saturating_sub(1),
                PtxToken::Mark('}') if depth <= 1 => return self.step_past('}'),
                PtxToken::Mark('}') => depth -= 1,
                PtxToken::Mark(';') if depth == 0 => return self.step_past(';'),
                PtxToken::Dot(word)
                    if depth == 0 && self.at > start && !linking && ITEMS.contains(&word) =>
                {
                    return;
                }
                // These directives never occur in braces or parentheses, so a missing brace hides
                // no kernel.
                PtxToken::Dot(".entry" | ".func" | ".visible" | ".weak")
                    if self.at > start && !linking =>
                {
                    return;
                }
                PtxToken::Name(name) if !named => {
                    named = true;
                    self.broken.push(name);
                }
                _ => {}
            }
            linking = matches!(self.token, PtxToken::Dot(word) if LINKING.contains(&word));
            self.step();
        }
    }

    /// Skips the end of an item. A `;` after a brace belongs to it.
    fn step_past(&mut self, mark: char) {
        self.step();
        if mark == '}' && self.token == PtxToken::Mark(';') {
            self.step();
        }
    }

    /// Skips up to and including the next `mark`.
    pub(crate) fn step_over(&mut self, mark: char) {
        while !matches!(self.token, PtxToken::End) && self.token != PtxToken::Mark(mark) {
            self.step();
        }
        self.step();
    }

    /// Advances to the next token and ignores errors in it.
    pub(crate) fn step(&mut self) {
        (self.token, self.at) = self.lexer.next(&mut Vec::new());
    }

    /// Parses a statement. After an error, skips its `;`, or skips to the brace that ends its
    /// scope.
    fn recover_statement(&mut self, body: &mut Body<'a>) {
        if self.token == PtxToken::Bad {
            return self.next();
        }
        let mark = self.mark();
        if let Err(e) = self.statement(&mut body.statements) {
            self.fail(e);
            self.skip_statement(mark, &mut body.broken);
        }
    }

    fn skip_statement(&mut self, mark: Mark<'a>, broken: &mut Vec<&'a str>) {
        let mut vectors = 0usize;
        let declares = matches!(mark.1, PtxToken::Dot(_));
        self.lexer = mark.0;
        self.token = mark.1;
        self.at = mark.2;
        while self.token != PtxToken::End {
            match self.token {
                PtxToken::Mark('{') => vectors += 1,
                PtxToken::Mark('}') if vectors == 0 => return,
                PtxToken::Mark('}') => vectors -= 1,
                PtxToken::Mark(';') => return self.step(),
                PtxToken::Name(name) if declares => broken.push(name),
                _ => {}
            }
            self.step();
        }
    }

    pub(crate) fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        match self.token {
            PtxToken::Bad => error(self.at, FOLLOWS),
            token => error(
                self.at,
                format!("{} where {wanted} was expected", show(token)),
            ),
        }
    }

    pub(crate) fn eat(&mut self, mark: char) -> Parsed<bool> {
        let found = self.token == PtxToken::Mark(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn expect(&mut self, mark: char) -> Parsed<()> {
        if self.eat(mark)? {
            Ok(())
        } else {
            self.unexpected(&format!("`{mark}`"))
        }
    }

    pub(crate) fn eat_dot(&mut self, word: &str) -> Parsed<bool> {
        let found = self.token == PtxToken::Dot(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn name(&mut self, what: &str) -> Parsed<(&'a str, At)> {
        match self.token {
            PtxToken::Name(name) => {
                let at = self.at;
                self.advance()?;
                Ok((name, at))
            }
            _ => self.unexpected(what),
        }
    }

    pub(crate) fn int(&mut self, what: &str, most: u64) -> Parsed<u64> {
        match self.token {
            PtxToken::Number(Number::Int(n)) if n <= most.into() => {
                self.advance()?;
                Ok(n as u64)
            }
            PtxToken::Name(WARP_SIZE) => {
                self.advance()?;
                Ok(32)
            }
            PtxToken::Number(Number::Int(n)) => error(
                self.at,
                format!("{n} is too large for {what}: at most {most}"),
            ),
            _ => self.unexpected(what),
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(',')? {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn item(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let PtxToken::Dot(word) = self.token else {
            return self.unexpected("a directive");
        };
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
            ".alias" => self.alias(module),
            ".attribute" => {
                self.attributes()?;
                self.declaration(module, false)
            }
            ".visible" | ".weak" | ".common" | ".extern" => {
                self.advance()?;
                // The other linking directives change nothing here, because there is no linker.
                self.declaration(module, word == ".extern")
            }
            _ => self.declaration(module, false),
        }
    }

    /// Adds the variables that are declared within kernels, if their names are unambiguous.
    fn hoist(&mut self, module: &mut Module<'a>) {
        let mut times: HashMap<&str, usize> = HashMap::new();
        for v in module.variables.iter().chain(&self.inner) {
            *times.entry(v.name).or_default() += 1;
        }
        for v in std::mem::take(&mut self.inner) {
            match times.get(v.name) {
                Some(1) => module.variables.push(v),
                _ => {
                    let what = format!(
                        "`{}` in a kernel, while another variable has this name",
                        v.name
                    );
                    self.broken.push(v.name);
                    self.errors.extend(unsupported::<()>(v.at, what).err());
                }
            }
        }
    }

    fn declaration(&mut self, module: &mut Module<'a>, external: bool) -> Parsed<()> {
        match self.token {
            PtxToken::Dot(".entry") => {
                let entry = self.entry()?;
                module.entries.push(entry);
                Ok(())
            }
            PtxToken::Dot(".func") => {
                let function = self.function()?;
                module.functions.push(function);
                Ok(())
            }
            PtxToken::Dot(word) if space(word).is_some() => {
                module.variables.extend(self.variables(external)?);
                Ok(())
            }
            _ => self.unexpected("a directive such as .entry, .global, .const or .shared"),
        }
    }

    pub(crate) fn body(&mut self, body: &mut Body<'a>) {
        self.depth = 1;
        while self.depth > 0 {
            if self.token == PtxToken::End || self.count >= MOST_ERRORS {
                let end = self.unexpected("`}`");
                return end.unwrap_or_else(|e| self.fail(e));
            }

            self.recover_statement(body);
            self.leave(self.depth);
            while self
                .arrays
                .last()
                .is_some_and(|array| array.depth > self.depth)
            {
                self.arrays.pop();
            }
        }
    }

    fn statement(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        match self.token {
            PtxToken::Mark('{') if self.depth < MOST_SCOPES => {
                self.depth += 1;
                body.push(Statement::Open);
                self.advance()
            }
            PtxToken::Mark('{') => {
                error(self.at, format!("scopes nested deeper than {MOST_SCOPES}"))
            }
            PtxToken::Mark('}') => {
                self.depth -= 1;
                if self.depth > 0 {
                    body.push(Statement::Close);
                }
                self.advance()
            }
            PtxToken::Mark(';') => self.advance(),
            PtxToken::Dot(word) => self.directive(word, body),
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
                let passed =
                    self.list(|p| p.variable(DeclaredSpace::Param, ty, vector, align, false))?;
                body.extend(passed.into_iter().map(Statement::Variable));
                self.expect(';')
            }
            _ if space(word).is_some() => {
                for variable in self.variables(false)? {
                    match variable.space {
                        // Such a variable exists once per module, although its name belongs to the
                        // scope.
                        DeclaredSpace::Global | DeclaredSpace::Const => self.inner.push(variable),
                        _ => body.push(Statement::Variable(variable)),
                    }
                }
                Ok(())
            }
            _ => unsupported(self.at, format!("directive `{word}` in a kernel")),
        }
    }

    fn registers(&mut self) -> Parsed<Statement<'a>> {
        let size = match self.token {
            PtxToken::Dot(word) => size(word),
            _ => None,
        };
        if size.is_some() {
            self.advance()?;
        }
        let PtxToken::Dot(word) = self.token else {
            return self.unexpected("a register type");
        };

        let Some(ty) = Type::parse(word).filter(|t| t.bits() != 8 || t.kind() != TypeKind::Float)
        else {
            return error(
                self.at,
                format!("`{word}` is not a register type that ptx-emu supports"),
            );
        };

        self.advance()?;
        let names = self.list(|p| {
            let (name, at) = p.name("a register name")?;
            p.hide_array(name);
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

        // Most texts have no vector registers, so the names need not be looked up.
        let split = if self.names.is_empty() {
            names
        } else {
            self.split(size.unwrap_or(1), names)?
        };
        Ok(Statement::Registers(ty, split))
    }

    /// Parses `.loc file line column`, and for inlined code `, function_name LABEL {+ offset},
    /// inlined_at file line column`.
    fn loc(&mut self) -> Parsed<Loc> {
        let mut loc = Loc {
            position: self.source_position()?,
            inlined_at: None,
        };
        while self.eat(',')? {
            match self.name("function_name or inlined_at")? {
                ("inlined_at", _) => loc.inlined_at = Some(self.source_position()?),
                _ => {
                    self.name("a label of .debug_str")?;
                    if self.eat('+')? {
                        self.int("an offset", u64::MAX)?;
                    }
                }
            }
        }
        Ok(loc)
    }

    fn source_position(&mut self) -> Parsed<SourcePosition> {
        let most = u32::MAX.into();
        Ok(SourcePosition {
            file: self.int("a file index", most)? as u32,
            line: self.int("a line", most)? as u32,
            column: self.int("a column", most)? as u32,
        })
    }

    fn labelled(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let start = self.at;
        let guard = self.guard()?;
        let (name, at) = self.name("an instruction")?;

        // A name before a colon is a label or names a list. A guard can only precede an
        // instruction.
        if guard.is_none() && self.eat(':')? {
            body.push(match self.token {
                PtxToken::Dot(".branchtargets") => Statement::Targets(name, self.names("a label")?),
                PtxToken::Dot(".calltargets") => {
                    Statement::Callees(name, self.names("a function")?)
                }
                PtxToken::Dot(".callprototype") => self.prototype()?,
                _ => Statement::Label(name, at),
            });
            return Ok(());
        }

        let inst = self.inst(start, guard, name)?;
        body.push(Statement::Inst(inst));
        Ok(())
    }

    /// Parses the names after a directive of a label, up to the semicolon.
    fn names(&mut self, what: &str) -> Parsed<Vec<(&'a str, At)>> {
        self.advance()?;
        let names = self.list(|p| p.name(what))?;
        self.expect(';')?;
        Ok(names)
    }

    fn guard(&mut self) -> Parsed<Option<Guard<'a>>> {
        if !self.eat('@')? {
            return Ok(None);
        }
        let negated = self.eat('!')?;
        let (name, at) = self.name("a predicate")?;
        Ok(Some(Guard { name, at, negated }))
    }

    fn inst(
        &mut self,
        at: At,
        guard: Option<Guard<'a>>,
        opcode: &'a str,
    ) -> Parsed<ParsedInstruction<'a>> {
        let mut mods = Vec::new();
        while let PtxToken::Dot(word) = self.token {
            mods.push((word, self.at));
            self.advance()?;
            // The old syntax `ld.const[2]` selects a bank between two suffixes.
            if word == ".const" && self.token == PtxToken::Mark('[') {
                self.bank()?;
            }
        }

        self.opcode = opcode;
        let operands = match self.token {
            PtxToken::Mark(';') => Vec::new(),
            _ if opcode == "call" => self.list(Self::call_operand)?,
            _ => self.list(Self::operand)?,
        };
        let end = self.at;
        self.expect(';')?;
        Ok(ParsedInstruction {
            at,
            end,
            guard,
            opcode,
            mods,
            operands,
        })
    }
}

/// Returns the state space that a directive such as `.shared` names.
pub(crate) fn space(word: &str) -> Option<DeclaredSpace> {
    Some(match word {
        ".global" => DeclaredSpace::Global,
        ".const" => DeclaredSpace::Const,
        ".shared" => DeclaredSpace::Shared,
        ".local" => DeclaredSpace::Local,
        _ => return None,
    })
}
