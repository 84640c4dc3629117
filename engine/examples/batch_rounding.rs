//! Random texts in a batch on the first GPU, each compared bit by bit with itself alone:
//! `batch_rounding MODEL TEXTS TOGETHER`. It compares batches that round alike in every step, and
//! then those with the fastest kernels, which differ.

#[path = "../tests/it/rounding.rs"]
mod rounding;

use rounding::{RoundingCase, Text, tokens};
use warpwright_driver::{Context, Driver};
use warpwright_engine::{Batch, BatchOptions, BatchRounding};
use warpwright_kernels::Random;
use warpwright_model::Model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, count, together] = args.as_slice() else {
        return Err("usage: batch_rounding MODEL TEXTS TOGETHER".into());
    };

    let context = Context::new(&Driver::load()?.device(0)?)?;
    let model = Model::open(model.as_ref())?;
    let together: usize = together.parse()?;
    let vocab = model.outline.config.vocab;
    let ctx = model.outline.config.context.min(2048);
    let mut random = Random(3);
    let mut text = |seed: u32| {
        // Half of the texts share a beginning.
        let common = tokens(1, random.below(2) * ctx / 4, vocab);
        let own = tokens(seed, 1 + random.below(ctx / 2), vocab);
        Text {
            prompt: [common, own].concat(),
            reply: 1 + random.below(48) as usize,
        }
    };
    let texts = (2..2 + count.parse::<u32>()?).map(&mut text).collect();
    let create = |options| match Batch::new(&context, &model, options, |_| ()) {
        Ok(batch) => batch,
        Err(error) => panic!("{error}"),
    };
    let sequences = together as u32 + 1;
    let case = RoundingCase {
        create: &create,
        options: BatchOptions {
            tokens: 1024,
            ..BatchOptions::new(sequences, ctx)
        },
        vocab,
        texts,
        together,
    };
    for rounding in [BatchRounding::Same, BatchRounding::Fastest] {
        println!("{rounding:?}: {:?}", case.run(rounding));
    }
    Ok(())
}
