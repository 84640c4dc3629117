//! Tips for unknown commands and options.
//!
//! clap suggests the most similar name, for example `--logprobs` for `--lora`. Here, a tip comes
//! from a table of the names that other programs use, or it corrects a typing error.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use super::words::{self, CalledCommand};
use warpwright_emu::misspelling::{is_typo, similar_option};

/// Names of commands in other programs, and the replacement here.
const COMMANDS: [(&[&str], CommandReplacement); 17] = [
    (
        &[
            "generate",
            "complete",
            "completion",
            "prompt",
            "predict",
            "infer",
            "cli",
            "main",
        ],
        CommandReplacement::Command("run"),
    ),
    (
        &["talk", "interactive", "repl", "ask", "conversation"],
        CommandReplacement::Command("chat"),
    ),
    (
        &["train", "tune", "fine-tune", "lora", "qlora", "sft"],
        CommandReplacement::Command("finetune"),
    ),
    (
        &["export-lora", "fuse"],
        CommandReplacement::Command("merge"),
    ),
    (
        &["show", "inspect", "gguf-dump", "metadata"],
        CommandReplacement::Command("info"),
    ),
    (
        &["ppl", "score", "eval", "evaluate"],
        CommandReplacement::Command("perplexity"),
    ),
    (
        &["embedding", "embeddings", "encode-text"],
        CommandReplacement::Command("embed"),
    ),
    (
        &["token", "tokens", "encode"],
        CommandReplacement::Command("tokenize"),
    ),
    (&["decode"], CommandReplacement::Command("detokenize")),
    (
        &["benchmark", "speed", "profile", "perf"],
        CommandReplacement::Command("bench"),
    ),
    (
        &["gpu", "gpus", "device", "list-devices"],
        CommandReplacement::Command("devices"),
    ),
    (
        &["test", "verify", "selftest"],
        CommandReplacement::Command("check"),
    ),
    (
        &[
            "emulate",
            "sanitize",
            "sanitizer",
            "memcheck",
            "racecheck",
            "ptx",
        ],
        CommandReplacement::Command("emu"),
    ),
    (
        &["pull", "download", "fetch", "get", "install"],
        CommandReplacement::Command("pull"),
    ),
    (
        &["models", "list", "ls", "ps", "rm", "remove", "delete"],
        CommandReplacement::Command("models"),
    ),
    (
        &["server", "start", "api", "llama-server"],
        CommandReplacement::Command("serve"),
    ),
    (
        &[
            "convert", "quantize", "quantise", "create", "export", "import",
        ],
        CommandReplacement::Nothing(
            "Warpwright does not convert models: use llama.cpp's convert_hf_to_gguf.py and llama-quantize, or download \
             a converted file",
        ),
    ),
];

/// The replacement for a command.
#[derive(Clone, Copy)]
enum CommandReplacement {
    /// The command with this name.
    Command(&'static str),
    /// No command. The sentence explains it.
    Nothing(&'static str),
}

/// Names of options in other programs, and the option here. A tip appears only in a command that
/// has the option.
const OPTIONS: [(&[&str], &str); 33] = [
    (
        &[
            "max-tokens",
            "max-new-tokens",
            "num-predict",
            "max-length",
            "length",
            "num-tokens",
            "tokens",
            "n",
        ],
        "n-predict",
    ),
    (
        &[
            "num-ctx",
            "context",
            "context-length",
            "context-size",
            "max-model-len",
            "n-ctx",
            "max-context",
        ],
        "ctx",
    ),
    (&["repetition-penalty", "penalty-repeat"], "repeat-penalty"),
    (
        &["lora", "lora-path", "peft", "lora-scaled", "adapter-path"],
        "adapter",
    ),
    (
        &[
            "reverse-prompt",
            "stop-sequence",
            "stop-sequences",
            "stop-string",
            "stop-token",
        ],
        "stop",
    ),
    (&["format", "json-output", "output-format"], "json"),
    (&["schema", "response-format", "guided-json"], "json-schema"),
    (&["pattern", "guided-regex"], "regex"),
    (&["gpu", "cuda", "cpu", "backend", "device-id"], "device"),
    (&["speculative", "draft-path", "assistant-model"], "draft"),
    (
        &["ngram", "prompt-lookup", "prompt-lookup-num-tokens"],
        "lookup",
    ),
    (&["template", "jinja-template"], "chat-template"),
    (&["sys", "system-message"], "system"),
    (&["conversation", "single-turn", "instruct"], "chat"),
    (&["no-display-prompt", "silent", "no-echo"], "quiet"),
    (&["learning-rate"], "lr"),
    (
        &["num-epochs", "num-train-epochs", "n-epochs", "epoch"],
        "epochs",
    ),
    (&["max-steps", "num-steps", "iters"], "steps"),
    (
        &[
            "batch-size",
            "per-device-train-batch-size",
            "micro-batch-size",
        ],
        "batch",
    ),
    (
        &[
            "gradient-accumulation-steps",
            "gradient-accumulation",
            "accumulate",
        ],
        "grad-accum",
    ),
    (
        &[
            "max-seq-length",
            "max-seq-len",
            "seq-len",
            "sequence-len",
            "cutoff-len",
            "block-size",
        ],
        "seq",
    ),
    (&["lora-r", "lora-rank", "r"], "rank"),
    (&["lora-alpha"], "alpha"),
    (&["lora-dropout"], "dropout"),
    (&["target-modules", "lora-target", "modules"], "targets"),
    (&["warmup-steps", "warmup-ratio"], "warmup"),
    (
        &["lr-scheduler", "lr-scheduler-type", "scheduler"],
        "schedule",
    ),
    (&["max-grad-norm", "grad-clip", "gradient-clip-val"], "clip"),
    (
        &["dataset", "train-file", "train-data", "train", "data-path"],
        "data",
    ),
    (
        &["validation-file", "eval-data", "valid", "val-data"],
        "eval",
    ),
    (&["save-steps"], "save-every"),
    (
        &["output", "output-dir", "outfile", "o", "save-path"],
        "out",
    ),
    (&["resume-from-checkpoint", "checkpoint"], "resume"),
];

/// Options of other programs without a counterpart, and the reason.
const ABSENT: [(&[&str], &str); 8] = [
    (
        &[
            "mirostat",
            "mirostat-lr",
            "mirostat-ent",
            "dry-multiplier",
            "dry-base",
            "dry-allowed-length",
            "xtc-probability",
            "xtc-threshold",
            "dynatemp-range",
            "dynatemp-exp",
            "top-nsigma",
            "top-n-sigma",
            "samplers",
            "sampler-seq",
            "sampling-seq",
            "tfs",
            "top-a",
        ],
        "this sampler does not exist here; the options under \"Sampling\" in --help do",
    ),
    (
        &[
            "interactive",
            "i",
            "interactive-first",
            "cnv",
            "st",
            "multiline-input",
            "mli",
        ],
        "'warpwright chat' has a conversation",
    ),
    (
        &["e", "escape"],
        "a prompt is never unescaped: let the shell do it, as in $'line 1\\nline 2', or use a file",
    ),
    (
        &["sysf", "system-prompt-file"],
        "let the shell read the file: --system \"$(cat FILE)\"",
    ),
    (
        &["stream", "no-stream"],
        "run and chat always print each token as it comes",
    ),
    (
        &["hf-token", "hft"],
        "set the environment variable HF_TOKEN",
    ),
    (
        &["grammar-file", "gbnf"],
        "grammars are in Lark's form: --grammar FILE; GBNF is not read",
    ),
    (
        &["verbose", "debug"],
        "there is no verbose output; without --quiet, run prints its statistics",
    ),
];

/// Returns the error for a word that clap would take for a request for help.
pub(super) fn unexpected(word: OsString, program: &mut Command, words: &[OsString]) -> Error {
    let mut error = Error::new(ErrorKind::UnknownArgument).with_cmd(program);
    error.insert(
        ContextKind::InvalidArg,
        ContextValue::String(word.to_string_lossy().into_owned()),
    );
    explain(error, program, words)
}

/// Replaces clap's suggestions.
pub(super) fn explain(mut error: Error, program: &mut Command, words: &[OsString]) -> Error {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            error.remove(ContextKind::SuggestedSubcommand);
            error.remove(ContextKind::Suggested);
            let name = string(&error, ContextKind::InvalidSubcommand);
            name.and_then(|name| match words::called(program, words) {
                None => of_command(&name, program),
                Some(CalledCommand { command, .. }) => similar_command(&name, command),
            })
        }
        ErrorKind::UnknownArgument => {
            error.remove(ContextKind::SuggestedArg);
            error.remove(ContextKind::Suggested);
            // clap's usage contains the option that it would have proposed.
            if let Some(usage) = usage(program, words) {
                error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
            }
            let word = string(&error, ContextKind::InvalidArg);
            word.and_then(|word| of_argument(&word, program, words))
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

/// Returns the usage of the command that `words` call.
fn usage(program: &mut Command, words: &[OsString]) -> Option<StyledStr> {
    let names = words::called(program, words)?.names;
    let mut command = program;
    for name in names {
        command = command.find_subcommand_mut(name)?;
    }
    Some(command.render_usage())
}

/// Returns a text from the context of clap's error.
fn string(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Returns a tip for an unknown command.
fn of_command(word: &str, program: &Command) -> Option<String> {
    let use_it = |name: &str| format!("use 'warpwright {name}'");
    let lower = word.to_lowercase();
    if let Some((_, instead)) = COMMANDS
        .iter()
        .find(|(names, _)| names.contains(&lower.as_str()))
    {
        return Some(match *instead {
            CommandReplacement::Command(name) => use_it(name),
            CommandReplacement::Nothing(sentence) => sentence.to_owned(),
        });
    }

    if let Some(tip) = similar_command(&lower, program) {
        return Some(tip);
    }

    // llama.cpp has no commands, and Ollama's users often leave `run` out.
    let is_model =
        lower.ends_with(".gguf") || lower.starts_with("hf:") || std::path::Path::new(word).exists();
    if !is_model {
        return None;
    }

    Some(format!(
        "a command comes first: 'warpwright run {word}' or 'warpwright chat {word}'"
    ))
}

/// Returns a tip for a misspelled subcommand of `parent`.
fn similar_command(word: &str, parent: &Command) -> Option<String> {
    let mut names = parent.get_subcommands().map(Command::get_name);
    let name = names.find(|name| is_typo(word, name))?;
    Some(format!("a similar command exists: '{name}'"))
}

/// Returns a tip for a word that the command does not accept.
fn of_argument(word: &str, program: &Command, words: &[OsString]) -> Option<String> {
    let Some(CalledCommand { names, command, .. }) = words::called(program, words) else {
        if !word.starts_with('-') || words.len() < 2 {
            return None;
        }
        let tip = "a command comes first, such as 'warpwright run' or 'warpwright chat'";
        return Some(tip.to_owned());
    };

    let Some(dashless) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
        return extra_positional(word, command);
    };

    // Programs in Python often spell options with underscores.
    let name = dashless
        .split('=')
        .next()
        .unwrap_or_default()
        .to_lowercase()
        .replace('_', "-");
    let longs: Vec<&str> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let exact = command
        .get_arguments()
        .find(|arg| words::has_long(arg, &name))
        .and_then(clap::Arg::get_long);
    let renamed = OPTIONS
        .iter()
        .find(|(names, _)| names.contains(&name.as_str()));
    let renamed = renamed
        .map(|(_, option)| *option)
        .filter(|option| longs.contains(option));
    if let Some(long) = exact.or(renamed) {
        return Some(format!("use '--{long}'"));
    }

    if let Some((_, why)) = ABSENT
        .iter()
        .find(|(names, _)| names.contains(&name.as_str()))
    {
        return Some((*why).to_owned());
    }

    similar_option(word, command).or_else(|| {
        let other = if word.starts_with("--") {
            command_with_option(program, &names, &name)?
        } else {
            return None;
        };
        Some(format!("'--{name}' is an option of 'warpwright {other}'"))
    })
}

/// Returns the names of a command that has an option. Commands with the same parent as the called
/// command, whose names are `names`, come first.
fn command_with_option(program: &Command, names: &[String], option: &str) -> Option<String> {
    let has_option = |command: &Command| {
        command
            .get_arguments()
            .any(|arg| words::has_long(arg, option))
    };
    let below = |parent: &Command| {
        let found = parent.get_subcommands().find(|inner| has_option(inner))?;
        Some(format!("{} {}", parent.get_name(), found.get_name()))
    };
    let sibling = || match names {
        [parent, _] => below(program.find_subcommand(parent)?),
        _ => None,
    };
    let top = || {
        let found = program.get_subcommands().find(|other| has_option(other))?;
        Some(found.get_name().to_owned())
    };
    sibling()
        .or_else(top)
        .or_else(|| program.get_subcommands().find_map(below))
}

/// Returns a tip for one positional too many.
fn extra_positional(word: &str, command: &Command) -> Option<String> {
    let text = command
        .get_positionals()
        .find(|arg| ["prompt", "text"].contains(&arg.get_id().as_str()))?;
    let name = text
        .get_value_names()
        .and_then(|names| names.first())
        .map_or("TEXT", |name| name.as_str());
    Some(format!(
        "a {name} of several words is one argument: put it in quotes, as in \"... {word}\""
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Each command and option that a tip proposes exists, and no name is in two rows.
    #[test]
    fn tips_are_about_what_exists() {
        let program = Cli::command();
        let mut names: Vec<&str> = vec![];
        for (row, instead) in COMMANDS {
            names.extend(row);
            if let CommandReplacement::Command(name) = instead {
                assert!(program.find_subcommand(name).is_some(), "{name}");
            }
        }

        let long = |name: &str| command_with_option(&program, &[], name).is_some();
        let mut options: Vec<&str> = vec![];
        for (row, option) in OPTIONS {
            options.extend(row);
            assert!(long(option), "{option}");
        }

        options.extend(ABSENT.iter().flat_map(|(row, _)| *row));
        for names in [names, options] {
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), names.len());
        }
    }
}
