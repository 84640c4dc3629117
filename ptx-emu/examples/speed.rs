//! Lane-instructions a second of inner loops, with all checks on, untraced and traced: one line a kernel.
//!
//! `cargo run --release -p ptx-emu --example speed [THREADS [ROUNDS]]`; each figure is the best of the rounds.

use std::error::Error;
use std::time::Instant;

use ptx_emu::{Launch, Memory, Module, Schedule, Trace, run};

/// A kernel, how often it goes round, its grid and block, and how many buffers it takes.
type Case = (&'static str, u32, [u32; 3], [u32; 3], usize);

const CASES: &[Case] = &[
    ("integers", 1000, [8, 1, 1], [256, 1, 1], 1),
    ("fmas", 1000, [8, 1, 1], [256, 1, 1], 1),
    ("copy", 256, [8, 1, 1], [256, 1, 1], 2),
    ("copy_vectors", 128, [8, 1, 1], [256, 1, 1], 2),
    ("sgemm", 192, [12, 12, 1], [16, 16, 1], 3),
];

/// Bytes of each buffer.
const BYTES: u64 = 1 << 24;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let threads = arguments.next().transpose()?.unwrap_or(1);
    let rounds = arguments.next().transpose()?.unwrap_or(5);
    let module = Module::parse(include_str!("../benches/speed.ptx"))?;
    println!("{:14} {:>9} {:>9}  G lane-instructions a second, {threads} threads", "", "untraced", "traced");
    for case in CASES {
        let [plain, traced] = [Trace::Off, Trace::On].map(|trace| best(&module, case, threads, rounds, trace));
        println!("{:14} {:9.3} {:9.3}", case.0, plain?, traced?);
    }
    Ok(())
}

/// The best of some rounds.
fn best(
    module: &Module,
    case: &Case,
    threads: usize,
    rounds: usize,
    trace: Trace,
) -> Result<f64, Box<dyn Error>> {
    let (name, count, grid, block, buffers) = *case;
    let memory = Memory::new(1 << 30);
    let mut params = Vec::new();
    for _ in 0..buffers {
        let address = memory.alloc(BYTES)?;
        memory.fill(address, &1.5f32.to_le_bytes(), BYTES / 4)?;
        params.extend(address.to_le_bytes());
    }
    params.extend(count.to_le_bytes());
    let launch =
        Launch { kernel: module.kernel(name)?, grid, block, dynamic_shared: 0, params: &params };
    let schedule = Schedule { threads, ..Schedule::default() };
    let mut best = 0f64;
    for _ in 0..rounds {
        let start = Instant::now();
        let stats = run(&memory, &launch, &schedule, trace)?;
        best = best.max(stats.lane_instructions as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    Ok(best)
}
