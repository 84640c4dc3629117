//! Matmuls of a warp on tensor cores: `mma.sync`, with fragments as types.
//!
//! The layout of fragments is that of the PTX manual ("Matrix Fragments for mma.m16n8k16" and
//! "mma.m16n8k32"). With `g = lane / 4` and `t = lane % 4`:
//!
//! - The left matrix: a lane has rows `g` and `g + 8`. See [`LeftFragment`].
//! - The right matrix: a lane has column `g`. See [`RightFragment`].
//! - The accumulators: a lane has columns `2t` and `2t + 1` of rows `g` and `g + 8`. See [`Sums`].
//!
//! Along the inner dimension, a register holds two 16-bit elements, `2t..2t + 2` of the first half
//! or `8 + 2t..8 + 2t + 2`. For bytes, a register holds `4t..4t + 4` or `16 + 4t..16 + 4t + 4`.

use crate::build::{Builder, Src, U32, Val, Var};
use crate::elem::Elem;
use crate::ir::Operand;
use crate::isa::{self, Op};
use crate::mem::{Ptr, Shared};
use crate::ty::{Kind, Num};

/// The fragment of the left matrix that a lane holds.
///
/// Registers 0 and 1 have rows `g` and `g + 8` of the first half of the inner dimension. Registers
/// 2 and 3 have the same rows of the second half. [`ldmatrix4`](Ptr::ldmatrix4) loads a fragment
/// from shared memory.
#[derive(Clone, Copy)]
pub struct LeftFragment<'k>(pub [U32<'k>; 4]);

impl<'k> LeftFragment<'k> {
    /// Returns the fragment that these variables hold. No instruction is emitted.
    pub fn of(v: &[Var<'k, u32>; 4]) -> Self {
        LeftFragment([0, 1, 2, 3].map(|i| v[i].0))
    }
}

/// The fragment of the right matrix that a lane holds: column `g` of the first and of the second
/// half of the inner dimension.
#[derive(Clone, Copy)]
pub struct RightFragment<T>(pub [T; 2]);

/// The accumulators of a 16 by 8 result that a lane holds.
///
/// Variables 0 and 1 are columns `2t` and `2t + 1` of row `g`. Variables 2 and 3 are the same
/// columns of row `g + 8`, where `g = lane / 4` and `t = lane % 4`.
///
/// # Example: a 16 by 8 matmul of `f16` values in shared memory
/// ```
/// # use ptx_gen::prelude::*;
/// use ptx_gen::{LeftFragment, RightFragment, Sums};
/// # let ptx = ptx_gen::example(|k, a| {
/// // The left matrix has 16 rows of 16 elements, the right one 8 columns of 16 elements.
/// let left = k.shared::<f16>("left", 256);
/// let right = k.shared::<f16>("right", 128);
///
/// // Each lane addresses 8 elements: a row of the left and a column of the right matrix.
/// let row = (k.lane() & 15) * 16 + (k.lane() >> 4) * 8;
/// let column = (k.lane() & 7) * 16 + ((k.lane() >> 3) & 1) * 8;
/// let [a0, a1, a2, a3] = left.at(row).ldmatrix4();
/// let [b0, b1] = right.at(column).ldmatrix2();
/// let mut sums = Sums::zero(k);
/// sums.add_f16(LeftFragment([a0, a1, a2, a3]), RightFragment([b0, b1]));
///
/// let group = k.lane() >> 2;
/// let pair = (k.lane() & 3) * 2;
/// let [s0, s1, s2, s3] = &sums.0;
/// a.x.at(group * 8 + pair).st2([s0.get(), s1.get()]);
/// a.x.at((group + 8) * 8 + pair).st2([s2.get(), s3.get()]);
/// # })?;
/// assert!(ptx.contains("ldmatrix.sync.aligned.m8n8.x4.shared.b16"));
/// assert!(ptx.contains("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"));
/// # Ok::<(), ptx_gen::Errors>(())
/// ```
pub struct Sums<'k, T>(pub [Var<'k, T>; 4]);

impl<'k, T: Num + Default> Sums<'k, T> {
    /// Returns accumulators that are all zero.
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
            other => panic!("{other:?} is not a register: pass values or variables as a fragment"),
        });
        let src = [a, Operand::Group(b.into()), Operand::Group(regs.into())];
        self.0[0].0.k.inst(op, kind, None, regs, src)
    }
}

impl<'k> Sums<'k, f32> {
    /// Adds the product of a 16 by 16 and a 16 by 8 matrix of `f16`
    /// (`mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`). Needs sm_80.
    ///
    /// The whole warp must execute it. Every sum is within 2^-22 of the largest term.
    #[track_caller]
    pub fn add_f16(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_HALF, Kind::F16, a, b.0.map(Src::operand))
    }

    /// Adds the product of a 16 by 16 and a 16 by 8 matrix of `bf16`
    /// (`mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`). Needs sm_80.
    ///
    /// The whole warp must execute it. Every sum is within 2^-22 of the largest term.
    #[track_caller]
    pub fn add_bf16(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_HALF, Kind::Bf16, a, b.0.map(Src::operand))
    }
}

impl<'k> Sums<'k, i32> {
    /// Adds the product of a 16 by 32 matrix of unsigned bytes and a 32 by 8 matrix of signed
    /// bytes, wrapping (`mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32`). Needs sm_80.
    ///
    /// The whole warp must execute it.
    #[track_caller]
    pub fn add_u8(&mut self, a: LeftFragment<'k>, b: RightFragment<impl Src<'k, u32>>) {
        self.add(&isa::MMA_INT8, Kind::U8, a, b.0.map(Src::operand))
    }

    /// Adds the product of a 16 by 32 and a 32 by 8 matrix of signed bytes, wrapping
    /// (`mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32`). Needs sm_80.
    ///
    /// The whole warp must execute it.
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

    /// Loads four 8 by 8 matrices of 16-bit elements (`ldmatrix.sync.aligned.m8n8.x4.shared.b16`).
    ///
    /// Lane `8 j + r` passes the address of row `r` of matrix `j`, a multiple of 16. Register `j`
    /// of lane `4 r + c` then holds elements `2c` and `2c + 1` of row `r` of matrix `j`. The whole
    /// warp must execute it. See [`Sums`] for an example.
    #[track_caller]
    pub fn ldmatrix4(self) -> [U32<'k>; 4] {
        self.matrices(&isa::LDMATRIX_X4)
    }

    /// Loads four 8 by 8 matrices of 16-bit elements and transposes each
    /// (`ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16`).
    ///
    /// Addresses are passed as for [`ldmatrix4`](Ptr::ldmatrix4). The whole warp must execute it.
    #[track_caller]
    pub fn ldmatrix4_trans(self) -> [U32<'k>; 4] {
        self.matrices(&isa::LDMATRIX_X4_TRANS)
    }

    /// Loads two 8 by 8 matrices of 16-bit elements (`ldmatrix.sync.aligned.m8n8.x2.shared.b16`).
    ///
    /// Lanes 0 to 15 pass the addresses of rows, as for [`ldmatrix4`](Ptr::ldmatrix4). The whole
    /// warp must execute it.
    #[track_caller]
    pub fn ldmatrix2(self) -> [U32<'k>; 2] {
        self.matrices(&isa::LDMATRIX_X2)
    }

    /// Stores one, two or four 8 by 8 matrices of 16-bit elements, one for each register in `v`
    /// (`stmatrix.sync.aligned.m8n8`). Needs sm_90.
    ///
    /// Addresses and registers have the layout of [`ldmatrix4`](Ptr::ldmatrix4). The whole warp
    /// must execute it.
    #[track_caller]
    pub fn stmatrix(self, v: &[U32<'k>]) {
        self.store_matrices([&isa::STMATRIX_X1, &isa::STMATRIX_X2, &isa::STMATRIX_X4], v)
    }

    /// Transposes and stores one, two or four 8 by 8 matrices of 16-bit elements
    /// (`stmatrix.sync.aligned.m8n8` with `.trans`). Needs sm_90.
    ///
    /// Addresses and registers have the layout of [`ldmatrix4`](Ptr::ldmatrix4). The whole warp
    /// must execute it.
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
    /// Transposes the 8 by 8 matrix of 16-bit elements that the warp holds, two elements per lane
    /// (`movmatrix.sync.aligned.m8n8.trans.b16`).
    ///
    /// The whole warp must execute it.
    #[track_caller]
    pub fn movmatrix(self) -> U32<'k> {
        self.k
            .emit(&isa::MOVMATRIX, Kind::U32, [Operand::Reg(self.reg)])
    }
}
