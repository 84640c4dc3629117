//! Benchmark that builds and prints every kernel for one target. Run it with `cargo bench -p
//! warpwright-kernels`.

use criterion::{Criterion, criterion_group, criterion_main};
use ptx_gen::{Target, print};

fn generate(c: &mut Criterion) {
    let target = Target::named("sm_90a").expect("a target");
    c.bench_function("all kernels", |b| {
        b.iter(|| {
            let all = warpwright_kernels::ALL.iter().map(|kernel| {
                let program = kernel.build().unwrap_or_else(|e| panic!("{e}"));
                print(&program, target)
                    .unwrap_or_else(|e| panic!("{e}"))
                    .len()
            });
            all.sum::<usize>()
        })
    });
}

criterion_group!(benches, generate);
criterion_main!(benches);
