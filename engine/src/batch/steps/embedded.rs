//! Embeddings of texts: the mean of their hidden states.
//!
//! The texts are processed next to the running sequences, not as sequences. They have a page table
//! of their own, and pages that are released afterwards. A vector equals that of `warpwright embed`
//! up to rounding.

use std::cmp::Reverse;

use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, View};
use warpwright_kernels::RmsNorm;
use warpwright_kernels::prompt::Item;
use warpwright_kernels::shared::cache;
use warpwright_kernels::shared::state::StepState;
use warpwright_kernels::simple::rms_norm::RmsNormArgs;

use super::row_class::RowClass;
use crate::Error;
use crate::batch::device::StepInput;
use crate::batch::engine::Batch;
use crate::batch::options::MAX_SEQUENCES;
use crate::batch::sequences::pages_of;
use crate::chunked::kernels;
use crate::signed;
use crate::simple::norm;

/// The number of rows that are normed and copied to the host together.
const ROWS: u32 = 256;

/// The sum of the hidden states of a text's tokens so far.
struct HiddenSum {
    sums: Vec<f64>,
    /// The number of tokens processed.
    tokens: u32,
}

/// Some tokens of a text in a pass.
struct TextPiece {
    /// The index of the text in its group.
    text: usize,
    /// The position of the first token.
    first: u32,
    tokens: u32,
}

impl Batch {
    /// Returns a vector for each text: the mean of the hidden states of its tokens, scaled to
    /// length 1.
    ///
    /// A hidden state is the residual stream after the last layer and the last norm, as in
    /// [`Decoder::hidden_states`](crate::Decoder::hidden_states). Several short texts are processed
    /// in one pass. The sequences of the batch and their [logits](Batch::logits) stay as they are.
    /// Texts need no place among the sequences, only free pages.
    ///
    /// # Errors
    /// - [`Error::NoPrompt`] or [`Error::PromptToken`] if a text is empty or has an id that is not
    ///   in the vocabulary.
    /// - [`Error::SequenceLength`] if a text is longer than the context of the batch.
    /// - [`Error::NoPages`] if too few pages are free for a text.
    /// - [`Error::HiddenState`] if a hidden state is not finite.
    /// - [`Error::Driver`] if a driver call fails. You cannot use the batch afterwards.
    pub fn embed(&mut self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, Error> {
        for text in texts {
            self.check_text(text)?;
        }

        let mut vectors = vec![];
        while vectors.len() < texts.len() {
            let rest = &texts[vectors.len()..];
            let count = self.group_len(rest);
            vectors.extend(self.embed_group(&rest[..count])?);
        }
        Ok(vectors)
    }

    fn check_text(&self, text: &[u32]) -> Result<(), Error> {
        let vocab = self.device.config.vocab;
        let ctx = self.options.ctx;
        if text.is_empty() {
            return Err(Error::NoPrompt);
        }
        if text.len() > ctx as usize {
            let more = u32::try_from(text.len()).unwrap_or(u32::MAX);
            return Err(Error::SequenceLength { len: 0, more, ctx });
        }
        match text.iter().position(|id| *id >= vocab) {
            Some(index) => Err(Error::PromptToken {
                index,
                id: text[index],
                vocab,
            }),
            None => Ok(()),
        }
    }

    /// Returns the number of first texts that fit into a pass and into the free pages, at least
    /// one.
    fn group_len(&self, texts: &[&[u32]]) -> usize {
        let mut tokens = 0;
        let mut pages = 0;
        let fits = |text: &&&[u32]| {
            tokens += text.len() as u32;
            pages += pages_of(text.len() as u32);
            tokens <= self.options.tokens && pages <= self.sequences.pages().available()
        };
        let count = texts.iter().take_while(fits).count();
        count.clamp(1, MAX_SEQUENCES as usize)
    }

    /// Computes the vectors of a group. A group of several texts fits into a pass.
    fn embed_group(&mut self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, Error> {
        let counts = texts.iter().map(|text| pages_of(text.len() as u32));
        let pages = self.sequences.take_pages(counts.sum())?;
        let vectors = self.embed_in_pages(texts, &pages);
        self.sequences.release_pages(&pages);
        vectors
    }

    fn embed_in_pages(&mut self, texts: &[&[u32]], pages: &[u32]) -> Result<Vec<Vec<f32>>, Error> {
        let max_pages = cache::pages(self.options.ctx) as usize;
        let mut table = vec![0; texts.len() * max_pages];
        let mut taken = pages;
        for (row, text) in table.chunks_mut(max_pages).zip(texts) {
            let (own, rest) = taken.split_at(pages_of(text.len() as u32) as usize);
            row[..own.len()].copy_from_slice(own);
            taken = rest;
        }

        let context = self.device.stream.context();
        let table = Buffer::from_slice(context, &table)?.labelled("embedded.pages");
        let hidden = self.device.config.hidden as usize;
        let new_sum = |_: &&[u32]| HiddenSum {
            sums: vec![0.0; hidden],
            tokens: 0,
        };
        let mut sums: Vec<HiddenSum> = texts.iter().map(new_sum).collect();
        loop {
            let pieces = self.next_pieces(texts, &sums);
            if pieces.is_empty() {
                break;
            }
            let input = self.text_rows(texts, &pieces);
            self.device
                .stream_pass(&input, &table, texts.len() as u32)?;
            self.add_rows(&pieces, &mut sums)?;
        }

        Ok(sums.iter().map(HiddenSum::direction).collect())
    }

    /// Returns the tokens of the next pass.
    fn next_pieces(&self, texts: &[&[u32]], sums: &[HiddenSum]) -> Vec<TextPiece> {
        let mut room = self.options.tokens;
        let mut pieces = vec![];
        for (text, (tokens, sum)) in texts.iter().zip(sums).enumerate() {
            let left = tokens.len() as u32 - sum.tokens;
            let count = left.min(room);
            room -= count;
            if count > 0 {
                pieces.push(TextPiece {
                    text,
                    first: sum.tokens,
                    tokens: count,
                });
            }
        }
        pieces
    }

    /// Returns the rows of a pass. The text's index takes the place of the sequence's row.
    fn text_rows(&self, texts: &[&[u32]], pieces: &[TextPiece]) -> StepInput {
        let queries = kernels::queries(self.cores, &self.device.config);
        let mut input = StepInput::new(self.options.splits(RowClass::Prompt));
        for piece in pieces {
            let item = Item {
                row: input.states.len() as u32,
                rows: piece.tokens,
                position: piece.first,
                sequence: piece.text as u32,
            };
            let tokens = texts[piece.text].iter().skip(piece.first as usize);
            let states = tokens.zip(piece.first..piece.first + piece.tokens);
            input
                .states
                .extend(states.map(|(&token, position)| StepState {
                    token,
                    position,
                    sequence: piece.text as u32,
                    limit: self.options.ctx,
                    ..StepState::default()
                }));
            input.items.extend(item.split(queries));
        }

        // As in a step, the items with the most keys start first.
        let keys = |item: &Item| Reverse(item.position + item.rows);
        input.items.sort_by_key(keys);
        input
    }

    /// Adds the normed rows of the latest pass to the sums of their texts.
    fn add_rows(&mut self, pieces: &[TextPiece], sums: &mut [HiddenSum]) -> Result<(), Error> {
        let rows: Vec<(usize, u32)> = pieces
            .iter()
            .flat_map(|piece| {
                let positions = piece.first..piece.first + piece.tokens;
                positions.map(|position| (piece.text, position))
            })
            .collect();
        let n = self.device.config.hidden as usize;
        for (chunk, first) in rows.chunks(ROWS as usize).zip((0..).step_by(ROWS as usize)) {
            let values = self.normed_rows(first, chunk.len() as u32)?;
            for (row, &(text, position)) in values.chunks(n).zip(chunk) {
                if let Some(index) = row.iter().position(|x| !x.is_finite()) {
                    return Err(Error::HiddenState {
                        position,
                        index,
                        value: row[index],
                    });
                }
                let sum = &mut sums[text];
                sum.tokens += 1;
                for (sum, x) in sum.sums.iter_mut().zip(row) {
                    *sum += f64::from(*x);
                }
            }
        }
        Ok(())
    }

    /// Returns rows of the residual stream of the latest pass after the last norm.
    fn normed_rows(&mut self, first: u32, count: u32) -> Result<Vec<f32>, Error> {
        let device = &self.device;
        let c = &device.config;
        let context = device.stream.context();
        if self.norm.is_none() {
            self.norm = Some(signed::load(
                context,
                RmsNorm {
                    threads: norm::threads(c),
                },
            )?);
        }
        let kernel = self.norm.as_ref().expect("it was loaded if it was missing");
        let normed = Buffer::uninit(context, (count * c.hidden) as usize)?.labelled("embedded");
        let gamma: View<f32> = device.last_norm()?;
        let args = RmsNormArgs::<Host> {
            x: &device.stream_rows(first, count),
            w: &gamma,
            y: &normed,
            n: c.hidden,
            eps: c.epsilon,
        };
        device.stream.launch(kernel, args)?;
        Ok(device.stream.read(&normed)?)
    }
}

impl HiddenSum {
    /// Returns the mean scaled to length 1. A vector of zeros has no direction and stays as it is.
    fn direction(&self) -> Vec<f32> {
        let length = self.sums.iter().map(|x| x * x).sum::<f64>().sqrt();
        let divisor = if length > 0.0 { length } else { 1.0 };
        self.sums.iter().map(|x| (x / divisor) as f32).collect()
    }
}
