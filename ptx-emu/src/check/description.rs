//! The description of a check.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::check::argument::{Argument, Buffer};
use crate::launch::Trace;
use crate::module::{Kernel, Module};
use crate::profile::Followed;
use crate::watch::Faults;
use crate::watched::Watched;

/// A kernel with its launch parameters, buffers and options. Set the fields, and then call
/// [`run`](Check::run).
#[derive(Clone, Debug)]
pub struct Check<'a> {
    /// The module.
    pub module: &'a Module,
    /// The kernel, which belongs to `module`.
    pub kernel: &'a Kernel,
    /// The number of blocks in x, y and z. The default is one block.
    pub grid: [u32; 3],
    /// The number of threads per block in x, y and z. The default is one thread.
    pub block: [u32; 3],
    /// The shape of a cluster in blocks. `None` uses the shape that the kernel declares.
    pub cluster: Option<[u32; 3]>,
    /// The size of the dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// Whether all blocks are resident at the same time, so that they may wait for each other.
    pub cooperative: bool,
    /// The buffers to which arguments may point.
    pub buffers: Vec<Buffer>,
    /// One argument for each parameter, in order.
    pub args: Vec<Argument>,
    /// Variables of the module that are overwritten before the launch, with their new values. For
    /// example, a texture reference receives the handle of its texture.
    pub variables: Vec<(String, Argument)>,
    /// The seeds of the schedules to run, see [`schedule`](crate::check::schedule). The default is
    /// `0..4`.
    pub seeds: Range<u64>,
    /// Whether accesses to global memory are recorded, which finds races there.
    pub trace: Trace,
    /// The number of faults to collect. With [`Faults::First`], the check ends with the first
    /// schedule that has a fault.
    pub faults: Faults,
    /// Whether [tolerated](crate::Class::ToleratedRace) races are findings instead of notes.
    pub strict: bool,
    /// Whether arithmetic is [checked](crate::Watch::arithmetic).
    pub arithmetic: bool,
    /// Whether the provenance of pointers is [checked](crate::Watch::provenance).
    pub provenance: bool,
    /// The maximum size of the record of a traced launch in bytes, see
    /// [`Watch::trace_bytes`](crate::Watch::trace_bytes).
    pub trace_bytes: Option<u64>,
    /// The maximum duration of each launch.
    pub limit: Duration,
    /// The maximum number of warp instructions of one block.
    pub fuel: u64,
    /// The number of host threads per launch. With more than one, the blocks of a launch that is
    /// not traced may interleave differently in each run.
    pub threads: usize,
    /// Whether the first schedule is profiled.
    pub profile: bool,
    /// The thread whose instructions are recorded under the first schedule.
    pub followed: Option<Followed>,
}

/// The result of one schedule.
pub(crate) struct ScheduleRun {
    pub(crate) seed: u64,
    pub(crate) watched: Watched,
    /// The bytes of each buffer after the launch, and the number of uninitialized bytes in it.
    pub(crate) contents: Vec<(Arc<Vec<u8>>, u64)>,
}
