//! Copies and fills of memory.

use std::sync::Arc;

use crate::device::EmulatedDevice;
use crate::error::{Result, require};
use crate::ffi::host::HostSpan;
use crate::report::Details;

/// Ranges of device memory as (address, bytes).
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The memory on one side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Device memory, or pinned memory, which has the same address on the device.
    Device(u64),
    /// Memory of the program that is not registered.
    Host(HostSpan),
    /// Bytes that were copied when the call was made.
    Staged(Arc<[u8]>),
}

/// One side of a copy: its memory, and the pitches of its rows and slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyEnd {
    pub(crate) place: Location,
    pub(crate) pitch: usize,
    pub(crate) slice: usize,
}

/// A copy of `depth` slices with `height` rows of `width` bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyWork {
    pub(crate) to: CopyEnd,
    pub(crate) from: CopyEnd,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// A fill of `height` rows with `width` elements of `size` bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FillWork {
    pub(crate) to: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) size: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Location {
    /// Returns the location of an address in device memory, pinned memory or memory of the program.
    pub(crate) fn of(device: &EmulatedDevice, address: u64) -> Self {
        match device.range(address) {
            Some(_) => Self::Device(address),
            None => Self::Host(HostSpan::new(address as usize)),
        }
    }
}

impl CopyEnd {
    /// Returns one side of a contiguous copy.
    pub(crate) fn plain(place: Location) -> Self {
        Self {
            place,
            pitch: 0,
            slice: 0,
        }
    }

    fn device_rows(&self, copy: &CopyWork) -> Ranges {
        let Location::Device(address) = self.place else {
            return Vec::new();
        };
        let start = |z, y| address + (z * self.slice + y * self.pitch) as u64;
        copy.rows()
            .map(|(z, y)| (start(z, y), copy.width as u64))
            .collect()
    }
}

impl CopyWork {
    /// Returns a contiguous copy.
    pub(crate) fn plain(to: Location, from: Location, bytes: usize) -> Self {
        Self {
            to: CopyEnd::plain(to),
            from: CopyEnd::plain(from),
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let height = self.height;
        (0..self.depth).flat_map(move |z| (0..height).map(move |y| (z, y)))
    }

    /// Returns the device memory that it reads and writes.
    pub(crate) fn ranges(&self) -> (Ranges, Ranges) {
        (self.from.device_rows(self), self.to.device_rows(self))
    }

    /// Returns an error if a range is not within an allocation.
    pub(crate) fn check(&self, device: &EmulatedDevice) -> Result {
        let (reads, writes) = self.ranges();
        check_ranges(device, reads.iter().chain(&writes))
    }

    pub(crate) fn run(&self, device: &EmulatedDevice) -> Result {
        for (z, y) in self.rows() {
            let to = z * self.to.slice + y * self.to.pitch;
            let from = z * self.from.slice + y * self.from.pitch;
            self.run_row(device, to, from)?;
        }
        Ok(())
    }

    fn run_row(&self, device: &EmulatedDevice, to: usize, from: usize) -> Result {
        let memory = &device.memory;
        let bytes = self.width;
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
                report_uninitialized(device, b, bytes as u64);
                memory.read(b, a.at(to).bytes_mut(bytes))?;
            }
            (Location::Host(a), Location::Host(b)) => {
                // The program may pass overlapping memory, for which a direct copy would be
                // unsound.
                let copy = b.at(from).bytes(bytes).to_vec();
                a.at(to).bytes_mut(bytes).copy_from_slice(&copy);
            }
            (Location::Host(a), Location::Staged(b)) => a
                .at(to)
                .bytes_mut(bytes)
                .copy_from_slice(&b[from..from + bytes]),
            (Location::Staged(_), _) => {}
        }

        Ok(())
    }
}

/// Reports uninitialized bytes that are copied to the host.
///
/// On hardware the copy succeeds with arbitrary values, so this is a finding and does not make the
/// call fail.
fn report_uninitialized(device: &EmulatedDevice, address: u64, bytes: u64) {
    if let Ok(Some(at)) = device.memory.uninitialised(address, bytes) {
        let whose = device.memory.find(at);
        let whose = whose.map_or_else(String::new, |a| format!(" of `{}`", a.label));
        let text = format!(
            "UninitialisedCopy: a copy to the host reads 0x{at:x}{whose}, which was never written"
        );
        device.finding(text, &Details::default());
    }
}

impl FillWork {
    /// Returns the device memory that it writes.
    pub(crate) fn ranges(&self) -> Ranges {
        let bytes = (self.width * self.size) as u64;
        (0..self.height)
            .map(|y| (self.to + (y * self.pitch) as u64, bytes))
            .collect()
    }

    /// Returns an error if the element size, the alignment or the memory is invalid.
    pub(crate) fn check(&self, device: &EmulatedDevice) -> Result {
        require(matches!(self.size, 1 | 2 | 4), || {
            format!("elements of {} bytes: expected 1, 2 or 4", self.size)
        })?;
        require(self.to.is_multiple_of(self.size as u64), || {
            format!(
                "0x{:x} is not aligned to elements of {} bytes",
                self.to, self.size
            )
        })?;
        check_ranges(device, self.ranges().iter())
    }

    pub(crate) fn run(&self, device: &EmulatedDevice) -> Result {
        let pattern = self.value.to_le_bytes();
        for (address, _) in self.ranges() {
            device
                .memory
                .fill(address, &pattern[..self.size], self.width as u64)?;
        }
        Ok(())
    }
}

fn check_ranges<'a>(
    device: &EmulatedDevice,
    ranges: impl Iterator<Item = &'a (u64, u64)>,
) -> Result {
    for &(address, bytes) in ranges.filter(|range| range.1 > 0) {
        let inside = device
            .range(address)
            .is_some_and(|(base, of)| bytes <= of - (address - base));
        require(inside, || {
            format!("{bytes} bytes at 0x{address:x} do not lie within one live allocation")
        })?;
    }
    Ok(())
}
