//! Kernels and device functions: their names, parameters and directives.

use crate::syntax::ast::*;
use crate::syntax::lexer::PtxToken;
use crate::syntax::parser::{Mark, PtxParser};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error, unsupported};

impl<'a> PtxParser<'a> {
    /// Parses a kernel. Errors after its name belong to the kernel.
    pub(crate) fn entry(&mut self) -> Parsed<Entry<'a>> {
        self.advance()?;

        // The errors are separated before the name is read. Text after the name may be unreadable,
        // and that is an error of the kernel.
        let outer = std::mem::take(&mut self.errors);
        let (name, at) = match self.name("a kernel name") {
            Ok(found) => found,
            Err(e) => {
                self.errors.splice(0..0, outer);
                return Err(e);
            }
        };
        let mut entry = Entry {
            name,
            at,
            defined: true,
            ..Entry::default()
        };
        let mark = self.mark();
        let known = self.known_arrays();
        match self.head(&mut entry) {
            Ok(()) => self.body(&mut entry.body),
            Err(e) => {
                self.fail(e);
                self.skip_head(mark, &mut entry.body);
            }
        }

        self.forget_arrays(known);
        entry.errors = std::mem::replace(&mut self.errors, outer);
        Ok(entry)
    }

    /// Parses `.alias name, function;`.
    pub(crate) fn alias(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        self.advance()?;
        let (name, _) = self.name("a function")?;
        self.expect(',')?;
        let (other, _) = self.name("a function")?;
        module.aliases.push((name, other));
        self.expect(';')
    }

    /// Parses a function, declared or defined. Errors in its body belong to the function.
    pub(crate) fn function(&mut self) -> Parsed<Entry<'a>> {
        self.advance()?;
        self.attributes()?;

        // A function begins outside of all scopes. Only the vectors of the module stay visible.
        self.leave(0);
        let known = self.known_arrays();
        let returns = self.formals()?;
        let (name, at) = self.name("a function name")?;
        let params = self.formals()?;
        let mut function = Entry {
            name,
            at,
            function: true,
            params,
            returns,
            ..Entry::default()
        };
        self.function_directives()?;
        if self.eat(';')? {
            self.forget_arrays(known);
            return Ok(function);
        }

        self.opens()?;

        // A kernel that does not call the function stays usable, so errors in the body must not
        // reach the module.
        let outer = std::mem::take(&mut self.errors);
        function.defined = true;
        self.body(&mut function.body);
        self.forget_arrays(known);
        function.errors = std::mem::replace(&mut self.errors, outer);
        Ok(function)
    }

    /// Parses `name : .callprototype (..) _ (..);`. It only describes the arguments of calls.
    pub(crate) fn prototype(&mut self) -> Parsed<Statement<'a>> {
        self.advance()?;
        self.formals()?;
        self.name("`_`")?;
        self.formals()?;
        self.function_directives()?;
        self.expect(';')?;
        Ok(Statement::Prototype)
    }

    /// Parses the parameters of a function in parentheses, if there are any.
    fn formals(&mut self) -> Parsed<Vec<DeclaredVariable<'a>>> {
        if !self.eat('(')? || self.eat(')')? {
            return Ok(Vec::new());
        }
        let formals = self.list(Self::formal)?;
        self.expect(')')?;
        Ok(formals.into_iter().flatten().collect())
    }

    fn formal(&mut self) -> Parsed<Vec<DeclaredVariable<'a>>> {
        let space = if self.eat_dot(".reg")? {
            DeclaredSpace::Reg
        } else {
            DeclaredSpace::Param
        };
        if space == DeclaredSpace::Param && !self.eat_dot(".param")? {
            return self.unexpected("`.param` or `.reg`");
        }
        if space == DeclaredSpace::Reg && self.eat_dot(".pred")? {
            return Ok(vec![self.variable(space, Type::Pred, 1, 0, false)?]);
        }

        let (ty, vector, align) = self.variable_type()?;
        let formal = self.variable(space, ty, vector, align, false)?;
        let size = if space == DeclaredSpace::Reg {
            vector as usize
        } else {
            1
        };
        Ok(self.split_formal(formal, size))
    }

    /// Parses the directives between the parameters and the body of a function. They are hints for
    /// the compiler.
    fn function_directives(&mut self) -> Parsed<()> {
        while let PtxToken::Dot(word) = self.token {
            let at = self.at;
            match word {
                ".pragma" => self.pragma()?,
                ".noreturn" | ".unique" => self.advance()?,
                ".abi_preserve" | ".abi_preserve_control" | ".maxnreg" => {
                    self.advance()?;
                    self.int("a number of registers", 1 << 20)?;
                }
                _ => return unsupported(at, format!("directive `{word}` of a function")),
            }
        }
        Ok(())
    }

    fn opens(&mut self) -> Parsed<()> {
        if self.token != PtxToken::Mark('{') {
            return self.unexpected("`{`");
        }
        self.advance()
    }

    /// Parses the parameters and directives of a kernel, and the brace that opens its body.
    fn head(&mut self, entry: &mut Entry<'a>) -> Parsed<()> {
        if self.eat('(')? && !self.eat(')')? {
            entry.params = self.list(Self::parameter)?;
            self.expect(')')?;
        }
        self.performance(entry)?;
        self.opens()
    }

    /// Skips a head with errors and parses the body. Names in the head may be declared by it.
    fn skip_head(&mut self, mark: Mark<'a>, body: &mut Body<'a>) {
        self.lexer = mark.0;
        self.token = mark.1;
        self.at = mark.2;
        while !matches!(self.token, PtxToken::End | PtxToken::Mark('{' | ';')) {
            if let PtxToken::Name(name) = self.token {
                body.broken.push(name);
            }
            self.step();
        }

        let opens = self.token == PtxToken::Mark('{');
        self.step();
        if opens {
            self.body(body);
        }
    }

    fn parameter(&mut self) -> Parsed<DeclaredVariable<'a>> {
        if !self.eat_dot(".param")? {
            return self.unexpected("`.param`");
        }
        let (ty, vector, align) = self.variable_type()?;
        self.variable(DeclaredSpace::Param, ty, vector, align, false)
    }

    fn performance(&mut self, entry: &mut Entry<'a>) -> Parsed<()> {
        while let PtxToken::Dot(word) = self.token {
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
                // `.maxclusterrank` limits only launches with larger clusters, and `.language`
                // names the source language.
                ".maxclusterrank" | ".language" => _ = self.int("a number", 1 << 20)?,
                ".maxnctapersm" | ".maxnreg" => _ = self.int("a count", 1 << 20)?,
                _ => return unsupported(at, format!("directive `{word}` of a kernel")),
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
}
