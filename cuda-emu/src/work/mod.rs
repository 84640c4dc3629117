//! Work: what a stream runs and what a node of a graph is. Eager calls, graphs and captures share it.

pub(crate) mod copy;
pub(crate) mod function;
pub(crate) mod mark;

use std::sync::Arc;

use ptx_emu::{Accesses, Class, Fault, MemoryError, Trace};
use warpwright_driver_sys::{CUgraphNodeType, CUresult};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::host::Callback;
use crate::ffi::kernel_node::Geometry;
use crate::work::copy::{CopyWork, FillWork, Ranges};
use crate::work::function::Function;
use crate::work::mark::EventCell;

/// One piece of work.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Arc<KernelWork>),
    Copy(CopyWork),
    Fill(FillWork),
    Host(Callback),
    Record(Arc<EventCell>),
    Wait(Arc<EventCell>),
    Empty,
}

/// A kernel with its geometry and its packed parameters.
pub(crate) struct KernelWork {
    pub(crate) function: Arc<Function>,
    pub(crate) geometry: Geometry,
    pub(crate) params: Box<[u8]>,
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        Self { code: CUresult::ILLEGAL_ADDRESS, text: error.to_string() }
    }
}

impl From<Box<Fault>> for Error {
    fn from(fault: Box<Fault>) -> Self {
        Self { code: code_of(fault.class), text: fault.to_string() }
    }
}

/// The code that the driver gives for a fault. What hardware does not notice is LAUNCH_FAILED here.
fn code_of(class: Class) -> CUresult {
    match class {
        Class::OutOfBounds | Class::AfterFree => CUresult::ILLEGAL_ADDRESS,
        Class::Misaligned => CUresult::MISALIGNED_ADDRESS,
        Class::ReadOnlySpace => CUresult::INVALID_ADDRESS_SPACE,
        Class::OutOfFuel => CUresult::LAUNCH_TIMEOUT,
        _ => CUresult::LAUNCH_FAILED,
    }
}

impl Work {
    /// Runs to the end. With `traced` a name, gives what was read and written under that name.
    pub(crate) fn run(&self, device: &Device, traced: Option<&str>) -> Result<Option<Accesses>> {
        let trace = |reads: &Ranges, writes: &Ranges| {
            traced.map(|name| Accesses::of_host(&device.memory, name, reads, writes))
        };
        match self {
            Self::Kernel(kernel) => return kernel.run(device, traced.is_some()),
            Self::Copy(copy) => {
                copy.run(device)?;
                let (reads, writes) = copy.ranges();
                return Ok(trace(&reads, &writes));
            }
            Self::Fill(fill) => {
                fill.run(device)?;
                return Ok(trace(&Vec::new(), &fill.ranges()));
            }
            Self::Host(callback) => callback.call(),
            // A launch of a graph knows the marks that its nodes wait for and reach.
            Self::Record(_) | Self::Wait(_) | Self::Empty => {}
        }
        Ok(traced.map(|_| Accesses::default()))
    }

    /// The type of a node that does this.
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CUgraphNodeType::KERNEL,
            Self::Copy(_) => CUgraphNodeType::MEMCPY,
            Self::Fill(_) => CUgraphNodeType::MEMSET,
            Self::Host(_) => CUgraphNodeType::HOST,
            Self::Record(_) => CUgraphNodeType::EVENT_RECORD,
            Self::Wait(_) => CUgraphNodeType::WAIT_EVENT,
            Self::Empty => CUgraphNodeType::EMPTY,
        }
    }

    /// The label in messages and pictures: the kernel's name or the kind of work.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Kernel(kernel) => &kernel.function.kernel.name,
            Self::Copy(_) => "memcpy",
            Self::Fill(_) => "memset",
            Self::Host(_) => "host function",
            Self::Record(_) => "event record",
            Self::Wait(_) => "event wait",
            Self::Empty => "empty",
        }
    }
}

/// Whether two pieces of work do the same to the same memory.
impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kernel(a), Self::Kernel(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::Copy(a), Self::Copy(b)) => a == b,
            (Self::Fill(a), Self::Fill(b)) => a == b,
            (Self::Host(a), Self::Host(b)) => a == b,
            (Self::Record(a), Self::Record(b)) | (Self::Wait(a), Self::Wait(b)) => Arc::ptr_eq(a, b),
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
    }
}

impl KernelWork {
    fn run(&self, device: &Device, traced: bool) -> Result<Option<Accesses>> {
        if !self.function.is_loaded() {
            let text =
                format!("the module of {} was unloaded before the kernel ran", self.function.kernel.name);
            return Err(Error { code: CUresult::LAUNCH_FAILED, text });
        }
        let launch = ptx_emu::Launch {
            kernel: &self.function.kernel,
            grid: self.geometry.grid,
            block: self.geometry.block,
            dynamic_shared: self.geometry.shared,
            params: &self.params,
        };
        let trace = if traced { Trace::On } else { Trace::Off };
        let stats = ptx_emu::run(&device.memory, &launch, &device.config.schedule(), trace)?;
        Ok(stats.accesses)
    }
}
