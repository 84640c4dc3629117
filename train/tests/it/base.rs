//! The frozen model of a file: what training computes with it is what decoding computes.

use std::path::Path;

use warpwright_engine::{Decoder, Model, Options, Tokenizer};
use warpwright_kernels::train::cross_entropy;
use warpwright_kernels::train::schedule::{Decay, Schedule};
use warpwright_train::base::{self, Base, BaseFormat};
use warpwright_train::data::{Batches, Data, Length, Shape};
use warpwright_train::reference::Adapters;
use warpwright_train::step::{Launch, Settings, Trainer};
use warpwright_train::{Lora, Projection, Training};

use crate::device::context;

fn model() -> Model {
    Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/rustdoc-7m-Q4_K_M.gguf")).unwrap()
}

/// The loss of a text is that of the logits that the decoder gives.
#[test]
fn the_loss_is_that_of_the_decoders_logits() {
    let (model, context) = (model(), context());
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data.jsonl");
    std::fs::write(&file, "{\"text\": \"An iterator over the elements of a slice.\"}\n").unwrap();
    let data = Data::read(&file, &tokenizer, 16, false).unwrap();
    let shape = Shape { len: 16, rows: 1, accumulate: 1, packing: true, seed: 0, length: Length::Steps(1) };
    let batches = Batches::new(data, shape).unwrap();
    let [micro] = &batches.step(0)[..] else { panic!("one micro-batch") };

    let ids = &batches.data().samples[0].ids;
    println!("{ids:?}");
    let options = Options::new(16, warpwright_engine::Launch::Eager);
    let mut decoder = Decoder::new(&context, &model, options, |_| ()).unwrap();
    let rows: Vec<f32> = decoder.logits(ids).unwrap().flat_map(|row| row.unwrap()).collect();
    let logits: Vec<f64> = rows.into_iter().map(f64::from).collect();
    let labels = &micro.labels[..ids.len()];
    let lse = cross_entropy::lse(&logits, model.outline.config.vocab as usize);
    let wanted = cross_entropy::loss(&logits, &lse, labels) / micro.n as f64;

    let base = Base::of(&model, BaseFormat::Auto).unwrap();
    let lora = Lora { rank: 4, alpha: 8.0, dropout: 0.0, seed: 0, targets: vec![Projection::Q] };
    let training = Training {
        schedule: Schedule { decay: Decay::Constant, lr: 1e-3, lr_min: 0.0, warmup: 0, total: 1 },
        adamw: warpwright_kernels::train::adamw::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 },
        max_norm: 1.0,
    };
    let adapters = Adapters::random(&base.config, &lora, 0);
    let settings = Settings {
        config: base::config(&model).unwrap(),
        lora,
        training,
        pairing: base.pairing,
        tokens: 16,
        head_chunk: 16,
        launch: Launch::Eager,
    };
    let mut trainer = Trainer::new(&context, settings, &base.weights, &adapters).unwrap();
    let found = trainer.step(&batches.step(0)).unwrap().loss;
    assert!((found - wanted).abs() < 1e-2, "{found}, the decoder's logits give {wanted}");
}
