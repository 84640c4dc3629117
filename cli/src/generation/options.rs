//! The options that `run` and `chat` share, and loading of a model for them.

use std::str::FromStr;

use warpwright_driver::Context;
use warpwright_engine as engine;
use warpwright_engine::{
    Decoder, GenerationConfig, Options, Sampling, TokenChoice, draft_sampling,
};
use warpwright_model::{Model, StopStrings, Tokenizer};

use crate::failure::Failure;
use crate::generation::grammar::GrammarArgs;
use crate::generation::sampling::{self, SamplingArgs};
use crate::generation::speculative::{SpeculativeArgs, TextGenerator};
use crate::model::adapter::AdapterArgs;
use crate::model::options::{Launch, ModelDeviceArgs, decoder};
use warpwright_emu::terminal::say;

/// Options of commands that generate text.
#[derive(clap::Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) target: ModelDeviceArgs,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
    /// Text that ends the output and is not part of it; can be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    speculative: SpeculativeArgs,
    #[command(flatten)]
    pub(crate) grammar: GrammarArgs,
}

/// The sampling of a command without sampling options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultSampling {
    /// The most likely token each time.
    Greedy,
    /// The sampling of the model's generation_config.json, or else llama.cpp's defaults.
    Sampled,
}

/// The value of `-n`: the largest number of tokens in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenLimit {
    Most(u32),
    /// No limit except an end token of the model and the size of the context.
    Unlimited,
}

impl TokenLimit {
    /// Returns the largest number of tokens, or `u32::MAX` if there is no limit.
    pub(crate) fn most(self) -> u32 {
        self.limit().unwrap_or(u32::MAX)
    }

    /// Returns the largest number of tokens, or `None` if there is no limit.
    pub(crate) fn limit(self) -> Option<u32> {
        match self {
            TokenLimit::Most(tokens) => Some(tokens),
            TokenLimit::Unlimited => None,
        }
    }
}

impl FromStr for TokenLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<i64>() {
            Ok(-1) => Ok(TokenLimit::Unlimited),
            Ok(tokens) => u32::try_from(tokens)
                .map(TokenLimit::Most)
                .map_err(|_| not_a_limit()),
            Err(_) => Err(not_a_limit()),
        }
    }
}

fn not_a_limit() -> String {
    format!("it can be 0 to {}, or -1 for no limit", u32::MAX)
}

/// The number of positions after the prompt for a text without a limit, unless `--ctx` or the model
/// has fewer.
pub(crate) const UNLIMITED_CTX: usize = 8192;
/// The number of tokens that the emulator's time estimate assumes for a text without a limit.
pub(crate) const EXPECTED_TOKENS: u32 = 64;

/// The length from which on a prompt is prefilled in batches and chunks.
///
/// A shorter prompt does without the kernels for that, because a driver that has not cached them
/// yet takes about a second to compile them.
const LONG_PROMPT: usize = 64;

/// The sizes that a decoder is made for.
pub(crate) struct ContextSize {
    /// The number of positions.
    pub(crate) ctx: u32,
    /// The number of tokens of the longest prompt.
    pub(crate) prompt: usize,
    /// The expected number of tokens of prompts and answers, for the emulator's time estimate.
    pub(crate) expected_tokens: u64,
}

impl ContextSize {
    /// Returns an error if the prompt does not fit. Call this before the weights are loaded.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let ctx = self.ctx;
        let len = self.prompt;

        // A context of 0 positions is reported by the decoder, which knows the allowed range.
        if ctx > 0 && len > ctx as usize {
            return Err(engine::Error::PromptLength {
                len,
                before: 0,
                ctx,
            }
            .into());
        }

        Ok(())
    }
}

impl GenerateArgs {
    /// Opens the model with its adapter, after a check that the options can be combined.
    ///
    /// # Errors
    /// Returns an error if two options contradict each other, or if a file cannot be read.
    pub(crate) fn open(&self) -> Result<Model, Failure> {
        self.speculative.check()?;
        if let Some(option) = self.grammar.given()
            && self.speculative.max_drafts() > 0
        {
            return Err(Failure::Input(format!(
                "{option} cannot be combined with guesses, because a grammar chooses one token at a time: leave out \
                 --lookup and --draft"
            )));
        }
        self.adapter.open(self.target.model.path()?)
    }

    /// Returns the strings that end a text.
    ///
    /// # Errors
    /// Returns an error if one of them is empty.
    pub(crate) fn stops(&self) -> Result<StopStrings, Failure> {
        Ok(StopStrings::new(self.stop.clone())?)
    }

    /// Returns the sampling, from the options, the model's generation_config.json and the defaults,
    /// in this order.
    ///
    /// # Errors
    /// Returns an error if generation_config.json cannot be read, or if a value is out of range.
    pub(crate) fn sampling(
        &self,
        model: &Model,
        default: DefaultSampling,
    ) -> Result<Sampling, Failure> {
        let config = GenerationConfig::for_model(model)?;
        if let Some(warning) = config.warning() {
            say(format!("warning: {warning}"));
        }

        let base = config.over(Sampling {
            seed: sampling::fresh_seed(),
            ..Sampling::default()
        });
        let sampling = match default {
            DefaultSampling::Greedy => self.sampling.greedy_or(base),
            DefaultSampling::Sampled => self.sampling.over(base),
        };
        sampling.check(model.outline.config.vocab)?;

        // Options of llama.cpp that users have in their scripts are no reason to stop.
        if let Some(note) = sampling::unused_note(&self.sampling.unused(&sampling)) {
            say(note);
        }

        Ok(sampling)
    }

    /// Returns the sampling options that were given and have no effect.
    pub(crate) fn unused(&self, sampling: &Sampling) -> Vec<&'static str> {
        self.sampling.unused(sampling)
    }

    /// Returns the options of a decoder for this sampling.
    fn options(&self, sampling: &Sampling, size: &ContextSize) -> Options {
        let options = Options::new(size.ctx, self.launch.into());
        let short = size.prompt < LONG_PROMPT;
        let chunk = if short { 0 } else { options.chunk };
        if self.grammar.given().is_some() {
            let choice = TokenChoice::Constrained {
                logprobs: sampling.logprobs,
            };
            // The CPU must see a token before it knows which tokens may follow, so a launch makes
            // one. The batch of prefill stays as it is, because it also serves tokens that the
            // grammar forces.
            return Options {
                choice,
                chunk,
                tokens_per_launch: 1,
                ..options
            };
        }

        let prefill_batch = if short { 1 } else { options.prefill_batch };
        Options {
            choice: sampling::choice(sampling),
            prefill_batch,
            chunk,
            ..options
        }
    }

    /// Loads the model and, if there is one, the draft model.
    ///
    /// `tokenizer` is the tokenizer of `model` if the caller has made it already.
    ///
    /// # Errors
    /// Returns an error if the draft model has another vocabulary, if the models do not fit on the
    /// device, or if loading fails.
    pub(crate) fn writer(
        &self,
        context: &Context,
        model: &Model,
        sampling: &Sampling,
        size: &ContextSize,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<TextGenerator, Failure> {
        let draft_model = self.speculative.open(model, tokenizer)?;
        let options = Options {
            drafts: self.speculative.max_drafts(),
            ..self.options(sampling, size)
        };
        let draft = draft_model
            .as_ref()
            .map(|draft| (draft, self.draft_options(sampling, size, draft)));

        // Both models are checked together before either is loaded, because loading can take
        // minutes.
        if let Some((draft, draft_options)) = draft {
            Decoder::check_with_draft(
                context,
                [(&model.outline, options), (&draft.outline, draft_options)],
            )?;
        }

        let load = |model: &Model, options, sampling: &Sampling| {
            let tokens = size.expected_tokens;
            let mut decoder = decoder(&self.target, context, model, options, tokens)?;
            if options.choice != TokenChoice::Greedy {
                decoder.set_sampling(sampling)?;
            }
            Ok::<_, Failure>(decoder)
        };
        let decoder = load(model, options, sampling)?;
        let draft = match draft {
            None => None,
            Some((draft, options)) => {
                let sampling = draft_sampling(sampling, draft.outline.config.vocab);
                Some((draft, load(draft, options, &sampling)?))
            }
        };
        let no_guesses = self.speculative.no_guesses(model, draft_model.as_ref());
        Ok(TextGenerator {
            decoder,
            speculation: self.speculative.speculation(model, draft),
            no_guesses,
        })
    }

    /// Returns the options of a decoder for the draft model.
    fn draft_options(&self, sampling: &Sampling, size: &ContextSize, draft: &Model) -> Options {
        let ctx = size.ctx.min(draft.outline.config.context);
        Options {
            ctx,
            // The number of guesses changes from step to step, so each launch makes a single token.
            tokens_per_launch: 1,
            ..self.options(&draft_sampling(sampling, draft.outline.config.vocab), size)
        }
    }
}
