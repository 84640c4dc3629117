//! The device memory that is left after a refusal, and after adapters are unloaded. The tests
//! run in a separate process, because all tests of a process share the memory of the emulated device.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use warpwright_driver::{Context, Driver};
use warpwright_engine::{Batch, BatchOptions, Decoder, Error, Launch, Options};
use warpwright_model::adapter::{Adapter, LoraFactors};
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Model, Outline, info};

/// Held by the test that counts memory.
static MEMORY: Mutex<()> = Mutex::new(());

/// Returns an adapter of all projections with equal values.
fn adapter(outline: &Outline, value: f32) -> Arc<Adapter> {
    let factors = |weight: &warpwright_model::Weight| {
        Some(LoraFactors {
            rank: 4,
            scale: 2.0,
            a: vec![value; 4 * weight.row_len() as usize],
            b: vec![value; 4 * weight.rows() as usize],
        })
    };
    let blocks = outline.weights.blocks.iter();
    Arc::new(Adapter {
        path: PathBuf::new(),
        base: None,
        trained_on: None,
        alpha: 8.0,
        rslora: false,
        missing: vec![],
        layers: blocks
            .map(|block| block.projections().map(|weight| factors(weight.unwrap())))
            .collect(),
    })
}

#[test]
fn unloaded_adapters_take_no_memory() {
    let _lock = MEMORY.lock().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/rustdoc-7m-Q4_K_M.gguf");
    let model = Model::open(&path).unwrap();
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
    let free = || context.memory().unwrap().0;
    let mut batch = Batch::new(&context, &model, BatchOptions::new(2, 64), |_| ()).unwrap();
    let before = free();
    let one = batch.load_adapter(adapter(&model.outline, 0.01)).unwrap();
    let with_one = free();
    assert!(with_one < before);
    assert_eq!(
        batch.load_adapter(adapter(&model.outline, 0.01)).unwrap(),
        one
    );
    assert_eq!(free(), with_one);
    let two = batch.load_adapter(adapter(&model.outline, 0.02)).unwrap();
    assert!(free() < with_one);
    batch.unload_adapter(two).unwrap();
    assert_eq!(free(), with_one);

    // The first adapter was loaded twice.
    batch.unload_adapter(one).unwrap();
    assert_eq!(free(), with_one);
    let id = batch.join_with_adapter(one).unwrap();
    batch.step(&[(id, &[1, 2, 3])]).unwrap();
    assert!(matches!(
        batch.unload_adapter(one),
        Err(Error::AdapterInUse)
    ));
    batch.leave(id).unwrap();
    batch.unload_adapter(one).unwrap();
    assert!(free() >= before, "{} of {before}", free());
}

#[test]
fn refuses_a_shape_without_memory_before_it_takes_any() {
    let _lock = MEMORY.lock().unwrap();
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
    let shape = SHAPES.iter().find(|s| s.name == "llama3.1-8b").unwrap();
    let f32 = QUANTIZATIONS.into_iter().find(|q| q.name == "f32").unwrap();
    let outline = Outline::of(shape, f32).unwrap();
    let before = context.memory().unwrap();
    let options = Options::new(4096, Launch::Graph);
    let error = Decoder::random(&context, &outline, options).err().unwrap();
    let message = error.to_string();
    assert!(
        message.starts_with("the model needs 30.4 GiB of device memory (weights 29.9 GiB, "),
        "{message}"
    );
    assert_eq!(context.memory().unwrap(), before);
    assert_eq!(info::kv_bytes(&outline), 128 << 10);
}
