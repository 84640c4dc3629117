//! `warpwright bench`: how fast this machine decodes, next to how fast its memory can be read.
//!
//! All in one run, because a rate means little without the ceiling of the same card on the same
//! day: first the read ceiling, then for each context a round as each other mode launches steps, to
//! compare tokens and to warm up, and then the timed rounds. Whole tokens are timed, from the
//! embedding to the choice that the host has read. Or, instead of rounds, how fast a prompt is
//! prefilled; or the kernels: when each works within a token, and how fast each is alone.

mod batch;
mod ceiling;
mod chunk;
mod finetune;
mod kernels;
mod nodes;
mod plot;
mod profile;
mod prompt;
mod report;
mod timeline;

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::value_parser;
use serde::Serialize;
use svg::Document;
use warpwright_driver::Context;
use warpwright_engine::info::token_bytes;
use warpwright_engine::{
    Batch, BatchOptions, Decoder, Error, KernelPath, Options, Round, Sampling, StepKind,
    TokenChoice, Tuning,
};
use warpwright_kernels::pipeline::Plan;
use warpwright_model::adapter::Adapter;
use warpwright_model::info::kv_bytes_read;
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Model, Outline, Quantization, Shape};

use crate::adapter;
use crate::commands::finetune::Recompute;
use crate::device::{self, DeviceChoice};
use crate::emulation::{self, EmulationWork};
use crate::failure::Failure;
use crate::options::{self as shared, Launch, ModelArg};
use crate::output::{Output, OutputContent, write_if};
use crate::progress::Bar;
use ceiling::{BandwidthCeiling, Ceilings, TensorCeiling};
use report::{BenchHeader, DecodeReport, MeasuredContext};

#[derive(clap::Args)]
#[command(mut_arg(ModelArg::POSITIONAL, |model| model.required(false)))]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Shape of a known model, with random weights instead of a file
    #[arg(
        long,
        value_name = "NAME",
        value_parser = shapes(),
        conflicts_with_all = [ModelArg::POSITIONAL, ModelArg::OPTION]
    )]
    shape: Option<&'static Shape>,
    /// Quantization of the random weights of --shape
    #[arg(
        long,
        value_name = "NAME",
        value_parser = quantizations(),
        conflicts_with_all = [ModelArg::POSITIONAL, ModelArg::OPTION, "finetune"]
    )]
    quant: Option<Quantization>,
    /// Device to measure: auto, cuda:N or emu (the CPU emulator)
    #[arg(help_heading = "Device", long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    device: DeviceChoice,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph, conflicts_with = "kernels")]
    launch: Launch,
    /// Number of positions that the first token of a round attends [default: 128,4096 if they fit]
    #[arg(
        long,
        value_name = "N,N,..",
        conflicts_with = "prompt",
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..)
    )]
    ctx: Vec<u32>,
    /// Number of tokens in a round
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["prompt", "kernels"],
        default_value_t = 256,
        value_parser = value_parser!(u32).range(1..)
    )]
    tokens: u32,
    /// Sample tokens with filters and a penalty, instead of taking the most likely ones
    #[arg(long, conflicts_with_all = ["prompt", "kernels", "finetune"])]
    sample: bool,
    /// Number of timed rounds for each context or prompt
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "kernels",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..)
    )]
    rounds: u32,
    /// Division of the overlapping kernels into blocks, such as 4x2_first or qkv=4x2_first
    #[arg(
        help_heading = "Device",
        long,
        value_name = "PLAN",
        conflicts_with = "kernels"
    )]
    plan: Option<Tuning>,
    /// Number of tokens in one launch of a graph
    #[arg(
        help_heading = "Device",
        long,
        value_name = "N",
        conflicts_with_all = ["prompt", "kernels"],
        value_parser = value_parser!(u32).range(1..)
    )]
    tokens_per_launch: Option<u32>,
    /// Measure the prefill of prompts with N tokens, in chunks and a few tokens at a time
    #[arg(
        long,
        value_name = "N,N,..",
        conflicts_with = "kernels",
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..)
    )]
    prompt: Vec<u32>,
    /// Measure the decoding of N sequences together, from --ctx positions on [default ctx: 512]
    #[arg(
        long,
        value_name = "N,N,..",
        conflicts_with_all = ["kernels", "prompt", "plan", "tokens_per_launch", "launch"],
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..=i64::from(batch::MAX_BATCH))
    )]
    batch: Vec<u32>,
    /// With --batch: add a prompt of N tokens while the sequences decode
    #[arg(long, value_name = "N", requires = "batch", value_parser = value_parser!(u32).range(2..))]
    join: Option<u32>,
    /// With --join: number of prompt tokens in a step
    #[arg(long, value_name = "N", requires = "join", default_value_t = 192, value_parser = value_parser!(u32).range(1..=1024))]
    join_chunk: u32,
    /// Measure the kernels of a token (with --prompt of a chunk, with --batch of a step)
    #[arg(long, group = "instead")]
    profile: bool,
    /// Measure each matrix product alone, with every plan in --plans
    #[arg(long, group = "instead")]
    kernels: bool,
    /// Plans to try with --kernels
    #[arg(
        long,
        value_name = "PLAN,PLAN,..",
        requires = "kernels",
        value_delimiter = ',',
        value_parser = warpwright_engine::tuning::plan,
        default_value = kernels::PLANS
    )]
    plans: Vec<Plan>,
    /// Measure fine-tuning, with --batch rows of --seq tokens in a step
    ///
    /// Weights of 16 or 32 bits become NF4. A round has ten steps.
    #[arg(help_heading = "Training", long, requires = "batch", conflicts_with_all = ["kernels", "prompt", "ctx", "join", "tokens"])]
    finetune: bool,
    /// With --finetune: number of tokens in a row
    #[arg(
        help_heading = "Training",
        long,
        value_name = "N,N,..",
        requires = "finetune",
        value_delimiter = ',',
        default_value = "512",
        value_parser = value_parser!(u32).range(2..)
    )]
    seq: Vec<u32>,
    /// With --finetune: activations that the backward pass recomputes
    #[arg(help_heading = "Training", long, value_enum, value_name = "WHAT", requires = "finetune", default_value_t = Recompute::None)]
    recompute: Recompute,
    /// With --finetune in bf16: variants of kernels to compare with those that finetune uses
    #[arg(
        help_heading = "Training",
        long,
        value_enum,
        value_name = "FORM,FORM,..",
        requires = "finetune",
        value_delimiter = ','
    )]
    forms: Vec<finetune::KernelForm>,
    /// With --finetune: rank of the LoRA adapters, which all projections have
    #[arg(
        help_heading = "Training",
        long,
        value_name = "RANK",
        requires = "finetune",
        default_value_t = 16
    )]
    rank: usize,
    /// LoRA adapter to apply in a second measurement, after one without it
    #[arg(
        long,
        visible_alias = "lora",
        value_name = "FOLDER",
        conflicts_with_all = ["shape", "instead", "prompt", "batch", "finetune", "plot"]
    )]
    adapter: Option<PathBuf>,
    /// SVG file for a chart of the rates, or with --profile of the kernels over time
    #[arg(help_heading = "Output", long, value_name = "FILE", conflicts_with_all = ["kernels", "prompt", "batch"])]
    plot: Option<PathBuf>,
    /// File for all figures as JSON
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run on the emulator even if the estimated time is longer than half an hour
    #[arg(help_heading = "Device", long)]
    insist: bool,
}

fn shapes() -> impl TypedValueParser<Value = &'static Shape> {
    static TABLE: &[Shape] = &SHAPES;
    let named = |name: String| {
        TABLE
            .iter()
            .find(|shape| shape.name == name)
            .expect("a possible value")
    };
    PossibleValuesParser::new(TABLE.iter().map(|shape| shape.name)).map(named)
}

fn quantizations() -> impl TypedValueParser<Value = Quantization> {
    let named = |name: String| {
        QUANTIZATIONS
            .into_iter()
            .find(|q| q.name == name)
            .expect("a possible value")
    };
    PossibleValuesParser::new(QUANTIZATIONS.map(|quantization| quantization.name)).map(named)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    expect_used(args)?;
    if args.finetune {
        deliver(args, finetune::measure, |_| {
            unreachable!("clap rejects --plot with --batch")
        })
    } else if args.profile && !args.prompt.is_empty() {
        deliver(args, chunk::measure, |_| {
            unreachable!("clap rejects --plot with --prompt")
        })
    } else if args.profile && args.batch.is_empty() {
        deliver(args, profile::measure, |report| report.draw().to_string())
    } else if !args.batch.is_empty() {
        deliver(args, batch::measure, |_| {
            unreachable!("clap rejects --plot with --batch")
        })
    } else if !args.prompt.is_empty() {
        deliver(args, prompt::measure, |_| {
            unreachable!("clap rejects --plot with --prompt")
        })
    } else if args.kernels {
        deliver(args, kernels::measure, |_| {
            unreachable!("clap rejects --plot with --kernels")
        })
    } else {
        deliver(args, measure, plot::draw)
    }
}

/// Returns an error for combinations of options that clap cannot express.
fn expect_used(args: &Args) -> Result<(), Failure> {
    let refuse = |sentence: &str| Err(Failure::Input(sentence.into()));
    match args {
        Args {
            model, shape: None, ..
        } if model.given().is_none() => refuse(
            "there is nothing to measure: name a MODEL, or a known shape with random weights, such as --shape \
             llama3.2-1b --quant q4_k_m",
        ),
        Args {
            shape: Some(_),
            quant: None,
            finetune: false,
            ..
        } => refuse("--shape needs the format of its weights, such as --quant q4_k_m"),
        Args { batch, .. } if !batch.is_empty() => Ok(()),
        Args {
            ctx, profile: true, ..
        }
        | Args {
            ctx, kernels: true, ..
        } if ctx.len() > 1 => refuse("--ctx must be a single number if kernels are measured"),
        Args {
            prompt,
            launch,
            profile: true,
            ..
        } if !prompt.is_empty() && *launch != Launch::Graph => refuse(
            "--launch has no effect, because the kernels of a chunk are launched one by one: leave it out",
        ),
        _ => Ok(()),
    }
}

/// The result of a benchmark, which is printed and written as JSON.
trait BenchOutput: Serialize {
    /// Prints the result as a table.
    fn print(&self) -> Result<(), Failure>;

    /// Returns true if all compared tokens or losses were equal.
    fn right(&self) -> bool {
        true
    }
}

/// Measures, prints the result, and writes the files of `--json` and `--plot`.
///
/// The files are created before the measurement, so that a wrong path costs no time. They appear
/// only if it succeeds.
fn deliver<R: BenchOutput>(
    args: &Args,
    measure: impl FnOnce(&Args) -> Result<R, Failure>,
    draw: impl FnOnce(&R) -> String,
) -> Result<(), Failure> {
    let model = args.model.given().map(|_| args.model.path()).transpose()?;
    let [json, plot] = [("--json", &args.json), ("--plot", &args.plot)].map(|(option, path)| {
        let inputs = model.map(|model| ("model", model)).into_iter().collect();
        path.as_deref().map(|path| Output {
            option,
            path,
            inputs,
            content: OutputContent::Aside,
        })
    });
    let report = write_if(json, |json| {
        write_if(plot, |plot| {
            let report = measure(args)?;
            report.print()?;
            if let Some(file) = json {
                let json =
                    serde_json::to_string_pretty(&report).expect("strings and numbers") + "\n";
                file.write(json.as_bytes())?;
            }
            if let Some(file) = plot {
                file.write(draw(&report).as_bytes())?;
            }
            Ok(report)
        })
    })?;
    if report.right() {
        Ok(())
    } else {
        Err(Failure::Shown)
    }
}

/// The model, the device and the ceilings of a measurement.
struct BenchSetup<'a> {
    args: &'a Args,
    subject: BenchSubject,
    /// The adapter of the model, which is applied only in the second measurement.
    adapter: Option<Arc<Adapter>>,
    contexts: Vec<u32>,
    context: Context,
    ceiling: BandwidthCeiling,
    /// The ceiling of the tensor cores, for prompts and batches.
    tensor_ceiling: Option<TensorCeiling>,
}

impl BenchSetup<'_> {
    fn new(args: &Args) -> Result<BenchSetup<'_>, Failure> {
        let mut subject = BenchSubject::open(args)?;
        let adapter = subject.take_adapter();
        let contexts = contexts(args, subject.outline())?;
        let context = device::open(args.device)?;
        let largest = contexts.iter().max().expect("there is a context");
        let options = options(args, *largest, args.launch);
        Decoder::check(&context, subject.outline(), options)?;
        if !args.insist {
            let work = EmulationWork {
                tokens: tokens(args, &contexts),
                ctx: options.ctx,
            };
            emulation::check(&context, subject.outline(), work)?;
        }
        let ceiling = ceiling::measure(&context)?;
        let multiplies = !args.prompt.is_empty() || !args.batch.is_empty();
        let tensor_ceiling = if multiplies {
            ceiling::measure_products(&context)?
        } else {
            None
        };
        Ok(BenchSetup {
            args,
            subject,
            adapter,
            contexts,
            context,
            ceiling,
            tensor_ceiling,
        })
    }

    fn ceilings(&self) -> Ceilings {
        let tflops = self.tensor_ceiling.as_ref().map(|ceiling| ceiling.tflops);
        Ceilings {
            gb_per_s: self.ceiling.gb_per_s,
            tflops,
        }
    }

    fn outline(&self) -> &Outline {
        self.subject.outline()
    }

    fn options(&self, ctx: u32, launch: Launch) -> Options {
        options(self.args, ctx, launch)
    }

    fn decoder(&self, options: Options) -> Result<Decoder, Failure> {
        let decoder = sampled(self.subject.decoder(&self.context, options)?)?;
        match (self.args.plan, decoder.path()) {
            (Some(_), KernelPath::Simple { reason }) => Err(Failure::Input(format!(
                "--plan has no effect, because overlapping kernels are not used: {reason}"
            ))),
            _ => Ok(decoder),
        }
    }
}

impl BenchSetup<'_> {
    fn batch(&self, options: BatchOptions) -> Result<Batch, Failure> {
        let options = BatchOptions {
            choice: choice(self.args),
            ..options
        };
        Ok(match &self.subject {
            BenchSubject::File(model) => Batch::new(&self.context, model, options, |_| ())?,
            BenchSubject::Random { outline, .. } => Batch::random(&self.context, outline, options)?,
        })
    }
}

fn measure(args: &Args) -> Result<DecodeReport, Failure> {
    let mut setup = BenchSetup::new(args)?;
    let (header, measured) = measure_contexts(&setup)?;
    let mut report = DecodeReport::new(args, header, setup.outline(), &measured);
    if let Some(adapter) = setup.adapter.take() {
        setup.subject.add(adapter);
        report.add_adapter(args, setup.outline(), &measure_contexts(&setup)?.1);
    }
    Ok(report)
}

fn measure_contexts(setup: &BenchSetup) -> Result<(BenchHeader, Vec<MeasuredContext>), Failure> {
    let args = setup.args;
    let mut decoder = setup.decoder(setup.options(setup.contexts[0], args.launch))?;
    let rounds = args.rounds as usize + 1 + args.launch.others().count();
    let progress = Bar::of_steps(setup.contexts.len() * rounds);
    let mut all = vec![];
    for &ctx in &setup.contexts {
        let measured;
        (decoder, measured) = measure_context(setup, ctx, decoder, &progress)?;
        all.push(measured);
    }
    Ok((BenchHeader::new(setup, &decoder), all))
}

fn measure_context(
    setup: &BenchSetup,
    ctx: u32,
    mut decoder: Decoder,
    progress: &Bar,
) -> Result<(Decoder, MeasuredContext), Failure> {
    let args = setup.args;
    let outline = setup.outline();
    let round = |decoder: &mut Decoder, tokens| -> Result<Round, Failure> {
        progress.inc(1);
        Ok(decoder.round(ctx, tokens)?)
    };
    let mut others = vec![];
    for launch in args.launch.others() {
        decoder = sampled(decoder.with_options(outline, setup.options(ctx, launch))?)?;
        others.push((launch, round(&mut decoder, args.tokens)?));
    }
    decoder = sampled(decoder.with_options(outline, setup.options(ctx, args.launch))?)?;
    round(&mut decoder, args.tokens.min(WARM_UP))?;
    let rounds = (0..args.rounds)
        .map(|_| round(&mut decoder, args.tokens))
        .collect::<Result<_, _>>()?;
    let nodes = decoder.launches(StepKind::Decode);
    Ok((
        decoder,
        MeasuredContext {
            ctx,
            others,
            rounds,
            nodes,
        },
    ))
}

/// Returns the sampling of `--sample`: the default filters and a penalty.
fn usual() -> Sampling {
    Sampling {
        repeat_penalty: 1.1,
        ..Sampling::default()
    }
}

/// Sets the sampling of a decoder that was made for sampling.
fn sampled(mut decoder: Decoder) -> Result<Decoder, Failure> {
    match decoder.set_sampling(&usual()) {
        Err(Error::NotSampled) => {}
        result => result?,
    }
    Ok(decoder)
}

/// Returns the kernels that choose tokens.
fn choice(args: &Args) -> TokenChoice {
    if args.sample {
        TokenChoice::Sampled { logprobs: 0 }
    } else {
        TokenChoice::Greedy
    }
}

/// Tokens of all that is measured, at least.
fn tokens(args: &Args, contexts: &[u32]) -> u64 {
    let rounds = u64::from(args.rounds);
    if !args.batch.is_empty() {
        return contexts.iter().map(|&ctx| batch::tokens(args, ctx)).sum();
    }
    match args.prompt.as_slice() {
        prompts @ [_, ..] => {
            2 * (1 + rounds) * prompts.iter().map(|&tokens| u64::from(tokens)).sum::<u64>()
        }
        // Kernel by kernel on the emulator.
        [] if args.kernels => 1 + args.plans.len() as u64,
        [] if args.profile => 2 * (1 + rounds) * u64::from(args.tokens),
        // Each round decodes twice, and each other mode launches one.
        [] => {
            let models = 1 + u64::from(args.adapter.is_some());
            2 * models
                * contexts.len() as u64
                * (rounds + Launch::Graph.others().count() as u64)
                * u64::from(args.tokens)
        }
    }
}

/// Returns the options of a decoder whose context fits a round.
fn options(args: &Args, ctx: u32, launch: Launch) -> Options {
    let options = Options::new(ctx + args.tokens - 1, launch.into());
    // Rounds have no prompt.
    Options {
        tuning: args.plan.unwrap_or_default(),
        prefill_batch: 1,
        chunk: 0,
        tokens_per_launch: args.tokens_per_launch.unwrap_or(options.tokens_per_launch),
        choice: choice(args),
        ..options
    }
}

/// The number of tokens before the first timed round. They upload the graph and raise the clock
/// rates.
const WARM_UP: u32 = 8;

/// The default number of positions that the sequences of a batch attend.
const BATCH_CTX: u32 = 512;

/// The model to measure: a file, or a shape with random weights.
enum BenchSubject {
    File(Model),
    Random { name: String, outline: Outline },
}

impl BenchSubject {
    fn open(args: &Args) -> Result<BenchSubject, Failure> {
        if let Some(shape) = args.shape.filter(|_| args.finetune) {
            let [name, wide] = ["nf4", "bf16"];
            let wide = QUANTIZATIONS
                .into_iter()
                .find(|q| q.name == wide)
                .expect("one of the table");
            let name = format!("{} {name}", shape.name);
            return Ok(BenchSubject::Random {
                name,
                outline: Outline::of(shape, wide)?,
            });
        }
        if let (Some(shape), Some(quantization)) = (args.shape, args.quant) {
            let name = format!("{} {}", shape.name, quantization.name);
            return Ok(BenchSubject::Random {
                name,
                outline: Outline::of(shape, quantization)?,
            });
        }
        let mut model = Model::open(args.model.path()?)?;
        if let Some(folder) = &args.adapter {
            model = model.with_adapter(folder)?;
            adapter::warn(&model);
        }
        // A round has as many tokens as the user asked for, whatever they say.
        model.outline.stop.clear();
        Ok(BenchSubject::File(model))
    }

    fn take_adapter(&mut self) -> Option<Arc<Adapter>> {
        match self {
            BenchSubject::File(model) => model.outline.adapter.take(),
            BenchSubject::Random { .. } => None,
        }
    }

    fn add(&mut self, adapter: Arc<Adapter>) {
        match self {
            BenchSubject::File(model) => model.outline.adapter = Some(adapter),
            BenchSubject::Random { outline, .. } => outline.adapter = Some(adapter),
        }
    }

    fn outline(&self) -> &Outline {
        match self {
            BenchSubject::File(model) => &model.outline,
            BenchSubject::Random { outline, .. } => outline,
        }
    }

    fn decoder(&self, context: &Context, options: Options) -> Result<Decoder, Failure> {
        match self {
            BenchSubject::File(model) => shared::load(context, model, options),
            BenchSubject::Random { outline, .. } => Ok(Decoder::random(context, outline, options)?),
        }
    }
}

/// Returns the requested contexts, or an error if a round does not fit into one of them.
fn contexts(args: &Args, outline: &Outline) -> Result<Vec<u32>, Failure> {
    let limit = outline.config.context;
    let needed = |ctx: &u32| u64::from(*ctx) + u64::from(args.tokens) - 1;
    let mut contexts = args.ctx.clone();
    if contexts.is_empty() && !args.batch.is_empty() {
        contexts.push(BATCH_CTX);
    }
    if contexts.is_empty() {
        // The first stays, so that a model that has no room says so.
        contexts.extend(
            [128, 4096]
                .into_iter()
                .filter(|ctx| *ctx == 128 || needed(ctx) <= limit.into()),
        );
    }
    match contexts.iter().find(|ctx| needed(ctx) > limit.into()) {
        None => Ok(contexts),
        Some(ctx) => Err(Failure::Input(format!(
            "{} tokens from context {ctx} on need {} positions; this model has {limit}",
            args.tokens,
            needed(ctx)
        ))),
    }
}
