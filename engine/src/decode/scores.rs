//! How likely a model finds a text, and what it makes of each of its tokens before the LM head.

use std::collections::VecDeque;
use std::sync::Arc;

use warpwright_driver::{Buffer, Host, Kernel, View};
use warpwright_kernels::RmsNorm;
use warpwright_kernels::simple::log_likelihood::LogLikelihoodArgs;
use warpwright_kernels::simple::rms_norm::RmsNormArgs;

use crate::Error;
use crate::decode::decoder::Decoder;
use crate::decode::rows::{DeviceRows, RowKind, Rows, STREAM_ROWS};

impl Decoder {
    /// Starts anew and gives how likely the tokens from `ids[first]` on are, each after all before it: the natural logarithm
    /// of its probability at temperature 1. There are `ids.len() - first` of them, in the order of the tokens. They are made
    /// of the logits on the device, in `f32`. Afterwards the decoder has no tokens.
    ///
    /// ```no_run
    /// use warpwright_driver::{Context, Driver};
    /// use warpwright_engine::{Decoder, Launch, Model, Options};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Model::open("model.gguf".as_ref())?;
    /// # let context = Context::new(&Driver::load()?.devices()?[0])?;
    /// let mut decoder = Decoder::new(&context, &model, Options::new(1024, Launch::Graph), |_bytes| ())?;
    /// let ids = model.tokenizer()?.encode("The borrow checker")?;
    /// let all: f32 = decoder.log_likelihoods(&ids, 1)?.iter().sum();
    /// println!("perplexity {}", (-all / (ids.len() - 1) as f32).exp());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No token before the first one that is scored, or none to score; else as [`generate`](Decoder::generate), where the
    /// context needs no room for the last token. Logits that are not finite; driver errors.
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
        let given = &ids[..ids.len() - 1];
        self.reset();
        self.give(given)?;
        let scored = self.score(first as u32, &ids[first..])?;
        match scored.iter().position(|likelihood| !likelihood.is_finite()) {
            Some(index) => Err(self.not_finite(given, (first + index) as u32 - 1)?),
            None => Ok(scored),
        }
    }

    /// The same of a prompt that was given. The host waits once, at the end.
    fn score(&mut self, first: u32, scored: &[u32]) -> Result<Vec<f32>, Error> {
        let (context, before) = (self.stream.context().clone(), first - 1);
        let kernel = self
            .row_kernels
            .log_likelihood(&context, &self.machine.config)?;
        let tokens = Buffer::from_slice(&context, scored)?.labelled("scored");
        let likelihoods = Buffer::zeroed(&context, scored.len())?.labelled("likelihoods");
        let mut rows = Rows::new(RowKind::Logits, before..before + scored.len() as u32);
        while let Some(DeviceRows {
            first,
            count,
            values,
        }) = rows.next(self)?
        {
            let range = (first - before) as usize..(first - before + count) as usize;
            let (token, y) = (
                &tokens.view_range(range.clone()),
                &likelihoods.view_range(range),
            );
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

    /// Why there is no log-likelihood after a position: the first logit that is not finite.
    fn not_finite(&mut self, given: &[u32], position: u32) -> Result<Error, Error> {
        let error = self.logits(given)?.find_map(Result::err);
        Ok(error.unwrap_or(Error::NoLikelihood { position }))
    }

    /// Starts anew, processes `ids` and yields what the model makes of each before the LM head: the residual stream after
    /// the last layer and the last norm, rows of `hidden` numbers. A row depends on the tokens up to its own. It is what
    /// llama.cpp pools to embeddings. Afterwards the decoder has no tokens.
    ///
    /// # Errors
    /// As [`generate`](Decoder::generate); rows that are not finite.
    pub fn hidden_states(&mut self, ids: &[u32]) -> Result<HiddenStates<'_>, Error> {
        self.reset();
        self.give(ids)?;
        let (context, hidden) = (
            self.stream.context().clone(),
            self.machine.config.hidden as usize,
        );
        let at_once = ids.len().min(STREAM_ROWS as usize);
        Ok(HiddenStates {
            kernel: self.row_kernels.norm(&context, &self.machine.config)?,
            gamma: self.machine.norm()?,
            normed: Buffer::uninit(&context, at_once * hidden)?.labelled("hidden"),
            rows: Rows::new(RowKind::Stream, 0..ids.len() as u32),
            position: 0,
            read: VecDeque::new(),
            decoder: self,
        })
    }
}

/// What a model makes of tokens before the LM head, one row per token.
pub struct HiddenStates<'a> {
    decoder: &'a mut Decoder,
    rows: Rows,
    kernel: Arc<Kernel<RmsNorm>>,
    /// `[hidden]`
    gamma: View<f32>,
    /// `[rows, hidden]`
    normed: Buffer<f32>,
    /// The token whose row is next.
    position: u32,
    /// Rows that were read and not yielded yet.
    read: VecDeque<Vec<f32>>,
}

impl Iterator for HiddenStates<'_> {
    type Item = Result<Vec<f32>, Error>;

    fn next(&mut self) -> Option<Result<Vec<f32>, Error>> {
        let row = self.row().transpose()?;
        if row.is_err() {
            // Nothing comes after an error.
            self.rows = Rows::new(RowKind::Stream, 0..0);
            self.read.clear();
        }
        Some(row)
    }
}

impl HiddenStates<'_> {
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

    /// Norms rows of the residual stream, and reads them.
    fn norm(&self, rows: &DeviceRows) -> Result<VecDeque<Vec<f32>>, Error> {
        let Decoder {
            machine, stream, ..
        } = &*self.decoder;
        let (n, eps) = (machine.config.hidden, machine.config.epsilon);
        let y = &self.normed.view_range(0..rows.values.len());
        let args = RmsNormArgs::<Host> {
            x: &rows.values,
            w: &self.gamma,
            y,
            n,
            eps,
        };
        stream.launch(&self.kernel, args)?;
        Ok(stream
            .read(y)?
            .chunks(n as usize)
            .map(<[f32]>::to_vec)
            .collect())
    }
}
