//! What a forward pass makes of each token of a text, launch by launch: rows of logits, or of the residual stream. They
//! stay on the device until the next launch, and whoever asked for them reads them or launches something over them.
//!
//! Where there are kernels for chunks, all tokens go in by chunks, and the LM head takes rows of the latest chunk, a batch
//! at a time. Elsewhere they go in by steps, with the LM head for the rows that are wanted.

use std::collections::VecDeque;
use std::ops::Range;

use warpwright_driver::View;

use crate::Error;
use crate::chunked::step::Wanted;
use crate::decode::decoder::Decoder;
use crate::decode::finite::check_logits;
use crate::step::StepKind;

/// What rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// The logits after a token: `vocab` of them.
    Logits,
    /// The residual stream after the last layer, before the norm: `hidden` numbers.
    Stream,
}

/// Rows of consecutive tokens, there until the next launch.
pub(crate) struct DeviceRows {
    /// The position of the first token.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// `[count, vocab]` or `[count, hidden]`
    pub(crate) values: View<f32>,
}

/// Rows of the residual stream that are given at once, at most.
pub(crate) const STREAM_ROWS: u32 = 64;

/// The rows of a prompt that a decoder was given, and has not taken in yet.
pub(crate) struct Rows {
    kind: RowKind,
    /// The tokens whose rows are wanted and were not given yet; the last one is the prompt's.
    wanted: Range<u32>,
    /// The first token that was not launched yet.
    position: u32,
    /// The tokens of the latest chunk.
    chunk: Range<u32>,
}

impl Rows {
    /// Those of the last tokens of a prompt, from `wanted.start` on.
    pub(crate) fn new(kind: RowKind, wanted: Range<u32>) -> Rows {
        Rows {
            kind,
            wanted,
            position: 0,
            chunk: 0..0,
        }
    }

    /// Launches what makes the next rows; none if all were given.
    pub(crate) fn next(&mut self, decoder: &mut Decoder) -> Result<Option<DeviceRows>, Error> {
        while !self.wanted.is_empty() {
            let rows = if self.wanted.start < self.chunk.end {
                Some(self.of_chunk(decoder)?)
            } else if self.launch_chunk(decoder)? {
                None
            } else {
                self.step(decoder)?
            };
            if let Some(rows) = rows {
                self.wanted.start = rows.first + rows.count;
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }

    /// Launches a chunk of the tokens that are left. Gives whether there are kernels for it, and for its rows.
    fn launch_chunk(&mut self, decoder: &mut Decoder) -> Result<bool, Error> {
        if self.kind == RowKind::Logits && decoder.prefill_batch() == 1 {
            return Ok(false);
        }
        let tokens = decoder.machine.chunk(
            &mut &decoder.stream,
            self.wanted.end - self.position,
            Wanted::All,
        )?;
        self.chunk = self.position..self.position + tokens;
        self.position = self.chunk.end;
        Ok(tokens > 0)
    }

    /// The next rows of the latest chunk.
    fn of_chunk(&self, decoder: &Decoder) -> Result<DeviceRows, Error> {
        let (first, machine) = (self.wanted.start, &decoder.machine);
        let (left, place) = (self.chunk.end - first, first - self.chunk.start);
        let (count, values) = match self.kind {
            RowKind::Stream => {
                let count = left.min(STREAM_ROWS);
                (count, machine.chunk_stream(place, count))
            }
            RowKind::Logits => {
                let count = left.min(decoder.prefill_batch());
                let rows = machine.chunk_logits(&mut &decoder.stream, place)?;
                (
                    count,
                    rows.map(|rows| part(&rows, machine.config.vocab, 0..count)),
                )
            }
        };
        Ok(DeviceRows {
            first,
            count,
            values: values.expect("there are chunks, and a head for their rows"),
        })
    }

    /// Launches a step of one token or of a batch; gives its rows, if some are wanted.
    fn step(&mut self, decoder: &mut Decoder) -> Result<Option<DeviceRows>, Error> {
        let at = self.position;
        let count = (self.wanted.end - at).min(decoder.prefill_batch());
        self.position += count;
        let wanted = self.position > self.wanted.start;
        decoder.launch(match (count, wanted && self.kind == RowKind::Logits) {
            (1, true) => StepKind::Decode,
            (1, false) => StepKind::Prefill,
            (_, true) => StepKind::LogitsBatch,
            (_, false) => StepKind::PrefillBatch,
        })?;
        Ok(wanted.then(|| {
            let first = self.wanted.start.max(at);
            let values = self.of_step(decoder, first - at..count);
            DeviceRows {
                first,
                count: count - (first - at),
                values,
            }
        }))
    }

    /// Some rows of a step of `rows.end` tokens.
    fn of_step(&self, Decoder { machine, .. }: &Decoder, rows: Range<u32>) -> View<f32> {
        let (b, c, batched) = (&machine.buffers, &machine.config, machine.batched());
        let batched = batched.filter(|_| rows.end > 1);
        match self.kind {
            RowKind::Logits => part(
                &batched.map_or_else(|| b.logits.view(), |step| step.logits()),
                c.vocab,
                rows,
            ),
            RowKind::Stream => part(
                &batched.map_or_else(|| b.x.view(), |step| step.residual_stream()),
                c.hidden,
                rows,
            ),
        }
    }
}

/// Some rows of this length.
fn part(all: &View<f32>, len: u32, rows: Range<u32>) -> View<f32> {
    let len = len as usize;
    all.view_range(rows.start as usize * len..rows.end as usize * len)
}

/// Logits, one row per token.
pub struct LogitRows<'a> {
    decoder: &'a mut Decoder,
    rows: Rows,
    /// The token whose row is next.
    position: u32,
    /// Rows that were read and not yielded yet.
    read: VecDeque<Vec<f32>>,
}

impl Iterator for LogitRows<'_> {
    type Item = Result<Vec<f32>, Error>;

    fn next(&mut self) -> Option<Result<Vec<f32>, Error>> {
        let row = self.row().transpose()?;
        if row.is_err() {
            // Nothing comes after an error.
            self.rows.wanted = 0..0;
            self.read.clear();
        }
        Some(row)
    }
}

impl LogitRows<'_> {
    fn row(&mut self) -> Result<Option<Vec<f32>>, Error> {
        if self.read.is_empty()
            && let Some(rows) = self.rows.next(self.decoder)?
        {
            let vocab = self.decoder.machine.config.vocab as usize;
            self.read = self
                .decoder
                .stream
                .read(&rows.values)?
                .chunks(vocab)
                .map(<[f32]>::to_vec)
                .collect();
        }
        let Some(row) = self.read.pop_front() else {
            return Ok(None);
        };
        check_logits(self.position, &row)?;
        self.position += 1;
        Ok(Some(row))
    }
}

impl Decoder {
    /// Starts anew, processes `ids` and yields the logits after each: rows of `vocab`. Afterwards the decoder has no
    /// tokens.
    ///
    /// # Errors
    /// As [`generate`](Decoder::generate).
    pub fn logits(&mut self, ids: &[u32]) -> Result<LogitRows<'_>, Error> {
        self.reset();
        self.give(ids)?;
        let rows = Rows::new(RowKind::Logits, 0..ids.len() as u32);
        Ok(LogitRows {
            decoder: self,
            rows,
            position: 0,
            read: VecDeque::new(),
        })
    }
}
