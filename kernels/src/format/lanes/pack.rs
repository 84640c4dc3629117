//! Packs rows into a tile with one warp. Each lane writes its own words.
//!
//! A lane reads its groups of the rows `g` and `g + 8` as words. If blocks have an odd number of
//! halfwords, words are loaded from the last multiple of four bytes on, and [`Shift`] realigns
//! them.

use super::fragment::Bytes;
use ptx_gen::*;
use std::array::from_fn;

/// The part of a row that belongs to one tile.
pub(crate) struct TileRow<'k> {
    pub(crate) matrix: Bytes<'k>,
    /// The index of this part in the matrix, in units of a tile's columns.
    pub(crate) index: U32<'k>,
}

impl<'k> TileRow<'k> {
    /// Returns the address of the part's bytes.
    fn bytes(&self, row_bytes: u32) -> Bytes<'k> {
        self.matrix.row(self.index, row_bytes)
    }
}

/// A lane, with the two rows that it packs.
pub(crate) struct PackLane<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) lane: U32<'k>,
    /// The lane's index among the four lanes of its rows.
    pub(crate) t: U32<'k>,
    pub(crate) rows: [TileRow<'k>; 2],
    pub(crate) tile: Ptr<'k, u8, WriteOnly>,
    /// The bytes of a row of a tile.
    pub(crate) row_bytes: u32,
}

impl<'k> PackLane<'k> {
    /// Returns the addresses of the lane's rows.
    pub(crate) fn bytes(&self) -> [Bytes<'k>; 2] {
        self.rows.each_ref().map(|row| row.bytes(self.row_bytes))
    }

    /// Stores the lane's words `4 c` to `4 c + 3`.
    pub(crate) fn words(&self, c: u32, words: [U32<'k>; 4]) {
        self.tile
            .at(512 * c)
            .row(self.lane, 16)
            .cast::<u32>()
            .st4(words);
    }

    /// Stores `N` words for each row `g`, in units of `4 * N` bytes starting at byte `at`.
    pub(crate) fn row_words<const N: usize>(&self, at: u32, words: [U32<'k>; N]) {
        let to = self
            .tile
            .at(at)
            .row(self.lane >> 2, 4 * N as u32)
            .cast::<u32>();
        let store = || {
            for (i, &word) in words.iter().enumerate() {
                to.at(i as u32).st(word);
            }
        };
        self.k.when(self.t.eq(0), store);
    }

    /// Loads block `4 s + t` of `bytes` bytes of both rows. The header of a block is one or two
    /// `f16` values. Returns the words after the header, and each header value of both rows in a
    /// word.
    pub(crate) fn blocks(
        &self,
        rows: [Bytes<'k>; 2],
        bytes: u32,
        words: u32,
        s: u32,
    ) -> ([Vec<U32<'k>>; 2], Vec<U32<'k>>) {
        if bytes.is_multiple_of(4) {
            let from = rows.map(|row| row.at(4 * bytes * s).row(self.t, bytes).cast::<u32>());
            let [first, second] =
                from.map(|row| (0..=words).map(|i| row.at(i).ld()).collect::<Vec<_>>());
            // The selectors of the low and the high halves of both rows' headers.
            let halves = [0x5410, 0x7632];
            let header = halves.map(|half| first[0].prmt(second[0], half));
            let codes = [first[1..].into(), second[1..].into()];
            return (codes, header.into());
        }
        // Blocks of other sizes are aligned to two bytes only.
        let (words, scale) = self.halfword_blocks(rows, bytes, words, s);
        (words, vec![scale])
    }

    /// Loads block `4 s + t` of `bytes` bytes, an odd number of halfwords, of both rows. Returns
    /// `words` words of codes, and the scales of both rows in a word.
    pub(crate) fn halfword_blocks(
        &self,
        rows: [Bytes<'k>; 2],
        bytes: u32,
        words: u32,
        s: u32,
    ) -> ([Vec<U32<'k>>; 2], U32<'k>) {
        let odd = self.t & 1;
        let at = (self.t >> 1).mad(2 * bytes, odd * (bytes - 2));
        let rows = rows.map(|row| row.at(4 * bytes * s).at(at).cast::<u32>());
        let loaded = rows.map(|row| (0..=words).map(|i| row.at(i).ld()).collect::<Vec<_>>());

        // In even blocks, the scale is the lower half of the first word. In odd blocks, it is the
        // upper half.
        let scales = loaded[0][0].prmt(loaded[1][0], Shift::halfword(odd, 0x5410).0);
        (
            loaded.map(|words| Shift::halfword(odd, 0x5432).all(&words)),
            scales,
        )
    }

    /// Stores an `f16` value of group `4 s + t` of both rows, among the values that start at byte
    /// `at`.
    pub(crate) fn group_halves(&self, at: u32, s: u32, both: U32<'k>) {
        self.k
            .section("format/common/pack_scale", "pack a scale of both rows");
        self.tile
            .at(at + 4 * s)
            .row(self.lane, 8)
            .cast::<u32>()
            .st(both);
    }
}

/// A shift that realigns words that start at an aligned address or a halfword after it. The value
/// is a `prmt` selector of four of eight bytes.
#[derive(Clone, Copy)]
pub(crate) struct Shift<'k>(U32<'k>);

impl<'k> Shift<'k> {
    /// Returns `selector`, moved by one halfword where `odd` is 1.
    pub(crate) fn halfword(odd: U32<'k>, selector: u32) -> Self {
        Shift(odd.mad(0x2222, selector))
    }

    /// Realigns words. The result has one word less.
    fn all(self, words: &[U32<'k>]) -> Vec<U32<'k>> {
        words
            .windows(2)
            .map(|pair| pair[0].prmt(pair[1], self.0))
            .collect()
    }

    /// Realigns `N + 1` words into `N`.
    pub(crate) fn of<const N: usize>(self, words: &[U32<'k>]) -> [U32<'k>; N] {
        from_fn(|i| words[i].prmt(words[i + 1], self.0))
    }
}

/// Loads eight words at an address that is a multiple of 16.
pub(crate) fn load8(from: Bytes<'_>) -> [U32<'_>; 8] {
    let from = from.cast::<u32>();
    let low = from.ld4();
    let high = from.at(4).ld4();
    from_fn(|i| if i < 4 { low[i] } else { high[i - 4] })
}
