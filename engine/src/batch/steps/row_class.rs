//! The origin of tokens that a step processes.

/// The origin of tokens that a step processes.
///
/// It matters only with [`BatchRounding::Same`](crate::BatchRounding::Same), where the two classes
/// have different kernels. The same token must then always be in the same class: also if a sequence
/// is computed again, and if it is the only token of the last part of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowClass {
    /// Tokens of a prompt.
    Prompt,
    /// A token that the model chose.
    Decode,
}
