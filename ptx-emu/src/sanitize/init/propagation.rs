//! Propagates uninitialized registers, as Valgrind's memcheck does.
//!
//! The result of an operation on an undefined value is undefined too. Only a use that decides
//! something is a fault: a branch, an address or a store. A conjunction with false and a
//! disjunction with true are defined, even if the other operand is not.
//!
//! Undefined values are tolerated this long because correct programs compute with them. Compilers
//! compute results in advance that may not be needed, and algorithms read one element too far and
//! test for that at the same time.

use crate::module::analysis::instruction_text::{Register, named, parts, split};
use crate::module::code::{KernelCode, PredSource};
use crate::module::registers::Regs;

/// The name parts of instructions that read or write the carry.
const CARRY: [&str; 4] = [".cc", "addc", "subc", "madc"];

/// Returns the lanes in which a predicate is initialized, and those in which it is then true.
fn known(regs: &Regs, source: PredSource) -> (u32, u32) {
    match source {
        PredSource::Register { slot, negated } => {
            let value = regs.pred[slot as usize];
            (
                regs.pred_defined[slot as usize],
                if negated { !value } else { value },
            )
        }
        PredSource::Constant(value) => (u32::MAX, if value { u32::MAX } else { 0 }),
    }
}

/// Returns the lanes in which an operation on predicates may be true, and those in which it may be
/// false.
pub(crate) fn outcomes(regs: &Regs, table: u8, a: PredSource, b: PredSource) -> (u32, u32) {
    let may = |source, wanted: bool| {
        let (known, value) = known(regs, source);
        !known | if wanted { value } else { !value }
    };
    let mut found = (0, 0);
    for case in 0..4 {
        let lanes = may(a, case & 2 != 0) & may(b, case & 1 != 0);
        let to = if table >> case & 1 != 0 {
            &mut found.0
        } else {
            &mut found.1
        };
        *to |= lanes;
    }

    found
}

/// Returns the registers that an instruction writes, or none if it reads or writes the carry.
pub(crate) fn written_by(code: &KernelCode, pc: usize) -> Vec<Register> {
    let (name, operands) = parts(&code.places[pc]);
    if CARRY.iter().any(|part| name.contains(part)) {
        Vec::new()
    } else {
        named(code, pc, split(operands).0)
    }
}
