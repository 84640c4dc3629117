//! `bench --finetune`: how fast an adapter is trained: steps as one graph and kernel by kernel, and
//! what each kernel takes.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use warpwright_kernels::Random;
use warpwright_kernels::train::adamw::AdamW;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::schedule::{Decay, Schedule};
use warpwright_model::info::{head_weights, layer_weights};
use warpwright_train::base::{self, Base, BaseFormat};
use warpwright_train::reference::{Adapters, MicroBatch, Moments, Record};
use warpwright_train::step::{
    self, Precision, Settings, Snapshot, StepPhase, Tiles, TimedKernel, Trainer, TrainingNeeds,
    Unpacking,
};
use warpwright_train::{Config, Lora, Projection, Training};

use super::nodes::percent;
use super::report::TimeSpread;
use super::*;
use crate::commands::finetune::plan::{HEAD_CHUNK, mebibytes, precision};
use crate::emulation::TrainingTokens;

/// A variant of kernels that a training step can use.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum KernelForm {
    /// Idle warps of a product unpack the NF4 matrix of the next one, even for few tokens
    UnpackAhead,
    /// A separate kernel unpacks each NF4 matrix, even for many tokens
    UnpackApart,
    /// Attention uses mma, one warp at a time, instead of wgmma for heads of 64 and 128
    AttentionByMma,
}

impl KernelForm {
    /// Returns the note about this variant in the name of a measurement.
    fn note(self) -> &'static str {
        match self {
            KernelForm::UnpackAhead => ", NF4 unpacked ahead",
            KernelForm::UnpackApart => ", NF4 unpacked apart",
            KernelForm::AttentionByMma => ", attention by mma",
        }
    }
}

/// The number of steps in a round.
const STEPS: u32 = 10;
/// The largest number of rounds.
const MOST: u32 = 1_000_000;

/// The output of `bench --finetune`.
#[derive(Serialize)]
pub(super) struct FinetuneReport {
    #[serde(flatten)]
    header: BenchHeader,
    precision: &'static str,
    rank: usize,
    steps: u32,
    shapes: Vec<FinetuneFigures>,
}

/// The figures of steps with one micro-batch of this shape. Times are wall times, and the host
/// waits for each step.
#[derive(Serialize)]
struct FinetuneFigures {
    batch: u32,
    seq: u32,
    ms_per_step: TimeSpread,
    /// The time of a step that is launched kernel by kernel.
    eager_ms_per_step: TimeSpread,
    graph_speedup: f64,
    tokens_per_s: f64,
    nodes: usize,
    /// The rate of all matrix products.
    tflops: f64,
    share_of_tensor_ceiling: Option<f64>,
    memory: FinetuneMemory,
    /// The first step in which the graph and the single kernels computed different losses or norms,
    /// with both results.
    differs: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<FinetuneKernel>,
}

/// The memory of a training step, in bytes.
#[derive(Serialize)]
struct FinetuneMemory {
    weights: u64,
    adapters: u64,
    activations: u64,
    head: u64,
    workspace: u64,
    /// The free memory of the device that the trainer took.
    taken: u64,
}

/// The launches of a kernel in a part of the step that access the same number of bytes.
#[derive(Serialize)]
struct FinetuneKernel {
    part: &'static str,
    kernel: String,
    launches: u32,
    us: f64,
    /// The bytes of the tensors in one launch.
    bytes: u64,
    gb_per_s: f64,
}

pub(super) fn measure(args: &Args) -> Result<FinetuneReport, Failure> {
    if args.rounds > MOST {
        return Err(Failure::Input(format!(
            "--rounds {}: at most {MOST} of {STEPS} steps each",
            args.rounds
        )));
    }
    let subject = BenchSubject::open(args)?;
    let context = device::open(args.device)?;
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
    let ceiling = ceiling::measure(&context)?;
    let tensor_ceiling = ceiling::measure_products(&context)?;
    let setup = BenchSetup {
        args,
        subject,
        adapter: None,
        contexts: vec![],
        context,
        ceiling,
        tensor_ceiling,
    };
    let precision = precision(settings[0].precision);
    let all = shapes.iter().zip(settings);
    let shapes = all.map(|(&shape, settings)| figures(&setup, &base, settings, shape));
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
    if args.insist || !device::is_emulator(context) {
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
    Ok(TrainingNeeds::for_settings(
        settings,
        outline.config.architecture.head_norms,
        weights,
    )?)
}

fn figures(
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
    let (times, records) = rounds(&mut trainer, setup.args, &micro)?;
    let mut trainer = afresh(trainer, &adapters, step::Launch::Eager)?;
    let (eager_times, eager_records) = rounds(&mut trainer, setup.args, &micro)?;
    let kernels = if setup.args.profile {
        rows(&mut trainer, setup.args, micro)?
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
        .expect("clap gives rounds");
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
    let attention =
        7.0 * 2.0 * f64::from(outline.config.layers) * f64::from(outline.config.q_len()) * pairs;
    4.0 * frozen * tokens + 6.0 * adapters * tokens + attention
}

impl FinetuneMemory {
    fn of(needs: &TrainingNeeds, taken: u64) -> FinetuneMemory {
        let TrainingNeeds {
            weights,
            adapters,
            activations,
            head,
            workspace,
        } = *needs;
        FinetuneMemory {
            weights,
            adapters,
            activations,
            head,
            workspace,
            taken,
        }
    }
}

impl FinetuneFigures {
    fn row(&self) -> Vec<String> {
        vec![
            format!("{} x {}", self.batch, self.seq),
            self.ms_per_step.to_string(),
            self.eager_ms_per_step.to_string(),
            format!("{:.3}", self.graph_speedup),
            format!("{:.0}", self.tokens_per_s),
            self.nodes.to_string(),
            format!("{:.1}", self.tflops),
            percent(self.share_of_tensor_ceiling),
            self.differs.clone().unwrap_or_else(|| "the same".into()),
        ]
    }

    fn memory_row(&self) -> Vec<String> {
        let FinetuneMemory {
            weights,
            adapters,
            activations,
            head,
            workspace,
            taken,
        } = self.memory;
        let all = weights + adapters + activations + head + workspace;
        let sizes = [weights, adapters, activations, head, workspace, all, taken].map(mebibytes);
        std::iter::once(format!("{} x {}", self.batch, self.seq))
            .chain(sizes)
            .collect()
    }

    fn kernels(&self) -> Table {
        let all: f64 = self.kernels.iter().map(|row| row.us).sum();
        let mut table = table(&[
            "part", "kernel", "launches", "us each", "us", "time", "MB each", "GB/s",
        ]);
        table.add_rows(self.kernels.iter().map(|row| {
            vec![
                row.part.to_owned(),
                row.kernel.clone(),
                row.launches.to_string(),
                format!("{:.1}", row.us / f64::from(row.launches)),
                format!("{:.0}", row.us),
                percent(Some(row.us / all)),
                format!("{:.2}", row.bytes as f64 * 1e-6),
                format!("{:.0}", row.gb_per_s),
            ]
        }));
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl BenchOutput for FinetuneReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header
            .print(&mut out, &format!("{} steps of each kind", self.steps))?;
        let mut steps = table(&[
            "rows x tokens",
            "ms a step, wall: median (min - max)",
            "kernel by kernel",
            "the graph is faster by",
            "tokens/s",
            "nodes",
            "TFLOPS",
            "of the tensor ceiling",
            "losses and norms",
        ]);
        steps.add_rows(self.shapes.iter().map(FinetuneFigures::row));
        let mut memory = table(&[
            "rows x tokens",
            "frozen weights",
            "adapters",
            "activations",
            "logits",
            "workspace",
            "all",
            "taken of the device",
        ]);
        memory.add_rows(self.shapes.iter().map(FinetuneFigures::memory_row));
        for mut table in [steps, memory] {
            for column in table.column_iter_mut() {
                column.set_cell_alignment(CellAlignment::Right);
            }
            writeln!(out, "{}\n", table.trim_fmt())?;
        }
        for figures in self
            .shapes
            .iter()
            .filter(|figures| !figures.kernels.is_empty())
        {
            let us: f64 = figures.kernels.iter().map(|row| row.us).sum();
            writeln!(
                out,
                "{} x {}, kernel by kernel: {us:.0} us",
                figures.batch, figures.seq
            )?;
            writeln!(out, "{}\n", figures.kernels().trim_fmt())?;
        }
        Ok(())
    }

    fn right(&self) -> bool {
        self.shapes.iter().all(|figures| figures.differs.is_none())
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}
