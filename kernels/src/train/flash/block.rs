//! What blocks of all kernels share: the rows that they own, and steps of others, in shared memory.

use crate::pipeline::attention::divided;
use crate::shared_rows::{Copier, Matrices, SharedRows};
use ptx_gen::*;

/// Warps of a block.
pub(super) const WARPS: u32 = 4;
/// Rows of a left matrix.
pub(super) const ROWS: u32 = 16;
/// Bytes of a row of a panel.
const PANEL_ROW: u32 = 128;

/// By which instruction the tensor cores multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TensorOp {
    /// `mma`: each warp for its own rows.
    Mma,
    /// `wgmma`: the four warps together, which read a step from shared memory once for all. Heads of 64 or 128 dimensions;
    /// sm_90a.
    Wgmma,
}

impl TensorOp {
    /// What it adds to a kernel's name.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            TensorOp::Mma => "",
            TensorOp::Wgmma => "_wgmma",
        }
    }

    /// How rows lie: see [`Sizes`].
    pub(super) const fn panels(self) -> bool {
        matches!(self, TensorOp::Wgmma)
    }
}

/// The sizes of a block.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Dimensions of a head.
    pub(super) head_dim: u32,
    /// Tensors of which the block owns rows.
    pub(super) tensors: u32,
    /// Rows that it owns of each.
    pub(super) owned: u32,
    /// Rows of a step.
    pub(super) step: u32,
    /// Whether they lie in panels of 64 dimensions, as products of a warpgroup read them.
    pub(super) panels: bool,
}

impl Sizes {
    /// Rows that a warp owns.
    pub(super) const fn warp_rows(self) -> u32 {
        self.owned / WARPS
    }

    /// Left matrices of a warp, one above the other.
    pub(super) const fn tiles(self) -> usize {
        (self.warp_rows() / ROWS) as usize
    }

    const fn rows(self) -> SharedRows {
        SharedRows::of(self.head_dim)
    }

    /// Bytes of shared memory: the owned rows, then those of two steps, each of two tensors.
    pub(super) const fn shared(self) -> u32 {
        (self.tensors * self.owned + 4 * self.step) * self.rows().bytes
    }
}

/// A head of `[tokens, heads, head_dim]`.
#[derive(Clone, Copy)]
pub(super) struct Head<'k> {
    pub(super) tensor: Ptr<'k, bf16, ReadOnly>,
    pub(super) heads: U32<'k>,
    pub(super) head: U32<'k>,
}

/// Values that the threads of a block compute at the start.
pub(super) struct Block<'k> {
    pub(super) k: Builder<'k>,
    pub(super) sizes: Sizes,
    rows: SharedRows,
    copier: Copier<'k>,
    memory: Ptr<'k, u8, Shared>,
    /// The first token that the block owns.
    pub(super) first: U32<'k>,
    /// The last token that there is.
    pub(super) last: U32<'k>,
    /// Where a lane finds rows 0 to 15 of the first unit, then of the second.
    tall: U32<'k>,
    /// Where it finds both units of rows 0 to 7, then of rows 8 to 15.
    wide: U32<'k>,
}

impl<'k> Block<'k> {
    /// The block that owns rows from token `first` on.
    pub(super) fn new(k: Builder<'k>, sizes: Sizes, first: U32<'k>, tokens: U32<'k>) -> Self {
        let (rows, lane) = (sizes.rows(), k.lane());
        Block {
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

    /// The first token that the warp owns, past the last token perhaps.
    pub(super) fn warp_first(&self) -> U32<'k> {
        self.first + self.k.warp() * self.sizes.warp_rows()
    }

    /// Copies the block's rows of tensor number `tensor`.
    pub(super) fn copy_owned(&self, tensor: u32, from: Head<'k>) {
        self.copy(from, self.first, self.sizes.owned, self.owned(tensor));
    }

    /// Copies the rows of a step from token `first` on into the odd or the even half of the double buffer.
    pub(super) fn copy_step(&self, from: [Head<'k>; 2], first: U32<'k>, odd: U32<'k>) {
        for (from, to) in from.into_iter().zip(self.step(odd)) {
            self.copy(from, first, self.sizes.step, to);
        }
    }

    /// Rows past the last token repeat it.
    fn copy(&self, from: Head<'k>, first: U32<'k>, count: u32, to: Ptr<'k, u8, Shared>) {
        if self.sizes.panels {
            return self.copy_panels(from, first, count, to);
        }
        let unit = from.tensor.row(self.copier.unit, 16);
        self.copier.copy(count, to, |row, further| {
            let token = (first + row + further).min(self.last);
            unit.row(token * from.heads + from.head, 2 * self.sizes.head_dim)
        });
    }

    /// The same into a tile of so many rows, swizzled by 128 bytes: each thread copies 16 bytes of each `step`th row.
    fn copy_panels(&self, from: Head<'k>, first: U32<'k>, count: u32, to: Ptr<'k, u8, Shared>) {
        let units = self.sizes.head_dim / 8;
        let (row, unit) = divided(self.k.tid(), units);
        let panel = (unit >> 3) * (count * PANEL_ROW);
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

    /// The block's rows of a tensor, in panels.
    pub(super) fn owned_tile(&self, tensor: u32) -> Descriptor<'k, bf16> {
        let Sizes {
            owned, head_dim, ..
        } = self.sizes;
        Descriptor::by_columns(self.owned(tensor), owned, head_dim, Swizzle::B128)
    }

    /// The rows of both tensors of a step, in panels: for products over their dimensions, and over themselves.
    pub(super) fn step_tiles(&self, odd: U32<'k>) -> [[Descriptor<'k, bf16>; 2]; 2] {
        let Sizes { step, head_dim, .. } = self.sizes;
        let tile = [Descriptor::by_columns, Descriptor::by_rows];
        self.step(odd)
            .map(|at| tile.map(|tile| tile(at, step, head_dim, Swizzle::B128)))
    }

    fn owned(&self, tensor: u32) -> Ptr<'k, u8, Shared> {
        self.memory.at(tensor * self.sizes.owned * self.rows.bytes)
    }

    /// Both tensors of a step.
    fn step(&self, odd: U32<'k>) -> [Ptr<'k, u8, Shared>; 2] {
        let bytes = self.sizes.step * self.rows.bytes;
        let first = self.owned(self.sizes.tensors).row(odd, 2 * bytes);
        [first, first.at(bytes)]
    }

    /// What follows the rows in shared memory.
    pub(super) fn after_rows(&self) -> Ptr<'k, u8, Shared> {
        self.memory.at(self.sizes.shared())
    }

    /// The warp's rows of a tensor as left matrices.
    pub(super) fn left(&self, tensor: u32) -> Matrices<'k> {
        let rows = self
            .owned(tensor)
            .row(self.k.warp() * self.sizes.warp_rows(), self.rows.bytes);
        Matrices::new(self.rows, rows, self.tall)
    }

    /// The rows of a step as right matrices whose columns are rows: for `left right^T`.
    pub(super) fn columns(&self, odd: U32<'k>) -> [Matrices<'k>; 2] {
        self.step(odd)
            .map(|rows| Matrices::new(self.rows, rows, self.wide))
    }

    /// The rows of tensor `tensor` of a step as right matrices, which are to be transposed: for `left right`.
    pub(super) fn right(&self, odd: U32<'k>, tensor: usize) -> Matrices<'k> {
        Matrices::new(self.rows, self.step(odd)[tensor], self.tall)
    }

    /// The tokens of the lane's own rows: for each 16 of the warp, row `g`, then row `g + 8`. They may be past the last.
    pub(super) fn lane_tokens(&self) -> Vec<[U32<'k>; 2]> {
        let first = self.warp_first() + (self.k.lane() >> 2);
        (0..self.sizes.tiles() as u32)
            .map(|tile| [0, 8].map(|r| first + (ROWS * tile + r)))
            .collect()
    }
}
