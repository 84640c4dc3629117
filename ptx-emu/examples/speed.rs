//! Measures the lane instructions per second of inner loops, with all checks, untraced and traced.
//!
//! Usage: `cargo run --release -p ptx-emu --example speed [THREADS [ROUNDS [KERNEL]]]`. Each figure
//! is the best of the rounds. With one thread on Linux, the time is the CPU time of the thread, so
//! that other work on the machine matters less.

use std::error::Error;
use std::time::Instant;

use ptx_emu::{Launch, Memory, Module, Schedule, Trace, run};

/// A kernel, its number of iterations, its grid and block, and its number of buffers.
type Case = (&'static str, u32, [u32; 3], [u32; 3], usize);

const CASES: &[Case] = &[
    ("integers", 1000, [8, 1, 1], [256, 1, 1], 1),
    ("fmas", 1000, [8, 1, 1], [256, 1, 1], 1),
    ("copy", 256, [8, 1, 1], [256, 1, 1], 2),
    ("copy_vectors", 128, [8, 1, 1], [256, 1, 1], 2),
    ("sgemm", 192, [12, 12, 1], [16, 16, 1], 3),
];

/// The size of each buffer in bytes.
const BYTES: u64 = 1 << 24;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, otherwise| {
        arguments
            .get(i)
            .map_or(Ok(otherwise), |a| a.parse::<usize>())
    };
    let (threads, rounds, only) = (number(0, 1)?, number(1, 20)?, arguments.get(2));
    let module = Module::parse(include_str!("../benches/speed.ptx"))?;
    println!(
        "{:14} {:>9} {:>9}  G lane-instructions a second, {threads} threads",
        "", "untraced", "traced"
    );
    for case in CASES
        .iter()
        .filter(|case| only.is_none_or(|only| only == case.0))
    {
        let [plain, traced] =
            [Trace::Off, Trace::On].map(|trace| best(&module, case, threads, rounds, trace));
        println!("{:14} {:9.3} {:9.3}", case.0, plain?, traced?);
    }

    Ok(())
}

/// Returns the best of some rounds.
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
    let launch = Launch {
        kernel: module.kernel(name)?,
        grid,
        block,
        dynamic_shared: 0,
        params: &params,
    };
    let schedule = Schedule {
        threads,
        ..Schedule::default()
    };
    let mut best = 0f64;
    for _ in 0..rounds {
        let (start, before) = (Instant::now(), spent());
        let stats = run(&memory, &launch, &schedule, trace)?;
        let seconds = match (before, spent()) {
            (Some(before), Some(now)) if threads == 1 => now - before,
            _ => start.elapsed().as_secs_f64(),
        };
        best = best.max(stats.lane_instructions as f64 / seconds / 1e9);
    }

    Ok(best)
}

/// Returns the CPU time of this thread in seconds, if the system reports it.
fn spent() -> Option<f64> {
    // The system updates the count when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}
