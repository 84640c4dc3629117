//! Runs launches.

use crate::fault::Fault;
use crate::launch::{Launch, LaunchSite, Schedule, Stats, Trace};
use crate::machine::device::device_memory::Memory;
use crate::machine::scheduler::launch_grid;
use crate::watch::Watch;
use crate::watched::Watched;

/// Runs a launch on device 0 and waits for its end.
///
/// For other devices use [`run_at`], and for several faults or a time limit use [`run_watched`].
///
/// # Errors
/// Returns the first fault. Memory contains everything that was written before it.
pub fn run(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
) -> Result<Stats, Box<Fault>> {
    run_at(memory, launch, schedule, trace, &LaunchSite::default())
}

/// Runs a launch at a [site](LaunchSite), for example on another device or with clusters.
///
/// # Errors
/// Returns the first fault. Memory contains everything that was written before it.
pub fn run_at(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
    place: &LaunchSite<'_>,
) -> Result<Stats, Box<Fault>> {
    run_watched(memory, launch, schedule, trace, place, &Watch::default()).into_result()
}

/// Runs a launch as [`run_at`] does, with the options of a [`Watch`].
///
/// Use it to collect the faults of several blocks, to limit time, to enable more checks, or to
/// profile.
///
/// # Example: find a division by zero
/// ```
/// use ptx_emu::{Class, Launch, LaunchSite, Memory, Module, Schedule, Trace, Watch, run_watched};
///
/// let module = Module::parse("
///     .version 7.0
///     .target sm_75
///     .address_size 64
///     .visible .entry divide(.param .u64 y)
///     {
///         .reg .b32 %r<3>;
///         .reg .b64 %y;
///         ld.param.u64 %y, [y];
///         mov.u32 %r0, 7;
///         mov.u32 %r1, 0;
///         div.u32 %r2, %r0, %r1;
///         st.global.u32 [%y], %r2;
///         ret;
///     }
/// ")?;
/// let memory = Memory::new(1 << 20);
/// let launch = Launch {
///     kernel: module.kernel("divide")?,
///     grid: [1, 1, 1],
///     block: [1, 1, 1],
///     dynamic_shared: 0,
///     params: &memory.alloc(4)?.to_le_bytes(),
/// };
/// let watch = Watch { arithmetic: true, ..Watch::default() };
/// let site = LaunchSite::default();
/// let watched = run_watched(&memory, &launch, &Schedule::default(), Trace::Off, &site, &watch);
///
/// let found = &watched.found[0];
/// assert_eq!(found.fault.class, Class::DivisionByZero);
/// assert!(!found.ended, "the kernel ran to its end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_watched(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
    place: &LaunchSite<'_>,
    watch: &Watch,
) -> Watched {
    launch_grid::run(memory, launch, schedule, trace, place, watch)
}
