//! How a step of the round does its work.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::steps::{IDS, PROMPT, RoundAction};

/// What the steps run, and with what.
pub(super) struct Round {
    pub(super) program: PathBuf,
    pub(super) rows: Option<PathBuf>,
    pub(super) gates: Option<PathBuf>,
    pub(super) sanitizer: Option<PathBuf>,
    pub(super) device: String,
    pub(super) logs: PathBuf,
    pub(super) models: Vec<PathBuf>,
}

/// Why a step did not pass.
pub(super) enum StepProblem {
    Failed(String),
    /// It could not run.
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

type Done<T = ()> = Result<T, StepProblem>;

/// A step with the model that it runs on.
pub(super) struct RoundJob<'a> {
    pub(super) round: &'a Round,
    pub(super) model: &'a Path,
    pub(super) log: &'a StepLog,
}

/// The largest relative L2 distance of logits from the emulator's.
const DISTANCE: f64 = 1e-3;

/// Kernel launches in one run of racecheck.
const LAUNCHES: usize = 100;

/// Steps of a decode of 16 tokens, and more: those of the prompt, and those of the last launch of several tokens.
const DECODED: usize = 24;

impl RoundJob<'_> {
    pub(super) fn run(&self, work: &RoundAction) -> Done {
        match work {
            RoundAction::Program(arguments) => self.log.run(&mut self.program(arguments)),
            RoundAction::Sanitized(tool, arguments) => {
                // Launch by launch: of many launches at once the tools keep more than they have memory for.
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

    /// The program with these arguments.
    fn program(&self, arguments: &str) -> Command {
        self.command(&self.round.program, arguments)
    }

    fn command(&self, program: &Path, arguments: &str) -> Command {
        let mut command = Command::new(program);
        self.fill(&mut command, arguments);
        command
    }

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

    /// The program under a tool of compute-sanitizer.
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

    fn racecheck_in_parts(&self, arguments: &str) -> Done {
        // First, so that its absence is named before a graph is built.
        self.sanitized("racecheck", &[], arguments)?;
        let launches = self.kernels()? * DECODED;
        for first in (0..launches).step_by(LAUNCHES) {
            let (skip, count) = (first.to_string(), LAUNCHES.to_string());
            let part = ["--launch-skip", &skip, "--launch-count", &count];
            let output = self
                .log
                .output(&mut self.sanitized("racecheck", &part, arguments)?)?;
            if !String::from_utf8_lossy(&output).contains("RACECHECK SUMMARY") {
                return Err(StepProblem::Failed(format!(
                    "no summary of the launches from {first} on"
                )));
            }
        }
        Ok(())
    }

    /// Kernels of a step.
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

    /// The bytes of the logits after each of some tokens.
    fn logits(&self, device: &str, launch: &str) -> Done<Vec<u8>> {
        // In a folder of its own, so that those of an earlier round are never read.
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let file = folder.path().join("logits");
        let place =
            format!("logits {{model}} --device {device} --launch {launch} --ids {{ids}} --out");
        self.log.run(self.program(&place).arg(&file))?;
        Ok(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?)
    }
}

/// Little-endian numbers.
fn floats(bytes: &[u8]) -> Vec<f64> {
    let number = |b: &[u8]| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    bytes.chunks_exact(4).map(number).collect()
}

/// The relative L2 distance; NaN where a number is.
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

/// The output of a step.
pub(super) struct StepLog {
    path: PathBuf,
    file: File,
}

impl StepLog {
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

    /// The last lines.
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

    fn note(&self, line: &str) -> Result<()> {
        writeln!(&self.file, "{line}")
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Runs a command, whose output the log gets.
    fn run(&self, command: &mut Command) -> Done {
        self.note(&format!("{command:?}"))?;
        let end = || self.file.try_clone().context("cannot write the log");
        let command = command.stdin(Stdio::null()).stdout(end()?).stderr(end()?);
        let status = command.status().with_context(|| program(command))?;
        self.succeeded(command, status.success(), &status.to_string())
    }

    /// Likewise, and gives what it wrote to standard output.
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

    fn succeeded(&self, command: &Command, success: bool, status: &str) -> Done {
        let failure = || {
            StepProblem::Failed(format!(
                "{} ended with {status}, see {}",
                program(command),
                self.path.display()
            ))
        };
        success.then_some(()).ok_or_else(failure)
    }
}

/// The name of a command's program.
fn program(command: &Command) -> String {
    Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .display()
        .to_string()
}
