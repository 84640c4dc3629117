//! The kernels and buffers of sampling.

use warpwright_driver::{Buffer, Context, Error, Host, Kernel, Pinned, Queue, Stream, View};
use warpwright_kernels::sample::{
    BINS, MAX_BIASES, RECORD_HEAD, RowsArgs, SampleAdjust, SampleAdjustArgs, SampleGather,
    SampleGatherArgs, SampleParams, SampleToken, SampleTokenArgs, blocks, mask_words,
};
use warpwright_kernels::state::{self, StepState};

use super::options::Sampling;
use super::probabilities::LogProbabilities;
use crate::chunked::list::PassNode;
use crate::signed;

/// What sampling is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Logits of a row.
    pub(crate) vocab: u32,
    /// Rows of logits.
    pub(crate) capacity: u32,
    pub(crate) sequences: u32,
    /// Positions of a sequence.
    pub(crate) ctx: u32,
    /// Best log-probabilities of a token.
    pub(crate) logprobs: u32,
    /// Whether the kernels wait for those before them, so that they may start early.
    pub(crate) overlap: bool,
}

/// Kernels and buffers.
pub(crate) struct Sampler {
    room: Room,
    adjust: Kernel<SampleAdjust>,
    gather: Kernel<SampleGather>,
    token: Kernel<SampleToken>,
    /// `[sequences, 16]`, `[sequences, 256, 2]`: see `SampleAdjustArgs`
    pub(crate) params: Buffer<u32>,
    bias: Buffer<u32>,
    scratch: Scratch,
    /// `[sequences, ctx, record]`, for the host to read
    records: Pinned<u32>,
    /// The state of a step that chooses nothing: it is done.
    pub(crate) idle: Buffer<u32>,
}

/// What the kernels of sampling tell each other.
#[derive(Clone)]
pub(crate) struct Scratch {
    /// Rows of logits.
    capacity: u32,
    /// `[capacity, vocab]`
    z: View<f32>,
    /// `[capacity, blocks]`; this and what follows may be longer
    largest: View<f32>,
    /// `[capacity, 1024]`
    histogram: View<u32>,
    /// `[capacity, words]`
    mask: View<u32>,
    /// `[capacity]`
    listed: View<u32>,
    /// `[capacity, 2, blocks]`
    mass: View<u64>,
}

impl Scratch {
    pub(crate) fn new(context: &Context, vocab: u32, capacity: u32) -> Result<Scratch, Error> {
        let (rows, blocks) = (capacity as usize, blocks(vocab) as usize);
        let words = |name: &str, len: usize| {
            Ok::<_, Error>(Buffer::zeroed(context, rows * len)?.labelled(name).view())
        };
        let floats = |name: &str, len: usize| {
            Ok::<_, Error>(Buffer::zeroed(context, rows * len)?.labelled(name).view())
        };
        Ok(Scratch {
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

    /// The same for fewer rows.
    pub(crate) fn of_rows(&self, capacity: u32) -> Scratch {
        let len = self.z.len() / self.capacity as usize * capacity as usize;
        Scratch {
            capacity,
            z: self.z.view_range(0..len),
            ..self.clone()
        }
    }
}

/// The rows of a step, and where their tokens go.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// `[capacity, vocab]`
    pub(crate) logits: &'a View<f32>,
    /// `[count]`: rows of the state
    pub(crate) rows: &'a View<u32>,
    pub(crate) count: u32,
    /// `[states, 8]`
    pub(crate) state: &'a View<u32>,
    /// `[sequences, ctx]`: the token at each position
    pub(crate) tokens: &'a View<u32>,
    /// `[stops]`
    pub(crate) stop: &'a View<u32>,
    /// `[sequences, ctx]`: the token after each position
    pub(crate) out: &'a Pinned<u32>,
}

impl Sampler {
    /// All sequences are greedy.
    pub(crate) fn new(context: &Context, room: Room) -> Result<Sampler, Error> {
        let Room {
            vocab,
            capacity,
            sequences,
            ctx,
            overlap,
            ..
        } = room;
        let words =
            |name: &str, len: usize| Ok::<_, Error>(Buffer::zeroed(context, len)?.labelled(name));
        let greedy = Sampling::greedy().params().words();
        Ok(Sampler {
            room,
            adjust: signed::load(context, SampleAdjust { overlap })?,
            gather: signed::load(context, SampleGather { overlap })?,
            token: signed::load(context, SampleToken { overlap })?,
            params: Buffer::from_slice(context, &greedy.repeat(sequences as usize))?
                .labelled("sample.params"),
            bias: words("sample.bias", (sequences * 2 * MAX_BIASES) as usize)?,
            scratch: Scratch::new(context, vocab, capacity)?,
            records: Pinned::zeroed(
                context,
                (sequences as usize * ctx as usize * room.record() as usize).max(1),
            )?
            .labelled("sample.records"),
            idle: Buffer::from_slice(context, &StepState::IDLE.words())?.labelled("sample.idle"),
        })
    }

    /// Lets a sequence be sampled in this way from the next launch on. The options have been checked. Gives what the
    /// device has.
    pub(crate) fn set(
        &self,
        stream: &Stream,
        sequence: u32,
        sampling: &Sampling,
    ) -> Result<SampleParams, Error> {
        let params = SampleParams {
            best: sampling.logprobs.min(self.room.logprobs),
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
        let first = (sequence * 2 * MAX_BIASES) as usize;
        if !biases.is_empty() {
            stream.write(&self.bias.view_range(first..first + biases.len()), &biases)?;
        }
        Ok(params)
    }

    /// The log-probabilities of the token after a position, if so many were asked for then, and its step has completed.
    pub(crate) fn log_probabilities(
        &self,
        sequence: u32,
        position: u32,
        count: u32,
    ) -> Option<LogProbabilities> {
        let Room {
            vocab,
            ctx,
            logprobs,
            ..
        } = self.room;
        let count = count.min(logprobs).min(vocab);
        if count == 0 {
            return None;
        }
        let first =
            (sequence as usize * ctx as usize + position as usize) * self.room.record() as usize;
        let words =
            (0..(RECORD_HEAD + 2 * count) as usize).map(|word| self.records.read(first + word));
        Some(LogProbabilities::of_record(&words.collect::<Vec<_>>()))
    }

    /// Chooses the tokens of these rows.
    pub(crate) fn run(&self, queue: &mut impl Queue, rows: Rows<'_>) -> Result<(), Error> {
        self.run_in(queue, &self.adjust, &self.scratch, rows)
    }

    /// The same with other memory, for as many rows as that has room for, and another first kernel.
    pub(crate) fn run_in(
        &self,
        queue: &mut impl Queue,
        adjust: &Kernel<SampleAdjust>,
        scratch: &Scratch,
        rows: Rows<'_>,
    ) -> Result<(), Error> {
        let Rows {
            logits,
            state,
            tokens,
            stop,
            out,
            ..
        } = rows;
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
            record: self.room.record(),
            of: self.rows_in(scratch, rows),
        };
        queue.launch(&self.token, args)
    }

    /// What the kernels have in common.
    pub(crate) fn rows<'a>(&'a self, rows: Rows<'a>) -> RowsArgs<Host<'a>> {
        self.rows_in(&self.scratch, rows)
    }

    /// The same with this memory.
    fn rows_in<'a>(&'a self, scratch: &Scratch, rows: Rows<'a>) -> RowsArgs<Host<'a>> {
        let Room {
            vocab,
            sequences,
            ctx,
            ..
        } = self.room;
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

    /// The kernels, in the order in which [`run`](Sampler::run) launches them.
    pub(crate) fn list(&self) -> [PassNode; 3] {
        [
            PassNode::plain("adjust", &self.adjust),
            PassNode::plain("gather tokens", &self.gather),
            PassNode::plain("sample", &self.token),
        ]
    }
}

impl Room {
    /// Words of a record.
    fn record(&self) -> u32 {
        if self.logprobs == 0 {
            0
        } else {
            RECORD_HEAD + 2 * self.logprobs
        }
    }

    /// Bytes of the buffers on the device.
    pub(crate) fn bytes(&self) -> u64 {
        let [vocab, mask, chunks, bins] =
            [self.vocab, mask_words(self.vocab), blocks(self.vocab), BINS].map(u64::from);
        let row = 4 * vocab + 4 * mask + 20 * chunks + 4 * bins + 4;
        let sequence = 4 * (SampleParams::WORDS as u64 + 2 * u64::from(MAX_BIASES));
        u64::from(self.capacity) * row + u64::from(self.sequences) * sequence
    }
}
