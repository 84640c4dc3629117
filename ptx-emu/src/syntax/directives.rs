//! Directives of a module: `.version`, `.target`, `.file` and skipped ones.

use crate::syntax::ast::*;
use crate::syntax::lexer::PtxToken;
use crate::syntax::parser::PtxParser;
use crate::syntax::{Parsed, error};

impl<'a> PtxParser<'a> {
    pub(crate) fn version(&mut self) -> Parsed<(u32, u32)> {
        self.advance()?;
        let at = self.at;
        let PtxToken::Number(Number::F64(bits)) = self.token else {
            return self.unexpected("a version such as 7.0");
        };

        let text = format!("{:?}", f64::from_bits(bits));
        self.advance()?;
        let parsed = text
            .split_once('.')
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        parsed.map_or_else(|| error(at, "not a version such as 7.0"), Ok)
    }

    pub(crate) fn target(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        self.advance()?;
        let words = self.list(|p| p.name("a target such as sm_80"))?;
        let named = |w: &str| w.starts_with("sm_") || w.starts_with("compute_");
        module.target = words
            .iter()
            .copied()
            .find(|(w, _)| named(w))
            .or(Some(words[0]));
        Ok(())
    }

    pub(crate) fn address_size(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.at;
        match self.int("the address size", 64)? {
            64 => Ok(()),
            n => error(at, format!("address size {n} is not supported, only 64")),
        }
    }

    pub(crate) fn file(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        self.advance()?;
        let index = self.int("a file index", u32::MAX.into())? as u32;
        let PtxToken::Text(name) = self.token else {
            return self.unexpected("a file name in quotes");
        };

        self.advance()?;
        module.files.push((index, name));
        while self.eat(',')? {
            self.int("a time stamp or a size", u64::MAX)?;
        }

        Ok(())
    }

    /// Skips a debug section up to its closing brace, because it contains nothing to execute.
    pub(crate) fn section(&mut self) -> Parsed<()> {
        while !matches!(self.token, PtxToken::Mark('}') | PtxToken::End) {
            self.advance()?;
        }
        self.expect('}')
    }

    pub(crate) fn pragma(&mut self) -> Parsed<()> {
        self.advance()?;
        self.list(|p| match p.token {
            PtxToken::Text(_) => p.advance(),
            _ => p.unexpected("a string"),
        })?;
        self.expect(';')
    }
}
