//! Options that several measurements share, and the options of decoders that follow from them.

use clap::value_parser;
use warpwright_engine::{Options, TokenChoice, Tuning};

use crate::device::DeviceChoice;
use crate::model::options::Launch;

/// The default number of tokens in a round.
pub(super) const DEFAULT_TOKENS: u32 = 256;

/// The device to measure.
#[derive(clap::Args)]
#[command(next_help_heading = "Device")]
pub(super) struct BenchDevice {
    /// Device to measure: auto, cuda:N or emu (the CPU emulator)
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    pub(super) device: DeviceChoice,
    /// Run on the emulator even if the estimated time is longer than half an hour
    #[arg(long)]
    pub(super) insist: bool,
}

/// The option `--sample`.
#[derive(clap::Args)]
pub(super) struct SampleArg {
    /// Sample tokens with filters and a penalty, instead of taking the most likely ones
    #[arg(long)]
    pub(super) sample: bool,
}

impl SampleArg {
    /// Returns the kernels that choose tokens.
    pub(super) fn choice(&self) -> TokenChoice {
        if self.sample {
            TokenChoice::Sampled { logprobs: 0 }
        } else {
            TokenChoice::Greedy
        }
    }
}

/// The options of rounds that decode one sequence.
#[derive(clap::Args)]
pub(super) struct RoundArgs {
    /// Number of tokens in a round
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_TOKENS,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) tokens: u32,
    /// Number of timed rounds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) sample: SampleArg,
    #[command(flatten)]
    pub(super) device: BenchDevice,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    pub(super) launch: Launch,
    /// Division of the overlapping kernels into blocks, such as 4x2_first or qkv=4x2_first
    #[arg(help_heading = "Device", long, value_name = "PLAN")]
    plan: Option<Tuning>,
    /// Number of tokens in one launch of a graph
    #[arg(
        help_heading = "Device",
        long,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..)
    )]
    tokens_per_launch: Option<u32>,
}

impl RoundArgs {
    pub(super) fn settings(&self) -> DecoderSettings {
        DecoderSettings {
            tokens: self.tokens,
            plan: self.plan,
            tokens_per_launch: self.tokens_per_launch,
            choice: self.sample.choice(),
        }
    }
}

/// The options of prompts that are prefilled.
#[derive(clap::Args)]
pub(super) struct PrefillArgs {
    /// Number of tokens in each prompt to measure
    #[arg(
        long,
        alias = "prompt",
        value_name = "N,N,..",
        required = true,
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) tokens: Vec<u32>,
    /// Number of timed rounds for each prompt
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) device: BenchDevice,
    /// Division of the overlapping kernels into blocks, such as 4x2_first or qkv=4x2_first
    #[arg(help_heading = "Device", long, value_name = "PLAN")]
    plan: Option<Tuning>,
}

impl PrefillArgs {
    pub(super) fn settings(&self) -> DecoderSettings {
        DecoderSettings {
            plan: self.plan,
            ..DecoderSettings::default()
        }
    }

    /// Returns the number of tokens in the longest prompt.
    pub(super) fn longest(&self) -> u32 {
        *self.tokens.iter().max().expect("clap requires prompts")
    }

    /// Returns the number of tokens in all rounds, with a round to warm up, in two ways.
    pub(super) fn work(&self) -> u64 {
        let prompts: u64 = self.tokens.iter().map(|&tokens| u64::from(tokens)).sum();
        2 * (1 + u64::from(self.rounds)) * prompts
    }
}

/// The options of the decoders of a measurement.
#[derive(Clone, Copy)]
pub(super) struct DecoderSettings {
    /// The number of tokens in a round.
    pub(super) tokens: u32,
    pub(super) plan: Option<Tuning>,
    pub(super) tokens_per_launch: Option<u32>,
    /// The kernels that choose tokens.
    pub(super) choice: TokenChoice,
}

impl Default for DecoderSettings {
    fn default() -> DecoderSettings {
        DecoderSettings {
            tokens: DEFAULT_TOKENS,
            plan: None,
            tokens_per_launch: None,
            choice: TokenChoice::Greedy,
        }
    }
}

impl DecoderSettings {
    /// Returns the options of a decoder whose context fits a round.
    pub(super) fn options(&self, ctx: u32, launch: Launch) -> Options {
        let options = Options::new(ctx + self.tokens - 1, launch.into());
        // Rounds have no prompt.
        Options {
            tuning: self.plan.unwrap_or_default(),
            prefill_batch: 1,
            chunk: 0,
            tokens_per_launch: self.tokens_per_launch.unwrap_or(options.tokens_per_launch),
            choice: self.choice,
            ..options
        }
    }
}
