//! `warpwright bench finetune`: how fast an adapter is trained: steps as one graph and kernel by kernel, and
//! what each kernel takes.

mod args;
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use warpwright_driver::Context;
use warpwright_kernels::Random;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_model::Outline;
use warpwright_model::info::{head_weights, layer_weights};
use warpwright_train::base::{self, Base, BaseFormat};
use warpwright_train::reference::{Adapters, MicroBatch, Moments, Record};
use warpwright_train::step::{
    self, Precision, Settings, Snapshot, StepPhase, Tiles, TimedKernel, Trainer, TrainingNeeds,
    Unpacking,
};
use warpwright_train::{Config, Lora, Projection, Training};

use super::files::BenchFiles;
use super::header::BenchHeader;
use super::options::DecoderSettings;
use super::setup::{BenchSetup, CeilingKind};
use super::subject::{BenchSubject, ChosenModel};
use super::time_spread::TimeSpread;
use crate::device;
use crate::device::emulation::{self, TrainingTokens};
use crate::failure::Failure;
use crate::training::{HEAD_CHUNK, Recompute, mebibytes, precision};
pub(crate) use args::Args;
use args::KernelForm;
use report::{FinetuneFigures, FinetuneKernel, FinetuneMemory, FinetuneReport};

/// The number of steps in a round.
const STEPS: u32 = 10;
/// The largest number of rounds.
const MOST: u32 = 1_000_000;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let chosen = args.model.choose_for_training()?;
    let files = BenchFiles {
        model: chosen.path(),
        json: &args.json,
    };
    files.deliver(|| measure(args, &chosen))
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<FinetuneReport, Failure> {
    if args.rounds > MOST {
        return Err(Failure::Input(format!(
            "--rounds {}: at most {MOST} of {STEPS} steps each",
            args.rounds
        )));
    }

    let subject = chosen.open()?;
    let context = device::open(args.device.device)?;
    let config = match &subject {
        BenchSubject::File(model) => base::config(model)?,
        BenchSubject::Random { name, outline } => base::config_of(outline, Path::new(name))?,
    };
    let shapes: Vec<[u32; 2]> = args
        .batch
        .iter()
        .flat_map(|&batch| args.seq.iter().map(move |&seq| [batch, seq]))
        .collect();
    let settings = shapes
        .iter()
        .map(|&shape| settings(args, &context, subject.outline(), &config, shape));
    let settings = settings.collect::<Result<Vec<_>, _>>()?;
    for (settings, &shape) in settings.iter().zip(&shapes) {
        check(args, &context, subject.outline(), settings, shape)?;
    }

    let base = match &subject {
        BenchSubject::File(model) => Base::from_model(model, BaseFormat::Auto)?,
        BenchSubject::Random { name, outline } => Base::random(outline, name)?,
    };
    let setup = BenchSetup::with_context(
        subject,
        context,
        DecoderSettings::default(),
        CeilingKind::ReadAndTensor,
    )?;
    let precision = precision(settings[0].precision);
    let all = shapes.iter().zip(settings);
    let shapes = all.map(|(&shape, settings)| figures(args, &setup, &base, settings, shape));
    let shapes = shapes.collect::<Result<_, _>>()?;
    let recomputed = match args.recompute {
        Recompute::None => "",
        Recompute::Cheap => ", norms and SwiGLU recomputed",
        Recompute::Layer => ", layers recomputed",
    };
    let forms: String = args.forms.iter().map(|form| form.note()).collect();
    let kernels = format!(
        "kernels in {precision}, rank {} on all projections{recomputed}{forms}",
        args.rank
    );
    let header = BenchHeader::of_training(&setup, kernels);
    Ok(FinetuneReport {
        header,
        precision,
        rank: args.rank,
        steps: STEPS * args.rounds,
        shapes,
    })
}

/// Returns the settings of `finetune`, in `bf16` if the device and the model support it.
fn settings(
    args: &Args,
    context: &Context,
    outline: &Outline,
    config: &Config,
    [batch, seq]: [u32; 2],
) -> Result<Settings, Failure> {
    if seq > outline.config.context {
        return Err(Failure::Input(format!(
            "--seq {seq}: this model has {} positions",
            outline.config.context
        )));
    }

    let form = |form| args.forms.contains(&form);
    if form(KernelForm::UnpackAhead) && form(KernelForm::UnpackApart) {
        let why = "--forms takes unpack-ahead or unpack-apart, not both";
        return Err(Failure::Input(why.into()));
    }

    let total = STEPS * args.rounds;
    let schedule = Schedule {
        decay: Decay::Cosine,
        lr: 2e-4,
        lr_min: 0.0,
        warmup: total.div_ceil(10),
        total,
    };
    let adamw = AdamW {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        decay: 0.0,
    };
    let targets = Projection::ALL.to_vec();
    let settings = Settings {
        config: config.clone(),
        lora: Lora {
            rank: args.rank,
            alpha: 2.0 * args.rank as f64,
            dropout: 0.0,
            seed: 0,
            targets,
        },
        training: Training {
            schedule,
            adamw,
            max_norm: 1.0,
        },
        pairing: outline.config.architecture.pairing,
        tokens: (batch * seq) as usize,
        head_chunk: HEAD_CHUNK,
        recomputation: args.recompute.into(),
        launch: step::Launch::Graph,
        precision: Precision::F32,
        tiles: Tiles::Fitting,
        unpacking: match [KernelForm::UnpackAhead, KernelForm::UnpackApart].map(form) {
            [true, _] => Unpacking::Ahead,
            [_, true] => Unpacking::Apart,
            _ => Unpacking::Fitting,
        },
        attention: if form(KernelForm::AttentionByMma) {
            TensorOp::Mma
        } else {
            TensorOp::Wgmma
        },
    };
    settings.lora.check()?;
    let tensor_cores =
        !device::is_emulator(context) && Precision::Bf16.check(context, &settings).is_ok();
    if !tensor_cores && !args.forms.is_empty() {
        let why = "--forms is of kernels in bf16, and this step is in f32: the device or the model has none in bf16";
        return Err(Failure::Input(why.into()));
    }

    Ok(Settings {
        precision: if tensor_cores {
            Precision::Bf16
        } else {
            Precision::F32
        },
        ..settings
    })
}

/// Checks that the training fits into the memory, and that the emulator finishes it soon.
fn check(
    args: &Args,
    context: &Context,
    outline: &Outline,
    settings: &Settings,
    [batch, seq]: [u32; 2],
) -> Result<(), Failure> {
    let needed = needs(outline, settings)?.total();
    let free = context.memory()?.0 as u64;
    if needed > free {
        return Err(Failure::Input(format!(
            "training {batch} rows of {seq} tokens needs {} of device memory, and {} are free",
            mebibytes(needed),
            mebibytes(free)
        )));
    }

    if args.device.insist || !device::is_emulator(context) {
        return Ok(());
    }

    let per_launch = settings.tokens as u64;

    // As a graph and kernel by kernel.
    let steps = 2 * u64::from(STEPS * (args.rounds + 1));
    emulation::training(
        layer_weights(outline) + head_weights(outline),
        TrainingTokens {
            trained: steps * per_launch,
            evaluated: 0,
            per_launch,
        },
    )
}

fn needs(outline: &Outline, settings: &Settings) -> Result<TrainingNeeds, Failure> {
    let weights = base::bytes(outline, BaseFormat::Auto, settings.precision);
    Ok(TrainingNeeds::for_settings(settings, weights)?)
}

fn figures(
    args: &Args,
    setup: &BenchSetup,
    base: &Base,
    settings: Settings,
    [batch, seq]: [u32; 2],
) -> Result<FinetuneFigures, Failure> {
    let needs = needs(setup.outline(), &settings)?;
    let config = settings.config.clone();
    let lora = settings.lora.clone();
    let before = setup.context.memory()?.0;
    let adapters = Adapters::random(&config, &lora, 0);
    let mut trainer = Trainer::new(&setup.context, settings, &base.weights, &adapters)?;
    let nodes = trainer.nodes().unwrap_or(0);
    let taken = before.saturating_sub(setup.context.memory()?.0) as u64;
    let micro = micro_batch(config.vocab, [batch, seq]);
    let (times, records) = rounds(&mut trainer, args, &micro)?;
    let mut trainer = afresh(trainer, &adapters, step::Launch::Eager)?;
    let (eager_times, eager_records) = rounds(&mut trainer, args, &micro)?;
    let kernels = if args.profile {
        rows(&mut trainer, args, micro)?
    } else {
        vec![]
    };
    let [ms_per_step, eager_ms_per_step] =
        [times, eager_times].map(|times| TimeSpread::of(1, times.into_iter()).scaled(1e-3));
    let tokens = f64::from(batch * seq);
    let tflops =
        operations(setup.outline(), &lora, &config, [batch, seq]) * 1e-9 / ms_per_step.median;
    Ok(FinetuneFigures {
        batch,
        seq,
        graph_speedup: eager_ms_per_step.median / ms_per_step.median,
        tokens_per_s: tokens * 1e3 / ms_per_step.median,
        ms_per_step,
        eager_ms_per_step,
        nodes,
        tflops,
        share_of_tensor_ceiling: setup.ceilings().share_of_tensor(Some(tflops)),
        memory: FinetuneMemory::of(&needs, taken),
        differs: difference(&records, &eager_records),
        kernels,
    })
}

/// Returns the trainer to the state before its first step, with another launch mode.
fn afresh(trainer: Trainer, adapters: &Adapters, launch: step::Launch) -> Result<Trainer, Failure> {
    let mut trainer = trainer.with_launch(launch)?;
    let mut zeros = adapters.clone();
    for tensor in zeros.tensors_mut() {
        tensor.fill(0.0);
    }

    trainer.restore(&Snapshot {
        adapters: adapters.clone(),
        moments: Moments {
            first: zeros.clone(),
            second: zeros,
        },
        step: 0,
        skipped: 0,
        micro: 0,
        corrections: [0.0; 2],
    })?;
    Ok(trainer)
}

/// Rows of random tokens, all of them learned but the last of each row.
fn micro_batch(vocab: usize, [batch, seq]: [u32; 2]) -> MicroBatch {
    let mut random = Random(2);
    let ids: Vec<u32> = (0..batch * seq)
        .map(|_| random.below(vocab as u32))
        .collect();
    let label = |i: usize| (!(i + 1).is_multiple_of(seq as usize)).then(|| ids[i + 1]);
    let labels: Vec<_> = (0..ids.len()).map(label).collect();
    MicroBatch {
        number: 0,
        positions: (0..batch * seq).map(|i| i % seq).collect(),
        starts: (0..batch * seq).map(|i| i / seq * seq).collect(),
        n: labels.iter().flatten().count().max(1),
        labels,
        ids,
    }
}

/// Runs a round to warm up and the timed rounds. Returns the times of the timed steps and the
/// records of all steps.
fn rounds(
    trainer: &mut Trainer,
    args: &Args,
    micro: &MicroBatch,
) -> Result<(Vec<Duration>, Vec<Record>), Failure> {
    let mut times = vec![];
    let mut records = vec![];
    for number in 0..STEPS * (args.rounds + 1) {
        let micros = [MicroBatch {
            number,
            ..micro.clone()
        }];
        let start = Instant::now();
        records.push(trainer.step(&micros)?);
        times.push(start.elapsed());
    }

    Ok((times.split_off(STEPS as usize), records))
}

/// Returns the kernels of the fastest of several steps.
fn rows(
    trainer: &mut Trainer,
    args: &Args,
    micro: MicroBatch,
) -> Result<Vec<FinetuneKernel>, Failure> {
    let first = STEPS * (args.rounds + 1);
    let mut steps = vec![];
    for number in first..first + args.rounds {
        steps.push(trainer.profile(&MicroBatch {
            number,
            ..micro.clone()
        })?);
    }

    let time = |step: &Vec<TimedKernel>| step.iter().map(|kernel| kernel.time).sum::<Duration>();
    let fastest = steps
        .into_iter()
        .min_by_key(time)
        .expect("clap requires at least one round");
    let mut rows: Vec<FinetuneKernel> = vec![];
    for TimedKernel {
        part,
        kernel,
        time,
        bytes,
    } in fastest
    {
        let part = name(part);
        let same =
            |row: &FinetuneKernel| row.part == part && row.kernel == kernel && row.bytes == bytes;
        let at = rows.iter().position(same).unwrap_or_else(|| {
            rows.push(FinetuneKernel {
                part,
                kernel: kernel.clone(),
                launches: 0,
                us: 0.0,
                bytes,
                gb_per_s: 0.0,
            });
            rows.len() - 1
        });
        rows[at].launches += 1;
        rows[at].us += time.as_secs_f64() * 1e6;
    }

    for row in &mut rows {
        row.gb_per_s = row.bytes as f64 * f64::from(row.launches) / row.us * 1e-3;
    }

    rows.sort_by(|a, b| b.us.total_cmp(&a.us));
    Ok(rows)
}

/// Returns a description of the first records of two lists that differ in a bit.
fn difference(a: &[Record], b: &[Record]) -> Option<String> {
    let bits = |record: &Record| [record.loss, record.norm].map(f64::to_bits);
    let text = |record: &Record| format!("loss {}, norm {}", record.loss, record.norm);
    let i = a.iter().zip(b).position(|(a, b)| bits(a) != bits(b))?;
    Some(format!(
        "step {} DIFFERS: {}; kernel by kernel {}",
        i + 1,
        text(&a[i]),
        text(&b[i])
    ))
}

fn name(part: StepPhase) -> &'static str {
    match part {
        StepPhase::Forward => "forward",
        StepPhase::Head => "head",
        StepPhase::Backward => "backward",
        StepPhase::Update => "update",
    }
}

/// Multiplications and additions of a step's products: frozen weights forward and for gradients of
/// their inputs, adapters and their gradients, attention (two products of each pair of tokens
/// forward, five backward).
fn operations(outline: &Outline, lora: &Lora, config: &Config, [batch, seq]: [u32; 2]) -> f64 {
    let tokens = f64::from(batch) * f64::from(seq);
    let frozen = (layer_weights(outline) + head_weights(outline)) as f64;
    let adapters = lora.trainable(config) as f64;
    let pairs = f64::from(batch) * f64::from(seq) * (f64::from(seq) + 1.0) / 2.0;
    let attention = 7.0
        * 2.0
        * f64::from(outline.config.layer_count())
        * f64::from(outline.config.q_len())
        * pairs;
    4.0 * frozen * tokens + 6.0 * adapters * tokens + attention
}
