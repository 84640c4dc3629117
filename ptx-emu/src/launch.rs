//! Launching a kernel: geometry, schedule and result.

use crate::watch::{Watch, Watched};
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
        Schedule {
            seed: 0,
            order: Order::InOrder,
            threads: 0,
            fuel: 1 << 28,
        }
    }
}

/// Whether a launch records what it reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// No record; blocks run in parallel.
    Off,
    /// Every byte read and written is recorded, and races on global memory are found. One thread; where the order is
    /// shuffled, blocks are interleaved.
    On,
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Instructions executed, counted once a lane.
    pub lane_instructions: u64,
    /// Instructions executed, counted once a warp.
    pub warp_instructions: u64,
    /// The conditions of conditional nodes that the kernel set, by `cudaGraphSetConditional`, and to what, in order.
    pub conditions: Vec<(u64, u32)>,
    /// What was read and written, when traced.
    pub accesses: Option<Accesses>,
}

impl Stats {
    /// Adds the counts of another part of the same launch.
    pub(crate) fn add(&mut self, other: &Self) {
        self.lane_instructions += other.lane_instructions;
        self.warp_instructions += other.warp_instructions;
    }
}

/// Where a launch runs, among devices that share a [`Memory`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchSite<'a> {
    /// The device that runs it.
    pub device: u32,
    /// Other devices whose memory it may touch.
    pub peers: &'a [u32],
    /// Whether its blocks may wait for each other, however many there are.
    pub cooperative: bool,
    /// Blocks of a cluster, where the launch says so; else what the kernel says.
    pub cluster: Option<[u32; 3]>,
    /// Who takes what the kernel prints; else it goes to standard output.
    pub print: Option<Print<'a>>,
    /// Anything that may change the memory that the launch reads while it runs. Without it, only the launch itself does.
    pub outside: Option<&'a dyn Outside>,
}

/// The world around a launch that may change memory while the launch runs: the host, other streams, other devices.
///
/// The emulator asks it when all threads of a launch wait. A wait that the outside may end is not a
/// [`Deadlock`](crate::Class::Deadlock), but it may reach [`Watch::wait_limit`].
pub trait Outside: Sync + std::fmt::Debug {
    /// Returns a number that grows whenever something outside has begun or ended that may write memory.
    fn changes(&self) -> u64;

    /// Returns true if something outside may still write memory of the devices.
    ///
    /// Memory of the [host](crate::Memory::alloc_host) can always be written by the host and by other processes, so the
    /// answer does not matter for a kernel that polls such memory.
    fn may_change(&self) -> bool;
}

/// Takes what a kernel prints: once, when the launch has ended, block by block, also after a fault.
#[derive(Clone, Copy)]
pub struct Print<'a>(pub &'a (dyn Fn(&str) + Sync));

impl std::fmt::Debug for Print<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Print(..)")
    }
}

impl LaunchSite<'_> {
    /// Whether a launch here may touch the memory of a device.
    pub(crate) fn reaches(&self, device: u32) -> bool {
        device == self.device || self.peers.contains(&device)
    }
}

/// Runs a launch to its end, on device 0.
///
/// # Errors
/// The first fault found; memory then holds what was written so far.
pub fn run(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
) -> Result<Stats, Box<Fault>> {
    run_at(memory, launch, schedule, trace, &LaunchSite::default())
}

/// Runs a launch to its end on some device.
///
/// # Errors
/// As [`run`].
pub fn run_at(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
    place: &LaunchSite<'_>,
) -> Result<Stats, Box<Fault>> {
    run_watched(memory, launch, schedule, trace, place, &Watch::default()).into_result()
}

/// Runs a launch as [`run_at`] does, with more said of it: several faults, a limit of time.
pub fn run_watched(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
    place: &LaunchSite<'_>,
    watch: &Watch,
) -> Watched {
    crate::exec::run(memory, launch, schedule, trace, place, watch)
}
