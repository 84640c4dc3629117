//! Tokens of the small model on the emulator: `cargo bench -p warpwright-engine`.
//!
//! The time is of [`TOKENS`] tokens after a prompt of one; the throughput is tokens per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use warpwright_driver::{Context, Driver};
use warpwright_engine::{Decoder, Launch, Options};
use warpwright_model::Model;

const TOKENS: u32 = 8;

fn decode(c: &mut Criterion) {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../assets/rustdoc-7m-Q4_K_M.gguf"
    );
    let model = Model::open(path.as_ref()).expect("the small model");
    let driver = Driver::from_library(warpwright_cuda_emu::library()).expect("the emulator");
    let context = Context::new(&driver.device(0).expect("its device")).expect("a context");
    let mut group = c.benchmark_group("rustdoc-7m-Q4_K_M");
    group
        .sample_size(10)
        .throughput(Throughput::Elements(TOKENS.into()));
    for launch in [Launch::Graph, Launch::Eager] {
        let options = Options::new(64, launch);
        let mut decoder = Decoder::new(&context, &model, options, |_| ()).expect("a decoder");
        group.bench_function(format!("{launch:?}"), |b| {
            b.iter(|| {
                for token in decoder.generate(&[389], TOKENS).expect("a prompt") {
                    token.expect("a token");
                }
            })
        });
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
