//! `warpwright graph`: the decode graph as a picture.

use std::path::PathBuf;

use warpwright_engine::{Launch, Model, Options, StepKind};

use crate::device;
use crate::failure::Failure;
use crate::options::{Place, decoder};
use crate::output::{Content, Output};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// File to write, in Graphviz's language; - is standard output
    #[arg(long, value_name = "FILE")]
    dot: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let out = Output {
        option: "--dot",
        path: &args.dot,
        inputs: vec![("model", args.place.model.path()?)],
        content: Content::Text,
    };
    out.check()?;
    let model = Model::open(args.place.model.path()?)?;
    let context = device::open(args.place.device)?;
    let ctx = args
        .place
        .context_length(&model, model.outline.config.context as usize);
    let decoder = decoder(
        &args.place,
        &context,
        &model,
        Options::new(ctx, Launch::Eager),
        0,
    )?;
    let dot = decoder.dot(StepKind::Decode)?;
    out.write(|file| file.write(dot.as_bytes()))
}
