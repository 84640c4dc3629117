//! Products of a warpgroup that run beside it: `wgmma`, its sums as registers.
//!
//! Warp `w` of the four has rows `16 w` to `16 w + 15`. With `g = lane / 4` and `t = lane % 4`, a lane has of row
//! `16 w + g` columns `8 j + 2 t` and `8 j + 2 t + 1` as sums `4 j` and `4 j + 1`, and of row `16 w + g + 8` the same
//! columns as `4 j + 2` and `4 j + 3`: eight columns are what [`Sums`](crate::Sums) is.

use crate::build::{Builder, F32, Pred, U32, Var, lit};
use crate::ir::Operand;
use crate::isa::{self, Op};
use crate::mma::A;
use crate::tensor::{Descriptor, TileElem, e4m3, e5m2, tf32};
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
        a: A<'k>,
        b: Descriptor<'k, R>,
        add: Pred<'k>,
    ) {
        let a = Operand::Group(a.0.map(|v| v.reg).into());
        self.product::<L, R>(L::OPS[1], a, b, add, &[b.transposed])
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
        self.k.emit::<crate::ty::f16x2, 2>(&isa::CVT_H2, Kind::F16x2, src).bits()
    }

    /// `self` in the low half and `high` in the high half, each as the nearest bfloat16. sm_80.
    #[track_caller]
    pub fn pack_bf16(self, high: F32<'k>) -> U32<'k> {
        self.k.emit(&isa::CVT_B2, Kind::U32, [Operand::Reg(high.reg), Operand::Reg(self.reg)])
    }
}
