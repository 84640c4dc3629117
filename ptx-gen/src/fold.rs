//! Constant folding: skips or simplifies integer instructions whose right operand is a literal.
//!
//! Kernels are generic over formats, sizes and plans, so `x * 1`, `x + 0` and `x >> 0` are common.
//! Only integers are folded. For floats the results differ: `x + 0.0` is not `x` if `x` is -0, and
//! `x * 0.0` is not 0 if `x` is infinite.

use crate::build::Val;
use crate::ir::{Imm, Operand};
use crate::isa::{self, Op};
use crate::ty::{Class, Int32, Kind, Ty};

/// The result of a folded operation.
enum Folded {
    /// The left operand, unchanged.
    Left,
    /// Zero.
    Zero,
}

/// Returns the result of `x op right` if it needs no computation.
fn fold(op: &'static Op, kind: Kind, right: &Operand) -> Option<Folded> {
    use Folded::{Left, Zero};
    let bits = literal(kind, right)?;
    let ones = u64::MAX >> (64 - 8 * kind.bytes());
    let is = |rows: &[&Op]| rows.contains(&op);
    let folded = match bits {
        0 if is(&[
            &isa::ADD,
            &isa::SUB,
            &isa::OR,
            &isa::XOR,
            &isa::SHL,
            &isa::SHR,
        ]) =>
        {
            Left
        }
        0 if is(&[&isa::MUL_LO, &isa::AND]) => Zero,
        1 if is(&[&isa::MUL_LO]) => Left,
        _ if bits == ones && is(&[&isa::AND]) => Left,
        _ => return None,
    };
    Some(folded)
}

/// Returns the bits of `operand` if it is an integer literal of type `kind`.
pub(crate) fn literal(kind: Kind, operand: &Operand) -> Option<u64> {
    match operand {
        Operand::Imm(imm)
            if matches!(kind.class(), Class::Word | Class::Long) && kind != Kind::F16x2 =>
        {
            Some(imm.bits)
        }
        _ => None,
    }
}

impl<'k, T: Ty> Val<'k, T> {
    /// Emits `self op right`, or nothing if the result is known.
    #[track_caller]
    pub(crate) fn combine(self, op: &'static Op, right: Operand) -> Self {
        match fold(op, T::KIND, &right) {
            Some(Folded::Left) => self,
            Some(Folded::Zero) => self.k.emit(&isa::MOV, T::KIND, [zero::<T>()]),
            None => self.k.emit(op, T::KIND, [Operand::Reg(self.reg), right]),
        }
    }

    /// Emits `self = self op right` for a variable, or nothing if the variable keeps its value.
    #[track_caller]
    pub(crate) fn combine_in_place(self, op: &'static Op, right: Operand) {
        let d = [self.reg];
        match fold(op, T::KIND, &right) {
            Some(Folded::Left) => {}
            Some(Folded::Zero) => self.k.inst(&isa::MOV, T::KIND, None, d, [zero::<T>()]),
            None => self
                .k
                .inst(op, T::KIND, None, d, [Operand::Reg(self.reg), right]),
        }
    }
}

impl<'k, T: Int32> Val<'k, T> {
    /// Returns the low 32 bits of `self * b + c` (`mad.lo`).
    ///
    /// If `b` is a literal 0 or 1, or `c` a literal 0, a simpler instruction is emitted.
    #[track_caller]
    pub fn mad(self, b: impl crate::Src<'k, T>, c: impl crate::Src<'k, T>) -> Self {
        let b = b.operand();
        let c = c.operand();
        match (literal(T::KIND, &b), literal(T::KIND, &c)) {
            (Some(1), _) => self.combine(&isa::ADD, c),
            (Some(0), _) => self.k.emit(&isa::MOV, T::KIND, [c]),
            (_, Some(0)) => self.combine(&isa::MUL_LO, b),
            _ => self
                .k
                .emit(&isa::MAD_LO, T::KIND, [Operand::Reg(self.reg), b, c]),
        }
    }
}

fn zero<T: Ty>() -> Operand {
    Operand::Imm(Imm {
        kind: T::KIND,
        bits: 0,
    })
}
