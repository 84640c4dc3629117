//! The options of a decoder.

use crate::chunked::{CHUNK, LEAST};
use crate::pipeline::tuning::Tuning;
use crate::sampling::options::TokenChoice;

/// The way in which a step is launched on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Launch {
    /// One graph built node by node. The pipeline's kernels overlap.
    #[default]
    Graph,
    /// One graph built node by node, without overlap.
    Plain,
    /// One graph that the driver captured from a stream.
    Capture,
    /// One launch per kernel, without a graph.
    Eager,
}

/// The preferred set of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// The fastest kernels that support the model on the device.
    #[default]
    Fast,
    /// The simple kernels, which support every model on every device.
    Simple,
}

/// The options of a [`Decoder`](crate::Decoder).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The number of positions in the context. The model's own context length is the maximum.
    pub ctx: u32,
    /// The way in which steps are launched.
    pub launch: Launch,
    /// The number of decode steps per launch, if the launches are graphs and at least this many
    /// tokens are wanted.
    pub tokens_per_launch: u32,
    /// The number of prompt tokens that the pipeline prefills per step: 1, 2, 4 or 8. Other values
    /// are rounded down.
    pub prefill_batch: u32,
    /// The maximum number of prompt tokens per chunk, from 16 to 2,048. Chunks run on tensor cores,
    /// if there are kernels for the model and the device. A larger value counts as 2,048, and a
    /// smaller one disables chunks. Short chunks are slower, but they report progress more often.
    pub chunk: u32,
    /// The preferred kernels. The choice is fixed once the weights are loaded.
    pub prefer: Prefer,
    /// The plans of the pipeline's kernels.
    pub tuning: Tuning,
    /// The way in which tokens are chosen.
    pub choice: TokenChoice,
    /// The maximum number of drafts that
    /// [`Decoder::decode_speculative`](crate::Decoder::decode_speculative) verifies in one step, at
    /// most 7. With 0, the decoder cannot verify drafts. Verification needs kernels that are
    /// compiled in addition to all others.
    pub drafts: u32,
}

/// Returns the batch sizes of the steps that verify up to `drafts` drafts. A step processes the
/// last token and the drafts after it.
pub(crate) fn verified_at_once(drafts: u32) -> impl Iterator<Item = u32> {
    let most = if drafts == 0 {
        0
    } else {
        (drafts + 1).next_power_of_two()
    };
    [2, 4, 8].into_iter().filter(move |tokens| *tokens <= most)
}

impl Options {
    /// Returns options with this context and launch mode, and with the recommended values for all
    /// others.
    pub fn new(ctx: u32, launch: Launch) -> Options {
        Options {
            ctx,
            launch,
            tokens_per_launch: 8,
            prefill_batch: 8,
            chunk: CHUNK,
            prefer: Prefer::Fast,
            tuning: Tuning::default(),
            choice: TokenChoice::Greedy,
            drafts: 0,
        }
    }

    /// Returns [`drafts`](field@Options::drafts), limited to 7.
    pub(crate) fn drafts(&self) -> u32 {
        self.drafts.min(7)
    }

    /// Returns [`prefill_batch`](Options::prefill_batch), rounded down to a power of two from 1 to
    /// 8.
    pub(crate) fn batch(&self) -> u32 {
        1 << self.prefill_batch.clamp(1, 8).ilog2()
    }

    /// Returns the length of chunks, or `None` if [`chunk`](Options::chunk) is too small for any.
    pub(crate) fn chunk(&self) -> Option<u32> {
        if self.chunk < LEAST {
            return None;
        }
        Some(self.chunk.min(CHUNK))
    }
}
