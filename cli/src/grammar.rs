//! What the command line says a text is to be.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use warpwright_engine::grammar::{Costs, percentile};
use warpwright_engine::{
    Grammar, GrammarCompiler, GrammarText, Matcher, Model, TextEnding, Tokenizer,
};

use crate::failure::Failure;
use crate::limited;
use crate::terminal::say;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Structured output")]
#[group(multiple = false)]
pub(crate) struct GrammarArgs {
    /// Write only JSON that this JSON schema allows
    #[arg(long, alias = "json-schema-file", value_name = "FILE")]
    json_schema: Option<PathBuf>,
    /// Write only JSON that this JSON schema allows, without white space, which saves tokens
    #[arg(long, value_name = "FILE")]
    compact_json_schema: Option<PathBuf>,
    /// Write only text that this grammar in Lark's form allows, from its rule `start` on
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// Write only text that this regular expression matches as a whole
    #[arg(long, value_name = "RE", allow_hyphen_values = true)]
    regex: Option<String>,
}

impl GrammarArgs {
    /// The option that was given.
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

    /// What it says, and where it says so.
    fn read(&self) -> Result<Option<(String, GrammarText)>, Failure> {
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

    /// The grammar for a model, if there is one to follow.
    pub(crate) fn compile(
        &self,
        model: &Model,
        words: &Arc<Tokenizer>,
    ) -> Result<Option<Grammar>, Failure> {
        let Some((place, text)) = self.read()? else {
            return Ok(None);
        };
        let compiler = GrammarCompiler::new(Arc::clone(words), &model.outline)?;
        let grammar = compiler
            .compile(&text)
            .map_err(|error| Failure::Input(format!("{place}: {error}")))?;
        grammar
            .warnings()
            .iter()
            .for_each(|warning| say(format!("warning: {place}: {warning}")));
        Ok(Some(grammar))
    }
}

/// Whether a text that ended so is a whole one. A stop string cuts it anywhere.
pub(crate) fn is_complete(matcher: &mut Matcher, ending: &TextEnding) -> bool {
    !matches!(ending, TextEnding::StopString(_)) && matcher.is_complete()
}

/// What to say of a text that is not whole.
pub(crate) const INCOMPLETE: &str = "the text is not whole, the grammar goes on";

/// How long the host took for each token that was chosen, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    mask_p50_s: f64,
    mask_p99_s: f64,
    taken_p50_s: f64,
    taken_p99_s: f64,
}

impl Figures {
    /// Nothing if no token was chosen.
    pub(crate) fn of(costs: &Costs) -> Option<Figures> {
        let at = |times: &[Duration], share| Some(percentile(times, share)?.as_secs_f64());
        Some(Figures {
            mask_p50_s: at(&costs.masks, 0.5)?,
            mask_p99_s: at(&costs.masks, 0.99)?,
            taken_p50_s: at(&costs.taken, 0.5)?,
            taken_p99_s: at(&costs.taken, 0.99)?,
        })
    }
}

/// What a grammar cost, in a sentence.
pub(crate) fn line(costs: &Costs) -> String {
    let forced = costs.forced;
    let Some(figures) = Figures::of(costs) else {
        return format!("grammar: {forced} tokens forced, none chosen");
    };
    let [mask, mask99] = [figures.mask_p50_s, figures.mask_p99_s].map(|s| 1e3 * s);
    let [taken, taken99] = [figures.taken_p50_s, figures.taken_p99_s].map(|s| 1e3 * s);
    let chosen = costs.masks.len();
    format!(
        "grammar: {forced} tokens forced, {chosen} chosen, each with a mask in {mask:.3} ms (p99 {mask99:.3}) beside the \
         forward pass and {taken:.3} ms (p99 {taken99:.3}) before it"
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
        let costs = Costs {
            masks: times(&[3, 1, 2]),
            taken: times(&[1, 1, 4]),
            forced: 5,
        };
        assert_eq!(
            line(&costs),
            "grammar: 5 tokens forced, 3 chosen, each with a mask in 0.200 ms (p99 0.300) beside the forward pass and \
             0.100 ms (p99 0.400) before it"
        );
        let none = Costs {
            forced: 2,
            ..Costs::default()
        };
        assert_eq!(line(&none), "grammar: 2 tokens forced, none chosen");
    }
}
