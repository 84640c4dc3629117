//! Virtual memory management: reserving addresses, creating memory, and mapping it.
//!
//! Memory can be mapped at one address at a time, and only its own device can access it.

use std::ffi::c_void;
use std::ops::Range;

use warpwright_driver_sys::*;

use crate::api::device;
use crate::api::export::exports;
use crate::api::memory::refuse_memory;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::state::DriverState;
use crate::state::mappings::{Mapping, Physical};

exports! {
    table {
        10020 cuMemAddressReserve cuMemAddressReserve(address: *mut CUdeviceptr, size: usize, alignment: usize, wanted: CUdeviceptr, flags: u64) => reserve;
        10020 cuMemAddressFree cuMemAddressFree(address: CUdeviceptr, size: usize) => free_addresses;
        10020 cuMemCreate cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, properties: *const CUmemAllocationProp, flags: u64) => create;
        10020 cuMemRelease cuMemRelease(handle: CUmemGenericAllocationHandle) => release;
        10020 cuMemMap cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) => map;
        10020 cuMemUnmap cuMemUnmap(address: CUdeviceptr, size: usize) => unmap;
        10020 cuMemSetAccess cuMemSetAccess(address: CUdeviceptr, size: usize, access: *const CUmemAccessDesc, count: usize) => set_access;
        10020 cuMemGetAccess cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, address: CUdeviceptr) => get_access;
        10020 cuMemGetAllocationGranularity cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags) => get_granularity;
        10020 cuMemGetAllocationPropertiesFromHandle cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) => get_properties;
        11000 cuMemRetainAllocationHandle cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) => retain;
    }
    more {}
}

/// The alignment of sizes and addresses, as on real devices.
const GRANULARITY: usize = 2 << 20;

fn expect_granular(what: &str, size: usize) -> Result {
    let fits = size > 0 && size.is_multiple_of(GRANULARITY);
    require(fits, || {
        format!("{what} of {size} bytes: expected a positive multiple of {GRANULARITY}")
    })
}

fn addresses(start: u64, size: usize) -> Range<u64> {
    start..start.saturating_add(size as u64)
}

/// Reserves addresses. The wanted address is only a hint, which is ignored.
fn reserve(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    size: usize,
    alignment: usize,
    _wanted: CUdeviceptr,
    flags: u64,
) -> Result {
    expect_granular("addresses", size)?;
    let known = (alignment == 0 || alignment.is_power_of_two()) && flags == 0;
    require(known && !address.is_null(), || {
        format!("an alignment of {alignment} and flags {flags}: expected a power of two and 0")
    })?;
    let align = alignment.max(GRANULARITY) as u64;
    let base = m
        .device
        .memory
        .reserve_range(size as u64, align)
        .or_else(refuse_memory)?;
    m.state().mappings.ranges.insert(base, size as u64);
    address.set(base)
}

fn free_addresses(m: &'static Machine, address: CUdeviceptr, size: usize) -> Result {
    let mappings = &mut m.state().mappings;
    let whole = mappings.ranges.get(&address) == Some(&(size as u64));
    let empty = mappings.meeting(&addresses(address, size)).is_empty();
    require(whole && empty, || {
        format!("{size} bytes at {address:#x} are not a reserved range without mappings")
    })?;
    mappings.ranges.remove(&address);
    Ok(())
}

/// Returns the device for these properties.
fn device_of(m: &'static Machine, properties: In<CUmemAllocationProp>) -> Result<u32> {
    let p = properties.get()?;
    if p.requestedHandleTypes != CUmemAllocationHandleType::NONE {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "memory shared with other processes is not emulated",
        );
    }

    if (p.r#type, p.location.r#type) != (CUmemAllocationType::PINNED, CUmemLocationType::DEVICE) {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "mapping is only emulated for pinned memory of devices",
        );
    }

    device::find(m, p.location.id).map(|device| device as u32)
}

fn get_granularity(
    m: &'static Machine,
    granularity: Out<usize>,
    properties: In<CUmemAllocationProp>,
    option: CUmemAllocationGranularity_flags,
) -> Result {
    device_of(m, properties)?;
    require(matches!(option.0, 0 | 1), || {
        format!("unknown granularity {option:?}")
    })?;
    granularity.set(GRANULARITY)
}

fn create(
    m: &'static Machine,
    handle: Out<CUmemGenericAllocationHandle>,
    size: usize,
    properties: In<CUmemAllocationProp>,
    flags: u64,
) -> Result {
    require(flags == 0 && !handle.is_null(), || {
        format!("the flags are {flags}, not 0, or the result pointer is NULL")
    })?;
    let device = device_of(m, properties)?;
    expect_granular("memory", size)?;
    m.device
        .memory
        .hold(device, size as u64)
        .or_else(refuse_memory)?;
    let physical = Physical {
        device,
        bytes: size as u64,
        handles: 1,
        is_mapped: false,
        held: None,
    };
    handle.set(m.state().mappings.add(physical))
}

/// Releases a handle. Mapped memory stays until it is unmapped.
fn release(m: &'static Machine, handle: CUmemGenericAllocationHandle) -> Result {
    let mut s = m.state();
    s.mappings.find(handle)?.handles -= 1;
    give_back(m, &mut s, handle);
    Ok(())
}

/// Frees memory that has no handles and is not mapped.
fn give_back(m: &'static Machine, s: &mut DriverState, handle: u64) {
    let unused = |physical: &&Physical| physical.handles == 0 && !physical.is_mapped;
    if let Some(physical) = s.mappings.physical.get(&handle).filter(unused) {
        m.device.memory.give(physical.device, physical.bytes);
        s.mappings.physical.remove(&handle);
    }
}

fn map(
    m: &'static Machine,
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Result {
    let mappings = &mut m.state().mappings;
    let at = addresses(address, size);
    let physical = mappings.find(handle)?;
    let bytes = physical.bytes;
    let elsewhere = physical.is_mapped;
    require(bytes == size as u64 && offset == 0 && flags == 0, || {
        format!(
            "{size} bytes at offset {offset} of {bytes}: memory is mapped as a whole, without flags"
        )
    })?;
    if elsewhere {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "mapping memory at two addresses is not emulated",
        );
    }

    let free = mappings.is_reserved(&at) && mappings.meeting(&at).is_empty();
    let aligned = address.is_multiple_of(GRANULARITY as u64);
    require(free && aligned, || {
        format!("{size} bytes at {address:#x} are not reserved, not aligned, or already mapped")
    })?;

    // The mapping has no access rights until `cuMemSetAccess` grants them.
    mappings.find(handle)?.is_mapped = true;
    mappings.mapped.insert(
        address,
        Mapping {
            handle,
            bytes,
            is_open: false,
        },
    );
    Ok(())
}

/// Unmaps memory without waiting. Work that still uses the memory faults.
fn unmap(m: &'static Machine, address: CUdeviceptr, size: usize) -> Result {
    let mut s = m.state();
    for base in s.mappings.whole(&addresses(address, size))? {
        let Some(mapping) = s.mappings.mapped.remove(&base) else {
            continue;
        };

        // The contents stay with the physical memory, for the next mapping.
        let held = if mapping.is_open {
            Some(m.device.memory.take_away(base).or_else(refuse_memory)?)
        } else {
            None
        };
        if let Some(physical) = s.mappings.physical.get_mut(&mapping.handle) {
            physical.is_mapped = false;
            physical.held = held.or(physical.held.take());
        }

        give_back(m, &mut s, mapping.handle);
    }
    Ok(())
}

fn set_access(
    m: &'static Machine,
    address: CUdeviceptr,
    size: usize,
    access: In<CUmemAccessDesc>,
    count: usize,
) -> Result {
    let mut s = m.state();
    let bases = s.mappings.whole(&addresses(address, size))?;
    for access in access.slice(count)? {
        let device = device::find(m, access.location.id)? as u32;
        let owned = bases.iter().all(|base| owner(&s, *base) == Some(device));
        let is_device = access.location.r#type == CUmemLocationType::DEVICE;
        if !is_device || !owned || access.flags != CUmemAccess_flags::PROT_READWRITE {
            let text =
                "access of other devices to mapped memory, or read-only access, is not emulated";
            return refuse(CUresult::NOT_SUPPORTED, text);
        }
    }

    if count > 0 {
        for base in bases {
            open(m, &mut s, base)?;
        }
    }

    Ok(())
}

fn owner(s: &DriverState, base: u64) -> Option<u32> {
    Some(
        s.mappings
            .physical
            .get(&s.mappings.mapped.get(&base)?.handle)?
            .device,
    )
}

/// Lets the device access a mapping.
fn open(m: &'static Machine, s: &mut DriverState, base: u64) -> Result {
    let Some(device) = owner(s, base) else {
        return Ok(());
    };
    let Some(mapping) = s.mappings.mapped.get_mut(&base) else {
        return Ok(());
    };

    if !mapping.is_open {
        let physical = s.mappings.physical.get(&mapping.handle);
        let held = physical.and_then(|physical| physical.held.as_ref());
        m.device
            .memory
            .put(base, device, mapping.bytes, held)
            .or_else(refuse_memory)?;
        mapping.is_open = true;
    }

    Ok(())
}

/// Returns the mapping at an address and its base.
fn mapping_at(s: &DriverState, address: u64) -> Result<(u64, &Mapping)> {
    let found = s.mappings.meeting(&addresses(address, 1)).first().copied();
    match found.and_then(|base| Some((base, s.mappings.mapped.get(&base)?))) {
        Some(found) => Ok(found),
        None => refuse(
            CUresult::INVALID_VALUE,
            format!("nothing is mapped at {address:#x}"),
        ),
    }
}

fn get_access(
    m: &'static Machine,
    flags: Out<u64>,
    location: In<CUmemLocation>,
    address: CUdeviceptr,
) -> Result {
    let s = m.state();
    let location = location.get()?;
    let device = device::find(m, location.id)? as u32;
    let (base, mapping) = mapping_at(&s, address)?;
    let open = mapping.is_open && owner(&s, base) == Some(device);
    let access = if open {
        CUmemAccess_flags::PROT_READWRITE
    } else {
        CUmemAccess_flags::PROT_NONE
    };
    flags.set(access.0 as u64)
}

fn get_properties(
    m: &'static Machine,
    properties: Out<CUmemAllocationProp>,
    handle: CUmemGenericAllocationHandle,
) -> Result {
    let device = m.state().mappings.find(handle)?.device;
    let location = CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: device as i32,
    };
    properties.set(CUmemAllocationProp {
        r#type: CUmemAllocationType::PINNED,
        location,
        ..CUmemAllocationProp::zeroed()
    })
}

/// Returns another handle of the memory that is mapped at an address.
fn retain(
    m: &'static Machine,
    handle: Out<CUmemGenericAllocationHandle>,
    address: Out<c_void>,
) -> Result {
    let mut s = m.state();
    let known = mapping_at(&s, address.address() as u64)?.1.handle;
    if let Some(physical) = s.mappings.physical.get_mut(&known) {
        physical.handles += 1;
    }
    handle.set(known)
}
