//! `warpwright graph`: writes the decode graph in Graphviz's DOT language.

use std::path::PathBuf;

use warpwright_engine::{Launch, Options, StepKind};
use warpwright_model::Model;

use crate::device;
use crate::failure::Failure;
use crate::model::options::{ModelDeviceArgs, decoder};
use warpwright_emu::output::{Output, OutputContent};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ModelDeviceArgs,
    /// File for the graph, in Graphviz's DOT language; - is standard output
    #[arg(long, value_name = "FILE")]
    dot: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let out = Output {
        option: "--dot",
        path: &args.dot,
        inputs: vec![("model", args.target.model.path()?)],
        content: OutputContent::Text,
    };
    out.check()?;
    let model = Model::open(args.target.model.path()?)?;
    let context = device::open(args.target.device)?;
    let ctx = args
        .target
        .context_length(&model, model.outline.config.context as usize);
    let decoder = decoder(
        &args.target,
        &context,
        &model,
        Options::new(ctx, Launch::Eager),
        0,
    )?;
    let dot = decoder.dot(StepKind::Decode)?;
    Ok(out.write(|file| file.write(dot.as_bytes()))?)
}
