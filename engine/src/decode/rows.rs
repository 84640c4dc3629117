//! Row by row results of a forward pass over a text: logits, or the residual stream.
//!
//! The rows are produced launch by launch and stay on the device until the next launch. Their
//! consumer reads them, or launches a kernel over them, before it asks for more.
//!
//! If there are kernels for chunks, the text is processed in chunks, and the LM head runs over one
//! batch of rows of the latest chunk at a time. Otherwise it is processed in steps, and only the
//! steps with wanted rows run the LM head.

use std::collections::VecDeque;
use std::ops::Range;

use warpwright_driver::memory::View;

use crate::Error;
use crate::chunked::step::WantedRows;
use crate::decode::decoder::Decoder;
use crate::decode::finite::check_logits;
use crate::step::StepKind;

/// The kind of values in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// The logits after a token: `vocab` values.
    Logits,
    /// The residual stream after the last layer, before the last norm: `hidden` values.
    Stream,
}

/// The rows of consecutive tokens, valid until the next launch.
pub(crate) struct DeviceRows {
    /// The position of the first token.
    pub(crate) first: u32,
    /// The number of rows.
    pub(crate) count: u32,
    /// The values, `[count, vocab]` or `[count, hidden]`.
    pub(crate) values: View<f32>,
}

/// The maximum number of residual-stream rows that are returned together.
pub(crate) const STREAM_ROWS: u32 = 64;

/// A reader of the rows of a prompt, which was written to the device and is launched as rows are
/// requested.
pub(crate) struct RowReader {
    kind: RowKind,
    /// The tokens whose rows are wanted and were not returned yet. The range ends with the prompt.
    wanted: Range<u32>,
    /// The first token that was not launched yet.
    position: u32,
    /// The tokens of the latest chunk.
    chunk: Range<u32>,
}

impl RowReader {
    /// Creates a reader of the rows `wanted`, which must end with the prompt.
    pub(crate) fn new(kind: RowKind, wanted: Range<u32>) -> RowReader {
        RowReader {
            kind,
            wanted,
            position: 0,
            chunk: 0..0,
        }
    }

    /// Launches the work that produces the next rows and returns them, or `None` if all wanted rows
    /// were returned.
    pub(crate) fn next(&mut self, decoder: &mut Decoder) -> Result<Option<DeviceRows>, Error> {
        while !self.wanted.is_empty() {
            let rows = if self.wanted.start < self.chunk.end {
                Some(self.chunk_rows(decoder)?)
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

    /// Launches a chunk of the remaining tokens. Returns false if there are no kernels for chunks
    /// or for the rows of chunks.
    fn launch_chunk(&mut self, decoder: &mut Decoder) -> Result<bool, Error> {
        // The logits of a chunk are computed by a batched step. A pipeline without one has none.
        if self.kind == RowKind::Logits && decoder.prefill_batch() == 1 {
            return Ok(false);
        }

        let tokens = decoder.machine.chunk(
            &mut &decoder.stream,
            self.wanted.end - self.position,
            WantedRows::All,
        )?;
        self.chunk = self.position..self.position + tokens;
        self.position = self.chunk.end;
        Ok(tokens > 0)
    }

    /// Returns the next rows of the latest chunk.
    fn chunk_rows(&self, decoder: &Decoder) -> Result<DeviceRows, Error> {
        let machine = &decoder.machine;
        let first = self.wanted.start;
        let left = self.chunk.end - first;
        let index = first - self.chunk.start;
        let (count, values) = match self.kind {
            RowKind::Stream => {
                let count = left.min(STREAM_ROWS);
                (count, machine.chunk_stream(index, count))
            }
            RowKind::Logits => {
                let count = left.min(decoder.prefill_batch());
                let rows = machine.chunk_logits(&mut &decoder.stream, index)?;
                let rows = rows.map(|rows| row_range(&rows, machine.config.vocab, 0..count));
                (count, rows)
            }
        };
        Ok(DeviceRows {
            first,
            count,
            values: values.expect("a chunk was launched, so its rows can be computed"),
        })
    }

    /// Launches a step of one token or of a batch. Returns its rows if some of them are wanted.
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
        if !wanted {
            return Ok(None);
        }

        // A batch may begin with tokens in front of the first wanted one.
        let first = self.wanted.start.max(at);
        let values = self.step_rows(decoder, first - at..count);
        Ok(Some(DeviceRows {
            first,
            count: count - (first - at),
            values,
        }))
    }

    /// Returns the rows `rows` of the latest step, which had `rows.end` tokens.
    fn step_rows(&self, Decoder { machine, .. }: &Decoder, rows: Range<u32>) -> View<f32> {
        let b = &machine.buffers;
        let c = &machine.config;
        let batched = machine.batched().filter(|_| rows.end > 1);
        match self.kind {
            RowKind::Logits => {
                let logits = batched.map_or_else(|| b.logits.view(), |step| step.logits());
                row_range(&logits, c.vocab, rows)
            }
            RowKind::Stream => {
                let stream = batched.map_or_else(|| b.x.view(), |step| step.residual_stream());
                row_range(&stream, c.hidden, rows)
            }
        }
    }
}

/// Returns the rows `rows` of a matrix whose rows have `len` values.
fn row_range(all: &View<f32>, len: u32, rows: Range<u32>) -> View<f32> {
    let len = len as usize;
    all.view_range(rows.start as usize * len..rows.end as usize * len)
}

/// An iterator over the logits of a text, one row per token. See [`Decoder::logits`].
pub struct LogitRows<'a> {
    decoder: &'a mut Decoder,
    rows: RowReader,
    /// The position of the token whose row is next.
    position: u32,
    /// The rows that were copied to the host and not returned yet.
    read: VecDeque<Vec<f32>>,
}

impl Iterator for LogitRows<'_> {
    type Item = Result<Vec<f32>, Error>;

    fn next(&mut self) -> Option<Result<Vec<f32>, Error>> {
        let row = self.row().transpose()?;
        if row.is_err() {
            // After an error the iterator ends.
            self.rows.wanted = 0..0;
            self.read.clear();
        }
        Some(row)
    }
}

impl LogitRows<'_> {
    /// Returns the next row, and copies further rows from the device if none is left.
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
    /// Processes `ids` as a new sequence and returns an iterator over the logits after each token,
    /// `vocab` values per row.
    ///
    /// Afterwards the decoder has no tokens.
    ///
    /// # Errors
    /// Returns [`Error::NoPrompt`], [`Error::PromptLength`] or [`Error::PromptToken`] if `ids` is
    /// empty, too long, or contains an id outside the vocabulary. The iterator returns driver
    /// errors, and [`Error::Logit`] if a logit is not finite.
    pub fn logits(&mut self, ids: &[u32]) -> Result<LogitRows<'_>, Error> {
        self.reset();
        self.write_prompt(ids)?;
        let rows = RowReader::new(RowKind::Logits, 0..ids.len() as u32);
        Ok(LogitRows {
            decoder: self,
            rows,
            position: 0,
            read: VecDeque::new(),
        })
    }
}
