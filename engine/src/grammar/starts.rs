//! The beginnings of texts within one grammar.
//!
//! Matchers of one beginning share a lexer: what one has found out of the words of the grammar, the others know, but only
//! one of them can go on at a time. So those that are alive together are spread over a few beginnings. One that is alone
//! always has the first.

use std::sync::{Arc, Mutex, PoisonError};

use llguidance::TokenParser;
use llguidance::api::ParserLimits;

use super::masks::Divided;

/// The most beginnings of a grammar: each has its lexer's states, up to some MiB.
const MOST: usize = 8;

/// What matchers share that find their masks one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Lexer(Arc<()>);

impl Lexer {
    /// Equal for those who share it.
    pub(super) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// How many share it.
    fn shared(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

/// The beginnings of a grammar's texts.
pub(super) struct Starts(Mutex<Inner>);

struct Inner {
    /// Before its lexer knows anything.
    parser: TokenParser,
    tokens: Arc<Divided>,
    limits: ParserLimits,
    most: usize,
    starts: Vec<(llguidance::Matcher, Lexer)>,
}

impl Starts {
    pub(super) fn new(parser: TokenParser, tokens: Arc<Divided>, limits: &ParserLimits) -> Starts {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = limits.clone();
        Starts(Mutex::new(Inner { parser, tokens, limits, most: threads.min(MOST), starts: vec![] }))
    }

    /// A beginning that few others go on from now.
    pub(super) fn next(&self) -> (llguidance::Matcher, Lexer) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = inner.starts.iter().position(|(_, lexer)| lexer.shared() == 1);
        let least = match free {
            Some(free) => free,
            None if inner.starts.len() < inner.most => inner.add(),
            None => inner.least(),
        };
        inner.starts[least].clone()
    }
}

impl Inner {
    /// Adds a beginning with a lexer of its own, and gives its place.
    fn add(&mut self) -> usize {
        let mut parser = self.parser.deep_clone();
        self.tokens.serve(&mut parser, &self.limits);
        self.starts.push((llguidance::Matcher::new(Ok(parser)), Lexer::default()));
        self.starts.len() - 1
    }

    /// The place of the beginning that the fewest go on from.
    fn least(&self) -> usize {
        let places = 0..self.starts.len();
        places.min_by_key(|place| self.starts[*place].1.shared()).expect("there is a first")
    }
}
