//! Each fixture: the same weights, adapters and batches to the bit; the same numbers of one step and of all steps.

use serde_json::Value;
use warpwright_kernels::train::cross_entropy;
use warpwright_kernels::train::linear::{self, Weight};
use warpwright_train::Projection;
use warpwright_train::reference::{
    Adapters, Gradients, LayerWeights, MicroBatch, References, Rotated, Storage, Trainer, Weights,
};

use crate::compare::{distance, named};
use crate::generators::{fnv1a, fnv1a_f32};
use crate::setup::{NAMES, Setup, read, wide};

/// Fixtures have 12 digits, so 5e-12 of a number that begins with 1 is their rounding.
pub(crate) const LIMIT: f64 = 6e-12;

/// Relative L2 of whole tensors, which have nine digits.
const FULL_LIMIT: f64 = 2e-9;

macro_rules! fixtures {
    ($($test:ident: $name:literal, $steps:literal steps;)*) => {$(
        #[test]
        fn $test() {
            check($name, $steps);
        }
    )*};
}

fixtures! {
    llama: "llama-r4", 12 steps;
    llama_dropout: "llama-r4-dropout", 12 steps;
    llama_packed: "llama-r4-packed", 12 steps;
    llama_qv: "llama-r4-qv", 12 steps;
    qwen2: "qwen2-r8", 12 steps;
    qwen2_accumulated: "qwen2-r8-accum", 12 steps;
    qwen2_nested: "qwen2-r8-nested", 12 steps;
    qwen3: "qwen3-r4", 12 steps;
    llama_uneven: "llama-r6", 12 steps;
    tiny: "tiny-100", 100 steps;
    hd128: "hd128-100", 12 steps;
}

fn check(name: &str, steps: usize) {
    let worst = off(name, steps);
    println!(
        "{name}: at most {:.1e} off, at {}",
        worst.error, worst.place
    );
    assert!(
        worst.error < LIMIT,
        "{name}: {} is {:e} off",
        worst.place,
        worst.error
    );
}

/// What is farthest from a fixture, over this many of its steps. It panics where bits are other bits.
pub(crate) fn off(name: &str, steps: usize) -> Worst {
    let (fixture, setup, weights) = rebuilt(name);
    let mut worst = Worst::default();
    check_moved(&fixture, &setup, &weights, &mut worst);
    check_training(&fixture, &setup, weights, steps, &mut worst);
    worst
}

/// A fixture, and what it is of, whose bits are those of the oracle.
fn rebuilt(name: &str) -> (Value, Setup, Weights) {
    let fixture = read(name);
    let setup = Setup::new(&fixture["config"]);
    let weights = setup.weights(&|nf4| setup.unpack(nf4));
    check_weights(&fixture, &setup, &weights);
    check_batches(&fixture, &setup);
    (fixture, setup, weights)
}

/// Of the larger fixtures the reference takes long: the example `gates` compares it with their numbers.
#[test]
fn larger_fixtures_are_rebuilt_to_the_bit() {
    for name in ["qwen3-hd128", "gqa6-hd128", "gqa7-hd64"] {
        drop(rebuilt(name));
    }
}

/// The largest error, and where it is.
#[derive(Default)]
pub(crate) struct Worst {
    pub(crate) error: f64,
    pub(crate) place: String,
}

impl Worst {
    /// `scale` is the magnitude that the difference is relative to.
    fn see(&mut self, place: impl Into<String>, found: f64, wanted: f64, scale: f64) {
        let error = if found == wanted {
            0.0
        } else {
            (found - wanted).abs() / scale
        };
        if error > self.error || error.is_nan() {
            *self = Worst {
                error,
                place: place.into(),
            };
        }
    }

    /// The four numbers of a tensor. Sums may cancel: they are relative to what they are at most.
    fn sums(&mut self, place: &str, tensor: &[f64], wanted: &Value) {
        let wanted: Vec<f64> = numbers(wanted);
        let squares = |tensor: &[f64]| tensor.iter().map(|x| x * x).sum::<f64>();
        let weighted = tensor
            .iter()
            .enumerate()
            .map(|(i, x)| x * (1 + i % 7) as f64);
        let largest = tensor.iter().fold(0f64, |m, x| m.max(x.abs()));
        let most = (tensor.len() as f64 * wanted[1]).sqrt();
        self.see(
            format!("sum of {place}"),
            tensor.iter().sum(),
            wanted[0],
            most,
        );
        self.see(
            format!("squares of {place}"),
            squares(tensor),
            wanted[1],
            wanted[1],
        );
        self.see(format!("largest of {place}"), largest, wanted[2], wanted[2]);
        self.see(
            format!("weighted sum of {place}"),
            weighted.sum(),
            wanted[3],
            most.max(wanted[3].abs()),
        );
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

/// Weights, packed weights and first adapters, by their bits.
fn check_weights(fixture: &Value, setup: &Setup, weights: &Weights) {
    let found: Vec<_> = named_weights(weights).collect();
    assert_eq!(found.len(), fixture["weights"].as_object().unwrap().len());
    for (name, tensor) in found {
        let narrow: Vec<f32> = tensor.iter().map(|&x| x as f32).collect();
        assert_eq!(wide(&narrow), tensor, "{name} is not of f32");
        assert_eq!(
            fixture["weights"][&name]["fnv1a"],
            fnv1a_f32(&narrow),
            "{name}"
        );
    }

    for (l, p) in places(setup) {
        let (name, nf4) = (place(l, p), setup.nf4(l, p));
        let wanted = &fixture["nf4"][&name];
        assert_eq!(wanted["absmax"], fnv1a_f32(&nf4.absmax), "absmax of {name}");
        assert_eq!(wanted["packed"], fnv1a(nf4.packed), "{name}");
    }

    for (name, tensor) in named(&setup.adapters()) {
        let narrow: Vec<f32> = tensor.iter().map(|&x| x as f32).collect();
        assert_eq!(
            fixture["adapters"][&name]["fnv1a"],
            fnv1a_f32(&narrow),
            "{name}"
        );
    }
}

fn places(setup: &Setup) -> impl Iterator<Item = (usize, Projection)> {
    (0..setup.config.layers).flat_map(|l| Projection::ALL.map(|p| (l, p)))
}

fn place(l: usize, p: Projection) -> String {
    format!("{l}.{}", NAMES[p as usize])
}

fn named_weights(weights: &Weights) -> impl Iterator<Item = (String, &[f64])> {
    let top = [
        ("embed", &weights.embed[..]),
        ("head", weights.head()),
        ("gf", &weights.norm),
    ];
    let top = top
        .into_iter()
        .map(|(name, tensor)| (name.to_string(), tensor));
    top.chain(weights.layers.iter().enumerate().flat_map(|(l, layer)| {
        named_layer(layer)
            .into_iter()
            .map(move |(name, tensor)| (format!("{l}.{name}"), tensor))
    }))
}

fn named_layer(layer: &LayerWeights) -> Vec<(String, &[f64])> {
    let norms = [
        ("g1", &layer.attention_norm),
        ("g2", &layer.feed_forward_norm),
    ]
    .into_iter();
    let head_norms = [("gq", &layer.q_norm), ("gk", &layer.k_norm)].into_iter();
    let norms = norms.chain(head_norms.filter_map(|(name, norm)| Some((name, norm.as_ref()?))));
    let mut found: Vec<_> = norms
        .map(|(name, norm)| (name.to_string(), &norm[..]))
        .collect();
    for (name, (weight, bias)) in NAMES
        .iter()
        .zip(layer.projections.iter().zip(&layer.biases))
    {
        found.push((name.to_string(), weight));
        found.extend(bias.as_ref().map(|bias| (format!("b{name}"), &bias[..])));
    }

    found
}

/// The four batches that rotate.
fn check_batches(fixture: &Value, setup: &Setup) {
    let micros: Vec<MicroBatch> = (1..5).flat_map(|step| setup.micros(step)).take(4).collect();
    for (micro, wanted) in micros.iter().zip(fixture["batches"].as_array().unwrap()) {
        let label = |label: &Option<u32>| label.map_or(-100, |label| label as i32);
        let words = |list: &[u32]| list.iter().map(|&word| word as i32).collect::<Vec<_>>();
        check_list(&wanted["ids"], &words(&micro.ids));
        check_list(
            &wanted["lab"],
            &micro.labels.iter().map(label).collect::<Vec<_>>(),
        );
        if !wanted["pos"].is_null() {
            check_list(&wanted["pos"], &words(&micro.positions));
            let in_row = |(token, start): (usize, &u32)| {
                *start as i32 - (token / setup.len * setup.len) as i32
            };
            check_list(
                &wanted["start"],
                &micro
                    .starts
                    .iter()
                    .enumerate()
                    .map(in_row)
                    .collect::<Vec<_>>(),
            );
        }
    }
}

/// A long list is there by its hash.
fn check_list(wanted: &Value, list: &[i32]) {
    match wanted {
        Value::String(hash) => assert_eq!(
            *hash,
            fnv1a(list.iter().flat_map(|word| word.to_le_bytes()))
        ),
        wanted => assert_eq!(*wanted, serde_json::json!(list)),
    }
}

/// One micro-batch where B is not zero: loss, activations and gradients.
fn check_moved(fixture: &Value, setup: &Setup, weights: &Weights, worst: &mut Worst) {
    let model = setup.model(weights.clone(), Storage::F64, &References);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.n = micro.labelled();
    let found = model.gradients(&setup.moved(), &micro).unwrap();
    let wanted = &fixture["at_moved"];
    let number = |key: &str| wanted[key].as_f64().unwrap();
    worst.see("loss", found.loss, number("loss"), number("loss"));
    let gradients = named(&found.adapters);
    assert_eq!(
        gradients.len(),
        wanted["gradients"].as_object().unwrap().len()
    );
    for (name, tensor) in &gradients {
        worst.sums(name, tensor, &wanted["gradients"][name]["sums"]);
    }

    let activations = activations(setup, weights, &micro, &found);
    assert_eq!(
        activations.len(),
        wanted["activations"].as_object().unwrap().len()
    );
    for (name, tensor) in &activations {
        worst.sums(name, tensor, &wanted["activations"][name]);
    }

    check_full(&wanted["full"], &gradients, &activations);
}

/// Whole tensors, where the fixture has them.
fn check_full(wanted: &Value, gradients: &[(String, &[f64])], activations: &[(String, Vec<f64>)]) {
    for (key, wanted) in wanted.as_object().into_iter().flatten() {
        let gradient = || {
            gradients
                .iter()
                .find(|(name, _)| Some(&name[..]) == key.strip_prefix("grad."))
        };
        let activation = || activations.iter().find(|(name, _)| name == key);
        let found = gradient()
            .map(|(_, tensor)| *tensor)
            .or_else(|| activation().map(|(_, t)| &t[..]));
        let error = distance(found.unwrap(), &numbers(wanted));
        assert!(error < FULL_LIMIT, "{key} is {error:e} off");
    }
}

/// What the fixture calls activations, under its names and in its layouts.
fn activations(
    setup: &Setup,
    weights: &Weights,
    micro: &MicroBatch,
    found: &Gradients,
) -> Vec<(String, Vec<f64>)> {
    let head = Weight {
        w: weights.head(),
        bias: None,
        n: setup.config.vocab,
    };
    let logits = linear::forward(&found.head.x, &head, None);
    let dl = cross_entropy::backward(&logits, &found.head.lse, &micro.labels);
    let (h, hf, ce_lse, dh) = (
        &found.activations.h,
        &found.head.x,
        &found.head.lse,
        &found.head.dh,
    );
    let top = [
        ("h_last", h.clone()),
        ("hf", hf.clone()),
        ("ce_lse", ce_lse.clone()),
        ("logits", logits),
        ("dlogits_times_n", dl),
        ("dh_last", dh.clone()),
    ];
    let mut all: Vec<_> = top
        .into_iter()
        .map(|(name, tensor)| (name.to_string(), tensor))
        .collect();
    for l in 0..setup.config.layers {
        let of_layer = layer_activations(setup, l, found).into_iter();
        all.extend(of_layer.map(|(name, tensor)| (format!("{l}.{name}"), tensor)));
    }

    all
}

fn layer_activations(setup: &Setup, l: usize, found: &Gradients) -> Vec<(String, Vec<f64>)> {
    let (layer, gradients) = (&found.activations.layers[l], &found.layers[l]);
    let lse = by_heads(setup, &layer.lse);
    let tensors = [
        ("h", &layer.h),
        ("i1", &layer.inv1),
        ("lse", &lse),
        ("q", &layer.q.rotated),
        ("k", &layer.k.rotated),
        ("v", &layer.v),
        ("o", &layer.o),
        ("h1", &layer.h1),
        ("i2", &layer.inv2),
        ("g", &layer.g),
        ("up", &layer.up),
        ("dh", &gradients.dh),
        ("dq", &gradients.dq),
        ("dk", &gradients.dk),
        ("dv", &gradients.dv),
    ];
    let raw = |(name, Rotated { raw, inv, .. }): (&str, &Rotated)| {
        [
            (format!("{name}0"), raw.clone()),
            (format!("i{name}"), inv.clone()),
        ]
    };
    let raw = [("q", &layer.q), ("k", &layer.k)].into_iter().flat_map(raw);
    let u = NAMES
        .iter()
        .zip(&layer.u)
        .map(|(name, u)| (format!("{name}.u"), u.clone()));
    let tensors = tensors
        .into_iter()
        .map(|(name, tensor)| (name.to_string(), tensor.clone()));
    tensors
        .chain(raw)
        .chain(u)
        .filter(|(_, tensor)| !tensor.is_empty())
        .collect()
}

/// `[rows, heads, len]` of `[rows, len, heads]`.
fn by_heads(setup: &Setup, lse: &[f64]) -> Vec<f64> {
    let (heads, len) = (setup.config.heads, setup.len);
    let row = |row: &[f64]| {
        (0..heads * len)
            .map(|i| row[i % len * heads + i / len])
            .collect::<Vec<_>>()
    };
    lse.chunks(heads * len).flat_map(row).collect()
}

/// Losses, norms, clip factors and rates of the steps; at the fixture's last step the adapters.
fn check_training(
    fixture: &Value,
    setup: &Setup,
    weights: Weights,
    steps: usize,
    worst: &mut Worst,
) {
    let model = setup.model(weights, Storage::F64, &References);
    let mut trainer = Trainer::new(&model, setup.training.clone(), setup.adapters()).unwrap();
    let wanted = &fixture["training"]["f64"];
    for step in 1..=steps {
        let record = trainer.step(&setup.micros(step)).unwrap();
        assert!(!record.skipped);
        let found = [record.loss, record.norm, record.clip, record.lr];
        for (key, found) in ["loss", "grad_norm", "clip", "lr"].into_iter().zip(found) {
            let wanted = wanted[key][step - 1].as_f64().unwrap();
            worst.see(format!("{key} of step {step}"), found, wanted, wanted);
        }
    }

    if fixture["steps"] == steps {
        check_adapters(&wanted["adapters"], &trainer.adapters, worst);
    }
}

/// Sum and sum of squares of each tensor.
fn check_adapters(wanted: &Value, adapters: &Adapters, worst: &mut Worst) {
    for (name, tensor) in named(adapters) {
        let wanted = numbers(&wanted[&name]);
        let most = (tensor.len() as f64 * wanted[1]).sqrt();
        worst.see(
            format!("sum of {name}"),
            tensor.iter().sum(),
            wanted[0],
            most,
        );
        let squares = tensor.iter().map(|x| x * x).sum();
        worst.see(format!("squares of {name}"), squares, wanted[1], wanted[1]);
    }
}
