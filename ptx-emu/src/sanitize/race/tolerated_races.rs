//! Races whose result does not depend on the order of the accesses. They cause notes, unless the
//! launch treats them as faults.
//!
//! - Threads store the same value at an address.
//! - A plain load reads the initial guess of a compare-and-swap loop at the same address. If the
//!   guess is old, the swap fails and the loop repeats. The two instructions are matched by their
//!   address, which must be one register or a copy of it.
//! - A block resets a counter with a plain store after its own atomic was the last one there.

use crate::fault::SourcePlace;
use crate::module::code::KernelCode;

/// The maximum number of register copies that are followed.
const MOST_COPIES: usize = 8;

/// Returns the opcode and the operands of an instruction, without its guard.
pub(crate) fn parts(place: &SourcePlace) -> (&str, &str) {
    let text = place.text.trim();
    let text = match text.strip_prefix('@') {
        Some(rest) => rest
            .split_once(char::is_whitespace)
            .map_or("", |(_, rest)| rest.trim_start()),
        None => text,
    };
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

pub(crate) fn is_atomic(place: &SourcePlace) -> bool {
    matches!(parts(place).0.split('.').next(), Some("atom" | "red"))
}

/// Returns the register and the offset in the brackets of a memory operand.
pub(crate) fn address(operands: &str) -> Option<(&str, &str)> {
    let inner = operands.split_once('[')?.1.split_once(']')?.0.trim();
    let (register, offset) = inner.split_once('+').unwrap_or((inner, "0"));
    Some((register.trim(), offset.trim()))
}

/// Returns the register from which a register was copied through `mov`, `cvta`, or an `and` that
/// aligns an address to a word.
fn origin<'c>(code: &'c KernelCode, mut register: &'c str) -> &'c str {
    for _ in 0..MOST_COPIES {
        let from = code.places.iter().find_map(|place| {
            let (opcode, operands) = parts(place);
            let mut operands = operands.split(',').map(str::trim);
            let copies = matches!(opcode.split('.').next(), Some("mov" | "cvta" | "and"));
            (copies && operands.next() == Some(register))
                .then(|| operands.next())
                .flatten()
        });
        match from.filter(|from| from.starts_with('%')) {
            Some(from) => register = from,
            None => break,
        }
    }
    register
}

/// Returns true if a load reads an address at which a compare-and-swap of the kernel swaps.
#[cold]
pub(crate) fn is_guess(code: &KernelCode, load: &SourcePlace) -> bool {
    let (opcode, operands) = parts(load);
    let Some((register, offset)) = address(operands).filter(|_| opcode.starts_with("ld.")) else {
        return false;
    };

    let from = origin(code, register);
    code.places.iter().any(|place| {
        let (opcode, operands) = parts(place);
        let swaps = opcode.starts_with("atom.") && opcode.split('.').any(|part| part == "cas");
        swaps
            && address(operands)
                .is_some_and(|(r, o)| origin(code, r) == from && (o == offset || r != register))
    })
}
