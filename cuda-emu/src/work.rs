//! Work: what a stream runs and what a node of a graph is. Eager calls, graphs and captures share it.

use std::sync::Arc;

use ptx_emu::{Accesses, Class, Fault, MemoryError, Trace};
use warpwright_driver_sys::{CUgraphNodeType, CUresult};

use crate::event::EventCell;
use crate::ffi::{Callback, Error, HostSpan, Result, require};
use crate::machine::Machine;
use crate::module::Function;
use crate::queue;

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
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: Box<[u8]>,
}

/// Runs of device memory as (address, bytes).
pub(crate) type Ranges = Vec<(u64, u64)>;

/// Where bytes of a copy lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Device memory, or pinned memory, whose device address is its own.
    Device(u64),
    /// Memory that only the program knows.
    Host(HostSpan),
    /// Bytes taken when the call was made.
    Staged(Arc<[u8]>),
}

/// One side of a copy: where it begins and how far apart its rows and slices are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyEnd {
    pub(crate) place: Location,
    pub(crate) pitch: usize,
    pub(crate) slice: usize,
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyWork {
    pub(crate) to: CopyEnd,
    pub(crate) from: CopyEnd,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// A fill of `height` rows of `width` elements of `size` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FillWork {
    pub(crate) to: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) size: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
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
    pub(crate) fn run(&self, machine: &Machine, traced: Option<&str>) -> Result<Option<Accesses>> {
        let trace = |reads: &Ranges, writes: &Ranges| {
            traced.map(|name| Accesses::of_host(&machine.memory, name, reads, writes))
        };
        match self {
            Self::Kernel(kernel) => return kernel.run(machine, traced.is_some()),
            Self::Copy(copy) => {
                copy.run(machine)?;
                let (reads, writes) = copy.ranges();
                return Ok(trace(&reads, &writes));
            }
            Self::Fill(fill) => {
                fill.run(machine)?;
                return Ok(trace(&Vec::new(), &fill.ranges()));
            }
            Self::Host(callback) => queue::host_function(|| callback.call()),
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
            && (self.grid, self.block, self.shared) == (other.grid, other.block, other.shared)
            && self.params == other.params
    }
}

impl KernelWork {
    fn run(&self, machine: &Machine, traced: bool) -> Result<Option<Accesses>> {
        if !self.function.is_loaded() {
            let text =
                format!("the module of {} was unloaded before the kernel ran", self.function.kernel.name);
            return Err(Error { code: CUresult::LAUNCH_FAILED, text });
        }
        let launch = ptx_emu::Launch {
            kernel: &self.function.kernel,
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            params: &self.params,
        };
        let trace = if traced { Trace::On } else { Trace::Off };
        let stats = ptx_emu::run(&machine.memory, &launch, &machine.config.schedule(), trace)?;
        Ok(stats.accesses)
    }
}

impl Location {
    /// The place of an address that may be device memory, pinned memory or memory of the program.
    pub(crate) fn of(machine: &Machine, address: u64) -> Self {
        match machine.memory.find(address) {
            Some(_) => Self::Device(address),
            None => Self::Host(HostSpan::new(address as usize)),
        }
    }
}

impl CopyEnd {
    /// An end of a run of bytes.
    pub(crate) fn plain(place: Location) -> Self {
        Self { place, pitch: 0, slice: 0 }
    }

    fn device_rows(&self, copy: &CopyWork) -> Ranges {
        let Location::Device(address) = self.place else { return Vec::new() };
        let start = |z, y| address + (z * self.slice + y * self.pitch) as u64;
        copy.rows().map(|(z, y)| (start(z, y), copy.width as u64)).collect()
    }
}

impl CopyWork {
    /// A copy of a run of bytes.
    pub(crate) fn plain(to: Location, from: Location, bytes: usize) -> Self {
        Self { to: CopyEnd::plain(to), from: CopyEnd::plain(from), width: bytes, height: 1, depth: 1 }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let height = self.height;
        (0..self.depth).flat_map(move |z| (0..height).map(move |y| (z, y)))
    }

    /// The device memory read and the device memory written.
    pub(crate) fn ranges(&self) -> (Ranges, Ranges) {
        (self.from.device_rows(self), self.to.device_rows(self))
    }

    /// Refuses ranges that are not within an allocation.
    pub(crate) fn check(&self, machine: &Machine) -> Result {
        let (reads, writes) = self.ranges();
        check_ranges(machine, reads.iter().chain(&writes))
    }

    pub(crate) fn run(&self, machine: &Machine) -> Result {
        for (z, y) in self.rows() {
            let to = z * self.to.slice + y * self.to.pitch;
            let from = z * self.from.slice + y * self.from.pitch;
            self.run_row(machine, to, from)?;
        }
        Ok(())
    }

    fn run_row(&self, machine: &Machine, to: usize, from: usize) -> Result {
        let (memory, bytes) = (&machine.memory, self.width);
        match (&self.to.place, &self.from.place) {
            (Location::Device(a), Location::Device(b)) => {
                memory.copy(a + to as u64, b + from as u64, bytes as u64)?
            }
            (Location::Device(a), Location::Host(b)) => {
                memory.write(a + to as u64, b.at(from).bytes(bytes))?
            }
            (Location::Device(a), Location::Staged(b)) => {
                memory.write(a + to as u64, &b[from..from + bytes])?
            }
            (Location::Host(a), Location::Device(b)) => {
                let b = b + from as u64;
                report_uninitialised(machine, b, bytes as u64);
                memory.read(b, a.at(to).bytes_mut(bytes))?;
            }
            (Location::Host(a), Location::Host(b)) => {
                let copy = b.at(from).bytes(bytes).to_vec();
                a.at(to).bytes_mut(bytes).copy_from_slice(&copy);
            }
            (Location::Host(a), Location::Staged(b)) => {
                a.at(to).bytes_mut(bytes).copy_from_slice(&b[from..from + bytes])
            }
            (Location::Staged(_), _) => {}
        }
        Ok(())
    }
}

/// Bytes that nobody wrote reach the host: hardware gives garbage, so this is a finding and no failure.
fn report_uninitialised(machine: &Machine, address: u64, bytes: u64) {
    if let Ok(Some(at)) = machine.memory.uninitialised(address, bytes) {
        let whose = machine.memory.find(at);
        let whose = whose.map_or_else(String::new, |a| format!(" of `{}`", a.label));
        machine.finding(format!(
            "UninitialisedCopy: a copy to the host reads 0x{at:x}{whose}, which nobody has written"
        ));
    }
}

impl FillWork {
    /// The device memory written.
    pub(crate) fn ranges(&self) -> Ranges {
        let bytes = (self.width * self.size) as u64;
        (0..self.height).map(|y| (self.to + (y * self.pitch) as u64, bytes)).collect()
    }

    /// Refuses what the driver refuses: element size, alignment, memory that is not there.
    pub(crate) fn check(&self, machine: &Machine) -> Result {
        require(matches!(self.size, 1 | 2 | 4), || format!("elements of {} bytes", self.size))?;
        require(self.to.is_multiple_of(self.size as u64), || {
            format!("0x{:x} is not aligned to elements of {} bytes", self.to, self.size)
        })?;
        check_ranges(machine, self.ranges().iter())
    }

    pub(crate) fn run(&self, machine: &Machine) -> Result {
        let pattern = self.value.to_le_bytes();
        for (address, _) in self.ranges() {
            machine.memory.fill(address, &pattern[..self.size], self.width as u64)?;
        }
        Ok(())
    }
}

fn check_ranges<'a>(machine: &Machine, ranges: impl Iterator<Item = &'a (u64, u64)>) -> Result {
    for &(address, bytes) in ranges.filter(|range| range.1 > 0) {
        let inside = machine.memory.find(address).is_some_and(|a| bytes <= a.bytes - (address - a.base));
        require(inside, || format!("{bytes} bytes at 0x{address:x} do not lie within one live allocation"))?;
    }
    Ok(())
}
