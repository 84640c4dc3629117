//! What `run` and `chat` have in common: how a model is loaded to write texts, and what ends them.

use std::str::FromStr;

use warpwright_driver::Context;
use warpwright_engine::{
    self as engine, Decoder, Model, Options, Sampling, StopStrings, TokenChoice, Tokenizer,
};

use crate::adapter::AdapterArgs;
use crate::failure::Failure;
use crate::grammar::GrammarArgs;
use crate::options::{Launch, Place, decoder};
use crate::sampling::{self, SamplingArgs};
use crate::speculative::{SpeculativeArgs, Writer, for_draft};
use crate::terminal::say;

#[derive(clap::Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) place: Place,
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

/// How tokens are chosen where the command line says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsaid {
    /// The most likely token each time.
    Greedy,
    /// As the model's generation_config.json says, or else as llama.cpp does it.
    Sampled,
}

/// The value of `-n`: the largest number of tokens in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenLimit {
    Most(u32),
    /// Up to a token that ends the text, or until the context is full.
    Unlimited,
}

impl TokenLimit {
    /// Returns the number, which is the largest one where there is no limit.
    pub(crate) fn most(self) -> u32 {
        self.limit().unwrap_or(u32::MAX)
    }

    /// Returns the number, or `None` if there is no limit.
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

/// Positions that a text without a limit has room for, unless `--ctx` says otherwise or the model has fewer.
pub(crate) const UNLIMITED_CTX: usize = 8192;
/// Tokens that a text without a limit is expected to have, for the emulator's estimate of the time.
pub(crate) const EXPECTED_TOKENS: u32 = 64;

/// Tokens of a prompt from which on it is prefilled several at a time: the kernels for that are compiled too, which
/// takes a driver that has not seen them about a second.
const LONG_PROMPT: usize = 64;

/// What a decoder is made for.
pub(crate) struct Room {
    /// Positions.
    pub(crate) ctx: u32,
    /// Tokens of the longest prompt.
    pub(crate) prompt: usize,
    /// Tokens that are thought to go through the model, of prompts and answers.
    pub(crate) tokens: u64,
}

impl Room {
    /// Refuses a prompt that has no room, before anything is loaded for it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Room {
            ctx, prompt: len, ..
        } = *self;
        match ctx > 0 && len > ctx as usize {
            true => Err(engine::Error::PromptLength {
                len,
                before: 0,
                ctx,
            }
            .into()),
            false => Ok(()),
        }
    }
}

impl GenerateArgs {
    /// The model, with its adapter.
    pub(crate) fn open(&self) -> Result<Model, Failure> {
        self.speculative.check()?;
        if let (Some(option), 1..) = (self.grammar.given(), self.speculative.most()) {
            return Err(Failure::Input(format!(
                "{option} makes tokens one by one, and guesses are verified several at a time: leave --lookup and --draft out"
            )));
        }
        self.adapter.open(self.place.model.path()?)
    }

    /// The strings that end a text.
    pub(crate) fn stops(&self) -> Result<StopStrings, Failure> {
        Ok(StopStrings::new(self.stop.clone())?)
    }

    /// How tokens are chosen.
    pub(crate) fn sampling(&self, model: &Model, unsaid: Unsaid) -> Result<Sampling, Failure> {
        let config = model.generation_config()?;
        config
            .warning()
            .iter()
            .for_each(|warning| say(format!("warning: {warning}")));
        let said = |base| config.over(base);
        let base = said(Sampling {
            seed: sampling::fresh_seed(),
            ..Sampling::default()
        });
        let sampling = match unsaid {
            Unsaid::Greedy => self.sampling.greedy_or(base)?,
            Unsaid::Sampled => self.sampling.over(base)?,
        };
        sampling.check(model.outline.config.vocab)?;
        Ok(sampling)
    }

    /// A grammar makes one token a launch, and takes several in where it leaves no choice.
    fn options(&self, sampling: &Sampling, room: &Room) -> Options {
        let options = Options::new(room.ctx, self.launch.into());
        let short = room.prompt < LONG_PROMPT;
        let chunk = if short { 0 } else { options.chunk };
        if self.grammar.given().is_some() {
            let choice = TokenChoice::Constrained {
                logprobs: sampling.logprobs,
            };
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

    /// Loads the model, and a draft model if there is one. Everything that decides which token comes next is in here.
    /// `words` is the model's tokenizer, if it was made already.
    pub(crate) fn writer(
        &self,
        context: &Context,
        model: &Model,
        sampling: &Sampling,
        room: &Room,
        words: Option<&Tokenizer>,
    ) -> Result<Writer, Failure> {
        let draft = self.speculative.open(model, words)?;
        let options = Options {
            drafts: self.speculative.most(),
            ..self.options(sampling, room)
        };
        let draft = draft
            .as_ref()
            .map(|draft| (draft, self.draft_options(sampling, room, draft)));
        if let Some((draft, of_draft)) = draft {
            Decoder::check_with_draft(
                context,
                [(&model.outline, options), (&draft.outline, of_draft)],
            )?;
        }
        let load = |model: &Model, options, sampling: &Sampling| {
            let mut decoder = decoder(&self.place, context, model, options, room.tokens)?;
            if options.choice != TokenChoice::Greedy {
                decoder.set_sampling(sampling)?;
            }
            Ok::<_, Failure>(decoder)
        };
        let decoder = load(model, options, sampling)?;
        let draft = draft.map(|(draft, options)| {
            Ok::<_, Failure>((draft, load(draft, options, &for_draft(sampling, draft))?))
        });
        let draft = draft.transpose()?;
        let silence = self
            .speculative
            .silence(model, draft.as_ref().map(|(draft, _)| *draft));
        Ok(Writer {
            decoder,
            speculation: self.speculative.speculation(model, draft),
            silence,
        })
    }

    /// Those of a draft model: it makes a few tokens at a time.
    fn draft_options(&self, sampling: &Sampling, room: &Room, draft: &Model) -> Options {
        let ctx = room.ctx.min(draft.outline.config.context);
        Options {
            ctx,
            tokens_per_launch: 1,
            ..self.options(&for_draft(sampling, draft), room)
        }
    }
}
