//! Measures the lane instructions per second of two GEMVs on one thread, with all checks. It also
//! measures the bytes per second of weights that pass through a ring of bulk copies to integer
//! `mma`. Criterion calls the instructions elements.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ptx_emu::{Launch, Memory, Module, Schedule, Stats, Trace, run};

const ROWS: u32 = 256;
const COLUMNS: u32 = 2048;

fn gemv(memory: &Memory, module: &Module, name: &str, params: &[u8]) -> Stats {
    let kernel = module.kernel(name).expect("the file holds the kernel");
    let launch = Launch {
        kernel,
        grid: [ROWS / 8, 1, 1],
        block: [256, 1, 1],
        dynamic_shared: 0,
        params,
    };
    let schedule = Schedule {
        threads: 1,
        ..Schedule::default()
    };
    run(memory, &launch, &schedule, Trace::Off).unwrap_or_else(|fault| panic!("{fault}"))
}

fn lanes(c: &mut Criterion) {
    let module = Module::parse(include_str!("gemv.ptx")).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 30);
    let ones = |bytes: u32| {
        let address = memory.alloc(bytes.into()).expect("there is room");
        memory
            .fill(address, &1f32.to_le_bytes(), u64::from(bytes) / 4)
            .expect("it was just allocated");
        address
    };
    let (w, x, y) = (ones(ROWS * COLUMNS * 4), ones(COLUMNS * 4), ones(ROWS * 4));
    let params = [
        &w.to_le_bytes()[..],
        &x.to_le_bytes(),
        &y.to_le_bytes(),
        &COLUMNS.to_le_bytes(),
    ]
    .concat();
    let mut group = c.benchmark_group("lanes");
    for name in ["gemv_f32", "gemv_s8"] {
        let stats = gemv(&memory, &module, name, &params);
        group.throughput(Throughput::Elements(stats.lane_instructions));
        group.bench_function(name, |b| {
            b.iter(|| gemv(&memory, &module, name, &params));
        });
    }

    group.finish();
}

/// The number of steps of a block of the ring. A step reads four tiles of 16 by 128 bytes.
const STEPS: u32 = 32;
const BLOCKS: u32 = 4;

fn ring(c: &mut Criterion) {
    let module = Module::parse(include_str!("ring.ptx")).unwrap_or_else(|e| panic!("{e}"));
    let kernel = module.kernel("ring_s8").expect("the file holds the kernel");
    let memory = Memory::new(1 << 30);
    let bytes = u64::from(BLOCKS * STEPS) * 8192;
    let w = memory.alloc(bytes).expect("there is room");
    memory.fill(w, &[1], bytes).expect("it was just allocated");
    let y = memory
        .alloc(u64::from(BLOCKS) * 2048)
        .expect("there is room");
    let params = [&w.to_le_bytes()[..], &y.to_le_bytes(), &STEPS.to_le_bytes()].concat();
    let launch = Launch {
        kernel,
        grid: [BLOCKS, 1, 1],
        block: [160, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    let schedule = Schedule {
        threads: 1,
        ..Schedule::default()
    };
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("ring_s8", |b| {
        b.iter(|| {
            run(&memory, &launch, &schedule, Trace::Off).unwrap_or_else(|fault| panic!("{fault}"))
        });
    });
    group.finish();
}

criterion_group!(benches, lanes, ring);
criterion_main!(benches);
