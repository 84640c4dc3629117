//! Grammars, and parts of them, that no text ever leaves: `a: "x" a`, or a schema that requires itself; and rules that ask
//! for what is not done.
//!
//! A symbol *ends* if it is a terminal, may be empty, or has a rule all of whose symbols end. That is the least such set,
//! so a rule that only leads back to itself does not put its symbol there. A part that does not end is refused even where
//! a text can go around it: a model that goes in writes until its context is full.

use std::collections::BTreeSet;

use llguidance::api::ParserLimits;
use llguidance::earley::regexvec::LexemeSet;
use llguidance::earley::{CGrammar, CSymIdx};

/// The name of the first part of a grammar, from its beginning on, that does not end.
pub(super) fn part(grammar: &CGrammar) -> Option<String> {
    let reached = reached(grammar);
    let ending = ending(grammar, &reached);
    let endless = || {
        reached
            .iter()
            .filter(|symbol| !ending.contains(&symbol.as_index()))
    };
    let name = |symbol: &CSymIdx| plain(grammar.sym_name(*symbol)).to_owned();
    // In a schema only what is referred to can lead back to itself, and its symbol has the name of the reference.
    let referred = endless().map(name).find(|name| name.contains('#'));
    referred.or_else(|| endless().map(name).next())
}

/// Returns the name of the first symbol that matches nothing, for example the keys of an object that are all excluded.
///
/// The parser would offer what comes before such a symbol, such as a comma, and the text could not continue.
pub(super) fn dead(grammar: &CGrammar, limits: &ParserLimits) -> Option<String> {
    let spec = grammar.lexer_spec();
    let mut limits = limits.clone();
    let mut expressions = spec.to_regex_vec(&mut limits).ok()?;
    let symbols = reached(grammar);
    let is_dead = |symbol: &CSymIdx| {
        let data = grammar.sym_data(*symbol);
        let Some(lexeme) = data.lexeme.filter(|_| data.is_terminal) else {
            return false;
        };
        let mut alone = LexemeSet::new(spec.lexemes.len());
        alone.add(lexeme);
        // A token without a text, such as the one that ends the text, has no expression.
        let has_text = spec.token_range_lexemes(&alone).is_empty();
        has_text && expressions.initial_state(&alone).is_dead()
    };
    let dead = symbols.iter().position(is_dead)?;
    // The names of definitions tell the user more than that of the symbol itself.
    let holders = symbols[..dead]
        .iter()
        .rev()
        .map(|symbol| plain(grammar.sym_name(*symbol)));
    let definition = holders.into_iter().find(|name| name.contains('#'));
    Some(definition.unwrap_or("the schema").to_owned())
}

/// The name of the first rule that asks for a temperature of its own.
pub(super) fn tempered(grammar: &CGrammar) -> Option<String> {
    let asks = |symbol: &CSymIdx| grammar.sym_data(*symbol).props.temperature != 0.0;
    reached(grammar)
        .into_iter()
        .find(asks)
        .map(|symbol| plain(grammar.sym_name(symbol)).to_owned())
}

/// The name in the grammar: the library puts `#` and a number behind one that it uses already, and only a number behind
/// the reference to a whole schema.
fn plain(name: &str) -> &str {
    match name.rsplit_once('#') {
        Some((_, number))
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            name
        }
        Some(("", _)) => "#",
        Some((plain, _)) => plain,
        None => name,
    }
}

/// The symbols that a text can come to, in the order of the rules.
fn reached(grammar: &CGrammar) -> Vec<CSymIdx> {
    let (mut known, mut reached) = (BTreeSet::new(), vec![grammar.start()]);
    known.insert(grammar.start().as_index());
    let mut next = 0;
    while let Some(symbol) = reached.get(next).copied() {
        next += 1;
        for rule in grammar.rules_of(symbol) {
            let parts = grammar.rule_rhs(*rule).0.iter();
            reached.extend(parts.filter(|part| known.insert(part.as_index())));
        }
    }
    reached
}

/// Those of them that end.
fn ending(grammar: &CGrammar, symbols: &[CSymIdx]) -> BTreeSet<usize> {
    let mut ending = BTreeSet::new();
    loop {
        let before = ending.len();
        for symbol in symbols {
            let data = grammar.sym_data(*symbol);
            let mut rules = data.rules.iter().map(|rule| grammar.rule_rhs(*rule).0);
            let empty = data.is_nullable || !data.cond_nullable.is_empty();
            let given = data.is_terminal || data.gen_grammar.is_some() || empty;
            if given
                || rules.any(|parts| parts.iter().all(|part| ending.contains(&part.as_index())))
            {
                ending.insert(symbol.as_index());
            }
        }
        if ending.len() == before {
            return ending;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_are_those_of_the_grammar() {
        let cases = [
            ("start", "start"),
            ("start#2", "start"),
            ("#27", "#"),
            ("#", "#"),
            ("#/$defs/a1", "#/$defs/a1"),
            ("#/$defs/a#3", "#/$defs/a"),
        ];
        for (name, wanted) in cases {
            assert_eq!(plain(name), wanted);
        }
    }
}
