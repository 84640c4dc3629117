//! The options of speculative decoding, and the [`TextGenerator`] that generates text with or
//! without it.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpwright_engine::info::token_bytes;
use warpwright_engine::{
    Decoder, DraftModel, Generation, PromptLookup, Speculation, same_vocabulary,
};
use warpwright_model::{Matcher, Model, Tokenizer};

use crate::failure::Failure;
use crate::model::options::locate;

/// Options of speculative decoding. The text is the same with and without it.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Speculative decoding")]
pub(crate) struct SpeculativeArgs {
    /// Guess that text repeats: propose what followed the last N tokens earlier [N: 3]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16), conflicts_with = "draft")]
    lookup: Option<u32>,
    /// Smaller model with the same vocabulary that guesses tokens for MODEL to verify
    #[arg(long, alias = "model-draft", value_name = "MODEL")]
    draft: Option<PathBuf>,
    /// Largest number of guessed tokens to verify in one step, 1 to 7 [default: 7]
    #[arg(long, alias = "draft-n", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7))]
    draft_max: Option<u32>,
    /// Always guess --draft-max tokens per step, even if fewer seem to be faster
    #[arg(long)]
    draft_always: bool,
}

/// A loaded model that generates text, with its speculation if there is one.
pub(crate) struct TextGenerator {
    pub(crate) decoder: Decoder,
    pub(crate) speculation: Option<Speculation>,
    /// The reason to report if no token was guessed.
    pub(crate) no_guesses: String,
}

impl SpeculativeArgs {
    /// Returns the largest number of tokens that are guessed per step, or 0 without speculation.
    pub(crate) fn max_drafts(&self) -> u32 {
        let guesses = self.lookup.is_some() || self.draft.is_some();
        if guesses {
            self.draft_max.unwrap_or(7)
        } else {
            0
        }
    }

    /// Checks that options about guesses come with an option that makes guesses.
    ///
    /// # Errors
    /// Returns an error that names the first such option.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let given = [
            ("--draft-max", self.draft_max.is_some()),
            ("--draft-always", self.draft_always),
        ];
        match given
            .into_iter()
            .find(|(_, given)| *given && self.max_drafts() == 0)
        {
            Some((option, _)) => Err(Failure::Input(format!(
                "{option} has no guesses to apply to: add --lookup or --draft MODEL"
            ))),
            None => Ok(()),
        }
    }

    /// Opens the draft model, if there is one, and checks that it has the vocabulary of `model`.
    ///
    /// `tokenizer` is the tokenizer of `model` if the caller has made it already.
    ///
    /// # Errors
    /// Returns an error if the draft model cannot be opened, or if its vocabulary differs.
    pub(crate) fn open(
        &self,
        model: &Model,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Option<Model>, Failure> {
        let Some(path) = &self.draft else {
            return Ok(None);
        };

        let draft = Model::open(&locate(path)?)?;
        let made;
        let tokenizer = match tokenizer {
            Some(tokenizer) => tokenizer,
            None => {
                made = model.tokenizer()?;
                &made
            }
        };
        same_vocabulary(tokenizer, &draft.tokenizer()?)
            .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        Ok(Some(draft))
    }

    /// Returns the speculation of the options: by the draft model and its decoder, or by prompt
    /// lookup.
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

    /// Returns the reason to report if a text that is long enough had no guesses.
    pub(crate) fn no_guesses(&self, model: &Model, draft: Option<&Model>) -> String {
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

    /// Wraps a drafter. Without `--draft-always`, the number of guesses adapts to how often they
    /// are right.
    fn paced(&self, drafter: impl warpwright_engine::Drafter + 'static) -> Speculation {
        if self.draft_always {
            Speculation::eager(drafter)
        } else {
            Speculation::new(drafter)
        }
    }
}

impl TextGenerator {
    /// Generates at most `limit` tokens after `have`, which must be the tokens in the decoder's
    /// cache.
    ///
    /// With a matcher, each token is one that its grammar allows, and no token is guessed.
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

    /// Returns the end of a line of statistics: how many guesses were right. It is empty without
    /// speculation.
    pub(crate) fn summary(&self) -> String {
        let Some(speculation) = &self.speculation else {
            return String::new();
        };

        let counts = speculation.counts();
        let [tokens, steps] = [counts.tokens, counts.all_steps()].map(f64::from);
        if counts.drafted == 0 {
            return format!(", no guesses: {}", self.no_guesses);
        }

        let each = if steps > 0.0 { tokens / steps } else { 0.0 };
        format!(
            ", {each:.2} tokens a step, {} of {} guesses right",
            counts.accepted, counts.drafted
        )
    }

    /// Returns the counts of guesses for `--json`, or `None` without speculation.
    pub(crate) fn counts_json(&self) -> Option<Value> {
        let counts = self.speculation.as_ref()?.counts();
        let [one, two, four, eight] = counts.steps;
        let mut figures = json!({
            "drafted": counts.drafted,
            "accepted": counts.accepted,
            "tokens": counts.tokens,
            "steps": { "1": one, "2": two, "4": four, "8": eight },
        });
        if counts.drafted == 0 {
            figures["no_guesses"] = json!(self.no_guesses);
        }

        Some(figures)
    }
}
