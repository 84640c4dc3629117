//! What is to be trained, before anything is allocated: settings, memory, and what resuming depends on.

use std::fs::File;
use std::hash::Hasher;
use std::io::{BufRead, BufReader};
use std::path::Path;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use warpwright_driver::Context;
use warpwright_engine::Model;
use warpwright_engine::chat::ChatTemplate;
use warpwright_kernels::train::adamw::AdamW;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::schedule::Schedule;
use warpwright_train::base;
use warpwright_train::checkpoint::Fingerprint;
use warpwright_train::data::Dataset;
use warpwright_train::step::{Precision, Recomputation, Settings, Tiles, TrainingNeeds, Unpacking};
use warpwright_train::{Config, Error, Lora, Training};

use super::args::{AbsmaxChoice, Args, EvaluateOn, PrecisionChoice, Recompute};
use super::disk;
use super::samples::Samples;
use crate::failure::Failure;
use crate::terminal::{print, say};
use crate::{device, emulation};

/// Tokens whose logits are in memory at once.
pub(crate) const HEAD_CHUNK: usize = 512;

pub(crate) struct Plan {
    pub(super) settings: Settings,
    needs: TrainingNeeds,
    /// All that training takes, by what is computed again.
    choices: Vec<(Recompute, u64)>,
    /// Weights that a token is multiplied by.
    weights: u64,
}

/// What is left free where it decides what fits: a fiftieth, for what a driver adds to buffers, and for graphs.
const HEADROOM: u64 = 50;

/// Formats whose values a step in `bf16` has as they are, or by its own rounding of them, as bitsandbytes has it.
const EXACT: [&str; 3] = ["BF16", "NF4", "nested NF4"];

impl Plan {
    pub(super) fn new(
        args: &Args,
        model: &Model,
        config: Config,
        samples: &Samples,
    ) -> Result<Plan, Failure> {
        check_flags(args, model.outline.config.context as usize)?;
        check_absmax(args, model)?;
        let batches = &samples.training;
        let schedule = Schedule {
            decay: args.schedule.into(),
            lr: args.lr,
            lr_min: args.lr_min,
            warmup: warmup(args.warmup, batches.steps()),
            total: batches.steps(),
        };
        let adamw = AdamW {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            decay: args.weight_decay,
        };
        let settings = Settings {
            lora: Lora {
                rank: args.rank,
                alpha: args.alpha,
                dropout: args.dropout,
                seed: args.seed,
                targets: args.projections(),
            },
            training: Training {
                schedule,
                adamw,
                max_norm: args.clip,
            },
            pairing: model.outline.config.architecture.pairing,
            tokens: batches.tokens(),
            head_chunk: HEAD_CHUNK,
            recomputation: args.recompute.map(Recomputation::from).unwrap_or_default(),
            launch: args.launch.into(),
            precision: match args.precision {
                PrecisionChoice::Bf16 => Precision::Bf16,
                PrecisionChoice::Auto | PrecisionChoice::F32 => Precision::F32,
            },
            tiles: Tiles::Fitting,
            unpacking: Unpacking::Fitting,
            attention: TensorOp::Wgmma,
            config,
        };
        settings.lora.check()?;
        settings.training.check()?;
        check_rates(&schedule)?;
        let needs = needs(args, model, &settings)?;
        let weights = warpwright_engine::info::layer_weights(&model.outline)
            + warpwright_engine::info::head_weights(&model.outline);
        Ok(Plan {
            settings,
            needs,
            weights,
            choices: vec![],
        })
    }

    /// Settles the precision for this device, and what is computed again.
    pub(super) fn settle(
        &mut self,
        args: &Args,
        model: &Model,
        context: &Context,
    ) -> Result<(), Failure> {
        self.settings.precision = choose(args.precision, &self.settings, context)?;
        self.settle_recomputation(args, model, free(context)?)?;
        let formats = base::formats(&model.outline, args.quantization());
        let rounded: Vec<_> = formats
            .into_keys()
            .filter(|name| !EXACT.contains(&name.as_str()))
            .collect();
        if self.settings.precision == Precision::Bf16 && !rounded.is_empty() {
            let formats = rounded.join(", ");
            say(format!(
                "note: frozen weights in {formats} are rounded to bf16 while the adapter is trained"
            ));
        }
        Ok(())
    }

    /// Takes what is asked for, or the first that fits into so many bytes, or else the one that needs least.
    fn settle_recomputation(
        &mut self,
        args: &Args,
        model: &Model,
        free: u64,
    ) -> Result<(), Failure> {
        let all = Recompute::value_variants().iter().map(|choice| {
            let settings = Settings {
                recomputation: (*choice).into(),
                ..self.settings.clone()
            };
            Ok((*choice, needs(args, model, &settings)?))
        });
        let all = all.collect::<Result<Vec<_>, Failure>>()?;
        self.choices = all
            .iter()
            .map(|(choice, needs)| (*choice, needs.total()))
            .collect();
        let fits = |needs: &TrainingNeeds| needs.total() + needs.total() / HEADROOM <= free;
        let chosen = all.iter().find(|(choice, needs)| match args.recompute {
            Some(wish) => *choice == wish,
            None => fits(needs),
        });
        let Some((choice, needs)) = chosen.or(all.last()) else {
            return Ok(());
        };
        (self.settings.recomputation, self.needs) = ((*choice).into(), *needs);
        Ok(())
    }

    /// Prints samples, steps and memory.
    pub(super) fn show(&self, context: &Context, samples: &Samples) -> Result<(), Failure> {
        let (batches, config, lora) = (
            &samples.training,
            &self.settings.config,
            &self.settings.lora,
        );
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(["", ""]);
        let apart = samples
            .evaluation
            .as_ref()
            .map(|evaluation| evaluation.batches.data());
        let apart = apart.map(|data| {
            [
                ("evaluation samples", count(data)),
                ("evaluation tokens", tokens(data, "evaluated")),
            ]
        });
        let first = [
            ("samples", count(batches.data())),
            ("tokens", tokens(batches.data(), "learned")),
        ];
        let rows = [
            (
                "fill",
                format!("{:.1} % of the rows", 100.0 * batches.fill()),
            ),
            ("steps", batches.steps().to_string()),
            ("tokens a micro-batch", batches.tokens().to_string()),
            ("precision", precision(self.settings.precision).to_string()),
            (
                "trainable",
                format!("{} numbers, rank {}", lora.trainable(config), lora.rank),
            ),
            ("frozen weights", mebibytes(self.needs.weights)),
            (
                "adapters, moments, gradients",
                mebibytes(self.needs.adapters),
            ),
            ("activations", mebibytes(self.needs.activations)),
            (
                "computed again",
                recomputed(self.settings.recomputation).to_string(),
            ),
            ("logits", mebibytes(self.needs.head)),
            ("workspace", mebibytes(self.needs.workspace)),
            ("all", mebibytes(self.needs.total())),
        ];
        first
            .into_iter()
            .chain(apart.into_iter().flatten())
            .chain(rows)
            .for_each(|(name, value)| {
                table.add_row([name.to_string(), value]);
            });
        let others = self
            .choices
            .iter()
            .filter(|(of, _)| Recomputation::from(*of) != self.settings.recomputation);
        others.for_each(|(of, total)| {
            table.add_row([
                format!("all, with --recompute {}", name(*of)),
                mebibytes(*total),
            ]);
        });
        table.add_row(["free on the device".to_string(), mebibytes(free(context)?)]);
        print(&table)
    }

    /// Refuses what does not fit, or what the emulator cannot end soon.
    pub(super) fn check(
        &self,
        context: &Context,
        insist: bool,
        samples: &Samples,
    ) -> Result<(), Failure> {
        let (needed, free) = (self.needs.total(), free(context)?);
        if needed > free {
            return Err(Failure::Input(format!(
                "training needs {} of device memory, and {} are free; use {}a smaller --batch or --seq, or --base nf4",
                mebibytes(needed),
                mebibytes(free),
                self.smaller(free)
            )));
        }
        if insist || !device::is_emulator(context) {
            return Ok(());
        }
        let (batches, first) = (&samples.training, samples.training.tokens() as u64);
        let evaluated = samples
            .evaluation
            .as_ref()
            .map_or(0, |of| of.micro_batches(batches.steps()));
        let tokens = [batches.micro_batches(), evaluated].map(|micros| micros * first);
        emulation::training(self.weights, tokens, first)
    }

    /// What else would fit.
    fn smaller(&self, free: u64) -> String {
        let fitting = self.choices.iter().find(|(_, total)| *total <= free);
        fitting
            .map(|(choice, _)| format!("--recompute {}, or ", name(*choice)))
            .unwrap_or_default()
    }

    /// Refuses to train what the disk has no room for: the adapter, and checkpoints, which have moments beside it.
    pub(super) fn check_disk(&self, args: &Args) -> Result<(), Failure> {
        let adapter = 4 * self.settings.lora.trainable(&self.settings.config);
        let steps = self.settings.training.schedule.total;
        let checkpoints = args.save_every.map_or(0, |every| u64::from(steps / every));
        let needed = adapter + checkpoints.saturating_mul(3 * adapter);
        let Some(free) = disk::free(&args.out).filter(|free| *free < needed) else {
            return Ok(());
        };
        Err(Failure::Input(format!(
            "--out {}: the adapter and {checkpoints} checkpoints take {} of the disk, and {} are free; free some, name a \
             folder on another disk, or give a larger --save-every",
            args.out.display(),
            mebibytes(needed),
            mebibytes(free)
        )))
    }

    /// What decides what training computes. A file to evaluate on does not; a share, which is not learned, does.
    pub(super) fn fingerprint(
        &self,
        args: &Args,
        model: &Model,
        template: Option<&ChatTemplate>,
        samples: &Samples,
    ) -> Result<Fingerprint, Failure> {
        let Settings { training, lora, .. } = &self.settings;
        let targets: Vec<&str> = lora.targets.iter().map(|p| p.name()).collect();
        let pairs = [
            ("data", hash(&args.data)?),
            ("seq", args.seq.to_string()),
            ("batch", args.batch.to_string()),
            ("grad-accum", args.grad_accum.to_string()),
            ("packing", (!args.no_packing).to_string()),
            ("train-on-prompt", args.train_on_prompt.to_string()),
            ("steps", samples.training.steps().to_string()),
            ("seed", args.seed.to_string()),
            ("rank", lora.rank.to_string()),
            ("alpha", lora.alpha.to_string()),
            ("dropout", lora.dropout.to_string()),
            ("targets", targets.join(",")),
            ("base", format!("{:?}", args.base).to_lowercase()),
            ("lr", args.lr.to_string()),
            ("schedule", format!("{:?}", args.schedule).to_lowercase()),
            ("warmup", training.schedule.warmup.to_string()),
            ("lr-min", args.lr_min.to_string()),
            ("clip", args.clip.to_string()),
            ("weight-decay", args.weight_decay.to_string()),
            ("precision", precision(self.settings.precision).to_string()),
        ];
        let share = match args.eval {
            Some(EvaluateOn::Share(share)) => Some(("eval share", share.to_string())),
            _ => None,
        };
        // Checkpoints of before there was a choice do not name it.
        let absmax = (args.absmax == AbsmaxChoice::Nested).then(|| ("absmax", "nested".to_owned()));
        let chats = samples.training.data().conversations > 0;
        let date = template
            .filter(|template| chats && template.asks_date())
            .and_then(ChatTemplate::date);
        let date = date.map(|date| ("date", date.to_string()));
        let named = pairs
            .into_iter()
            .chain(share)
            .chain(absmax)
            .chain(date)
            .map(|(name, value)| (name.to_string(), value));
        Ok(named.chain(hashes(model)?).collect())
    }
}

/// Refuses flags with which there is no training.
fn check_flags(args: &Args, context: usize) -> Result<(), Failure> {
    let refused = |sentence: String| Err(Failure::Input(sentence));
    if args.seq > context {
        let seq = args.seq;
        return refused(format!(
            "--seq {seq} is above the {context} positions that the model was made for"
        ));
    }
    for (flag, rate) in [("--lr", args.lr), ("--lr-min", args.lr_min)] {
        if !((rate as f32).is_finite() && rate >= 0.0) {
            return refused(format!(
                "{flag} {rate} is no learning rate that is finite in f32, and 0 or more"
            ));
        }
    }
    if args.clip.is_nan() || args.clip as f32 <= 0.0 {
        return refused(format!(
            "--clip {} is no norm; it must be above 0 in f32",
            args.clip
        ));
    }
    if !(0.0..=f64::from(u32::MAX)).contains(&args.warmup) {
        let warmup = args.warmup;
        return refused(format!(
            "--warmup {warmup} is no number of steps; give 0 or more, and below 1 their share"
        ));
    }
    Ok(())
}

/// Refuses a warm-up that leaves no step with a learning rate above 0.
fn check_rates(schedule: &Schedule) -> Result<(), Failure> {
    let Schedule {
        warmup, total, lr, ..
    } = *schedule;
    if lr > 0.0 && total == 1 && warmup > 0 {
        return Err(Failure::Input(
            "--warmup leaves nothing to train: the first step of a warm-up has a learning rate of 0, and there is only one \
             step; use --warmup 0, or more steps"
                .into(),
        ));
    }
    Ok(())
}

/// Refuses nested absmax where nothing is quantized.
fn check_absmax(args: &Args, model: &Model) -> Result<(), Failure> {
    let formats = base::formats(&model.outline, args.quantization());
    if args.absmax == AbsmaxChoice::F32 || formats.contains_key("nested NF4") {
        return Ok(());
    }
    let formats: Vec<_> = formats.into_keys().collect();
    Err(Failure::Input(format!(
        "--absmax nested would change nothing: the projections stay in {}; leave it out",
        formats.join(", ")
    )))
}

/// The steps of the warm-up; below 1 it is their share of all.
fn warmup(warmup: f64, steps: u32) -> u32 {
    let count = if warmup < 1.0 {
        (warmup * f64::from(steps)).ceil()
    } else {
        warmup
    };
    count as u32
}

fn count(data: &Dataset) -> String {
    let mut samples = data.samples.len().to_string();
    if data.cut() > 0 {
        samples += &format!(" ({} cut)", data.cut());
    }
    if data.dropped > 0 {
        samples += &format!(", {} dropped: their prompts fill a row", data.dropped);
    }
    if data.excluded > 0 {
        samples += &format!(", {} excluded by their marks", data.excluded);
    }
    samples
}

fn tokens(data: &Dataset, labelled: &str) -> String {
    let share = 100.0 * data.labelled() as f64 / data.tokens() as f64;
    format!("{}, {share:.1} % of them {labelled}", data.tokens())
}

fn free(context: &Context) -> Result<u64, Failure> {
    Ok(context.memory()?.0 as u64)
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The hash of each file of a model: of several, each under its name.
fn hashes(model: &Model) -> Result<Vec<(String, String)>, Failure> {
    let files = model.files.paths();
    let name = |path: &Path| match files.len() {
        1 => "model".to_owned(),
        _ => format!(
            "model {}",
            path.file_name().unwrap_or_default().to_string_lossy()
        ),
    };
    files
        .iter()
        .map(|path| Ok((name(path), hash(path)?)))
        .collect()
}

/// The length and a hash of a file: enough to notice that it is another one.
fn hash(path: &Path) -> Result<String, Failure> {
    let fault = |error| Failure::Input(format!("cannot read {}: {error}", path.display()));
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(fault)?);
    let (mut hasher, mut length) = (xxhash_rust::xxh3::Xxh3::new(), 0);
    loop {
        let bytes = file.fill_buf().map_err(fault)?;
        if bytes.is_empty() {
            return Ok(format!("{length} bytes, xxh3 {:016x}", hasher.finish()));
        }
        hasher.update(bytes);
        let read = bytes.len();
        length += read;
        file.consume(read);
    }
}

/// The precision that is asked for, or the best that the device has.
fn choose(
    wish: PrecisionChoice,
    settings: &Settings,
    context: &Context,
) -> Result<Precision, Failure> {
    let supported = Precision::Bf16.check(context, settings);
    match (wish, supported) {
        (PrecisionChoice::F32, _) => Ok(Precision::F32),
        (PrecisionChoice::Bf16, supported) => Ok(supported.map(|()| Precision::Bf16)?),
        // The emulator takes as long for a tile that is full as for one that is not.
        (PrecisionChoice::Auto, _) if device::is_emulator(context) => Ok(Precision::F32),
        (PrecisionChoice::Auto, Err(Error::Precision { needed })) => {
            say(format!(
                "warning: training is in f32, many times slower than in bf16, which takes {needed}"
            ));
            Ok(Precision::F32)
        }
        (PrecisionChoice::Auto, supported) => Ok(supported.map(|()| Precision::Bf16)?),
    }
}

fn needs(args: &Args, model: &Model, settings: &Settings) -> Result<TrainingNeeds, Failure> {
    let head_norms = model.outline.config.architecture.head_norms;
    let weights = base::bytes(&model.outline, args.quantization(), settings.precision);
    Ok(TrainingNeeds::for_settings(settings, head_norms, weights)?)
}

/// The value of --recompute.
fn name(of: Recompute) -> String {
    of.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

fn recomputed(of: Recomputation) -> &'static str {
    match of {
        Recomputation::None => "nothing",
        Recomputation::Cheap => "norms and SwiGLU",
        Recomputation::Layers => "layers",
    }
}

/// As users know it.
pub(crate) fn precision(of: Precision) -> &'static str {
    match of {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}
