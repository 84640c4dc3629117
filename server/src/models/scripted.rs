//! Models whose replies come from a file, to test clients without a GPU.
//!
//! Each line of the file is a rule in JSON: `{"match": "..", "reply": ".."}`. A rule without `match`
//! matches every prompt. The reply is that of the rule whose `match` occurs last in the text of the
//! prompt, because the last message of a conversation is at its end. Among rules that end at the
//! same place, the longest `match` counts, and then the first rule.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use warpwright_model::Tokenizer;

use super::loader::{LoadError, LoadProgress, ModelEntry, ModelLoader};
use super::opened::OpenedModel;
use super::overrides::RequestOverrides;
use super::served::ServedModel;
use crate::engine::scripted::PrefixReuse;
use crate::engine::{EngineLimits, ScriptedEngine};
use crate::scheduler::{Scheduler, SchedulerOptions};

/// The number of positions per page of the cache.
const PAGE: u32 = 64;

/// Loads the tokenizer and the templates of a model, with replies from a file instead of weights.
pub struct ScriptedLoader {
    rules: Arc<Vec<ScriptedRule>>,
    overrides: RequestOverrides,
    sizes: ScriptedSizes,
}

/// The sizes of a scripted model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptedSizes {
    /// The number of positions per sequence.
    pub ctx: u32,
    /// The maximum number of sequences at a time.
    pub sequences: u32,
    /// The time that each token takes.
    pub token: Duration,
    /// The maximum number of requests that wait for a slot.
    pub queue: usize,
}

/// A rule of a script.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedRule {
    /// The text in the prompt.
    #[serde(rename = "match", default)]
    text: String,
    /// The text of the reply. Names of control tokens become these tokens.
    reply: String,
}

impl ScriptedLoader {
    /// Reads a script.
    ///
    /// # Errors
    /// Returns the number of the first line that is not a rule, or the reason why there is none.
    pub fn new(
        script: &str,
        sizes: ScriptedSizes,
        overrides: RequestOverrides,
    ) -> Result<ScriptedLoader, String> {
        let mut rules: Vec<ScriptedRule> = vec![];
        for (number, line) in script.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let rule = serde_json::from_str(line)
                .map_err(|error| format!("line {}: {error}", number + 1))?;
            rules.push(rule);
        }
        if rules.is_empty() {
            return Err(
                "there is no rule: expected lines such as {\"reply\": \"Hello\"}".to_owned(),
            );
        }
        Ok(ScriptedLoader {
            rules: Arc::new(rules),
            overrides,
            sizes,
        })
    }
}

impl ModelLoader for ScriptedLoader {
    fn load(&self, entry: &ModelEntry, _: &LoadProgress) -> Result<ServedModel, LoadError> {
        let mut opened = OpenedModel::open(&entry.path).map_err(LoadError::Failed)?;
        self.overrides
            .apply(&mut opened)
            .map_err(LoadError::Failed)?;
        "scripted replies".clone_into(&mut opened.description.engine);
        let ScriptedSizes {
            ctx,
            sequences,
            token,
            queue,
        } = self.sizes;
        let limits = EngineLimits {
            sequences,
            ctx,
            tokens_per_step: 2048,
            pages: sequences.saturating_mul(ctx.div_ceil(PAGE)),
            page_len: PAGE,
            vocab: opened.model.outline.config.vocab,
            logprobs: 20,
        };
        let stop = opened.model.outline.stop.clone();
        let end = stop.first().copied();
        let tokenizer = Arc::clone(&opened.tokenizer);
        let rules = Arc::clone(&self.rules);
        let script = move |prompt: &[u32]| reply(&tokenizer, &rules, prompt, end);
        let engine = ScriptedEngine::new(limits, stop, Box::new(script))
            .with_delays(Duration::ZERO, token)
            .with_prefix_reuse(PrefixReuse::Pages);
        let options = SchedulerOptions {
            queue,
            ..SchedulerOptions::default()
        };
        let scheduler = Scheduler::start(Box::new(engine), options);
        Ok(opened.serve(entry.name.clone(), scheduler))
    }
}

/// Returns the tokens of the reply to a prompt.
fn reply(
    tokenizer: &Tokenizer,
    rules: &[ScriptedRule],
    prompt: &[u32],
    end: Option<u32>,
) -> Vec<u32> {
    let mut stream = tokenizer.stream();
    stream.spell(|_| true);
    let mut text = String::new();
    for token in prompt {
        text.push_str(&stream.push(*token));
    }
    text.push_str(&stream.finish());

    let reply = choose(rules, &text);
    let tokens = tokenizer.encode_rest(reply).unwrap_or_else(|error| {
        tracing::error!(%error, reply, "the scripted reply cannot be tokenized");
        vec![]
    });
    tokens.into_iter().chain(end).collect()
}

/// Returns the reply of the rule that matches last, or an explanation if none does.
fn choose<'a>(rules: &'a [ScriptedRule], prompt: &str) -> &'a str {
    let ends = rules.iter().filter_map(|rule| {
        let start = prompt.rfind(&rule.text)?;
        // The empty text is found at the end, but matches least.
        let end = if rule.text.is_empty() {
            0
        } else {
            start + rule.text.len()
        };
        Some((end, rule.text.len(), rule))
    });
    // `max_by_key` returns the last maximum, and the first rule counts.
    let best = ends.rev().max_by_key(|(end, len, _)| (*end, *len));
    best.map_or("The script has no rule for this prompt.", |(_, _, rule)| {
        &rule.reply
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(script: &str) -> Result<Vec<ScriptedRule>, String> {
        let sizes = ScriptedSizes {
            ctx: 64,
            sequences: 1,
            token: Duration::ZERO,
            queue: 1,
        };
        let loader = ScriptedLoader::new(script, sizes, RequestOverrides::default())?;
        Ok(Arc::into_inner(loader.rules).unwrap())
    }

    #[test]
    fn the_last_match_counts() {
        let rules = rules(
            r#"{"match": "list", "reply": "call"}
               {"match": "a list", "reply": "longer"}

               {"match": "<result>", "reply": "done"}
               {"reply": "other"}
               {"reply": "never"}"#,
        )
        .unwrap();
        for (prompt, reply) in [
            ("the list", "call"),
            ("a list", "longer"),
            ("tools: <result> user: the list", "call"),
            ("user: the list <result> 5", "done"),
            ("hello", "other"),
            ("", "other"),
        ] {
            assert_eq!(choose(&rules, prompt), reply, "{prompt}");
        }
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = rules("{\"reply\": \"a\"}\n{\"replies\": 1}").unwrap_err();
        assert!(
            error.starts_with("line 2: unknown field `replies`"),
            "{error}"
        );
        let error = rules(" \n").unwrap_err();
        assert!(error.starts_with("there is no rule"), "{error}");
    }
}
