//! The gates of a step on a device, held to the reference in `f64`: gradients where B is not zero, losses, records of
//! steps, and adapters after them.

use std::fmt;

use warpwright_driver::Context;
use warpwright_kernels::ProductTile;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::nested::{self, Nested};
use warpwright_kernels::train::nf4::Nf4;
use warpwright_model::RopePairing;
use warpwright_train::reference::{
    Adapters, MicroBatch, Model, Record, References, Storage, Trainer as Reference, Weights,
};
use warpwright_train::step::{
    Launch, Matrix, Precision, Recomputation, Settings, Tiles, Trainer, Unpacking,
};
use warpwright_train::{Error, LayerWeights, Projection};

use crate::compare::{distance, named, worst};
use crate::setup::{Setup, read};

/// Relative L2 of a gradient.
pub(crate) const GRADIENT: f64 = 1e-4;
/// Relative L2 of an adapter after all steps.
pub(crate) const ADAPTER: f64 = 1e-3;
/// Relative, of a loss of one pass, and of one after some steps.
const LOSS: [f64; 2] = [1e-5, 1e-4];
/// Relative, of the norm before clipping, the clip's factor and the learning rate.
const RECORD: f64 = 1e-3;
/// In `bf16`: times the distance that a gradient has in the reference that rounds where fused kernels do.
const GRADIENT_BF16: f64 = 2.0;
/// In `bf16`: of a loss, absolute, over the steps of a short run, and over more.
const LOSS_BF16: [f64; 2] = [0.01, 0.02];
const SHORT: usize = 12;

/// The fixtures, and the steps that a device takes of each.
pub(crate) const FIXTURES: [(&str, usize); 14] = [
    ("llama-r4", 12),
    ("llama-r4-dropout", 3),
    ("llama-r4-packed", 3),
    ("llama-r4-qv", 3),
    ("qwen2-r8", 3),
    ("qwen2-r8-accum", 3),
    ("qwen2-r8-nested", 3),
    ("qwen3-r4", 12),
    ("llama-r6", 1),
    ("tiny-100", 12),
    ("hd128-100", 3),
    ("qwen3-hd128", 3),
    ("gqa6-hd128", 2),
    ("gqa7-hd64", 2),
];

/// What a gate measured.
pub(crate) struct Figure {
    pub(crate) gate: &'static str,
    pub(crate) value: f64,
    pub(crate) limit: f64,
    /// The tensor, or the step, that is farthest off.
    pub(crate) place: String,
}

impl Figure {
    fn new(gate: &'static str, limit: f64, (value, place): (f64, String)) -> Figure {
        Figure {
            gate,
            value,
            limit,
            place,
        }
    }

    /// NaN does not.
    pub(crate) fn passes(&self) -> bool {
        self.value < self.limit
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure {
            gate,
            value,
            limit,
            place,
        } = self;
        write!(
            f,
            "{gate}: {value:.2e} at {place}, must be below {limit:.0e}"
        )
    }
}

pub(crate) fn setup(fixture: &str) -> Setup {
    Setup::new(&read(fixture)["config"])
}

/// Every gate, over this many steps; gradients alone without any.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn figures(
    context: &Context,
    setup: &Setup,
    launch: Launch,
    precision: Precision,
    steps: usize,
) -> Result<Vec<Figure>, Error> {
    let bench = Bench {
        context,
        setup,
        launch,
        precision,
    };
    let model = setup.model(
        setup.weights(&|nf4| setup.unpack(nf4)),
        Storage::F64,
        &References,
    );
    let mut figures = vec![bench.gradients(&model)?];
    if steps == 0 {
        return Ok(figures);
    }

    let mut reference = Reference::new(&model, setup.training.clone(), setup.adapters())?;
    let mut device = bench.trainer(&setup.adapters())?;
    let mut records = vec![];
    for step in 1..=steps {
        let micros = setup.micros(step);
        records.push([device.step(&micros)?, reference.step(&micros)?]);
    }

    if precision == Precision::Bf16 {
        figures.push(of_losses(&records));
        return Ok(figures);
    }

    figures.extend(of_records(&records));
    let adapters = worst(&device.adapters()?, &reference.adapters);
    figures.push(Figure::new("adapters", ADAPTER, adapters));
    Ok(figures)
}

/// In `bf16`, how far gradients are from each other that products with different tiles make, in pairs of blocks too, and
/// those that unpack NF4 themselves. A model takes one tile or the other by its size: none may change a bit.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn tiles(
    context: &Context,
    setup: &Setup,
    launch: Launch,
    tiles: &[ProductTile],
) -> Result<Figure, Error> {
    let bench = Bench {
        context,
        setup,
        launch,
        precision: Precision::Bf16,
    };
    let micro = setup.micros(1).swap_remove(0);
    let plain = settings(setup, launch);
    let wanted = bench.moved(&micro, plain.clone())?;
    let apart = |(tile, unpacking): (&ProductTile, Unpacking)| {
        let found = bench.moved(
            &micro,
            Settings {
                tiles: Tiles::Only(*tile),
                unpacking,
                ..plain.clone()
            },
        )?;
        let (apart, name) = worst(&found, &wanted);
        Ok((apart, format!("{name}, {tile}, NF4 unpacked {unpacking:?}")))
    };
    let each = |tile| [Unpacking::Apart, Unpacking::Ahead].map(|unpacking| (tile, unpacking));
    let all = tiles
        .iter()
        .flat_map(each)
        .map(apart)
        .collect::<Result<Vec<_>, Error>>()?;
    let farthest = all
        .into_iter()
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .unwrap_or_default();

    // Below it is only 0.
    Ok(Figure::new(
        "gradients, tile by tile",
        f64::MIN_POSITIVE,
        farthest,
    ))
}

/// All tiles of products: each, and the wide ones in pairs of blocks.
pub(crate) fn all_tiles() -> impl Iterator<Item = ProductTile> {
    let wide = ProductTile::ALL
        .into_iter()
        .filter(|tile| tile.columns() >= ProductTile::PAIRED);
    ProductTile::ALL
        .into_iter()
        .chain(wide.map(ProductTile::in_pairs))
}

/// What runs on what.
struct Bench<'a> {
    context: &'a Context,
    setup: &'a Setup,
    launch: Launch,
    precision: Precision,
}

impl Bench<'_> {
    fn trainer(&self, adapters: &Adapters) -> Result<Trainer, Error> {
        trainer_in(
            self.context,
            self.setup,
            adapters,
            self.launch,
            self.precision,
        )
    }

    /// The device's gradients of a micro-batch where B is not zero.
    fn moved(&self, micro: &MicroBatch, settings: Settings) -> Result<Adapters, Error> {
        let Bench {
            setup, precision, ..
        } = *self;
        let settings = Settings {
            precision,
            ..settings
        };
        let mut device = Trainer::new(self.context, settings, &weights(setup), &setup.moved())?;
        device.accumulate(micro)?;
        device.gradients()
    }

    /// How far the gradients of one micro-batch are where B is not zero.
    fn gradients(&self, model: &Model<'_>) -> Result<Figure, Error> {
        let setup = self.setup;
        let mut micro = setup.micros(1).swap_remove(0);
        micro.n = micro.labelled();
        let wanted = model.gradients(&setup.moved(), &micro)?.adapters;
        let plain = settings(setup, self.launch);
        let found = self.moved(&micro, plain.clone())?;
        if self.precision == Precision::F32 {
            return Ok(Figure::new("gradients", GRADIENT, worst(&found, &wanted)));
        }

        let rounding = setup.model(
            setup.weights(&|nf4| setup.unpack(nf4)),
            Storage::Bf16,
            &References,
        );
        let rounded = rounding.gradients(&setup.moved(), &micro)?.adapters;
        let times = |found: &Adapters, op: TensorOp| {
            let tensors = named(found)
                .into_iter()
                .zip(named(&rounded))
                .zip(named(&wanted));
            let times = tensors.map(|(((name, found), (_, rounded)), (_, wanted))| {
                (
                    distance(found, wanted) / distance(rounded, wanted),
                    format!("{name}, attention by {op:?}"),
                )
            });
            times
                .max_by(|(a, _), (b, _)| a.total_cmp(b))
                .unwrap_or_default()
        };
        let mut all = vec![times(&found, plain.attention)];

        // A model of such heads has kernels of both forms; of others only the second.
        if setup.config.head_dim.is_multiple_of(64) {
            let apart = self.moved(
                &micro,
                Settings {
                    attention: TensorOp::Mma,
                    ..plain
                },
            )?;
            all.push(times(&apart, TensorOp::Mma));
        }

        let farthest = all
            .into_iter()
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .unwrap_or_default();
        Ok(Figure::new(
            "gradients, times those rounded",
            GRADIENT_BF16,
            farthest,
        ))
    }
}

/// Losses of a device in `bf16`, beside those in `f64`.
fn of_losses(records: &[[Record; 2]]) -> Figure {
    let apart = |[found, wanted]: &[Record; 2]| {
        if found.skipped {
            f64::NAN
        } else {
            (found.loss - wanted.loss).abs()
        }
    };
    let steps = (1..)
        .zip(records)
        .map(|(step, pair)| (apart(pair), format!("step {step}")));
    let farthest = steps
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .unwrap_or_default();
    Figure::new(
        "losses",
        LOSS_BF16[usize::from(records.len() > SHORT)],
        farthest,
    )
}

/// What the device recorded of its steps, beside what the reference did.
fn of_records(records: &[[Record; 2]]) -> Vec<Figure> {
    let farthest = |steps: &[[Record; 2]], first: usize, of: &dyn Fn(&Record) -> Vec<f64>| {
        let apart = |[found, wanted]: &[Record; 2]| {
            let pairs = of(found).into_iter().zip(of(wanted));

            // The first step of a warm-up has a rate of 0, which must be exact.
            let relative = |found: f64, wanted: f64| {
                if found == wanted {
                    0.0
                } else {
                    (found / wanted - 1.0).abs()
                }
            };
            let apart = pairs.map(|(found, wanted)| relative(found, wanted));

            // A step that was skipped has no figures.
            if found.skipped {
                f64::NAN
            } else {
                apart.max_by(f64::total_cmp).unwrap_or(f64::NAN)
            }
        };
        let steps = (first..)
            .zip(steps)
            .map(|(step, pair)| (apart(pair), format!("step {step}")));
        steps.max_by(|(a, _), (b, _)| a.total_cmp(b))
    };
    let loss = |record: &Record| vec![record.loss];
    let rest = |record: &Record| vec![record.norm, record.clip, record.lr];
    let (first, later) = records.split_at(records.len().min(1));
    let figures = [
        ("loss of the first step", LOSS[0], farthest(first, 1, &loss)),
        ("losses of later steps", LOSS[1], farthest(later, 2, &loss)),
        ("norm, clip, rate", RECORD, farthest(records, 1, &rest)),
    ];
    figures
        .into_iter()
        .filter_map(|(gate, limit, at)| Some(Figure::new(gate, limit, at?)))
        .collect()
}

/// A setup's weights as a device takes them: matrices of layers in NF4.
pub(crate) fn weights(setup: &Setup) -> Weights<Vec<f32>, Matrix> {
    weights_with(setup, &|nf4| {
        if setup.nested {
            Matrix::Nested(nested(nf4))
        } else {
            Matrix::Nf4(nf4)
        }
    })
}

/// With each matrix as this has it.
pub(crate) fn weights_with(
    setup: &Setup,
    packed: &dyn Fn(Nf4) -> Matrix,
) -> Weights<Vec<f32>, Matrix> {
    let wide = setup.weights(&|nf4| setup.unpack(nf4));
    let narrow = |v: &Vec<f64>| v.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let layers = wide
        .layers
        .iter()
        .enumerate()
        .map(|(l, layer)| LayerWeights {
            attention_norm: narrow(&layer.attention_norm),
            feed_forward_norm: narrow(&layer.feed_forward_norm),
            q_norm: layer.q_norm.as_ref().map(narrow),
            k_norm: layer.k_norm.as_ref().map(narrow),
            projections: Projection::ALL.map(|p| packed(setup.nf4(l, p))),
            biases: layer
                .biases
                .each_ref()
                .map(|bias| bias.as_ref().map(narrow)),
        });
    Weights {
        embed: narrow(&wide.embed),
        head: wide.head.as_ref().map(narrow),
        norm: narrow(&wide.norm),
        layers: layers.collect(),
    }
}

/// With nested `absmax`.
pub(crate) fn nested(nf4: Nf4) -> Nf4<Nested> {
    Nf4 {
        packed: nf4.packed,
        absmax: nested::quantize(&nf4.absmax),
    }
}

pub(crate) fn trainer(
    context: &Context,
    setup: &Setup,
    adapters: &Adapters,
    launch: Launch,
) -> Result<Trainer, Error> {
    trainer_in(context, setup, adapters, launch, Precision::F32)
}

pub(crate) fn trainer_in(
    context: &Context,
    setup: &Setup,
    adapters: &Adapters,
    launch: Launch,
    precision: Precision,
) -> Result<Trainer, Error> {
    let settings = Settings {
        precision,
        ..settings(setup, launch)
    };
    Trainer::new(context, settings, &weights(setup), adapters)
}

pub(crate) fn trainer_with(
    context: &Context,
    setup: &Setup,
    weights: &Weights<Vec<f32>, Matrix>,
    adapters: &Adapters,
    launch: Launch,
) -> Result<Trainer, Error> {
    Trainer::new(context, settings(setup, launch), weights, adapters)
}

pub(crate) fn settings(setup: &Setup, launch: Launch) -> Settings {
    let tokens = setup.rows * setup.len;
    Settings {
        config: setup.config.clone(),
        lora: setup.lora.clone(),
        training: setup.training.clone(),
        pairing: RopePairing::HalfSplit,
        tokens,
        // Several chunks, and the last one is short.
        head_chunk: if tokens < 256 { 20 } else { 300 },
        recomputation: Recomputation::None,
        launch,
        precision: Precision::F32,
        tiles: Tiles::Fitting,
        unpacking: Unpacking::Fitting,
        attention: TensorOp::Wgmma,
    }
}
