//! What a fixture's configuration stands for: a model, its adapters and its data.

use serde_json::Value;
use warpwright_kernels::train::nested;
use warpwright_kernels::train::nf4::{self, Nf4};
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_kernels::train::rope::frequencies;
use warpwright_model::layer::HeadNorms;
use warpwright_train::reference::{
    Adapter, Adapters, LayerWeights, MicroBatch, Model, Ops, Storage, Weights,
};
use warpwright_train::{Config, Lora, Projection, Training};

use crate::generators::{gauss, unit};

/// Projections, as fixtures name them.
pub(crate) const NAMES: [&str; 7] = ["q", "k", "v", "o", "gate", "up", "down"];

macro_rules! files {
    ($($name:literal)*) => {
        /// The files of fixtures, which are in the program: a machine with a GPU needs no checkout.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../fixtures/", $name, ".json")))),*];
    };
}

files! {
    "constants" "faults"
    "llama-r4" "llama-r4-dropout" "llama-r4-packed" "llama-r4-qv"
    "qwen2-r8" "qwen2-r8-accum" "qwen2-r8-nested" "qwen3-r4"
    "llama-r6" "tiny-100" "hd128-100" "qwen3-hd128" "gqa6-hd128" "gqa7-hd64"
}

/// Reads a fixture.
pub(crate) fn read(name: &str) -> Value {
    let file = FILES.iter().find(|(file, _)| *file == name);
    let (_, text) = file.unwrap_or_else(|| panic!("there is no fixture {name}"));
    serde_json::from_str(text).unwrap()
}

pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) lora: Lora,
    pub(crate) training: Training,
    pub(crate) accum: usize,
    pub(crate) rows: usize,
    pub(crate) len: usize,
    seed: u64,
    bias: bool,
    tied: bool,
    qk_norm: bool,
    pub(crate) nested: bool,
    packed: bool,
    ragged: bool,
    stds: [f64; 3],
}

impl Setup {
    pub(crate) fn new(c: &Value) -> Setup {
        let int = |key: &str| {
            c[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key} is no count")) as usize
        };
        let number = |key: &str| {
            c[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{key} is no number"))
        };
        let flag = |key: &str| {
            c[key]
                .as_bool()
                .unwrap_or_else(|| panic!("{key} is no flag"))
        };
        Setup {
            config: Config {
                vocab: int("V"),
                hidden: int("H"),
                feed_forward: int("I"),
                layers: int("L"),
                heads: int("NH"),
                kv_heads: int("NKV"),
                head_dim: int("HD"),
                head_norms: if flag("qk_norm") {
                    HeadNorms::QueriesAndKeys
                } else {
                    HeadNorms::None
                },
                eps: number("eps"),
                frequencies: frequencies(number("theta"), int("HD")),
            },
            lora: Lora {
                rank: int("r"),
                alpha: number("alpha"),
                dropout: number("dropout"),
                seed: int("seed") as u64,
                targets: targets(&c["targets"]),
            },
            training: training(c),
            accum: int("accum"),
            rows: int("B"),
            len: int("S"),
            seed: int("seed") as u64,
            bias: flag("bias"),
            tied: flag("tied"),
            qk_norm: flag("qk_norm"),
            nested: flag("nested"),
            packed: flag("packed"),
            ragged: flag("ragged"),
            stds: ["emb_std", "w_std", "bias_std"].map(number),
        }
    }

    pub(crate) fn model<'a>(
        &self,
        weights: Weights,
        storage: Storage,
        ops: &'a dyn Ops,
    ) -> Model<'a> {
        Model::new(
            self.config.clone(),
            self.lora.clone(),
            weights,
            storage,
            ops,
        )
        .unwrap()
    }

    /// Seeds of a layer's tensors begin here.
    fn layer(&self, l: usize) -> u64 {
        self.seed + 100 * l as u64
    }

    /// The NF4 parts of a projection, before absmax is nested.
    pub(crate) fn nf4(&self, l: usize, p: Projection) -> Nf4 {
        let [n, k] = p.shape(&self.config);
        let std = self.stds[1] * (128.0 / k as f64).sqrt();
        nf4::quantize(&gauss(self.layer(l) + 20 + p as u64, n * k, std))
    }

    /// The weights that NF4 stands for.
    pub(crate) fn unpack(&self, nf4: &Nf4) -> Vec<f32> {
        if self.nested {
            let absmax = nested::dequantize(&nested::quantize(&nf4.absmax));
            nf4::dequantize(&nf4.packed, &absmax)
        } else {
            nf4::dequantize(&nf4.packed, &nf4.absmax)
        }
    }

    pub(crate) fn weights(&self, unpack: &dyn Fn(&Nf4) -> Vec<f32>) -> Weights {
        let (s, table) = (self.seed, self.config.vocab * self.config.hidden);
        Weights {
            embed: wide(&gauss(s + 1, table, self.stds[0])),
            head: (!self.tied).then(|| wide(&gauss(s + 3, table, self.stds[0]))),
            norm: gains(s + 2, self.config.hidden),
            layers: (0..self.config.layers)
                .map(|l| self.layer_weights(l, unpack))
                .collect(),
        }
    }

    fn layer_weights(&self, l: usize, unpack: &dyn Fn(&Nf4) -> Vec<f32>) -> LayerWeights {
        let (
            t,
            &Config {
                hidden, head_dim, ..
            },
        ) = (self.layer(l), &self.config);
        let bias = |p: Projection| {
            let has = self.bias && matches!(p, Projection::Q | Projection::K | Projection::V);
            has.then(|| {
                wide(&gauss(
                    t + 40 + p as u64,
                    p.shape(&self.config)[0],
                    self.stds[2],
                ))
            })
        };
        LayerWeights {
            attention_norm: gains(t + 11, hidden),
            feed_forward_norm: gains(t + 12, hidden),
            q_norm: self.qk_norm.then(|| gains(t + 13, head_dim)),
            k_norm: self.qk_norm.then(|| gains(t + 14, head_dim)),
            projections: Projection::ALL.map(|p| wide(&unpack(&self.nf4(l, p)))),
            biases: Projection::ALL.map(bias),
        }
    }

    /// The adapters before the first step: A uniform as PEFT has it, B zero.
    pub(crate) fn adapters(&self) -> Adapters {
        let mut adapters = Adapters::zeros(&self.config, &self.lora);
        for (l, layer) in adapters.layers.iter_mut().enumerate() {
            for (j, &p) in self.lora.targets.iter().enumerate() {
                let (seed, k) = (self.layer(l) + 60 + j as u64, p.shape(&self.config)[1]);
                let adapter = layer[p as usize].as_mut().unwrap();
                let a = |i: usize| (unit(seed, i as u64) * 2.0 - 1.0) / (k as f64).sqrt();
                adapter.a = (0..adapter.a.len())
                    .map(|i| f64::from(a(i) as f32))
                    .collect();
            }
        }
        adapters
    }

    /// Adapters where B is not zero: with B = 0 the gradient of every A is zero.
    pub(crate) fn moved(&self) -> Adapters {
        let mut adapters = self.adapters();
        let all = adapters.layers.iter_mut().flatten().flatten();
        all.for_each(|Adapter { b, .. }| *b = wide(&gauss(99, b.len(), 0.05)));
        adapters
    }

    /// The micro-batches of an optimizer's step, from 1. The same four batches rotate.
    pub(crate) fn micros(&self, step: usize) -> Vec<MicroBatch> {
        let numbers = (step - 1) * self.accum..step * self.accum;
        let mut micros: Vec<_> = numbers.map(|number| self.micro(number)).collect();
        let n = micros.iter().map(MicroBatch::labelled).sum();
        for micro in &mut micros {
            micro.n = n;
        }
        micros
    }

    fn micro(&self, number: usize) -> MicroBatch {
        let (s, v, k) = (self.seed, self.config.vocab, number as u64 % 4);
        let pick = |seed: u64, i: usize, below: usize| {
            (unit(s + seed + k, i as u64) * below as f64) as usize
        };
        let id = |n: usize| {
            let (row, column) = (n / self.len, n % self.len);
            let regular = (pick(7100, row, v) + (pick(7000, row, 7) + 1) * column) % v;
            let noise = unit(s + 7200 + k, n as u64) < 0.1;
            (if noise { pick(7300, n, v) } else { regular }) as u32
        };
        let tokens = self.rows * self.len;
        let mut micro = MicroBatch {
            number: number as u32,
            ids: (0..tokens).map(id).collect(),
            labels: vec![None; tokens],
            positions: vec![0; tokens],
            starts: vec![0; tokens],
            n: 0,
        };
        (0..self.rows).for_each(|row| self.documents(row, &pick, &mut micro));
        micro
    }

    /// Divides a row into documents. A prompt at the beginning of each and its last token have no label.
    fn documents(
        &self,
        row: usize,
        pick: &dyn Fn(u64, usize, usize) -> usize,
        micro: &mut MicroBatch,
    ) {
        let mut first = 0;
        while first < self.len {
            let rest = if self.packed {
                6 + pick(7400, row * 64 + first, self.len / 2)
            } else {
                self.len
            };
            let end = self.len.min(first + rest);
            let prompt = match (self.packed, self.ragged) {
                (_, true) => 4 + pick(7500, row, self.len / 2),
                (true, false) => 2,
                (false, false) => 4,
            };
            for column in first..end {
                let token = row * self.len + column;
                micro.positions[token] = (column - first) as u32;
                micro.starts[token] = (row * self.len + first) as u32;
                if column >= first + prompt && column + 1 < end {
                    micro.labels[token] = Some(micro.ids[token + 1]);
                }
            }

            first = end;
        }
    }
}

fn targets(names: &Value) -> Vec<Projection> {
    let is = |p: &Projection| {
        names
            .as_array()
            .unwrap()
            .iter()
            .any(|name| name == NAMES[*p as usize])
    };
    Projection::ALL.into_iter().filter(is).collect()
}

fn training(c: &Value) -> Training {
    let number = |key: &str| c[key].as_f64().unwrap();
    let count = |key: &str| c[key].as_u64().unwrap() as u32;
    Training {
        schedule: Schedule {
            decay: Decay::Cosine,
            lr: number("lr"),
            lr_min: number("lr_min"),
            warmup: count("warmup"),
            total: count("total"),
        },
        adamw: AdamW {
            beta1: number("beta1"),
            beta2: number("beta2"),
            eps: number("adam_eps"),
            decay: number("wd"),
        },
        max_norm: number("max_norm"),
    }
}

pub(crate) fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().copied().map(f64::from).collect()
}

fn gains(seed: u64, len: usize) -> Vec<f64> {
    gauss(seed, len, 0.05)
        .into_iter()
        .map(|x| f64::from(1.0 + x))
        .collect()
}
