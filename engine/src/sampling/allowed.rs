//! Which tokens may be chosen next: bits that the host writes for each step, and the kernel that heeds them.

use warpwright_driver::{Buffer, Context, Error, Host, Kernel, Pinned, Queue, Stream};
use warpwright_kernels::sample::{AllowTokens, AllowTokensArgs, RowsArgs, SampleParams};

use super::device::{Rows, Sampler};
use crate::signed;

/// The kernel, and the bits of one sequence.
///
/// The host writes pinned memory while the forward pass runs. The copy to the device is the first work of the choice, so
/// it comes after the choice before, which the host has waited for.
pub(crate) struct Allowed {
    kernel: Kernel<AllowTokens>,
    /// `[words]`
    bits: Buffer<u32>,
    host: Pinned<u32>,
    /// `[16]`: parameters of sampling on their way to the device
    params: Pinned<u32>,
    /// Parameters as they were asked for, and as the device has them.
    asked: SampleParams,
    there: SampleParams,
}

impl Allowed {
    /// Nothing is allowed yet.
    pub(crate) fn new(context: &Context, vocab: u32, overlap: bool) -> Result<Allowed, Error> {
        let words = vocab.div_ceil(32) as usize;
        Ok(Allowed {
            kernel: signed::load(context, AllowTokens { overlap })?,
            bits: Buffer::zeroed(context, words)?.labelled("allowed"),
            host: Pinned::zeroed(context, words)?.labelled("allowed.host"),
            params: Pinned::zeroed(context, SampleParams::WORDS)?.labelled("allowed.params"),
            asked: SampleParams::GREEDY,
            there: SampleParams::GREEDY,
        })
    }

    /// Best tokens that the latest choice has recorded.
    pub(crate) fn best(&self) -> u32 {
        self.there.best
    }

    /// The device has these parameters now.
    pub(crate) fn set_params(&mut self, params: SampleParams) {
        (self.asked, self.there) = (params, params);
    }

    /// Allows these tokens in the next choice; none is in flight.
    ///
    /// Few tokens make top-k, and the record of the best, ask for more than there are. What that means does not change
    /// with as many as there are, and the kernels then look at these alone.
    pub(crate) fn write(&mut self, stream: &Stream, sampler: &Sampler, words: &[u32]) -> Result<(), Error> {
        self.host.write_slice(0, words);
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        let params = SampleParams {
            top_k: self.asked.top_k.min(count),
            best: self.asked.best.min(count),
            ..self.asked
        };
        if params == self.there {
            return Ok(());
        }
        self.params.write_slice(0, &params.words());
        self.there = params;
        stream.copy(&self.params, &sampler.params.view_range(0..SampleParams::WORDS))
    }

    /// Takes the bits to the device, and forbids the other tokens.
    pub(crate) fn run<'a>(
        &'a self,
        queue: &mut impl Queue,
        rows: Rows<'a>,
        of: RowsArgs<Host<'a>>,
    ) -> Result<(), Error> {
        queue.copy(&self.host, &self.bits)?;
        let Rows { logits, state, .. } = rows;
        queue.launch(&self.kernel, AllowTokensArgs { logits, state, allowed: &self.bits, of })
    }
}
