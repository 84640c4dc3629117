//! Launching a kernel: geometry, schedule and result.

use crate::{Accesses, Fault, Kernel, Memory};

/// A kernel and what it is launched with.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Parameter bytes, laid out as [`Kernel::params`] says.
    pub params: &'a [u8],
}

/// The order in which blocks, and the warps of a block between barriers, run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Lowest first.
    InOrder,
    /// Highest first.
    Reversed,
    /// Shuffled by the seed.
    Shuffled,
}

/// How a launch runs. Race-free kernels give the same bytes under every schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of every choice.
    pub seed: u64,
    /// Order of blocks and warps.
    pub order: Order,
    /// Worker threads; 0 takes one for each core.
    pub threads: usize,
    /// Warp instructions that one block may execute.
    pub fuel: u64,
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule { seed: 0, order: Order::InOrder, threads: 0, fuel: 1 << 28 }
    }
}

/// Whether a launch records what it reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// No record; blocks run in parallel.
    Off,
    /// Every byte read and written is recorded, and races on global memory are found. One thread.
    On,
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Instructions executed, counted once a lane.
    pub lane_instructions: u64,
    /// Instructions executed, counted once a warp.
    pub warp_instructions: u64,
    /// What was read and written, when traced.
    pub accesses: Option<Accesses>,
}

/// Runs a launch to its end.
///
/// # Errors
/// The first fault found; memory then holds what was written so far.
pub fn run(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
) -> Result<Stats, Box<Fault>> {
    crate::exec::run(memory, launch, schedule, trace)
}
