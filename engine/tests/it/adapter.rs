//! Models with adapters on the emulator, against the float64 forward pass over `W + s B A`.

use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use warpwright_engine::{Decoder, Error, Launch, Options, Prefer, StepKind};
use warpwright_kernels::Random;
use warpwright_model::{Model, Weights};

use crate::asset;
use crate::decode::{bits, distance, emulator, generate, logits};
use crate::oracle::{self, Keep};
use crate::synth::{BF16, Q4_K, Q6_K, Q8_0, Synth, synth};

/// A random adapter.
pub(crate) struct Made {
    pub(crate) folder: PathBuf,
    /// For each layer and projection: the scale, A and B, as the original model has their rows.
    pub(crate) layers: Vec<[Option<Factors>; 7]>,
}

pub(crate) struct Factors {
    pub(crate) scale: f64,
    pub(crate) rank: usize,
    pub(crate) a: Vec<f64>,
    pub(crate) b: Vec<f64>,
}

pub(crate) const NAMES: [&str; 7] = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// What an adapter has.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Of each projection; 0 for none.
    pub(crate) ranks: [usize; 7],
    pub(crate) first_layer: usize,
    pub(crate) dtype: Dtype,
}

pub(crate) const ALL: Plan = Plan {
    ranks: [8; 7],
    first_layer: 0,
    dtype: Dtype::F32,
};

pub(crate) type Tensors = Vec<(String, Vec<usize>, Dtype, Vec<u8>)>;

/// The settings of an adapter whose `alpha` is twice the rank of most projections.
pub(crate) fn settings(plan: &Plan) -> Value {
    let most = *plan.ranks.iter().max().unwrap();
    let named = |wanted: &dyn Fn(usize) -> bool| -> Vec<(&str, usize)> {
        let short = NAMES.map(|name| name.split('.').next_back().unwrap());
        short
            .into_iter()
            .zip(plan.ranks)
            .filter(|(_, rank)| *rank > 0 && wanted(*rank))
            .collect()
    };
    let others: serde_json::Map<String, Value> = named(&|rank| rank != most)
        .into_iter()
        .map(|(name, rank)| (name.into(), json!(rank)))
        .collect();
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "some/model",
        "r": most,
        "lora_alpha": 2 * most,
        "rank_pattern": others,
        "target_modules": named(&|_| true).into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "bias": "none",
    })
}

/// A random adapter of a model, in a folder of this name.
pub(crate) fn make(model: &Model, name: &str, plan: &Plan) -> Made {
    let folder = crate::scratch(&format!("adapter-{name}"));
    let mut random = Random(11);
    let most = *plan.ranks.iter().max().unwrap();
    let mut tensors: Tensors = vec![];
    let mut layers = vec![];
    for (index, block) in model.outline.weights.blocks.iter().enumerate() {
        let mut layer = [const { None }; 7];
        for (p, weight) in block.projections().into_iter().flatten().enumerate() {
            let rank = plan.ranks[p];
            if rank == 0 || index < plan.first_layer {
                continue;
            }

            let (rows, n) = (weight.rows() as usize, weight.row_len() as usize);
            let mut factor = |letter: &str, shape: [usize; 2], size: f32| {
                let numbers = (0..shape[0] * shape[1]).map(|_| random.unit() * size);
                let (bytes, numbers) = stored(plan.dtype, numbers);
                let name = format!(
                    "base_model.model.model.layers.{index}.{}.lora_{letter}.weight",
                    NAMES[p]
                );
                tensors.push((name, shape.into(), plan.dtype, bytes));
                numbers
            };
            let a = factor("A", [rank, n], 1.0 / (n as f32).sqrt());

            // Small where the scale, `alpha / rank`, is large.
            let b = factor("B", [rows, rank], 0.3 * (rank as f32).sqrt() / most as f32);
            layer[p] = Some(Factors {
                scale: 2.0 * most as f64 / rank as f64,
                rank,
                a,
                b,
            });
        }
        layers.push(layer);
    }

    write(&folder, &settings(plan), &tensors);
    Made { folder, layers }
}

/// The bytes of numbers, and the numbers that they are.
fn stored(dtype: Dtype, numbers: impl Iterator<Item = f32>) -> (Vec<u8>, Vec<f64>) {
    let one = |x: f32| match dtype {
        Dtype::F16 => {
            let half = ptx_gen::f16::from_f32(x);
            (half.0.to_le_bytes().to_vec(), f64::from(half.to_f32()))
        }
        Dtype::BF16 => {
            let half = ptx_gen::bf16::from_f32(x);
            (half.0.to_le_bytes().to_vec(), f64::from(half.to_f32()))
        }
        _ => (x.to_le_bytes().to_vec(), f64::from(x)),
    };
    let (bytes, numbers): (Vec<_>, Vec<_>) = numbers.map(one).unzip();
    (bytes.concat(), numbers)
}

/// Writes the two files.
pub(crate) fn write(folder: &Path, settings: &Value, tensors: &Tensors) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("adapter_config.json"), settings.to_string()).unwrap();
    let views = tensors.iter().map(|(name, shape, dtype, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.join("adapter_model.safetensors"), bytes).unwrap();
}

impl Made {
    /// `W + s B A`. The files of llama models have row `2 i + j` of a head where the original has `j dim / 2 + i`.
    pub(crate) fn fold(&self, model: &Model) -> Weights<Vec<f64>> {
        let mut weights = oracle::weights(model);
        let dim = model.outline.config.head_dim() as usize;
        for (block, layer) in weights.blocks.iter_mut().zip(&self.layers) {
            let matrices = [
                &mut block.q,
                &mut block.k,
                &mut block.v,
                &mut block.o,
                block.gate.as_mut().unwrap(),
                block.up.as_mut().unwrap(),
                block.down.as_mut().unwrap(),
            ];
            for (p, (w, factors)) in matrices.into_iter().zip(layer).enumerate() {
                let Some(Factors { scale, rank, a, b }) = factors else {
                    continue;
                };
                let n = a.len() / rank;
                for original in 0..b.len() / rank {
                    let (head, i) = (original / dim * dim, original % dim);
                    let permuted = head + 2 * (i % (dim / 2)) + i / (dim / 2);
                    let llama = model.outline.config.architecture.name == "llama" && p < 2;
                    let row = if llama { permuted } else { original };
                    for r in 0..*rank {
                        let by = scale * b[original * rank + r];
                        let added = a[r * n..][..n].iter().map(|a| by * a);
                        w[row * n..][..n]
                            .iter_mut()
                            .zip(added)
                            .for_each(|(w, x)| *w += x);
                    }
                }
            }
        }

        weights
    }

    /// The logits are those of the folded model, within decode's bounds, and far from those of the base.
    fn check(&self, model: &Model, rows: &[Vec<f32>], ids: &[u32], bound: f64) {
        let weights = self.fold(model);
        let oracle = |keep| oracle::logits_of(model, &weights, ids, keep, |_, _| ());
        let found: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| row.iter().map(|x| f64::from(*x)).collect())
            .collect();
        let exact = oracle(Keep::Exact).concat();
        let whole = distance(&found.concat(), &exact);
        assert!(whole <= 1e-3, "the relative error is {whole:e}");
        for (position, wanted) in oracle(Keep::Half).iter().enumerate() {
            let row = distance(&found[position], wanted);
            assert!(
                row <= bound,
                "after position {position} the relative error is {row:e}"
            );
        }

        let base = oracle::logits(model, ids, Keep::Exact).concat();
        let effect = distance(&base, &exact);
        assert!(
            effect > 0.02,
            "the adapter changes the logits by {effect:e} only"
        );
    }
}

pub(crate) const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[Q6_K, Q4_K, Q4_K, Q6_K, Q8_0, Q4_K, Q4_K],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 304,
};

pub(crate) fn open(name: &str, case: Synth) -> Model {
    Model::open(&synth(case).save(&format!("adapter-{name}.gguf"))).unwrap()
}

fn decoder(model: &Model, options: Options) -> Decoder {
    Decoder::new(&emulator(), model, options, |_| ()).unwrap()
}

/// The same model with an adapter.
fn adapted(path: &Path, made: &Made) -> Model {
    Model::open(path)
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap()
}

#[test]
fn logits_are_those_of_the_base_and_the_adapter() {
    let few = Plan {
        ranks: [3, 0, 16, 0, 0, 5, 8],
        first_layer: 1,
        dtype: Dtype::F16,
    };
    let wide = Plan {
        ranks: [40, 0, 0, 1, 7, 0, 256],
        first_layer: 0,
        dtype: Dtype::BF16,
    };
    let normed = Synth {
        arch: "gemma3",
        ..LLAMA
    };
    let cases = [
        ("llama-few", LLAMA, few),
        (
            "qwen2",
            Synth {
                arch: "qwen2",
                formats: &[BF16],
                heads: 6,
                kv_heads: 3,
                ..LLAMA
            },
            wide,
        ),
        (
            "qwen3",
            Synth {
                arch: "qwen3",
                tied: false,
                ..LLAMA
            },
            ALL,
        ),
        (
            "gemma3",
            normed,
            Plan {
                dtype: Dtype::BF16,
                ..ALL
            },
        ),
    ];
    let ids = [3, 300, 0, 17, 255];
    for (name, case, plan) in cases {
        let base = open(name, case);
        let made = make(&base, name, &plan);
        let model = adapted(base.files.path(), &made);
        let options = Options {
            tuning: "2x4_first".parse().unwrap(),
            ..Options::new(16, Launch::Graph)
        };
        let mut pipeline = decoder(&model, options);
        let together = logits(&mut pipeline, &ids);
        made.check(&model, &together, &ids, 1e-3);
        let alone = &mut decoder(
            &model,
            Options {
                prefill_batch: 1,
                ..options
            },
        );
        assert_eq!(
            bits(&logits(alone, &ids)),
            bits(&together),
            "{name}: batches and tokens"
        );
        let simple = &mut decoder(
            &model,
            Options {
                prefer: Prefer::Simple,
                ..options
            },
        );
        made.check(&model, &logits(simple, &ids), &ids, 5e-4);
    }
}

#[test]
fn every_launch_gives_the_same_bits_with_an_adapter() {
    let base = open("launches", LLAMA);
    let made = make(
        &base,
        "launches",
        &Plan {
            ranks: [4, 0, 4, 8, 0, 0, 4],
            ..ALL
        },
    );
    let model = adapted(base.files.path(), &made);
    let ids = [3, 300, 0, 17, 17, 255, 40, 8, 1, 2];
    let run = |launch| {
        let decoder = &mut decoder(&model, Options::new(24, launch));
        (bits(&logits(decoder, &ids)), generate(decoder, &ids, 2))
    };
    let wanted = run(Launch::Graph);
    for launch in [Launch::Plain, Launch::Capture, Launch::Eager] {
        assert!(run(launch) == wanted, "{launch:?}");
    }
}

/// Nine kernels a layer instead of five, of which those in front of products are four.
#[test]
fn the_real_model_decodes_with_an_adapter() {
    let base = Model::open(&asset()).unwrap();
    let made = make(&base, "rustdoc", &ALL);
    let model = adapted(&asset(), &made);
    let options = Options {
        prefill_batch: 1,
        ..Options::new(16, Launch::Graph)
    };
    let ids = [1, 500, 90, 7];
    let decoder = &mut decoder(&model, options);
    made.check(&model, &logits(decoder, &ids), &ids, 1e-3);
    let layers = base.outline.weights.blocks.len();
    assert_eq!(decoder.launches(StepKind::Decode), 9 * layers + 2);
    assert_eq!(decoder.at_once(2000), 1);
}

#[test]
fn prompts_go_in_by_eight_and_not_by_chunks() {
    let base = open("prompts", LLAMA);
    let made = make(
        &base,
        "prompts",
        &Plan {
            ranks: [0, 0, 0, 0, 0, 0, 2],
            ..ALL
        },
    );
    let options = Options::new(64, Launch::Graph);
    assert_eq!(decoder(&base, options).at_once(60), 60);
    assert_eq!(
        decoder(&adapted(base.files.path(), &made), options).at_once(60),
        8
    );
}

#[test]
fn a_batch_refuses_an_adapter_of_all_sequences() {
    let base = open("batch", LLAMA);
    let made = make(&base, "batch", &ALL);
    let options = warpwright_engine::BatchOptions::new(4, 64);
    let model = adapted(base.files.path(), &made);
    let error = warpwright_engine::Batch::new(&emulator(), &model, options, |_| ())
        .err()
        .unwrap();
    assert!(matches!(error, Error::NoBatch { .. }), "{error}");
    let said = "sequences of this model cannot be stepped together: an adapter of the whole batch is not supported: open the model without it, and pass it to Batch::load_adapter";
    assert_eq!(error.to_string(), said);
}
