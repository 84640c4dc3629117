//! The command line, under the names that people know from other trainers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use warpwright_engine::chat::Date;
use warpwright_kernels::train::schedule;
use warpwright_train::Projection;
use warpwright_train::base::{Absmax, BaseFormat, Quantization};
use warpwright_train::checkpoint;
use warpwright_train::data::{BatchShape, TrainingLength};
use warpwright_train::step::{self, Recomputation};

use super::{disk, metrics};
use crate::device::Choice;
use crate::failure::Failure;
use crate::options::ModelArg;
use crate::output::is_used;
use crate::template;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Samples: a JSON object in each line, such as {"text": ".."} or {"messages": [..]}
    ///
    /// The forms are {"text"}, {"prompt", "completion"}, Alpaca's {"instruction", "input", "output"}, and conversations as
    /// {"messages": [{"role", "content"}]} or ShareGPT's {"conversations": [{"from", "value"}]}.
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) data: PathBuf,
    /// Folder for the adapter, as PEFT reads it
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Checkpoint folder to continue from, with the same settings
    #[arg(
        help_heading = "Evaluation and checkpoints",
        long,
        value_name = "FOLDER"
    )]
    pub(crate) resume: Option<PathBuf>,
    /// Print samples, steps and memory, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Device to run on: auto, cuda:N or emu (the emulator)
    #[arg(help_heading = "Device", long, value_name = "DEVICE", default_value_t = Choice::Auto, hide_possible_values = true)]
    pub(crate) device: Choice,
    /// Run on the emulator even if that is estimated to take hours
    #[arg(help_heading = "Device", long)]
    pub(crate) insist: bool,

    /// Number of tokens in a row (longer samples lose their end)
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
    /// Put one sample in a row instead of as many as have room
    #[arg(long, help_heading = "Batches")]
    pub(crate) no_packing: bool,
    /// Learn prompts too, and every message of a conversation
    #[arg(long, help_heading = "Batches")]
    pub(crate) train_on_prompt: bool,
    /// Date for chat templates that ask for it, as YYYY-MM-DD [default: today in UTC]
    #[arg(long, value_name = "DATE", value_parser = template::date, help_heading = "Batches")]
    pub(crate) date: Option<Date>,
    /// Number of times that every sample is learned [default: 1]
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
    /// Seed of the order of samples, of the first adapters and of dropout
    #[arg(long, default_value_t = 0, help_heading = "Batches")]
    pub(crate) seed: u64,

    /// Rank of the adapters
    #[arg(long, default_value_t = 16, help_heading = "Adapters")]
    pub(crate) rank: usize,
    /// Alpha of the adapters, whose scale is alpha / rank
    #[arg(
        long,
        default_value_t = 32.0,
        allow_negative_numbers = true,
        help_heading = "Adapters"
    )]
    pub(crate) alpha: f64,
    /// Share of the adapters' inputs that dropout sets to zero
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
    /// Number format of the frozen projections
    #[arg(long, value_enum, default_value_t = BaseChoice::Auto, help_heading = "Adapters")]
    pub(crate) base: BaseChoice,
    /// Number format of the largest weight of each NF4 block (a file in NF4 has its own)
    #[arg(long, value_enum, default_value_t = AbsmaxChoice::F32, help_heading = "Adapters")]
    pub(crate) absmax: AbsmaxChoice,

    /// Learning rate
    #[arg(
        long,
        default_value_t = 2e-4,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) lr: f64,
    /// Shape of the learning rate after the warm-up, by the formulas of transformers
    #[arg(long, value_enum, default_value_t = Schedule::Cosine, help_heading = "Optimizer")]
    pub(crate) schedule: Schedule,
    /// Number of steps over which the learning rate rises from 0, or below 1 the share of all steps
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) warmup: f64,
    /// Least learning rate, which the step after the last would have
    #[arg(
        long,
        value_name = "LR",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) lr_min: f64,
    /// Largest norm of the gradients of all adapters
    #[arg(
        long,
        value_name = "NORM",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) clip: f64,
    /// Weight decay
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Optimizer"
    )]
    pub(crate) weight_decay: f64,

    /// Evaluate on the samples of a file, or on this share of those of --data
    ///
    /// The evaluation runs before the first step and after the last one. A share of --data is then not learned.
    #[arg(help_heading = "Evaluation and checkpoints", long, value_name = "FILE.jsonl|SHARE", value_parser = OsStringValueParser::new().try_map(evaluate_on))]
    pub(crate) eval: Option<EvaluateOn>,
    /// Number of steps between evaluations
    #[arg(help_heading = "Evaluation and checkpoints", long, value_name = "STEPS", requires = "eval", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) eval_every: Option<u32>,
    /// Number of steps between checkpoints
    #[arg(help_heading = "Evaluation and checkpoints", long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) save_every: Option<u32>,
    /// Activations that the backward pass computes again to save memory [default: the first that fits]
    #[arg(help_heading = "Device", long, value_enum, value_name = "WHAT")]
    pub(crate) recompute: Option<Recompute>,
    /// Method that submits each micro-batch to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    pub(crate) launch: Launch,
    /// Number format of tensors in memory
    #[arg(help_heading = "Device", long, value_enum, default_value_t = PrecisionChoice::Auto)]
    pub(crate) precision: PrecisionChoice,
}

/// The value of --recompute.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Recompute {
    /// Nothing: the most memory
    None,
    /// What norms and SwiGLU give: about a third less is kept, and a step is hardly slower
    Cheap,
    /// All of a layer but what goes into it: much less memory, a slower step
    Layer,
}

impl From<Recompute> for Recomputation {
    fn from(choice: Recompute) -> Recomputation {
        match choice {
            Recompute::None => Recomputation::None,
            Recompute::Cheap => Recomputation::Cheap,
            Recompute::Layer => Recomputation::Layers,
        }
    }
}

/// The value of --precision.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum PrecisionChoice {
    /// bf16 on a GPU and for a model that it supports, else f32
    Auto,
    /// On the tensor cores of compute capability 9.0; adapters and sums stay f32
    Bf16,
    /// By simple kernels, many times slower
    F32,
}

/// One of the values of --targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Targets {
    All,
    One(Projection),
}

fn target(text: &str) -> Result<Targets, String> {
    if text == "all-linear" {
        return Ok(Targets::All);
    }
    let found = Projection::ALL.into_iter().find(|p| p.name() == text);
    found.map(Targets::One).ok_or_else(|| {
        let names = Projection::ALL.map(Projection::name).join(", ");
        format!("no projection of that name; there are {names}, and all-linear for all of them")
    })
}

/// Refuses what can be read only once: samples are read, and later hashed.
fn check_data(flag: &str, path: &Path) -> Result<(), Failure> {
    let standard = path == Path::new("-");
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() => Err(Failure::Input(format!(
            "{flag} {} is no file: write the samples to one first",
            path.display()
        ))),
        Err(_) if standard => Err(Failure::Input(format!(
            "{flag} - cannot be standard input: samples are read twice; write them to a file first"
        ))),
        _ => Ok(()),
    }
}

/// Returns the checkpoint of the last step in a folder, if there is one.
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
        path.join(checkpoint::STATE)
            .is_file()
            .then_some((step, path))
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

/// What reads as a number is a share.
fn evaluate_on(text: OsString) -> Result<EvaluateOn, String> {
    match text.to_str().and_then(|text| text.parse().ok()) {
        None => Ok(EvaluateOn::File(text.into())),
        Some(share) if share > 0.0 && share < 1.0 => Ok(EvaluateOn::Share(share)),
        Some(share) => Err(format!(
            "{share} is no share, which is above 0 and below 1; a file of that name is ./{}",
            text.display()
        )),
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaseChoice {
    /// NF4 for weights of 16 and 32 bits; quantized ones keep their values
    Auto,
    /// NF4 for all
    Nf4,
    /// The values of the file
    Keep,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbsmaxChoice {
    /// F32
    F32,
    /// 8 bits (double quantization), as bases in bitsandbytes mostly are: 0.37 bits a weight less
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

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// Half a cosine from --lr towards --lr-min
    Cosine,
    /// A line from --lr towards --lr-min
    Linear,
    /// --lr in every step
    Constant,
}

impl From<Schedule> for schedule::Decay {
    fn from(schedule: Schedule) -> schedule::Decay {
        match schedule {
            Schedule::Cosine => schedule::Decay::Cosine,
            Schedule::Linear => schedule::Decay::Linear,
            Schedule::Constant => schedule::Decay::Constant,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Launch {
    /// One launch of a hand-built graph for each micro-batch
    Graph,
    /// One launch of a graph that the driver captured from a stream
    Capture,
    /// One launch for each kernel
    Eager,
}

impl From<Launch> for step::Launch {
    fn from(launch: Launch) -> step::Launch {
        match launch {
            Launch::Graph => step::Launch::Graph,
            Launch::Capture => step::Launch::Capture,
            Launch::Eager => step::Launch::Eager,
        }
    }
}

impl Args {
    /// Refuses what no sample decides: a row of less than two tokens, and no checkpoint where one is named.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.seq < 2 {
            let seq = self.seq;
            return Err(Failure::Input(format!(
                "--seq {seq} is too short: a token is learned from those before it"
            )));
        }
        if let Some(from) = self
            .resume
            .as_ref()
            .filter(|from| !from.join(checkpoint::STATE).is_file())
        {
            let (from, state) = (from.display(), checkpoint::STATE);
            return Err(Failure::Input(format!(
                "--resume {from} is no checkpoint: there is no {state} in it; name a folder checkpoint-N"
            )));
        }
        check_data("--data", &self.data)?;
        self.check_out()
    }

    /// Refuses a folder in use: an adapter is never written over by accident. A dry run refuses the same folders as the
    /// training that it stands for.
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
                "--out {} is in use; name an empty folder{resume}",
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

    pub(super) fn quantization(&self) -> Quantization {
        Quantization {
            format: self.base.into(),
            absmax: self.absmax.into(),
        }
    }

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

    pub(super) fn projections(&self) -> Vec<Projection> {
        let chosen = |p: &Projection| {
            self.targets
                .iter()
                .any(|t| [Targets::All, Targets::One(*p)].contains(t))
        };
        Projection::ALL.into_iter().filter(chosen).collect()
    }
}
