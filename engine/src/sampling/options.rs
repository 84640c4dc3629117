//! The sampling parameters of a sequence.

use warpwright_kernels::sample::weight::scale;
use warpwright_kernels::sample::{MAX_BEST, MAX_BIASES, MAX_WINDOW, SampleParams};

use crate::Error;

/// The way in which a decoder or a batch chooses tokens. It decides which kernels are compiled, so
/// it is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenChoice {
    /// Greedy decoding: the token with the largest logit, found by the kernels of the LM head.
    #[default]
    Greedy,
    /// Sampling with the parameters of [`Sampling`], by additional kernels. The parameters may
    /// change between launches.
    Sampled {
        /// The maximum number of best log-probabilities per token, at most 32.
        logprobs: u32,
    },
    /// Sampling, and constrained decoding if a [`Matcher`](warpwright_model::Matcher) is used.
    ///
    /// See [`Decoder::decode_constrained`](crate::Decoder::decode_constrained) and
    /// [`Batch::step_constrained`](crate::Batch::step_constrained). Each constrained token needs
    /// work on the CPU.
    Constrained {
        /// The maximum number of best log-probabilities per token, at most 32.
        logprobs: u32,
    },
}

impl TokenChoice {
    /// Returns an error if more log-probabilities are requested than the kernels can record.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self.logprobs() {
            Some(best) => check_range("logprobs", best.into(), 0.0, MAX_BEST.into()),
            None => Ok(()),
        }
    }

    /// Returns the maximum number of best log-probabilities, or `None` if tokens are not sampled.
    pub(crate) fn logprobs(self) -> Option<u32> {
        match self {
            TokenChoice::Greedy => None,
            TokenChoice::Sampled { logprobs } | TokenChoice::Constrained { logprobs } => {
                Some(logprobs)
            }
        }
    }
}

/// The sampling parameters of a sequence.
///
/// They are applied in this order. Biases and penalties change the logits. Top-k, typical-p, top-p
/// and min-p then each keep some of the tokens that are left. The temperature scales the logits of
/// the kept tokens, and one of them is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// The temperature: 0.01 to 100, or 0 for the most likely token.
    pub temperature: f64,
    /// The number of most likely tokens to keep, or 0 to keep all.
    pub top_k: u32,
    /// The probability mass to keep, above 0 and up to 1, which keeps all tokens. The smallest set
    /// of most likely tokens with this mass is kept (nucleus sampling, Holtzman et al. 2020,
    /// <https://arxiv.org/abs/1904.09751>).
    pub top_p: f64,
    /// The minimum probability of a token, relative to the most likely token: 0 to 1, where 0 keeps
    /// all tokens (min-p sampling, Nguyen et al. 2024, <https://arxiv.org/abs/2407.01082>).
    pub min_p: f64,
    /// The probability mass to keep, as for `top_p`, but of the tokens whose surprise is nearest to
    /// the mean surprise (locally typical sampling, Meister et al. 2023,
    /// <https://arxiv.org/abs/2202.00666>).
    pub typical_p: f64,
    /// The divisor of positive logits of the latest tokens, and the factor of negative ones: 0.01
    /// to 100. The value 1 changes nothing.
    pub repeat_penalty: f64,
    /// The value subtracted from the logit of every token among the latest ones: -100 to 100.
    pub presence_penalty: f64,
    /// The value subtracted from the logit of a token for each of its occurrences among the latest
    /// ones: -100 to 100.
    pub frequency_penalty: f64,
    /// The number of latest tokens that are penalized, including tokens of the prompt: up to 1,024.
    pub penalty_window: u32,
    /// Tokens and the values added to their logits: at most 256, each from -10,000 to 10,000.
    pub logit_bias: Vec<(u32, f32)>,
    /// The random seed. Equal logits, seed and position give the same token.
    pub seed: u64,
    /// The number of best log-probabilities to record per token, up to the maximum of
    /// [`TokenChoice::Sampled`]. They are taken at temperature 1, before any token is dropped.
    pub logprobs: u32,
}

impl Default for Sampling {
    /// Returns the defaults of llama.cpp, which include no penalty.
    fn default() -> Sampling {
        Sampling {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            ..Sampling::off()
        }
    }
}

impl Sampling {
    /// Returns parameters that sample from the model's unchanged distribution.
    pub fn off() -> Sampling {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 64,
            logit_bias: vec![],
            seed: 0,
            logprobs: 0,
        }
    }

    /// Returns parameters that always choose the most likely token.
    pub fn greedy() -> Sampling {
        Sampling {
            temperature: 0.0,
            ..Sampling::off()
        }
    }

    /// Checks that every parameter is in its range.
    ///
    /// # Errors
    /// Returns an error for the first parameter that is out of range, or for a bias that is given
    /// twice or for a token outside the vocabulary.
    pub fn check(&self, vocab: u32) -> Result<(), Error> {
        let value = self.temperature;
        let least = 0.01;
        let most = 100.0;
        if value != 0.0 && !(least..=most).contains(&value) {
            return Err(Error::Temperature { value, least, most });
        }

        // A smaller share could round to no mass at all on the device.
        let least = 1e-6;
        check_range("top_p", self.top_p, least, 1.0)?;
        check_range("min_p", self.min_p, 0.0, 1.0)?;
        check_range("typical_p", self.typical_p, least, 1.0)?;
        check_range("repeat_penalty", self.repeat_penalty, 0.01, 100.0)?;
        check_range("presence_penalty", self.presence_penalty, -100.0, 100.0)?;
        check_range("frequency_penalty", self.frequency_penalty, -100.0, 100.0)?;
        check_range(
            "penalty_window",
            self.penalty_window.into(),
            0.0,
            MAX_WINDOW.into(),
        )?;
        check_range(
            "the number of logit biases",
            self.logit_bias.len() as f64,
            0.0,
            MAX_BIASES.into(),
        )?;
        for (_, bias) in &self.logit_bias {
            check_range("logit_bias", (*bias).into(), -1e4, 1e4)?;
        }

        check_range("logprobs", self.logprobs.into(), 0.0, MAX_BEST.into())?;
        self.check_biased(vocab)
    }

    fn check_biased(&self, vocab: u32) -> Result<(), Error> {
        let mut tokens: Vec<u32> = self.logit_bias.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        if let Some(&token) = tokens.last().filter(|token| **token >= vocab) {
            return Err(Error::BiasToken { token, vocab });
        }
        match tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::BiasTwice { token: pair[0] }),
            None => Ok(()),
        }
    }

    /// Returns true if a penalty changes logits.
    pub(crate) fn penalizes(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0
            && self.presence_penalty == 0.0
            && self.frequency_penalty == 0.0;
        !neutral && self.penalty_window > 0
    }

    /// Returns the parameters in the form that the kernels read. They must have been
    /// [checked](Sampling::check).
    pub fn params(&self) -> SampleParams {
        let greedy = self.temperature == 0.0;

        // Greedy sampling keeps one token, so that the draw has no choice.
        let top_k = if greedy { 1 } else { self.top_k };
        let share = |p: f64| if greedy { 0 } else { SampleParams::share(p) };
        SampleParams {
            seed: self.seed,
            top_k,
            top_p: share(self.top_p),
            typical_p: share(self.typical_p),
            min_gap: self.min_p.ln() as f32,
            scale: scale(if greedy { 1.0 } else { self.temperature }),
            repeat: self.repeat_penalty as f32,
            presence: self.presence_penalty as f32,
            frequency: self.frequency_penalty as f32,
            window: if self.penalizes() {
                self.penalty_window
            } else {
                0
            },
            biases: self.logit_bias.len() as u32,
            best: self.logprobs,
        }
    }
}

/// Returns an error if `value` is outside its range. NaN is outside of every range.
fn check_range(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::Sampling {
            name,
            value,
            least,
            most,
        })
    }
}
