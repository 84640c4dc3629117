//! Log-likelihoods of texts, and hidden states of their tokens.

use std::collections::VecDeque;
use std::sync::Arc;

use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, View};
use warpwright_kernels::simple::log_likelihood::LogLikelihoodArgs;

use crate::Error;
use crate::decode::decoder::Decoder;
use crate::decode::rows::{DeviceRows, RowKind, RowReader, STREAM_ROWS};
use crate::simple::norm::{NormKernel, NormedRows};

impl Decoder {
    /// Returns the log-likelihood of each token of `ids[first..]`, given all tokens before it.
    ///
    /// The result has `ids.len() - first` values, in the order of the tokens. Each is the natural
    /// logarithm of the token's probability at temperature 1. They are computed on the device from
    /// the logits, in `f32`. `ids` replaces the decoder's sequence, and afterwards the decoder has
    /// no tokens.
    ///
    /// # Example: perplexity
    ///
    /// ```no_run
    /// use warpwright_driver::{Context, Driver};
    /// use warpwright_engine::{Decoder, Launch, Options};
    /// use warpwright_model::Model;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Model::open("model.gguf".as_ref())?;
    /// # let context = Context::new(&Driver::load()?.devices()?[0])?;
    /// let options = Options::new(1024, Launch::Graph);
    /// let mut decoder = Decoder::new(&context, &model, options, |_bytes| ())?;
    /// let ids = model.tokenizer()?.encode("The borrow checker")?;
    /// let all: f32 = decoder.log_likelihoods(&ids, 1)?.iter().sum();
    /// println!("perplexity {}", (-all / (ids.len() - 1) as f32).exp());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Scored`] if `first` is 0 or not below `ids.len()`.
    /// - [`Error::PromptToken`] if an id is not in the vocabulary.
    /// - [`Error::PromptLength`] if the context is too short. The last token needs no position.
    /// - [`Error::Logit`] if a logit is not finite.
    /// - [`Error::Driver`] if a launch or a copy fails.
    pub fn log_likelihoods(&mut self, ids: &[u32], first: usize) -> Result<Vec<f32>, Error> {
        if first == 0 || first >= ids.len() {
            return Err(Error::Scored {
                first,
                tokens: ids.len(),
            });
        }

        let vocab = self.machine.config.vocab;
        if let Some(index) = ids.iter().position(|id| *id >= vocab) {
            return Err(Error::PromptToken {
                index,
                id: ids[index],
                vocab,
            });
        }

        // The last token is scored by the logits before it, so it is not processed.
        let given = &ids[..ids.len() - 1];
        self.reset();
        self.write_prompt(given)?;
        let scored = self.score(first as u32, &ids[first..])?;
        match scored.iter().position(|likelihood| !likelihood.is_finite()) {
            Some(index) => Err(self.not_finite(given, (first + index) as u32 - 1)?),
            None => Ok(scored),
        }
    }

    /// Computes the log-likelihoods of `scored`, the tokens at position `first` and later, for a
    /// prompt that was written to the device. The host waits only once, at the end.
    fn score(&mut self, first: u32, scored: &[u32]) -> Result<Vec<f32>, Error> {
        let context = self.stream.context().clone();

        // Logits belong to the next token, so the first row is one position earlier.
        let before = first - 1;
        let kernel = self
            .row_kernels
            .log_likelihood(&context, &self.machine.config)?;
        let tokens = Buffer::from_slice(&context, scored)?.labelled("scored");
        let likelihoods = Buffer::zeroed(&context, scored.len())?.labelled("likelihoods");
        let mut rows = RowReader::new(RowKind::Logits, before..before + scored.len() as u32);
        while let Some(DeviceRows {
            first,
            count,
            values,
        }) = rows.next(self)?
        {
            let range = (first - before) as usize..(first - before + count) as usize;
            let token = &tokens.view_range(range.clone());
            let y = &likelihoods.view_range(range);
            let args = LogLikelihoodArgs::<Host> {
                x: &values,
                token,
                y,
                n: self.machine.config.vocab,
            };
            self.stream.launch(&kernel, args)?;
        }

        Ok(self.stream.read(&likelihoods)?)
    }

    /// Returns the error that explains why there is no finite log-likelihood after `position`: the
    /// first logit that is not finite.
    fn not_finite(&mut self, given: &[u32], position: u32) -> Result<Error, Error> {
        let error = self.logits(given)?.find_map(Result::err);
        Ok(error.unwrap_or(Error::NoLikelihood { position }))
    }

    /// Processes `ids` as a new sequence and returns an iterator over the hidden state of each
    /// token.
    ///
    /// A hidden state is the residual stream after the last layer and the last norm, the input of
    /// the LM head, which in models with a factor of logits includes that factor. It has `hidden`
    /// values and depends on the tokens up to its own. llama.cpp pools
    /// these states to embeddings. Afterwards the decoder has no tokens.
    ///
    /// # Errors
    /// Returns [`Error::NoPrompt`], [`Error::PromptLength`] or [`Error::PromptToken`] if `ids` is
    /// empty, too long, or contains an id outside the vocabulary, or a driver error. The iterator
    /// returns driver errors, and [`Error::HiddenState`] if a value is not finite.
    pub fn hidden_states(&mut self, ids: &[u32]) -> Result<HiddenStates<'_>, Error> {
        self.reset();
        self.write_prompt(ids)?;
        let context = self.stream.context().clone();
        let hidden = self.machine.config.hidden as usize;
        let at_once = ids.len().min(STREAM_ROWS as usize);
        Ok(HiddenStates {
            kernel: self.row_kernels.norm(&context, &self.machine.config)?,
            gamma: self.machine.norm()?,
            normed: Buffer::uninit(&context, at_once * hidden)?.labelled("hidden"),
            rows: RowReader::new(RowKind::Stream, 0..ids.len() as u32),
            position: 0,
            read: VecDeque::new(),
            decoder: self,
        })
    }
}

/// An iterator over the hidden states of a text, one row per token. See [`Decoder::hidden_states`].
pub struct HiddenStates<'a> {
    decoder: &'a mut Decoder,
    rows: RowReader,
    kernel: Arc<NormKernel>,
    /// The weights of the last norm, `[hidden]`.
    gamma: View<f32>,
    /// The normed rows, `[rows, hidden]`.
    normed: Buffer<f32>,
    /// The position of the token whose row is next.
    position: u32,
    /// The rows that were copied to the host and not returned yet.
    read: VecDeque<Vec<f32>>,
}

impl Iterator for HiddenStates<'_> {
    type Item = Result<Vec<f32>, Error>;

    fn next(&mut self) -> Option<Result<Vec<f32>, Error>> {
        let row = self.row().transpose()?;
        if row.is_err() {
            // After an error the iterator ends.
            self.rows = RowReader::new(RowKind::Stream, 0..0);
            self.read.clear();
        }
        Some(row)
    }
}

impl HiddenStates<'_> {
    /// Returns the next row, and computes further rows if none is left.
    fn row(&mut self) -> Result<Option<Vec<f32>>, Error> {
        if self.read.is_empty()
            && let Some(rows) = self.rows.next(self.decoder)?
        {
            self.read = self.norm(&rows)?;
        }

        let Some(row) = self.read.pop_front() else {
            return Ok(None);
        };

        if let Some(index) = row.iter().position(|x| !x.is_finite()) {
            return Err(Error::HiddenState {
                position: self.position,
                index,
                value: row[index],
            });
        }

        self.position += 1;
        Ok(Some(row))
    }

    /// Applies the last norm to rows of the residual stream and copies the result to the host.
    fn norm(&self, rows: &DeviceRows) -> Result<VecDeque<Vec<f32>>, Error> {
        let Decoder {
            machine, stream, ..
        } = &*self.decoder;
        let n = machine.config.hidden;
        let y = &self.normed.view_range(0..rows.values.len());
        let rows = NormedRows {
            x: &rows.values,
            w: &self.gamma,
            y,
        };
        let mut queue = stream;
        self.kernel.launch(&mut queue, &machine.config, rows)?;
        Ok(stream
            .read(y)?
            .chunks(n as usize)
            .map(<[f32]>::to_vec)
            .collect())
    }
}
