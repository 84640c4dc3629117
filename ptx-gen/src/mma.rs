//! Small matrix products of a warp: `mma.sync`, its fragments as types.
//!
//! With `g = lane / 4` and `t = lane % 4`, a lane holds rows `g` and `g + 8` of `a`, column `g` of `b`, and of the
//! sums rows `g` and `g + 8`, columns `2t` and `2t + 1`. Of the inner dimension it holds, for bytes, `4t..4t+4` and
//! `16+4t..16+4t+4`; for 16-bit elements `2t..2t+2` and `8+2t..8+2t+2`: register by register as [`LeftFragment`]
//! and [`RightFragment`] say.

use crate::build::{Builder, Src, U32, Val, Var};
use crate::elem::Elem;
use crate::ir::Operand;
use crate::isa::{self, Op};
use crate::mem::{Ptr, Shared};
use crate::ty::{Kind, Num};

/// A lane's part of the left matrix: row `g` and row `g + 8` of the first half of the inner dimension, then of the
/// second.
#[derive(Clone, Copy)]
pub struct LeftFragment<'k>(pub [U32<'k>; 4]);

impl<'k> LeftFragment<'k> {
    /// The part that these variables hold.
    pub fn of(v: &[Var<'k, u32>; 4]) -> Self {
        LeftFragment([0, 1, 2, 3].map(|i| v[i].0))
    }
}

/// A lane's part of the right matrix, column `g`: the first half of the inner dimension, then the second.
#[derive(Clone, Copy)]
pub struct RightFragment<T>(pub [T; 2]);

/// A lane's part of the sums: row `g`, columns `2t` and `2t + 1`, then row `g + 8`.
pub struct Sums<'k, T>(pub [Var<'k, T>; 4]);

impl<'k, T: Num + Default> Sums<'k, T> {
    /// All zero.
    #[track_caller]
    pub fn zero(k: Builder<'k>) -> Self {
        Sums(std::array::from_fn(|_| k.var(T::default())))
    }

    #[track_caller]
    fn add(&mut self, op: &'static Op, kind: Kind, a: LeftFragment<'k>, b: [Operand; 2]) {
        let regs = [0, 1, 2, 3].map(|i| self.0[i].0.reg);
        let a = Operand::Group(a.0.map(|v| v.reg).into());
        let b = b.map(|b| match b {
            Operand::Reg(r) => r,
            other => panic!("{other:?} is no register: a fragment is made of values and variables"),
        });
        let src = [a, Operand::Group(b.into()), Operand::Group(regs.into())];
        self.0[0].0.k.inst(op, kind, None, regs, src)
    }
}

impl<'k> Sums<'k, f32> {
    /// Adds the product of binary16 matrices, 16 by 16 and 16 by 8. Whole warp. sm_80.
    #[track_caller]
    pub fn add_f16(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_HALF, Kind::F16, a, b.0.map(Src::operand))
    }

    /// Adds the product of bfloat16 matrices, 16 by 16 and 16 by 8. Whole warp. sm_80.
    #[track_caller]
    pub fn add_bf16(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_HALF, Kind::Bf16, a, b.0.map(Src::operand))
    }
}

impl<'k> Sums<'k, i32> {
    /// Adds the product of 16 by 32 unsigned bytes and 32 by 8 signed bytes, wrapping. Whole warp. sm_80.
    #[track_caller]
    pub fn add_u8(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_INT8, Kind::U8, a, b.0.map(Src::operand))
    }

    /// Adds the product of 16 by 32 and 32 by 8 signed bytes, wrapping. Whole warp. sm_80.
    #[track_caller]
    pub fn add_i8(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_INT8, Kind::S8, a, b.0.map(Src::operand))
    }
}

impl<'k, T: Elem> Ptr<'k, T, Shared> {
    #[track_caller]
    fn matrices<const N: usize>(self, op: &'static Op) -> [U32<'k>; N] {
        let d: [Val<u32>; N] = std::array::from_fn(|_| self.k.fresh());
        self.k
            .inst(op, Kind::U32, None, d.map(|v| v.reg), [self.addr()]);
        d
    }

    /// Four 8 by 8 matrices of 16-bit elements; lane `8 j + r` gives the address of row `r` of matrix `j`. Whole
    /// warp.
    #[track_caller]
    pub fn ldmatrix4(self) -> [U32<'k>; 4] {
        self.matrices(&isa::LDMATRIX_X4)
    }

    /// The same, each matrix transposed. Whole warp.
    #[track_caller]
    pub fn ldmatrix4_trans(self) -> [U32<'k>; 4] {
        self.matrices(&isa::LDMATRIX_X4_TRANS)
    }

    /// Two 8 by 8 matrices; lanes 0 to 15 give the addresses. Whole warp.
    #[track_caller]
    pub fn ldmatrix2(self) -> [U32<'k>; 2] {
        self.matrices(&isa::LDMATRIX_X2)
    }

    /// Stores an 8 by 8 matrix of 16-bit elements for each register, as [`ldmatrix4`](Ptr::ldmatrix4) loads them: one, two
    /// or four. Whole warp. sm_90.
    #[track_caller]
    pub fn stmatrix(self, v: &[U32<'k>]) {
        self.store_matrices([&isa::STMATRIX_X1, &isa::STMATRIX_X2, &isa::STMATRIX_X4], v)
    }

    /// The same, each matrix transposed. Whole warp. sm_90.
    #[track_caller]
    pub fn stmatrix_trans(self, v: &[U32<'k>]) {
        self.store_matrices(
            [
                &isa::STMATRIX_X1_TRANS,
                &isa::STMATRIX_X2_TRANS,
                &isa::STMATRIX_X4_TRANS,
            ],
            v,
        )
    }

    #[track_caller]
    fn store_matrices(self, ops: [&'static Op; 3], v: &[U32<'k>]) {
        let op = ops[(v.len() / 2).min(2)];
        let group = Operand::Group(v.iter().map(|v| v.reg).collect());
        self.k.inst(op, Kind::U32, None, [], [self.addr(), group])
    }
}

impl<'k> U32<'k> {
    /// The 8 by 8 matrix of 16-bit elements that the warp holds, two a lane, transposed. Whole warp.
    #[track_caller]
    pub fn movmatrix(self) -> U32<'k> {
        self.k
            .emit(&isa::MOVMATRIX, Kind::U32, [Operand::Reg(self.reg)])
    }
}
