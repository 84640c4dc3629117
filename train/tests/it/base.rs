//! The frozen model of a file: training computes with it what decoding computes, and what the reference computes.

use std::path::Path;

use warpwright_engine::{Decoder, Options};
use warpwright_kernels::train::cross_entropy;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_model::Model;
use warpwright_train::base::{Base, BaseFormat};
use warpwright_train::data::{BatchShape, Batches, Dataset, Preprocess, TrainingLength};
use warpwright_train::peft::{self, AdapterShapes};
use warpwright_train::reference::{
    Adapters, MicroBatch, Model as ReferenceModel, References, Storage, Weights,
};
use warpwright_train::step::{
    Launch, Matrix, Precision, Recomputation, Settings, Tiles, Trainer, Unpacking,
};
use warpwright_train::{LayerWeights, Lora, Projection, Training};

use crate::compare::worst;
use crate::device::context;
use crate::setup::wide;

const LEN: usize = 16;

/// The small model, and one text.
struct Bench {
    model: Model,
    base: Base,
    ids: Vec<u32>,
    micro: MicroBatch,
    settings: Settings,
}

impl Bench {
    fn new() -> Bench {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/rustdoc-7m-Q4_K_M.gguf");
        let model = Model::open(&file).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.jsonl");
        std::fs::write(
            &file,
            "{\"text\": \"An iterator over the elements of a slice.\"}\n",
        )
        .unwrap();
        let tokenizer = &model.tokenizer().unwrap();
        let how = Preprocess {
            tokenizer,
            template: None,
            len: LEN,
            train_on_prompt: false,
        };
        let data = Dataset::read(&file, &how).unwrap();
        let ids = data.samples[0].ids.clone();
        let shape = BatchShape {
            len: LEN,
            rows: 1,
            accumulate: 1,
            packing: true,
            seed: 0,
            length: TrainingLength::Steps(1),
        };
        let micro = Batches::new(data, shape).unwrap().step(0).swap_remove(0);
        let base = Base::from_model(&model, BaseFormat::Auto).unwrap();
        let schedule = Schedule {
            decay: Decay::Constant,
            lr: 1e-3,
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
        let targets = vec![Projection::Q, Projection::K, Projection::Down];
        let settings = Settings {
            config: base.config.clone(),
            lora: Lora {
                rank: 4,
                alpha: 8.0,
                dropout: 0.0,
                seed: 0,
                targets,
            },
            training: Training {
                schedule,
                adamw,
                max_norm: 1.0,
            },
            pairing: base.pairing,
            tokens: LEN,
            head_chunk: LEN,
            recomputation: Recomputation::None,
            launch: Launch::Eager,
            precision: Precision::F32,
            tiles: Tiles::Fitting,
            unpacking: Unpacking::Fitting,
            attention: TensorOp::Wgmma,
        };
        Bench {
            model,
            base,
            ids,
            micro,
            settings,
        }
    }

    fn trainer(&self, adapters: &Adapters) -> Trainer {
        Trainer::new(
            &context(),
            self.settings.clone(),
            &self.base.weights,
            adapters,
        )
        .unwrap()
    }

    fn adapters(&self) -> Adapters {
        Adapters::random(&self.base.config, &self.settings.lora, 0)
    }
}

/// Weights of a file in `f64`.
fn unpacked(weights: &warpwright_train::Weights<Vec<f32>, Matrix>) -> Weights {
    let matrix = |matrix: &Matrix| match matrix {
        Matrix::F32(numbers) => wide(numbers),
        Matrix::Nf4(_) | Matrix::Nested(_) => panic!("a quantized file keeps its values"),
    };
    let optional = |v: &Option<Vec<f32>>| v.as_deref().map(wide);
    let layer = |layer: &LayerWeights<Vec<f32>, Matrix>| LayerWeights {
        attention_norm: wide(&layer.attention_norm),
        feed_forward_norm: wide(&layer.feed_forward_norm),
        q_norm: optional(&layer.q_norm),
        k_norm: optional(&layer.k_norm),
        projections: layer.projections.each_ref().map(matrix),
        biases: layer.biases.each_ref().map(optional),
    };
    Weights {
        embed: wide(&weights.embed),
        head: optional(&weights.head),
        norm: wide(&weights.norm),
        layers: weights.layers.iter().map(layer).collect(),
    }
}

/// The loss of a text is that of the logits that the decoder gives.
#[test]
fn the_loss_is_that_of_the_decoders_logits() {
    let bench = Bench::new();
    let options = Options::new(LEN as u32, warpwright_engine::Launch::Eager);
    let mut decoder = Decoder::new(&context(), &bench.model, options, |_| ()).unwrap();
    let rows = decoder.logits(&bench.ids).unwrap();
    let logits: Vec<f64> = rows.flat_map(|row| wide(&row.unwrap())).collect();
    let lse = cross_entropy::lse(&logits, bench.base.config.vocab);
    let labels = &bench.micro.labels[..bench.ids.len()];
    let wanted = cross_entropy::loss(&logits, &lse, labels) / bench.micro.n as f64;

    // B is zero at first, so the adapters change nothing.
    let found = bench
        .trainer(&bench.adapters())
        .step(std::slice::from_ref(&bench.micro))
        .unwrap()
        .loss;
    assert!(
        (found - wanted).abs() < 1e-3,
        "{found}, the decoder's logits give {wanted}"
    );
}

/// Gradients of a real model, whose rotary pairs are neighbours, with adapters that change what it says.
#[test]
fn gradients_of_a_file_are_those_of_the_reference() {
    let bench = Bench::new();
    let mut adapters = bench.adapters();
    let factors = adapters.layers.iter_mut().flatten().flatten();
    factors.for_each(|of| {
        of.b.iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = ((i % 13) as f64 - 6.0) / 256.0)
    });
    let (config, lora) = (bench.base.config.clone(), bench.settings.lora.clone());
    let weights = unpacked(&bench.base.weights);
    let mut reference =
        ReferenceModel::new(config, lora, weights, Storage::F64, &References).unwrap();
    reference.pairing = bench.base.pairing;
    let wanted = reference.gradients(&adapters, &bench.micro).unwrap();
    let mut trainer = bench.trainer(&adapters);
    trainer.accumulate(&bench.micro).unwrap();
    let (error, place) = worst(&trainer.gradients().unwrap(), &wanted.adapters);
    assert!(error < 1e-4, "{place} is {error:e} off");
}

/// An adapter of three steps, through its folder, decodes to the logits of the reference of training, whose arithmetic
/// and whose order of rows are another implementation's.
#[test]
fn a_trained_adapter_decodes_to_the_logits_of_the_reference() {
    let mut bench = Bench::new();
    bench.settings.training.schedule.lr = 0.02;
    let mut trainer = bench.trainer(&bench.adapters());
    for number in 0..3 {
        trainer
            .step(&[MicroBatch {
                number,
                ..bench.micro.clone()
            }])
            .unwrap();
    }

    let (adapters, folder) = (trainer.adapters().unwrap(), tempfile::tempdir().unwrap());
    let (config, lora) = (&bench.base.config, &bench.settings.lora);
    let shapes = AdapterShapes {
        config,
        lora,
        pairing: bench.base.pairing,
    };
    peft::write(folder.path(), &shapes, &adapters, "some/model").unwrap();
    peft::write_base_formats(folder.path(), &bench.base.formats).unwrap();

    let weights = unpacked(&bench.base.weights);
    let head = weights.head().clone();
    let mut reference = ReferenceModel::new(
        config.clone(),
        lora.clone(),
        weights,
        Storage::F64,
        &References,
    )
    .unwrap();
    reference.pairing = bench.base.pairing;
    let logits = |adapters: &Adapters| -> Vec<f64> {
        let x = reference.gradients(adapters, &bench.micro).unwrap().head.x;
        let rows = x.chunks(config.hidden).take(bench.ids.len());
        let dot = |x: &[f64], row: &[f64]| x.iter().zip(row).map(|(x, w)| x * w).sum::<f64>();
        rows.flat_map(|x| head.chunks(config.hidden).map(move |row| dot(x, row)))
            .collect()
    };
    let apart = |a: &[f64], b: &[f64]| {
        let square = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        square(&mut a.iter().zip(b).map(|(a, b)| a - b)) / square(&mut b.iter().copied())
    };
    let wanted = logits(&adapters);
    let effect = apart(&logits(&bench.adapters()), &wanted);
    assert!(
        effect > 0.02,
        "training changed the logits by {effect:e} only"
    );

    let options = Options::new(LEN as u32, warpwright_engine::Launch::Graph);
    let model = bench.model.with_adapter(folder.path()).unwrap();
    assert_eq!(
        model.outline.adapter.as_ref().unwrap().trained_on.as_ref(),
        Some(&bench.base.formats)
    );
    let mut decoder = Decoder::new(&context(), &model, options, |_| ()).unwrap();
    let rows = decoder.logits(&bench.ids).unwrap();
    let found: Vec<f64> = rows.flat_map(|row| wide(&row.unwrap())).collect();
    let error = apart(&found, &wanted);
    assert!(error < 1e-3, "the relative error is {error:e}");
    let error = Base::from_model(&model, BaseFormat::Auto)
        .unwrap_err()
        .to_string();
    let said = "fine-tuning does not support models with an adapter: merge the two first";
    assert!(error.ends_with(said), "{error}");
}
