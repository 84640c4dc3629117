//! Runs the steps of a round.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::steps::{IDS, PROMPT, RoundAction};

/// The programs, the device and the models of a round.
pub(super) struct Round {
    pub(super) program: PathBuf,
    pub(super) rows: Option<PathBuf>,
    pub(super) gates: Option<PathBuf>,
    pub(super) sanitizer: Option<PathBuf>,
    pub(super) device: String,
    pub(super) logs: PathBuf,
    pub(super) models: Vec<PathBuf>,
}

/// The reason why a step did not pass.
pub(super) enum StepProblem {
    Failed(String),
    /// The step could not run, because a program is missing.
    Absent(&'static str),
}

impl std::fmt::Display for StepProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StepProblem::Failed(why) => write!(f, "FAILED: {why}"),
            StepProblem::Absent(what) => write!(f, "not run: {what}"),
        }
    }
}

impl From<anyhow::Error> for StepProblem {
    fn from(error: anyhow::Error) -> StepProblem {
        StepProblem::Failed(format!("{error:#}"))
    }
}

/// The result of a step.
type Done<T = ()> = Result<T, StepProblem>;

/// A step in progress: the round, the model on which it runs, and its log.
pub(super) struct RoundJob<'a> {
    pub(super) round: &'a Round,
    pub(super) model: &'a Path,
    pub(super) log: &'a StepLog,
}

/// The largest accepted relative L2 distance between the logits of a GPU and of the emulator.
const DISTANCE: f64 = 1e-3;

/// The number of kernel launches in one run of racecheck.
const LAUNCHES: usize = 100;

/// An upper bound on the steps in a decode of 16 tokens. It includes the steps of the prompt and of
/// the last launch, which may compute several tokens.
const DECODED: usize = 24;

impl RoundJob<'_> {
    /// Does the work of a step.
    pub(super) fn run(&self, work: &RoundAction) -> Done {
        match work {
            RoundAction::Program(arguments) => self.log.run(&mut self.program(arguments)),
            RoundAction::Sanitized(tool, arguments) => {
                // The tools keep data about all launches in flight, so each launch must complete
                // before the next.
                self.log.run(&mut self.sanitized(
                    tool,
                    &["--force-synchronization-limit", "1"],
                    arguments,
                )?)
            }
            RoundAction::RacecheckInParts(arguments) => self.racecheck_in_parts(arguments),
            RoundAction::Rows => match &self.round.rows {
                Some(rows) => self.log.run(&mut Command::new(rows)),
                None => Err(StepProblem::Absent(
                    "--rows names no target/release/examples/rows",
                )),
            },
            RoundAction::Gates(arguments) => match &self.round.gates {
                Some(gates) => self.log.run(&mut self.command(gates, arguments)),
                None => Err(StepProblem::Absent(
                    "--gates names no target/release/examples/gates",
                )),
            },
            RoundAction::SameTokens => self.same_tokens(),
            RoundAction::SameLogits => self.same_logits(),
        }
    }

    /// Returns the program under test with these arguments.
    fn program(&self, arguments: &str) -> Command {
        self.command(&self.round.program, arguments)
    }

    /// Returns a program with these arguments.
    fn command(&self, program: &Path, arguments: &str) -> Command {
        let mut command = Command::new(program);
        self.fill(&mut command, arguments);
        command
    }

    /// Adds arguments to a command, and replaces the words in braces.
    fn fill(&self, command: &mut Command, arguments: &str) {
        for word in arguments.split_whitespace() {
            match word {
                "{model}" => command.arg(self.model),
                "{device}" => command.arg(&self.round.device),
                "{prompt}" => command.arg(PROMPT),
                "{ids}" => command.arg(IDS),
                word => command.arg(word),
            };
        }
    }

    /// Returns the program under a tool of compute-sanitizer.
    fn sanitized(&self, tool: &str, options: &[&str], arguments: &str) -> Done<Command> {
        let Some(sanitizer) = &self.round.sanitizer else {
            return Err(StepProblem::Absent(
                "no compute-sanitizer on PATH nor in a CUDA toolkit",
            ));
        };

        let mut command = Command::new(sanitizer);
        command
            .args([
                "--tool",
                tool,
                "--error-exitcode",
                "99",
                "--print-limit",
                "10",
            ])
            .args(options);
        self.fill(command.arg(&self.round.program), arguments);
        Ok(command)
    }

    /// Runs the program under racecheck several times, each on the next [`LAUNCHES`] launches.
    fn racecheck_in_parts(&self, arguments: &str) -> Done {
        // A missing compute-sanitizer must be reported before the graph is built.
        self.sanitized("racecheck", &[], arguments)?;
        let launches = self.kernels()? * DECODED;
        for first in (0..launches).step_by(LAUNCHES) {
            let skip = first.to_string();
            let count = LAUNCHES.to_string();
            let part = ["--launch-skip", &skip, "--launch-count", &count];
            let output = self
                .log
                .output(&mut self.sanitized("racecheck", &part, arguments)?)?;

            // Without a summary racecheck did not check anything, even if it exits with success.
            if !String::from_utf8_lossy(&output).contains("RACECHECK SUMMARY") {
                return Err(StepProblem::Failed(format!(
                    "no summary of the launches from {first} on"
                )));
            }
        }

        Ok(())
    }

    /// Returns the number of kernels in a decode step.
    fn kernels(&self) -> Done<usize> {
        let dot = self
            .log
            .output(&mut self.program("graph {model} --device {device} --dot -"))?;
        let dot = String::from_utf8_lossy(&dot);
        let node = |line: &&str| line.starts_with("  n") && line.contains(" [label=");
        match dot.lines().filter(node).count() {
            0 => Err(StepProblem::Failed("the graph has no kernels".into())),
            count => Ok(count),
        }
    }

    /// Compares the tokens of all kinds of launch.
    fn same_tokens(&self) -> Done {
        let ids = |device: &str, launch: &str| {
            let place = format!("run {{model}} --device {device} --launch {launch}");
            let arguments = format!("{place} --prompt {{prompt}} -n 48 --print ids --quiet");
            self.log.output(&mut self.program(&arguments))
        };
        let device = &*self.round.device;
        let graph = ids(device, "graph")?;
        if graph.is_empty() {
            return Err(StepProblem::Failed("there are no tokens".into()));
        }

        for (device, launch) in [(device, "plain"), (device, "eager"), ("emu", "graph")] {
            if ids(device, launch)? != graph {
                return Err(StepProblem::Failed(format!(
                    "other tokens on {device} with --launch {launch}"
                )));
            }
        }

        Ok(())
    }

    /// Compares the logits of all kinds of launch.
    fn same_logits(&self) -> Done {
        let graph = self.logits(&self.round.device, "graph")?;
        for launch in ["plain", "eager"] {
            if self.logits(&self.round.device, launch)? != graph {
                return Err(StepProblem::Failed(format!(
                    "other logits with --launch {launch}"
                )));
            }
        }

        let emulated = self.logits("emu", "graph")?;
        let distance = distance(&floats(&graph), &floats(&emulated))?;
        self.log.note(&format!(
            "relative L2 distance to the emulator: {distance:.3e}"
        ))?;
        if distance < DISTANCE {
            Ok(())
        } else {
            Err(StepProblem::Failed(format!(
                "{distance:.3e} from the emulator"
            )))
        }
    }

    /// Returns the bytes of the logits after each token of [`IDS`].
    fn logits(&self, device: &str, launch: &str) -> Done<Vec<u8>> {
        // A new folder, so that a file of an earlier round cannot be read by mistake.
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let file = folder.path().join("logits");
        let place =
            format!("logits {{model}} --device {device} --launch {launch} --ids {{ids}} --out");
        self.log.run(self.program(&place).arg(&file))?;
        Ok(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?)
    }
}

/// Reads little-endian `f32` values.
fn floats(bytes: &[u8]) -> Vec<f64> {
    let number = |b: &[u8]| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    bytes.chunks_exact(4).map(number).collect()
}

/// Returns the relative L2 distance, which is NaN if a value is NaN.
fn distance(found: &[f64], expected: &[f64]) -> Done<f64> {
    if found.len() != expected.len() || found.is_empty() {
        let lengths = format!("{} logits, {} on the emulator", found.len(), expected.len());
        return Err(StepProblem::Failed(lengths));
    }

    let difference: f64 = found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).powi(2))
        .sum();
    let length: f64 = expected.iter().map(|b| b.powi(2)).sum();
    Ok((difference / length).sqrt())
}

/// The file with the output of a step.
pub(super) struct StepLog {
    path: PathBuf,
    file: File,
}

impl StepLog {
    /// Creates the log of a step.
    pub(super) fn new(folder: &Path, name: &str) -> Result<StepLog> {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '_'
            }
        };
        let path = folder.join(
            name.chars()
                .map(plain)
                .chain(".log".chars())
                .collect::<String>(),
        );
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(StepLog { path, file })
    }

    /// Returns the last lines.
    pub(super) fn tail(&self, lines: usize) -> Result<Vec<String>> {
        let bytes =
            fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<_> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..]
            .iter()
            .map(|&line| line.to_owned())
            .collect())
    }

    /// Adds a line.
    fn note(&self, line: &str) -> Result<()> {
        writeln!(&self.file, "{line}")
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Runs a command and writes its output to the log.
    fn run(&self, command: &mut Command) -> Done {
        self.note(&format!("{command:?}"))?;
        let end = || self.file.try_clone().context("cannot write the log");
        let command = command.stdin(Stdio::null()).stdout(end()?).stderr(end()?);
        let status = command.status().with_context(|| program(command))?;
        self.succeeded(command, status.success(), &status.to_string())
    }

    /// Runs a command, writes its output to the log and returns its standard output.
    fn output(&self, command: &mut Command) -> Done<Vec<u8>> {
        self.note(&format!("{command:?}"))?;
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| program(command))?;
        let write = || (&self.file).write_all(&[&output.stderr[..], &output.stdout].concat());
        write().with_context(|| format!("cannot write {}", self.path.display()))?;
        self.succeeded(command, output.status.success(), &output.status.to_string())?;
        Ok(output.stdout)
    }

    /// Returns an error if the command failed.
    fn succeeded(&self, command: &Command, success: bool, status: &str) -> Done {
        if success {
            return Ok(());
        }
        Err(StepProblem::Failed(format!(
            "{} ended with {status}, see {}",
            program(command),
            self.path.display()
        )))
    }
}

/// Returns the name of a command's program.
fn program(command: &Command) -> String {
    Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .display()
        .to_string()
}
