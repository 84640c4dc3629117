//! Devices of every compute capability on the emulator: which kernels they get, and that these compute the same, token by
//! token and in chunks.

use safetensors::tensor::{Dtype, TensorView};
use warpwright_cuda_emu::{EmulatorConfig, configure};
use warpwright_driver::{Context, Driver};
use warpwright_engine::{Decoder, KernelPath, Launch, Options, Tuning, Unsupported};
use warpwright_model::config::{Hyperparameters, Local};
use warpwright_model::rope::Rope;
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Outline, Shape};

/// A device of this compute capability, and with the shared memory of such.
fn device(compute_capability: (u32, u32)) -> Context {
    configure(EmulatorConfig {
        compute_capability,
        ..EmulatorConfig::default()
    });
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.devices().unwrap()[0]).unwrap()
}

/// A model of one of the shapes' kinds that decodes fast here.
fn small(architecture: &str, quantization: &str) -> Outline {
    let known = SHAPES
        .iter()
        .find(|shape| shape.name.starts_with(architecture))
        .unwrap();

    // A window of fewer positions than are decoded, and a layer without.
    let local = known.hyperparameters.local.map(|local| Local {
        rope: Rope::plain(64, local.rope.base),
        ..local
    });
    let hyperparameters = Hyperparameters {
        layers: local.map_or(2, |local| local.period),
        window: known.hyperparameters.window.map(|_| 50),
        local,
        hidden: 256,
        feed_forward: 512,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        rope: Rope::plain(64, known.hyperparameters.rope.base),
        context: 200,
        vocab: 304,
        ..known.hyperparameters.clone()
    };
    outline(
        &Shape {
            name: "small",
            hyperparameters,
            tied: known.tied,
        },
        quantization,
    )
}

fn outline(shape: &Shape, quantization: &str) -> Outline {
    let quantization = QUANTIZATIONS
        .into_iter()
        .find(|q| q.name == quantization)
        .unwrap();
    Outline::of(shape, quantization).unwrap()
}

fn sequential(capability: (u32, u32)) -> KernelPath {
    KernelPath::Sequential {
        reason: Unsupported::Capability {
            found: capability,
            needed: 9,
        },
    }
}

/// What a decoder says: the logits after each of a few tokens, and the tokens it goes on with after many.
fn decode(context: &Context, outline: &Outline) -> (KernelPath, Vec<Vec<u32>>, Vec<u32>) {
    let mut decoder = Decoder::random(context, outline, Options::new(200, Launch::Graph)).unwrap();
    let rows = decoder
        .logits(&[3, 300, 0, 17])
        .unwrap()
        .map(|row| row.unwrap());
    let rows = rows
        .map(|row| row.iter().map(|x| x.to_bits()).collect())
        .collect();
    (
        decoder.path().clone(),
        rows,
        decoder.round(180, 2).unwrap().tokens,
    )
}

/// The logits after each of 20 tokens, which go through the model as one chunk, or few at a time.
fn prompt(context: &Context, outline: &Outline, chunk: u32) -> Vec<f64> {
    let options = Options {
        chunk,
        ..Options::new(64, Launch::Graph)
    };
    let mut decoder = Decoder::random(context, outline, options).unwrap();
    assert_eq!(
        decoder.at_once(20),
        if chunk > 0 {
            20
        } else {
            decoder.prefill_batch()
        }
    );
    let ids: Vec<u32> = (0..20).map(|i| i * 7 % 304).collect();
    let rows = decoder.logits(&ids).unwrap().map(|row| row.unwrap());
    rows.flatten().map(f64::from).collect()
}

/// The same model with an adapter of the queries of layer 0.
fn adapted(base: &Outline) -> Outline {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("adapter-devices");
    std::fs::create_dir_all(&folder).unwrap();
    let settings = r#"{"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}"#;
    std::fs::write(folder.join("adapter_config.json"), settings).unwrap();
    let q = &base.weights.blocks[0].q;
    let factors = [
        ("A", [2, q.row_len() as usize]),
        ("B", [q.rows() as usize, 2]),
    ];
    let numbers = |len: usize| (0..len).flat_map(|i| ((i % 7) as f32 / 32.0 - 0.1).to_le_bytes());
    let factors = factors.map(|(name, shape)| {
        let name = format!("base_model.model.model.layers.0.self_attn.q_proj.lora_{name}.weight");
        (
            name,
            shape,
            numbers(shape[0] * shape[1]).collect::<Vec<u8>>(),
        )
    });
    let views = factors.iter().map(|(name, shape, bytes)| {
        (
            name,
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap(),
        )
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.join("adapter_model.safetensors"), bytes).unwrap();
    base.clone().with_adapter(&folder).unwrap()
}

/// In the norm of all elements, relative to `wanted`.
fn distance(found: &[f64], wanted: &[f64]) -> f64 {
    let squares = found
        .iter()
        .zip(wanted)
        .map(|(f, w)| (f - w).powi(2))
        .sum::<f64>();
    (squares / wanted.iter().map(|w| w * w).sum::<f64>()).sqrt()
}

/// One test, as the emulated device is one for the process.
#[test]
fn every_device_decodes() {
    let base = [
        small("llama", "q4_k_m"),
        small("qwen2.5", "bf16"),
        small("gemma3", "q8_0"),
    ];
    let models = [&base[..], &[adapted(&base[0])]].concat();
    let context = device((9, 0));
    let wanted: Vec<_> = models.iter().map(|model| decode(&context, model)).collect();
    assert_ne!(wanted[0].1, wanted[3].1, "the adapter does nothing");
    let prompts: Vec<_> = base
        .iter()
        .map(|model| [0, 2048].map(|chunk| prompt(&context, model, chunk)))
        .collect();
    for (capability, path) in [
        ((8, 0), sequential((8, 0))),
        ((8, 6), sequential((8, 6))),
        ((12, 0), KernelPath::Overlapped),
    ] {
        let context = device(capability);
        for (model, (overlapped, logits, tokens)) in models.iter().zip(&wanted) {
            assert_eq!(*overlapped, KernelPath::Overlapped);
            let wanted = (path.clone(), logits.clone(), tokens.clone());
            assert_eq!(decode(&context, model), wanted, "{capability:?}");
        }

        // Products of 9.0 may split their columns; attention goes through positions in shorter steps.
        for (model, [slow, chunk]) in base.iter().zip(&prompts) {
            let found = prompt(&context, model, 2048);
            assert!(
                distance(&found, chunk) < 5e-4,
                "{capability:?}: {:e}",
                distance(&found, chunk)
            );
            assert!(
                distance(&found, slow) < 5e-3,
                "{capability:?}: {:e}",
                distance(&found, slow)
            );
        }

        large_models_fit(&context, &path);
    }

    let old = device((7, 5));
    let path = KernelPath::for_model(&models[0], old.device(), Tuning::default());
    assert_eq!(
        path.to_string(),
        "simple kernels: compute capability 7.5 is below 8.0"
    );
}

/// What a device with little shared memory has no place for, it does in several rounds.
fn large_models_fit(context: &Context, path: &KernelPath) {
    for name in ["llama3.1-8b", "qwen2.5-7b", "qwen3-8b"] {
        let shape = SHAPES.iter().find(|shape| shape.name == name).unwrap();
        for quantization in ["q4_k_m", "q8_0", "bf16"] {
            let found = KernelPath::for_model(
                &outline(shape, quantization),
                context.device(),
                Tuning::default(),
            );
            assert_eq!(found, *path, "{name} {quantization}");
        }
    }
}
