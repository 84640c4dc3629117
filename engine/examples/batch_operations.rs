//! Random operations on a batch of sequences on the first GPU, each sequence compared bit by bit with itself alone:
//! `batch_operations MODEL COUNT SEED`.

#[path = "../tests/it/operations.rs"]
mod operations;

use warpwright_driver::{Context, Driver};
use warpwright_model::Model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, count, seed] = args.as_slice() else {
        return Err("usage: batch_operations MODEL COUNT SEED".into());
    };

    let context = Context::new(&Driver::load()?.device(0)?)?;
    let (before, _) = context.memory()?;
    let model = Model::open(model.as_ref())?;
    let counts = operations::run(&context, &model, [count.parse()?, 128], seed.parse()?)?;
    let (after, _) = context.memory()?;
    println!("{counts:?}; free memory before {before}, after {after}");
    Ok(())
}
