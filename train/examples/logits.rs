//! The logits that training has: those of the step in `f32`, with an adapter or without, as another program would compare
//! them. `warpwright logits` decodes, with keys and values in `f16`; here nothing is rounded below `f32`.
//!
//! They are written as little-endian `f32`, a row of the vocabulary for each token.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use warpwright_driver::{Context, Driver};
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_model::Model;
use warpwright_train::base::{Base, BaseFormat};
use warpwright_train::peft::{self, AdapterShapes};
use warpwright_train::reference::{Adapters, MicroBatch};
use warpwright_train::step::{
    Launch, Precision, Recomputation, Settings, Tiles, Trainer, Unpacking,
};
use warpwright_train::{Lora, Projection, Training};

type Failure = Box<dyn std::error::Error>;

/// Writes the logits of a step of training in f32
#[derive(Parser)]
struct Options {
    model: PathBuf,
    /// Tokens: 1,2,3
    #[arg(long, value_delimiter = ',', required = true)]
    ids: Vec<u32>,
    /// The folder of an adapter
    #[arg(long)]
    adapter: Option<PathBuf>,
    /// Its rank
    #[arg(long, default_value_t = 16)]
    rank: usize,
    /// Its scale is alpha / rank
    #[arg(long, default_value_t = 32.0)]
    alpha: f64,
    /// Its projections: q_proj,v_proj; all, if none is named
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    #[arg(long, value_enum, default_value_t = BaseChoice::Auto)]
    base: BaseChoice,
    /// A number, of a GPU; without it the emulator computes
    #[arg(long)]
    cuda: Option<usize>,
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum BaseChoice {
    Auto,
    Nf4,
    Keep,
}

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    let context = match options.cuda {
        Some(number) => Context::new(&Driver::load()?.device(number)?)?,
        None => Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?,
    };
    let model = Model::open(&options.model)?;
    let format = match options.base {
        BaseChoice::Auto => BaseFormat::Auto,
        BaseChoice::Nf4 => BaseFormat::Nf4,
        BaseChoice::Keep => BaseFormat::Keep,
    };
    let logits = logits(&options, &context, &Base::from_model(&model, format)?)?;
    let bytes: Vec<u8> = logits
        .iter()
        .flat_map(|logit| logit.to_le_bytes())
        .collect();
    std::fs::write(&options.out, bytes)?;
    Ok(())
}

fn logits(options: &Options, context: &Context, base: &Base) -> Result<Vec<f32>, Failure> {
    let lora = lora(options)?;
    let shapes = AdapterShapes {
        config: &base.config,
        lora: &lora,
        pairing: base.pairing,
    };
    let adapters = match &options.adapter {
        Some(folder) => peft::read(folder, &shapes)?,
        None => Adapters::zeros(&base.config, &lora),
    };
    let tokens = options.ids.len();
    let settings = Settings {
        config: base.config.clone(),
        training: training(),
        pairing: base.pairing,
        tokens,
        head_chunk: tokens,
        recomputation: Recomputation::None,
        launch: Launch::Eager,
        precision: Precision::F32,
        tiles: Tiles::Fitting,
        unpacking: Unpacking::Fitting,
        attention: TensorOp::Wgmma,
        lora: lora.clone(),
    };
    let mut trainer = Trainer::new(context, settings, &base.weights, &adapters)?;
    let micro = MicroBatch {
        number: 0,
        labels: vec![None; tokens],
        positions: (0..).take(tokens).collect(),
        starts: vec![0; tokens],
        ids: options.ids.clone(),
        n: 1,
    };
    Ok(trainer.logits(&micro)?)
}

fn lora(options: &Options) -> Result<Lora, Failure> {
    let target = |name: &String| {
        let found = Projection::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| format!("there is no projection {name}"))
    };
    let targets = options
        .targets
        .iter()
        .map(target)
        .collect::<Result<Vec<_>, _>>()?;
    let targets = if targets.is_empty() {
        Projection::ALL.into()
    } else {
        targets
    };
    Ok(Lora {
        rank: options.rank,
        alpha: options.alpha,
        dropout: 0.0,
        seed: 0,
        targets,
    })
}

/// Of an optimizer that takes no step.
fn training() -> Training {
    let schedule = Schedule {
        decay: Decay::Constant,
        lr: 0.0,
        lr_min: 0.0,
        warmup: 0,
        total: 1,
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
