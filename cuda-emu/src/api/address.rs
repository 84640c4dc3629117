//! Queries about addresses, and advice about managed memory.

use std::ffi::{c_int, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::device;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out, at};
use crate::machine::Machine;
use crate::state::objects::{Advice, AllocationKind};
use crate::state::pools::PoolPlace;
use crate::state::{DriverState, capture};

exports! {
    table {
        3020 cuMemGetAddressRange cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) => range;
        4000 cuPointerGetAttribute cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr) => get_attribute;
        7000 cuPointerGetAttributes cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, address: CUdeviceptr) => get_attributes;
        6000 cuPointerSetAttribute cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, address: CUdeviceptr) => set_attribute;
        8000 cuMemPrefetchAsync cuMemPrefetchAsync(address: CUdeviceptr, count: usize, to: CUdevice, stream: CUstream) => prefetch_to_device;
        12020 cuMemPrefetchAsync cuMemPrefetchAsync_v2(address: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) => prefetch;
        8000 cuMemAdvise cuMemAdvise(address: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) => advise_device;
        12020 cuMemAdvise cuMemAdvise_v2(address: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation) => advise;
        8000 cuMemRangeGetAttribute cuMemRangeGetAttribute(data: *mut c_void, data_bytes: usize, attribute: CUmem_range_attribute, address: CUdeviceptr, count: usize) => range_attribute;
        8000 cuMemRangeGetAttributes cuMemRangeGetAttributes(data: *mut *mut c_void, data_bytes: *mut usize, attributes: *mut CUmem_range_attribute, count: usize, address: CUdeviceptr, bytes: usize) => range_attributes;
        6000 cuStreamAttachMemAsync cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, length: usize, flags: CUmemAttach_flags) => attach;
    }
    more {}
}

fn range(
    m: &'static Machine,
    base: Out<CUdeviceptr>,
    bytes: Out<usize>,
    address: CUdeviceptr,
) -> Result {
    m.state().context()?;
    match m.device.memory.find(address) {
        Some(found) => {
            base.set_if(found.base);
            bytes.set_if(found.bytes as usize);
            Ok(())
        }
        None => refuse(
            CUresult::NOT_FOUND,
            format!("0x{address:x} is in no allocation"),
        ),
    }
}

/// The value of an attribute, with 4 or 8 bytes.
enum AttributeValue {
    Word(u32),
    Long(u64),
}

impl AttributeValue {
    fn write(self, data: Out<c_void>) -> Result {
        match self {
            Self::Word(value) => data.cast().set(value),
            Self::Long(value) => data.cast().set(value),
        }
    }
}

/// Returns the value of an attribute of an address. An address outside of all allocations has
/// neutral values.
fn value(
    s: &DriverState,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<AttributeValue> {
    use CUpointer_attribute as A;
    let found = s.device.memory.find(address);
    let base = found.as_ref().map_or(0, |a| a.base);

    // Registered memory of the program is known to the memory, but has neither an allocation record
    // nor a device.
    let owner = s.allocations.get(&base);
    let registered = found.is_some() && owner.is_none() && s.device.memory.owner(address).is_none();
    let pool = owner.and_then(|a| {
        if let AllocationKind::Pool(pool) = a.kind {
            Some(pool)
        } else {
            None
        }
    });
    let place = pool.and_then(|pool| Some(s.pools.get(pool)?.place));
    let managed = owner.is_some_and(|a| a.kind == AllocationKind::Managed)
        || place == Some(PoolPlace::Managed);
    let pinned = owner.is_some_and(|a| matches!(a.kind, AllocationKind::Host(_)));
    let host = registered || pinned || place == Some(PoolPlace::Host);
    let kind = if host {
        CUmemorytype::HOST.0
    } else {
        CUmemorytype::DEVICE.0
    };
    let device = s.device.memory.owner(address);
    let device = device.or(owner.and_then(|a| Some(s.contexts.get(a.context)?.reach.device)));
    let known = u32::from(found.is_some());
    let raw = |handle: *mut c_void| AttributeValue::Long(handle as u64);
    Ok(match attribute {
        A::CONTEXT => raw(owner.map_or(std::ptr::null_mut(), |a| a.context.handle().0)),
        A::MEMORY_TYPE => AttributeValue::Word(kind * known),
        A::DEVICE_POINTER => AttributeValue::Long(if known == 1 { address } else { 0 }),
        A::HOST_POINTER => AttributeValue::Long(if host || managed { address } else { 0 }),
        A::SYNC_MEMOPS | A::IS_LEGACY_CUDA_IPC_CAPABLE | A::IS_GPU_DIRECT_RDMA_CAPABLE => {
            AttributeValue::Word(0)
        }
        A::BUFFER_ID | A::MEMORY_BLOCK_ID => AttributeValue::Long(base),
        A::IS_MANAGED => AttributeValue::Word(managed.into()),
        A::DEVICE_ORDINAL => {
            AttributeValue::Word(device.unwrap_or(if known == 1 { 0 } else { -2i32 as u32 }))
        }
        A::RANGE_START_ADDR | A::MAPPING_BASE_ADDR => AttributeValue::Long(base),
        A::RANGE_SIZE | A::MAPPING_SIZE => AttributeValue::Long(found.map_or(0, |a| a.bytes)),
        A::MAPPED => AttributeValue::Word(known),
        A::ALLOWED_HANDLE_TYPES => AttributeValue::Long(0),
        A::ACCESS_FLAGS => AttributeValue::Word(CUmemAccess_flags::PROT_READWRITE.0 as u32 * known),
        A::MEMPOOL_HANDLE => raw(pool.map_or(std::ptr::null_mut(), |pool| pool.handle().0)),
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("pointer attribute {other:?} is not emulated"),
            );
        }
    })
}

fn get_attribute(
    m: &'static Machine,
    data: Out<c_void>,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result {
    let s = m.state();
    s.context()?;
    if m.device.memory.find(address).is_none() {
        return refuse(
            CUresult::INVALID_VALUE,
            format!("0x{address:x} is in no allocation"),
        );
    }

    let host = matches!(
        value(&s, CUpointer_attribute::HOST_POINTER, address)?,
        AttributeValue::Long(1..)
    );
    require(
        attribute != CUpointer_attribute::HOST_POINTER || host,
        || format!("0x{address:x} is memory of a device, which the host does not reach"),
    )?;
    value(&s, attribute, address)?.write(data)
}

/// Writes several attributes. Unlike for a single attribute, an address outside of all allocations
/// is not an error.
fn get_attributes(
    m: &'static Machine,
    count: c_uint,
    attributes: Out<CUpointer_attribute>,
    data: Out<*mut c_void>,
    address: CUdeviceptr,
) -> Result {
    let s = m.state();
    s.context()?;
    let wanted = attributes
        .slice(count as usize)?
        .iter()
        .zip(data.slice(count as usize)?);
    for (&attribute, &data) in wanted {
        value(&s, attribute, address)?.write(at(data))?;
    }

    Ok(())
}

/// Accepts the only attribute that can be set. It has no effect, because copies are synchronous
/// wherever the API says so.
fn set_attribute(
    m: &'static Machine,
    value: In<c_void>,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result {
    m.state().context()?;
    let settable = attribute == CUpointer_attribute::SYNC_MEMOPS && !value.is_null();
    require(settable, || {
        format!("pointer attribute {attribute:?} cannot be set")
    })?;
    require(m.device.memory.find(address).is_some(), || {
        format!("0x{address:x} is in no allocation")
    })
}

/// Returns the location for a device number of the older calls, where -1 is the host.
fn place(device: CUdevice) -> CUmemLocation {
    let kind = if device == -1 {
        CUmemLocationType::HOST
    } else {
        CUmemLocationType::DEVICE
    };
    CUmemLocation {
        r#type: kind,
        id: device.max(0),
    }
}

fn check_place(m: &Machine, location: CUmemLocation) -> Result {
    match location.r#type {
        CUmemLocationType::DEVICE => device::find(m, location.id).map(drop),
        CUmemLocationType::HOST
        | CUmemLocationType::HOST_NUMA
        | CUmemLocationType::HOST_NUMA_CURRENT => Ok(()),
        other => refuse(
            CUresult::INVALID_VALUE,
            format!("managed memory cannot be located at {other:?}"),
        ),
    }
}

/// Returns the advice for the managed allocation that contains the whole range.
fn advice_of(s: &mut DriverState, address: CUdeviceptr, count: usize) -> Result<&mut Advice> {
    let found = s.device.memory.find(address);
    let inside = found.filter(|a| count as u64 <= a.bytes - (address - a.base));
    match inside.and_then(|a| s.managed.get_mut(&a.base)) {
        Some(advice) if count > 0 => Ok(advice),
        _ => refuse(
            CUresult::INVALID_VALUE,
            format!("{count} bytes at 0x{address:x} do not lie within one managed allocation"),
        ),
    }
}

fn prefetch_to_device(
    m: &'static Machine,
    address: CUdeviceptr,
    count: usize,
    to: CUdevice,
    stream: CUstream,
) -> Result {
    prefetch(m, address, count, place(to), 0, stream)
}

/// Records a prefetch. It has no effect, because managed memory has only one copy here.
fn prefetch(
    m: &'static Machine,
    address: CUdeviceptr,
    count: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Result {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    check_place(m, location)?;
    let mut s = m.state();
    let stream = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    advice_of(&mut s, address, count)?.prefetched = Some(location);
    Ok(())
}

fn advise_device(
    m: &'static Machine,
    address: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Result {
    advise(m, address, count, advice, place(device))
}

fn advise(
    m: &'static Machine,
    address: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Result {
    use CUmem_advise as A;
    if matches!(
        advice,
        A::SET_PREFERRED_LOCATION | A::SET_ACCESSED_BY | A::UNSET_ACCESSED_BY
    ) {
        check_place(m, location)?;
    }

    let mut s = m.state();
    s.context()?;
    let known = advice_of(&mut s, address, count)?;
    match advice {
        A::SET_READ_MOSTLY => known.read_mostly = true,
        A::UNSET_READ_MOSTLY => known.read_mostly = false,
        A::SET_PREFERRED_LOCATION => known.preferred = Some(location),
        A::UNSET_PREFERRED_LOCATION => known.preferred = None,
        A::SET_ACCESSED_BY | A::UNSET_ACCESSED_BY => {
            // The locations are a set, so setting one twice must not list it twice.
            known
                .accessed_by
                .retain(|other| (other.r#type, other.id) != (location.r#type, location.id));
            if advice == A::SET_ACCESSED_BY {
                known.accessed_by.push(location);
            }
        }
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown advice {}", other.0),
            );
        }
    }

    Ok(())
}

/// Returns the device number of a location in the older attributes, where -1 is the host and -2
/// none.
fn number(location: Option<CUmemLocation>) -> c_int {
    match location {
        None => -2,
        Some(CUmemLocation {
            r#type: CUmemLocationType::DEVICE,
            id,
        }) => id,
        Some(_) => -1,
    }
}

fn range_attribute(
    m: &'static Machine,
    data: Out<c_void>,
    data_bytes: usize,
    attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    count: usize,
) -> Result {
    use CUmem_range_attribute as A;
    let mut s = m.state();
    s.context()?;
    let advice = advice_of(&mut s, address, count)?.clone();
    require(data_bytes >= 4 && data_bytes.is_multiple_of(4), || {
        format!("a result of {data_bytes} bytes: expected a multiple of 4")
    })?;
    let kind = |place: Option<CUmemLocation>| place.map_or(0, |place| place.r#type.0);
    let id = |place: Option<CUmemLocation>| place.map_or(0, |place| place.id);
    let values = match attribute {
        A::READ_MOSTLY => vec![advice.read_mostly.into()],
        A::PREFERRED_LOCATION => vec![number(advice.preferred)],
        A::LAST_PREFETCH_LOCATION => vec![number(advice.prefetched)],
        A::PREFERRED_LOCATION_TYPE => vec![kind(advice.preferred)],
        A::PREFERRED_LOCATION_ID => vec![id(advice.preferred)],
        A::LAST_PREFETCH_LOCATION_TYPE => vec![kind(advice.prefetched)],
        A::LAST_PREFETCH_LOCATION_ID => vec![id(advice.prefetched)],
        A::ACCESSED_BY => {
            // The API fills the rest of the list with -2, which is no device.
            let known = advice.accessed_by.iter().map(|place| number(Some(*place)));
            known
                .chain(std::iter::repeat(-2))
                .take(data_bytes / 4)
                .collect()
        }
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown range attribute {}", other.0),
            );
        }
    };
    require(!data.is_null(), || "the result pointer is NULL".into())?;
    data.cast().set_all(values);
    Ok(())
}

fn range_attributes(
    m: &'static Machine,
    data: Out<*mut c_void>,
    data_bytes: Out<usize>,
    attributes: Out<CUmem_range_attribute>,
    count: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> Result {
    let data = data.slice(count)?;
    let sizes = data_bytes.slice(count)?;
    for (i, attribute) in attributes.slice(count)?.iter().enumerate() {
        range_attribute(m, at(data[i]), sizes[i], *attribute, address, bytes)?;
    }
    Ok(())
}

/// Checks an attachment. It has no effect, because managed memory is always accessible here.
fn attach(
    m: &'static Machine,
    stream: CUstream,
    address: CUdeviceptr,
    _length: usize,
    flags: CUmemAttach_flags,
) -> Result {
    let known = CUmemAttach_flags::all().contains(flags) && flags.bits().count_ones() == 1;
    require(known, || format!("the flags are {:#x}", flags.bits()))?;
    let mut s = m.state();
    let stream = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    advice_of(&mut s, address, 1).map(drop)
}
