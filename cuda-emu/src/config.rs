//! What the emulated driver and device are, and how they run.

use std::time::Duration;

use ptx_emu::{Order, Schedule};

/// The emulated driver and its devices.
#[derive(Clone, Debug)]
pub struct EmulatorConfig {
    /// Devices, all alike; at least one, at most 64.
    pub devices: u32,
    /// Memory of each device in bytes.
    pub memory: u64,
    /// What `cuDriverGetVersion` returns, 1000 * major + 10 * minor. Decides which functions and PTX versions exist.
    pub driver_version: u32,
    /// Compute capability, such as `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Multiprocessors that the device says it has.
    pub multiprocessors: u32,
    /// Seed of every choice of order: blocks, warps, nodes of a graph.
    pub seed: u64,
    /// Order of blocks and warps, and of graph nodes that no edge orders.
    pub order: Order,
    /// Threads that run the blocks of a kernel; 0 takes one for each core.
    pub threads: usize,
    /// Warp instructions that one block may execute before the launch ends with LAUNCH_TIMEOUT.
    pub fuel: u64,
    /// Whether the first launch of an executable graph is traced to find missing edges.
    pub check_graphs: bool,
    /// What is looked at besides.
    pub checks: Checks,
    /// The longest time that a launch may take or wait.
    pub limits: Limits,
}

/// The time limits of each launch. A launch that reaches one ends with LAUNCH_TIMEOUT, and its context with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time that a launch may take. `None`, the default, sets no limit, because kernels that take minutes here
    /// are common, and [fuel](EmulatorConfig::fuel) ends a loop that computes for ever.
    pub time: Option<Duration>,
    /// The longest time for which all threads of a launch may wait while nothing happens, neither in the launch, nor in
    /// another stream, nor by a call of the program. `None` sets no limit. The default is 30 seconds.
    ///
    /// A kernel that waits for the host or for another stream is never a deadlock, but it reaches this limit if nothing
    /// happens for that long. Raise the limit for a kernel that waits longer, for example for a user. Time in which the
    /// process was stopped does not count.
    pub wait: Option<Duration>,
}

impl Default for Limits {
    /// No limit of the time, and 30 seconds of waiting.
    fn default() -> Self {
        Self {
            time: None,
            wait: Some(Duration::from_secs(30)),
        }
    }
}

impl Limits {
    /// Reads a limit: a number of seconds, such as `0.5`, or `none`.
    pub(crate) fn read(text: &str) -> Option<Option<Duration>> {
        match text.trim() {
            "none" => Some(None),
            seconds => {
                let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0.0)?;
                Duration::try_from_secs_f64(seconds).ok().map(Some)
            }
        }
    }
}

/// What is looked at in every launch besides, which takes up to three times as long. A finding of it fails no call: it is in
/// [`findings`](crate::findings), in the log, and in the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Numbers that [arithmetic](ptx_emu::Watch::arithmetic) spoils.
    pub arithmetic: bool,
    /// Where [pointers](ptx_emu::Watch::provenance) come from.
    pub provenance: bool,
}

impl Checks {
    /// Reads names with commas between; the word that is none.
    pub(crate) fn read(text: &str) -> Result<Checks, String> {
        let mut checks = Checks::default();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            match word {
                "arithmetic" => checks.arithmetic = true,
                "provenance" => checks.provenance = true,
                other => return Err(other.to_owned()),
            }
        }
        Ok(checks)
    }
}

impl Default for EmulatorConfig {
    /// One device of 16 GiB, CUDA 13.5, compute capability 9.0, 8 multiprocessors, everything in order.
    fn default() -> Self {
        let Schedule {
            seed,
            threads,
            fuel,
            ..
        } = Schedule::default();
        Self {
            devices: 1,
            memory: 16 << 30,
            driver_version: 13050,
            compute_capability: (9, 0),
            multiprocessors: 8,
            seed,
            order: Order::InOrder,
            threads,
            fuel,
            check_graphs: true,
            checks: Checks::default(),
            limits: Limits::default(),
        }
    }
}

impl EmulatorConfig {
    /// How a kernel runs.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule {
            seed: self.seed,
            order: self.order,
            threads: self.threads,
            fuel: self.fuel,
        }
    }

    /// The newest PTX version that the driver's compiler takes, by the table in the PTX manual's release history.
    pub(crate) fn ptx_version(&self) -> (u32, u32) {
        let (major, minor) = (self.driver_version / 1000, self.driver_version % 1000 / 10);
        match (major, minor) {
            (..=11, minor) => (7, minor),
            (12, ..=5) => (8, minor),
            (12, minor) => (8, minor - 1),
            (major, minor) => (major - 4, minor),
        }
    }
}
