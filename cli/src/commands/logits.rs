//! `warpwright logits`: the logits after each token, to compare this engine with another.

use std::path::PathBuf;

use warpwright_engine::Options;

use crate::adapter::AdapterArgs;
use crate::failure::Failure;
use crate::options::{Launch, Place, decoder};
use crate::output::{Content, Output};
use crate::progress::PromptBar;
use crate::{device, prompt};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
    /// Prefill the tokens in chunks, as prompts are: faster, and about four times less exact
    #[arg(long)]
    fast: bool,
    /// Tokens to feed: 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', required = true, value_parser = prompt::id)]
    ids: Vec<u32>,
    /// File to write: rows of little-endian f32, [ids, vocab]; - is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Args {
    /// Without chunks, every row has the bits of a decode step, because the kernels that take a few tokens at a time
    /// compute each of them as a step of one token does.
    fn options(&self, ctx: u32) -> Options {
        let options = Options::new(ctx, self.launch.into());
        if self.fast {
            options
        } else {
            Options {
                chunk: 0,
                ..options
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let inputs = [("model", args.place.model.path()?)]
        .into_iter()
        .chain(args.adapter.input())
        .collect();
    let out = Output {
        option: "--out",
        path: &args.out,
        inputs,
        content: Content::Bytes,
    };
    out.check()?;
    let model = args.adapter.open(args.place.model.path()?)?;
    let context = device::open(args.place.device)?;
    let ctx = args.place.context_length(&model, args.ids.len());
    let options = args.options(ctx);
    let mut decoder = decoder(
        &args.place,
        &context,
        &model,
        options,
        args.ids.len() as u64,
    )?;
    let rows = decoder.logits(&args.ids)?;
    let mut bar = PromptBar::new(args.ids.len());
    out.write(|file| {
        for (row, taken) in rows.zip(1..) {
            let bytes: Vec<u8> = row?.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            file.write(&bytes)?;
            bar.set(taken);
        }
        Ok(())
    })
}
