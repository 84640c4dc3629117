//! The answers of ptxas and of the emulator about forms.

use std::collections::BTreeMap;

/// The newest PTX version that the pinned ptxas supports.
pub(super) const VERSION: &str = "9.5";

/// The answers of ptxas and of the emulator about a form, for the target on which it is accepted
/// most.
#[derive(Clone, Debug, Default)]
pub(super) struct FormAnswers {
    /// Whether ptxas accepts it.
    pub(super) taken: bool,
    /// Whether the emulator would run it.
    pub(super) runs: bool,
    /// Whether the emulator calls it unsupported.
    pub(super) unsupported: bool,
    pub(super) ptxas: String,
    pub(super) emulator: String,
    pub(super) target: &'static str,
}

/// The answers by form.
///
/// A form is the name of an instruction, an instruction with operands, a statement or a
/// declaration.
pub(super) type Answers = BTreeMap<String, FormAnswers>;

/// The answers about all forms.
pub(super) struct Comparison {
    /// The names of instructions.
    pub(super) names: Answers,
    /// Instructions in which one operand was replaced.
    pub(super) operands: Answers,
    /// The statements and declarations in the two text files.
    pub(super) written: Answers,
}

impl FormAnswers {
    /// Returns true if the emulator claims that the text is invalid and ptxas accepts it.
    pub(super) fn is_lie(&self) -> bool {
        self.taken && !self.runs && !self.unsupported
    }

    /// Returns true if ptxas rejects the text and the emulator runs it.
    pub(super) fn is_lax(&self) -> bool {
        !self.taken && self.runs
    }

    /// Ranks the answers about a form for different targets. The highest is for a target that has
    /// it.
    pub(super) fn rank(&self) -> u8 {
        4 * u8::from(self.taken) + 2 * u8::from(self.runs) + u8::from(self.unsupported)
    }
}
