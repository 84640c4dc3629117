//! The tokens that constrained decoding allows: a bit mask that the host writes for each step, and
//! the kernel that applies it.

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, Pinned};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::{Context, Error};
use warpwright_kernels::sample::{AllowTokens, AllowTokensArgs, RowsArgs, SampleParams};

use super::device::{DeviceSampler, SampledRows};
use crate::signed;

/// The masking kernel, and the mask of each sequence.
///
/// The host writes pinned memory while the forward pass runs. The copy to the device is the first
/// work of the launch that chooses a token. It cannot overtake the previous choice, because the
/// host has waited for that one.
pub(crate) struct AllowedTokens {
    kernel: Kernel<AllowTokens>,
    /// The number of words per mask.
    words: usize,
    /// The masks on the device, `[sequences, words]`.
    bits: Buffer<u32>,
    /// The masks as the host writes them, with the shape of `bits`.
    host: Pinned<u32>,
    /// The sampling parameters, `[sequences, 16]`, on their way to the device.
    params: Pinned<u32>,
    sequences: Vec<SequenceMask>,
}

/// The parameters and the mask of a sequence, as far as the host tracks them.
#[derive(Clone, Copy)]
struct SequenceMask {
    /// The requested parameters.
    asked: SampleParams,
    /// The parameters that the device has.
    there: SampleParams,
    /// Whether a grammar has written the mask.
    ruled: bool,
}

impl SequenceMask {
    const NEW: SequenceMask = SequenceMask {
        asked: SampleParams::GREEDY,
        there: SampleParams::GREEDY,
        ruled: false,
    };
}

impl AllowedTokens {
    /// Allocates masks that allow every token.
    pub(crate) fn new(
        context: &Context,
        vocab: u32,
        sequences: u32,
        overlap: bool,
    ) -> Result<AllowedTokens, Error> {
        let words = vocab.div_ceil(32) as usize;
        let count = sequences as usize;
        Ok(AllowedTokens {
            kernel: signed::load(context, AllowTokens { overlap })?,
            words,
            bits: Buffer::from_slice(context, &vec![u32::MAX; count * words])?.labelled("allowed"),
            host: Pinned::zeroed(context, count * words)?.labelled("allowed.host"),
            params: Pinned::zeroed(context, count * SampleParams::WORDS)?
                .labelled("allowed.params"),
            sequences: vec![SequenceMask::NEW; count],
        })
    }

    /// Returns the number of best tokens that the latest choice of a sequence has recorded.
    pub(crate) fn best(&self, sequence: u32) -> u32 {
        self.sequences[sequence as usize].there.best
    }

    /// Records the parameters that the device now has for a sequence.
    pub(crate) fn set_params(&mut self, sequence: u32, params: SampleParams) {
        let known = &mut self.sequences[sequence as usize];
        known.asked = params;
        known.there = params;
    }

    /// Sets the mask for the next choice of a sequence. No choice may be in flight.
    ///
    /// The number of allowed tokens may be smaller than `top_k` and the number of recorded tokens.
    /// Both are then reduced to it. This does not change the result, and the kernels need not look
    /// at forbidden tokens.
    pub(crate) fn write(
        &mut self,
        stream: &Stream,
        sampler: &DeviceSampler,
        sequence: u32,
        words: &[u32],
    ) -> Result<(), Error> {
        self.host.write_slice(sequence as usize * self.words, words);
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        let known = &mut self.sequences[sequence as usize];
        known.ruled = true;
        let asked = known.asked;
        let top_k = asked.top_k.min(count);
        let best = asked.best.min(count);
        self.write_params(
            stream,
            sampler,
            sequence,
            SampleParams {
                top_k,
                best,
                ..asked
            },
        )
    }

    /// Allows every token of a sequence again. No choice may be in flight.
    pub(crate) fn free(
        &mut self,
        stream: &Stream,
        sampler: &DeviceSampler,
        sequence: u32,
    ) -> Result<(), Error> {
        let known = &mut self.sequences[sequence as usize];
        let asked = known.asked;
        if known.ruled {
            known.ruled = false;
            self.host
                .write_slice(sequence as usize * self.words, &vec![u32::MAX; self.words]);
            self.copy(&mut &*stream, sequence)?;
        }
        self.write_params(stream, sampler, sequence, asked)
    }

    /// Copies the parameters of a sequence to the device, unless it has them already.
    fn write_params(
        &mut self,
        stream: &Stream,
        sampler: &DeviceSampler,
        sequence: u32,
        params: SampleParams,
    ) -> Result<(), Error> {
        let there = &mut self.sequences[sequence as usize].there;
        if params == *there {
            return Ok(());
        }

        *there = params;
        let first = sequence as usize * SampleParams::WORDS;
        self.params.write_slice(first, &params.words());
        let words = first..first + SampleParams::WORDS;
        stream.copy(
            &self.params.view_range(words.clone()),
            &sampler.params.view_range(words),
        )
    }

    /// Queues the copy of a sequence's mask to the device.
    pub(crate) fn copy(&self, queue: &mut impl Queue, sequence: u32) -> Result<(), Error> {
        let first = sequence as usize * self.words;
        let words = first..first + self.words;
        queue.copy(
            &self.host.view_range(words.clone()),
            &self.bits.view_range(words),
        )
    }

    /// Queues the kernel that lowers the logits of forbidden tokens to -2^100.
    pub(crate) fn forbid<'a>(
        &'a self,
        queue: &mut impl Queue,
        rows: SampledRows<'a>,
        of: RowsArgs<Host<'a>>,
    ) -> Result<(), Error> {
        let SampledRows { logits, state, .. } = rows;
        queue.launch(
            &self.kernel,
            AllowTokensArgs {
                logits,
                state,
                allowed: &self.bits,
                of,
            },
        )
    }

    /// Returns the bytes of the device buffers.
    pub(crate) fn bytes(vocab: u32, sequences: u32) -> u64 {
        4 * u64::from(vocab.div_ceil(32)) * u64::from(sequences)
    }
}
