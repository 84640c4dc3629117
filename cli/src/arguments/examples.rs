//! The examples at the end of the help of each command.

use clap::Command;

/// The examples of each command. `emu` has its own text.
const EXAMPLES: [(&str, &[&str]); 27] = [
    (
        "run",
        &[
            "warpwright run model.gguf \"The borrow checker\" -n 100",
            "cat notes.txt | warpwright run model.gguf \"A summary in one sentence:\" --chat --temp 0.7",
            "warpwright run model.gguf \"Once upon a time\" --temp 0.8 --seed 42 --json",
        ],
    ),
    (
        "chat",
        &[
            "warpwright chat model.gguf",
            "warpwright chat -m model.gguf --system \"Answer in one sentence.\" --temp 0.7 -c 4096",
        ],
    ),
    (
        "serve",
        &[
            "warpwright serve model.gguf",
            "warpwright serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt --sequences 64",
            "warpwright serve models --port 8000",
        ],
    ),
    (
        "logits",
        &[
            "warpwright logits model.gguf --ids 1,5,9 --out logits.f32",
            "warpwright logits -m model.gguf --ids 1,5,9 --adapter adapter --device emu --out logits.f32",
        ],
    ),
    (
        "perplexity",
        &[
            "warpwright perplexity model.gguf text.txt --ctx 512",
            "warpwright perplexity -m model.gguf -f text.txt --windows 4 --json",
        ],
    ),
    (
        "embed",
        &[
            "warpwright embed model.gguf -p \"a text\" -p \"another text\" --json",
            "warpwright embed -m model.gguf -f lines.txt --pooling last > vectors.txt",
        ],
    ),
    (
        "pull",
        &[
            "warpwright pull hf:ORG/REPO",
            "warpwright pull hf:ORG/REPO:Q8_0",
        ],
    ),
    (
        "models",
        &[
            "warpwright models --json",
            "warpwright models remove hf:ORG/REPO:Q8_0",
        ],
    ),
    (
        "finetune",
        &[
            "warpwright finetune model.gguf --data samples.jsonl --out adapter --dry-run",
            "warpwright finetune -m model.gguf --data samples.jsonl --out adapter --epochs 3 --rank 16 --lr 1e-4",
        ],
    ),
    (
        "merge",
        &[
            "warpwright merge model-f16.gguf adapter --out merged.gguf",
            "warpwright merge -m model.gguf adapter --as lora-gguf --out adapter.gguf",
        ],
    ),
    (
        "tokenize",
        &[
            "warpwright tokenize model.gguf \"a text\"",
            "warpwright tokenize -m model.gguf --file text.txt --ids",
        ],
    ),
    (
        "detokenize",
        &[
            "warpwright detokenize model.gguf 1,5,9",
            "echo 1 5 9 | warpwright detokenize -m model.gguf -",
        ],
    ),
    (
        "info",
        &[
            "warpwright info model.gguf",
            "warpwright info -m model.gguf --json",
        ],
    ),
    (
        "check",
        &["warpwright check", "warpwright check --device emu"],
    ),
    (
        "bench",
        &[
            "warpwright bench model.gguf --ctx 128,4096",
            "warpwright bench prompt --shape llama3.2-1b --quant q4_k_m --tokens 512 --json figures.json",
        ],
    ),
    (
        "bench decode",
        &[
            "warpwright bench decode model.gguf --ctx 128,4096 --plot rates.svg",
            "warpwright bench decode -m model.gguf --sample --rounds 3 --json figures.json",
        ],
    ),
    (
        "bench prompt",
        &[
            "warpwright bench prompt model.gguf --tokens 512,2048",
            "warpwright bench prompt --shape llama3.2-1b --quant q4_k_m --tokens 512 --json figures.json",
        ],
    ),
    (
        "bench chunk",
        &[
            "warpwright bench chunk model.gguf --tokens 512",
            "warpwright bench chunk --shape llama3.1-8b --quant q8_0 --tokens 512,2048",
        ],
    ),
    (
        "bench batch",
        &[
            "warpwright bench batch model.gguf --sequences 1,8,64 --ctx 512",
            "warpwright bench batch -m model.gguf --sequences 16 --join 8192",
        ],
    ),
    (
        "bench kernels",
        &[
            "warpwright bench kernels model.gguf",
            "warpwright bench kernels -m model.gguf --plans 4x2_first,2x4_first",
        ],
    ),
    (
        "bench profile",
        &[
            "warpwright bench profile model.gguf --ctx 4096 --plot timeline.svg",
            "warpwright bench profile -m model.gguf --json figures.json",
        ],
    ),
    (
        "bench finetune",
        &[
            "warpwright bench finetune --shape qwen2.5-1.5b --batch 4 --seq 512",
            "warpwright bench finetune -m model.gguf --batch 1,4 --profile",
        ],
    ),
    (
        "bench serve",
        &[
            "warpwright bench serve --url http://127.0.0.1:8080 --users 1,8,64",
            "warpwright bench serve --url http://127.0.0.1:8080 --users 256 --prompt 512 --new 128 --no-stream",
        ],
    ),
    (
        "devices",
        &[
            "warpwright devices",
            "CUDA_VISIBLE_DEVICES=1 warpwright devices",
        ],
    ),
    (
        "doctor",
        &[
            "warpwright doctor",
            "CUDA_VISIBLE_DEVICES=1 warpwright doctor",
        ],
    ),
    (
        "completions",
        &[
            "warpwright completions bash > ~/.local/share/bash-completion/completions/warpwright",
            "warpwright completions zsh > ~/.zfunc/_warpwright",
        ],
    ),
    (
        "graph",
        &[
            "warpwright graph model.gguf --dot graph.dot",
            "warpwright graph -m model.gguf --device emu --dot - | dot -Tsvg > graph.svg",
        ],
    ),
];

/// Adds the examples to the help of each command in the table.
pub(super) fn add(mut program: Command) -> Command {
    for (path, lines) in EXAMPLES {
        let examples: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        let explain = |command: Command| command.after_help(format!("Examples:{examples}"));
        program = match path.split_once(' ') {
            None => program.mut_subcommand(path, explain),
            Some((name, inner)) => {
                program.mut_subcommand(name, |command| command.mut_subcommand(inner, explain))
            }
        };
    }
    program
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;
    use crate::arguments::parse;

    /// Splits a line of a shell at spaces and pipes. Double quotes keep a word together.
    fn shell(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }

        words.retain(|word| !word.is_empty());
        words
    }

    /// The words of the program in a line, without other programs and redirections.
    fn own_words(line: &str) -> Vec<OsString> {
        let words = shell(line);
        let own = words.into_iter().skip_while(|word| word != "warpwright");
        own.take_while(|word| word != "|" && word != ">" && word != "<")
            .map(OsString::from)
            .collect()
    }

    fn check(command: &Command, path: &str) {
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let help = help.replace("\\\n", " ");
        let examples: Vec<&str> = match help.split_once("Examples:\n") {
            Some((_, examples)) => examples
                .lines()
                .filter(|line| line.contains("warpwright "))
                .collect(),
            None => vec![],
        };
        assert!(
            examples.len() >= 2,
            "{path} has too few examples: {examples:?}"
        );
        let mut distinct = BTreeSet::new();
        for line in examples {
            assert!(distinct.insert(line), "{path}: {line}");
            assert!(
                line.contains(&format!("warpwright {path}")),
                "{line} is not an example of {path}"
            );
            if let Err(error) = parse::<Cli>(own_words(line)) {
                panic!("{line}: {error}");
            }
        }
    }

    /// Words in which a help text leans on another one, or opens like a sentence of our old pages.
    const OPENINGS: [&str; 8] = [
        "The same", "As above", "What ", "Where ", "How ", "Whether ", "Of ", "See ",
    ];

    fn check_options(command: &Command, path: &str) {
        let mut texts = BTreeSet::new();
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let name = arg.get_id();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{path}: {name} has no help");

            // `emu` describes what no other command has, in more words.
            let words = !path.starts_with("emu");
            assert!(
                !words || help.chars().count() <= 120 && !help.contains('\n'),
                "{path}: {name}: {help}"
            );
            assert!(
                texts.insert(help.clone()),
                "{path}: {name} has the help of another option: {help}"
            );
            let leans = OPENINGS.iter().find(|opening| help.starts_with(*opening));
            assert!(!words || leans.is_none(), "{path}: {name}: {help}");
            if arg.is_positional() {
                assert_eq!(arg.get_help_heading(), None, "{path}: {name}");
            }
        }
    }

    /// Every command has examples that parse, and every option has a line of help that makes sense
    /// alone.
    #[test]
    fn every_command_is_explained() {
        let program = add(Cli::command());
        for command in program.get_subcommands() {
            check(command, command.get_name());
            check_options(command, command.get_name());
            for inner in command.get_subcommands() {
                let path = format!("{} {}", command.get_name(), inner.get_name());
                if command.get_name() == "bench" {
                    check(inner, &path);
                }
                check_options(inner, &path);
            }
        }
    }

    /// Options that belong together are under one heading.
    #[test]
    fn options_are_under_their_topics() {
        let program = Cli::command();
        let heading = |path: &str| {
            let (names, id) = path.rsplit_once(' ').unwrap();
            let command = names.split(' ').fold(&program, |command, name| {
                command.find_subcommand(name).unwrap()
            });
            let arg = command
                .get_arguments()
                .find(|arg| arg.get_id() == id)
                .unwrap_or_else(|| panic!("{path}"));
            arg.get_help_heading()
        };
        let cases: [(Option<&str>, &[&str]); 9] = [
            (
                None,
                &[
                    "run named",
                    "run prompt",
                    "run prompt_file",
                    "run prompt_ids",
                    "run n",
                    "run chat",
                    "run stop",
                ],
            ),
            (
                None,
                &[
                    "chat named",
                    "chat n",
                    "chat stop",
                    "embed prompt",
                    "tokenize ids",
                    "finetune data",
                    "bench batch rounds",
                ],
            ),
            (
                Some("Output"),
                &[
                    "run print",
                    "run json",
                    "run quiet",
                    "bench decode plot",
                    "bench prompt json",
                ],
            ),
            (
                Some("Device"),
                &[
                    "run device",
                    "run ctx",
                    "run launch",
                    "run insist",
                    "chat device",
                    "bench decode launch",
                ],
            ),
            (
                Some("Device"),
                &[
                    "finetune device",
                    "finetune precision",
                    "finetune recompute",
                    "logits launch",
                ],
            ),
            (
                Some("Sampling"),
                &["run temperature", "run seed", "chat logprobs"],
            ),
            (Some("Speculative decoding"), &["run draft", "chat lookup"]),
            (Some("Structured output"), &["run regex", "chat grammar"]),
            (
                Some("Conversations"),
                &[
                    "run system",
                    "run date",
                    "chat when_full",
                    "chat history",
                    "chat tools",
                ],
            ),
        ];
        for (wanted, paths) in cases {
            for path in paths {
                assert_eq!(heading(path), wanted, "{path}");
            }
        }
    }
}
