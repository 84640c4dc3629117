//! Memory in stream order, and the pools it comes from.

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
use crate::state::objects::{Allocation, AllocationKind};
use crate::state::pools::Pool;
use crate::state::{State, capture};

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

/// The memory exists at once; what the stream does before cannot touch it, as it does not know the address.
fn alloc_async(m: &'static Machine, address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let device = s.contexts[s.streams[stream].context].reach.device;
    let pool = s.pool_of(device);
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

fn alloc(s: &mut State, address: Out<CUdeviceptr>, bytes: usize, pool: PoolId, stream: StreamId) -> Result {
    require(!address.is_null() && bytes > 0, || format!("an allocation of {bytes} bytes"))?;
    if s.streams[stream].capture.is_some() {
        let device = s.pools[pool].device;
        return address.set(capture::record_alloc(s, stream, device, bytes as u64)?);
    }
    let context = s.streams[stream].context;
    s.pools[pool].take(bytes as u64)?;
    let made = s.device.memory.alloc_on(s.pools[pool].device, bytes as u64).or_else(refuse_memory);
    if made.is_err() {
        s.pools[pool].used -= bytes as u64;
    }
    let base = made?;
    let allocation = Allocation { context, kind: AllocationKind::Pool(pool), bytes: bytes as u64 };
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

/// The number of the device that a location names.
fn device_of(m: &Machine, location: CUmemLocation) -> Result<u32> {
    if location.r#type != CUmemLocationType::DEVICE {
        let text =
            format!("pools of memory at {:?} are not emulated, only those of devices", location.r#type);
        return refuse(CUresult::NOT_SUPPORTED, text);
    }
    device::find(m, location.id).map(|number| number as u32)
}

fn create(m: &'static Machine, pool: Out<CUmemoryPool>, properties: In<CUmemPoolProps>) -> Result {
    let p = properties.get()?;
    require(!pool.is_null(), || "the result pointer is NULL".into())?;
    require(
        p.allocType == CUmemAllocationType::PINNED || p.allocType == CUmemAllocationType::MANAGED,
        || format!("there is no kind of allocation {:?}", p.allocType),
    )?;
    if p.allocType != CUmemAllocationType::PINNED || p.handleTypes != CUmemAllocationHandleType::NONE {
        let text = "pools of managed memory, and pools shared with other processes, are not emulated";
        return refuse(CUresult::NOT_SUPPORTED, text);
    }
    let device = device_of(m, p.location)?;
    pool.set(m.state().pools.insert(Pool::on(device, p.maxSize as u64)).handle())
}

/// Memory of the pool that is in use stays until it is freed.
fn destroy(m: &'static Machine, pool: CUmemoryPool) -> Result {
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    let default = s.device_pools.iter().any(|pools| pools.default == id);
    require(!default, || "the default pool of a device cannot be destroyed".into())?;
    for pools in s.device_pools.iter_mut().filter(|pools| pools.current == id) {
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
        None => refuse(CUresult::INVALID_VALUE, format!("pool attribute {attribute:?} is not emulated")),
    }
}

fn set_attribute(
    m: &'static Machine,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<c_void>,
) -> Result {
    let value =
        if attribute.0 <= 3 { value.cast::<i32>().get()? as u64 } else { value.cast::<u64>().get()? };
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    s.pools[id].set_attribute(attribute, value)
}

fn get_access(
    m: &'static Machine,
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: Out<CUmemLocation>,
) -> Result {
    let device = device_of(m, location.get()?)?;
    let s = m.state();
    let own = s.pools[s.pools.find(pool)?].device == device;
    flags.set(if own { CUmemAccess_flags::PROT_READWRITE } else { CUmemAccess_flags::PROT_NONE })
}

fn set_access(m: &'static Machine, pool: CUmemoryPool, access: In<CUmemAccessDesc>, count: usize) -> Result {
    let s = m.state();
    let own = s.pools[s.pools.find(pool)?].device;
    for access in access.slice(count)? {
        let same = device_of(m, access.location)? == own;
        if same != (access.flags == CUmemAccess_flags::PROT_READWRITE) {
            return refuse(
                CUresult::NOT_SUPPORTED,
                "memory of a pool is reached by its device, and by others through peer access of contexts only",
            );
        }
    }
    Ok(())
}

fn default_pool(m: &'static Machine, pool: Out<CUmemoryPool>, dev: CUdevice) -> Result {
    let device = device::find(m, dev)?;
    pool.set(m.state().device_pools[device].default.handle())
}

fn get_pool(m: &'static Machine, pool: Out<CUmemoryPool>, dev: CUdevice) -> Result {
    let device = device::find(m, dev)?;
    pool.set(m.state().device_pools[device].current.handle())
}

fn set_pool(m: &'static Machine, dev: CUdevice, pool: CUmemoryPool) -> Result {
    let device = device::find(m, dev)?;
    let mut s = m.state();
    let id = s.pools.find(pool)?;
    require(s.pools[id].device as usize == device, || "the pool belongs to another device".into())?;
    s.device_pools[device].current = id;
    Ok(())
}

/// The device of a location whose pools of pinned memory a call is about.
fn pinned_on(m: &Machine, location: Out<CUmemLocation>, kind: CUmemAllocationType) -> Result<CUdevice> {
    let device = device_of(m, location.get()?)?;
    if kind != CUmemAllocationType::PINNED {
        return refuse(CUresult::NOT_SUPPORTED, "pools of managed memory are not emulated");
    }
    Ok(device as CUdevice)
}

fn default_pool_of(
    m: &'static Machine,
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Result {
    default_pool(m, pool, pinned_on(m, location, kind)?)
}

fn get_pool_of(
    m: &'static Machine,
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Result {
    get_pool(m, pool, pinned_on(m, location, kind)?)
}

fn set_pool_of(
    m: &'static Machine,
    location: Out<CUmemLocation>,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Result {
    set_pool(m, pinned_on(m, location, kind)?, pool)
}
