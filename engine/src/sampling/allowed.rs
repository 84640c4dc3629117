//! Which tokens may be chosen next: bits that the host writes for each step, and the kernel that heeds them.

use warpwright_driver::{Buffer, Context, Error, Host, Kernel, Pinned, Queue, Stream};
use warpwright_kernels::sample::{AllowTokens, AllowTokensArgs, RowsArgs, SampleParams};

use super::device::{Rows, Sampler};
use crate::signed;

/// The kernel, and the bits of each sequence.
///
/// The host writes pinned memory while the forward pass runs. The copy to the device is the first work of the choice, so
/// it comes after the choice before, which the host has waited for.
pub(crate) struct Allowed {
    kernel: Kernel<AllowTokens>,
    /// Of a sequence's bits.
    words: usize,
    /// `[sequences, words]`
    bits: Buffer<u32>,
    host: Pinned<u32>,
    /// `[sequences, 16]`: parameters of sampling on their way to the device
    params: Pinned<u32>,
    sequences: Vec<Known>,
}

/// What is known of a sequence.
#[derive(Clone, Copy)]
struct Known {
    /// Parameters as they were asked for, and as the device has them.
    asked: SampleParams,
    there: SampleParams,
    /// Whether a grammar has ruled its bits.
    ruled: bool,
}

impl Known {
    const NEW: Known = Known {
        asked: SampleParams::GREEDY,
        there: SampleParams::GREEDY,
        ruled: false,
    };
}

impl Allowed {
    /// Everything is allowed yet.
    pub(crate) fn new(
        context: &Context,
        vocab: u32,
        sequences: u32,
        overlap: bool,
    ) -> Result<Allowed, Error> {
        let (words, count) = (vocab.div_ceil(32) as usize, sequences as usize);
        Ok(Allowed {
            kernel: signed::load(context, AllowTokens { overlap })?,
            words,
            bits: Buffer::from_slice(context, &vec![u32::MAX; count * words])?.labelled("allowed"),
            host: Pinned::zeroed(context, count * words)?.labelled("allowed.host"),
            params: Pinned::zeroed(context, count * SampleParams::WORDS)?
                .labelled("allowed.params"),
            sequences: vec![Known::NEW; count],
        })
    }

    /// Best tokens that the latest choice of a sequence has recorded.
    pub(crate) fn best(&self, sequence: u32) -> u32 {
        self.sequences[sequence as usize].there.best
    }

    /// The device has these parameters of a sequence now.
    pub(crate) fn set_params(&mut self, sequence: u32, params: SampleParams) {
        let known = &mut self.sequences[sequence as usize];
        (known.asked, known.there) = (params, params);
    }

    /// Allows these tokens in the next choice of a sequence; none is in flight.
    ///
    /// Few tokens make top-k, and the record of the best, ask for more than there are. What that means does not change
    /// with as many as there are, and the kernels then look at these alone.
    pub(crate) fn write(
        &mut self,
        stream: &Stream,
        sampler: &Sampler,
        sequence: u32,
        words: &[u32],
    ) -> Result<(), Error> {
        self.host.write_slice(sequence as usize * self.words, words);
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        let known = &mut self.sequences[sequence as usize];
        known.ruled = true;
        let asked = known.asked;
        let (top_k, best) = (asked.top_k.min(count), asked.best.min(count));
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

    /// Allows a sequence everything again; no choice is in flight.
    pub(crate) fn free(
        &mut self,
        stream: &Stream,
        sampler: &Sampler,
        sequence: u32,
    ) -> Result<(), Error> {
        let known = &mut self.sequences[sequence as usize];
        let asked = known.asked;
        if std::mem::take(&mut known.ruled) {
            self.host
                .write_slice(sequence as usize * self.words, &vec![u32::MAX; self.words]);
            self.copy(&mut &*stream, sequence)?;
        }
        self.write_params(stream, sampler, sequence, asked)
    }

    fn write_params(
        &mut self,
        stream: &Stream,
        sampler: &Sampler,
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

    /// Takes the bits of a sequence to the device.
    pub(crate) fn copy(&self, queue: &mut impl Queue, sequence: u32) -> Result<(), Error> {
        let first = sequence as usize * self.words;
        let words = first..first + self.words;
        queue.copy(
            &self.host.view_range(words.clone()),
            &self.bits.view_range(words),
        )
    }

    /// Forbids the tokens of these rows that the bits on the device do not allow.
    pub(crate) fn forbid<'a>(
        &'a self,
        queue: &mut impl Queue,
        rows: Rows<'a>,
        of: RowsArgs<Host<'a>>,
    ) -> Result<(), Error> {
        let Rows { logits, state, .. } = rows;
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

    /// Bytes of the buffers on the device.
    pub(crate) fn bytes(vocab: u32, sequences: u32) -> u64 {
        4 * u64::from(vocab.div_ceil(32)) * u64::from(sequences)
    }
}
