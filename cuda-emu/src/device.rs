//! The emulated devices: their properties, their memory, and the log.

use std::sync::OnceLock;
use std::time::Instant;

use ptx_emu::{Memory, MemoryError, Watch};

use crate::activity::Activity;
use crate::config::{Checks, EmulatorConfig, Limits};
use crate::failures::Failures;
use crate::log::CallLog;
use crate::report::{Details, RunReport};
use crate::turns::Turns;
use crate::work::condition::Conditions;
use crate::work::graph_memory::GraphMemory;
use crate::work::order::WorkOrder;

/// The emulated devices, which are all alike.
///
/// They live until the process ends, because the program accesses pinned memory by its address.
pub(crate) struct EmulatedDevice {
    pub(crate) config: EmulatorConfig,
    /// The memory of all devices and of the host.
    pub(crate) memory: Memory,
    pub(crate) log: CallLog,
    pub(crate) graph_memory: GraphMemory,
    pub(crate) conditions: Conditions,
    /// The activity of streams and of the program, for kernels that wait.
    pub(crate) activity: Activity,
    pub(crate) failures: Failures,
    /// The happens-before order of work, if work is compared.
    pub(crate) order: WorkOrder,
    /// The scheduler of streams, if a seed chooses their order.
    pub(crate) turns: Turns,
    /// The report of launches and findings, if one is requested.
    pub(crate) report: OnceLock<RunReport>,
    /// The checks that the environment requests.
    checks: OnceLock<Checks>,
    /// The limits that the environment sets.
    limits: OnceLock<Limits>,
}

/// The maximum number of devices.
const MOST_DEVICES: u32 = 64;

/// The maximum number of threads in a block.
pub(crate) const MAX_THREADS: u32 = 1024;

/// The maximum block in each dimension.
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// The maximum grid in each dimension.
pub(crate) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// The maximum shared memory of a block that has not opted in to more.
pub(crate) const SHARED: u32 = 48 << 10;

/// The size in bytes from which an allocation has separate pages.
const LARGE: u64 = 1 << 20;
/// The size of these pages in bytes.
const PAGE: u64 = 2 << 20;

impl EmulatedDevice {
    pub(crate) fn leak(mut config: EmulatorConfig) -> &'static Self {
        config.devices = config.devices.clamp(1, MOST_DEVICES);
        let memory = Memory::new(config.memory);
        let turns = Turns::new(config.order, config.seed);
        Box::leak(Box::new(Self {
            config,
            turns,
            memory,
            log: CallLog::default(),
            graph_memory: GraphMemory::default(),
            conditions: Conditions::default(),
            activity: Activity::default(),
            failures: Failures::default(),
            order: WorkOrder::default(),
            report: OnceLock::new(),
            checks: OnceLock::new(),
            limits: OnceLock::new(),
        }))
    }

    /// Reports launches and findings from now on, and traces all work for that.
    pub(crate) fn start_report(&self, report: RunReport) {
        if self.report.set(report).is_ok() {
            self.order.start();
        }
    }

    /// Sets the checks of later launches, unless they were set before.
    pub(crate) fn ask(&self, checks: Checks) {
        let _ = self.checks.set(checks);
    }

    /// Sets the limits of later launches, unless they were set before.
    pub(crate) fn limit(&self, limits: Limits) {
        let _ = self.limits.set(limits);
    }

    /// Returns the checks and the limits of a launch that begins now.
    pub(crate) fn watch(&self) -> Watch {
        let Checks {
            arithmetic,
            provenance,
        } = *self.checks.get().unwrap_or(&self.config.checks);
        let Limits { time, wait } = *self.limits.get().unwrap_or(&self.config.limits);
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        Watch {
            arithmetic,
            provenance,
            deadline,
            wait_limit: wait,
            ..Watch::default()
        }
    }

    /// Adds a refused call to the report. The log contains it already.
    pub(crate) fn report_refused(&self, text: &str) {
        if let Some(report) = self.report.get() {
            report.finding(text, &Details::default());
        }
    }

    /// Adds a finding to the log and to the report.
    pub(crate) fn finding(&self, text: String, details: &Details) {
        if let Some(report) = self.report.get() {
            report.finding(&text, details);
        }
        self.log.finding(text);
    }

    /// Allocates memory of a device and returns its address, a multiple of 256.
    ///
    /// From 1 MiB on, the address is a multiple of 2 MiB. Drivers map such pages, and Taichi relies
    /// on this alignment although the API does not promise it.
    pub(crate) fn alloc(&self, device: u32, bytes: u64) -> Result<u64, MemoryError> {
        if bytes < LARGE {
            return self.memory.alloc_on(device, bytes);
        }
        let base = self.memory.reserve_range(bytes, PAGE)?;
        self.memory.alloc_at(base, device, bytes)?;
        Ok(base)
    }

    /// Frees device memory, including memory of graphs.
    pub(crate) fn free(&self, base: u64) -> Result<(), MemoryError> {
        self.graph_memory.free(&self.memory, base)
    }

    /// Returns the base and the size of the memory around `address` that can be copied as one
    /// piece.
    ///
    /// It is an allocation, an allocation that a graph will make, or a sequence of adjacent
    /// mappings.
    pub(crate) fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.memory
            .run(address)
            .or_else(|| self.graph_memory.find(address))
    }

    /// Returns the maximum shared memory that a block can opt in to (CUDA C++ Programming Guide,
    /// "Compute Capabilities").
    pub(crate) fn shared_optin(&self) -> u32 {
        let kib = match self.config.compute_capability {
            (..=6, _) => 48,
            (7, 5) => 64,
            (7, _) => 96,
            (8, 0 | 7) => 163,
            (8, _) | (12, _) => 99,
            _ => 227,
        };
        kib << 10
    }

    /// Returns the maximum number of resident threads of a multiprocessor (CUDA C++ Programming
    /// Guide, "Compute Capabilities").
    pub(crate) fn threads_per_multiprocessor(&self) -> u32 {
        match self.config.compute_capability {
            (7, 5) => 1024,
            (8, 6 | 7 | 9) | (12, _) => 1536,
            _ => 2048,
        }
    }

    /// Returns the shared memory that each block uses in addition to its own (CUDA C++ Programming
    /// Guide, "Compute Capabilities").
    pub(crate) fn shared_reserved(&self) -> u32 {
        if self.config.compute_capability.0 >= 8 {
            1 << 10
        } else {
            0
        }
    }

    /// Returns the shared memory of a multiprocessor, which is that of the largest block.
    pub(crate) fn shared_per_multiprocessor(&self) -> u32 {
        self.shared_optin() + self.shared_reserved()
    }

    /// Returns the maximum number of resident blocks of a multiprocessor (CUDA C++ Programming
    /// Guide, "Compute Capabilities").
    pub(crate) fn blocks_per_multiprocessor(&self) -> u32 {
        match self.config.compute_capability {
            (7, 5) | (8, 6 | 7) => 16,
            (8, 9) | (12, _) => 24,
            _ => 32,
        }
    }
}
