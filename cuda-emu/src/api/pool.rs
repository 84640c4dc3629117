//! Stream-ordered allocation, and memory pools.

use std::ffi::c_void;

use warpwright_driver_sys::*;

use crate::api::device;
use crate::api::export::exports;
use crate::api::memory::refuse_memory;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::handle::{PoolId, StreamId};
use crate::machine::Machine;
use crate::queue::Task;
use crate::state::objects::{AllocationKind, AllocationRecord};
use crate::state::pools::{Pool, PoolPlace};
use crate::state::{DriverState, capture};

exports! {
    table {
        11020 cuMemAllocAsync cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) => alloc_async;
        11020 cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) => alloc_from_pool;
        11020 cuMemFreeAsync cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) => free_async;
        11020 cuMemPoolCreate cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) => create;
        11020 cuMemPoolDestroy cuMemPoolDestroy(pool: CUmemoryPool) => destroy;
        11020 cuMemPoolTrimTo cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) => trim;
        11020 cuMemPoolGetAttribute cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) => get_attribute;
        11020 cuMemPoolSetAttribute cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) => set_attribute;
        11020 cuMemPoolGetAccess cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) => get_access;
        11020 cuMemPoolSetAccess cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) => set_access;
        11020 cuDeviceGetDefaultMemPool cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) => default_pool;
        11020 cuDeviceGetMemPool cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) => get_pool;
        11020 cuDeviceSetMemPool cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) => set_pool;
        13000 cuMemGetDefaultMemPool cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) => default_pool_of;
        13000 cuMemGetMemPool cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) => get_pool_of;
        13000 cuMemSetMemPool cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) => set_pool_of;
    }
    more {}
}

/// Allocates memory immediately, although the API orders it in the stream. Earlier work of the
/// stream cannot access it, because it does not know the address.
fn alloc_async(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    bytes: usize,
    stream: CUstream,
) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let device = s.contexts[s.streams[stream].context].reach.device;
    let pool = s.pools_of(PoolPlace::Device(device)).current;
    alloc(&mut s, address, bytes, pool, stream)
}

fn alloc_from_pool(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let pool = s.pools.find(pool)?;
    alloc(&mut s, address, bytes, pool, stream)
}

fn alloc(
    s: &mut DriverState,
    address: Out<CUdeviceptr>,
    bytes: usize,
    pool: PoolId,
    stream: StreamId,
) -> Result {
    require(!address.is_null() && bytes > 0, || {
        format!("the result pointer is NULL, or the allocation has {bytes} bytes")
    })?;
    if s.streams[stream].capture.is_some() {
        let PoolPlace::Device(device) = s.pools[pool].place else {
            return refuse(
                CUresult::NOT_SUPPORTED,
                "graphs can only allocate memory of devices",
            );
        };
        return address.set(capture::record_alloc(s, stream, device, bytes as u64)?);
    }

    let context = s.streams[stream].context;
    s.pools[pool].take(bytes as u64)?;
    let memory = &s.device.memory;
    let allocated = match s.pools[pool].place {
        PoolPlace::Device(device) => s.device.alloc(device, bytes as u64),
        PoolPlace::Host | PoolPlace::Managed => {
            memory.alloc_host(bytes as u64).map(|block| block.address())
        }
    };
    let allocated = allocated.or_else(refuse_memory);

    // The pool has counted the bytes already.
    if allocated.is_err() {
        s.pools[pool].used -= bytes as u64;
    }

    let base = allocated?;
    let allocation = AllocationRecord {
        context,
        kind: AllocationKind::Pool(pool),
        bytes: bytes as u64,
    };
    s.allocations.insert(base, allocation);
    address.set(base)
}

fn free_async(m: &'static Machine, address: CUdeviceptr, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    if s.streams[stream].capture.is_some() {
        return capture::record_free(&mut s, stream, address);
    }
    capture::refuse_implicit(&mut s, stream)?;
    s.forget(address)?;
    s.enqueue(stream, Task::Free(address)).map(drop)
}

/// Returns the kind of memory that a pool of some type at a location provides.
fn place(m: &Machine, location: CUmemLocation, kind: CUmemAllocationType) -> Result<PoolPlace> {
    use CUmemLocationType as L;
    match (kind, location.r#type) {
        (CUmemAllocationType::PINNED, L::DEVICE) => {
            device::find(m, location.id).map(|number| PoolPlace::Device(number as u32))
        }
        (CUmemAllocationType::PINNED, L::HOST | L::HOST_NUMA | L::HOST_NUMA_CURRENT) => {
            Ok(PoolPlace::Host)
        }
        (CUmemAllocationType::MANAGED, L::DEVICE) => {
            device::find(m, location.id).map(|_| PoolPlace::Managed)
        }
        (CUmemAllocationType::MANAGED, CUmemLocationType(0 | 2..=4)) => Ok(PoolPlace::Managed),
        (kind, place) => refuse(
            CUresult::INVALID_VALUE,
            format!("{kind:?} memory at {place:?} does not exist"),
        ),
    }
}

fn create(m: &'static Machine, pool: Out<CUmemoryPool>, properties: In<CUmemPoolProps>) -> Result {
    let p = properties.get()?;
    require(!pool.is_null(), || "the result pointer is NULL".into())?;
    if p.handleTypes != CUmemAllocationHandleType::NONE {
        let text = "pools shared with other processes are not emulated";
        return refuse(CUresult::NOT_SUPPORTED, text);
    }

    let place = place(m, p.location, p.allocType)?;
    pool.set(
        m.state()
            .pools
            .insert(Pool::at(place, p.maxSize as u64))
            .handle(),
    )
}

/// Destroys a pool. Its memory that is in use stays until it is freed.
fn destroy(m: &'static Machine, pool: CUmemoryPool) -> Result {
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    let default = s.place_pools.iter().any(|pools| pools.default == id);
    require(!default, || {
        "the default pool of a device cannot be destroyed".into()
    })?;
    for pools in s.place_pools.iter_mut().filter(|pools| pools.current == id) {
        pools.current = pools.default;
    }

    s.pools.remove(id);
    Ok(())
}

fn trim(m: &'static Machine, pool: CUmemoryPool, keep: usize) -> Result {
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    s.pools[id].trim(keep as u64);
    Ok(())
}

fn get_attribute(
    m: &'static Machine,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<c_void>,
) -> Result {
    let s = m.state();
    match s.pools[s.pools.find(pool)?].attribute(attribute) {
        Some(found) if attribute.0 <= 3 => value.cast().set(found as i32),
        Some(found) => value.cast().set(found),
        None => refuse(
            CUresult::INVALID_VALUE,
            format!("pool attribute {attribute:?} is not emulated"),
        ),
    }
}

fn set_attribute(
    m: &'static Machine,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<c_void>,
) -> Result {
    let value = if attribute.0 <= 3 {
        value.cast::<i32>().get()? as u64
    } else {
        value.cast::<u64>().get()?
    };
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    s.pools[id].set_attribute(attribute, value)
}

/// Returns true if a location has access to the memory of a pool.
fn reaches(m: &Machine, pool: &Pool, location: CUmemLocation) -> Result<bool> {
    match (pool.place, location.r#type) {
        (PoolPlace::Device(own), CUmemLocationType::DEVICE) => {
            Ok(device::find(m, location.id)? as u32 == own)
        }
        (PoolPlace::Device(_), _) => Ok(false),
        (PoolPlace::Host | PoolPlace::Managed, _) => Ok(true),
    }
}

fn get_access(
    m: &'static Machine,
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: Out<CUmemLocation>,
) -> Result {
    let s = m.state();
    let own = reaches(m, &s.pools[s.pools.find(pool)?], location.get()?)?;
    flags.set(if own {
        CUmemAccess_flags::PROT_READWRITE
    } else {
        CUmemAccess_flags::PROT_NONE
    })
}

fn set_access(
    m: &'static Machine,
    pool: CUmemoryPool,
    access: In<CUmemAccessDesc>,
    count: usize,
) -> Result {
    let s = m.state();
    let pool = &s.pools[s.pools.find(pool)?];
    for access in access.slice(count)? {
        if reaches(m, pool, access.location)? != (access.flags == CUmemAccess_flags::PROT_READWRITE)
        {
            return refuse(
                CUresult::NOT_SUPPORTED,
                "changing access to a pool is not emulated: enable peer access of contexts",
            );
        }
    }

    Ok(())
}

fn default_pool(m: &'static Machine, pool: Out<CUmemoryPool>, dev: CUdevice) -> Result {
    let device = device::find(m, dev)?;
    pool.set(
        m.state()
            .pools_of(PoolPlace::Device(device as u32))
            .default
            .handle(),
    )
}

fn get_pool(m: &'static Machine, pool: Out<CUmemoryPool>, dev: CUdevice) -> Result {
    let device = device::find(m, dev)?;
    pool.set(
        m.state()
            .pools_of(PoolPlace::Device(device as u32))
            .current
            .handle(),
    )
}

fn set_pool(m: &'static Machine, dev: CUdevice, pool: CUmemoryPool) -> Result {
    let device = device::find(m, dev)?;
    set_current(m, PoolPlace::Device(device as u32), pool)
}

fn set_current(m: &'static Machine, place: PoolPlace, pool: CUmemoryPool) -> Result {
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    require(s.pools[id].place == place, || {
        "the pool provides memory of another location".into()
    })?;
    s.pools_of(place).current = id;
    Ok(())
}

fn default_pool_of(
    m: &'static Machine,
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Result {
    let place = place(m, location.get()?, kind)?;
    pool.set(m.state().pools_of(place).default.handle())
}

fn get_pool_of(
    m: &'static Machine,
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Result {
    let place = place(m, location.get()?, kind)?;
    pool.set(m.state().pools_of(place).current.handle())
}

fn set_pool_of(
    m: &'static Machine,
    location: Out<CUmemLocation>,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Result {
    set_current(m, place(m, location.get()?, kind)?, pool)
}
