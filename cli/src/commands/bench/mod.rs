//! `warpwright bench`: how fast this machine decodes, next to how fast its memory can be read.
//!
//! A rate means little without the ceiling of the same card on the same day, so each measurement
//! begins with the read ceiling. Each subcommand has a file or a folder with its options, its
//! measurement and its report. The other files are shared:
//!
//! - [`options`] has options that several measurements share.
//! - [`subject`] is the model to measure, [`setup`] the device with its ceilings, and [`files`]
//!   creates the output files.
//! - [`header`], [`node_table`] and [`time_spread`] are parts of several reports.

mod batch;
mod ceiling;
mod chunk;
mod decode;
mod files;
mod finetune;
mod header;
mod kernels;
mod node_table;
mod options;
mod profile;
mod prompt;
mod serve;
mod setup;
mod subject;
mod time_spread;

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(
    override_usage = "warpwright bench <MODEL> [OPTIONS]\n       warpwright bench <COMMAND> <MODEL> [OPTIONS]"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    measurement: Option<Measurement>,
}

/// The measurements.
///
/// The command line `bench MODEL` never comes here without one: `crate::arguments` inserts
/// `decode`.
#[derive(clap::Subcommand)]
enum Measurement {
    /// Measure decoding: tokens per second of one sequence at several context lengths
    Decode(Box<decode::Args>),
    /// Measure the prefill of prompts, in chunks and a few tokens at a time
    Prompt(Box<prompt::Args>),
    /// Measure each kernel of the first chunk of a prompt
    Chunk(Box<chunk::Args>),
    /// Measure the decoding of several sequences together
    Batch(Box<batch::Args>),
    /// Measure each matrix product alone, with every plan
    Kernels(Box<kernels::Args>),
    /// Measure when each kernel of a token works
    Profile(Box<profile::Args>),
    /// Measure the training steps of fine-tuning
    Finetune(Box<finetune::Args>),
    /// Measure how fast a running server answers many users
    Serve(Box<serve::Args>),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.measurement {
        None => Err(Failure::Input(format!(
            "{}; `warpwright bench --help` lists what else can be measured",
            subject::NOTHING
        ))),
        Some(Measurement::Decode(args)) => decode::run(args),
        Some(Measurement::Prompt(args)) => prompt::run(args),
        Some(Measurement::Chunk(args)) => chunk::run(args),
        Some(Measurement::Batch(args)) => batch::run(args),
        Some(Measurement::Kernels(args)) => kernels::run(args),
        Some(Measurement::Profile(args)) => profile::run(args),
        Some(Measurement::Finetune(args)) => finetune::run(args),
        Some(Measurement::Serve(args)) => serve::run(args),
    }
}
