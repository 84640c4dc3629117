//! Rejects compiled grammars that a text could enter and never complete.
//!
//! Examples are the rule `a: "x" a`, and a JSON schema that requires itself. A symbol is
//! *productive* if it is a terminal, may be empty, or has a rule with productive symbols only
//! (Hopcroft and Ullman, "Introduction to Automata Theory, Languages, and Computation", 1979,
//! section 4.4, computes the same set to remove useless symbols). The set is the least fixed point,
//! so a rule that only leads back to itself does not make its symbol productive.
//!
//! A symbol that is not productive is rejected even if a text can avoid it. A model that enters it
//! would write until its context is full.
//!
//! The module also finds rules with a setting that this crate does not follow.

use std::collections::BTreeSet;

use llguidance::api::ParserLimits;
use llguidance::earley::regexvec::LexemeSet;
use llguidance::earley::{CGrammar, CSymIdx};

/// Returns the name of the first reachable symbol that is not productive.
pub(super) fn part(grammar: &CGrammar) -> Option<String> {
    let reached = reached(grammar);
    let productive = productive(grammar, &reached);
    let endless = || {
        reached
            .iter()
            .filter(|symbol| !productive.contains(&symbol.as_index()))
    };
    let name = |symbol: &CSymIdx| plain(grammar.sym_name(*symbol)).to_owned();

    // In a schema, only the target of a `$ref` can lead back to itself. Its symbol has the name of
    // the reference, which the user knows, and it may come after symbols that only the library
    // knows.
    let referred = endless().map(name).find(|name| name.contains('#'));
    referred.or_else(|| endless().map(name).next())
}

/// Returns the name of the first symbol that matches nothing, for example the keys of an object
/// that are all excluded.
///
/// The parser would offer what comes before such a symbol, such as a comma, and the text could not
/// continue.
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

/// Returns the name of the first rule that sets a temperature. A decoder has one temperature for
/// the whole text.
pub(super) fn tempered(grammar: &CGrammar) -> Option<String> {
    let asks = |symbol: &CSymIdx| grammar.sym_data(*symbol).props.temperature != 0.0;
    reached(grammar)
        .into_iter()
        .find(asks)
        .map(|symbol| plain(grammar.sym_name(symbol)).to_owned())
}

/// Returns the name that the author of a grammar gave a symbol.
///
/// If a name is taken, the library appends `#` and a number. To `#`, the reference to the whole
/// schema, it appends only a number.
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

/// Returns the symbols that can be reached from the start, in breadth-first order.
fn reached(grammar: &CGrammar) -> Vec<CSymIdx> {
    let mut known = BTreeSet::from([grammar.start().as_index()]);
    let mut reached = vec![grammar.start()];
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

/// Returns the productive ones among these symbols.
fn productive(grammar: &CGrammar, symbols: &[CSymIdx]) -> BTreeSet<usize> {
    let mut productive = BTreeSet::new();
    // Each round adds symbols whose rules became productive in the round before. The last round
    // adds none.
    loop {
        let before = productive.len();
        for symbol in symbols {
            let data = grammar.sym_data(*symbol);
            let mut rules = data.rules.iter().map(|rule| grammar.rule_rhs(*rule).0);
            let empty = data.is_nullable || !data.cond_nullable.is_empty();
            let is_base = data.is_terminal || data.gen_grammar.is_some() || empty;
            let is_known = |part: &CSymIdx| productive.contains(&part.as_index());
            if is_base || rules.any(|parts| parts.iter().all(is_known)) {
                productive.insert(symbol.as_index());
            }
        }
        if productive.len() == before {
            return productive;
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
