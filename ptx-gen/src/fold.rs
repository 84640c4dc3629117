//! Integer operations that need no instruction, or a simpler one, because an operand is a literal.
//!
//! Kernels are generic over formats, sizes and plans, so that `x * 1`, `x + 0` and `x >> 0` are common. Only integers:
//! `x + 0.0` is not `x` where `x` is -0, and `x * 0.0` is not 0 where `x` is infinite.

use crate::build::Val;
use crate::ir::{Imm, Operand};
use crate::isa::{self, Op};
use crate::ty::{Class, Int32, Kind, Ty};

/// What an operation comes to whose right operand is a literal.
enum Folded {
    /// The left operand.
    Left,
    /// Zero.
    Zero,
}

/// `x op right`, if it is known without computing it.
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

/// The bits of a literal operand of an operation on integers.
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
    /// `self op right`, by as little as it takes.
    #[track_caller]
    pub(crate) fn combine(self, op: &'static Op, right: Operand) -> Self {
        match fold(op, T::KIND, &right) {
            Some(Folded::Left) => self,
            Some(Folded::Zero) => self.k.emit(&isa::MOV, T::KIND, [zero::<T>()]),
            None => self.k.emit(op, T::KIND, [Operand::Reg(self.reg), right]),
        }
    }

    /// `self = self op right`, of a variable.
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
    /// `self * b + c` in 32 bits.
    #[track_caller]
    pub fn mad(self, b: impl crate::Src<'k, T>, c: impl crate::Src<'k, T>) -> Self {
        let (b, c) = (b.operand(), c.operand());
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
