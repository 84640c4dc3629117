//! The options of `finetune`. Their names follow other trainers where possible.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use warpwright_kernels::train::optimizer::schedule;
use warpwright_model::chat::Date;
use warpwright_train::Projection;
use warpwright_train::base::{Absmax, BaseFormat, Quantization};
use warpwright_train::checkpoint;
use warpwright_train::data::{BatchShape, TrainingLength};
use warpwright_train::step;

use super::{disk, metrics};
use crate::device::DeviceChoice;
use crate::failure::Failure;
use crate::model::options::ModelArg;
use crate::prompt::template;
use crate::training::Recompute;
use warpwright_emu::output::is_used;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// File with one sample per line, as JSON such as {"text": ".."} or {"messages": [..]}
    ///
    /// The forms are {"text"}, {"prompt", "completion"}, Alpaca's {"instruction", "input",
    /// "output"}, and conversations as {"messages": [{"role", "content"}]} or ShareGPT's
    /// {"conversations": [{"from", "value"}]}.
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) data: PathBuf,
    /// New folder for the adapter, in PEFT's format
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Checkpoint folder to continue from, with the same settings
    #[arg(
        help_heading = "Evaluation and checkpoints",
        long,
        value_name = "FOLDER"
    )]
    pub(crate) resume: Option<PathBuf>,
    /// Print the number of samples and steps and the memory, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Device to run on: auto, cuda:N or emu (the CPU emulator)
    #[arg(help_heading = "Device", long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    pub(crate) device: DeviceChoice,
    /// Run on the emulator even if the estimated time is longer than half an hour
    #[arg(help_heading = "Device", long)]
    pub(crate) insist: bool,

    /// Number of tokens in a row; longer samples are truncated
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 1024,
        help_heading = "Batches"
    )]
    pub(crate) seq: usize,
    /// Number of rows in a micro-batch
    #[arg(
        long,
        value_name = "ROWS",
        default_value_t = 4,
        help_heading = "Batches"
    )]
    pub(crate) batch: usize,
    /// Number of micro-batches in a step
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Batches")]
    pub(crate) grad_accum: usize,
    /// Put one sample into each row instead of as many as fit
    #[arg(long, help_heading = "Batches")]
    pub(crate) no_packing: bool,
    /// Learn prompts and all messages of a conversation, not only completions and replies
    #[arg(long, help_heading = "Batches")]
    pub(crate) train_on_prompt: bool,
    /// Date for chat templates that contain the current date, as YYYY-MM-DD [default: today in UTC]
    #[arg(long, value_name = "DATE", value_parser = template::date, help_heading = "Batches")]
    pub(crate) date: Option<Date>,
    /// Number of passes over all samples [default: 1]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "steps",
        help_heading = "Batches"
    )]
    pub(crate) epochs: Option<u32>,
    /// Number of optimizer steps, instead of --epochs
    #[arg(long, value_name = "N", help_heading = "Batches")]
    pub(crate) steps: Option<u32>,
    /// Seed for the order of samples, the initial adapters and dropout
    #[arg(long, default_value_t = 0, help_heading = "Batches")]
    pub(crate) seed: u64,

    /// Rank of the LoRA adapters
    #[arg(long, default_value_t = 16, help_heading = "Adapters")]
    pub(crate) rank: usize,
    /// Alpha of the LoRA adapters, which are scaled by alpha / rank
    #[arg(
        long,
        default_value_t = 32.0,
        allow_negative_numbers = true,
        help_heading = "Adapters"
    )]
    pub(crate) alpha: f64,
    /// Share of the adapter inputs that dropout sets to zero
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Adapters"
    )]
    pub(crate) dropout: f64,
    /// Projections to train: all-linear, or names such as q_proj,v_proj
    #[arg(long, value_delimiter = ',', default_value = "all-linear", value_parser = target, help_heading = "Adapters")]
    pub(crate) targets: Vec<Targets>,
    /// Format of the frozen projections in device memory
    #[arg(long, value_enum, default_value_t = BaseChoice::Auto, help_heading = "Adapters")]
    pub(crate) base: BaseChoice,
    /// Format of the scale of each NF4 block (a file in NF4 keeps its own)
    #[arg(long, value_enum, default_value_t = AbsmaxChoice::F32, help_heading = "Adapters")]
    pub(crate) absmax: AbsmaxChoice,

    /// Learning rate of AdamW after the warm-up
    #[arg(
        long,
        default_value_t = 2e-4,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) lr: f64,
    /// Decay of the learning rate after the warm-up, with the formulas of transformers
    #[arg(long, value_enum, default_value_t = ScheduleChoice::Cosine, help_heading = "Optimizer")]
    pub(crate) schedule: ScheduleChoice,
    /// Number of warm-up steps, or their share of all steps if below 1
    ///
    /// The learning rate rises linearly from 0 during the warm-up.
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) warmup: f64,
    /// Learning rate that the decay ends at, one step after the last
    #[arg(
        long,
        value_name = "LR",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) lr_min: f64,
    /// Largest norm of all gradients together; larger gradients are scaled down
    #[arg(
        long,
        value_name = "NORM",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) clip: f64,
    /// Weight decay of AdamW
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) weight_decay: f64,

    /// Samples for evaluation: a file like --data, or a share of --data such as 0.1
    ///
    /// The evaluation runs before the first step and after the last one. A share of --data is
    /// excluded from training.
    #[arg(help_heading = "Evaluation and checkpoints", long, value_name = "FILE.jsonl|SHARE", value_parser = OsStringValueParser::new().try_map(evaluate_on))]
    pub(crate) eval: Option<EvaluateOn>,
    /// Number of steps between evaluations
    #[arg(help_heading = "Evaluation and checkpoints", long, value_name = "STEPS", requires = "eval", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) eval_every: Option<u32>,
    /// Number of steps between checkpoints
    #[arg(help_heading = "Evaluation and checkpoints", long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) save_every: Option<u32>,
    /// Activations that the backward pass recomputes to save memory [default: as few as fit]
    #[arg(help_heading = "Device", long, value_enum, value_name = "WHAT")]
    pub(crate) recompute: Option<Recompute>,
    /// Method that submits each micro-batch to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = TrainingLaunch::Graph)]
    pub(crate) launch: TrainingLaunch,
    /// Precision of the activations and of the matrix products
    #[arg(help_heading = "Device", long, value_enum, default_value_t = PrecisionChoice::Auto)]
    pub(crate) precision: PrecisionChoice,
}

/// The value of --precision.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum PrecisionChoice {
    /// bf16 if the GPU and the model support it, otherwise f32
    Auto,
    /// Tensor cores of compute capability 9.0; adapters and sums stay in f32
    Bf16,
    /// Simple kernels, many times slower
    F32,
}

/// An element of the list in --targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Targets {
    All,
    One(Projection),
}

/// Parses an element of --targets.
fn target(text: &str) -> Result<Targets, String> {
    if text == "all-linear" {
        return Ok(Targets::All);
    }
    let found = Projection::ALL.into_iter().find(|p| p.name() == text);
    found.map(Targets::One).ok_or_else(|| {
        let names = Projection::ALL.map(Projection::name).join(", ");
        format!("unknown projection: expected {names}, or all-linear for all of them")
    })
}

/// Returns an error for a pipe or a device, because samples are read twice: for training and for a
/// hash.
fn check_data(flag: &str, path: &Path) -> Result<(), Failure> {
    let standard = path == Path::new("-");
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() => Err(Failure::Input(format!(
            "{flag} {} is not a file: write the samples to a file first",
            path.display()
        ))),
        Err(_) if standard => Err(Failure::Input(format!(
            "{flag} - cannot be standard input: samples are read twice; write them to a file first"
        ))),
        _ => Ok(()),
    }
}

/// Returns the checkpoint with the highest step in a folder, if there is one.
fn latest_checkpoint(out: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(out).ok()?.flatten();
    let checkpoints = entries.filter_map(|entry| {
        let step: u32 = entry
            .file_name()
            .to_str()?
            .strip_prefix("checkpoint-")?
            .parse()
            .ok()?;
        let path = entry.path();
        // A folder with such a name but without a state is not a checkpoint.
        if path.join(checkpoint::STATE).is_file() {
            Some((step, path))
        } else {
            None
        }
    });
    checkpoints
        .max_by_key(|(step, _)| *step)
        .map(|(_, path)| path)
}

/// The value of --eval.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum EvaluateOn {
    File(PathBuf),
    Share(f64),
}

/// Parses the value of --eval. A number is a share, and everything else is a file.
fn evaluate_on(text: OsString) -> Result<EvaluateOn, String> {
    match text.to_str().and_then(|text| text.parse().ok()) {
        None => Ok(EvaluateOn::File(text.into())),
        Some(share) if share > 0.0 && share < 1.0 => Ok(EvaluateOn::Share(share)),
        Some(share) => Err(format!(
            "{share} is not a share between 0 and 1; for a file with this name, write ./{}",
            text.display()
        )),
    }
}

/// The value of --base.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaseChoice {
    /// NF4 for weights with 16 or 32 bits; quantized weights keep their format
    Auto,
    /// NF4 for all weights
    Nf4,
    /// The format of the file
    Keep,
}

/// The value of --absmax.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbsmaxChoice {
    /// 32-bit floats
    F32,
    /// 8 bits (double quantization), as usual in bitsandbytes: saves 0.37 bits per weight
    Nested,
}

impl From<AbsmaxChoice> for Absmax {
    fn from(choice: AbsmaxChoice) -> Absmax {
        match choice {
            AbsmaxChoice::F32 => Absmax::F32,
            AbsmaxChoice::Nested => Absmax::Nested,
        }
    }
}

impl From<BaseChoice> for BaseFormat {
    fn from(choice: BaseChoice) -> BaseFormat {
        match choice {
            BaseChoice::Auto => BaseFormat::Auto,
            BaseChoice::Nf4 => BaseFormat::Nf4,
            BaseChoice::Keep => BaseFormat::Keep,
        }
    }
}

/// The value of --schedule.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScheduleChoice {
    /// Half a cosine from --lr to --lr-min
    Cosine,
    /// A line from --lr to --lr-min
    Linear,
    /// --lr in every step
    Constant,
}

impl From<ScheduleChoice> for schedule::Decay {
    fn from(schedule: ScheduleChoice) -> schedule::Decay {
        match schedule {
            ScheduleChoice::Cosine => schedule::Decay::Cosine,
            ScheduleChoice::Linear => schedule::Decay::Linear,
            ScheduleChoice::Constant => schedule::Decay::Constant,
        }
    }
}

/// The value of --launch.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrainingLaunch {
    /// One launch of a hand-built graph for each micro-batch
    Graph,
    /// One launch of a graph that the driver captured from a stream
    Capture,
    /// One launch for each kernel
    Eager,
}

impl From<TrainingLaunch> for step::Launch {
    fn from(launch: TrainingLaunch) -> step::Launch {
        match launch {
            TrainingLaunch::Graph => step::Launch::Graph,
            TrainingLaunch::Capture => step::Launch::Capture,
            TrainingLaunch::Eager => step::Launch::Eager,
        }
    }
}

impl Args {
    /// Checks the options that can be checked without the model and the samples.
    ///
    /// # Errors
    /// Returns an error if a value is out of range, if a file is missing, or if the output folder
    /// cannot be used.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.seq < 2 {
            let seq = self.seq;
            return Err(Failure::Input(format!(
                "--seq {seq} is too short: a token is learned from the tokens before it"
            )));
        }

        if let Some(from) = self
            .resume
            .as_ref()
            .filter(|from| !from.join(checkpoint::STATE).is_file())
        {
            return Err(Failure::Input(format!(
                "--resume {} is not a checkpoint, because it has no {}: name a folder checkpoint-N",
                from.display(),
                checkpoint::STATE
            )));
        }

        check_data("--data", &self.data)?;
        self.check_out()
    }

    /// Checks that the output folder is empty or being resumed, because an adapter must not be
    /// overwritten by accident.
    ///
    /// A dry run checks this too, so that the real run does not fail later.
    fn check_out(&self) -> Result<(), Failure> {
        let out = &self.out;
        metrics::check(out)?;
        if is_used("--out", out)? && self.resume.is_none() {
            let resume = match latest_checkpoint(out) {
                Some(folder) => {
                    format!(
                        ", or continue from its latest checkpoint: --resume {}",
                        folder.display()
                    )
                }
                None => String::new(),
            };
            return Err(Failure::Input(format!(
                "--out {} is not empty; name an empty folder{resume}",
                out.display()
            )));
        }

        match disk::refusal(out) {
            Some(error) => Err(Failure::Input(format!(
                "--out {} cannot be written: {error}; name another folder",
                out.display()
            ))),
            None => Ok(()),
        }
    }

    /// Returns the format of the frozen projections.
    pub(super) fn quantization(&self) -> Quantization {
        Quantization {
            format: self.base.into(),
            absmax: self.absmax.into(),
        }
    }

    /// Returns the shape of the batches.
    pub(super) fn shape(&self) -> BatchShape {
        BatchShape {
            len: self.seq,
            rows: self.batch,
            accumulate: self.grad_accum,
            packing: !self.no_packing,
            seed: self.seed,
            length: match self.steps {
                Some(steps) => TrainingLength::Steps(steps),
                None => TrainingLength::Epochs(self.epochs.unwrap_or(1)),
            },
        }
    }

    /// Returns the projections to train, in the order of the model.
    pub(super) fn projections(&self) -> Vec<Projection> {
        let chosen = |p: &Projection| {
            self.targets
                .iter()
                .any(|t| [Targets::All, Targets::One(*p)].contains(t))
        };
        Projection::ALL.into_iter().filter(chosen).collect()
    }
}
