//! What a refusal leaves of a device's memory. A process of its own: the emulated device is one for all tests of a
//! process, and others would take memory meanwhile.

use warpwright_driver::{Context, Driver};
use warpwright_engine::{Decoder, Launch, Options};
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Outline, info};

#[test]
fn refuses_a_shape_without_memory_before_it_takes_any() {
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
