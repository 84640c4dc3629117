//! Products of a warpgroup that run beside it: `wgmma`, its sums as registers.
//!
//! Warp `w` of the four has rows `16 w` to `16 w + 15`. With `g = lane / 4` and `t = lane % 4`, a lane has of row
//! `16 w + g` columns `8 j + 2 t` and `8 j + 2 t + 1` as sums `4 j` and `4 j + 1`, and of row `16 w + g + 8` the same
//! columns as `4 j + 2` and `4 j + 3`: eight columns are what [`Sums`](crate::Sums) is.

use crate::build::{Builder, F32, Pred, U32, Var, lit};
use crate::check::ErrorKind;
use crate::ir::Operand;
use crate::isa::{self, Op};
use crate::mem::{Ptr, Shared, Stores};
use crate::mma::LeftFragment;
use crate::tensor::{Descriptor, Staged, TileElem, e4m3, e5m2, tf32};
use crate::tile::{Swizzle, Tile};
use crate::ty::{Kind, Num, Ty, bf16, f16};

/// The sums of 64 rows and `n` columns, `n` a multiple of 8 up to 256: each lane has `n / 2`.
pub struct Accumulators<'k, T>(pub Vec<Var<'k, T>>);

/// `Self` as left matrix can be multiplied with a right matrix of `R`.
pub trait Times<R>: TileElem {
    /// What sums are.
    type Sum: Num + Default;
    /// The rows: the left matrix in shared memory, and in registers.
    const OPS: [&'static Op; 2];
    /// What `$s` stands for, where the row has it.
    const FROM: Option<Kind>;
}

macro_rules! products {
    ($($left:ty, $right:ty => $sum:ty: $shared:ident $registers:ident $from:expr;)*) => {$(
        impl Times<$right> for $left {
            type Sum = $sum;
            const OPS: [&'static Op; 2] = [&isa::$shared, &isa::$registers];
            const FROM: Option<Kind> = $from;
        }
    )*};
}
products! {
    f16, f16 => f32: WGMMA_HALF WGMMA_HALF_REG None;
    bf16, bf16 => f32: WGMMA_HALF WGMMA_HALF_REG None;
    tf32, tf32 => f32: WGMMA_TF32 WGMMA_TF32_REG None;
    u8, u8 => i32: WGMMA_INT8 WGMMA_INT8_REG None;
    i8, i8 => i32: WGMMA_INT8 WGMMA_INT8_REG None;
    u8, i8 => i32: WGMMA_U8_S8 WGMMA_U8_S8_REG None;
    e4m3, e4m3 => f32: WGMMA_FP8 WGMMA_FP8_REG Some(Kind::E4m3);
    e4m3, e5m2 => f32: WGMMA_FP8 WGMMA_FP8_REG Some(Kind::E5m2);
    e5m2, e4m3 => f32: WGMMA_FP8 WGMMA_FP8_REG Some(Kind::E4m3);
    e5m2, e5m2 => f32: WGMMA_FP8 WGMMA_FP8_REG Some(Kind::E5m2);
}

impl<'k, T: Num + Default> Accumulators<'k, T> {
    /// Zeros, for `columns` columns: a multiple of 8 up to 256.
    #[track_caller]
    pub fn zero(k: Builder<'k>, columns: u32) -> Self {
        Accumulators((0..columns / 2).map(|_| k.var(T::default())).collect())
    }

    /// Sets all to zero; a [`wgmma_fence`](Builder::wgmma_fence) follows before the next product.
    #[track_caller]
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|sum| sum.set(T::default()))
    }

    /// Columns.
    pub fn columns(&self) -> u32 {
        2 * self.0.len() as u32
    }

    /// Adds the product of 64 rows of `a` and as many columns of `b` as there are, over 32 bytes of the inner
    /// dimension: 16 elements of 16 bits. Where `add` does not hold, the product takes the place of the sums.
    ///
    /// The whole warpgroup, after a [`wgmma_fence`](Builder::wgmma_fence). It runs beside the warpgroup: until
    /// [`wgmma_wait`](Builder::wgmma_wait), nothing may touch the sums, nor change what it reads. sm_90a.
    #[track_caller]
    pub fn multiply<L: Times<R, Sum = T>, R: TileElem>(
        &mut self,
        a: Descriptor<'k, L>,
        b: Descriptor<'k, R>,
        add: Pred<'k>,
    ) {
        let transposed = [a.transposed, b.transposed];
        self.product::<L, R>(L::OPS[0], Operand::Reg(a.bits.reg), b, add, &transposed)
    }

    /// The same with the left matrix in registers, a row of 16 for each warp.
    #[track_caller]
    pub fn multiply_registers<L: Times<R, Sum = T>, R: TileElem>(
        &mut self,
        a: LeftFragment<'k>,
        b: Descriptor<'k, R>,
        add: Pred<'k>,
    ) {
        let a = Operand::Group(a.0.map(|v| v.reg).into());
        self.product::<L, R>(L::OPS[1], a, b, add, &[b.transposed])
    }

    /// Adds the product over the whole inner dimension of both, which is as long in one as in the other: the products
    /// of its parts in order. Where `add` does not hold, the first takes the place of the sums.
    #[track_caller]
    pub fn multiply_tiles<L: Times<R, Sum = T>, R: TileElem>(
        &mut self,
        a: Descriptor<'k, L>,
        b: Descriptor<'k, R>,
        add: Pred<'k>,
    ) {
        let k = b.bits.k;
        let [depth, other] = [a.inner_len(), b.inner_len()];
        if depth != other {
            let what = format!(
                "tiles of {depth} and {other} elements along the inner dimension; as many in both"
            );
            return k.error(ErrorKind::Limit(what));
        }
        let always = k.always();
        for from in (0..depth).step_by((32 / L::KIND.bytes()) as usize) {
            self.multiply(
                a.inner(from),
                b.inner(from),
                if from == 0 { add } else { always },
            );
        }
    }

    #[track_caller]
    fn product<L: Times<R>, R: TileElem>(
        &mut self,
        op: &'static Op,
        a: Operand,
        b: Descriptor<'k, R>,
        add: Pred<'k>,
        transposed: &[bool],
    ) {
        let mut src = vec![a, Operand::Reg(b.bits.reg), Operand::Reg(add.reg)];
        if <L::Sum as Ty>::KIND == Kind::F32 {
            src.extend([lit(1), lit(1)]);
        }
        if L::KIND.bytes() == 2 {
            src.extend(transposed.iter().map(|t| lit((*t).into())));
        }
        let dst: Vec<_> = self.0.iter().map(|sum| sum.0.reg).collect();
        b.bits.k.inst(op, L::KIND, L::FROM, dst, src)
    }
}

/// What sums are rounded to, two in a register.
pub trait Packed: TileElem {
    /// `low` and `high`, rounded.
    fn pack<'k>(low: F32<'k>, high: F32<'k>) -> U32<'k>;
}

impl Packed for f16 {
    #[track_caller]
    fn pack<'k>(low: F32<'k>, high: F32<'k>) -> U32<'k> {
        low.pack_f16(high)
    }
}

impl Packed for bf16 {
    #[track_caller]
    fn pack<'k>(low: F32<'k>, high: F32<'k>) -> U32<'k> {
        low.pack_bf16(high)
    }
}

impl<'k, E: Packed, A: Stores + Copy> Staged<'k, E, A> {
    /// Writes sums, rounded, into the tile of 64 rows: as many columns as it has, from column `from` of the sums on, 16
    /// at a time by `stmatrix`. The whole warpgroup. sm_90.
    #[track_caller]
    pub fn put(self, sums: &Accumulators<'k, f32>, from: u32) {
        let (tile, k) = (self.tile(), self.k());
        let to = from.saturating_add(tile.columns);
        if tile.rows != 64
            || !from.is_multiple_of(16)
            || !tile.columns.is_multiple_of(16)
            || to > sums.columns()
        {
            let (rows, columns, all) = (tile.rows, tile.columns, sums.columns());
            let what = format!(
                "columns {from} to {to} of {all} sums into a tile of {rows} rows and {columns} columns; 64 rows, and \
                 multiples of 16 columns"
            );
            return k.error(ErrorKind::Limit(what));
        }
        let row = self.lane_row();
        for column in (0..tile.columns).step_by(16) {
            let first = ((from + column) / 2) as usize;
            let pair =
                |i: usize| E::pack(sums.0[first + 2 * i].get(), sums.0[first + 2 * i + 1].get());
            row.at(column).stmatrix(&[0, 1, 2, 3].map(pair));
        }
    }
}

impl<'k, E: TileElem, A: Copy> Staged<'k, E, A> {
    /// The tile of 64 rows, 16 columns at a time, by `ldmatrix`: pairs as [`put`](Staged::put) packs them, the sums of two
    /// rows, then those of the same rows 8 columns further on. 16-bit elements; the whole warpgroup.
    #[track_caller]
    pub fn get(self) -> Vec<[U32<'k>; 4]> {
        let tile = self.tile();
        if tile.rows != 64 || !tile.columns.is_multiple_of(16) || tile.elem.bytes() != 2 {
            let (rows, columns) = (tile.rows, tile.columns);
            let what = format!(
                "a tile of {rows} rows and {columns} columns; 64 rows and multiples of 16 columns of 16-bit elements"
            );
            self.k().error(ErrorKind::Limit(what));
        }
        let row = self.lane_row();
        (0..tile.columns)
            .step_by(16)
            .map(|column| row.at(column).ldmatrix4())
            .collect()
    }

    /// This lane's row: lanes 0 to 15 have the rows of the warp for 8 columns, the others for the next 8.
    #[track_caller]
    fn lane_row(self) -> LaneRow<'k> {
        let (tile, k) = (self.tile(), self.k());
        let (lane, span) = (k.lane(), tile.swizzle.bytes());
        let row = (k.thread() & 96) / 2 + (lane & 15);
        let exchanged = ((row * span) >> 3) & (span - 16);
        let next = if tile.swizzle == Swizzle::None {
            tile.panel_bytes()
        } else {
            16
        };
        let half = (lane >> 4) * next;
        LaneRow {
            tile,
            start: self.ptr().row(row, span),
            half,
            exchanged,
        }
    }
}

/// A row of a tile in shared memory, whose address a lane gives to `stmatrix` and `ldmatrix`.
struct LaneRow<'k> {
    tile: Tile,
    start: Ptr<'k, u8, Shared>,
    /// Where the lane's 8 of 16 columns are.
    half: U32<'k>,
    /// What the swizzle exchanges in this row.
    exchanged: U32<'k>,
}

impl<'k> LaneRow<'k> {
    /// The lane's 8 columns of the 16 from `column` on.
    #[track_caller]
    fn at(&self, column: u32) -> Ptr<'k, u16, Shared> {
        let span = self.tile.swizzle.bytes();
        let (panel, within) = (2 * column / span, 2 * column % span);
        let panel = self.start.at(panel * self.tile.panel_bytes());
        panel.at((self.half + within) ^ self.exchanged).cast()
    }
}

impl<'k> Builder<'k> {
    /// Lets products use sums and left matrices that instructions have written before, or sums that they have read.
    /// The whole warpgroup, before a first product and after any such instruction. sm_90a.
    #[track_caller]
    pub fn wgmma_fence(self) {
        self.inst(&isa::WGMMA_FENCE, Kind::U32, None, [], [])
    }

    /// Makes the products since the last group a group. The whole warpgroup.
    #[track_caller]
    pub fn wgmma_commit(self) {
        self.inst(&isa::WGMMA_COMMIT, Kind::U32, None, [], [])
    }

    /// Waits until at most `groups` of the latest groups, 0 to 7, are under way. The whole warpgroup.
    #[track_caller]
    pub fn wgmma_wait(self, groups: u32) {
        self.inst(&isa::WGMMA_WAIT, Kind::U32, None, [], [lit(groups)])
    }

    /// A predicate that holds.
    #[track_caller]
    pub fn always(self) -> Pred<'k> {
        self.val(0u32).eq(0)
    }
}

impl<'k> F32<'k> {
    /// `self` in the low half and `high` in the high half, each as the nearest binary16. sm_80.
    #[track_caller]
    pub fn pack_f16(self, high: F32<'k>) -> U32<'k> {
        let src = [Operand::Reg(high.reg), Operand::Reg(self.reg)];
        self.k
            .emit::<crate::ty::f16x2, 2>(&isa::CVT_H2, Kind::F16x2, src)
            .bits()
    }

    /// `self` in the low half and `high` in the high half, each as the nearest bfloat16. sm_80.
    #[track_caller]
    pub fn pack_bf16(self, high: F32<'k>) -> U32<'k> {
        self.k.emit(
            &isa::CVT_B2,
            Kind::U32,
            [Operand::Reg(high.reg), Operand::Reg(self.reg)],
        )
    }
}
