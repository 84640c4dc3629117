//! An instruction, written out.

#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) name: String,
    pub(super) line: String,
}

/// Registers in braces.
pub(super) fn list(registers: Vec<String>) -> String {
    format!("{{{}}}", registers.join(", "))
}
