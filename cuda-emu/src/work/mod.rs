//! Work that a stream runs or that is the content of a graph node. Calls, graphs and captures share
//! it.

pub(crate) mod condition;
pub(crate) mod copy;
pub(crate) mod function;
pub(crate) mod graph_memory;
pub(crate) mod mark;
pub(crate) mod occupancy;
pub(crate) mod order;
pub(crate) mod outside;
pub(crate) mod reach;
pub(crate) mod words;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ptx_emu::{
    Accesses, Class, Fault, Found, LaunchSite, MemoryError, Outside, Stats, Trace, Watched,
};
use warpwright_driver_sys::{CUgraphConditionalNodeType, CUgraphNodeType, CUresult};

use crate::crew::run_in_pool;
use crate::device::EmulatedDevice;
use crate::environment::{TIME_LIMIT, WAIT_LIMIT};
use crate::error::{Error, Result};
use crate::ffi::host::Callback;
use crate::ffi::kernel_node::LaunchGeometry;
use crate::report::{Details, JsonObject};
use crate::work::copy::{CopyWork, FillWork, Ranges};
use crate::work::function::Function;
use crate::work::mark::EventCell;
use crate::work::outside::AroundKernel;
use crate::work::words::WordWork;

/// The context in which work runs.
#[derive(Clone, Copy)]
pub(crate) struct WorkSite<'a> {
    /// The name of the location in reports, if the work is traced.
    pub(crate) traced: Option<&'a str>,
    /// The number of the queue that runs it.
    pub(crate) queue: u32,
    /// Whether the work is a node of a graph with nodes that may run at the same time.
    pub(crate) siblings: bool,
}

/// A piece of work that a stream runs, or the content of a graph node.
#[derive(Clone)]
pub(crate) enum StreamWork {
    Kernel(Arc<KernelWork>),
    Copy(CopyWork),
    Fill(FillWork),
    Host(Callback),
    Record(Arc<EventCell>),
    Wait(Arc<EventCell>),
    Words(WordWork),
    /// Allocates the memory of a graph at this address.
    Alloc(GraphAllocation),
    /// Frees memory of a graph.
    Free(u64),
    /// Runs bodies of a conditional node.
    Branch(Arc<Branch>),
    Empty,
}

/// Memory that a node of a graph allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraphAllocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: u32,
}

/// A conditional node: its condition, and the parts of the executable graph that are its bodies.
pub(crate) struct Branch {
    pub(crate) condition: Arc<AtomicU32>,
    pub(crate) kind: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<usize>,
}

/// A kernel with its geometry and its packed parameters.
pub(crate) struct KernelWork {
    pub(crate) function: Arc<Function>,
    pub(crate) geometry: LaunchGeometry,
    pub(crate) params: Box<[u8]>,
    pub(crate) cooperative: bool,
    /// The cluster size of the launch, if it overrides that of the kernel.
    pub(crate) cluster: Option<[u32; 3]>,
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        let code = match error {
            MemoryError::OutOfMemory { .. } => CUresult::OUT_OF_MEMORY,
            _ => CUresult::ILLEGAL_ADDRESS,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Box<Fault>> for Error {
    fn from(fault: Box<Fault>) -> Self {
        let mut text = fault.to_string();
        if fault.class == Class::TimeLimit {
            text += &format!(
                "\n  set the limits by `EmulatorConfig::limits`, or by {TIME_LIMIT} and {WAIT_LIMIT} for the shared library"
            );
        }
        Self {
            code: code_of(fault.class),
            text,
            details: Details::of_fault(&fault),
        }
    }
}

/// Reports all findings of a launch. Returns its statistics, or the fault that ended it.
fn report_findings(
    device: &EmulatedDevice,
    watched: Watched,
) -> std::result::Result<Stats, Box<Fault>> {
    let (mut ended, others): (Vec<Found>, Vec<Found>) =
        watched.found.into_iter().partition(|found| found.ended);
    for Found { fault, .. } in others {
        device.finding(fault.to_string(), &Details::of_fault(&fault));
    }
    if ended.is_empty() {
        Ok(watched.stats)
    } else {
        Err(Box::new(ended.swap_remove(0).fault))
    }
}

/// Returns the error of a fault. If the address belongs to another device, the text names that
/// device.
fn with_owner(device: &EmulatedDevice, own: u32, fault: Box<Fault>) -> Error {
    let owner = fault
        .address
        .and_then(|address| device.memory.owner(address))
        .filter(|owner| *owner != own);
    let mut error = Error::from(fault);
    if let Some(owner) = owner {
        error.text += &format!(
            "\n  the address is memory of device {owner}, to which the context of device {own} has no peer access"
        );
    }

    error
}

/// Returns the driver's error code for a fault. Faults that hardware does not detect are
/// LAUNCH_FAILED.
fn code_of(class: Class) -> CUresult {
    match class {
        Class::OutOfBounds | Class::AfterFree => CUresult::ILLEGAL_ADDRESS,
        Class::Misaligned => CUresult::MISALIGNED_ADDRESS,
        Class::ReadOnlySpace => CUresult::INVALID_ADDRESS_SPACE,
        Class::OutOfFuel | Class::TimeLimit => CUresult::LAUNCH_TIMEOUT,
        Class::Assertion => CUresult::ASSERT,
        Class::BadCall => CUresult::INVALID_PC,
        _ => CUresult::LAUNCH_FAILED,
    }
}

impl StreamWork {
    /// Runs to the end. Returns the accesses if the work is traced.
    pub(crate) fn run(
        &self,
        device: &EmulatedDevice,
        site: WorkSite<'_>,
    ) -> Result<Option<Accesses>> {
        let trace = |reads: &Ranges, writes: &Ranges| {
            site.traced
                .map(|_| Accesses::from_host(&device.memory, self.name(), reads, writes))
        };
        match self {
            Self::Kernel(kernel) => return kernel.run(device, site),
            Self::Copy(copy) => {
                copy.run(device)?;
                let (reads, writes) = copy.ranges();
                return Ok(trace(&reads, &writes));
            }
            Self::Fill(fill) => {
                fill.run(device)?;
                return Ok(trace(&Vec::new(), &fill.ranges()));
            }
            Self::Words(words) => {
                words.run(device)?;
                let (reads, writes) = words.ranges();
                return Ok(trace(&reads, &writes));
            }
            Self::Alloc(made) => device.graph_memory.alloc(&device.memory, made.base)?,
            Self::Free(base) => device.free(*base)?,
            Self::Host(callback) => callback.call(),
            // The launch of a graph handles its marks and the bodies of its conditional nodes.
            Self::Record(_) | Self::Wait(_) | Self::Branch(_) | Self::Empty => {}
        }
        Ok(site.traced.map(|_| Accesses::default()))
    }

    /// Returns the type of a graph node with this work.
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CUgraphNodeType::KERNEL,
            Self::Copy(_) => CUgraphNodeType::MEMCPY,
            Self::Fill(_) => CUgraphNodeType::MEMSET,
            Self::Host(_) => CUgraphNodeType::HOST,
            Self::Record(_) => CUgraphNodeType::EVENT_RECORD,
            Self::Wait(_) => CUgraphNodeType::WAIT_EVENT,
            Self::Words(_) => CUgraphNodeType::BATCH_MEM_OP,
            Self::Alloc(_) => CUgraphNodeType::MEM_ALLOC,
            Self::Free(_) => CUgraphNodeType::MEM_FREE,
            Self::Branch(_) => CUgraphNodeType::CONDITIONAL,
            Self::Empty => CUgraphNodeType::EMPTY,
        }
    }

    /// Returns the label in messages and plots: the kernel's name or the kind of work.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Kernel(kernel) => &kernel.function.kernel.name,
            Self::Copy(_) => "memcpy",
            Self::Fill(_) => "memset",
            Self::Host(_) => "host function",
            Self::Record(_) => "event record",
            Self::Wait(_) => "event wait",
            Self::Words(_) => "memory operations",
            Self::Alloc(_) => "memory allocation",
            Self::Free(_) => "memory free",
            Self::Branch(_) => "conditional",
            Self::Empty => "empty",
        }
    }
}

/// Two pieces of work are equal if they do the same to the same memory.
impl PartialEq for StreamWork {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kernel(a), Self::Kernel(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::Copy(a), Self::Copy(b)) => a == b,
            (Self::Fill(a), Self::Fill(b)) => a == b,
            (Self::Host(a), Self::Host(b)) => a == b,
            (Self::Record(a), Self::Record(b)) | (Self::Wait(a), Self::Wait(b)) => {
                Arc::ptr_eq(a, b)
            }
            (Self::Words(a), Self::Words(b)) => a == b,
            (Self::Alloc(a), Self::Alloc(b)) => a == b,
            (Self::Free(a), Self::Free(b)) => a == b,
            (Self::Branch(a), Self::Branch(b)) => Arc::ptr_eq(a, b),
            (Self::Empty, Self::Empty) => true,
            _ => false,
        }
    }
}

impl PartialEq for KernelWork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
            && self.geometry == other.geometry
            && self.params == other.params
            && self.cooperative == other.cooperative
            && self.cluster == other.cluster
    }
}

impl KernelWork {
    fn run(&self, device: &EmulatedDevice, site: WorkSite<'_>) -> Result<Option<Accesses>> {
        let WorkSite {
            traced,
            queue,
            siblings,
        } = site;
        if !self.function.is_loaded() {
            let text = format!(
                "the module of {} was unloaded before the kernel ran",
                self.function.kernel.name
            );
            return Err(Error::new(CUresult::LAUNCH_FAILED, text));
        }

        let name = &self.function.kernel.name;
        if let Some(code) = device
            .failures
            .code_of(name)
            .filter(|code| code.is_device_fault())
        {
            return Err(Error::new(
                code,
                format!("{name}: this failure was injected"),
            ));
        }

        let launch = ptx_emu::Launch {
            kernel: &self.function.kernel,
            grid: self.geometry.grid,
            block: self.geometry.block,
            dynamic_shared: self.geometry.shared,
            params: &self.params,
        };
        let trace = if traced.is_some() {
            Trace::On
        } else {
            Trace::Off
        };
        let reach = &self.function.reach;
        let device_number = reach.device;
        let peers = reach.peers();
        let Self {
            cooperative,
            cluster,
            ..
        } = *self;
        let outside = AroundKernel {
            device,
            queue,
            siblings,
        };
        let outside: Option<&dyn Outside> = Some(&outside);
        let place = LaunchSite {
            device: device_number,
            peers: &peers,
            cooperative,
            cluster,
            print: None,
            outside,
        };
        let schedule = device.config.schedule();
        let watch = device.watch();
        let run =
            || ptx_emu::run_watched(&device.memory, &launch, &schedule, trace, &place, &watch);

        // A single block runs on this thread, which saves the pool.
        let watched = match self.geometry.grid {
            [1, 1, 1] => run(),
            _ => run_in_pool(device.config.threads, run),
        };
        let stats = report_findings(device, watched);
        self.report(device, traced.unwrap_or_default(), stats.as_ref().ok());
        let stats = stats.map_err(|fault| with_owner(device, device_number, fault))?;
        for (handle, value) in stats.conditions {
            if !device.conditions.set(handle, value) {
                let text = format!(
                    "{} sets the condition {handle:#x}, which does not exist",
                    launch.kernel.name
                );
                return Err(Error::new(CUresult::LAUNCH_FAILED, text));
            }
        }

        Ok(stats.accesses)
    }

    /// Adds the launch to the report, if there is one. A launch that failed has no counts.
    fn report(&self, device: &EmulatedDevice, place: &str, stats: Option<&Stats>) {
        let Some(report) = device.report.get() else {
            return;
        };

        let LaunchGeometry {
            grid,
            block,
            shared,
        } = self.geometry;
        let launch = JsonObject::new()
            .text("kernel", &self.function.kernel.name)
            .text("where", place);
        let launch = launch
            .numbers("grid", grid)
            .numbers("block", block)
            .number("shared", shared);
        report.launch(match stats {
            None => launch.number("failed", true),
            Some(stats) => launch
                .number("lane_instructions", stats.lane_instructions)
                .number("warp_instructions", stats.warp_instructions)
                .number("traced", stats.accesses.is_some()),
        });
    }
}
