//! Holds the first steps of a fine-tune to the reference, on the same model, data and seed.
//!
//! `compute` runs the reference: in f64, or rounded wherever a step in bf16 rounds. `compare` puts the losses that
//! `warpwright finetune` wrote beside it; it needs neither the model nor the data. Flags that `compute` does not have must
//! have had their defaults. Exit code 1 says that a loss was too far off, 2 that it could not run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, ValueEnum};
use serde_json::{Value, json};
use warpwright_kernels::train::Storage;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_model::Model;
use warpwright_train::base::{Base, BaseFormat};
use warpwright_train::data::{BatchShape, Batches, Dataset, Preprocess, TrainingLength};
use warpwright_train::reference::{self, Adapters, References, Trainer};
use warpwright_train::{LayerWeights, Lora, Projection, Training, Weights};

type Failure = Box<dyn std::error::Error>;

/// The first losses of a fine-tune, and those of the reference
#[derive(Parser)]
enum Command {
    /// Computes the first losses by the reference
    Compute(Compute),
    /// Compares the losses of fine-tunes with those of the reference
    Compare(Compare),
}

#[derive(Args)]
struct Compute {
    model: PathBuf,
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
    /// Steps to compute
    #[arg(long, default_value_t = 20)]
    first: u32,
    /// How tensors are stored between operations
    #[arg(long, value_enum, default_value_t = Rounding::F64)]
    storage: Rounding,
    /// What the frozen matrices and the embedding are rounded to [default: as --storage]
    #[arg(long, value_enum)]
    weights: Option<Rounding>,
    /// File of the losses, an object a line as in metrics.jsonl
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args)]
struct Compare {
    /// Losses of the reference
    #[arg(long)]
    reference: PathBuf,
    /// Adapters, or files of losses
    #[arg(required = true)]
    found: Vec<PathBuf>,
    /// Largest difference of a loss
    #[arg(long, default_value_t = 0.01)]
    within: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rounding {
    /// Nothing is rounded
    F64,
    /// As the step in bf16 rounds
    Bf16,
}

impl Rounding {
    fn storage(self) -> Storage {
        match self {
            Rounding::F64 => Storage::F64,
            Rounding::Bf16 => Storage::Bf16,
        }
    }
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Compute(options) => compute(&options).map(|()| true),
        Command::Compare(options) => compare(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

fn compute(options: &Compute) -> Result<(), Failure> {
    let model = Model::open(&options.model)?;
    let base = Base::from_model(&model, BaseFormat::Auto)?;
    let lora = Lora {
        rank: 16,
        alpha: 32.0,
        dropout: 0.0,
        seed: options.seed,
        targets: Projection::ALL.into(),
    };
    let adapters = Adapters::random(&base.config, &lora, options.seed);
    let batches = batches(options, &model)?;
    let weights = rounded(
        base.exact()?,
        options.weights.unwrap_or(options.storage).storage(),
    );
    let storage = options.storage.storage();
    let mut reference =
        reference::Model::new(base.config.clone(), lora, weights, storage, &References)?;
    reference.pairing = base.pairing;
    let mut trainer = Trainer::new(&reference, training(options), adapters)?;
    let mut out = BufWriter::new(File::create(&options.out)?);
    for step in 0..options.first.min(options.steps) {
        let (micros, began) = (batches.step(step), Instant::now());
        let record = trainer.step(&micros)?;
        println!(
            "{:4} {:10.6} {:6.1} s",
            step + 1,
            record.loss,
            began.elapsed().as_secs_f64()
        );
        writeln!(
            out,
            "{}",
            json!({ "step": step + 1, "loss": record.loss, "norm": record.norm })
        )?;
        out.flush()?;
    }

    Ok(())
}

/// What a device has of the frozen weights: vectors stay as they are.
fn rounded(weights: Weights, to: Storage) -> Weights {
    let layer = |layer: LayerWeights| LayerWeights {
        projections: layer.projections.map(|matrix| to.store(matrix)),
        ..layer
    };
    Weights {
        embed: to.store(weights.embed),
        head: weights.head.map(|head| to.store(head)),
        norm: weights.norm,
        layers: weights.layers.into_iter().map(layer).collect(),
    }
}

fn compare(options: &Compare) -> Result<bool, Failure> {
    let reference = losses(&options.reference)?;
    let mut fine = true;
    for path in &options.found {
        let found = losses(path)?;
        if found.len() < reference.len() {
            return Err(format!(
                "{} has {} steps of {}",
                path.display(),
                found.len(),
                reference.len()
            )
            .into());
        }

        println!("{}\nstep  reference      found  difference", path.display());
        let mut largest: f64 = 0.0;
        for (step, (wanted, found)) in (1..).zip(reference.iter().zip(&found)) {
            // Not a number is not below the largest.
            largest = if (wanted - found).abs() <= largest {
                largest
            } else {
                (wanted - found).abs()
            };
            println!(
                "{step:4} {wanted:10.6} {found:10.6} {:11.2e}",
                found - wanted
            );
        }

        let right = largest <= options.within;
        fine &= right;
        let verdict = if right { "within" } else { "above" };
        println!(
            "the largest difference is {largest:.2e}, {verdict} {}",
            options.within
        );
    }

    Ok(fine)
}

/// The loss of each step that was recorded; of a step that was not finite, no number.
fn losses(path: &Path) -> Result<Vec<f64>, Failure> {
    let path = if path.is_dir() {
        path.join("metrics.jsonl")
    } else {
        path.to_owned()
    };
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rows = text
        .lines()
        .map(serde_json::from_str::<Value>)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(rows
        .iter()
        .filter_map(|row| row.get("loss"))
        .map(|loss| loss.as_f64().unwrap_or(f64::NAN))
        .collect())
}

fn batches(options: &Compute, model: &Model) -> Result<Batches, Failure> {
    let (tokenizer, template) = (model.tokenizer()?, model.chat_template()?);
    let how = Preprocess {
        tokenizer: &tokenizer,
        template: template.as_ref(),
        len: options.seq,
        train_on_prompt: false,
    };
    let data = Dataset::read(&options.data, &how)?;
    let shape = BatchShape {
        len: options.seq,
        rows: options.batch,
        accumulate: 1,
        packing: true,
        seed: options.seed,
        length: TrainingLength::Steps(options.steps),
    };
    Ok(Batches::new(data, shape)?)
}

fn training(options: &Compute) -> Training {
    let schedule = Schedule {
        decay: Decay::Cosine,
        lr: options.lr,
        lr_min: 0.0,
        warmup: 0,
        total: options.steps,
    };
    let adamw = AdamW {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        decay: 0.0,
    };
    Training {
        schedule,
        adamw,
        max_norm: 1.0,
    }
}
