//! Parses tokens into a syntax tree.
//!
//! The grammar is that of `jinja2/parser.py` with the extension `loopcontrols` and the tag
//! `generation` of transformers.

use std::sync::Arc;

use crate::chat::jinja::builtins::names::{is_filter, is_test};
use crate::chat::jinja::error::Error;
use crate::chat::jinja::limits::DEEPEST_SYNTAX;
use crate::chat::jinja::parse::lexer::{self, Placed, Token};
use crate::chat::jinja::parse::symbols;
use crate::chat::jinja::parse::syntax::{
    Body, CallArguments, Comparison, Const, Expr, ExprKind, ForLoop, Frame, MacroDef, MacroUses,
    Operator, Stmt, StmtKind, Target,
};

/// A template that was parsed.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) frame: Frame,
    /// True if there is a `{% generation %}`.
    pub(crate) marks_replies: bool,
    /// True if a name is `strftime_now`.
    pub(crate) asks_date: bool,
}

/// A recursive descent parser.
struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    depth: usize,
    /// The number of loops around the statement, within its function.
    loops: usize,
    /// The number of conditions around the expression. Jinja reports an unknown filter in a
    /// condition only when it runs.
    conditions: usize,
    /// The special variables that were read, one entry for each macro around.
    uses: Vec<MacroUses>,
    blocks: Vec<String>,
    marks_replies: bool,
    asks_date: bool,
}

/// Parses a template.
///
/// # Errors
/// Returns an error with the line if the text is not a template.
pub(crate) fn parse(source: &str) -> Result<Parsed, Error> {
    let tokens = lexer::tokens(source)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        loops: 0,
        conditions: 0,
        uses: vec![],
        blocks: vec![],
        marks_replies: false,
        asks_date: false,
    };
    let mut body = parser.body(&[])?;
    let hidden = symbols::resolve(&mut body);
    let frame = Frame { body, hidden };
    Ok(Parsed {
        frame,
        marks_replies: parser.marks_replies,
        asks_date: parser.asks_date,
    })
}

type Parse<T> = Result<T, Error>;

impl Parser {
    /// Returns the next token.
    fn token(&self) -> &Token {
        &self.tokens[self.at].1
    }

    /// Returns the token after the next one.
    fn after(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].1
    }

    fn line(&self) -> u32 {
        self.tokens[self.at].0
    }

    /// Takes the next token. The last one, the end, stays.
    fn next(&mut self) -> Token {
        let token = self.token().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn error<T>(&self, problem: impl Into<String>) -> Parse<T> {
        Err(Error::syntax(self.line(), problem))
    }

    /// Returns the error for the next token.
    fn unexpected<T>(&self, expected: &str) -> Parse<T> {
        let found = match self.token() {
            Token::Data(_) => "text".to_owned(),
            Token::VariableBegin => "`{{`".to_owned(),
            Token::VariableEnd => "`}}`".to_owned(),
            Token::BlockBegin => "`{%`".to_owned(),
            Token::BlockEnd => "`%}`".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::String(text) => format!("the string {text:?}"),
            Token::Int(number) => format!("`{number}`"),
            Token::Float(number) => format!("`{number}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the template".to_owned(),
        };
        self.error(format!("expected {expected}, found {found}"))
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(found) if *found == sign)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.token(), Token::Name(found) if found == name)
    }

    fn skip_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.next();
        }
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.next();
        }
        found
    }

    fn expect_sign(&mut self, sign: &str) -> Parse<()> {
        if self.skip_sign(sign) {
            return Ok(());
        }
        self.unexpected(&format!("`{sign}`"))
    }

    fn expect(&mut self, token: &Token, shown: &str) -> Parse<()> {
        if self.token() != token {
            return self.unexpected(shown);
        }
        self.next();
        Ok(())
    }

    fn name(&mut self) -> Parse<String> {
        match self.token().clone() {
            Token::Name(name) => {
                self.next();
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Runs `parse` one level deeper, or returns an error if that is too deep.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Parser) -> Parse<T>) -> Parse<T> {
        self.depth += 1;
        if self.depth > DEEPEST_SYNTAX {
            return self.error(format!("nested more than {DEEPEST_SYNTAX} deep"));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    // Statements

    /// Parses statements up to a tag with one of these names, which stays the next token. Without
    /// names, up to the end.
    fn body(&mut self, ends: &[&str]) -> Parse<Body> {
        let mut body = vec![];
        loop {
            let line = self.line();
            let kind = match self.next() {
                Token::Data(text) => StmtKind::Data(text),
                Token::VariableBegin => {
                    let value = self.tuple(Form::Conditional, &[])?;
                    self.expect(&Token::VariableEnd, "`}}`")?;
                    StmtKind::Print(vec![value])
                }
                Token::BlockBegin => {
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    let statement = self.deeper(Parser::statement)?;
                    self.expect(&Token::BlockEnd, "`%}`")?;
                    statement
                }
                _ if ends.is_empty() => return Ok(body),
                _ => {
                    return self.error(format!(
                        "the template ends without {{% {} %}}",
                        ends[ends.len() - 1]
                    ));
                }
            };
            body.push(Stmt { line, kind });
        }
    }

    /// Parses the rest of an opening tag, a body, and the name of the tag that ends it. Returns
    /// that name, too.
    fn inner(&mut self, ends: &[&str]) -> Parse<(Body, String)> {
        self.skip_sign(":");
        self.expect(&Token::BlockEnd, "`%}`")?;
        let body = self.body(ends)?;
        let end = self.name()?;
        Ok((body, end))
    }

    /// Parses a body that has its own variables, and the tag that ends it.
    fn frame(&mut self, end: &str) -> Parse<Frame> {
        let (body, _) = self.inner(&[end])?;
        Ok(Frame {
            body,
            ..Frame::default()
        })
    }

    /// Parses a body that becomes a function.
    fn function(&mut self, end: &str) -> Parse<(Frame, MacroUses)> {
        let loops = std::mem::take(&mut self.loops);
        self.uses.push(MacroUses::default());
        let frame = self.frame(end)?;
        self.loops = loops;
        let uses = self.uses.pop().unwrap_or_default();

        // A macro within a macro belongs to the text of both, as Jinja sees it.
        if let Some(outer) = self.uses.last_mut() {
            outer.caller |= uses.caller;
            outer.varargs |= uses.varargs;
            outer.kwargs |= uses.kwargs;
        }

        Ok((frame, uses))
    }

    /// Parses a tag, after its opening sign.
    fn statement(&mut self) -> Parse<StmtKind> {
        let Token::Name(name) = self.token().clone() else {
            return self.unexpected("the name of a tag");
        };
        self.next();
        match &*name {
            "for" => self.for_loop(),
            "if" => self.if_statement(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => self.macro_statement(),
            "call" => self.call_block(),
            "filter" => {
                let filter = self.filter(None)?;
                let filter = self.filters(filter)?;
                let frame = self.frame("endfilter")?;
                Ok(StmtKind::FilterBlock { filter, frame })
            }
            "print" => self.print(),
            "block" => self.block(),
            "generation" => {
                self.marks_replies = true;

                // The tag makes a call of its body, which is a function.
                let (frame, uses) = self.function("endgeneration")?;
                let def = MacroDef {
                    name: None,
                    parameters: vec![],
                    defaults: vec![],
                    frame,
                    uses,
                };
                Ok(StmtKind::Generation(Arc::new(def)))
            }
            "break" | "continue" if self.loops == 0 => self.error(format!(
                "{{% {name} %}} is not in a loop, or a macro or call block is between"
            )),
            "break" => Ok(StmtKind::Break),
            "continue" => Ok(StmtKind::Continue),
            "autoescape" => {
                let value = self.expression()?;
                let frame = self.frame("endautoescape")?;
                match value.kind {
                    ExprKind::Const(Const::Bool(false)) => Ok(StmtKind::Scoped(frame)),
                    _ => self.error("autoescape is not supported, because the text is not HTML"),
                }
            }
            "extends" | "include" | "import" | "from" => self.error(format!(
                "{{% {name} %}} is not supported: there is no other template"
            )),
            _ => self.error(format!("unknown tag `{name}`")),
        }
    }

    /// Parses `{% for %}`, after its name.
    fn for_loop(&mut self) -> Parse<StmtKind> {
        let target = self.target(&["in"], Attributes::Rejected)?;
        if !self.skip_name("in") {
            return self.unexpected("`in`");
        }

        // An `if` after the items begins the test of the loop.
        let iter = self.tuple(Form::Plain, &["recursive"])?;
        let test = if self.skip_name("if") {
            Some(self.expression()?)
        } else {
            None
        };
        let recursive = self.skip_name("recursive");
        self.loops += 1;
        let (body, end) = self.inner(&["endfor", "else"])?;
        self.loops -= 1;
        let frame = Frame {
            body,
            ..Frame::default()
        };
        let otherwise = if end == "else" {
            self.frame("endfor")?
        } else {
            Frame::default()
        };
        if assigns(&target, "loop") {
            return self.error("the variable `loop` cannot be the target of a loop");
        }

        Ok(StmtKind::For(Arc::new(ForLoop {
            target,
            iter,
            test,
            recursive,
            frame,
            otherwise,
        })))
    }

    /// Parses `{% if %}`, after its name.
    fn if_statement(&mut self) -> Parse<StmtKind> {
        self.conditions += 1;
        let mut branches = vec![];
        let otherwise = loop {
            let test = self.tuple(Form::Plain, &[])?;
            let (body, end) = self.inner(&["elif", "else", "endif"])?;
            branches.push((test, body));
            match &*end {
                "elif" => {}
                "else" => break self.inner(&["endif"])?.0,
                _ => break vec![],
            }
        };
        self.conditions -= 1;
        Ok(StmtKind::If {
            branches,
            otherwise,
        })
    }

    /// Parses `{% set %}` with a value or a body, after its name.
    fn set(&mut self) -> Parse<StmtKind> {
        let target = self.target(&[], Attributes::Allowed)?;
        if self.skip_sign("=") {
            let value = self.tuple(Form::Conditional, &[])?;
            return Ok(StmtKind::Set(target, value));
        }

        let filter = if self.is_sign("|") {
            self.next();
            let filter = self.filter(None)?;
            Some(self.filters(filter)?)
        } else {
            None
        };
        let frame = self.frame("endset")?;
        Ok(StmtKind::SetBlock {
            target,
            filter,
            frame,
        })
    }

    /// Parses `{% with %}`, after its name.
    fn with(&mut self) -> Parse<StmtKind> {
        let mut bindings = vec![];
        while *self.token() != Token::BlockEnd {
            if !bindings.is_empty() {
                self.expect_sign(",")?;
            }
            let target = self.target(&[], Attributes::Rejected)?;
            self.expect_sign("=")?;
            bindings.push((target, self.expression()?));
        }

        let frame = self.frame("endwith")?;
        Ok(StmtKind::With { bindings, frame })
    }

    /// Parses parameters and their defaults.
    fn signature(&mut self) -> Parse<(Vec<String>, Vec<Expr>)> {
        let mut parameters = vec![];
        let mut defaults = vec![];
        self.expect_sign("(")?;
        while !self.is_sign(")") {
            if !parameters.is_empty() {
                self.expect_sign(",")?;
            }

            let name = self.name()?;
            if matches!(
                &*name,
                "true" | "false" | "none" | "True" | "False" | "None"
            ) {
                return self.error(format!("`{name}` cannot be a parameter"));
            }

            if self.skip_sign("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.error("a parameter without a default follows one with a default");
            } else if name == "caller" {
                // Only a call block passes it, so other calls of the macro would fail.
                return self.error("the parameter `caller` needs a default");
            }

            if parameters.contains(&name) {
                return self.error(format!("two parameters are called `{name}`"));
            }

            parameters.push(name);
        }

        self.expect_sign(")")?;
        Ok((parameters, defaults))
    }

    /// Parses `{% macro %}`, after its name.
    fn macro_statement(&mut self) -> Parse<StmtKind> {
        let name = self.name()?;
        let (parameters, defaults) = self.signature()?;
        let (frame, uses) = self.function("endmacro")?;
        let uses = without(uses, &parameters);
        Ok(StmtKind::Macro(Arc::new(MacroDef {
            name: Some(name),
            parameters,
            defaults,
            frame,
            uses,
        })))
    }

    /// Parses `{% call %}`, after its name.
    fn call_block(&mut self) -> Parse<StmtKind> {
        let (parameters, defaults) = if self.is_sign("(") {
            self.signature()?
        } else {
            Default::default()
        };
        let call = self.expression()?;
        if !matches!(call.kind, ExprKind::Call(..)) {
            return self.error("{% call %} needs a call of a macro");
        }

        let (frame, uses) = self.function("endcall")?;
        let uses = without(uses, &parameters);
        let body = Arc::new(MacroDef {
            name: None,
            parameters,
            defaults,
            frame,
            uses,
        });
        Ok(StmtKind::CallBlock { body, call })
    }

    /// Parses `{% print %}`, after its name.
    fn print(&mut self) -> Parse<StmtKind> {
        let mut values = vec![];
        while *self.token() != Token::BlockEnd {
            if !values.is_empty() {
                self.expect_sign(",")?;
            }
            values.push(self.expression()?);
        }
        Ok(StmtKind::Print(values))
    }

    /// Parses `{% block %}`, after its name.
    fn block(&mut self) -> Parse<StmtKind> {
        let name = self.name()?;
        if self.blocks.contains(&name) {
            return self.error(format!("the block `{name}` is defined twice"));
        }

        let scoped = self.skip_name("scoped");
        if self.is_name("required") {
            return self
                .error("a required block has no body, and there is no other template with one");
        }

        self.blocks.push(name.clone());

        // Jinja compiles a block into a function, which cannot leave a loop around it.
        let loops = std::mem::take(&mut self.loops);
        let frame = self.frame("endblock")?;
        self.loops = loops;
        self.skip_name(&name);
        Ok(if scoped {
            StmtKind::Scoped(frame)
        } else {
            StmtKind::Block(frame)
        })
    }

    /// Parses what is assigned to: a name, an attribute of a namespace where allowed, or several of
    /// these.
    fn target(&mut self, ends: &[&str], attributes: Attributes) -> Parse<Target> {
        let mut targets = vec![];
        let mut is_tuple = false;
        loop {
            if !targets.is_empty() {
                self.expect_sign(",")?;
            }

            // A comma may follow the last target.
            if self.is_tuple_end(ends) || self.is_sign("=") && is_tuple {
                break;
            }

            targets.push(self.target_item(attributes)?);
            if !self.is_sign(",") {
                break;
            }

            is_tuple = true;
        }

        match targets.pop() {
            Some(target) if !is_tuple => Ok(target),
            Some(target) => {
                targets.push(target);
                Ok(Target::Tuple(targets))
            }
            None => self.unexpected("a name to assign to"),
        }
    }

    /// Parses one target, or several in parentheses.
    fn target_item(&mut self, attributes: Attributes) -> Parse<Target> {
        if self.skip_sign("(") {
            let target = self.target(&[], attributes)?;
            self.expect_sign(")")?;
            return Ok(target);
        }

        let name = self.name()?;
        if matches!(
            &*name,
            "true" | "false" | "none" | "True" | "False" | "None"
        ) {
            return self.error(format!("`{name}` cannot be assigned to"));
        }

        if attributes == Attributes::Allowed && self.skip_sign(".") {
            let attribute = self.name()?;
            return Ok(Target::Attribute(name, attribute));
        }

        Ok(Target::Name(name))
    }

    // Expressions

    /// Returns true if the next token ends a tuple.
    fn is_tuple_end(&self, ends: &[&str]) -> bool {
        matches!(self.token(), Token::VariableEnd | Token::BlockEnd)
            || self.is_sign(")")
            || ends.iter().any(|end| self.is_name(end))
    }

    /// Parses an expression, or a tuple of several.
    fn tuple(&mut self, form: Form, ends: &[&str]) -> Parse<Expr> {
        let line = self.line();
        let mut items = vec![];
        let mut is_tuple = false;
        loop {
            if !items.is_empty() {
                self.expect_sign(",")?;
            }
            if self.is_tuple_end(ends) {
                break;
            }

            items.push(self.expression_of(form)?);
            if !self.is_sign(",") {
                break;
            }

            is_tuple = true;
        }

        match items.pop() {
            Some(item) if !is_tuple => Ok(item),
            Some(item) => {
                items.push(item);
                Ok(Expr {
                    line,
                    kind: ExprKind::Tuple(items),
                })
            }
            None => self.unexpected("an expression"),
        }
    }

    /// Parses an expression, which may be `a if b else c`.
    fn expression(&mut self) -> Parse<Expr> {
        self.expression_of(Form::Conditional)
    }

    fn expression_of(&mut self, form: Form) -> Parse<Expr> {
        self.deeper(|parser| match form {
            Form::Conditional => parser.conditional(),
            Form::Plain => parser.or(),
        })
    }

    /// Parses `a if b else c`. The part after `else` may be missing.
    fn conditional(&mut self) -> Parse<Expr> {
        let line = self.line();
        let start = self.depth;
        let mut value = self.or()?;
        while self.skip_name("if") {
            self.conditions += 1;
            let test = Box::new(self.or()?);
            let otherwise = if self.skip_name("else") {
                Some(Box::new(self.deeper(Parser::conditional)?))
            } else {
                None
            };
            self.conditions -= 1;
            let then = Box::new(value);
            value = self.wrap(
                line,
                ExprKind::Conditional {
                    test,
                    then,
                    otherwise,
                },
            )?;
        }

        self.depth = start;
        Ok(value)
    }

    /// Makes an expression that contains the one before it. Chains such as `a + b + c` nest to the
    /// left, so each link counts as a level. The caller resets the depth after the chain.
    fn wrap(&mut self, line: u32, kind: ExprKind) -> Parse<Expr> {
        self.depth += 1;
        if self.depth > DEEPEST_SYNTAX {
            return self.error(format!("nested more than {DEEPEST_SYNTAX} deep"));
        }
        Ok(Expr { line, kind })
    }

    fn or(&mut self) -> Parse<Expr> {
        let line = self.line();
        let start = self.depth;
        let mut left = self.and()?;
        while self.skip_name("or") {
            let right = self.and()?;
            left = self.wrap(line, ExprKind::Or(Box::new(left), Box::new(right)))?;
        }
        self.depth = start;
        Ok(left)
    }

    fn and(&mut self) -> Parse<Expr> {
        let line = self.line();
        let start = self.depth;
        let mut left = self.not()?;
        while self.skip_name("and") {
            let right = self.not()?;
            left = self.wrap(line, ExprKind::And(Box::new(left), Box::new(right)))?;
        }
        self.depth = start;
        Ok(left)
    }

    fn not(&mut self) -> Parse<Expr> {
        let line = self.line();
        if self.skip_name("not") {
            let value = Box::new(self.deeper(Parser::not)?);
            return Ok(Expr {
                line,
                kind: ExprKind::Not(value),
            });
        }
        self.compare()
    }

    fn compare(&mut self) -> Parse<Expr> {
        let line = self.line();
        let first = self.sum()?;
        let mut rest = vec![];
        loop {
            let comparison = match self.token() {
                Token::Sign("==") => Comparison::Equal,
                Token::Sign("!=") => Comparison::NotEqual,
                Token::Sign("<") => Comparison::Less,
                Token::Sign("<=") => Comparison::LessEqual,
                Token::Sign(">") => Comparison::Greater,
                Token::Sign(">=") => Comparison::GreaterEqual,
                Token::Name(name) if name == "in" => Comparison::In,
                Token::Name(name) if name == "not" => match self.after() {
                    Token::Name(name) if name == "in" => {
                        self.next();
                        Comparison::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.next();
            rest.push((comparison, self.sum()?));
        }

        if rest.is_empty() {
            return Ok(first);
        }

        Ok(Expr {
            line,
            kind: ExprKind::Compare(Box::new(first), rest),
        })
    }

    /// Parses a chain of binary operators with the same binding strength.
    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        operand: fn(&mut Parser) -> Parse<Expr>,
    ) -> Parse<Expr> {
        let line = self.line();
        let start = self.depth;
        let mut left = operand(self)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.is_sign(sign)) {
            self.next();
            let right = operand(self)?;
            left = self.wrap(
                line,
                ExprKind::Binary(*operator, Box::new(left), Box::new(right)),
            )?;
        }

        self.depth = start;
        Ok(left)
    }

    fn sum(&mut self) -> Parse<Expr> {
        self.chain(
            &[("+", Operator::Add), ("-", Operator::Sub)],
            Parser::concat,
        )
    }

    fn concat(&mut self) -> Parse<Expr> {
        let line = self.line();
        let mut parts = vec![self.product()?];
        while self.skip_sign("~") {
            parts.push(self.product()?);
        }

        match (parts.len(), parts.pop()) {
            (1, Some(part)) => Ok(part),
            (_, last) => {
                parts.extend(last);
                Ok(Expr {
                    line,
                    kind: ExprKind::Concat(parts),
                })
            }
        }
    }

    fn product(&mut self) -> Parse<Expr> {
        let operators = [
            ("*", Operator::Mul),
            ("/", Operator::Div),
            ("//", Operator::FloorDiv),
            ("%", Operator::Mod),
        ];
        self.chain(&operators, Parser::power)
    }

    /// Powers nest to the left in Jinja, unlike in Python.
    fn power(&mut self) -> Parse<Expr> {
        self.chain(&[("**", Operator::Pow)], Parser::filtered)
    }

    /// Parses a value with its signs, and the filters and tests after it.
    fn filtered(&mut self) -> Parse<Expr> {
        let start = self.depth;
        let value = self.unary()?;
        let value = self.filters(value)?;
        self.depth = start;
        Ok(value)
    }

    /// Parses a value with its signs. A filter applies to the signed value: `-1 | abs` is 1.
    fn unary(&mut self) -> Parse<Expr> {
        let line = self.line();
        let start = self.depth;
        let value = if self.skip_sign("-") {
            let value = Box::new(self.deeper(Parser::unary)?);
            Expr {
                line,
                kind: ExprKind::Negative(value),
            }
        } else if self.skip_sign("+") {
            let value = Box::new(self.deeper(Parser::unary)?);
            Expr {
                line,
                kind: ExprKind::Positive(value),
            }
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        self.depth = start;
        Ok(value)
    }

    /// Parses a name, a constant, or an expression in brackets.
    fn primary(&mut self) -> Parse<Expr> {
        let line = self.line();
        let kind = match self.next() {
            Token::Name(name) => match &*name {
                "true" | "True" => ExprKind::Const(Const::Bool(true)),
                "false" | "False" => ExprKind::Const(Const::Bool(false)),
                "none" | "None" => ExprKind::Const(Const::None),
                _ => {
                    self.read(&name);
                    ExprKind::Name(name)
                }
            },
            Token::String(mut text) => {
                // Adjacent strings are one, as in Python.
                while let Token::String(more) = self.token() {
                    text += more;
                    self.next();
                }
                ExprKind::Const(Const::String(text.into()))
            }
            Token::Int(number) => ExprKind::Const(Const::Int(number)),
            Token::Float(number) => ExprKind::Const(Const::Float(number)),
            Token::Sign("(") if self.skip_sign(")") => ExprKind::Tuple(vec![]),
            Token::Sign("(") => {
                let value = self.tuple(Form::Conditional, &[])?;
                self.expect_sign(")")?;
                return Ok(value);
            }
            Token::Sign("[") => {
                let mut items = vec![];
                while !self.is_sign("]") {
                    items.push(self.expression()?);
                    if !self.skip_sign(",") {
                        break;
                    }
                }
                self.expect_sign("]")?;
                ExprKind::List(items)
            }
            Token::Sign("{") => {
                let mut entries = vec![];
                while !self.is_sign("}") {
                    let key = self.expression()?;
                    self.expect_sign(":")?;
                    entries.push((key, self.expression()?));
                    if !self.skip_sign(",") {
                        break;
                    }
                }

                self.expect_sign("}")?;
                ExprKind::Dict(entries)
            }
            _ => {
                // The token was taken, and the error names the next one. The end is never taken.
                self.at -= usize::from(self.at + 1 < self.tokens.len());
                return self.unexpected("an expression");
            }
        };
        Ok(Expr { line, kind })
    }

    /// Records that a name is read.
    fn read(&mut self, name: &str) {
        self.asks_date |= name == "strftime_now";
        if let Some(uses) = self.uses.last_mut() {
            uses.caller |= name == "caller";
            uses.varargs |= name == "varargs";
            uses.kwargs |= name == "kwargs";
        }
    }

    /// Parses attributes, subscripts and calls after a value.
    fn postfix(&mut self, mut value: Expr) -> Parse<Expr> {
        loop {
            let line = self.line();
            let kind = if self.skip_sign(".") {
                match self.next() {
                    Token::Name(name) => ExprKind::Attribute(Box::new(value), name),
                    Token::Int(number) => {
                        let index = Expr {
                            line,
                            kind: ExprKind::Const(Const::Int(number)),
                        };
                        ExprKind::Item(Box::new(value), Box::new(index))
                    }
                    _ => return self.error("expected a name or a number after `.`"),
                }
            } else if self.skip_sign("[") {
                let index = self.subscript(line)?;
                ExprKind::Item(Box::new(value), Box::new(index))
            } else if self.is_sign("(") {
                let arguments = self.call_arguments()?;
                ExprKind::Call(Box::new(value), arguments)
            } else {
                return Ok(value);
            };
            value = self.wrap(line, kind)?;
        }
    }

    /// Parses the rest of a subscript, after its bracket.
    fn subscript(&mut self, line: u32) -> Parse<Expr> {
        let mut items = vec![];
        while !self.is_sign("]") {
            if !items.is_empty() {
                self.expect_sign(",")?;
            }
            items.push(self.subscript_item()?);
        }

        self.expect_sign("]")?;
        match (items.len(), items.pop()) {
            (1, Some(item)) => Ok(item),
            (_, last) => {
                items.extend(last);
                Ok(Expr {
                    line,
                    kind: ExprKind::Tuple(items),
                })
            }
        }
    }

    /// Parses an index or a slice.
    fn subscript_item(&mut self) -> Parse<Expr> {
        let line = self.line();
        let start = if self.is_sign(":") {
            None
        } else {
            Some(Box::new(self.expression()?))
        };
        if !self.skip_sign(":") {
            return match start {
                Some(index) => Ok(*index),
                None => self.unexpected("an index"),
            };
        }

        let ends = |parser: &Parser| [":", "]", ","].iter().any(|sign| parser.is_sign(sign));
        let stop = if ends(self) {
            None
        } else {
            Some(Box::new(self.expression()?))
        };
        let step = if self.skip_sign(":") && !ends(self) {
            Some(Box::new(self.expression()?))
        } else {
            None
        };
        Ok(Expr {
            line,
            kind: ExprKind::Slice(start, stop, step),
        })
    }

    /// Parses the arguments of a call in parentheses.
    fn call_arguments(&mut self) -> Parse<CallArguments> {
        let mut arguments = CallArguments::default();
        self.expect_sign("(")?;
        let wrong = "invalid syntax in the arguments of a call";
        while !self.is_sign(")") {
            // Positional arguments come before all others, and `**` comes last.
            if self.skip_sign("*") {
                if arguments.list.is_some() || arguments.dict.is_some() {
                    return self.error(wrong);
                }
                arguments.list = Some(Box::new(self.expression()?));
            } else if self.skip_sign("**") {
                if arguments.dict.is_some() {
                    return self.error(wrong);
                }
                arguments.dict = Some(Box::new(self.expression()?));
            } else if matches!(
                (self.token(), self.after()),
                (Token::Name(_), Token::Sign("="))
            ) {
                if arguments.dict.is_some() {
                    return self.error(wrong);
                }
                let name = self.name()?;
                self.next();
                if arguments.named.iter().any(|(known, _)| *known == name) {
                    return self.error(format!("the argument `{name}` is given twice"));
                }
                arguments.named.push((name, self.expression()?));
            } else {
                if arguments.list.is_some()
                    || arguments.dict.is_some()
                    || !arguments.named.is_empty()
                {
                    return self.error(wrong);
                }
                arguments.positional.push(self.expression()?);
            }
            if !self.is_sign(")") {
                self.expect_sign(",")?;
            }
        }

        self.expect_sign(")")?;
        Ok(arguments)
    }

    /// Parses filters, tests and calls after a value.
    fn filters(&mut self, mut value: Expr) -> Parse<Expr> {
        loop {
            let line = self.line();
            value = if self.skip_sign("|") {
                self.filter(Some(value))?
            } else if self.skip_name("is") {
                self.test(value)?
            } else if self.is_sign("(") {
                let arguments = self.call_arguments()?;
                self.wrap(line, ExprKind::Call(Box::new(value), arguments))?
            } else {
                return Ok(value);
            };
        }
    }

    /// Parses a name with dots, because extensions may have filters such as `a.b`.
    fn dotted_name(&mut self) -> Parse<String> {
        let mut name = self.name()?;
        while self.skip_sign(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    /// Parses a filter, after its sign.
    fn filter(&mut self, value: Option<Expr>) -> Parse<Expr> {
        let line = self.line();
        let name = self.dotted_name()?;
        if self.conditions == 0 && !is_filter(&name) {
            return self.error(format!("no filter is named `{name}`"));
        }

        let arguments = if self.is_sign("(") {
            self.call_arguments()?
        } else {
            CallArguments::default()
        };
        self.wrap(line, ExprKind::Filter(value.map(Box::new), name, arguments))
    }

    /// Parses a test, after `is`.
    fn test(&mut self, value: Expr) -> Parse<Expr> {
        let line = self.line();
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        if self.conditions == 0 && !is_test(&name) {
            return self.error(format!("no test is named `{name}`"));
        }

        // One argument may follow without parentheses, for example `x is divisibleby 3`.
        let begins_argument = match self.token() {
            Token::Name(name) => !matches!(&**name, "else" | "or" | "and"),
            Token::String(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Sign(sign) => matches!(*sign, "[" | "{"),
            Token::Data(_)
            | Token::VariableBegin
            | Token::VariableEnd
            | Token::BlockBegin
            | Token::BlockEnd
            | Token::End => false,
        };
        let arguments = if self.is_sign("(") {
            self.call_arguments()?
        } else if begins_argument {
            if self.is_name("is") {
                return self.error("tests cannot be chained with `is`");
            }
            let argument = self.primary()?;
            let argument = self.postfix(argument)?;
            CallArguments {
                positional: vec![argument],
                ..CallArguments::default()
            }
        } else {
            CallArguments::default()
        };
        let test = self.wrap(line, ExprKind::Test(Box::new(value), name, arguments))?;
        Ok(if negated {
            Expr {
                line,
                kind: ExprKind::Not(Box::new(test)),
            }
        } else {
            test
        })
    }
}

/// Returns true if a target contains a name.
fn assigns(target: &Target, name: &str) -> bool {
    match target {
        Target::Name(found) => found == name,
        Target::Attribute(..) => false,
        Target::Tuple(targets) => targets.iter().any(|target| assigns(target, name)),
    }
}

/// Removes the special variables that are parameters.
fn without(uses: MacroUses, parameters: &[String]) -> MacroUses {
    let is = |name: &str| parameters.iter().any(|parameter| parameter == name);
    MacroUses {
        caller: uses.caller,
        varargs: uses.varargs && !is("varargs"),
        kwargs: uses.kwargs && !is("kwargs"),
    }
}

/// The expressions that are allowed at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// All expressions.
    Conditional,
    /// Expressions without `a if b else c`, because an `if` after them has another meaning.
    Plain,
}

/// The treatment of namespaces as targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attributes {
    Allowed,
    Rejected,
}
