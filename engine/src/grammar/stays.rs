//! Whether a lexer stays within what it has begun, whatever plain text follows.
//!
//! `stays(s, n)`: from the state s, no `n` plain characters end a lexeme or are refused. So each token of up to `n` of
//! them is allowed, and the parser need not be asked. With the states that one plain character leads to:
//!
//! ```text
//! stays(s, 0)
//! stays(s, n)  if stays(t, n - 1) for each t after s
//! ```
//!
//! A free text with an upper bound, `[^\n]{1,200}`, has another state for each number of characters, and alternatives
//! beside it that end sooner or later; a state has few others after it all the same. What is found of a state is kept for
//! the masks to come. Bytes that no expression of a grammar tells apart are asked for once.

use llguidance::HashMap;
use llguidance::derivre::StateID;
use llguidance::earley::ParserRecognizer;
use llguidance::earley::regexvec::AlphabetInfo;

use super::plain::LONGEST;

/// Transitions that are looked at for one mask, at most.
const EFFORT: u32 = 64_000;

/// What one counts that leads to a state that the lexer did not have: it takes so much longer.
const NEW_STATE: u32 = 40;

/// Masks for which the effort was too little, after which a grammar is no longer looked at: it has too many states.
const FAILURES: u32 = 2;

/// Work of the lexer for one mask, in the library's unit, 14,000 a millisecond. Its own limit is a fifth of that, and counts
/// on nobody who looks ahead.
pub(super) const FUEL: u64 = 1_000_000;

/// The bytes of plain characters: the first, the second, and so on. Whole ones of UTF-8, as its definition has them.
const CHARACTERS: [&[&[(u8, u8)]]; 8] = [
    &[&[(0x20, 0x21), (0x23, 0x5b), (0x5d, 0x7e)]],
    &[&[(0xc2, 0xdf)], REST],
    &[&[(0xe0, 0xe0)], &[(0xa0, 0xbf)], REST],
    &[&[(0xe1, 0xec), (0xee, 0xef)], REST, REST],
    &[&[(0xed, 0xed)], &[(0x80, 0x9f)], REST],
    &[&[(0xf0, 0xf0)], &[(0x90, 0xbf)], REST, REST],
    &[&[(0xf1, 0xf3)], REST, REST, REST],
    &[&[(0xf4, 0xf4)], &[(0x80, 0x8f)], REST, REST],
];

const REST: &[(u8, u8)] = &[(0x80, 0xbf)];

/// What is known of a state before it is looked at.
const UNKNOWN: (u8, u8) = (0, u8::MAX);

/// What is known of a lexer's states. It belongs to one lexer, whose numbers the states are.
pub(super) struct Stays {
    /// `CHARACTERS`, of each class of bytes one
    characters: Vec<Vec<Vec<u8>>>,
    /// The states after one plain character; none if one of them ends what was begun.
    after: HashMap<StateID, Option<Box<[StateID]>>>,
    /// By the number of a state: for how many characters it stays at least, and for how many it does not
    bounds: Vec<(u8, u8)>,
    /// [`stays_after_one`](Stays::stays_after_one)
    after_one: HashMap<StateID, bool>,
    /// The highest number of a state that was seen
    newest: u32,
    effort: u32,
    failures: u32,
}

impl Stays {
    /// Of a lexer with this alphabet.
    pub(super) fn new(alphabet: &AlphabetInfo) -> Stays {
        let classes = |ranges: &&[(u8, u8)]| {
            let mut bytes: Vec<u8> = ranges
                .iter()
                .flat_map(|(first, last)| *first..=*last)
                .collect();
            bytes.sort_unstable_by_key(|byte| (alphabet.map(*byte), *byte));
            bytes.dedup_by_key(|byte| alphabet.map(*byte));
            bytes
        };
        let characters = CHARACTERS
            .iter()
            .map(|bytes| bytes.iter().map(classes).collect())
            .collect();
        Stays {
            characters,
            after: HashMap::default(),
            bounds: vec![],
            after_one: HashMap::default(),
            newest: 0,
            effort: 0,
            failures: 0,
        }
    }

    /// A mask begins.
    pub(super) fn begin(&mut self) {
        self.effort = if self.failures < FAILURES { EFFORT } else { 0 };
    }

    /// Whether the lexer stays for so many characters; `false` also where that took too long to find out.
    pub(super) fn stays(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
        characters: u8,
    ) -> bool {
        self.find(lexer, state, characters.min(LONGEST)) == Some(true)
    }

    /// The number of characters that it stays for, at most [`LONGEST`]; fewer where that took too long to find out.
    pub(super) fn characters(&mut self, lexer: &mut ParserRecognizer<'_>, state: StateID) -> u8 {
        let (mut least, mut not) = (0, LONGEST + 1);
        while not - least > 1 {
            // The largest first, as most free texts have no end that is near.
            let middle = if not > LONGEST {
                LONGEST
            } else {
                least.midpoint(not)
            };
            match self.stays(lexer, state, middle) {
                true => least = middle,
                false => not = middle,
            }
        }
        least
    }

    /// Whether it stays for a character after some plain one: where it does not, no branch of tokens is allowed at once.
    pub(super) fn stays_after_one(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
    ) -> bool {
        if let Some(known) = self.after_one.get(&state) {
            return *known;
        }
        let firsts = &self.characters[0][0];
        let after = firsts.iter().map(|byte| {
            lexer
                .lexer_mut()
                .transition_start_state(state, Some(*byte), &None)
        });
        let mut after: Vec<_> = after
            .filter(|state| !state.is_dead() && !state.has_lowest_match())
            .collect();
        unique(&mut after);
        let stays = after.into_iter().any(|state| self.stays(lexer, state, 1));
        self.after_one.insert(state, stays);
        stays
    }

    fn find(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
        characters: u8,
    ) -> Option<bool> {
        let (least, not) = self
            .bounds
            .get(state.as_usize())
            .copied()
            .unwrap_or(UNKNOWN);
        if characters <= least || characters >= not {
            return Some(characters <= least);
        }
        let after = self.after(lexer, state)?;
        let stays = self.all(lexer, after.as_deref(), characters - 1)?;
        if self.bounds.len() <= state.as_usize() {
            self.bounds.resize(state.as_usize() + 1, UNKNOWN);
        }
        let bounds = &mut self.bounds[state.as_usize()];
        match stays {
            true => bounds.0 = bounds.0.max(characters),
            false => bounds.1 = bounds.1.min(characters),
        }
        Some(stays)
    }

    fn all(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        states: Option<&[StateID]>,
        characters: u8,
    ) -> Option<bool> {
        for state in states.unwrap_or_default() {
            if !self.find(lexer, *state, characters)? {
                return Some(false);
            }
        }
        Some(states.is_some())
    }

    /// The states after one plain character.
    fn after(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
    ) -> Option<Option<Box<[StateID]>>> {
        self.spend(1)?;
        if let Some(after) = self.after.get(&state) {
            return Some(after.clone());
        }
        let characters = std::mem::take(&mut self.characters);
        let after = self.after_each(lexer, state, &characters);
        self.characters = characters;
        let after = after?;
        self.after.insert(state, after.clone());
        Some(after)
    }

    fn after_each(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
        characters: &[Vec<Vec<u8>>],
    ) -> Option<Option<Box<[StateID]>>> {
        let mut all = vec![];
        for bytes in characters {
            let mut states = vec![state];
            for byte in bytes {
                match step(lexer, &states, byte) {
                    Some(after) => states = after,
                    None => return Some(None),
                }
                self.spend_on(&states, byte.len())?;
            }
            all.extend(states);
        }
        unique(&mut all);
        Some(Some(all.into()))
    }

    /// [`spend`](Stays::spend) for having come to these states by so many bytes.
    fn spend_on(&mut self, states: &[StateID], bytes: usize) -> Option<()> {
        let new = states
            .iter()
            .filter(|state| state.as_u32() > self.newest)
            .count() as u32;
        self.newest = states
            .iter()
            .map(StateID::as_u32)
            .fold(self.newest, u32::max);
        self.spend(bytes as u32 + NEW_STATE * new)
    }

    /// Nothing if there is not so much effort left.
    fn spend(&mut self, effort: u32) -> Option<()> {
        let left = self.effort.checked_sub(effort);
        if left.is_none() && self.effort > 0 {
            self.failures += 1;
        }
        self.effort = left.unwrap_or(0);
        left.map(|_| ())
    }
}

/// The states after one of these bytes; nothing if one of them ends what was begun, or is refused.
fn step(
    lexer: &mut ParserRecognizer<'_>,
    states: &[StateID],
    bytes: &[u8],
) -> Option<Vec<StateID>> {
    let mut after = vec![];
    for state in states {
        for byte in bytes {
            let next = lexer
                .lexer_mut()
                .transition_start_state(*state, Some(*byte), &None);
            if next.is_dead() || next.has_lowest_match() {
                return None;
            }
            after.push(next);
        }
    }
    unique(&mut after);
    Some(after)
}

fn unique(states: &mut Vec<StateID>) {
    states.sort_unstable_by_key(StateID::as_u32);
    states.dedup();
}
