//! Options in llama.cpp's spelling (`common/arg.cpp`) that clap cannot express.
//!
//! Other spellings, such as `--ctx-size`, are aliases of the options themselves. This module
//! replaces options with several letters after one dash. Options without a counterpart are accepted
//! with a note, so that a command line for llama.cpp works unless it needs something that
//! Warpwright does not support.

use std::ffi::{OsStr, OsString};

use clap::Command;

use super::words::{self, CalledCommand, CommandPiece, Foreign};

/// A command line in the spelling of this program.
pub(super) struct Respelled {
    pub(super) words: Vec<OsString>,
    /// A note for each option that has no effect.
    pub(super) notes: Vec<String>,
}

/// An option of llama.cpp.
struct LlamaSpelling {
    names: &'static [&'static str],
    value: OptionValue,
    meaning: Meaning,
}

/// The value of an option, which is the next word or absent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionValue {
    None,
    /// The next word, if there is one.
    Required,
    /// The next word if it is a number or one of the listed words.
    Number(&'static [&'static str]),
    /// The next word if it is one of the listed words.
    OneOf(&'static [&'static str]),
}

/// The meaning of an option here.
#[derive(Clone, Copy)]
enum Meaning {
    /// The option of this program with the same meaning.
    Option(&'static str),
    /// A repository on the Hugging Face hub, which becomes the value of the named option.
    Hub(&'static str),
    /// A file in the repository of [`Meaning::Hub`].
    HubFile,
    /// The number of a GPU.
    Gpu,
    /// No effect, for the given reason.
    NoEffect(&'static str),
    /// An unsupported option. clap would read it as a short option with a value, for example `-cnv`
    /// as `-c nv`.
    Refused,
}

use Meaning::{Gpu, Hub, HubFile, NoEffect, Option as Same, Refused};

const AUTO: &[&str] = &["auto", "all"];
const SWITCH: &[&str] = &[
    "on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled",
];

const ON_THE_DEVICE: &str = "all layers and the cache are on the device that --device names";
const THREADS: &str = "the model runs on a device, which divides the work by itself";
const MEMORY: &str = "weights are copied to the device once, whatever the file was read with";
const BATCH: &str = "prompts are read in chunks of a fixed size";
const CACHE: &str = "the cache is always in binary16";
const LOGS: &str = "there is no log";
const RAW: &str = "run always continues the text, and chat always has a conversation";

const fn spelling(
    names: &'static [&'static str],
    value: OptionValue,
    meaning: Meaning,
) -> LlamaSpelling {
    LlamaSpelling {
        names,
        value,
        meaning,
    }
}

const SPELLINGS: [LlamaSpelling; 43] = [
    spelling(
        &["-hf", "-hfr", "--hf-repo"],
        OptionValue::Required,
        Hub("--model"),
    ),
    spelling(&["-hff", "--hf-file"], OptionValue::Required, HubFile),
    spelling(
        &[
            "-cnv", "-mli", "-mu", "-cl", "-cd", "-st", "-sp", "-sysf", "-hft", "-hfv",
        ],
        OptionValue::None,
        Refused,
    ),
    spelling(
        &["-cb", "--cont-batching", "-nocb", "--no-cont-batching"],
        OptionValue::None,
        NoEffect(BATCH),
    ),
    spelling(
        &["-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"],
        OptionValue::Required,
        Hub("--draft"),
    ),
    spelling(&["-md"], OptionValue::Required, Same("--draft")),
    spelling(&["-sys"], OptionValue::Required, Same("--system")),
    spelling(&["-jf"], OptionValue::Required, Same("--json-schema")),
    spelling(&["-dev"], OptionValue::Required, Same("--device")),
    spelling(&["-np"], OptionValue::Required, Same("--sequences")),
    spelling(
        &["--metrics", "--slots", "--props"],
        OptionValue::None,
        NoEffect("the endpoints with facts about the server are always there"),
    ),
    spelling(
        &["--embedding", "--embeddings"],
        OptionValue::None,
        NoEffect("every model answers requests for embeddings"),
    ),
    spelling(&["-mg", "--main-gpu"], OptionValue::Required, Gpu),
    spelling(
        &["-ngl", "--gpu-layers", "--n-gpu-layers"],
        OptionValue::Number(AUTO),
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &[
            "-ngld",
            "--gpu-layers-draft",
            "--n-gpu-layers-draft",
            "--spec-draft-ngl",
        ],
        OptionValue::Number(AUTO),
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-sm", "--split-mode"],
        OptionValue::OneOf(&["none", "layer", "row", "tensor"]),
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-ts", "--tensor-split"],
        OptionValue::Required,
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"],
        OptionValue::None,
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-cmoe", "--cpu-moe"],
        OptionValue::None,
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-ncmoe", "--n-cpu-moe"],
        OptionValue::Number(&[]),
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-ot", "--override-tensor"],
        OptionValue::Required,
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-fit", "--fit"],
        OptionValue::OneOf(SWITCH),
        NoEffect(ON_THE_DEVICE),
    ),
    spelling(
        &["-t", "--threads", "-tb", "--threads-batch"],
        OptionValue::Number(&[]),
        NoEffect(THREADS),
    ),
    spelling(
        &["-td", "--threads-draft", "-tbd", "--threads-batch-draft"],
        OptionValue::Number(&[]),
        NoEffect(THREADS),
    ),
    spelling(
        &["-C", "--cpu-mask", "-Cr", "--cpu-range"],
        OptionValue::Required,
        NoEffect(THREADS),
    ),
    spelling(
        &["--cpu-strict", "--prio", "--poll"],
        OptionValue::Number(&[]),
        NoEffect(THREADS),
    ),
    spelling(
        &["--numa"],
        OptionValue::OneOf(&["distribute", "isolate", "numactl"]),
        NoEffect(THREADS),
    ),
    spelling(
        &["--mlock", "--mmap", "--no-mmap", "-dio", "--direct-io"],
        OptionValue::None,
        NoEffect(MEMORY),
    ),
    spelling(
        &["--repack", "-nr", "--no-repack", "--no-host"],
        OptionValue::None,
        NoEffect(MEMORY),
    ),
    spelling(
        &["-fa", "--flash-attn"],
        OptionValue::OneOf(SWITCH),
        NoEffect("there is one kernel for attention, which keeps no scores in memory"),
    ),
    spelling(
        &["-b", "--batch-size", "-ub", "--ubatch-size"],
        OptionValue::Number(&[]),
        NoEffect(BATCH),
    ),
    spelling(
        &["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"],
        OptionValue::Required,
        NoEffect(CACHE),
    ),
    spelling(
        &["-dt", "--defrag-thold"],
        OptionValue::Number(&[]),
        NoEffect("the cache has no gaps"),
    ),
    spelling(
        &["--swa-full"],
        OptionValue::None,
        NoEffect("the cache always keeps every position"),
    ),
    spelling(
        &["--warmup", "--no-warmup"],
        OptionValue::None,
        NoEffect("no warm-up run precedes the first prompt"),
    ),
    spelling(
        &["--jinja"],
        OptionValue::None,
        NoEffect("chat templates are always rendered as Jinja"),
    ),
    spelling(
        &["-no-cnv", "--no-conversation"],
        OptionValue::None,
        NoEffect(RAW),
    ),
    spelling(
        &["--no-escape"],
        OptionValue::None,
        NoEffect("a prompt is never unescaped"),
    ),
    spelling(
        &["-co", "--color", "--colors"],
        OptionValue::OneOf(SWITCH),
        NoEffect("texts have no colors"),
    ),
    spelling(
        &["--simple-io"],
        OptionValue::None,
        NoEffect("a pipe always has simple lines"),
    ),
    spelling(
        &["--log-disable", "--log-prefix", "--log-timestamps"],
        OptionValue::None,
        NoEffect(LOGS),
    ),
    spelling(
        &["-lv", "--verbosity", "--log-verbosity"],
        OptionValue::Number(&[]),
        NoEffect(LOGS),
    ),
    spelling(
        &["--perf", "--no-perf", "--show-timings"],
        OptionValue::None,
        NoEffect("--quiet leaves out the times"),
    ),
];

impl LlamaSpelling {
    fn is_refused(&self) -> bool {
        matches!(self.meaning, Refused)
    }

    /// Returns the length of the option and its value at the beginning of `words`.
    fn length(&self, words: &[OsString]) -> usize {
        let value = |accepts: &dyn Fn(&str) -> bool| {
            let next = words.get(1).and_then(|next| next.to_str());
            1 + usize::from(next.is_some_and(accepts))
        };
        // `--name=value` has its value.
        if words[0].to_string_lossy().contains('=') {
            return 1;
        }
        match self.value {
            OptionValue::None => 1,
            OptionValue::Required => words.len().min(2),
            OptionValue::Number(names) => {
                value(&|text| text.parse::<f64>().is_ok() || names.contains(&text))
            }
            OptionValue::OneOf(names) => value(&|text| names.contains(&text)),
        }
    }
}

/// Finds the row of an option. A long option may have its value in the same word.
fn find(word: &OsStr) -> Option<&'static LlamaSpelling> {
    let text = word.to_str()?;
    let name = if text.starts_with("--") {
        text.split('=').next()?
    } else {
        text
    };
    SPELLINGS
        .iter()
        .find(|spelling| spelling.names.contains(&name))
}

/// Returns true if the word is an option of llama.cpp in the table.
pub(super) fn is_foreign(word: &OsStr) -> bool {
    find(word).is_some()
}

/// The options of llama.cpp, in commands that work on a model.
struct LlamaCpp;

impl Foreign for LlamaCpp {
    fn length(&self, command: &Command, words: &[OsString]) -> usize {
        let own = |name: &str| {
            command
                .get_arguments()
                .any(|arg| words::has_long(arg, name))
        };
        let text = words[0].to_string_lossy();

        // An option of the command itself takes precedence. With one dash, llama.cpp's meaning
        // takes precedence, because `-ngl` is more likely llama.cpp's option than `-n gl`.
        if text.strip_prefix("--").is_some_and(own) {
            return 0;
        }

        find(&words[0]).map_or(0, |spelling| spelling.length(words))
    }
}

/// Replaces the spellings of llama.cpp in a command that works on a model.
///
/// # Errors
/// Returns the word that is not accepted: an unsupported option of llama.cpp, or a word such as
/// `-hx`. clap would print the help for it and exit with success.
pub(super) fn respell(program: &Command, words: &[OsString]) -> Result<Respelled, OsString> {
    let mut respelled = Respelled {
        words: words.to_vec(),
        notes: vec![],
    };
    let Some(CalledCommand {
        names,
        command,
        rest,
    }) = words::called(program, words)
    else {
        return match words.get(1) {
            Some(word) if is_foreign(word) || hides_help(word) => Err(word.clone()),
            _ => Ok(respelled),
        };
    };

    if !words::takes_model(command) {
        return Ok(respelled);
    }

    // The name of the program comes first.
    let model_position = 1 + names.len();
    respelled.words.truncate(model_position);
    let mut hub = HubModel::default();
    for piece in words::split(command, rest, &LlamaCpp) {
        match piece {
            CommandPiece::Foreign { words }
                if find(&words[0]).is_some_and(LlamaSpelling::is_refused) =>
            {
                return Err(words[0].clone());
            }
            CommandPiece::Foreign { words } => respelled.add(words, &mut hub),
            CommandPiece::Unknown { word } if hides_help(word) => return Err(word.clone()),
            CommandPiece::Unknown { word } => respelled.words.push(word.clone()),
            CommandPiece::Option { words, .. } | CommandPiece::Positional { words } => {
                respelled.words.extend(words.to_vec())
            }
        }
    }

    // The model is inserted in front, because every word after `--` is a positional.
    respelled
        .words
        .splice(model_position..model_position, hub.words());
    Ok(respelled)
}

/// Returns true for `-hx` and `-Vx`: clap prints the help or the version and ignores the rest.
fn hides_help(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.len() > 2 && (bytes.starts_with(b"-h") || bytes.starts_with(b"-V"))
}

/// A model on the Hugging Face hub, for which llama.cpp has two options.
#[derive(Default)]
struct HubModel {
    repository: Option<OsString>,
    file: Option<OsString>,
}

impl HubModel {
    fn words(self) -> Vec<OsString> {
        match (self.repository, self.file) {
            (Some(repository), file) => vec![hub("--model", &repository, file.as_deref())],
            // Without a repository, the file has no meaning, so clap reports the unknown option.
            (None, Some(file)) => vec!["--hf-file".into(), file],
            (None, None) => vec![],
        }
    }
}

/// Returns an option with a name on the hub, for example `--model=hf:ORG/REPO:FILE`.
fn hub(option: &str, repository: &OsStr, file: Option<&OsStr>) -> OsString {
    let mut word = OsString::from(option);
    let known = repository.as_encoded_bytes().starts_with(b"hf:");
    word.push(if known { "=" } else { "=hf:" });
    word.push(repository);
    if let Some(file) = file {
        word.push(":");
        word.push(file);
    }
    word
}

impl Respelled {
    /// Adds a foreign option with its value.
    fn add(&mut self, words: &[OsString], hub_model: &mut HubModel) {
        let spelling = find(&words[0]).expect("the table has every foreign option");
        let text = words[0].to_string_lossy();
        let value = match (text.split_once('='), words.get(1)) {
            (Some((_, value)), _) => Some(OsString::from(value)),
            (None, value) => value.cloned(),
        };
        match (spelling.meaning, value) {
            (NoEffect(why), value) => {
                let value = value
                    .map(|value| format!(" {}", value.display()))
                    .unwrap_or_default();
                let name = text.split('=').next().unwrap_or_default();
                self.notes
                    .push(format!("note: {name}{value} has no effect: {why}"));
            }
            (Same(option), value) => {
                self.words.push(option.into());
                self.words.extend(value);
            }
            (Gpu, Some(value)) => {
                let mut device = OsString::from("--device=cuda:");
                device.push(value);
                self.words.push(device);
            }
            (Hub("--model"), Some(value)) if hub_model.repository.is_none() => {
                hub_model.repository = Some(value);
            }
            (Hub(option), Some(value)) => self.words.push(hub(option, &value, None)),
            (HubFile, Some(value)) => hub_model.file = Some(value),
            // Without a value, clap reports that it is missing.
            (Gpu, None) => self.words.push("--device".into()),
            (Hub(option), None) => self.words.push(option.into()),
            (HubFile, None) => self.words.push("--hf-file".into()),
            (Refused, _) => unreachable!("a refused option ends the parsing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn respelled(line: &str) -> Result<(String, Vec<String>), String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let respelled =
            respell(&Cli::command(), &words).map_err(|word| word.display().to_string())?;
        let words: Vec<_> = respelled
            .words
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        Ok((words.join(" "), respelled.notes))
    }

    #[test]
    fn counterparts_are_respelled() {
        let cases = [
            ("w run -hf a/b -p x", "w run --model=hf:a/b -p x"),
            ("w run --hf-repo=a/b:Q8_0 x", "w run --model=hf:a/b:Q8_0 x"),
            (
                "w run x -hf a/b --hf-file c.gguf",
                "w run --model=hf:a/b:c.gguf x",
            ),
            (
                "w run -hff c.gguf -hfr hf:a/b",
                "w run --model=hf:a/b:c.gguf",
            ),
            ("w run m -hfd a/b", "w run m --draft=hf:a/b"),
            (
                "w run m -md d -sys s -jf f -dev emu",
                "w run m --draft d --system s --json-schema f --device emu",
            ),
            ("w bench decode m -mg 1", "w bench decode m --device=cuda:1"),
            ("w bench batch m -hf a/b", "w bench batch --model=hf:a/b m"),
            ("w run m -hf", "w run m --model"),
            ("w run m -hff c", "w run --hf-file c m"),
            // Values, and what follows `--`, are left alone.
            ("w run m -p -ngl", "w run m -p -ngl"),
            (
                "w run m --prompt -hf --stop -fa",
                "w run m --prompt -hf --stop -fa",
            ),
            ("w run m -- -ngl", "w run m -- -ngl"),
            ("w run m --lookup -ngl 9", "w run m --lookup"),
            // No model, no llama.cpp.
            ("w emu x -t 4", "w emu x -t 4"),
            ("w check -ngl 4", "w check -ngl 4"),
        ];
        for (line, wanted) in cases {
            assert_eq!(respelled(line).unwrap().0, wanted, "{line}");
        }
    }

    #[test]
    fn options_without_a_counterpart_are_noted() {
        let cases = [
            ("w run m -ngl 99 x", "w run m x", vec!["-ngl 99"]),
            ("w run m -ngl x", "w run m x", vec!["-ngl"]),
            ("w run -ngl m.gguf x", "w run m.gguf x", vec!["-ngl"]),
            (
                "w run m --n-gpu-layers=-1 x",
                "w run m x",
                vec!["--n-gpu-layers"],
            ),
            (
                "w run m -fa on -t 8 --threads 4",
                "w run m",
                vec!["-fa on", "-t 8", "--threads 4"],
            ),
            ("w run m -fa x", "w run m x", vec!["-fa"]),
            (
                "w chat m --mlock --no-mmap --jinja",
                "w chat m",
                vec!["--mlock", "--no-mmap", "--jinja"],
            ),
            (
                "w perplexity m f -b 512 -ub 64",
                "w perplexity m f",
                vec!["-b 512", "-ub 64"],
            ),
            (
                "w embed m -ctk q8_0 -C f0",
                "w embed m",
                vec!["-ctk q8_0", "-C f0"],
            ),
        ];
        for (line, wanted, names) in cases {
            let (words, notes) = respelled(line).unwrap();
            assert_eq!(words, wanted, "{line}");
            assert_eq!(notes.len(), names.len(), "{line}: {notes:?}");
            for (note, name) in notes.iter().zip(names) {
                assert!(
                    note.starts_with(&format!("note: {name}")) && note.contains(" has no effect: "),
                    "{note}"
                );
            }
        }
    }

    #[test]
    fn no_word_hides_the_help() {
        for (line, word) in [
            ("w -hf a/b", "-hf"),
            ("w run m -hx", "-hx"),
            ("w run -help", "-help"),
            ("w run m -Version", "-Version"),
            ("w -ngl 9", "-ngl"),
            ("w run m -cnv", "-cnv"),
            ("w run m x -sysf f", "-sysf"),
        ] {
            assert_eq!(
                respelled(line).map(|(words, _)| words),
                Err(word.to_owned()),
                "{line}"
            );
        }
        for line in ["w -h", "w run -h", "w run m -p -hx", "w --help"] {
            assert_eq!(respelled(line).unwrap().0, line);
        }
    }

    /// No name is there twice, and none is that of an option with the same long name.
    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = SPELLINGS
            .iter()
            .flat_map(|spelling| spelling.names)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
