//! Arithmetic on values: operators and methods that become one instruction each.
//!
//! A method is named after its mnemonic. An operator is the plain operation of its type, IEEE 754
//! for floats, and is never fused. To fuse a multiplication and an addition, call
//! [`fma`](Val::fma).
//!
//! Integer operations with a literal operand that changes nothing, such as `x + 0`, emit no
//! instruction. See [`fold`](crate::fold).

use crate::build::*;
use crate::ir::{Imm, Level, Operand};
use crate::isa::{self, Op};
use crate::ty::*;
use std::ops;

/// Returns the row of an operation for `kind`, because integers, `f32` and half precision have
/// separate rows.
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
    /// Converts the value to `U`, with the `cvt` that PTX has for this pair of types.
    ///
    /// | from | to | instruction | rounding |
    /// |---|---|---|---|
    /// | `u32`, `i32`, `u64`, `i64` | `f32` | `cvt.rn` | to nearest, ties to even |
    /// | `f32` | `u32`, `i32` | `cvt.rzi` | toward zero, saturating, NaN becomes 0 |
    /// | `u32` | `u64` | `cvt.u64.u32` | zero-extends |
    /// | `i32` | `i64` | `cvt.s64.s32` | sign-extends |
    /// | `u64` | `u32` | `cvt.u32.u64` | keeps the low 32 bits |
    /// | `f16` | `f32` | `cvt.f32.f16` | exact |
    /// | `f32` | `f16` | `cvt.rn.f16.f32` | to nearest, ties to even |
    /// | `bf16` | `f32` | `cvt.f32.bf16`, sm_80 | exact |
    /// | `f32` | `bf16` | `cvt.rn.bf16.f32`, sm_80 | to nearest, ties to even |
    ///
    /// To convert between `u32` and `i32`, use [`bits`](Val::bits). To round a float to the nearest
    /// integer, use [`nearest`](Val::nearest).
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let i = k.tid();
    /// let v: F32 = a.h.at(i).ld().cvt();
    /// a.x.at(i).st(v * i.cvt::<f32>());
    /// # })?;
    /// assert!(ptx.contains("cvt.f32.f16"));
    /// assert!(ptx.contains("cvt.rn.f32.u32"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn cvt<U: ConvertFrom<'k, T>>(self) -> Val<'k, U> {
        self.convert(U::OP)
    }

    /// Reinterprets the bits of the value as a `U` of the same width.
    ///
    /// Between `u32`, `i32` and `f16x2`, which share a register class, no instruction is emitted.
    /// Between one of them and `f32` it is a `mov.b32`.
    #[track_caller]
    pub fn bits<U: SameWidth<T>>(self) -> Val<'k, U> {
        // PTX checks the width of a register and not its type, so the same register serves both
        // types.
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

/// Returns the exponent of a literal power of two of an unsigned type.
///
/// `ptxas` does not simplify a division by a literal. The operators therefore emit a shift or a
/// mask.
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

/// A type that supports `/`: `u32`, `i32`, `u64`, `i64` and `f32`.
///
/// Integer division rounds toward zero and is undefined for a zero divisor. Division of `f32` is
/// `div.rn.f32`, which rounds correctly. An unsigned division by a literal power of two becomes a
/// shift.
pub trait Dividable: Num {}
impl Dividable for u32 {}
impl Dividable for i32 {}
impl Dividable for u64 {}
impl Dividable for i64 {}
impl Dividable for f32 {}

/// A type that supports unary `-`: `i32`, `i64` and `f32`.
pub trait Signed: Num {}
impl Signed for i32 {}
impl Signed for i64 {}
impl Signed for f32 {}

/// A type whose values can be compared and selected: `u32`, `i32`, `u64`, `i64` and `f32`.
pub trait Ordered: Lit {}
impl Ordered for u32 {}
impl Ordered for i32 {}
impl Ordered for u64 {}
impl Ordered for i64 {}
impl Ordered for f32 {}

impl<'k, T: Ordered> Val<'k, T> {
    /// Returns `self == b` (`setp.eq`). For `f32` it is false if either operand is NaN.
    #[track_caller]
    pub fn eq(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_EQ, b.operand())
    }
    /// Returns `self != b` (`setp.ne`, or `setp.neu` for `f32`). It is true if either operand is
    /// NaN.
    #[track_caller]
    pub fn ne(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(
            row(T::KIND, &isa::SETP_NE, &isa::SETP_NEU, &isa::SETP_NEU),
            b.operand(),
        )
    }
    /// Returns `self < b` (`setp.lt`). For `f32` it is false if either operand is NaN.
    #[track_caller]
    pub fn lt(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_LT, b.operand())
    }
    /// Returns `self <= b` (`setp.le`). For `f32` it is false if either operand is NaN.
    #[track_caller]
    pub fn le(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_LE, b.operand())
    }
    /// Returns `self > b` (`setp.gt`). For `f32` it is false if either operand is NaN.
    #[track_caller]
    pub fn gt(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_GT, b.operand())
    }
    /// Returns `self >= b` (`setp.ge`). For `f32` it is false if either operand is NaN.
    #[track_caller]
    pub fn ge(self, b: impl Src<'k, T>) -> Pred<'k> {
        self.binary(&isa::SETP_GE, b.operand())
    }
    /// Returns the smaller of `self` and `b` (`min`). If one `f32` is NaN, returns the other.
    #[track_caller]
    pub fn min(self, b: impl Src<'k, T>) -> Self {
        self.binary(
            row(T::KIND, &isa::MIN, &isa::MIN_F, &isa::MIN_F),
            b.operand(),
        )
    }
    /// Returns the larger of `self` and `b` (`max`). If one `f32` is NaN, returns the other.
    #[track_caller]
    pub fn max(self, b: impl Src<'k, T>) -> Self {
        self.binary(
            row(T::KIND, &isa::MAX, &isa::MAX_F, &isa::MAX_F),
            b.operand(),
        )
    }
}

impl<'k> Pred<'k> {
    /// Returns `a` where the predicate holds and `b` elsewhere (`selp`), without a branch.
    ///
    /// Both operands are evaluated. Use it to replace a short branch, for example to clamp a value.
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let x = a.x.at(k.tid());
    /// let v = x.ld();
    /// x.st(v.lt(0.0).select(0.0, v));
    /// # })?;
    /// assert!(ptx.contains("selp.f32 %f1, 0f00000000, %f0, %p0;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn select<T: Ordered>(self, a: impl Src<'k, T>, b: impl Src<'k, T>) -> Val<'k, T> {
        self.k.emit(
            &isa::SELP,
            T::KIND,
            [a.operand(), b.operand(), Operand::Reg(self.reg)],
        )
    }
    /// Returns true in every lane if the predicate holds in all lanes of the warp
    /// (`vote.sync.all`).
    ///
    /// The whole warp must execute it. The result is uniform in the warp, so you may branch on it
    /// around other instructions of the whole warp.
    #[track_caller]
    pub fn all(self) -> Pred<'k> {
        self.binary(&isa::VOTE_ALL, full_mask())
    }
    /// Returns true in every lane if the predicate holds in at least one lane of the warp
    /// (`vote.sync.any`).
    ///
    /// The whole warp must execute it. The result is uniform in the warp.
    #[track_caller]
    pub fn any(self) -> Pred<'k> {
        self.binary(&isa::VOTE_ANY, full_mask())
    }
    /// Returns a mask whose bit `l` says if the predicate holds in lane `l`
    /// (`vote.sync.ballot.b32`).
    ///
    /// The whole warp must execute it. The result is uniform in the warp.
    #[track_caller]
    pub fn ballot(self) -> U32<'k> {
        self.binary(&isa::VOTE_BALLOT, full_mask())
    }
}

/// Implements one method per line: `name(arguments) -> result = ROW`.
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
        /// Returns `self * b + c`, rounded once (`fma.rn.f32`).
        ///
        /// The operators `*` and `+` never fuse, so the result of a kernel does not depend on the
        /// compiler.
        ///
        /// # Example
        /// ```
        /// # use ptx_gen::prelude::*;
        /// # let ptx = ptx_gen::example(|k, a| {
        /// let x = a.x.at(k.tid());
        /// x.st(x.ld().fma(2.0, 1.0));
        /// # })?;
        /// assert!(ptx.contains("fma.rn.f32 %f1, %f0, 0f40000000, 0f3F800000;"));
        /// # Ok::<(), ptx_gen::Errors>(())
        /// ```
        fma(b: f32, c: f32) -> f32 = FMA_RN;
        /// Returns the absolute value (`abs.f32`).
        abs() -> f32 = ABS_F;
        /// Returns `1 / self`, correctly rounded (`rcp.rn.f32`).
        rcp_rn() -> f32 = RCP_RN;
        /// Returns `1 / self` with an error of at most 1 ulp (`rcp.approx.ftz.f32`). Denormals are
        /// flushed to 0.
        rcp() -> f32 = RCP;
        /// Returns the square root, correctly rounded (`sqrt.rn.f32`).
        sqrt_rn() -> f32 = SQRT_RN;
        /// Returns `1 / sqrt(self)` with an error of at most 2 ulp (`rsqrt.approx.ftz.f32`).
        /// Denormals are flushed to 0.
        rsqrt() -> f32 = RSQRT;
        /// Returns `2^self` with an error of at most 2 ulp (`ex2.approx.ftz.f32`). Denormals are
        /// flushed to 0.
        ///
        /// [`exp`](Val::exp) computes `e^self`.
        ex2() -> f32 = EX2;
        /// Returns the base-2 logarithm (`lg2.approx.ftz.f32`).
        ///
        /// The error is at most 2^-22 for arguments in [0.5, 2], and at most 2 ulp elsewhere.
        lg2() -> f32 = LG2;
        /// Returns the sine (`sin.approx.ftz.f32`). The error is at most 2^-20.9 for arguments in
        /// [-pi, pi].
        sin() -> f32 = SIN;
        /// Returns the cosine (`cos.approx.ftz.f32`). The error is at most 2^-20.9 for arguments in
        /// [-pi, pi].
        cos() -> f32 = COS;
        /// Returns the hyperbolic tangent (`tanh.approx.f32`). The relative error is at most 2^-11.
        /// Needs sm_75.
        tanh() -> f32 = TANH;
        /// Returns the largest whole number that is not above `self` (`cvt.rmi.f32.f32`).
        floor() -> f32 = CVT_FLOOR;
        /// Returns the nearest whole number as a float, with ties to even (`cvt.rni.f32.f32`).
        ///
        /// [`nearest`](Val::nearest) returns it as an integer.
        round() -> f32 = CVT_ROUND;
    }
    impl f16x2 {
        /// Returns `self * b + c` for both `f16` values, each rounded once (`fma.rn.f16x2`).
        fma(b: f16x2, c: f16x2) -> f16x2 = FMA_H;
    }
    impl u32 {
        /// Returns the `len` bits that start at bit `pos` (`bfe.u32`).
        bfe(pos: u32, len: u32) -> u32 = BFE;
        /// Returns `b` with its `len` bits from bit `pos` on replaced by the low bits of `self`
        /// (`bfi.b32`).
        bfi(b: u32, pos: u32, len: u32) -> u32 = BFI;
        /// Returns four of the eight bytes of `self` and `b` (`prmt.b32`).
        ///
        /// Each nibble of `selector` picks the byte of one position of the result, the lowest
        /// nibble the lowest byte. Bytes 0 to 3 are those of `self` and 4 to 7 those of `b`.
        prmt(b: u32, selector: u32) -> u32 = PRMT;
        /// Returns the high 32 bits of the 64-bit value `b:self` shifted left by `n` mod 32
        /// (`shf.l.wrap.b32`).
        ///
        /// If `b` and `self` are the same value, this is a rotation.
        shf_l(b: u32, n: u32) -> u32 = SHF_L;
        /// Returns `c` plus the dot product of the four unsigned bytes of `self` and `b`
        /// (`dp4a.u32.u32`).
        dp4a(b: u32, c: u32) -> u32 = DP4A;
        /// Returns the number of one bits (`popc.b32`).
        popc() -> u32 = POPC;
        /// Returns the number of leading zero bits (`clz.b32`), which is 32 for 0.
        clz() -> u32 = CLZ;
        /// Returns the bits in reverse order (`brev.b32`).
        brev() -> u32 = BREV;
        /// Returns the high 32 bits of the 64-bit product `self * b` (`mul.hi.u32`).
        mul_hi(b: u32) -> u32 = MUL_HI;
        /// Returns the product `self * b` in 64 bits (`mul.wide.u32`).
        mul_wide(b: u32) -> u64 = MUL_WIDE;
        /// Returns `self * b + c` in 64 bits (`mad.wide.u32`).
        mad_wide(b: u32, c: u64) -> u64 = MAD_WIDE;
    }
    impl i32 {
        /// Returns the `len` bits that start at bit `pos`, sign-extended (`bfe.s32`).
        bfe(pos: u32, len: u32) -> i32 = BFE;
        /// Returns `c` plus the dot product of the four signed bytes of `self` and `b`
        /// (`dp4a.s32.s32`).
        dp4a(b: i32, c: i32) -> i32 = DP4A;
        /// Returns the absolute value (`abs.s32`).
        abs() -> i32 = ABS;
        /// Returns the product `self * b` in 64 bits (`mul.wide.s32`).
        mul_wide(b: i32) -> i64 = MUL_WIDE;
    }
}

/// Implements operators whose left operand is a literal, such as `63 - k.tid()`.
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
    /// Returns `e^self`, computed as `ex2(self * log2(e))` as in CUDA's `__expf`.
    ///
    /// The error is at most `2 + |1.2 * self|` ulp, because the product is rounded before the power
    /// is taken. Denormal products and results are flushed to 0. The result is infinite for
    /// arguments above 88.72.
    #[track_caller]
    pub fn exp(self) -> Self {
        (self * std::f32::consts::LOG2_E).ex2()
    }

    /// Returns the nearest integer, with ties to even (`cvt.rni.s32.f32`).
    ///
    /// Values outside the range of `i32` saturate, and NaN becomes 0.
    #[track_caller]
    pub fn nearest(self) -> I32<'k> {
        self.convert(&isa::CVT_RNI)
    }
}

impl<'k> U32<'k> {
    /// Returns `c` plus the dot product of the four unsigned bytes of `self` and the four signed
    /// bytes of `b` (`dp4a.u32.s32`).
    #[track_caller]
    pub fn dp4a_signed(self, b: impl Src<'k, i32>, c: impl Src<'k, i32>) -> I32<'k> {
        self.k.emit(
            &isa::DP4A_US,
            Kind::U32,
            [Operand::Reg(self.reg), b.operand(), c.operand()],
        )
    }

    /// Returns an arbitrary bitwise function of `self`, `b` and `c` (`lop3.b32`).
    ///
    /// `table` is the truth table of the function. Compute it by applying the function to `0xF0`
    /// for `self`, `0xCC` for `b` and `0xAA` for `c`.
    ///
    /// # Example: select bits of `b` or `c` by the bits of `self`
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let at = a.i.at(k.tid());
    /// let table = (0xF0 & 0xCC) | (!0xF0 & 0xAA);
    /// at.st(at.ld().lop3(a.n, k.lane(), table));
    /// # })?;
    /// assert!(ptx.contains(", 202;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
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
    /// Returns the low and the high `f16` (`mov.b32` to a vector of two registers).
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
    /// Returns a pair with `self` in the low 16 bits and `high` in the high 16 bits (`mov.b32`).
    #[track_caller]
    pub fn pack(self, high: Val<'k, f16>) -> Val<'k, f16x2> {
        self.k.emit(
            &isa::PACK,
            Kind::F16x2,
            [Operand::Group([self.reg, high.reg].into())],
        )
    }
}

/// A type that lanes of a warp can exchange: `u32`, `i32`, `f32` and `f16x2`.
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
    /// Returns the value of the lane whose index is this lane's index XOR `lanes`
    /// (`shfl.sync.bfly.b32`).
    ///
    /// The whole warp must execute it. If `lanes` is uniform, five steps with 16, 8, 4, 2 and 1
    /// reduce a value over the warp and leave the result in every lane.
    ///
    /// # Example: a sum over the warp
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let x = a.x.at(k.tid());
    /// let mut sum = k.var(x.ld());
    /// for lanes in [16u32, 8, 4, 2, 1] {
    ///     sum += sum.get().shfl_bfly(lanes);
    /// }
    /// x.st(&sum);
    /// # })?;
    /// assert_eq!(ptx.matches("shfl.sync.bfly.b32").count(), 5);
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn shfl_bfly(self, lanes: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_BFLY, lanes.operand(), 31)
    }
    /// Returns the value of the lane `lanes` above this one (`shfl.sync.down.b32`).
    ///
    /// The last `lanes` lanes keep their own value. The whole warp must execute it.
    #[track_caller]
    pub fn shfl_down(self, lanes: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_DOWN, lanes.operand(), 31)
    }
    /// Returns the value of the lane `lanes` below this one (`shfl.sync.up.b32`).
    ///
    /// The first `lanes` lanes keep their own value. The whole warp must execute it.
    #[track_caller]
    pub fn shfl_up(self, lanes: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_UP, lanes.operand(), 0)
    }
    /// Returns the value of lane `lane` (`shfl.sync.idx.b32`). The whole warp must execute it.
    ///
    /// To tell validation that the result is uniform, use [`broadcast`](Val::broadcast).
    #[track_caller]
    pub fn shfl_idx(self, lane: impl Src<'k, u32>) -> Self {
        self.shuffle(&isa::SHFL_IDX, lane.operand(), 31)
    }
    /// Returns the value of lane 0 in every lane of the warp (`shfl.sync.idx.b32`).
    ///
    /// The whole warp must execute it. Validation knows that the result is uniform in the warp.
    #[track_caller]
    pub fn broadcast(self) -> Self {
        let v = self.shfl_idx(0);
        self.k.pin(v.reg, Level::Warp);
        v
    }
}

impl<'k, T: Int32> Val<'k, T> {
    /// Returns the sum over all lanes of the warp (`redux.sync.add`). Needs sm_80.
    ///
    /// The whole warp must execute it. The result is uniform in the warp.
    #[track_caller]
    pub fn redux_add(self) -> Self {
        self.binary(&isa::REDUX_ADD, full_mask())
    }
    /// Returns the maximum over all lanes of the warp (`redux.sync.max`). Needs sm_80.
    ///
    /// The whole warp must execute it. The result is uniform in the warp.
    #[track_caller]
    pub fn redux_max(self) -> Self {
        self.binary(&isa::REDUX_MAX, full_mask())
    }
}

/// A type to which values of type `T` can be converted with [`cvt`](Val::cvt).
pub trait ConvertFrom<'k, T>: Ty {
    /// The instruction that converts.
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

/// A type whose values have as many bits as values of type `T`, for [`bits`](Val::bits).
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
    /// Returns the current value in a new register (`mov`). Later writes to the variable do not
    /// change it.
    ///
    /// Where an operand is expected you can pass `&variable` instead, which emits no instruction.
    #[track_caller]
    pub fn get(&self) -> Val<'k, T> {
        self.0
            .k
            .emit(&isa::MOV, T::KIND, [Operand::Reg(self.0.reg)])
    }
    /// Assigns `v` to the variable (`mov`).
    #[track_caller]
    pub fn set(&mut self, v: impl Src<'k, T>) {
        self.0
            .k
            .inst(&isa::MOV, T::KIND, None, [self.0.reg], [v.operand()])
    }
}

impl<'k> Var<'k, f32> {
    /// Adds `a * b` to the variable, rounded once (`fma.rn.f32`).
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
    /// Assigns the larger of the variable and `v` to the variable (`max`). If one `f32` is NaN, the
    /// other is assigned.
    #[track_caller]
    pub fn max_with(&mut self, v: impl Src<'k, T>) {
        let d = self.0.reg;
        let op = row(T::KIND, &isa::MAX, &isa::MAX_F, &isa::MAX_F);
        self.0
            .k
            .inst(op, T::KIND, None, [d], [Operand::Reg(d), v.operand()])
    }
}
