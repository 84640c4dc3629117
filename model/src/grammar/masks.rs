//! Computes the set of tokens that a grammar allows next.
//!
//! llguidance tries each token along a tree of their bytes. For free text with 150,000 tokens this
//! takes 1.5 ms per mask. This module keeps plain tokens in a separate tree (`plain`) and allows
//! whole branches of it where the lexer accepts any plain text (`stays`). It tries the other tokens
//! as llguidance does. The masks are equal bit for bit, which a test checks.

use std::sync::{Arc, Mutex, PoisonError};

use llguidance::TokenParser;
use llguidance::api::ParserLimits;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::toktrie::{Recognizer, SimpleVob, TokEnv, TokTrie};

use super::plain::{LONGEST, NEVER, PlainTokens};
use super::stays::StayCache;

/// The tokens of a vocabulary, divided into plain ones and others.
pub(super) struct DividedTokens {
    env: TokEnv,
    plain: PlainTokens,
    others: TokTrie,
}

/// Computes the masks of all matchers that share a lexer.
struct Masks {
    tokens: Arc<DividedTokens>,
    stays: Mutex<StayCache>,
}

impl DividedTokens {
    /// Divides the tokens of a vocabulary.
    pub(super) fn new(env: &TokEnv) -> DividedTokens {
        let trie = env.tok_trie();
        let plain = PlainTokens::new(trie);
        let mut others = trie.alloc_token_set();
        others.set_all(true);
        others.sub(plain.mask(LONGEST));
        DividedTokens {
            env: env.clone(),
            plain,
            others: trie.filter(&others),
        }
    }

    /// Makes a parser and its clones compute their masks here.
    ///
    /// A deep clone of the parser has a separate lexer and must not use the same masks, because
    /// they are cached by the state numbers of one lexer.
    pub(super) fn serve(self: &Arc<Self>, parser: &mut TokenParser, limits: &ParserLimits) {
        let lexer = parser
            .parser
            .grammar()
            .lexer_spec()
            .to_regex_vec(&mut limits.clone());
        if let Ok(lexer) = lexer {
            let stays = Mutex::new(StayCache::new(lexer.alpha()));
            parser.bias_computer = Arc::new(Masks {
                tokens: Arc::clone(self),
                stays,
            });
        }
    }
}

impl BiasComputer for Masks {
    fn compute_bias(&self, parser: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut allowed = self.trie().alloc_token_set();

        // The text may have bytes after its last token. That is rare, and few tokens start with
        // these bytes.
        if !start.is_empty() {
            self.trie().add_bias(parser, &mut allowed, start);
            return allowed;
        }

        let mut stays = self.stays.lock().unwrap_or_else(PoisonError::into_inner);
        stays.begin();
        let state = parser.lexer_state();
        let characters = stays.characters(parser, state);

        // Outside free text the tree of plain tokens would only add work.
        if characters == 0 && !stays.stays_after_one(parser, state) {
            self.trie().add_bias(parser, &mut allowed, &[]);
            return allowed;
        }

        allowed.or(self.tokens.plain.mask(characters));
        if characters < LONGEST {
            self.tokens
                .plain
                .add_longer(characters, parser, &mut stays, &mut allowed);
        }

        self.tokens.others.add_bias(parser, &mut allowed, &[]);
        allowed
    }

    fn trie(&self) -> &TokTrie {
        self.tokens.env.tok_trie()
    }
}

impl PlainTokens {
    /// Allows the plain tokens of more than `characters` characters that may come next.
    fn add_longer(
        &self,
        characters: u8,
        parser: &mut ParserRecognizer<'_>,
        stays: &mut StayCache,
        allowed: &mut SimpleVob,
    ) {
        parser.trie_started("plain");
        let mut next = 0;

        // The number of bytes that the parser has beyond the text.
        let mut depth = 0;
        while let Some(node) = self.nodes().get(next) {
            // Unless the node turns out to need its children, the subtree is skipped.
            let this = std::mem::replace(&mut next, node.end as usize);
            if node.reach <= characters {
                continue;
            }

            let before = usize::from(node.depth - 1);
            parser.pop_bytes(depth - before);
            depth = before;
            if !parser.try_push_byte(node.byte) {
                continue;
            }

            depth += 1;
            if node.longest != NEVER && stays.stays(parser, parser.lexer_state(), node.longest) {
                self.allow_all(node, allowed);
            } else {
                self.allow(node, allowed);
                next = this + 1;
            }
        }

        parser.trie_finished();
    }
}

#[cfg(test)]
mod tests {
    use llguidance::api::TopLevelGrammar;
    use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo};
    use llguidance::{Matcher, ParserFactory};
    use serde_json::json;

    use super::*;
    use crate::grammar::stays::FUEL;

    /// Returns every byte, and 3,000 words of random pieces. Some are longer than plain tokens.
    fn vocabulary() -> Vec<Vec<u8>> {
        let pieces = [
            "a", "be", "see", " ", "é", "日本", "🦀", "0", "12", "\"", "\\", "\n", "ms)", " (",
            ": ",
        ];
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let mut state = 1_u64;
        let mut random = |most: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..3000 {
            let most = if random(10) == 0 { 14 } else { 4 };
            let count = 1 + random(most);
            let mut word: Vec<u8> = (0..count)
                .flat_map(|_| pieces[random(pieces.len())].bytes())
                .collect();

            // Some begin or end within a character.
            let (begin, end) = (random(30) / 29, word.len() - random(30) / 29);
            word = word
                .get(begin..end)
                .filter(|word| !word.is_empty())
                .unwrap_or(b"x")
                .to_vec();
            words.push(word);
        }

        words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], &b"<|end|>"[..]].concat());
        words
    }

    fn grammars() -> Vec<TopLevelGrammar> {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "maxLength": 9}, "b": {"type": "array", "items": {"type": "string"}},
            "c": {"type": "string", "pattern": "^[a-e]{2,12}( [^b]*)?$"}}});
        vec![
            TopLevelGrammar::from_json_schema(schema),
            TopLevelGrammar::from_regex(r"[a-z]+: [^\n]{1,40} \([0-9]+ms\)"),
            TopLevelGrammar::from_regex(r"(\p{L}|[ 0-9]){3,20}é?"),
            TopLevelGrammar::from_lark(
                "start: (WORD \" \")* \"<|end|>\" TEXT\nWORD: /[^ ]+/\nTEXT: /(?s:.*)/\n".into(),
            ),
            // The lexer needs a state for each combination of positions of `a`, so the effort is
            // exceeded.
            TopLevelGrammar::from_regex(r"[^\n]*a[^\n]{11}"),
        ]
    }

    /// Compares the masks of this module with those of the library along random texts.
    fn compare(
        factory: &ParserFactory,
        tokens: &Arc<DividedTokens>,
        grammar: TopLevelGrammar,
        seed: usize,
    ) -> usize {
        let mut here = factory.create_parser(grammar.clone()).unwrap();
        tokens.serve(&mut here, factory.limits());
        let starts =
            [here, factory.create_parser(grammar).unwrap()].map(|parser| Matcher::new(Ok(parser)));
        let mut compared = 0;
        for walk in 0..3 {
            let mut matchers = starts.clone();
            for step in 0..25 {
                if matchers[0].is_stopped() {
                    break;
                }

                let [found, wanted] = matchers
                    .each_mut()
                    .map(|matcher| matcher.compute_mask().unwrap());
                assert_eq!(
                    found.as_slice(),
                    wanted.as_slice(),
                    "grammar {seed}, walk {walk}, step {step}"
                );
                compared += 1;
                let place = (seed * 31 + walk * 17 + step * 7919) % wanted.num_set();
                let token = wanted.iter().nth(place).unwrap();
                for matcher in &mut matchers {
                    matcher.consume_token(token).unwrap();
                }
            }
        }

        compared
    }

    #[test]
    fn masks_are_those_of_the_library() {
        let words = vocabulary();
        let end = words.len() as u32 - 1;
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
        factory.quiet();
        factory.limits_mut().step_lexer_fuel = FUEL;
        let tokens = Arc::new(DividedTokens::new(&env));
        let compared: usize = grammars()
            .into_iter()
            .enumerate()
            .map(|(seed, grammar)| compare(&factory, &tokens, grammar, seed))
            .sum();
        assert!(compared > 150, "{compared} masks");
    }
}
