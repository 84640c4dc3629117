//! The normalization in a SentencePiece model, `precompiled_charsmap`, which replaces certain
//! beginnings of a text.
//!
//! The bytes are the length of a trie, the trie as an array of 32-bit units, and the replacements,
//! each terminated by a zero (`normalizer.cc` of SentencePiece, `darts.h` of Darts-clone). From a
//! unit at index n with offset o, byte c leads to index n ^ o ^ c if the unit there has the label
//! c. If that unit has a leaf, its own offset leads to the start of its replacement. All units that
//! a text can reach are checked once, when the file is read.

use std::collections::HashSet;

/// A checked map.
#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}

fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xff)
}

fn value(unit: u32) -> usize {
    (unit & !(1 << 31)) as usize
}

impl Charsmap {
    /// Reads a map; none if its bytes are no such map.
    pub(crate) fn new(bytes: &[u8]) -> Option<Charsmap> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let (trie, replacements) = rest
            .split_at_checked(length)
            .filter(|_| length.is_multiple_of(4))?;
        let units = trie
            .chunks_exact(4)
            .map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        let replacements = String::from_utf8(replacements.to_vec()).ok()?;
        let map = Charsmap {
            units: units.collect(),
            replacements,
        };
        map.is_sound().then_some(map)
    }

    /// Whether no text leads out of the array, and each leaf to a replacement that ends.
    fn is_sound(&self) -> bool {
        let Some(root) = self.units.first() else {
            return false;
        };

        let mut open = vec![offset(*root)];
        let mut seen = HashSet::new();
        while let Some(base) = open.pop() {
            if !seen.insert(base) {
                continue;
            }
            for c in 1..=255u32 {
                let Some(unit) = self.units.get(base ^ c as usize) else {
                    return false;
                };
                if label(*unit) == c {
                    let next = base ^ c as usize ^ offset(*unit);
                    if has_leaf(*unit) && self.replacement(next).is_none() {
                        return false;
                    }
                    open.push(next);
                }
            }
        }

        true
    }

    fn replacement(&self, leaf: usize) -> Option<&str> {
        let rest = self.replacements.get(value(*self.units.get(leaf)?)..)?;
        rest.split_once('\0').map(|(text, _)| text)
    }

    /// Returns the replacement of the longest beginning of a text that has one, and the length of
    /// that beginning.
    pub(super) fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let mut found = None;
        let mut at = offset(*self.units.first()?);
        for (index, byte) in text.bytes().enumerate().take_while(|(_, byte)| *byte != 0) {
            at ^= usize::from(byte);
            let unit = *self.units.get(at)?;
            if label(unit) != u32::from(byte) {
                break;
            }

            at ^= offset(unit);

            // A map may end within a character; a text cannot.
            if has_leaf(unit) && text.is_char_boundary(index + 1) {
                found = self.replacement(at).map(|text| (text, index + 1));
            }
        }

        found
    }
}
