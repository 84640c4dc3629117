//! Memory: allocation, registration and queries.

use std::ffi::{c_char, c_uint, c_void};

use ptx_emu::MemoryError;
use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::queue::{Task, Ticket};
use crate::state::objects::{Allocation, AllocationKind};
use crate::state::{State, capture};

exports! {
    table {
        3020 cuMemAlloc cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) => alloc;
        3020 cuMemFree cuMemFree_v2(address: CUdeviceptr) => free;
        3020 cuMemGetInfo cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => info;
        2020 cuMemHostAlloc cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: CUmemhostalloc_flags) => host_alloc;
        2000 cuMemFreeHost cuMemFreeHost(pointer: *mut c_void) => host_free;
        6050 cuMemHostRegister cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: CUmemhostregister_flags) => host_register;
        4000 cuMemHostUnregister cuMemHostUnregister(pointer: *mut c_void) => host_unregister;
        3020 cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) => host_device_pointer;
        11020 cuMemAllocAsync cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) => alloc_async;
        11020 cuMemFreeAsync cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) => free_async;
        0 emuMemSetLabel emuMemSetLabel(address: CUdeviceptr, label: *const c_char) => set_label;
        3020 cuMemAllocHost cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) => host_alloc_plain;
        3020 cuMemGetAddressRange cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) => address_range;
        2030 cuMemHostGetFlags cuMemHostGetFlags(flags: *mut CUmemhostalloc_flags, pointer: *mut c_void) => host_flags;
        4000 cuPointerGetAttribute cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr) => pointer_attribute;
    }
    more {}
}

/// The code for memory that the host cannot have.
pub(crate) fn refuse_memory<T>(error: MemoryError) -> Result<T> {
    let code = match error {
        MemoryError::OutOfMemory { .. } => CUresult::OUT_OF_MEMORY,
        _ => CUresult::INVALID_VALUE,
    };
    refuse(code, error.to_string())
}

fn alloc(m: &'static Machine, address: Out<CUdeviceptr>, bytes: usize) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!address.is_null() && bytes > 0, || format!("an allocation of {bytes} bytes"))?;
    let base = m.device.memory.alloc(bytes as u64).or_else(refuse_memory)?;
    s.allocations.insert(base, Allocation { context, kind: AllocationKind::Device });
    address.set(base)
}

/// Freeing waits for the work of the context, as the driver's does.
fn free(m: &'static Machine, address: CUdeviceptr) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    let known = s.allocations.get(&address).is_some_and(|a| a.kind == AllocationKind::Device);
    require(known, || format!("0x{address:x} is not the base of an allocation"))?;
    s.allocations.remove(&address);
    let waiting = s.outstanding(context);
    let sticky = s.contexts[context].sticky.clone();
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.memory.free(address).or_else(refuse_memory)?;
    Ok(sticky.check()?)
}

fn info(m: &'static Machine, free: Out<usize>, total: Out<usize>) -> Result {
    m.state().context()?;
    free.set_if((m.device.memory.capacity() - m.device.memory.used()) as usize);
    total.set_if(m.device.memory.capacity() as usize);
    Ok(())
}

fn host_alloc_plain(m: &'static Machine, pointer: Out<*mut c_void>, bytes: usize) -> Result {
    host_alloc(m, pointer, bytes, CUmemhostalloc_flags::empty())
}

fn host_alloc(
    m: &'static Machine,
    pointer: Out<*mut c_void>,
    bytes: usize,
    flags: CUmemhostalloc_flags,
) -> Result {
    require(CUmemhostalloc_flags::all().contains(flags), || {
        format!("the flags {:#x} are unknown", flags.bits())
    })?;
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!pointer.is_null() && bytes > 0, || format!("an allocation of {bytes} bytes"))?;
    let block = m.device.memory.alloc_host(bytes as u64).or_else(refuse_memory)?;
    s.allocations.insert(block.address(), Allocation { context, kind: AllocationKind::Host(flags) });
    // The program writes through this pointer, which is sound as the words it points to are atomics.
    pointer.set(block.words().as_ptr().cast_mut().cast())
}

fn host_free(m: &'static Machine, pointer: Out<c_void>) -> Result {
    let address = pointer.address() as u64;
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    s.host_allocation(address)?;
    s.allocations.remove(&address);
    let waiting = s.outstanding(context);
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.memory.free(address).or_else(refuse_memory)
}

/// Pins memory of the program, so that copies of it need not wait for the call that makes them.
fn host_register(
    m: &'static Machine,
    pointer: Out<c_void>,
    bytes: usize,
    flags: CUmemhostregister_flags,
) -> Result {
    let known = CUmemhostregister_flags::all().contains(flags);
    require(known, || format!("the flags {:#x} are unknown", flags.bits()))?;
    if flags.contains(CUmemhostregister_flags::IOMEMORY) {
        return refuse(CUresult::NOT_SUPPORTED, "memory of another device is not emulated");
    }
    let mut s = m.state();
    s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!pointer.is_null() && bytes > 0, || format!("{bytes} bytes to register"))?;
    let (start, bytes) = (pointer.address() as u64, bytes as u64);
    let end = start.saturating_add(bytes);
    let pinned = |at| m.device.memory.find(at).is_some();
    if s.registered.range(..end).any(|(at, len)| at + len > start) || pinned(start) || pinned(end - 1) {
        let text = format!("some of the {bytes} bytes at 0x{start:x} are pinned already");
        return refuse(CUresult::HOST_MEMORY_ALREADY_REGISTERED, text);
    }
    s.registered.insert(start, bytes);
    Ok(())
}

/// Waits for the work of the context, which may copy the memory, as freeing does.
fn host_unregister(m: &'static Machine, pointer: Out<c_void>) -> Result {
    let start = pointer.address() as u64;
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    if s.registered.remove(&start).is_none() {
        let text = format!("0x{start:x} is not the base of registered memory");
        return refuse(CUresult::HOST_MEMORY_NOT_REGISTERED, text);
    }
    let waiting = s.outstanding(context);
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    Ok(())
}

fn host_device_pointer(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    pointer: Out<c_void>,
    flags: c_uint,
) -> Result {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    let s = m.state();
    s.context()?;
    let at = pointer.address() as u64;
    if s.is_registered(at, 1) {
        return refuse(CUresult::NOT_SUPPORTED, "kernels do not reach registered memory here; copy it");
    }
    let base = m.device.memory.find(at).map_or(at, |a| a.base);
    s.host_allocation(base)?;
    address.set(at)
}

fn host_flags(m: &'static Machine, flags: Out<CUmemhostalloc_flags>, pointer: Out<c_void>) -> Result {
    let s = m.state();
    s.context()?;
    flags.set(s.host_allocation(pointer.address() as u64)?)
}

fn address_range(
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
        None => refuse(CUresult::NOT_FOUND, format!("0x{address:x} is in no allocation")),
    }
}

/// Context 1, memory type 2, device pointer 3, host pointer 4, device ordinal 9, range start 11, range size 12.
fn pointer_attribute(
    m: &'static Machine,
    data: Out<c_void>,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result {
    let s = m.state();
    s.context()?;
    let Some(found) = m.device.memory.find(address) else {
        return refuse(CUresult::INVALID_VALUE, format!("0x{address:x} is in no allocation"));
    };
    let owner = s.allocations.get(&found.base);
    let host = owner.is_some_and(|a| matches!(a.kind, AllocationKind::Host(_)));
    let kind = if host { CUmemorytype::HOST } else { CUmemorytype::DEVICE };
    match attribute.0 {
        1 => data.cast().set(owner.map_or(CUcontext::NULL, |a| a.context.handle())),
        2 => data.cast().set(kind.0),
        3 => data.cast().set(address),
        4 if host => data.cast().set(address),
        9 => data.cast().set(0),
        11 => data.cast().set(found.base),
        12 => data.cast().set(found.bytes),
        other => refuse(CUresult::INVALID_VALUE, format!("pointer attribute {other} is not emulated")),
    }
}

/// Names the allocation at an address in faults. No driver has this.
fn set_label(m: &'static Machine, address: CUdeviceptr, label: In<c_char>) -> Result {
    m.device.memory.set_label(address, label.text()?);
    Ok(())
}

fn alloc_async(m: &'static Machine, address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    require(!address.is_null() && bytes > 0, || format!("an allocation of {bytes} bytes"))?;
    let context = s.streams[stream].context;
    let base = m.device.memory.alloc(bytes as u64).or_else(refuse_memory)?;
    s.allocations.insert(base, Allocation { context, kind: AllocationKind::Device });
    address.set(base)
}

fn free_async(m: &'static Machine, address: CUdeviceptr, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    let known = s.allocations.get(&address).is_some_and(|a| a.kind == AllocationKind::Device);
    require(known, || format!("0x{address:x} is not the base of an allocation"))?;
    s.enqueue(stream, Task::Free(address))?;
    s.allocations.remove(&address);
    Ok(())
}

impl State {
    /// Whether memory of the program is pinned, all of it.
    pub(crate) fn is_registered(&self, start: u64, bytes: usize) -> bool {
        let last = self.registered.range(..=start).next_back();
        last.is_some_and(|(at, len)| start + bytes as u64 <= at + len)
    }

    /// The flags of the pinned allocation with this base.
    fn host_allocation(&self, address: u64) -> Result<CUmemhostalloc_flags> {
        match self.allocations.get(&address).map(|a| a.kind) {
            Some(AllocationKind::Host(flags)) => Ok(flags),
            _ => refuse(CUresult::INVALID_VALUE, format!("0x{address:x} is not the base of pinned memory")),
        }
    }
}
