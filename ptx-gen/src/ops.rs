//! Operators and methods on values.
//!
//! A method is the mnemonic. An operator is the plain operation of the type, IEEE for floats, and is never
//! fused: fusion is written [`fma`](Val::fma). Of integers, what a literal makes needless is left out: see
//! [`fold`](crate::fold).

use crate::build::*;
use crate::ir::{Imm, Level, Operand};
use crate::isa::{self, Op};
use crate::ty::*;
use std::ops;

/// The row for a type: integers, f32 and halves have rows of their own.
fn row(kind: Kind, int: &'static Op, float: &'static Op, half: &'static Op) -> &'static Op {
    match kind {
        Kind::F32 => float,
        Kind::F16 | Kind::F16x2 | Kind::Bf16 => half,
        _ => int,
    }
}

impl<'k, T: Ty> Val<'k, T> {
    fn operand_(self) -> Operand {
        Operand::Reg(self.reg)
    }
    #[track_caller]
    fn unary<D: Ty>(self, op: &'static Op) -> Val<'k, D> {
        self.k.emit(op, T::KIND, [self.operand_()])
    }
    #[track_caller]
    fn binary<D: Ty>(self, op: &'static Op, b: Operand) -> Val<'k, D> {
        self.k.emit(op, T::KIND, [self.operand_(), b])
    }
    /// The value as a `U`, by the conversion PTX has for the pair.
    #[track_caller]
    pub fn cvt<U: ConvertFrom<'k, T>>(self) -> Val<'k, U> {
        self.convert(U::OP)
    }

    /// The same bits as another type of the same width.
    #[track_caller]
    pub fn bits<U: SameWidth<T>>(self) -> Val<'k, U> {
        if T::KIND.class() == U::KIND.class() {
            return self.k.of(crate::ir::Reg {
                kind: U::KIND,
                ..self.reg
            });
        }
        self.convert(&isa::BITS)
    }

    #[track_caller]
    fn convert<U: Ty>(self, op: &'static Op) -> Val<'k, U> {
        let d = self.k.fresh::<U>();
        self.k
            .inst(op, U::KIND, Some(T::KIND), [d.reg], [self.operand_()]);
        d
    }
}

macro_rules! operators {
    ($($bound:ident $trait:ident $method:ident $assign:ident $assign_method:ident => $row:expr;)*) => {$(
        impl<'k, T: $bound, R: Src<'k, T>> ops::$trait<R> for Val<'k, T> {
            type Output = Self;
            #[track_caller]
            fn $method(self, r: R) -> Self {
                self.combine($row(T::KIND), r.operand())
            }
        }
        impl<'k, T: $bound, R: Src<'k, T>> ops::$assign<R> for Var<'k, T> {
            #[track_caller]
            fn $assign_method(&mut self, r: R) {
                self.0.combine_in_place($row(T::KIND), r.operand())
            }
        }
    )*};
}
operators! {
    Num Add add AddAssign add_assign => |k| row(k, &isa::ADD, &isa::ADD_RN, &isa::ADD_H);
    Num Sub sub SubAssign sub_assign => |k| row(k, &isa::SUB, &isa::SUB_RN, &isa::SUB_H);
    Num Mul mul MulAssign mul_assign => |k| row(k, &isa::MUL_LO, &isa::MUL_RN, &isa::MUL_H);
    Int BitAnd bitand BitAndAssign bitand_assign => |_| &isa::AND;
    Int BitOr bitor BitOrAssign bitor_assign => |_| &isa::OR;
    Int BitXor bitxor BitXorAssign bitxor_assign => |_| &isa::XOR;
}

/// The exponent of a literal power of two of an unsigned type: `ptxas` divides by literals as it does by registers.
fn exponent(kind: Kind, v: &Operand) -> Option<u32> {
    match v {
        Operand::Imm(imm)
            if matches!(kind, Kind::U32 | Kind::U64) && imm.bits.is_power_of_two() =>
        {
            Some(imm.bits.trailing_zeros())
        }
        _ => None,
    }
}

impl<'k, T: Dividable, R: Src<'k, T>> ops::Div<R> for Val<'k, T> {
    type Output = Self;
    #[track_caller]
    fn div(self, r: R) -> Self {
        let r = r.operand();
        match exponent(T::KIND, &r) {
            Some(n) => self.combine(&isa::SHR, lit(n)),
            None => self.binary(row(T::KIND, &isa::DIV, &isa::DIV_RN, &isa::DIV_RN), r),
        }
    }
}
impl<'k, T: Int, R: Src<'k, T>> ops::Rem<R> for Val<'k, T> {
    type Output = Self;
    #[track_caller]
    fn rem(self, r: R) -> Self {
        let r = r.operand();
        match exponent(T::KIND, &r) {
            Some(n) => {
                let mask = Imm {
                    kind: T::KIND,
                    bits: (1 << n) - 1,
                };
                self.combine(&isa::AND, Operand::Imm(mask))
            }
            None => self.binary(&isa::REM, r),
        }
    }
}
impl<'k, T: Int, R: Src<'k, u32>> ops::Shl<R> for Val<'k, T> {
    type Output = Self;
    #[track_caller]
    fn shl(self, r: R) -> Self {
        self.combine(&isa::SHL, r.operand())
    }
}
impl<'k, T: Int, R: Src<'k, u32>> ops::Shr<R> for Val<'k, T> {
    type Output = Self;
    #[track_caller]
    fn shr(self, r: R) -> Self {
        self.combine(&isa::SHR, r.operand())
    }
}
impl<T: Signed> ops::Neg for Val<'_, T> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        self.unary(row(T::KIND, &isa::NEG, &isa::NEG_F, &isa::NEG_F))
    }
}
impl<T: Int> ops::Not for Val<'_, T> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        self.unary(&isa::NOT)
    }
}
impl<'k> ops::Not for Pred<'k> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        self.unary(&isa::NOT)
    }
}
impl<'k> ops::BitAnd for Pred<'k> {
    type Output = Self;
    #[track_caller]
    fn bitand(self, r: Self) -> Self {
        self.binary(&isa::AND, r.operand())
    }
}
impl<'k> ops::BitOr for Pred<'k> {
    type Output = Self;
    #[track_caller]
    fn bitor(self, r: Self) -> Self {
        self.binary(&isa::OR, r.operand())
    }
}

/// A type with `/`.
pub trait Dividable: Num {}
impl Dividable for u32 {}
impl Dividable for i32 {}
impl Dividable for u64 {}
impl Dividable for i64 {}
impl Dividable for f32 {}

/// A type with a sign.
pub trait Signed: Num {}
impl Signed for i32 {}
impl Signed for i64 {}
impl Signed for f32 {}

/// A type with an order.
pub trait Ordered: Lit {}
impl Ordered for u32 {}
impl Ordered for i32 {}
impl Ordered for u64 {}
impl Ordered for i64 {}
impl Ordered for f32 {}

impl<'k, T: Ordered> Val<'k, T> {
    /// `self == b`.
    #[track_caller]
    pub fn eq(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_EQ, b.operand())
    }
    /// `self != b`; true if one is NaN.
    #[track_caller]
    pub fn ne(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(
            row(T::KIND, &isa::SETP_NE, &isa::SETP_NEU, &isa::SETP_NEU),
            b.operand(),
        )
    }
    /// `self < b`.
    #[track_caller]
    pub fn lt(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_LT, b.operand())
    }
    /// `self <= b`.
    #[track_caller]
    pub fn le(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_LE, b.operand())
    }
    /// `self > b`.
    #[track_caller]
    pub fn gt(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_GT, b.operand())
    }
    /// `self >= b`.
    #[track_caller]
    pub fn ge(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_GE, b.operand())
    }
    /// The smaller; the other if one is NaN.
    #[track_caller]
    pub fn min(self, b: impl Src<'k, T>) -> Self {
        self.binary(
            row(T::KIND, &isa::MIN, &isa::MIN_F, &isa::MIN_F),
            b.operand(),
        )
    }
    /// The larger; the other if one is NaN.
    #[track_caller]
    pub fn max(self, b: impl Src<'k, T>) -> Self {
        self.binary(
            row(T::KIND, &isa::MAX, &isa::MAX_F, &isa::MAX_F),
            b.operand(),
        )
    }
}

impl<'k> Pred<'k> {
    /// `self ? a : b`.
    #[track_caller]
    pub fn select<T: Ordered>(self, a: impl Src<'k, T>, b: impl Src<'k, T>) -> Val<'k, T> {
        self.k.emit(
            &isa::SELP,
            T::KIND,
            [a.operand(), b.operand(), Operand::Reg(self.reg)],
        )
    }
    /// Whether it holds in every lane of the warp.
    #[track_caller]
    pub fn all(self) -> Pred<'k> {
        self.binary(&isa::VOTE_ALL, full_mask())
    }
    /// Whether it holds in some lane of the warp.
    #[track_caller]
    pub fn any(self) -> Pred<'k> {
        self.binary(&isa::VOTE_ANY, full_mask())
    }
    /// A bit a lane of the warp: whether it holds there.
    #[track_caller]
    pub fn ballot(self) -> U32<'k> {
        self.binary(&isa::VOTE_BALLOT, full_mask())
    }
}

/// One method a row: `bound: method(arguments) -> result = row`.
macro_rules! methods {
    ($(impl $t:ty { $($(#[$m:meta])* $name:ident($($arg:ident: $a:ty),*) -> $d:ty = $row:ident;)* })*) => {$(
        impl<'k> Val<'k, $t> {$(
            $(#[$m])*
            #[track_caller]
            pub fn $name(self, $($arg: impl Src<'k, $a>),*) -> Val<'k, $d> {
                self.k.emit(&isa::$row, <$t as Ty>::KIND, [Operand::Reg(self.reg), $($arg.operand()),*])
            }
        )*}
    )*};
}
methods! {
    impl f32 {
        /// `self * b + c`, rounded once.
        fma(b: f32, c: f32) -> f32 = FMA_RN;
        /// `|self|`.
        abs() -> f32 = ABS_F;
        /// `1 / self`, correctly rounded.
        rcp_rn() -> f32 = RCP_RN;
        /// `1 / self`, 1 ulp; denormals count as 0.
        rcp() -> f32 = RCP;
        /// The square root, correctly rounded.
        sqrt_rn() -> f32 = SQRT_RN;
        /// `1 / sqrt(self)`, 2 ulp; denormals count as 0.
        rsqrt() -> f32 = RSQRT;
        /// `2^self`, 2 ulp; denormals count as 0.
        ex2() -> f32 = EX2;
        /// `log2(self)`, 2 ulp, or 2^-22 absolute on [0.5, 2].
        lg2() -> f32 = LG2;
        /// `sin(self)`, 2^-20.9 absolute on [-pi, pi].
        sin() -> f32 = SIN;
        /// `cos(self)`, 2^-20.9 absolute on [-pi, pi].
        cos() -> f32 = COS;
        /// `tanh(self)`, 2^-11 relative.
        tanh() -> f32 = TANH;
        /// The largest whole number not above `self`.
        floor() -> f32 = CVT_FLOOR;
        /// The nearest whole number, ties to even.
        round() -> f32 = CVT_ROUND;
    }
    impl f16x2 {
        /// `self * b + c`, each half rounded once.
        fma(b: f16x2, c: f16x2) -> f16x2 = FMA_H;
    }
    impl u32 {
        /// The `len` bits from bit `pos` on.
        bfe(pos: u32, len: u32) -> u32 = BFE;
        /// `b` with its `len` bits from bit `pos` on replaced by the low bits of `self`.
        bfi(b: u32, pos: u32, len: u32) -> u32 = BFI;
        /// Four of the eight bytes of `self` and `b`, picked by the nibbles of `selector`.
        prmt(b: u32, selector: u32) -> u32 = PRMT;
        /// The high word of `b:self` shifted left by `n` mod 32.
        shf_l(b: u32, n: u32) -> u32 = SHF_L;
        /// `c` plus the dot product of the unsigned bytes of `self` and `b`.
        dp4a(b: u32, c: u32) -> u32 = DP4A;
        /// The number of one bits.
        popc() -> u32 = POPC;
        /// The number of leading zero bits.
        clz() -> u32 = CLZ;
        /// The bits in reverse order.
        brev() -> u32 = BREV;
        /// The high word of `self * b`.
        mul_hi(b: u32) -> u32 = MUL_HI;
        /// `self * b` in 64 bits.
        mul_wide(b: u32) -> u64 = MUL_WIDE;
        /// `self * b + c`, product and sum in 64 bits.
        mad_wide(b: u32, c: u64) -> u64 = MAD_WIDE;
    }
    impl i32 {
        /// The `len` bits from bit `pos` on, sign-extended.
        bfe(pos: u32, len: u32) -> i32 = BFE;
        /// `c` plus the dot product of the signed bytes of `self` and `b`.
        dp4a(b: i32, c: i32) -> i32 = DP4A;
        /// `|self|`.
        abs() -> i32 = ABS;
        /// `self * b` in 64 bits.
        mul_wide(b: i32) -> i64 = MUL_WIDE;
    }
}

/// A literal on the left: `63 - k.tid()`.
macro_rules! literals {
    (@swapped $t:ty: $($trait:ident $method:ident,)*) => {$(
        impl<'k> ops::$trait<Val<'k, $t>> for $t {
            type Output = Val<'k, $t>;
            #[track_caller]
            fn $method(self, r: Val<'k, $t>) -> Val<'k, $t> {
                ops::$trait::$method(r, self)
            }
        }
    )*};
    (@first $t:ty, $r:ty: $($trait:ident $method:ident $row:expr,)*) => {$(
        impl<'k> ops::$trait<Val<'k, $r>> for $t {
            type Output = Val<'k, $t>;
            #[track_caller]
            fn $method(self, r: Val<'k, $r>) -> Val<'k, $t> {
                r.k.emit(&$row, <$t as Ty>::KIND, [Operand::Imm(self.imm()), Operand::Reg(r.reg)])
            }
        }
    )*};
    ($($t:ident)*) => {$(
        literals!(@swapped $t: Add add, Mul mul, BitAnd bitand, BitOr bitor, BitXor bitxor,);
        literals!(@first $t, $t: Sub sub isa::SUB, Div div isa::DIV, Rem rem isa::REM,);
        literals!(@first $t, u32: Shl shl isa::SHL, Shr shr isa::SHR,);
    )*};
}
literals! { u32 i32 u64 i64 }
literals! { @swapped f32: Add add, Mul mul, }
literals! { @first f32, f32: Sub sub isa::SUB_RN, Div div isa::DIV_RN, }

impl<'k> F32<'k> {
    /// Returns `e^self` as `ex2(self * log2(e))`, which is how CUDA's `__expf` computes it.
    ///
    /// The error is at most `2 + |1.2 * self|` ulp, because the product is rounded before its power is taken. Results and
    /// products that are denormal count as 0. Beyond 88.72 the result is infinite.
    #[track_caller]
    pub fn exp(self) -> Self {
        (self * std::f32::consts::LOG2_E).ex2()
    }

    /// The nearest integer, ties to even; too large saturates, NaN gives 0.
    #[track_caller]
    pub fn nearest(self) -> I32<'k> {
        self.convert(&isa::CVT_RNI)
    }
}

impl<'k> U32<'k> {
    /// `c` plus the dot product of the unsigned bytes of `self` and the signed bytes of `b`.
    #[track_caller]
    pub fn dp4a_signed(self, b: impl Src<'k, i32>, c: impl Src<'k, i32>) -> I32<'k> {
        self.k.emit(
            &isa::DP4A_US,
            Kind::U32,
            [Operand::Reg(self.reg), b.operand(), c.operand()],
        )
    }

    /// Any function of the bits of `self`, `b` and `c`: `table` is its value on `(0xF0, 0xCC, 0xAA)`.
    #[track_caller]
    pub fn lop3(self, b: impl Src<'k, u32>, c: impl Src<'k, u32>, table: u8) -> Self {
        let src = [
            Operand::Reg(self.reg),
            b.operand(),
            c.operand(),
            lit(table.into()),
        ];
        self.k.emit(&isa::LOP3, Kind::U32, src)
    }
}

impl<'k> Val<'k, f16x2> {
    /// The low and the high half.
    #[track_caller]
    pub fn unpack(self) -> [Val<'k, f16>; 2] {
        let halves = [self.k.fresh(), self.k.fresh()];
        let dst = halves.map(|h: Val<f16>| h.reg);
        self.k.inst(
            &isa::UNPACK,
            Kind::F16x2,
            None,
            dst,
            [Operand::Reg(self.reg)],
        );
        halves
    }
}

impl<'k> Val<'k, f16> {
    /// `self` in the low half, `high` in the high half.
    #[track_caller]
    pub fn pack(self, high: Val<'k, f16>) -> Val<'k, f16x2> {
        self.k.emit(
            &isa::PACK,
            Kind::F16x2,
            [Operand::Group([self.reg, high.reg].into())],
        )
    }
}

/// A type that lanes can exchange.
pub trait Shuffled: Ty {}
impl Shuffled for u32 {}
impl Shuffled for i32 {}
impl Shuffled for f32 {}
impl Shuffled for f16x2 {}

impl<'k, T: Shuffled> Val<'k, T> {
    #[track_caller]
    fn shuffle(self, op: &'static Op, b: Operand, clamp: u32) -> Self {
        self.k
            .emit(op, T::KIND, [self.operand_(), b, lit(clamp), full_mask()])
    }
    /// The value of the lane whose number differs in the bits of `lanes`. Whole warp.
    #[track_caller]
    pub fn shfl_bfly(self, lanes: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_BFLY, lanes.operand(), 31)
    }
    /// The value of the lane `lanes` above; the last `lanes` lanes keep their own. Whole warp.
    #[track_caller]
    pub fn shfl_down(self, lanes: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_DOWN, lanes.operand(), 31)
    }
    /// The value of the lane `lanes` below; the first `lanes` lanes keep their own. Whole warp.
    #[track_caller]
    pub fn shfl_up(self, lanes: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_UP, lanes.operand(), 0)
    }
    /// The value of lane `lane`. Whole warp.
    #[track_caller]
    pub fn shfl_idx(self, lane: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_IDX, lane.operand(), 31)
    }
    /// The value of lane 0, known to be the same in the whole warp.
    #[track_caller]
    pub fn broadcast(self) -> Self {
        let v = self.shfl_idx(0);
        self.k.pin(v.reg, Level::Warp);
        v
    }
}

impl<'k, T: Int32> Val<'k, T> {
    /// The sum over the warp. sm_80.
    #[track_caller]
    pub fn redux_add(self) -> Self {
        self.binary(&isa::REDUX_ADD, full_mask())
    }
    /// The largest of the warp. sm_80.
    #[track_caller]
    pub fn redux_max(self) -> Self {
        self.binary(&isa::REDUX_MAX, full_mask())
    }
}

/// `Self` can be converted from `T`, by this row.
pub trait ConvertFrom<'k, T>: Ty {
    /// The row.
    const OP: &'static Op;
}
macro_rules! conversions {
    ($($to:ty: $($from:ty = $row:ident),*;)*) => { $($(impl ConvertFrom<'_, $from> for $to { const OP: &'static Op = &isa::$row; })*)* };
}
conversions! {
    f32: u32 = CVT_RN, i32 = CVT_RN, u64 = CVT_RN, i64 = CVT_RN, f16 = CVT_F32_H, bf16 = CVT_F32_B;
    u32: f32 = CVT_RZI, u64 = CVT_LOW;
    i32: f32 = CVT_RZI;
    u64: u32 = CVT_U64;
    i64: i32 = CVT_S64;
    f16: f32 = CVT_H;
    bf16: f32 = CVT_B;
}

/// `Self` has the width of `T`.
pub trait SameWidth<T>: Ty {}
macro_rules! same_width {
    ($($t:ty: $($u:ty),*;)*) => { $($(impl SameWidth<$u> for $t {})*)* };
}
same_width! {
    u32: i32, f32, f16x2;
    i32: u32, f32, f16x2;
    f32: u32, i32, f16x2;
    f16x2: u32, i32, f32;
    u64: i64;
    i64: u64;
    f16: bf16;
    bf16: f16;
}

impl<'k, T: Num> Var<'k, T> {
    /// The value now, in a register of its own.
    #[track_caller]
    pub fn get(&self) -> Val<'k, T> {
        self.0
            .k
            .emit(&isa::MOV, T::KIND, [Operand::Reg(self.0.reg)])
    }
    /// `self = v`.
    #[track_caller]
    pub fn set(&mut self, v: impl Src<'k, T>) {
        self.0
            .k
            .inst(&isa::MOV, T::KIND, None, [self.0.reg], [v.operand()])
    }
}

impl<'k> Var<'k, f32> {
    /// `self = a * b + self`, rounded once.
    #[track_caller]
    pub fn fma(&mut self, a: impl Src<'k, f32>, b: impl Src<'k, f32>) {
        let d = self.0.reg;
        self.0.k.inst(
            &isa::FMA_RN,
            Kind::F32,
            None,
            [d],
            [a.operand(), b.operand(), Operand::Reg(d)],
        )
    }
}

impl<'k, T: Ordered + Num> Var<'k, T> {
    /// `self = max(self, v)`.
    #[track_caller]
    pub fn max_with(&mut self, v: impl Src<'k, T>) {
        let d = self.0.reg;
        let op = row(T::KIND, &isa::MAX, &isa::MAX_F, &isa::MAX_F);
        self.0
            .k
            .inst(op, T::KIND, None, [d], [Operand::Reg(d), v.operand()])
    }
}
