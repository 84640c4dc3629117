//! Virtual memory: ranges of addresses, physical memory, and where it is mapped.

use std::collections::BTreeMap;
use std::ops::Range;

use ptx_emu::UnmappedMemory;
use warpwright_driver_sys::CUresult;

use crate::error::{Result, refuse};

/// Ranges of addresses, physical memory, and where it is mapped.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Reserved addresses: where each range begins, and its bytes.
    pub(crate) ranges: BTreeMap<u64, u64>,
    pub(crate) physical: BTreeMap<u64, Physical>,
    /// What is mapped, by address.
    pub(crate) mapped: BTreeMap<u64, Mapping>,
    made: u64,
}

/// Memory of a device without an address of its own.
pub(crate) struct Physical {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    /// Handles that the program has of it.
    pub(crate) handles: u64,
    pub(crate) is_mapped: bool,
    /// What it held when it was unmapped last.
    pub(crate) held: Option<UnmappedMemory>,
}

/// Physical memory at an address.
pub(crate) struct Mapping {
    pub(crate) handle: u64,
    pub(crate) bytes: u64,
    /// Whether its device may touch it.
    pub(crate) is_open: bool,
}

/// What the handles of physical memory begin with: no address and no other handle does.
const TAG: u64 = 0x6e << 56;

impl Mappings {
    /// Remembers memory, and gives its handle.
    pub(crate) fn add(&mut self, physical: Physical) -> u64 {
        self.made += 1;
        self.physical.insert(TAG | self.made, physical);
        TAG | self.made
    }

    pub(crate) fn find(&mut self, handle: u64) -> Result<&mut Physical> {
        match self
            .physical
            .get_mut(&handle)
            .filter(|physical| physical.handles > 0)
        {
            Some(physical) => Ok(physical),
            None => refuse(
                CUresult::INVALID_VALUE,
                format!("{handle:#x} is no handle of memory"),
            ),
        }
    }

    /// Whether these addresses are of one range.
    pub(crate) fn is_reserved(&self, addresses: &Range<u64>) -> bool {
        let range = self.ranges.range(..=addresses.start).next_back();
        range.is_some_and(|(base, bytes)| addresses.end <= base + bytes)
    }

    /// The addresses of the mappings that these addresses meet.
    pub(crate) fn meeting(&self, addresses: &Range<u64>) -> Vec<u64> {
        let meets = |(base, mapping): &(&u64, &Mapping)| **base + mapping.bytes > addresses.start;
        self.mapped
            .range(..addresses.end)
            .filter(meets)
            .map(|(base, _)| *base)
            .collect()
    }

    /// The addresses of the mappings that these addresses are made of, whole and without a gap.
    pub(crate) fn whole(&self, addresses: &Range<u64>) -> Result<Vec<u64>> {
        let found = self.meeting(addresses);
        let covered: u64 = found.iter().map(|base| self.mapped[base].bytes).sum();
        if found.first() == Some(&addresses.start) && covered == addresses.end - addresses.start {
            return Ok(found);
        }
        let text = format!(
            "{:#x} to {:#x} are no whole mappings",
            addresses.start, addresses.end
        );
        refuse(CUresult::INVALID_VALUE, text)
    }
}
