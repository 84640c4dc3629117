//! The kinds of steps that a forward pass supports.

/// The computation of one step, which decides its kernels and its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Computes the logits after one token and chooses the next token.
    Decode,
    /// Computes the keys and values of one prompt token, without logits. The prompt's last token
    /// needs [`Decode`](StepKind::Decode) instead.
    Prefill,
    /// Computes the keys and values of [`Options::prefill_batch`](crate::Options::prefill_batch)
    /// prompt tokens, without logits.
    PrefillBatch,
    /// Computes the logits after each of [`Options::prefill_batch`](crate::Options::prefill_batch)
    /// given tokens.
    LogitsBatch,
    /// Chooses the token after each of this many given tokens, to verify
    /// [drafts](field@crate::Options::drafts). The number is 2, 4 or 8, up to the size that the
    /// decoder was made for.
    Verify(u32),
    /// Computes the logits after one token and chooses no token: the first half of a step of
    /// constrained decoding.
    Logits,
    /// Chooses a token from the logits, among the allowed ones: the second half of a step of
    /// constrained decoding.
    Choose,
}
