//! The tokens that penalties look back to.

use super::sequence_id::SequenceId;

/// The tokens of a sequence in a step, for penalties.
pub(super) struct LatestTokens<'a> {
    pub(super) sequence: SequenceId,
    /// The tokens that the step processes.
    pub(super) given: &'a [u32],
    /// The number of tokens that the step chooses, each after one of the last given tokens.
    pub(super) chosen: usize,
}
