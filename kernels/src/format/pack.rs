//! A warp packs rows into a tile, each lane its own words.
//!
//! A lane reads its groups of rows `g` and `g + 8` as words. If blocks are an odd number of halfwords, words are
//! loaded from the last multiple of four bytes on, and [`Shift`] realigns them.

use super::Format;
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
    /// Its bytes.
    pub(super) fn bytes(&self, format: Format) -> Bytes<'k> {
        let columns = format.tile().map_or(0, |tile| tile.columns);
        self.matrix
            .row(self.index, format.row_bytes(columns as usize) as u32)
    }
}

/// A lane, with the two rows that it packs.
pub(crate) struct PackLane<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) lane: U32<'k>,
    /// Its index among the four lanes of its rows.
    pub(crate) t: U32<'k>,
    pub(crate) rows: [TileRow<'k>; 2],
    pub(crate) tile: Ptr<'k, u8, WriteOnly>,
    pub(crate) format: Format,
}

impl<'k> PackLane<'k> {
    /// Packs the lane's part of a tile.
    pub(crate) fn pack(&self) {
        self.k.section(
            self.format.section("pack"),
            format!("pack both rows of {}", self.format.name()),
        );
        self.format.tiles().pack(self);
    }

    /// The bytes of its rows.
    pub(super) fn bytes(&self) -> [Bytes<'k>; 2] {
        self.rows.each_ref().map(|row| row.bytes(self.format))
    }

    /// Stores the lane's words from `4 c` on.
    pub(super) fn words(&self, c: u32, words: [U32<'k>; 4]) {
        self.tile
            .at(512 * c)
            .row(self.lane, 16)
            .cast::<u32>()
            .st4(words);
    }

    /// Stores a word or two for each row `g`, at `at`, of `4 * N` bytes each.
    pub(super) fn row_words<const N: usize>(&self, at: u32, words: [U32<'k>; N]) {
        let to = self
            .tile
            .at(at)
            .row(self.lane >> 2, 4 * N as u32)
            .cast::<u32>();
        let store = || {
            words
                .iter()
                .enumerate()
                .for_each(|(i, &word)| to.at(i as u32).st(word))
        };
        self.k.when(self.t.eq(0), store);
    }

    /// Words of block `4 s + t` of `bytes` bytes, of both rows: those after its header, which is a binary16 number or
    /// two, and the header's numbers of both rows in a word each.
    pub(super) fn blocks(
        &self,
        rows: [Bytes<'k>; 2],
        bytes: u32,
        words: u32,
        s: u32,
    ) -> ([Vec<U32<'k>>; 2], Vec<U32<'k>>) {
        if bytes.is_multiple_of(4) {
            let from = rows.map(|row| row.at(4 * bytes * s).row(self.t, bytes).cast::<u32>());
            let [a, b] = from.map(|row| (0..=words).map(|i| row.at(i).ld()).collect::<Vec<_>>());
            let header = [0x5410, 0x7632].map(|half| a[0].prmt(b[0], half));
            return ([a[1..].into(), b[1..].into()], header.into());
        }
        let (words, scale) = self.halfword_blocks(rows, bytes, words, s);
        (words, vec![scale])
    }

    /// `words` words of codes of both rows, and their scales as one word, from block `4 s + t` of `bytes` bytes, an
    /// odd number of halfwords.
    pub(super) fn halfword_blocks(
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
        // In even blocks the scale is the lower half of the first word, in odd blocks the upper half.
        let scales = loaded[0][0].prmt(loaded[1][0], Shift::halfword(odd, 0x5410).0);
        (
            loaded.map(|words| Shift::halfword(odd, 0x5432).all(&words)),
            scales,
        )
    }

    /// Stores a binary16 number of group `4 s + t` of both rows, of those that start at byte `at`.
    pub(super) fn group_halves(&self, at: u32, s: u32, both: U32<'k>) {
        self.k
            .section("format/common/pack_scale", "a scale of both rows");
        self.tile
            .at(at + 4 * s)
            .row(self.lane, 8)
            .cast::<u32>()
            .st(both);
    }
}

/// Realigns words that start at an aligned address or a halfword after it: a `prmt` selector of four of eight bytes.
#[derive(Clone, Copy)]
pub(super) struct Shift<'k>(U32<'k>);

impl<'k> Shift<'k> {
    /// `selector`, one halfword on where `odd` is 1.
    pub(super) fn halfword(odd: U32<'k>, selector: u32) -> Self {
        Shift(odd.mad(0x2222, selector))
    }

    /// Words of one more.
    fn all(self, words: &[U32<'k>]) -> Vec<U32<'k>> {
        words
            .windows(2)
            .map(|pair| pair[0].prmt(pair[1], self.0))
            .collect()
    }

    /// `N` words of `N + 1`.
    pub(super) fn of<const N: usize>(self, words: &[U32<'k>]) -> [U32<'k>; N] {
        from_fn(|i| words[i].prmt(words[i + 1], self.0))
    }
}

/// Eight words from a multiple of 16 bytes on.
pub(super) fn load8(from: Bytes<'_>) -> [U32<'_>; 8] {
    let from = from.cast::<u32>();
    let (low, high) = (from.ld4(), from.at(4).ld4());
    from_fn(|i| if i < 4 { low[i] } else { high[i - 4] })
}
