//! `warpwright logits`: writes the logits after each token, for example to compare them with
//! another engine.

use std::path::PathBuf;

use warpwright_engine::Options;

use crate::device;
use crate::failure::Failure;
use crate::model::adapter::AdapterArgs;
use crate::model::options::{Launch, ModelDeviceArgs, decoder};
use crate::prompt::source;
use crate::terminal::progress::PromptBar;
use warpwright_emu::output::{Output, OutputContent};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ModelDeviceArgs,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
    /// Prefill the tokens in chunks, like a prompt: faster, and about four times less exact
    #[arg(long)]
    fast: bool,
    /// Token ids to feed one by one, for example 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', required = true, value_parser = source::id)]
    ids: Vec<u32>,
    /// File for the logits, as rows of little-endian f32 with shape [ids, vocab]; - is standard
    /// output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Args {
    /// Returns the options of the decoder.
    ///
    /// Without chunks, each row is bitwise equal to the logits of a decode step. The kernels for a
    /// few tokens compute every token in the same order as the kernels for one.
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
    let inputs = [("model", args.target.model.path()?)]
        .into_iter()
        .chain(args.adapter.input())
        .collect();
    let out = Output {
        option: "--out",
        path: &args.out,
        inputs,
        content: OutputContent::Bytes,
    };

    // A wrong path must fail before the model is loaded, which can take minutes.
    out.check()?;
    let model = args.adapter.open(args.target.model.path()?)?;
    let context = device::open(args.target.device)?;
    let ctx = args.target.context_length(&model, args.ids.len());
    let options = args.options(ctx);
    let mut decoder = decoder(
        &args.target,
        &context,
        &model,
        options,
        args.ids.len() as u64,
    )?;
    let rows = decoder.logits(&args.ids)?;
    let mut bar = PromptBar::new(args.ids.len());
    out.write(|file| {
        for (row, done) in rows.zip(1..) {
            let bytes: Vec<u8> = row?.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            file.write(&bytes)?;
            bar.set(done);
        }
        Ok(())
    })
}
