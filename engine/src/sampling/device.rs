//! The kernels and buffers of sampling.

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, Pinned, View};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::{Context, Error};
use warpwright_kernels::sample::{
    BINS, MAX_BIASES, RECORD_HEAD, RowsArgs, SampleAdjust, SampleAdjustArgs, SampleGather,
    SampleGatherArgs, SampleParams, SampleToken, SampleTokenArgs, blocks, mask_words,
};
use warpwright_kernels::shared::state::{self, StepState};

use super::options::Sampling;
use super::probabilities::LogProbabilities;
use crate::chunked::list::PassNode;
use crate::signed;

/// The capacity of a sampler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SamplerSize {
    /// The number of logits per row.
    pub(crate) vocab: u32,
    /// The maximum number of rows of logits per launch.
    pub(crate) capacity: u32,
    /// The number of sequences, each with its own parameters.
    pub(crate) sequences: u32,
    /// The number of positions per sequence.
    pub(crate) ctx: u32,
    /// The maximum number of best log-probabilities per token.
    pub(crate) logprobs: u32,
    /// Whether the kernels may start before their predecessors end, and wait for them.
    pub(crate) overlap: bool,
}

/// The sampling kernels, with the parameters and the records of all sequences.
pub(crate) struct DeviceSampler {
    size: SamplerSize,
    adjust: Kernel<SampleAdjust>,
    gather: Kernel<SampleGather>,
    token: Kernel<SampleToken>,
    /// The parameters, `[sequences, 16]`: see `SampleAdjustArgs`.
    pub(crate) params: Buffer<u32>,
    /// The logit biases, `[sequences, 256, 2]`: see `SampleAdjustArgs`.
    bias: Buffer<u32>,
    scratch: SamplerScratch,
    /// The log-probabilities of each position, `[sequences, ctx, record]`, in memory that the host
    /// reads.
    records: Pinned<u32>,
    /// The state of a step that chooses nothing, because it is done.
    pub(crate) idle: Buffer<u32>,
}

/// The intermediate results that the sampling kernels pass to each other. All buffers but `z` may
/// be longer than their shapes.
#[derive(Clone)]
pub(crate) struct SamplerScratch {
    /// The number of rows of logits.
    capacity: u32,
    /// The adjusted logits, `[capacity, vocab]`.
    z: View<f32>,
    /// The largest logit of each block, `[capacity, blocks]`.
    largest: View<f32>,
    /// The histogram of logits, `[capacity, 1024]`.
    histogram: View<u32>,
    /// The mask of the kept tokens, `[capacity, words]`.
    mask: View<u32>,
    /// The number of kept tokens, `[capacity]`.
    listed: View<u32>,
    /// The probability mass of each block, `[capacity, 2, blocks]`.
    mass: View<u64>,
}

impl SamplerScratch {
    pub(crate) fn new(
        context: &Context,
        vocab: u32,
        capacity: u32,
    ) -> Result<SamplerScratch, Error> {
        let rows = capacity as usize;
        let blocks = blocks(vocab) as usize;
        let words = |name: &str, len: usize| {
            Ok::<_, Error>(Buffer::zeroed(context, rows * len)?.labelled(name).view())
        };
        let floats = |name: &str, len: usize| {
            Ok::<_, Error>(Buffer::zeroed(context, rows * len)?.labelled(name).view())
        };
        Ok(SamplerScratch {
            capacity,
            z: floats("sample.z", vocab as usize)?,
            largest: floats("sample.largest", blocks)?,
            histogram: words("sample.histogram", BINS as usize)?,
            mask: words("sample.mask", mask_words(vocab) as usize)?,
            listed: words("sample.listed", 1)?,
            mass: Buffer::zeroed(context, 2 * rows * blocks)?
                .labelled("sample.mass")
                .view(),
        })
    }

    /// Returns the scratch memory for fewer rows.
    pub(crate) fn of_rows(&self, capacity: u32) -> SamplerScratch {
        let len = self.z.len() / self.capacity as usize * capacity as usize;
        SamplerScratch {
            capacity,
            z: self.z.view_range(0..len),
            ..self.clone()
        }
    }
}

/// The rows of a step, and the destination of their tokens.
#[derive(Clone, Copy)]
pub(crate) struct SampledRows<'a> {
    /// The logits, `[capacity, vocab]`.
    pub(crate) logits: &'a View<f32>,
    /// The row of the state for each row of logits, `[count]`.
    pub(crate) rows: &'a View<u32>,
    /// The number of rows of logits.
    pub(crate) count: u32,
    /// The states, `[states, 8]`.
    pub(crate) state: &'a View<u32>,
    /// The token at each position, `[sequences, ctx]`.
    pub(crate) tokens: &'a View<u32>,
    /// The tokens that end a text, `[stops]`.
    pub(crate) stop: &'a View<u32>,
    /// The token after each position, `[sequences, ctx]`.
    pub(crate) out: &'a Pinned<u32>,
}

impl DeviceSampler {
    /// Loads the kernels and allocates the buffers. All sequences are greedy at first.
    pub(crate) fn new(context: &Context, size: SamplerSize) -> Result<DeviceSampler, Error> {
        let SamplerSize {
            vocab,
            capacity,
            sequences,
            ctx,
            overlap,
            ..
        } = size;
        let words =
            |name: &str, len: usize| Ok::<_, Error>(Buffer::zeroed(context, len)?.labelled(name));
        let greedy = Sampling::greedy().params().words();
        Ok(DeviceSampler {
            size,
            adjust: signed::load(context, SampleAdjust { overlap })?,
            gather: signed::load(context, SampleGather { overlap })?,
            token: signed::load(context, SampleToken { overlap })?,
            params: Buffer::from_slice(context, &greedy.repeat(sequences as usize))?
                .labelled("sample.params"),
            bias: words("sample.bias", (sequences * 2 * MAX_BIASES) as usize)?,
            scratch: SamplerScratch::new(context, vocab, capacity)?,
            records: Pinned::zeroed(
                context,
                // Without log-probabilities a record has no words, but a buffer cannot be empty.
                (sequences as usize * ctx as usize * size.record() as usize).max(1),
            )?
            .labelled("sample.records"),
            idle: Buffer::from_slice(context, &StepState::IDLE.words())?.labelled("sample.idle"),
        })
    }

    /// Sets the parameters of a sequence for all later launches, and returns the parameters that
    /// the device now has. The options must have been checked.
    pub(crate) fn set(
        &self,
        stream: &Stream,
        sequence: u32,
        sampling: &Sampling,
    ) -> Result<SampleParams, Error> {
        let params = SampleParams {
            best: sampling.logprobs.min(self.size.logprobs),
            ..sampling.params()
        };
        let words = params.words();
        let first = sequence as usize * words.len();
        stream.write(&self.params.view_range(first..first + words.len()), &words)?;
        let biases: Vec<u32> = sampling
            .logit_bias
            .iter()
            .flat_map(|(id, bias)| [*id, bias.to_bits()])
            .collect();

        // The parameters have the number of biases, so old biases behind the new ones are ignored.
        let first = (sequence * 2 * MAX_BIASES) as usize;
        if !biases.is_empty() {
            stream.write(&self.bias.view_range(first..first + biases.len()), &biases)?;
        }

        Ok(params)
    }

    /// Returns the log-probabilities of the token after a position, whose step must have completed.
    /// Returns `None` if none were recorded.
    pub(crate) fn log_probabilities(
        &self,
        sequence: u32,
        position: u32,
        count: u32,
    ) -> Option<LogProbabilities> {
        let SamplerSize {
            vocab,
            ctx,
            logprobs,
            ..
        } = self.size;
        let count = count.min(logprobs).min(vocab);
        if count == 0 {
            return None;
        }

        let first =
            (sequence as usize * ctx as usize + position as usize) * self.size.record() as usize;
        let words =
            (0..(RECORD_HEAD + 2 * count) as usize).map(|word| self.records.read(first + word));
        Some(LogProbabilities::from_record(&words.collect::<Vec<_>>()))
    }

    /// Queues the choice of a token for each row.
    pub(crate) fn run(&self, queue: &mut impl Queue, rows: SampledRows<'_>) -> Result<(), Error> {
        self.run_in(queue, &self.adjust, &self.scratch, rows)
    }

    /// Queues the choice of a token for each row, with other scratch memory and another first
    /// kernel. The scratch memory limits the number of rows.
    pub(crate) fn run_in(
        &self,
        queue: &mut impl Queue,
        adjust: &Kernel<SampleAdjust>,
        scratch: &SamplerScratch,
        rows: SampledRows<'_>,
    ) -> Result<(), Error> {
        let SampledRows {
            logits,
            state,
            tokens,
            stop,
            out,
            ..
        } = rows;

        // Three kernels: apply biases and penalties, gather the tokens that top-k, typical-p, top-p
        // and min-p keep, and draw one of them.
        let args = SampleAdjustArgs::<Host> {
            logits,
            state,
            tokens,
            bias: &self.bias,
            z: &scratch.z,
            largest: &scratch.largest,
            histogram: &scratch.histogram,
            of: self.rows_in(scratch, rows),
        };
        queue.launch(adjust, args)?;
        let args = SampleGatherArgs::<Host> {
            z: &scratch.z,
            state,
            largest: &scratch.largest,
            histogram: &scratch.histogram,
            mask: &scratch.mask,
            listed: &scratch.listed,
            mass: &scratch.mass,
            of: self.rows_in(scratch, rows),
        };
        queue.launch(&self.gather, args)?;
        let args = SampleTokenArgs::<Host> {
            z: &scratch.z,
            largest: &scratch.largest,
            mask: &scratch.mask,
            listed: &scratch.listed,
            mass: &scratch.mass,
            histogram: &scratch.histogram,
            state,
            tokens,
            stop,
            out,
            records: &self.records,
            stops: stop.len() as u32,
            record: self.size.record(),
            of: self.rows_in(scratch, rows),
        };
        queue.launch(&self.token, args)
    }

    /// Returns the arguments that the sampling kernels share.
    pub(crate) fn rows<'a>(&'a self, rows: SampledRows<'a>) -> RowsArgs<Host<'a>> {
        self.rows_in(&self.scratch, rows)
    }

    /// Returns the arguments that the sampling kernels share, for this scratch memory.
    fn rows_in<'a>(
        &'a self,
        scratch: &SamplerScratch,
        rows: SampledRows<'a>,
    ) -> RowsArgs<Host<'a>> {
        let SamplerSize {
            vocab,
            sequences,
            ctx,
            ..
        } = self.size;
        RowsArgs {
            rows: rows.rows,
            params: &self.params,
            vocab,
            count: rows.count,
            capacity: scratch.capacity,
            states: (rows.state.len() / state::LEN) as u32,
            sequences,
            max_tokens: ctx,
        }
    }

    /// Returns the kernels in the order in which [`run`](DeviceSampler::run) launches them.
    pub(crate) fn list(&self) -> [PassNode; 3] {
        [
            PassNode::plain("adjust", &self.adjust),
            PassNode::plain("gather tokens", &self.gather),
            PassNode::plain("sample", &self.token),
        ]
    }
}

impl SamplerSize {
    /// Returns the number of words per record.
    fn record(&self) -> u32 {
        if self.logprobs == 0 {
            0
        } else {
            RECORD_HEAD + 2 * self.logprobs
        }
    }

    /// Returns the bytes of the device buffers.
    pub(crate) fn bytes(&self) -> u64 {
        let [vocab, mask, chunks, bins] =
            [self.vocab, mask_words(self.vocab), blocks(self.vocab), BINS].map(u64::from);
        let row = 4 * vocab + 4 * mask + 20 * chunks + 4 * bins + 4;
        let sequence = 4 * (SampleParams::WORDS as u64 + 2 * u64::from(MAX_BIASES));
        u64::from(self.capacity) * row + u64::from(self.sequences) * sequence
    }
}
