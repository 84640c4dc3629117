//! The kinds of steps that a forward pass makes.

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Decodes one token.
    Decode,
    /// Prefills one token of the prompt except the last, without logits.
    Prefill,
    /// Prefills a batch of [`Options::prefill_batch`](crate::Options::prefill_batch) tokens without logits.
    PrefillBatch,
    /// Processes a batch of [`Options::prefill_batch`](crate::Options::prefill_batch) given tokens, with the logits
    /// after each.
    LogitsBatch,
    /// Chooses the token after each of so many given tokens: 2, 4 or 8, as far as the decoder was made for
    /// [drafts](field@crate::Options::drafts).
    Verify(u32),
    /// Computes the logits after a token and chooses none: the first half of a step within a grammar.
    Logits,
    /// Chooses a token by the logits, of those that are allowed: the second half.
    Choose,
}
