//! What a decoder is made for.

use crate::chunked::{CHUNK, LEAST};
use crate::pipeline::tuning::Tuning;
use crate::sampling::options::TokenChoice;

/// How a step reaches the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Launch {
    /// As one hand-built graph. Kernels of the pipeline overlap.
    #[default]
    Graph,
    /// As one hand-built graph without overlap.
    Plain,
    /// As one graph that the driver captured from a stream.
    Capture,
    /// Kernel by kernel.
    Eager,
}

/// Which kernels to decode with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// The fastest kernels that support the model on the device.
    #[default]
    Fast,
    /// The kernels that support every model on every device.
    Simple,
}

/// What a decoder is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The context length, at most the model's own.
    pub ctx: u32,
    /// How a step reaches the device.
    pub launch: Launch,
    /// Tokens per launch, for graphs and if that many are wanted.
    pub tokens_per_launch: u32,
    /// Tokens of a prompt that the pipeline prefills per step: 1, 2, 4 or 8. Other values are rounded down.
    pub prefill_batch: u32,
    /// Tokens of a prompt that are prefilled as one chunk on tensor cores, at most, where there are kernels for the model
    /// and the device: 16 to 2,048. More count as 2,048, fewer as no chunks. Short chunks are slower, and the host hears
    /// from them more often.
    pub chunk: u32,
    /// Which kernels to decode with; fixed once the weights are loaded.
    pub prefer: Prefer,
    /// How the pipeline's kernels divide their blocks.
    pub tuning: Tuning,
    /// How tokens are chosen.
    pub choice: TokenChoice,
    /// Drafts that [`Decoder::decode_speculative`](crate::Decoder::decode_speculative) verifies at once, at most: up to 7,
    /// more count as 7. 0 for a decoder that verifies none. The kernels that verify are compiled besides all others.
    pub drafts: u32,
}

/// Tokens of the steps that verify up to so many drafts: the drafts, and the token before them.
pub(crate) fn verified_at_once(drafts: u32) -> impl Iterator<Item = u32> {
    let most = if drafts == 0 {
        0
    } else {
        (drafts + 1).next_power_of_two()
    };
    [2, 4, 8].into_iter().filter(move |tokens| *tokens <= most)
}

impl Options {
    /// The best values for the other options.
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

    /// [`drafts`](field@Options::drafts), as many as there can be.
    pub(crate) fn drafts(&self) -> u32 {
        self.drafts.min(7)
    }

    /// [`prefill_batch`](Options::prefill_batch), rounded down.
    pub(crate) fn batch(&self) -> u32 {
        1 << self.prefill_batch.clamp(1, 8).ilog2()
    }

    /// [`chunk`](Options::chunk), if that is one.
    pub(crate) fn chunk(&self) -> Option<u32> {
        (self.chunk >= LEAST).then(|| self.chunk.min(CHUNK))
    }
}
