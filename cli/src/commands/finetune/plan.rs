//! The plan of a training run, made before anything is allocated: settings, memory and the
//! fingerprint for resuming.

use std::fs::File;
use std::hash::Hasher;
use std::io::{BufRead, BufReader};
use std::path::Path;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use warpwright_driver::Context;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::Schedule;
use warpwright_model::Model;
use warpwright_model::chat::ChatTemplate;
use warpwright_train::base;
use warpwright_train::checkpoint::Fingerprint;
use warpwright_train::data::Dataset;
use warpwright_train::step::{Precision, Recomputation, Settings, Tiles, TrainingNeeds, Unpacking};
use warpwright_train::{Config, Error, Lora, Training};

use super::args::{AbsmaxChoice, Args, EvaluateOn, PrecisionChoice};
use super::disk;
use super::samples::Samples;
use crate::device;
use crate::device::emulation;
use crate::device::emulation::TrainingTokens;
use crate::failure::Failure;
use crate::training::{HEAD_CHUNK, Recompute, mebibytes, precision};
use warpwright_emu::terminal::{print, say};

/// The plan of a training run.
pub(crate) struct TrainingPlan {
    pub(super) settings: Settings,
    /// The memory for these settings.
    needs: TrainingNeeds,
    /// The total memory in bytes for each choice of recomputation.
    choices: Vec<(Recompute, u64)>,
    /// The number of weights that a token is multiplied by.
    weights: u64,
}

/// The inverse share of memory that stays free when the recomputation is chosen. The driver needs
/// some of it, for graphs and for the alignment of buffers.
const HEADROOM: u64 = 50;

/// The formats that a step in `bf16` represents exactly, or rounds in the same way as bitsandbytes.
const EXACT: [&str; 3] = ["BF16", "NF4", "nested NF4"];

impl TrainingPlan {
    /// Makes a plan from the options.
    ///
    /// # Errors
    /// Returns an error if an option is out of range or does not suit the model.
    pub(super) fn new(
        args: &Args,
        model: &Model,
        config: Config,
        samples: &Samples,
    ) -> Result<TrainingPlan, Failure> {
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
            // `auto` depends on the device, which is opened later. `settle` decides it then.
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
        let weights = warpwright_model::info::layer_weights(&model.outline)
            + warpwright_model::info::head_weights(&model.outline);
        Ok(TrainingPlan {
            settings,
            needs,
            weights,
            choices: vec![],
        })
    }

    /// Chooses the precision and the recomputation for this device.
    ///
    /// # Errors
    /// Returns an error if the device does not support the requested precision.
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

    /// Chooses the requested recomputation, or the fastest one that fits into `free` bytes.
    ///
    /// If none fits, the one with the least memory is chosen, and [`check`](Self::check) reports
    /// the problem.
    fn settle_recomputation(
        &mut self,
        args: &Args,
        model: &Model,
        free: u64,
    ) -> Result<(), Failure> {
        // From the fastest choice with the most memory to the slowest one with the least.
        let mut all = vec![];
        for choice in Recompute::value_variants() {
            let settings = Settings {
                recomputation: (*choice).into(),
                ..self.settings.clone()
            };
            all.push((*choice, needs(args, model, &settings)?));
        }

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

        self.settings.recomputation = (*choice).into();
        self.needs = *needs;
        Ok(())
    }

    /// Prints the table of samples, steps and memory.
    ///
    /// # Errors
    /// Returns an error if the device does not report its free memory.
    pub(super) fn show(&self, context: &Context, samples: &Samples) -> Result<(), Failure> {
        let batches = &samples.training;
        let lora = &self.settings.lora;
        let needs = &self.needs;
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(["", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("samples", count(batches.data()));
        row("tokens", tokens(batches.data(), "learned"));
        if let Some(evaluation) = &samples.evaluation {
            let data = evaluation.batches.data();
            row("evaluation samples", count(data));
            row("evaluation tokens", tokens(data, "evaluated"));
        }

        let fill = 100.0 * batches.fill();
        row("fill", format!("{fill:.1} % of the rows"));
        row("steps", batches.steps().to_string());
        row("tokens per micro-batch", batches.tokens().to_string());
        row("precision", precision(self.settings.precision).to_owned());
        let trainable = lora.trainable(&self.settings.config);
        let rank = lora.rank;
        row("trainable", format!("{trainable} parameters, rank {rank}"));
        row("frozen weights", mebibytes(needs.weights));
        row("adapters, moments, gradients", mebibytes(needs.adapters));
        row("activations", mebibytes(needs.activations));
        let recomputed = recomputed(self.settings.recomputation);
        row("recomputed", recomputed.to_owned());
        row("logits", mebibytes(needs.head));
        row("workspace", mebibytes(needs.workspace));
        row("total", mebibytes(needs.total()));
        for (choice, total) in &self.choices {
            if Recomputation::from(*choice) != self.settings.recomputation {
                let name = format!("total with --recompute {}", name(*choice));
                row(&name, mebibytes(*total));
            }
        }

        row("free on the device", mebibytes(free(context)?));
        Ok(print(&table)?)
    }

    /// Checks that the training fits into the memory, and that the emulator finishes it soon.
    ///
    /// # Errors
    /// Returns an error that says what would help.
    pub(super) fn check(
        &self,
        context: &Context,
        insist: bool,
        samples: &Samples,
    ) -> Result<(), Failure> {
        let needed = self.needs.total();
        let free = free(context)?;
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

        let batches = &samples.training;
        let per_launch = batches.tokens() as u64;
        let evaluated = samples
            .evaluation
            .as_ref()
            .map_or(0, |samples| samples.micro_batches(batches.steps()));
        let tokens = TrainingTokens {
            trained: batches.micro_batches() * per_launch,
            evaluated: evaluated * per_launch,
            per_launch,
        };
        emulation::training(self.weights, tokens)
    }

    /// Returns the start of a list of advice: a recomputation that would fit, if there is one.
    fn smaller(&self, free: u64) -> String {
        match self.choices.iter().find(|(_, total)| *total <= free) {
            Some((choice, _)) => format!("--recompute {}, or ", name(*choice)),
            None => String::new(),
        }
    }

    /// Checks that the disk has space for the adapter and all checkpoints.
    ///
    /// # Errors
    /// Returns an error with the required space.
    pub(super) fn check_disk(&self, args: &Args) -> Result<(), Failure> {
        let adapter = 4 * self.settings.lora.trainable(&self.settings.config);
        let steps = self.settings.training.schedule.total;
        let checkpoints = args.save_every.map_or(0, |every| u64::from(steps / every));

        // A checkpoint has two moments for each parameter of the adapter.
        let needed = adapter + checkpoints.saturating_mul(3 * adapter);
        let Some(free) = disk::free(&args.out).filter(|free| *free < needed) else {
            return Ok(());
        };

        Err(Failure::Input(format!(
            "--out {}: the adapter and {checkpoints} checkpoints need {} on the disk, and {} are free; free some space, \
             name a folder on another disk, or use a larger --save-every",
            args.out.display(),
            mebibytes(needed),
            mebibytes(free)
        )))
    }

    /// Returns the fingerprint: everything that the result of the training depends on.
    ///
    /// A resumed run must have the fingerprint of its checkpoint. A file for evaluation does not
    /// count, because it does not change the result. A share of the data does, because it is
    /// excluded from training.
    ///
    /// # Errors
    /// Returns an error if the model or the data cannot be read.
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

        // Only the choice that came later has an entry, so that older checkpoints stay valid.
        let absmax = match args.absmax {
            AbsmaxChoice::F32 => None,
            AbsmaxChoice::Nested => Some(("absmax", "nested".to_owned())),
        };
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

/// Checks the ranges of options. `context` is the number of positions that the model supports.
fn check_flags(args: &Args, context: usize) -> Result<(), Failure> {
    let refused = |sentence: String| Err(Failure::Input(sentence));
    if args.seq > context {
        let seq = args.seq;
        return refused(format!(
            "--seq {seq} is more than the {context} positions that the model supports"
        ));
    }

    for (flag, rate) in [("--lr", args.lr), ("--lr-min", args.lr_min)] {
        if !((rate as f32).is_finite() && rate >= 0.0) {
            return refused(format!(
                "invalid {flag} {rate}: a learning rate must be 0 or more, and finite in f32"
            ));
        }
    }

    // The kernels compute in f32, where a tiny positive number becomes 0.
    if args.clip.is_nan() || args.clip as f32 <= 0.0 {
        return refused(format!(
            "invalid --clip {}: the largest norm must be above 0 in f32",
            args.clip
        ));
    }

    if !(0.0..=f64::from(u32::MAX)).contains(&args.warmup) {
        let warmup = args.warmup;
        return refused(format!(
            "invalid --warmup {warmup}: expected a number of steps, or a share of all steps below 1"
        ));
    }

    Ok(())
}

/// Returns an error if the warm-up leaves no step with a learning rate above 0.
fn check_rates(schedule: &Schedule) -> Result<(), Failure> {
    let Schedule {
        warmup, total, lr, ..
    } = *schedule;
    if lr > 0.0 && total == 1 && warmup > 0 {
        return Err(Failure::Input(
            "--warmup leaves nothing to train, because the only step would have a learning rate of 0: use --warmup 0, or \
             more steps"
                .into(),
        ));
    }
    Ok(())
}

/// Returns an error if nested scales are requested and no projection is quantized to NF4.
fn check_absmax(args: &Args, model: &Model) -> Result<(), Failure> {
    let formats = base::formats(&model.outline, args.quantization());
    if args.absmax == AbsmaxChoice::F32 || formats.contains_key("nested NF4") {
        return Ok(());
    }
    let formats: Vec<_> = formats.into_keys().collect();
    Err(Failure::Input(format!(
        "--absmax nested has no effect, because the projections stay in {}: leave it out",
        formats.join(", ")
    )))
}

/// Returns the number of warm-up steps. A value below 1 is a share of all steps.
fn warmup(warmup: f64, steps: u32) -> u32 {
    let count = if warmup < 1.0 {
        (warmup * f64::from(steps)).ceil()
    } else {
        warmup
    };
    count as u32
}

/// Returns the number of samples, with those that were truncated or left out.
fn count(data: &Dataset) -> String {
    let mut samples = data.samples.len().to_string();
    if data.cut() > 0 {
        samples += &format!(" ({} truncated)", data.cut());
    }
    if data.dropped > 0 {
        samples += &format!(", {} dropped: their prompts fill a row", data.dropped);
    }
    if data.excluded > 0 {
        samples += &format!(", {} excluded by their marks", data.excluded);
    }

    samples
}

/// Returns the number of tokens, and the share of them that is learned or evaluated.
fn tokens(data: &Dataset, labelled: &str) -> String {
    let share = 100.0 * data.labelled() as f64 / data.tokens() as f64;
    format!("{}, {share:.1} % of them {labelled}", data.tokens())
}

/// Returns the free memory of the device in bytes.
fn free(context: &Context) -> Result<u64, Failure> {
    Ok(context.memory()?.0 as u64)
}

/// Returns an entry with the hash of each file of a model.
fn hashes(model: &Model) -> Result<Vec<(String, String)>, Failure> {
    let files = model.files.paths();
    let mut hashes = vec![];
    for path in &files {
        let name = if files.len() == 1 {
            "model".to_owned()
        } else {
            let file_name = path.file_name().unwrap_or_default();
            format!("model {}", file_name.to_string_lossy())
        };
        hashes.push((name, hash(path)?));
    }

    Ok(hashes)
}

/// Returns the length and a hash of a file.
///
/// The hash is not cryptographic. It must only reveal that a file was changed or replaced by
/// mistake.
fn hash(path: &Path) -> Result<String, Failure> {
    let fault = |error| Failure::Input(format!("cannot read {}: {error}", path.display()));
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(fault)?);
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    let mut length = 0;
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

/// Returns the requested precision, or with `auto` the fastest one that the device and the model
/// support.
fn choose(
    wish: PrecisionChoice,
    settings: &Settings,
    context: &Context,
) -> Result<Precision, Failure> {
    let supported = Precision::Bf16.check(context, settings);
    match (wish, supported) {
        (PrecisionChoice::F32, _) => Ok(Precision::F32),
        (PrecisionChoice::Bf16, supported) => Ok(supported.map(|()| Precision::Bf16)?),
        // On the emulator, bf16 is slower. It computes whole tiles of the tensor cores, even if
        // most of them is padding.
        (PrecisionChoice::Auto, _) if device::is_emulator(context) => Ok(Precision::F32),
        (PrecisionChoice::Auto, Err(Error::Precision { needed })) => {
            say(format!(
                "warning: training in f32, which is many times slower than bf16, because bf16 needs {needed}"
            ));
            Ok(Precision::F32)
        }
        (PrecisionChoice::Auto, supported) => Ok(supported.map(|()| Precision::Bf16)?),
    }
}

/// Returns the memory that these settings need.
fn needs(args: &Args, model: &Model, settings: &Settings) -> Result<TrainingNeeds, Failure> {
    let weights = base::bytes(&model.outline, args.quantization(), settings.precision);
    Ok(TrainingNeeds::for_settings(settings, weights)?)
}

/// Returns the name of a choice in --recompute.
fn name(of: Recompute) -> String {
    of.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// Returns the activations that are recomputed, for the table.
fn recomputed(of: Recomputation) -> &'static str {
    match of {
        Recomputation::None => "nothing",
        Recomputation::Cheap => "norms and SwiGLU",
        Recomputation::Layers => "layers",
    }
}
