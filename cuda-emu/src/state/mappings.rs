//! Virtual memory management: address ranges, physical memory, and mappings.

use std::collections::BTreeMap;
use std::ops::Range;

use ptx_emu::UnmappedMemory;
use warpwright_driver_sys::CUresult;

use crate::error::{Result, refuse};

/// The reserved address ranges, the physical memory, and its mappings.
#[derive(Default)]
pub(crate) struct Mappings {
    /// The size of each reserved range, by its address.
    pub(crate) ranges: BTreeMap<u64, u64>,
    pub(crate) physical: BTreeMap<u64, Physical>,
    /// The mappings, by address.
    pub(crate) mapped: BTreeMap<u64, Mapping>,
    made: u64,
}

/// Physical memory of a device, which has no address until it is mapped.
pub(crate) struct Physical {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    /// The number of handles that the program has.
    pub(crate) handles: u64,
    pub(crate) is_mapped: bool,
    /// The contents when it was last unmapped.
    pub(crate) held: Option<UnmappedMemory>,
}

/// A mapping of physical memory at an address.
pub(crate) struct Mapping {
    pub(crate) handle: u64,
    pub(crate) bytes: u64,
    /// Whether its device may access it.
    pub(crate) is_open: bool,
}

/// The high bits of handles of physical memory. No address and no other handle has them.
const TAG: u64 = 0x6e << 56;

impl Mappings {
    /// Adds physical memory and returns its handle.
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
                format!("{handle:#x} is not a handle of physical memory"),
            ),
        }
    }

    /// Returns true if these addresses are within one reserved range.
    pub(crate) fn is_reserved(&self, addresses: &Range<u64>) -> bool {
        let range = self.ranges.range(..=addresses.start).next_back();
        range.is_some_and(|(base, bytes)| addresses.end <= base + bytes)
    }

    /// Returns the addresses of the mappings that overlap these addresses.
    pub(crate) fn meeting(&self, addresses: &Range<u64>) -> Vec<u64> {
        let meets = |(base, mapping): &(&u64, &Mapping)| **base + mapping.bytes > addresses.start;
        self.mapped
            .range(..addresses.end)
            .filter(meets)
            .map(|(base, _)| *base)
            .collect()
    }

    /// Returns the addresses of the mappings that cover exactly these addresses.
    ///
    /// # Errors
    /// Returns an error if the addresses have gaps or cut a mapping.
    pub(crate) fn whole(&self, addresses: &Range<u64>) -> Result<Vec<u64>> {
        let found = self.meeting(addresses);
        let covered: u64 = found.iter().map(|base| self.mapped[base].bytes).sum();
        if found.first() == Some(&addresses.start) && covered == addresses.end - addresses.start {
            return Ok(found);
        }

        let text = format!(
            "{:#x} to {:#x} do not consist of whole mappings",
            addresses.start, addresses.end
        );
        refuse(CUresult::INVALID_VALUE, text)
    }
}
