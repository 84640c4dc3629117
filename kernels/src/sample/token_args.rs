//! The arguments of [`SampleToken`](super::SampleToken).

use super::rows::RowsArgs;
use ptx_gen::*;

args! {
    /// Arguments of [`SampleToken`](super::SampleToken).
    pub struct SampleTokenArgs {
        /// `[capacity, vocab]`: the result of [`SampleAdjust`](super::SampleAdjust)
        z: In<f32>,
        /// `[count, blocks]`: the maximum of each chunk. The buffer may be longer.
        largest: In<f32>,
        /// `[count, words]`: the mask that [`SampleGather`](super::SampleGather) stores. The buffer
        /// may be longer.
        mask: In<u32>,
        /// `[count]`: the number of tokens of each mask. The buffer may be longer.
        listed: In<u32>,
        /// `[count, 2, blocks]`: the masses of the chunks. The buffer may be longer.
        mass: In<u64>,
        /// `[count, 1024]`: the histogram, which is zero afterwards. The buffer may be longer.
        histogram: InOut<u32>,
        /// `[states, 8]`, as in [`state`](crate::shared::state). If its `LIMIT` is 0, the limit is
        /// `max_tokens`.
        state: InOut<u32>,
        /// `[sequences, max_tokens]`: the token at each position. The chosen token is stored at the
        /// next position.
        tokens: InOut<u32>,
        /// `[stops]`: the tokens that end a sequence. The buffer may be longer.
        stop: In<u32>,
        /// `[sequences, max_tokens]`: the token after each position, for the host
        out: Out<u32>,
        /// `[sequences, max_tokens, record]`: the bits of the largest logit, the two words of the
        /// mass of all tokens, and the bits of the chosen token's logit. The best tokens follow
        /// with the bits of their logits, the best one first. The buffer may be longer.
        records: Out<u32>,
        /// The number of stop tokens.
        stops: u32,
        /// The number of words of a record, or 0 to record nothing.
        record: u32,
        /// The rows and sequences.
        of: RowsArgs,
    }
}
