//! What the command line says of guesses, and what writes texts with them.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpwright_engine::info::token_bytes;
use warpwright_engine::{
    Decoder, DraftModel, Generation, Matcher, Model, PromptLookup, Sampling, Speculation,
    Tokenizer, same_vocabulary,
};

use crate::failure::Failure;
use crate::options::locate;

/// Tokens that are guessed, and verified several at a time. The text is the same.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Speculative decoding")]
pub(crate) struct SpeculativeArgs {
    /// Guess the text that followed the latest N tokens (or fewer) before [N: 3]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16), conflicts_with = "draft")]
    lookup: Option<u32>,
    /// Smaller model with the same vocabulary that guesses tokens
    #[arg(long, alias = "model-draft", value_name = "MODEL")]
    draft: Option<PathBuf>,
    /// Largest number of guesses to verify at the same time, 1 to 7 [default: 7]
    #[arg(long, alias = "draft-n", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7))]
    draft_max: Option<u32>,
    /// Always make that number of guesses, even if fewer seem to be faster
    #[arg(long)]
    draft_always: bool,
}

/// A model that writes, and what guesses for it.
pub(crate) struct Writer {
    pub(crate) decoder: Decoder,
    pub(crate) speculation: Option<Speculation>,
    /// The reason, should there be no guesses.
    pub(crate) silence: String,
}

impl SpeculativeArgs {
    /// Guesses that are verified at once, at most; 0 without guesses.
    pub(crate) fn most(&self) -> u32 {
        let guesses = self.lookup.is_some() || self.draft.is_some();
        if guesses {
            self.draft_max.unwrap_or(7)
        } else {
            0
        }
    }

    /// Refuses options that mean nothing without others.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let given = [
            ("--draft-max", self.draft_max.is_some()),
            ("--draft-always", self.draft_always),
        ];
        match given
            .into_iter()
            .find(|(_, given)| *given && self.most() == 0)
        {
            Some((option, _)) => Err(Failure::Input(format!(
                "{option} is for guesses: add --lookup or --draft MODEL"
            ))),
            None => Ok(()),
        }
    }

    /// The draft model, if there is one; its vocabulary is compared with that of the model, whose tokenizer `words` is if
    /// it was made already.
    pub(crate) fn open(
        &self,
        model: &Model,
        words: Option<&Tokenizer>,
    ) -> Result<Option<Model>, Failure> {
        let Some(path) = &self.draft else {
            return Ok(None);
        };
        let draft = Model::open(&locate(path)?)?;
        let made = if words.is_none() {
            Some(model.tokenizer()?)
        } else {
            None
        };
        let words = words
            .or(made.as_ref())
            .expect("it was made where there was none");
        same_vocabulary(words, &draft.tokenizer()?)
            .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        Ok(Some(draft))
    }

    /// What guesses: by the draft model and its decoder, or by lookup.
    pub(crate) fn speculation(
        &self,
        model: &Model,
        draft: Option<(&Model, Decoder)>,
    ) -> Option<Speculation> {
        let by_model = draft.map(|(draft, decoder)| {
            self.paced(DraftModel::new(decoder, &draft.outline, &model.outline))
        });
        let by_lookup = self.lookup.map(|longest| {
            self.paced(PromptLookup {
                longest,
                shortest: 1,
            })
        });
        by_model.or(by_lookup)
    }

    /// Returns the reason why there would be no guesses, in a text that is long enough for some.
    pub(crate) fn silence(&self, model: &Model, draft: Option<&Model>) -> String {
        let Some(draft) = draft else {
            return "the latest tokens had not occurred before".to_owned();
        };
        let bytes = |model: &Model| token_bytes(&model.outline) as f64;
        let share = 100.0 * bytes(draft) / bytes(model);
        if self.draft_always {
            "the text is longer than the context of the draft model".to_owned()
        } else {
            format!(
                "a token of the draft model takes {share:.0} % of the bytes of one of the model, too many to be faster; \
                 --draft-always guesses anyway"
            )
        }
    }

    fn paced(&self, drafter: impl warpwright_engine::Drafter + 'static) -> Speculation {
        if self.draft_always {
            Speculation::eager(drafter)
        } else {
            Speculation::new(drafter)
        }
    }
}

/// What a draft model samples by: as the model, as far as its vocabulary goes, and without records.
pub(crate) fn for_draft(sampling: &Sampling, draft: &Model) -> Sampling {
    let mut sampling = Sampling {
        logprobs: 0,
        ..sampling.clone()
    };
    sampling
        .logit_bias
        .retain(|(token, _)| *token < draft.outline.config.vocab);
    sampling
}

impl Writer {
    /// The tokens after `have`, which are all that the decoder has: `limit` of them at most, within a grammar if there is
    /// one. There are no guesses within a grammar.
    pub(crate) fn tokens<'a>(
        &'a mut self,
        have: &[u32],
        limit: u32,
        matcher: Option<&'a mut Matcher>,
    ) -> Result<Generation<'a>, Failure> {
        if let Some(matcher) = matcher {
            return Ok(self.decoder.decode_constrained(limit, matcher)?);
        }
        Ok(match &mut self.speculation {
            None => self.decoder.decode(limit)?,
            Some(speculation) => self.decoder.decode_speculative(have, limit, speculation)?,
        })
    }

    /// What came of guesses, in a few words; nothing where there are none.
    pub(crate) fn summary(&self) -> String {
        let Some(speculation) = &self.speculation else {
            return String::new();
        };
        let counts = speculation.counts();
        let [tokens, steps] = [counts.tokens, counts.all_steps()].map(f64::from);
        if counts.drafted == 0 {
            return format!(", no guesses: {}", self.silence);
        }
        let each = if steps > 0.0 { tokens / steps } else { 0.0 };
        format!(
            ", {each:.2} tokens a step, {} of {} guesses right",
            counts.accepted, counts.drafted
        )
    }

    /// The same as numbers.
    pub(crate) fn figures(&self) -> Option<Value> {
        let counts = self.speculation.as_ref()?.counts();
        let [one, two, four, eight] = counts.steps;
        let mut figures = json!({
            "drafted": counts.drafted,
            "accepted": counts.accepted,
            "tokens": counts.tokens,
            "steps": { "1": one, "2": two, "4": four, "8": eight },
        });
        if counts.drafted == 0 {
            figures["no_guesses"] = json!(self.silence);
        }
        Some(figures)
    }
}
