//! Codes of four bits that are indices into a table of 16 signed bytes.

use super::unpack::{BYTE, bytes, split};
use crate::format::lanes::codes;
use crate::format::lanes::multiply::{Codes, RowSums, TileLane, TileMultiplier, TilePtr};
use crate::format::lanes::row::RowFragment;
use ptx_gen::*;
use std::array::from_fn;

/// The table of IQ4_NL and IQ4_XS, ggml's `kvalues_iq4nl`.
pub(crate) const IQ4: Lookup = Lookup([
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
]);

/// A table of 16 entries.
#[derive(Clone, Copy)]
pub(crate) struct Lookup(pub(crate) [i8; 16]);

impl Lookup {
    /// Returns the entry of a code.
    pub(crate) fn value(&self, code: u32) -> f32 {
        f32::from(self.0[code as usize])
    }

    /// Loads the table into registers.
    pub(crate) fn load<'k>(&self, k: Builder<'k>) -> Table<'k> {
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|j| self.0[4 * i + j] as u8));
        Table {
            k,
            words: [0, 1, 2, 3].map(|i| k.val(word(i))),
        }
    }
}

/// The table in four words of four entries.
#[derive(Clone, Copy)]
pub(crate) struct Table<'k> {
    k: Builder<'k>,
    words: [U32<'k>; 4],
}

impl<'k> Table<'k> {
    /// Returns the entries of four codes as bytes. The codes are the nibbles of the low halfword of
    /// `codes`.
    ///
    /// `prmt` selects by three bits, and its fourth bit would replicate a sign. This function
    /// therefore selects from each half of the table, and then, by the fourth bit, from the two
    /// results.
    fn four(&self, codes: U32<'k>) -> U32<'k> {
        let three = codes & 0x7777;
        let half = |i: usize| self.words[i].prmt(self.words[i + 1], three);
        half(0).prmt(half(2), ((codes >> 1) & 0x4444) | 0x3210)
    }

    /// Returns the entries of the low nibbles, and of the high nibbles, of a word's bytes.
    pub(crate) fn both(&self, nibbles: U32<'k>) -> [U32<'k>; 2] {
        let first = self.four(nibbles);
        let second = self.four(nibbles >> 16);
        [first.prmt(second, 0x6420), first.prmt(second, 0x7531)]
    }

    /// Returns the entries of the low nibbles of a word's bytes, as floats.
    pub(crate) fn numbers(&self, nibbles: U32<'k>) -> [F32<'k>; 4] {
        self.k.section(
            "format/common/lookup",
            "entries of a table, by four nibbles",
        );
        let low = nibbles & 0x0f0f_0f0f;
        let pairs = low | (low >> 4);
        bytes(BYTE, split(self.four(pairs.prmt(pairs, 0x20))), 0)
    }
}

impl<'k> TileLane<'k> {
    /// Returns the entries of the codes of set `set` of 128 columns.
    pub(crate) fn entry_codes(
        &self,
        tile: TilePtr<'k>,
        lookup: &Lookup,
        set: u32,
    ) -> Vec<codes::Codes<'k>> {
        let table = lookup.load(self.k);
        self.nibble_set(tile, set)
            .map(|word| codes::Codes::Bytes(table.both(word)))
            .collect()
    }
}

impl<'k> TileMultiplier<'k> {
    /// Returns the entries of the codes of a tile.
    pub(crate) fn entries(&self, tile: TilePtr<'k>, lookup: &Lookup) -> Codes<'k> {
        let table = lookup.load(self.k);
        let words = self.nibble_words(tile);
        from_fn(|s| {
            from_fn(|i| {
                self.k.section(
                    "format/common/tile_lookup",
                    "entries of a table, eight columns of both rows",
                );
                let pair = &words[2 * s + i / 2][2 * (i % 2)..];
                let [[a, b], [c, d]] = [table.both(pair[0]), table.both(pair[1])];
                [a, b, c, d]
            })
        })
    }

    /// Multiplies a tile of entries by the activations of each token, and adds the results to the
    /// token's sums. `d[s][r]` is the scale of the lane's group of set `s` and row `g + 8 r`.
    pub(crate) fn multiply_entries(
        &self,
        codes: &Codes<'k>,
        d: [[F32<'k>; 2]; 2],
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        for (item, rows) in (0..).zip(batch) {
            self.token();
            let sets = self.sets(kt, item, codes, |sums, a, b| sums.add_i8(a, b));
            for (set, d) in sets.iter().zip(d) {
                for ((row, sum), d) in rows.iter_mut().zip(set.scaled()).zip(d) {
                    row.fma(sum, d);
                }
            }
        }
    }
}

impl<'k> RowFragment<'k> {
    /// Returns the entries of sixteen codes.
    pub(crate) fn entries(&self, lookup: &Lookup) -> Vec<F32<'k>> {
        let table = lookup.load(self.k);
        let entries = self
            .nibbles()
            .into_iter()
            .flat_map(|word| table.numbers(word))
            .collect();

        self.k
            .section("format/common/scale_lookup", "scale the entries of a row");
        entries
    }
}
