//! `warpwright logits`: how anybody compares this engine with another.

use std::path::PathBuf;

use warpwright_engine::{Model, Options};

use crate::failure::Failure;
use crate::options::{Launch, Place, decoder};
use crate::output::write_file;
use crate::{device, interrupt};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// How a step reaches the device
    #[arg(long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
    /// Tokens to feed, one a step: 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', required = true)]
    ids: Vec<u32>,
    /// File to write: rows of little-endian f32, [ids, vocab]
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    interrupt::install()?;
    let model = Model::open(&args.place.model)?;
    let context = device::open(args.place.device)?;
    let ctx = args.place.context_length(&model, args.ids.len());
    let mut decoder = decoder(&context, &model, Options::new(ctx, args.launch.into()))?;
    let rows = decoder.logits(&args.ids)?;
    write_file(&args.out, |file| {
        for row in rows {
            interrupt::check()?;
            let bytes: Vec<u8> = row?.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            file.write(&bytes)?;
        }
        Ok(())
    })
}
