//! The options of structured output, and the statistics of a grammar.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use warpwright_model::grammar::{GrammarCosts, percentile};
use warpwright_model::{
    Grammar, GrammarCompiler, GrammarText, Matcher, Model, TextEnding, Tokenizer,
};

use crate::failure::Failure;
use crate::prompt::limited;
use warpwright_emu::terminal::say;

/// Options that constrain the text to a schema, a grammar or a regular expression.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Structured output")]
#[group(multiple = false)]
pub(crate) struct GrammarArgs {
    /// Write only JSON that the JSON schema in FILE allows
    #[arg(long, alias = "json-schema-file", value_name = "FILE")]
    json_schema: Option<PathBuf>,
    /// Write only JSON that the JSON schema in FILE allows, without white space, which saves tokens
    #[arg(long, value_name = "FILE")]
    compact_json_schema: Option<PathBuf>,
    /// Write only text that the Lark grammar in FILE allows, beginning with its rule `start`
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// Write only text that the regular expression RE matches from beginning to end
    #[arg(long, value_name = "RE", allow_hyphen_values = true)]
    regex: Option<String>,
}

impl GrammarArgs {
    /// Returns the option that was given, if there is one.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--json-schema", self.json_schema.is_some()),
            ("--compact-json-schema", self.compact_json_schema.is_some()),
            ("--grammar", self.grammar.is_some()),
            ("--regex", self.regex.is_some()),
        ];
        given
            .into_iter()
            .find(|(_, given)| *given)
            .map(|(option, _)| option)
    }

    /// Reads the grammar and returns it with the name of its source, for messages.
    fn read(&self) -> Result<Option<(String, GrammarText)>, Failure> {
        // clap allows at most one of these options.
        let place = |file: &PathBuf| file.display().to_string();
        Ok(match self {
            GrammarArgs {
                json_schema: Some(file),
                ..
            } => Some((
                place(file),
                GrammarText::JsonSchema(limited::read("JSON schema", file)?),
            )),
            GrammarArgs {
                compact_json_schema: Some(file),
                ..
            } => Some((
                place(file),
                GrammarText::CompactJsonSchema(limited::read("JSON schema", file)?),
            )),
            GrammarArgs {
                grammar: Some(file),
                ..
            } => Some((
                place(file),
                GrammarText::Lark(limited::read("grammar", file)?),
            )),
            GrammarArgs {
                regex: Some(regex), ..
            } => Some(("--regex".to_owned(), GrammarText::Regex(regex.clone()))),
            _ => None,
        })
    }

    /// Compiles the grammar for the vocabulary of a model, and prints its warnings.
    ///
    /// Returns `None` if no option asks for a grammar.
    ///
    /// # Errors
    /// Returns an error if the grammar cannot be read or compiled.
    pub(crate) fn compile(
        &self,
        model: &Model,
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Option<Grammar>, Failure> {
        let Some((place, text)) = self.read()? else {
            return Ok(None);
        };

        let compiler = GrammarCompiler::new(Arc::clone(tokenizer), &model.outline)?;
        let grammar = compiler
            .compile(&text)
            .map_err(|error| Failure::Input(format!("{place}: {error}")))?;
        for warning in grammar.warnings() {
            say(format!("warning: {place}: {warning}"));
        }

        Ok(Some(grammar))
    }
}

/// Returns true if a text that ended like this is complete within its grammar.
///
/// A stop string can end a text anywhere, and the stop string itself is dropped from it. So a text
/// that ended with one never counts as complete.
pub(crate) fn is_complete(matcher: &mut Matcher, ending: &TextEnding) -> bool {
    !matches!(ending, TextEnding::StopString(_)) && matcher.is_complete()
}

/// The message about a text that ended before its grammar did.
pub(crate) const INCOMPLETE: &str = "the text is incomplete: its grammar requires more";

/// The time that the CPU took per chosen token, in seconds, at the median and at the 99th
/// percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct GrammarTimes {
    mask_p50_s: f64,
    mask_p99_s: f64,
    taken_p50_s: f64,
    taken_p99_s: f64,
}

impl GrammarTimes {
    /// Returns the percentiles of `costs`, or `None` if no token was chosen.
    pub(crate) fn new(costs: &GrammarCosts) -> Option<GrammarTimes> {
        let at = |times: &[Duration], share| Some(percentile(times, share)?.as_secs_f64());
        Some(GrammarTimes {
            mask_p50_s: at(&costs.masks, 0.5)?,
            mask_p99_s: at(&costs.masks, 0.99)?,
            taken_p50_s: at(&costs.taken, 0.5)?,
            taken_p99_s: at(&costs.taken, 0.99)?,
        })
    }
}

/// Returns the line of statistics about a grammar.
pub(crate) fn line(costs: &GrammarCosts) -> String {
    let forced = costs.forced;
    let Some(times) = GrammarTimes::new(costs) else {
        return format!("grammar: {forced} tokens forced, none chosen");
    };

    let mask = 1e3 * times.mask_p50_s;
    let mask_p99 = 1e3 * times.mask_p99_s;
    let taken = 1e3 * times.taken_p50_s;
    let taken_p99 = 1e3 * times.taken_p99_s;
    let chosen = costs.masks.len();
    format!(
        "grammar: {forced} tokens forced, {chosen} chosen; CPU time per chosen token {mask:.3} ms (p99 {mask_p99:.3}) \
         during the forward pass and {taken:.3} ms (p99 {taken_p99:.3}) before it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_a_token_costs() {
        let times = |ms: &[u64]| {
            ms.iter()
                .map(|ms| Duration::from_micros(100 * ms))
                .collect::<Vec<_>>()
        };
        let costs = GrammarCosts {
            masks: times(&[3, 1, 2]),
            taken: times(&[1, 1, 4]),
            forced: 5,
        };
        assert_eq!(
            line(&costs),
            "grammar: 5 tokens forced, 3 chosen; CPU time per chosen token 0.200 ms (p99 0.300) during the forward pass \
             and 0.100 ms (p99 0.400) before it"
        );
        let none = GrammarCosts {
            forced: 2,
            ..GrammarCosts::default()
        };
        assert_eq!(line(&none), "grammar: 2 tokens forced, none chosen");
    }
}
