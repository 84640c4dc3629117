//! Saves and loads the pages of a prompt on the first GPU, and prints the times:
//! `kept_pages MODEL FOLDER TOKENS`. The model has the shape of Llama 3.1 8B and random weights. MODEL is any model
//! file, whose fingerprint the files get.

use std::path::Path;
use std::time::Instant;

use warpwright_driver::{Context, Driver};
use warpwright_engine::{Batch, BatchOptions, Error, PageFolder, PrefixScope};
use warpwright_model::{
    Model, Outline,
    shape::{QUANTIZATIONS, SHAPES},
};

const CHUNK: usize = 2048;

fn process(batch: &mut Batch, prompt: &[u32]) -> Result<(Vec<f32>, u32, f64), Error> {
    let begun = Instant::now();
    let (id, cached) = batch.join_prompt(prompt, PrefixScope::default())?;
    for tokens in prompt[cached as usize..].chunks(CHUNK) {
        batch.step(&[(id, tokens)])?;
    }
    let time = begun.elapsed().as_secs_f64();
    let logits = batch.logits(id)?;
    batch.leave(id)?;
    Ok((logits, cached, time))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder, count] = args.as_slice() else {
        return Err("usage: kept_pages MODEL FOLDER TOKENS".into());
    };

    let count: u32 = count.parse()?;
    let context = Context::new(&Driver::load()?.device(0)?)?;
    let model = Model::open(model.as_ref())?;
    let outline = Outline::of(&SHAPES[0], QUANTIZATIONS[0])?;
    let options = BatchOptions {
        positions: 2 * count.next_multiple_of(64),
        ..BatchOptions::new(2, count + 64)
    };
    let mut batch = Batch::random(&context, &outline, options)?;
    let prompt: Vec<u32> = (0..count).map(|i| (i * 37 + i * i * 11) % 32_000).collect();
    process(&mut batch, &prompt[..CHUNK + 1])?;
    batch.forget_kept();
    let (cold, cached, time) = process(&mut batch, &prompt)?;
    println!("cold: {cached} cached, {time:.3} s");
    let (warm, cached, time) = process(&mut batch, &prompt)?;
    println!("warm: {cached} cached, {time:.3} s");
    drop(warm);

    let (id, _) = batch.join_prompt(&prompt, PrefixScope::default())?;
    let first = batch.tokens(id)?.len();
    batch.step(&[(id, &prompt[first..])])?;
    let begun = Instant::now();
    let swapped = batch.swap_out(id)?;
    let out = begun.elapsed().as_secs_f64();
    let gigabytes = swapped.bytes() as f64 / 1e9;
    batch.forget_kept();
    let begun = Instant::now();
    let id = batch.swap_in(&swapped)?;
    let time = begun.elapsed().as_secs_f64();
    println!("swap: {gigabytes:.2} GB, out {out:.3} s, in {time:.3} s");
    batch.leave(id)?;

    for round in 0..2 {
        let begun = Instant::now();
        let folder = PageFolder::open(Path::new(folder), &model, 1 << 40)?;
        let opened = begun.elapsed().as_secs_f64();
        let saved = batch.save_kept(&folder)?;
        let time = begun.elapsed().as_secs_f64() - opened;
        let rate = saved.bytes as f64 / 1e9 / time;
        println!("open {opened:.3} s, save {round}: {saved:?} in {time:.3} s, {rate:.2} GB/s");
    }

    batch.forget_kept();
    let folder = PageFolder::open(Path::new(folder), &model, 1 << 40)?;
    let begun = Instant::now();
    let loadable = batch.load_kept(&folder)?;
    let time = begun.elapsed().as_secs_f64();
    println!(
        "index: {} pages, {} ignored, {time:.3} s",
        loadable.pages,
        loadable.ignored.len()
    );
    let (again, cached, time) = process(&mut batch, &prompt)?;
    println!(
        "after a restart: {cached} cached, {time:.3} s, ignored {:?}",
        batch.take_ignored_files()
    );

    // The last page is computed in another chunk than the first time.
    let largest =
        |logits: &[f32]| (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    let difference = cold
        .iter()
        .zip(&again)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    println!(
        "same token: {}, largest difference {difference:e}",
        largest(&cold) == largest(&again)
    );
    Ok(())
}
