//! An instruction that is tried, as text.

/// An instruction that is tried.
#[derive(Clone, Debug)]
pub(super) struct InstructionForm {
    /// The instruction without operands.
    pub(super) name: String,
    /// The statement with operands.
    pub(super) line: String,
}

/// Returns registers in braces.
pub(super) fn list(registers: Vec<String>) -> String {
    format!("{{{}}}", registers.join(", "))
}
