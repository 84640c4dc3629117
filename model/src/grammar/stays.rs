//! Finds lexer states in which any plain text is allowed.
//!
//! A lexer state `s` *stays* for `n` characters if no sequence of `n` plain characters ends the
//! current lexeme or is rejected. All tokens of up to `n` plain characters are then allowed, and
//! the parser need not try them. With the states that follow `s` after one plain character, the
//! definition is recursive:
//!
//! ```text
//! stays(s, 0)
//! stays(s, n)  if stays(t, n - 1) for each t after s
//! ```
//!
//! Results are cached per state, because a text visits the same states again. The number of states
//! can be large: free text with an upper bound, such as `[^\n]{1,200}`, has one for each number of
//! characters. But few states follow each of them, so the recursion is cheap. Bytes that the
//! grammar does not distinguish are in one class, and only one of each class is tried.

use llguidance::HashMap;
use llguidance::derivre::StateID;
use llguidance::earley::ParserRecognizer;
use llguidance::earley::regexvec::AlphabetInfo;

use super::plain::LONGEST;

/// The maximum effort for one mask, in lexer transitions.
const EFFORT: u32 = 64_000;

/// The effort of a transition to a state that the lexer has to create, because that takes longer.
const NEW_STATE: u32 = 40;

/// The number of masks that may exceed the effort. After that the search is switched off, because
/// the grammar has too many states.
const FAILURES: u32 = 2;

/// The limit of the library on the work of the lexer for one mask. It does about 14,000 units per
/// millisecond.
///
/// The default is a fifth of this. It does not allow for the transitions that are tried here.
pub(super) const FUEL: u64 = 1_000_000;

/// The byte ranges of plain characters in UTF-8 (RFC 3629, section 4), as alternatives with one
/// entry per byte.
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

/// The numbers of characters that are known for a state.
#[derive(Debug, Clone, Copy)]
struct StateBounds {
    /// The largest number for which the lexer is known to stay.
    stays: u8,
    /// The smallest number for which it is known not to stay.
    ends: u8,
}

/// The bounds of a state that has not been examined.
const UNKNOWN: StateBounds = StateBounds {
    stays: 0,
    ends: u8::MAX,
};

/// The states of the lexer after one plain character.
#[derive(Debug, Clone)]
enum Successors {
    /// A plain character ends the lexeme or is rejected.
    Ends,
    States(Box<[StateID]>),
}

/// The cached results for the states of one lexer. State numbers are meaningless for another lexer.
pub(super) struct StayCache {
    /// `CHARACTERS` with one byte of each class that the grammar distinguishes.
    characters: Vec<Vec<Vec<u8>>>,
    /// The successors of each state that was examined.
    after: HashMap<StateID, Successors>,
    /// The bounds of each state, by its number.
    bounds: Vec<StateBounds>,
    /// The results of [`stays_after_one`](StayCache::stays_after_one).
    after_one: HashMap<StateID, bool>,
    /// The highest state number so far. A higher one is a new state.
    newest: u32,
    effort: u32,
    failures: u32,
}

impl StayCache {
    /// Returns an empty cache for a lexer with this alphabet.
    pub(super) fn new(alphabet: &AlphabetInfo) -> StayCache {
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
        StayCache {
            characters,
            after: HashMap::default(),
            bounds: vec![],
            after_one: HashMap::default(),
            newest: 0,
            effort: 0,
            failures: 0,
        }
    }

    /// Starts a new mask and resets its effort.
    pub(super) fn begin(&mut self) {
        self.effort = if self.failures < FAILURES { EFFORT } else { 0 };
    }

    /// Returns true if the lexer stays for this number of characters, and false if it does not or
    /// the effort is exceeded.
    pub(super) fn stays(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
        characters: u8,
    ) -> bool {
        self.find(lexer, state, characters.min(LONGEST)) == Some(true)
    }

    /// Returns the number of characters for which the lexer stays, at most [`LONGEST`].
    ///
    /// The result may be too small if the effort is exceeded. Masks stay correct, because the
    /// remaining tokens are tried.
    pub(super) fn characters(&mut self, lexer: &mut ParserRecognizer<'_>, state: StateID) -> u8 {
        // A binary search: the lexer stays for `stays` characters, and not for `ends`.
        let mut stays = 0;
        let mut ends = LONGEST + 1;
        while ends - stays > 1 {
            // The largest number comes first, because the end of free text is usually far away.
            let middle = if ends > LONGEST {
                LONGEST
            } else {
                stays.midpoint(ends)
            };
            if self.stays(lexer, state, middle) {
                stays = middle;
            } else {
                ends = middle;
            }
        }

        stays
    }

    /// Returns true if the lexer stays for one more character after some plain character.
    ///
    /// Otherwise no branch of the token tree can be allowed as a whole, so the caller need not walk
    /// it.
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

    /// Returns whether the lexer stays, or `None` if the effort is exceeded.
    fn find(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
        characters: u8,
    ) -> Option<bool> {
        let known = self.bounds.get(state.as_usize()).copied();
        let known = known.unwrap_or(UNKNOWN);
        if characters <= known.stays {
            return Some(true);
        }
        if characters >= known.ends {
            return Some(false);
        }

        let after = self.after(lexer, state)?;
        let stays = self.all(lexer, &after, characters - 1)?;
        if self.bounds.len() <= state.as_usize() {
            self.bounds.resize(state.as_usize() + 1, UNKNOWN);
        }

        let bounds = &mut self.bounds[state.as_usize()];
        if stays {
            bounds.stays = bounds.stays.max(characters);
        } else {
            bounds.ends = bounds.ends.min(characters);
        }

        Some(stays)
    }

    /// Returns whether the lexer stays in all successors, or `None` if the effort is exceeded.
    fn all(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        successors: &Successors,
        characters: u8,
    ) -> Option<bool> {
        let Successors::States(states) = successors else {
            return Some(false);
        };
        for state in states {
            if !self.find(lexer, *state, characters)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Returns the successors of a state, or `None` if the effort is exceeded.
    fn after(&mut self, lexer: &mut ParserRecognizer<'_>, state: StateID) -> Option<Successors> {
        self.spend(1)?;
        if let Some(after) = self.after.get(&state) {
            return Some(after.clone());
        }

        // The table is moved out during the call, because `after_each` borrows `self` to count the
        // effort.
        let characters = std::mem::take(&mut self.characters);
        let after = self.after_each(lexer, state, &characters);
        self.characters = characters;
        let after = after?;
        self.after.insert(state, after.clone());
        Some(after)
    }

    /// Computes [`after`](StayCache::after) with the bytes of each plain character.
    fn after_each(
        &mut self,
        lexer: &mut ParserRecognizer<'_>,
        state: StateID,
        characters: &[Vec<Vec<u8>>],
    ) -> Option<Successors> {
        let mut all = vec![];
        for bytes in characters {
            let mut states = vec![state];
            for byte in bytes {
                match step(lexer, &states, byte) {
                    Some(after) => states = after,
                    None => return Some(Successors::Ends),
                }
                self.spend_on(&states, byte.len())?;
            }
            all.extend(states);
        }

        unique(&mut all);
        Some(Successors::States(all.into()))
    }

    /// Counts the effort of transitions to these states by `bytes` bytes each.
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

    /// Subtracts effort, or returns `None` if too little is left.
    fn spend(&mut self, effort: u32) -> Option<()> {
        let left = self.effort.checked_sub(effort);
        // Later calls for the same mask find an effort of 0, and must not count as further
        // failures.
        if left.is_none() && self.effort > 0 {
            self.failures += 1;
        }
        self.effort = left.unwrap_or(0);
        left.map(|_| ())
    }
}

/// Returns the states after one of these bytes, or `None` if a byte ends the lexeme or is rejected.
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
