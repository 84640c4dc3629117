//! Launches: the kernel and its geometry, the schedule, the site, and the statistics.

use crate::{Accesses, Kernel};

/// A kernel with its geometry and parameters, as for `cuLaunchKernel`.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel to run.
    pub kernel: &'a Kernel,
    /// The number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// The number of threads per block in x, y and z.
    pub block: [u32; 3],
    /// The size of the dynamic shared memory of a block, in bytes.
    pub dynamic_shared: u32,
    /// The values of the parameters, at the offsets in [`Kernel::params`] and in little-endian
    /// order.
    pub params: &'a [u8],
}

/// The order in which blocks run, and the warps of a block between barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending by index.
    InOrder,
    /// Descending by index.
    Reversed,
    /// Pseudo-random. [`Schedule::seed`] selects the permutation.
    Shuffled,
}

/// The choices that the manual leaves to the device: order, parallelism and delays.
///
/// A kernel without races leaves the same bytes under every schedule. To find kernels that depend
/// on it, run them with several orders and seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The seed of all pseudo-random choices, for example how late an asynchronous copy completes.
    pub seed: u64,
    /// The order of blocks and warps.
    pub order: Order,
    /// The number of host threads, or 0 for one per core.
    pub threads: usize,
    /// The maximum number of warp instructions that one block may execute. A block that exceeds it
    /// ends with [`Class::OutOfFuel`](crate::Class::OutOfFuel).
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

/// Selects whether a launch records its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Records nothing. Blocks run in parallel, and races on global memory are not found.
    Off,
    /// Records every byte that is read or written, and finds races on global memory.
    ///
    /// A traced launch uses one host thread. With [`Order::Shuffled`], it also interleaves blocks.
    On,
}

/// Counts of a launch, and the record of its accesses.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The number of executed instructions, with each instruction counted once per active lane.
    pub lane_instructions: u64,
    /// The number of executed instructions, with each instruction counted once per warp.
    pub warp_instructions: u64,
    /// The calls of `cudaGraphSetConditional` in order: the handle of the condition and its new
    /// value.
    pub conditions: Vec<(u64, u32)>,
    /// The recorded accesses, if the launch was traced.
    pub accesses: Option<Accesses>,
}

impl Stats {
    /// Adds the counts of another worker of the same launch.
    pub(crate) fn add(&mut self, other: &Self) {
        self.lane_instructions += other.lane_instructions;
        self.warp_instructions += other.warp_instructions;
    }
}

/// The device and the surroundings of a launch, among devices that share a
/// [`Memory`](crate::Memory).
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchSite<'a> {
    /// The number of the device that runs the launch.
    pub device: u32,
    /// The other devices whose memory the launch may access.
    pub peers: &'a [u32],
    /// Whether all blocks are resident at the same time, so that they may wait for each other.
    pub cooperative: bool,
    /// The shape of a cluster in blocks. `None` uses the shape that the kernel declares.
    pub cluster: Option<[u32; 3]>,
    /// The receiver of the text that the kernel prints. `None` prints to standard output.
    pub print: Option<Print<'a>>,
    /// The source of changes to memory while the launch runs. `None` means that only the launch
    /// itself writes memory.
    pub outside: Option<&'a dyn Outside>,
}

/// The world outside of a launch that may write memory while the launch runs: the host, other
/// streams and other devices.
///
/// The emulator asks it when all threads of a launch wait. A wait that the outside may end is not a
/// [`Deadlock`](crate::Class::Deadlock). It may still reach
/// [`Watch::wait_limit`](crate::Watch::wait_limit).
pub trait Outside: Sync + std::fmt::Debug {
    /// Returns a number that grows whenever work that may write memory begins or ends outside.
    fn changes(&self) -> u64;

    /// Returns true if something outside may still write memory of the devices.
    ///
    /// The answer does not matter for a kernel that polls [host memory](crate::Memory::alloc_host),
    /// because the host and other processes can write it at any time.
    fn may_change(&self) -> bool;
}

/// The function that receives the printed text of a launch.
///
/// It is called when the launch has ended, also after a fault. The text is ordered by block.
#[derive(Clone, Copy)]
pub struct Print<'a>(pub &'a (dyn Fn(&str) + Sync));

impl std::fmt::Debug for Print<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Print(..)")
    }
}

impl LaunchSite<'_> {
    /// Returns true if the launch may access the memory of a device.
    pub(crate) fn reaches(&self, device: u32) -> bool {
        device == self.device || self.peers.contains(&device)
    }
}
