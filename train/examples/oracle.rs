//! Holds the first steps of a fine-tune to the reference in f64, on the same model, data and seed.
//!
//! It takes the folder that `warpwright finetune` wrote, and the flags that it was given; the others must have had their
//! defaults. Exit code 1 says that a loss was too far off, 2 that it could not run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use warpwright_engine::Model;
use warpwright_kernels::train::Storage;
use warpwright_kernels::train::adamw::AdamW;
use warpwright_kernels::train::schedule::{Decay, Schedule};
use warpwright_train::base::{Base, BaseFormat};
use warpwright_train::data::{Batches, Data, Length, Preprocess, Shape};
use warpwright_train::reference::{self, Adapters, References, Trainer};
use warpwright_train::{Lora, Projection, Training};

type Failure = Box<dyn std::error::Error>;

/// The share of the steps over which the rate rises, as `finetune` has it.
const WARMUP: f64 = 0.03;

/// Compares the first losses of a fine-tune with those of the reference in f64
#[derive(Parser)]
struct Options {
    model: PathBuf,
    /// The folder of the adapter
    out: PathBuf,
    #[arg(long)]
    data: PathBuf,
    #[arg(long, default_value_t = 1024)]
    seq: usize,
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Steps of the fine-tune
    #[arg(long)]
    steps: u32,
    #[arg(long, default_value_t = 2e-4)]
    lr: f64,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps to compare
    #[arg(long, default_value_t = 20)]
    first: u32,
    /// Largest difference of a loss
    #[arg(long, default_value_t = 0.01)]
    within: f64,
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

fn compare(options: &Options) -> Result<bool, Failure> {
    let losses = losses(&options.out.join("metrics.jsonl"))?;
    let first = options.first.min(options.steps);
    if losses.len() < first as usize {
        return Err(format!("{} has {} steps", options.out.display(), losses.len()).into());
    }
    let model = Model::open(&options.model)?;
    let base = Base::of(&model, BaseFormat::Auto)?;
    let lora =
        Lora { rank: 16, alpha: 32.0, dropout: 0.0, seed: options.seed, targets: Projection::ALL.into() };
    let adapters = Adapters::random(&base.config, &lora, options.seed);
    let batches = batches(options, &model)?;
    let mut exact =
        reference::Model::new(base.config.clone(), lora, base.exact()?, Storage::F64, &References)?;
    exact.pairing = base.pairing;
    let mut trainer = Trainer::new(&exact, training(options), adapters)?;
    let mut largest: f64 = 0.0;
    println!("step        f64     device  difference");
    for step in 0..first {
        let (wanted, found) = (trainer.step(&batches.step(step))?.loss, losses[step as usize]);
        largest = largest.max((wanted - found).abs());
        println!("{:4} {wanted:10.6} {found:10.6} {:11.2e}", step + 1, found - wanted);
    }
    let right = largest <= options.within;
    println!(
        "the largest difference is {largest:.2e}, {} {}",
        if right { "within" } else { "above" },
        options.within
    );
    Ok(right)
}

/// The loss of each step that was recorded.
fn losses(path: &Path) -> Result<Vec<f64>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rows = text.lines().map(serde_json::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
    Ok(rows.iter().filter_map(|row| row["loss"].as_f64()).collect())
}

fn batches(options: &Options, model: &Model) -> Result<Batches, Failure> {
    let (tokenizer, template) = (model.tokenizer()?, model.chat_template()?);
    let how = Preprocess {
        tokenizer: &tokenizer,
        template: template.as_ref(),
        len: options.seq,
        train_on_prompt: false,
    };
    let data = Data::read(&options.data, &how)?;
    let shape = Shape {
        len: options.seq,
        rows: options.batch,
        accumulate: 1,
        packing: true,
        seed: options.seed,
        length: Length::Steps(options.steps),
    };
    Ok(Batches::new(data, shape)?)
}

fn training(options: &Options) -> Training {
    let warmup = (WARMUP * f64::from(options.steps)).ceil() as u32;
    let schedule =
        Schedule { decay: Decay::Cosine, lr: options.lr, lr_min: 0.0, warmup, total: options.steps };
    let adamw = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 };
    Training { schedule, adamw, max_norm: 1.0 }
}
