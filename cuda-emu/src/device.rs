//! The emulated devices: what each of them is, their memory, and the log of what went wrong.

use std::sync::OnceLock;
use std::time::Instant;

use ptx_emu::{Memory, MemoryError, Watch};

use crate::activity::Activity;
use crate::config::{Checks, EmulatorConfig, Limits};
use crate::failures::Failures;
use crate::log::Log;
use crate::report::{Details, Report};
use crate::turns::Turns;
use crate::work::condition::Conditions;
use crate::work::graph_memory::GraphMemory;
use crate::work::order::Order;

/// The emulated devices, which are alike. They live as long as the process, because the program knows its pinned memory by address.
pub(crate) struct Device {
    pub(crate) config: EmulatorConfig,
    /// The memory of all devices and of the host.
    pub(crate) memory: Memory,
    pub(crate) log: Log,
    pub(crate) graph_memory: GraphMemory,
    pub(crate) conditions: Conditions,
    /// What streams and the program do, for kernels that wait.
    pub(crate) activity: Activity,
    pub(crate) failures: Failures,
    /// What orders work, once it is to be compared.
    pub(crate) order: Order,
    /// Whose turn it is, where a seed says in which order streams run.
    pub(crate) turns: Turns,
    /// Where launches and findings are reported, if they are.
    pub(crate) report: OnceLock<Report>,
    /// The checks that the environment asked for.
    checks: OnceLock<Checks>,
    /// The limits that the environment set.
    limits: OnceLock<Limits>,
}

/// Largest number of devices.
const MOST_DEVICES: u32 = 64;

/// Largest number of threads in a block.
pub(crate) const MAX_THREADS: u32 = 1024;

/// Largest block in each dimension.
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// Largest grid in each dimension.
pub(crate) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// Shared memory of a block that did not ask for more.
pub(crate) const SHARED: u32 = 48 << 10;

/// Bytes from which on an allocation has pages of its own, and the bytes of these.
const LARGE: u64 = 1 << 20;
const PAGE: u64 = 2 << 20;

impl Device {
    pub(crate) fn leak(mut config: EmulatorConfig) -> &'static Self {
        config.devices = config.devices.clamp(1, MOST_DEVICES);
        let memory = Memory::new(config.memory);
        let turns = Turns::new(config.order, config.seed);
        Box::leak(Box::new(Self {
            config,
            turns,
            memory,
            log: Log::default(),
            graph_memory: GraphMemory::default(),
            conditions: Conditions::default(),
            activity: Activity::default(),
            failures: Failures::default(),
            order: Order::default(),
            report: OnceLock::new(),
            checks: OnceLock::new(),
            limits: OnceLock::new(),
        }))
    }

    /// Reports launches and findings from now on, and traces all work for it.
    pub(crate) fn start_report(&self, report: Report) {
        if self.report.set(report).is_ok() {
            self.order.start();
        }
    }

    /// Looks at more in every launch from now on, if nobody asked before.
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

    /// Adds to the report what was refused, which the log holds as well.
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

    /// Allocates memory of a device. An address is a multiple of 256, and of 2 MiB from a mebibyte on: drivers map so
    /// much at a time, and Taichi counts on more than is promised.
    pub(crate) fn alloc(&self, device: u32, bytes: u64) -> Result<u64, MemoryError> {
        if bytes < LARGE {
            return self.memory.alloc_on(device, bytes);
        }
        let base = self.memory.reserve_range(bytes, PAGE)?;
        self.memory.alloc_at(base, device, bytes)?;
        Ok(base)
    }

    /// Frees device memory, that of graphs included.
    pub(crate) fn free(&self, base: u64) -> Result<(), MemoryError> {
        self.graph_memory.free(&self.memory, base)
    }

    /// The base and the bytes of the memory at an address that can be copied as one: an allocation, which may be one
    /// that a graph will make, or what is mapped side by side.
    pub(crate) fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.memory
            .run(address)
            .or_else(|| self.graph_memory.find(address))
    }

    /// Shared memory that a block may ask for, by the compute capability table of the CUDA programming guide.
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

    /// Threads resident on one multiprocessor, by the same table.
    pub(crate) fn threads_per_multiprocessor(&self) -> u32 {
        match self.config.compute_capability {
            (7, 5) => 1024,
            (8, 6 | 7 | 9) | (12, _) => 1536,
            _ => 2048,
        }
    }

    /// Shared memory that each block takes in addition to its own, by the same table.
    pub(crate) fn shared_reserved(&self) -> u32 {
        if self.config.compute_capability.0 >= 8 {
            1 << 10
        } else {
            0
        }
    }

    /// Shared memory of a multiprocessor: that of the largest block.
    pub(crate) fn shared_per_multiprocessor(&self) -> u32 {
        self.shared_optin() + self.shared_reserved()
    }

    /// Blocks resident on one multiprocessor, by the same table.
    pub(crate) fn blocks_per_multiprocessor(&self) -> u32 {
        match self.config.compute_capability {
            (7, 5) | (8, 6 | 7) => 16,
            (8, 9) | (12, _) => 24,
            _ => 32,
        }
    }
}
