//! An instruction, written out.

/// An instruction to ask about.
#[derive(Clone, Debug)]
pub(super) struct InstructionForm {
    pub(super) name: String,
    pub(super) line: String,
}

/// Registers in braces.
pub(super) fn list(registers: Vec<String>) -> String {
    format!("{{{}}}", registers.join(", "))
}
