//! The configuration of the emulated driver and its devices.

use std::time::Duration;

use ptx_emu::{Order, Schedule};

/// The configuration of the emulated driver and its devices.
///
/// Start from [`EmulatorConfig::default`] and pass the result to [`configure`](crate::configure).
#[derive(Clone, Debug)]
pub struct EmulatorConfig {
    /// The number of devices, from 1 to 64. They are all alike.
    pub devices: u32,
    /// The memory of each device in bytes.
    pub memory: u64,
    /// The version that `cuDriverGetVersion` returns, 1000 * major + 10 * minor.
    ///
    /// It determines the available functions and PTX versions.
    pub driver_version: u32,
    /// The compute capability, such as `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// The number of multiprocessors that a device reports.
    pub multiprocessors: u32,
    /// The seed for the order of blocks, warps, graph nodes and streams.
    pub seed: u64,
    /// The order of blocks and warps, and of graph nodes and streams that nothing orders.
    pub order: Order,
    /// The number of threads that run the blocks of a kernel. 0 means one per core.
    pub threads: usize,
    /// The number of warp instructions after which a block ends its launch with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`.
    pub fuel: u64,
    /// Whether the first launch of an executable graph is traced to find missing edges.
    pub check_graphs: bool,
    /// The additional checks of each launch.
    pub checks: Checks,
    /// The time limits of each launch.
    pub limits: Limits,
}

/// The time limits of each launch.
///
/// A launch that reaches a limit ends with `CUDA_ERROR_LAUNCH_TIMEOUT`, and its context cannot be
/// used afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum time of a launch, or `None` for no limit.
    ///
    /// The default is no limit, because kernels that take minutes in the emulator are common. An
    /// infinite loop is ended by [fuel](EmulatorConfig::fuel).
    pub time: Option<Duration>,
    /// The maximum time for which all threads of a launch may wait while nothing happens, or `None`
    /// for no limit.
    ///
    /// The default is 30 seconds. Progress in the launch, work of another stream or a call of the
    /// program resets the time. Time in which the process is stopped does not count.
    ///
    /// A kernel that waits for the host or for another stream is not a deadlock, but it can reach
    /// this limit. Raise the limit for a kernel that waits longer, for example for a user.
    pub wait: Option<Duration>,
}

/// A text that is neither a number of seconds nor `none`.
pub(crate) struct InvalidLimit;

impl Default for Limits {
    /// Returns no limit for the time and 30 seconds for waits.
    fn default() -> Self {
        Self {
            time: None,
            wait: Some(Duration::from_secs(30)),
        }
    }
}

impl Limits {
    /// Reads a limit: a number of seconds such as `0.5`, or `none` for no limit.
    ///
    /// # Errors
    /// Returns an error if the text is neither.
    pub(crate) fn read(text: &str) -> Result<Option<Duration>, InvalidLimit> {
        let text = text.trim();
        if text == "none" {
            return Ok(None);
        }

        let seconds: f64 = text.parse().map_err(|_| InvalidLimit)?;
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(InvalidLimit);
        }

        Duration::try_from_secs_f64(seconds)
            .map(Some)
            .map_err(|_| InvalidLimit)
    }
}

/// Additional checks of each launch, which take up to three times as long.
///
/// Their findings do not make a call fail. They are in [`findings`](crate::findings), in the log
/// and in the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Whether to report [arithmetic](ptx_emu::Watch::arithmetic) that destroys values, such as
    /// overflow.
    pub arithmetic: bool,
    /// Whether to report pointers that leave the allocation they come from
    /// ([provenance](ptx_emu::Watch::provenance)).
    pub provenance: bool,
}

impl Checks {
    /// Reads the names of checks, separated by commas.
    ///
    /// # Errors
    /// Returns the first word that is not the name of a check.
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
    /// Returns one device with 16 GiB, CUDA 13.5, compute capability 9.0 and 8 multiprocessors,
    /// with all work in order.
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
    /// Returns the schedule of kernels.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule {
            seed: self.seed,
            order: self.order,
            threads: self.threads,
            fuel: self.fuel,
        }
    }

    /// Returns the newest PTX version that the driver's compiler accepts (PTX manual, "Release
    /// Notes").
    pub(crate) fn ptx_version(&self) -> (u32, u32) {
        let major = self.driver_version / 1000;
        let minor = self.driver_version % 1000 / 10;
        match (major, minor) {
            (..=11, minor) => (7, minor),
            (12, ..=5) => (8, minor),
            (12, minor) => (8, minor - 1),
            (major, minor) => (major - 4, minor),
        }
    }
}
