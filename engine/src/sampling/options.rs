//! What tokens are drawn by.

use warpwright_kernels::sample::weight::scale;
use warpwright_kernels::sample::{MAX_BEST, MAX_BIASES, MAX_WINDOW, SampleParams};

use crate::Error;

/// How tokens are chosen; fixed while a decoder or a batch has its graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenChoice {
    /// The token of the largest logit, in the kernels of the LM head.
    #[default]
    Greedy,
    /// As [`Sampling`] says, in kernels of its own. Parameters can change between launches.
    Sampled {
        /// Best log-probabilities of a token that there is room for: at most 32.
        logprobs: u32,
    },
    /// The same, and where a [`Matcher`](crate::Matcher) says so, only among the tokens that it allows:
    /// [`Decoder::decode_within`](crate::Decoder::decode_within), [`Batch::step_within`](crate::Batch::step_within). The
    /// host takes part in each such token.
    Within {
        /// As above.
        logprobs: u32,
    },
}

impl TokenChoice {
    /// Refuses more log-probabilities than there can be.
    pub(crate) fn check(self) -> Result<(), Error> {
        self.logprobs().map_or(Ok(()), |best| {
            within("logprobs", best.into(), 0.0, MAX_BEST.into())
        })
    }

    /// Best log-probabilities that there is room for, where tokens are sampled.
    pub(crate) fn logprobs(self) -> Option<u32> {
        match self {
            TokenChoice::Greedy => None,
            TokenChoice::Sampled { logprobs } | TokenChoice::Within { logprobs } => Some(logprobs),
        }
    }
}

/// What the tokens of a sequence are drawn by. Biases and penalties change the logits; top-k, typical-p, top-p and min-p
/// each keep some of the tokens that those before them left; the temperature weighs what is left.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0, the most likely token each time; or 0.01 to 100.
    pub temperature: f64,
    /// The number of the most likely tokens that are kept; 0 keeps all.
    pub top_k: u32,
    /// The share of the probability that the fewest most likely tokens are to have: above 0, up to 1, which keeps all.
    pub top_p: f64,
    /// How probable a token must be, relative to the most likely one: 0, which keeps all, to 1.
    pub min_p: f64,
    /// As `top_p`, but of the tokens whose surprise is nearest to the mean.
    pub typical_p: f64,
    /// What the logits of the latest tokens are divided by, or multiplied by if they are negative: 0.01 to 100.
    pub repeat_penalty: f64,
    /// What is subtracted from the logits of the latest tokens: -100 to 100.
    pub presence_penalty: f64,
    /// What is subtracted for each time that a token is among the latest: -100 to 100.
    pub frequency_penalty: f64,
    /// The number of latest tokens that are penalized, those of the prompt among them: up to 1,024.
    pub penalty_window: u32,
    /// Tokens, and what is added to their logits: at most 256, each -10,000 to 10,000.
    pub logit_bias: Vec<(u32, f32)>,
    /// The same logits, seed and position give the same token.
    pub seed: u64,
    /// The number of best log-probabilities, at temperature 1 and before tokens are dropped: up to [`TokenChoice::Sampled`]'s.
    pub logprobs: u32,
}

impl Default for Sampling {
    /// llama.cpp's defaults, with no penalty.
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
    /// The whole distribution of the model.
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

    /// The most likely token each time.
    pub fn greedy() -> Sampling {
        Sampling {
            temperature: 0.0,
            ..Sampling::off()
        }
    }

    /// Refuses what is outside its range.
    ///
    /// # Errors
    /// The first such option, and its range.
    pub fn check(&self, vocab: u32) -> Result<(), Error> {
        let (value, least, most) = (self.temperature, 0.01, 100.0);
        if value != 0.0 && !(least..=most).contains(&value) {
            return Err(Error::Temperature { value, least, most });
        }
        // A share of the least positive number would round to none.
        let least = 1e-6;
        within("top_p", self.top_p, least, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("typical_p", self.typical_p, least, 1.0)?;
        within("repeat_penalty", self.repeat_penalty, 0.01, 100.0)?;
        within("presence_penalty", self.presence_penalty, -100.0, 100.0)?;
        within("frequency_penalty", self.frequency_penalty, -100.0, 100.0)?;
        within(
            "penalty_window",
            self.penalty_window.into(),
            0.0,
            MAX_WINDOW.into(),
        )?;
        within(
            "the number of logit biases",
            self.logit_bias.len() as f64,
            0.0,
            MAX_BIASES.into(),
        )?;
        self.logit_bias
            .iter()
            .try_for_each(|(_, bias)| within("logit_bias", (*bias).into(), -1e4, 1e4))?;
        within("logprobs", self.logprobs.into(), 0.0, MAX_BEST.into())?;
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

    /// Whether there is a penalty.
    pub(crate) fn penalizes(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0
            && self.presence_penalty == 0.0
            && self.frequency_penalty == 0.0;
        !neutral && self.penalty_window > 0
    }

    /// As the device has them; [`check`](Sampling::check)ed before.
    pub fn params(&self) -> SampleParams {
        let greedy = self.temperature == 0.0;
        SampleParams {
            seed: self.seed,
            top_k: if greedy { 1 } else { self.top_k },
            top_p: if greedy {
                0
            } else {
                SampleParams::share(self.top_p)
            },
            typical_p: if greedy {
                0
            } else {
                SampleParams::share(self.typical_p)
            },
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

/// Refuses a number outside its range; NaN is outside of all.
fn within(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), Error> {
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
