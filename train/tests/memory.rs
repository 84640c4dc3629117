//! The memory of a trainer, in a process where nobody else allocates.

use std::path::Path;

use warpwright_driver::{Context, Driver};
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_model::Model;
use warpwright_train::base::{self, Absmax, Base, BaseFormat, Quantization};
use warpwright_train::reference::Adapters;
use warpwright_train::step::{
    Launch, Precision, Recomputation, Settings, Tiles, Trainer, TrainingNeeds, Unpacking,
};
use warpwright_train::{Lora, Projection, Training};

/// What is counted before anything is allocated is what is allocated, but for small buffers and the ends of pages.
#[test]
fn what_is_counted_is_what_is_taken() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/rustdoc-7m-Q4_K_M.gguf");
    let model = Model::open(&file).unwrap();
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    let context = Context::new(&driver.device(0).unwrap()).unwrap();
    let nested = Quantization {
        format: BaseFormat::Nf4,
        absmax: Absmax::Nested,
    };
    for (how, precision, recomputation) in [
        (BaseFormat::Keep.into(), Precision::F32, Recomputation::None),
        (
            BaseFormat::Keep.into(),
            Precision::Bf16,
            Recomputation::Layers,
        ),
        (BaseFormat::Nf4.into(), Precision::F32, Recomputation::Cheap),
        (nested, Precision::Bf16, Recomputation::Cheap),
    ] {
        let base = Base::from_model(&model, how).unwrap();
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
        let settings = Settings {
            lora: Lora {
                rank: 6,
                alpha: 8.0,
                dropout: 0.1,
                seed: 0,
                targets: Projection::ALL.into(),
            },
            config: base.config.clone(),
            training: Training {
                schedule,
                adamw,
                max_norm: 1.0,
            },
            pairing: base.pairing,
            tokens: 500,
            head_chunk: 128,
            recomputation,
            launch: Launch::Eager,
            precision,
            tiles: Tiles::Fitting,
            unpacking: Unpacking::Fitting,
            attention: TensorOp::Wgmma,
        };
        let adapters = Adapters::random(&settings.config, &settings.lora, 0);
        let needs =
            TrainingNeeds::for_settings(&settings, base::bytes(&model.outline, how, precision))
                .unwrap();
        let (before, _) = context.memory().unwrap();
        let trainer = Trainer::new(&context, settings, &base.weights, &adapters).unwrap();
        let (after, _) = context.memory().unwrap();
        drop(trainer);
        let (taken, counted) = ((before - after) as f64, needs.total() as f64);
        assert!(
            (0.999..1.01).contains(&(taken / counted)),
            "{taken} bytes were taken, {needs:?} were counted"
        );
    }
}
