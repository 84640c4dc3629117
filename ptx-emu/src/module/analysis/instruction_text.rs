//! The parts of an instruction, read from its text: name, operands and registers.

use crate::fault::SourcePlace;
use crate::module::code::instruction::KernelCode;
use crate::module::registers::Bank;

/// A register by bank and slot.
pub(crate) type Register = (Bank, u32);

/// Returns the key of a register for its marks.
pub(crate) fn key((bank, slot): Register) -> u64 {
    u64::from(slot) << 1 | u64::from(bank == Bank::W64)
}

/// Returns the name of an instruction and its operands, without its guard.
pub(crate) fn parts(place: &SourcePlace) -> (&str, &str) {
    let text = place.text.trim_end_matches(';');
    let text = match text.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest),
        None => text,
    };
    text.split_once(' ').unwrap_or((text, ""))
}

/// Returns the first operand, and the others.
pub(crate) fn split(operands: &str) -> (&str, &str) {
    let end = if operands.starts_with('{') {
        operands.find('}').unwrap_or(0)
    } else {
        0
    };
    let end = operands[end..]
        .find(',')
        .map_or(operands.len(), |comma| end + comma);
    operands.split_at(end)
}

/// Returns the value registers that a fragment of an instruction names.
pub(crate) fn named(code: &KernelCode, pc: usize, text: &str) -> Vec<Register> {
    let routine = code
        .routines
        .partition_point(|r| r.start as usize <= pc)
        .saturating_sub(1);
    let known = code
        .mentioned(pc as u32)
        .iter()
        .filter(|(bank, _)| *bank != Bank::Pred);
    let name = |(bank, slot): &Register| code.name_of(routine as u32, *bank, *slot).unwrap_or("");
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '$' | '_');
    let names: Vec<&str> = text.split(|c| !part(c)).collect();
    known
        .filter(|register| names.contains(&name(register)))
        .copied()
        .collect()
}
