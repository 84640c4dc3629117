//! `warpwright graph`: the decode graph as a picture.

use std::path::PathBuf;

use warpwright_engine::{Launch, Model, Options, StepKind};

use crate::device;
use crate::failure::Failure;
use crate::options::{Place, decoder};
use crate::output::write_file;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// File to write, in Graphviz's language
    #[arg(long, value_name = "FILE")]
    dot: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let model = Model::open(&args.place.model)?;
    let context = device::open(args.place.device)?;
    let ctx = args.place.context_length(&model, model.outline.config.context as usize);
    let decoder = decoder(&context, &model, Options::new(ctx, Launch::Eager))?;
    let dot = decoder.dot(StepKind::Decode)?;
    write_file(&args.dot, |file| file.write(dot.as_bytes()))
}
