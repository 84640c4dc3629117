//! The shared memory of a block of a flash kernel: the rows that it owns, and the rows of two
//! steps.

use crate::shared::divided::divided;
use crate::shared::shared_rows::{Copier, Matrices, SharedRows};
use ptx_gen::*;

/// The number of warps of a block.
pub(super) const WARPS: u32 = 4;
/// The number of rows of a left operand.
pub(super) const ROWS: u32 = 16;
/// The number of bytes of a row of a panel.
const PANEL_ROW: u32 = 128;

/// The instruction with which the tensor cores multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TensorOp {
    /// `mma`: each warp multiplies its own rows.
    Mma,
    /// `wgmma`: the four warps multiply together and read a step from shared memory once. It needs
    /// heads of 64 or 128 dimensions, and sm_90a.
    Wgmma,
}

impl TensorOp {
    /// Returns the suffix of a kernel's name.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            TensorOp::Mma => "",
            TensorOp::Wgmma => "_wgmma",
        }
    }

    /// Returns true if rows are in panels, as [`Sizes::panels`] says.
    pub(super) const fn panels(self) -> bool {
        matches!(self, TensorOp::Wgmma)
    }
}

/// The sizes of a block.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// The number of dimensions of a head.
    pub(super) head_dim: u32,
    /// The number of tensors of which the block owns rows.
    pub(super) tensors: u32,
    /// The number of rows that the block owns of each tensor.
    pub(super) owned: u32,
    /// The number of rows of a step.
    pub(super) step: u32,
    /// True if rows are in panels of 64 dimensions, which `wgmma` reads.
    pub(super) panels: bool,
}

impl Sizes {
    /// Returns the number of rows that a warp owns.
    pub(super) const fn warp_rows(self) -> u32 {
        self.owned / WARPS
    }

    /// Returns the number of a warp's left operands of 16 rows.
    pub(super) const fn tiles(self) -> usize {
        (self.warp_rows() / ROWS) as usize
    }

    const fn rows(self) -> SharedRows {
        SharedRows::of(self.head_dim)
    }

    /// Returns the bytes of shared memory: the owned rows, then the rows of two steps, each of two
    /// tensors.
    pub(super) const fn shared(self) -> u32 {
        (self.tensors * self.owned + 4 * self.step) * self.rows().bytes
    }
}

/// A head of `[tokens, heads, head_dim]`.
#[derive(Clone, Copy)]
pub(super) struct TensorHead<'k> {
    pub(super) tensor: Ptr<'k, bf16, ReadOnly>,
    pub(super) heads: U32<'k>,
    pub(super) head: U32<'k>,
}

/// The addresses and bounds that the threads of a block compute at the start.
pub(super) struct FlashBlock<'k> {
    pub(super) k: Builder<'k>,
    pub(super) sizes: Sizes,
    rows: SharedRows,
    copier: Copier<'k>,
    memory: Ptr<'k, u8, Shared>,
    /// The first token that the block owns.
    pub(super) first: U32<'k>,
    /// The last token of the batch.
    pub(super) last: U32<'k>,
    /// The lane's address of rows 0 to 15, in the first unit of 16 bytes and then the second.
    tall: U32<'k>,
    /// The lane's address of both units of rows 0 to 7, and then of rows 8 to 15.
    wide: U32<'k>,
}

impl<'k> FlashBlock<'k> {
    /// Returns the block that owns the rows from token `first` on.
    pub(super) fn new(k: Builder<'k>, sizes: Sizes, first: U32<'k>, tokens: U32<'k>) -> Self {
        let rows = sizes.rows();
        let lane = k.lane();
        FlashBlock {
            k,
            sizes,
            rows,
            copier: Copier::new(k, rows, 32 * WARPS),
            memory: k.tile_memory("memory"),
            first,
            last: tokens - 1,
            tall: rows.place(lane & 15, lane >> 4),
            wide: rows.place((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1),
        }
    }

    /// Returns the first token that the warp owns. It may be past the last token.
    pub(super) fn warp_first(&self) -> U32<'k> {
        self.first + self.k.warp() * self.sizes.warp_rows()
    }

    /// Copies the block's rows of a tensor.
    pub(super) fn copy_owned(&self, tensor: u32, from: TensorHead<'k>) {
        self.copy(from, self.first, self.sizes.owned, self.owned(tensor));
    }

    /// Copies the rows of a step from token `first` on into the half `odd` of the double buffer.
    pub(super) fn copy_step(&self, from: [TensorHead<'k>; 2], first: U32<'k>, odd: U32<'k>) {
        for (from, to) in from.into_iter().zip(self.step(odd)) {
            self.copy(from, first, self.sizes.step, to);
        }
    }

    /// Copies `count` rows from token `first` on.
    ///
    /// Rows past the last token repeat it, so that a product with a weight of 0 is 0 and not NaN.
    fn copy(&self, from: TensorHead<'k>, first: U32<'k>, count: u32, to: Ptr<'k, u8, Shared>) {
        if self.sizes.panels {
            return self.copy_panels(from, first, count, to);
        }
        let unit = from.tensor.row(self.copier.unit, 16);
        self.copier.copy(count, to, |row, further| {
            let token = (first + row + further).min(self.last);
            unit.row(token * from.heads + from.head, 2 * self.sizes.head_dim)
        });
    }

    /// Copies rows like `copy` into panels of `count` rows, swizzled by 128 bytes.
    ///
    /// A thread copies one unit of 16 bytes from every row that is a multiple of its stride away.
    fn copy_panels(
        &self,
        from: TensorHead<'k>,
        first: U32<'k>,
        count: u32,
        to: Ptr<'k, u8, Shared>,
    ) {
        let units = self.sizes.head_dim / 8;
        let (row, unit) = divided(self.k.tid(), units);
        let panel = (unit >> 3) * (count * PANEL_ROW);

        // The 128-byte swizzle combines the unit with the row modulo eight, as `wgmma` expects.
        let to = to.row(panel + row * PANEL_ROW + (((unit & 7) ^ (row & 7)) << 4), 1);
        for further in (0..count).step_by((32 * WARPS / units) as usize) {
            let token = (first + row + further).min(self.last);
            let from = from
                .tensor
                .row(unit, 16)
                .row(token * from.heads + from.head, 2 * self.sizes.head_dim);
            from.copy16(to.at(further * PANEL_ROW).cast());
        }
    }

    /// Returns the block's rows of a tensor in panels, as an operand of `wgmma`.
    pub(super) fn owned_tile(&self, tensor: u32) -> Descriptor<'k, bf16> {
        let Sizes {
            owned, head_dim, ..
        } = self.sizes;
        Descriptor::by_columns(self.owned(tensor), owned, head_dim, Swizzle::B128)
    }

    /// Returns the rows of both tensors of a step as operands of `wgmma`: for sums over the
    /// dimensions, and for sums over the rows.
    pub(super) fn step_tiles(&self, odd: U32<'k>) -> [[Descriptor<'k, bf16>; 2]; 2] {
        let Sizes { step, head_dim, .. } = self.sizes;
        let tile = [Descriptor::by_columns, Descriptor::by_rows];
        self.step(odd)
            .map(|at| tile.map(|tile| tile(at, step, head_dim, Swizzle::B128)))
    }

    fn owned(&self, tensor: u32) -> Ptr<'k, u8, Shared> {
        self.memory.at(tensor * self.sizes.owned * self.rows.bytes)
    }

    /// Returns the rows of both tensors of a step.
    fn step(&self, odd: U32<'k>) -> [Ptr<'k, u8, Shared>; 2] {
        let bytes = self.sizes.step * self.rows.bytes;
        let first = self.owned(self.sizes.tensors).row(odd, 2 * bytes);
        [first, first.at(bytes)]
    }

    /// Returns the shared memory after the rows.
    pub(super) fn after_rows(&self) -> Ptr<'k, u8, Shared> {
        self.memory.at(self.sizes.shared())
    }

    /// Returns the warp's rows of a tensor as left operands.
    pub(super) fn left(&self, tensor: u32) -> Matrices<'k> {
        let rows = self
            .owned(tensor)
            .row(self.k.warp() * self.sizes.warp_rows(), self.rows.bytes);
        Matrices::new(self.rows, rows, self.tall)
    }

    /// Returns the rows of a step as right operands for `left right^T`, whose columns are rows.
    pub(super) fn columns(&self, odd: U32<'k>) -> [Matrices<'k>; 2] {
        self.step(odd)
            .map(|rows| Matrices::new(self.rows, rows, self.wide))
    }

    /// Returns the rows of a tensor of a step as right operands for `left right`, which are loaded
    /// transposed.
    pub(super) fn right(&self, odd: U32<'k>, tensor: usize) -> Matrices<'k> {
        Matrices::new(self.rows, self.step(odd)[tensor], self.tall)
    }

    /// Returns the tokens of the lane's rows: rows `g` and `g + 8` of each 16 rows of the warp.
    /// They may be past the last token.
    pub(super) fn lane_tokens(&self) -> Vec<[U32<'k>; 2]> {
        let first = self.warp_first() + (self.k.lane() >> 2);
        (0..self.sizes.tiles() as u32)
            .map(|tile| [0, 8].map(|r| first + (ROWS * tile + r)))
            .collect()
    }
}
