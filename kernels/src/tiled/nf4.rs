//! A right operand in NF4, which a warpgroup unpacks into the stages of the ring.
//!
//! What lies in a stage are rows of 64 elements, 128 bytes each: of the tile's columns where the inner dimension is that of
//! `W`'s columns, else of `W`'s rows, panel after panel. Either way the 64 elements are neighbours in `W` and one block of
//! NF4, and a thread unpacks them: it rounds the 16 values that the block's codes may mean, `VALUES[code] * absmax`, once,
//! and then only picks bytes. The bits are those of unpacking to memory ([`Nf4Dequantize`]).
//!
//! [`Nf4Dequantize`]: crate::train::half::convert::Nf4Dequantize

use std::array::from_fn;

use ptx_gen::*;

use super::{DEPTH, ProductTile};
use crate::train::nf4::{BLOCK, VALUES};

/// Threads that unpack.
const THREADS: u32 = 128;
/// How many stages before it is loaded a row is brought into the L2 cache: more than memory's latency.
const AHEAD: u32 = 8;

/// A matrix in NF4. Its rows are whole blocks.
#[derive(Clone, Copy)]
pub(crate) struct Nf4<'k> {
    /// Two codes a byte, the first in the high nibble, from an address that is a multiple of 16.
    pub(crate) packed: Ptr<'k, u8, Read>,
    /// One for 64 weights.
    pub(crate) absmax: Ptr<'k, f32, Read>,
    /// Weights of a row: a multiple of 64.
    pub(crate) row: U32<'k>,
}

/// Which part of the matrix a tile of `y` is multiplied with.
#[derive(Clone, Copy)]
pub(super) struct Place<'k> {
    /// The tile's first column of `y`, and how many columns `y` has.
    pub(super) column: [U32<'k>; 2],
    /// Elements of the inner dimension.
    pub(super) depth: U32<'k>,
    /// Whether the inner dimension is that of the rows.
    pub(super) by_rows: bool,
}

/// What a thread unpacks: codes and `absmax` of 64 neighbours, of each 128th row of a stage.
///
/// They are asked for as soon as there are registers for them, but those of the last row only after the stage is given: its
/// fence might wait for them.
pub(super) struct Unpacker<'k> {
    k: Builder<'k>,
    of: Nf4<'k>,
    place: Place<'k>,
    /// Rows of 64 of a stage that a block unpacks, for all blocks of the cluster.
    rows: u32,
    /// Blocks of the cluster.
    blocks: u32,
    /// Of each of the thread's rows; of one row that of the next stage, too.
    fetched: [Fetched<'k>; 2],
}

struct Fetched<'k> {
    codes: [[Var<'k, u32>; 4]; 2],
    absmax: Var<'k, f32>,
}

impl<'k> Unpacker<'k> {
    /// Asks for what the first stage is made of.
    pub(super) fn new(k: Builder<'k>, of: Nf4<'k>, place: Place<'k>, tile: ProductTile) -> Self {
        let (rows, blocks) = (tile.columns() / tile.cluster(), tile.cluster());
        let none = |_| Fetched { codes: from_fn(|_| from_fn(|_| k.var(0u32))), absmax: k.var(0.0) };
        let mut all = Unpacker { k, of, place, rows, blocks, fetched: from_fn(none) };
        all.fetch(0, 0, k.val(0));
        match all.has_two() {
            true => all.fetch(1, 1, k.val(0)),
            false => all.fetch(1, 0, k.val(DEPTH)),
        }
        all
    }

    /// Whether a thread has two rows of a stage.
    fn has_two(&self) -> bool {
        self.rows > THREADS
    }

    /// The thread's row of the stage, and whether there is one.
    fn row(&self, i: u32) -> (U32<'k>, Pred<'k>) {
        let (k, first) = (self.k, i * THREADS);
        let row = k.tid() + first;
        let mine = if first + THREADS <= self.rows { k.always() } else { row.lt(self.rows) };
        (if self.blocks > 1 { row + k.cluster_rank() * self.rows } else { row }, mine)
    }

    /// The thread's 64 weights of row `i` of a stage of this depth: the first one's number, and whether they are there.
    fn at(&self, i: u32, depth: U32<'k>) -> (U32<'k>, Pred<'k>) {
        let (row, mine) = self.row(i);
        let Place { column: [column, columns], depth: end, by_rows } = self.place;
        let (inner, outer) = match by_rows {
            true => (depth + (row & (DEPTH - 1)), column + (row & !(DEPTH - 1))),
            false => (depth, column + row),
        };
        let at = if by_rows { inner * self.of.row + outer } else { outer * self.of.row + inner };
        (at, mine & inner.lt(end) & outer.lt(columns))
    }

    /// Asks for row `i` of the stage of this depth. What is outside of the matrix is 0.
    fn fetch(&mut self, to: usize, i: u32, depth: U32<'k>) {
        let (packed, scales) = (self.of.packed.cast::<u32>(), self.of.absmax);
        let (at, there) = self.at(i, depth);
        let Fetched { codes: [first, second], absmax } = &mut self.fetched[to];
        absmax.set(0.0);
        let words = packed.at(at / 8);
        words.ld4_if(there, first);
        words.at(4).ld4_if(there, second);
        scales.at(at / BLOCK as u32).ld_if(there, absmax);
        let (at, there) = self.at(i, depth + AHEAD * DEPTH);
        self.k.when(there, || {
            packed.at(at / 8).prefetch_l2();
            scales.at(at / BLOCK as u32).prefetch_l2();
        });
    }

    /// Writes the tile; `next` is the depth after this one.
    pub(super) fn write(&mut self, tile: Ptr<'k, u8, Shared>, next: U32<'k>) {
        self.unpack(0, tile);
        if self.has_two() {
            self.fetch(0, 0, next);
            self.unpack(1, tile);
        }
    }

    /// Asks for the rest of the next stage, once this one is given.
    pub(super) fn fetch_rest(&mut self, next: U32<'k>) {
        if self.has_two() {
            return self.fetch(1, 1, next);
        }
        let [now, then] = &mut self.fetched;
        for (to, word) in now.codes.iter_mut().flatten().zip(then.codes.iter().flatten()) {
            to.set(word.get());
        }
        now.absmax.set(then.absmax.get());
        self.fetch(1, 0, next + DEPTH);
    }

    /// Writes the thread's row `i`.
    fn unpack(&self, i: u32, tile: Ptr<'k, u8, Shared>) {
        let (row, mine) = self.row(i);
        let Fetched { codes, absmax } = &self.fetched[i as usize];
        self.k.when(mine, || {
            let table = Table::new(self.k, absmax.get());
            // Rows of 128 bytes, whose eight parts are spread by a swizzle.
            let words = tile.cast::<u32>();
            let other = |block: u32| words.in_block((self.k.cluster_rank() + block) % self.blocks);
            let others: Vec<_> = (1..self.blocks).map(other).collect();
            for (part, word) in (0..).zip(codes.iter().flatten()) {
                let spread = (row * 32 + (row & 7) * 4) ^ (part * 4u32);
                let eight = table.eight(word.get());
                words.at(spread).st4(eight);
                others.iter().for_each(|words| words.at(spread).st4(eight));
            }
        });
    }
}

/// The 16 values of a block as `bf16`: their low bytes and their high bytes, four in a word.
struct Table<'k> {
    low: [U32<'k>; 4],
    high: [U32<'k>; 4],
}

impl<'k> Table<'k> {
    fn new(k: Builder<'k>, absmax: F32<'k>) -> Self {
        k.note("the 16 values of a block, rounded; their low bytes, and their high ones");
        let value = |code: usize| absmax * VALUES[code];
        let pair = |i: usize| value(2 * i).pack_bf16(value(2 * i + 1));
        let four: [[U32<'k>; 2]; 4] = from_fn(|i| [pair(2 * i), pair(2 * i + 1)]);
        Table { low: four.map(|[a, b]| a.prmt(b, 0x6420)), high: four.map(|[a, b]| a.prmt(b, 0x7531)) }
    }

    /// The values of the codes of a word.
    fn eight(&self, word: U32<'k>) -> [U32<'k>; 4] {
        // The place among eight, and whether it is the second eight: a byte of the one or of the other.
        let (place, second) = (word & 0x7777_7777, (word >> 1) & 0x4444_4444 | 0x3210_3210);
        let four = |place: U32<'k>, second: U32<'k>| {
            let of = |bytes: &[U32<'k>; 4]| {
                let [a, b, c, d] = *bytes;
                a.prmt(b, place).prmt(c.prmt(d, place), second)
            };
            let (low, high) = (of(&self.low), of(&self.high));
            // The first of two codes is in the high nibble.
            [low.prmt(high, 0x4051), low.prmt(high, 0x6273)]
        };
        let ([a, b], [c, d]) = (four(place, second), four(place >> 16, second >> 16));
        [a, b, c, d]
    }
}
