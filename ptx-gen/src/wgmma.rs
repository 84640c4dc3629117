//! Asynchronous matmuls of a warpgroup on tensor cores: `wgmma`, with accumulators in registers.
//!
//! Warp `w` of the four warps computes rows `16 w` to `16 w + 15`. With `g = lane / 4` and `t =
//! lane % 4`, a lane holds these accumulators for every group `j` of eight columns, with the layout
//! of [`Sums`](crate::Sums):
//!
//! - `4 j` and `4 j + 1`: columns `8 j + 2 t` and `8 j + 2 t + 1` of row `16 w + g`.
//! - `4 j + 2` and `4 j + 3`: the same columns of row `16 w + g + 8`.
//!
//! The order of calls is [`wgmma_fence`](Builder::wgmma_fence), one or more matmuls,
//! [`wgmma_commit`](Builder::wgmma_commit), [`wgmma_wait`](Builder::wgmma_wait). Validation checks
//! this order and rejects code that touches accumulators of a matmul in flight.

use crate::build::{Builder, F32, Pred, U32, Var, lit};
use crate::check::ErrorKind;
use crate::ir::Operand;
use crate::isa::{self, Op};
use crate::mem::{Ptr, Shared, Stores};
use crate::mma::LeftFragment;
use crate::tensor::{Descriptor, Staged, TileElem, e4m3, e5m2, tf32};
use crate::tile::{Swizzle, Tile};
use crate::ty::{Kind, Num, Ty, bf16, f16};

/// The accumulators of a 64 by `n` matmul of a warpgroup, where `n` is a multiple of 8 up to 256.
///
/// Each lane holds `n / 2` variables. The [crate page](crate) has an example.
pub struct Accumulators<'k, T>(pub Vec<Var<'k, T>>);

/// A left element type that `wgmma` can multiply with a right element type `R`.
///
/// | left | right | accumulators |
/// |---|---|---|
/// | `f16` | `f16` | `f32` |
/// | `bf16` | `bf16` | `f32` |
/// | `tf32` | `tf32` | `f32` |
/// | `e4m3` or `e5m2` | `e4m3` or `e5m2` | `f32` |
/// | `u8` | `u8` or `i8` | `i32` |
/// | `i8` | `i8` | `i32` |
pub trait Times<R>: TileElem {
    /// The type of the accumulators.
    type Sum: Num + Default;
    /// The instructions for a left matrix in shared memory and in registers.
    const OPS: [&'static Op; 2];
    /// The type of the right matrix, if the mnemonic names it separately.
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
    /// Returns accumulators for `columns` columns, a multiple of 8 up to 256, that are all zero.
    #[track_caller]
    pub fn zero(k: Builder<'k>, columns: u32) -> Self {
        Accumulators((0..columns / 2).map(|_| k.var(T::default())).collect())
    }

    /// Sets all accumulators to zero.
    ///
    /// Call [`wgmma_fence`](Builder::wgmma_fence) before the next matmul.
    #[track_caller]
    pub fn clear(&mut self) {
        for sum in &mut self.0 {
            sum.set(T::default());
        }
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> u32 {
        2 * self.0.len() as u32
    }

    /// Adds the product of 64 rows of `a` and the columns of `b` over 32 bytes of the inner
    /// dimension (`wgmma.mma_async`). Needs sm_90a.
    ///
    /// For 16-bit elements, 32 bytes are 16 elements. If `add` does not hold, the product replaces
    /// the accumulators.
    ///
    /// The whole warpgroup must execute it, after a [`wgmma_fence`](Builder::wgmma_fence). The
    /// matmul runs asynchronously. Until [`wgmma_wait`](Builder::wgmma_wait), no instruction may
    /// access the accumulators or change the operands.
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

    /// Adds the product of a left matrix in registers and the columns of `b` (`wgmma.mma_async`).
    /// Needs sm_90a.
    ///
    /// Each warp holds 16 rows of the left matrix as a [`LeftFragment`]. The rules of
    /// [`multiply`](Accumulators::multiply) apply, and the registers of `a` must not change before
    /// the wait.
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

    /// Adds the product over the whole inner dimension of both tiles, as a sequence of
    /// [`multiply`](Accumulators::multiply) calls. Needs sm_90a.
    ///
    /// Both tiles must have the same inner dimension. If `add` does not hold, the first product
    /// replaces the accumulators.
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
                "tiles have {depth} and {other} elements along the inner dimension: expected the same number"
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

        // Float accumulators take a sign for each input, and 16-bit inputs in shared memory take a
        // transpose flag. Other forms do not have these operands.
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

/// A 16-bit float type to which accumulators can be rounded, two in one register.
pub trait Packed: TileElem {
    /// Returns `low` and `high`, both rounded to nearest, in the low and the high half.
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
    /// Rounds accumulators and stores them in the tile of 64 rows (`stmatrix`, 16 columns at a
    /// time). Needs sm_90.
    ///
    /// The tile receives as many columns as it has, starting at column `from` of the accumulators.
    /// The whole warpgroup must execute it.
    #[track_caller]
    pub fn put(self, sums: &Accumulators<'k, f32>, from: u32) {
        let tile = self.tile();
        let k = self.k();
        let to = from.saturating_add(tile.columns);
        if tile.rows != 64
            || !from.is_multiple_of(16)
            || !tile.columns.is_multiple_of(16)
            || to > sums.columns()
        {
            let rows = tile.rows;
            let columns = tile.columns;
            let all = sums.columns();
            let what = format!(
                "cannot store columns {from} to {to} of {all} in a tile of {rows} rows and {columns} columns: expected \
                 64 rows and multiples of 16 columns"
            );
            return k.error(ErrorKind::Limit(what));
        }

        let row = self.lane_row();
        for column in (0..tile.columns).step_by(16) {
            // 16 columns are eight accumulators per lane. Packed in pairs, they have the layout of
            // four 8 by 8 matrices, which `stmatrix` stores at once.
            let first = ((from + column) / 2) as usize;
            let pair =
                |i: usize| E::pack(sums.0[first + 2 * i].get(), sums.0[first + 2 * i + 1].get());
            row.at(column).stmatrix(&[0, 1, 2, 3].map(pair));
        }
    }
}

impl<'k, E: TileElem, A: Copy> Staged<'k, E, A> {
    /// Loads the tile of 64 rows (`ldmatrix`, 16 columns at a time).
    ///
    /// Each group of four registers holds pairs in the order in which [`put`](Staged::put) stores
    /// them: two rows, then the same rows 8 columns further on. Elements must have 16 bits. The
    /// whole warpgroup must execute it.
    #[track_caller]
    pub fn get(self) -> Vec<[U32<'k>; 4]> {
        let tile = self.tile();
        if tile.rows != 64 || !tile.columns.is_multiple_of(16) || tile.elem.bytes() != 2 {
            let rows = tile.rows;
            let columns = tile.columns;
            let what = format!(
                "cannot load a tile of {rows} rows and {columns} columns: expected 64 rows and a multiple of 16 \
                 columns of 16-bit elements"
            );
            self.k().error(ErrorKind::Limit(what));
        }

        let row = self.lane_row();
        (0..tile.columns)
            .step_by(16)
            .map(|column| row.at(column).ldmatrix4())
            .collect()
    }

    /// Returns the row of this lane. Lanes 0 to 15 have 8 columns of the 16 rows of the warp, and
    /// lanes 16 to 31 the next 8 columns.
    #[track_caller]
    fn lane_row(self) -> LaneRow<'k> {
        let tile = self.tile();
        let k = self.k();
        let lane = k.lane();
        let span = tile.swizzle.bytes();
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

/// The row of a tile whose address a lane passes to `stmatrix` and `ldmatrix`.
struct LaneRow<'k> {
    tile: Tile,
    start: Ptr<'k, u8, Shared>,
    /// The offset of the lane's 8 of 16 columns.
    half: U32<'k>,
    /// The bits that the swizzle XORs into offsets of this row.
    exchanged: U32<'k>,
}

impl<'k> LaneRow<'k> {
    /// Returns the address of the lane's 8 columns of the 16 columns that begin at `column`.
    #[track_caller]
    fn at(&self, column: u32) -> Ptr<'k, u16, Shared> {
        let span = self.tile.swizzle.bytes();
        // Columns have 16 bits, so an offset along the row is twice the column.
        let within = 2 * column % span;
        let panel = 2 * column / span;
        let panel = self.start.at(panel * self.tile.panel_bytes());
        panel.at((self.half + within) ^ self.exchanged).cast()
    }
}

impl<'k> Builder<'k> {
    /// Orders earlier register accesses before later matmuls (`wgmma.fence.sync.aligned`). Needs
    /// sm_90a.
    ///
    /// The whole warpgroup must execute it before the first matmul, and again after any instruction
    /// that writes or reads accumulators or writes a left matrix in registers.
    #[track_caller]
    pub fn wgmma_fence(self) {
        self.inst(&isa::WGMMA_FENCE, Kind::U32, None, [], [])
    }

    /// Groups the matmuls since the last group (`wgmma.commit_group.sync.aligned`). Needs sm_90a.
    ///
    /// The whole warpgroup must execute it.
    #[track_caller]
    pub fn wgmma_commit(self) {
        self.inst(&isa::WGMMA_COMMIT, Kind::U32, None, [], [])
    }

    /// Waits until at most `groups` of the latest groups, 0 to 7, are in flight
    /// (`wgmma.wait_group.sync.aligned`). Needs sm_90a.
    ///
    /// The whole warpgroup must execute it.
    #[track_caller]
    pub fn wgmma_wait(self, groups: u32) {
        self.inst(&isa::WGMMA_WAIT, Kind::U32, None, [], [lit(groups)])
    }

    /// Returns a predicate that holds in every thread.
    #[track_caller]
    pub fn always(self) -> Pred<'k> {
        self.val(0u32).eq(0)
    }
}

impl<'k> F32<'k> {
    /// Returns `self` in the low half and `high` in the high half, both rounded to `f16`
    /// (`cvt.rn.f16x2.f32`). Needs sm_80.
    #[track_caller]
    pub fn pack_f16(self, high: F32<'k>) -> U32<'k> {
        let src = [Operand::Reg(high.reg), Operand::Reg(self.reg)];
        self.k
            .emit::<crate::ty::f16x2, 2>(&isa::CVT_H2, Kind::F16x2, src)
            .bits()
    }

    /// Returns `self` in the low half and `high` in the high half, both rounded to `bf16`
    /// (`cvt.rn.bf16x2.f32`). Needs sm_80.
    #[track_caller]
    pub fn pack_bf16(self, high: F32<'k>) -> U32<'k> {
        self.k.emit(
            &isa::CVT_B2,
            Kind::U32,
            [Operand::Reg(high.reg), Operand::Reg(self.reg)],
        )
    }
}
