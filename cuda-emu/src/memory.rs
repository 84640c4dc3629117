//! Memory: allocation, copies and fills.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use ptx_emu::MemoryError;
use warpwright_driver_sys::*;

use crate::capture;
use crate::context::Context;
use crate::ffi::{In, Out, Result, exports, refuse, require};
use crate::handle::Id;
use crate::machine::Machine;
use crate::queue::{Task, Ticket};
use crate::work::{CopyEnd, CopyWork, FillWork, Location, Work};

/// What the driver knows about an allocation in addition to its bytes.
pub(crate) struct Allocation {
    pub(crate) context: Id<Context>,
    kind: AllocationKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AllocationKind {
    Device,
    Host(CUmemhostalloc_flags),
}

exports! {
    required {
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
        3020 cuMemcpyHtoD cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) => copy_to_device;
        3020 cuMemcpyDtoH cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) => copy_to_host;
        3020 cuMemcpyDtoD cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy_on_device;
        3020 cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) => copy_to_device_async;
        3020 cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy_to_host_async;
        3020 cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy_on_device_async;
        3020 cuMemsetD8 cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) => fill_8;
        3020 cuMemsetD16 cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) => fill_16;
        3020 cuMemsetD32 cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) => fill_32;
        3020 cuMemsetD8Async cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) => fill_8_async;
        3020 cuMemsetD16Async cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) => fill_16_async;
        3020 cuMemsetD32Async cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) => fill_32_async;
    }
    optional {
        0 emuMemSetLabel emuMemSetLabel(address: CUdeviceptr, label: *const c_char) => set_label;
    }
    more {
        3020 cuMemAllocHost cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) => host_alloc_plain;
        3020 cuMemGetAddressRange cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) => address_range;
        2030 cuMemHostGetFlags cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) => host_flags;
        4000 cuMemcpy cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy_unified;
        4000 cuMemcpyAsync cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy_unified_async;
        4000 cuPointerGetAttribute cuPointerGetAttribute(data: *mut c_void, attribute: c_int, address: CUdeviceptr) => pointer_attribute;
    }
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
    let base = m.memory.alloc(bytes as u64).or_else(refuse_memory)?;
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
    m.memory.free(address).or_else(refuse_memory)?;
    Ok(sticky.check()?)
}

fn info(m: &'static Machine, free: Out<usize>, total: Out<usize>) -> Result {
    m.state().context()?;
    free.set_if((m.memory.capacity() - m.memory.used()) as usize);
    total.set_if(m.memory.capacity() as usize);
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
    let block = m.memory.alloc_host(bytes as u64).or_else(refuse_memory)?;
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
    m.memory.free(address).or_else(refuse_memory)
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
    let pinned = |at| m.memory.find(at).is_some();
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

impl crate::state::State {
    /// Whether memory of the program is pinned, all of it.
    fn is_registered(&self, start: u64, bytes: usize) -> bool {
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
    let base = m.memory.find(at).map_or(at, |a| a.base);
    s.host_allocation(base)?;
    address.set(at)
}

fn host_flags(m: &'static Machine, flags: Out<c_uint>, pointer: Out<c_void>) -> Result {
    let s = m.state();
    s.context()?;
    flags.set(s.host_allocation(pointer.address() as u64)?.bits())
}

fn address_range(
    m: &'static Machine,
    base: Out<CUdeviceptr>,
    bytes: Out<usize>,
    address: CUdeviceptr,
) -> Result {
    m.state().context()?;
    match m.memory.find(address) {
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
    attribute: c_int,
    address: CUdeviceptr,
) -> Result {
    let s = m.state();
    s.context()?;
    let Some(found) = m.memory.find(address) else {
        return refuse(CUresult::INVALID_VALUE, format!("0x{address:x} is in no allocation"));
    };
    let owner = s.allocations.get(&found.base);
    let host = owner.is_some_and(|a| matches!(a.kind, AllocationKind::Host(_)));
    let kind = if host { CUmemorytype::HOST } else { CUmemorytype::DEVICE };
    match attribute {
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
    m.memory.set_label(address, label.text()?);
    Ok(())
}

fn alloc_async(m: &'static Machine, address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    require(!address.is_null() && bytes > 0, || format!("an allocation of {bytes} bytes"))?;
    let context = s.streams[stream].context;
    let base = m.memory.alloc(bytes as u64).or_else(refuse_memory)?;
    s.allocations.insert(base, Allocation { context, kind: AllocationKind::Device });
    address.set(base)
}

fn free_async(m: &'static Machine, address: CUdeviceptr, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    let known = s.allocations.get(&address).is_some_and(|a| a.kind == AllocationKind::Device);
    require(known, || format!("0x{address:x} is not the base of an allocation"))?;
    s.enqueue(stream, Task::Free(address))?;
    s.allocations.remove(&address);
    Ok(())
}

/// Runs a copy or a fill before the call returns, after the work of the legacy stream.
fn run_now(m: &'static Machine, work: Work) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    check(m, &work)?;
    let waiting = s.before_synchronous(m, context)?;
    let sticky = s.contexts[context].sticky.clone();
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    sticky.check()?;
    work.run(m, None).map(drop).or_else(|error| refuse(CUresult::INVALID_VALUE, error.text))
}

fn check(m: &'static Machine, work: &Work) -> Result {
    match work {
        Work::Copy(copy) => copy.check(m),
        Work::Fill(fill) => fill.check(m),
        _ => Ok(()),
    }
}

/// Gives a copy or a fill to a stream. A copy to memory that is not pinned has ended when the call returns.
fn run_async(m: &'static Machine, stream: CUstream, work: Work) -> Result {
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    check(m, &work)?;
    let pageable = match &work {
        Work::Copy(CopyWork { to: CopyEnd { place: Location::Host(span), .. }, width, .. }) => {
            !s.is_registered(span.address(), *width)
        }
        _ => false,
    };
    let ticket = s.submit(stream, work)?;
    let sticky = s.contexts[s.streams[stream].context].sticky.clone();
    drop(s);
    if let Some(ticket) = ticket.filter(|_| pageable) {
        ticket.wait();
        sticky.check()?;
    }
    Ok(())
}

fn copy_to_device(m: &'static Machine, to: CUdeviceptr, from: In<c_void>, bytes: usize) -> Result {
    if bytes == 0 {
        return m.state().context().map(drop);
    }
    require(!from.is_null(), || "the source is NULL".into())?;
    let from = Location::of(m, from.address() as u64);
    run_now(m, Work::Copy(CopyWork::plain(Location::Device(to), from, bytes)))
}

fn copy_to_host(m: &'static Machine, to: Out<c_void>, from: CUdeviceptr, bytes: usize) -> Result {
    if bytes == 0 {
        return m.state().context().map(drop);
    }
    require(!to.is_null(), || "the target is NULL".into())?;
    let to = Location::of(m, to.address() as u64);
    run_now(m, Work::Copy(CopyWork::plain(to, Location::Device(from), bytes)))
}

fn copy_on_device(m: &'static Machine, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result {
    run_now(m, Work::Copy(CopyWork::plain(Location::Device(to), Location::Device(from), bytes)))
}

fn copy_unified(m: &'static Machine, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result {
    run_now(m, Work::Copy(CopyWork::plain(Location::of(m, to), Location::of(m, from), bytes)))
}

/// Pageable memory is read when the call is made, pinned memory when the copy runs. A captured copy runs later.
fn staged(m: &'static Machine, from: u64, bytes: usize, stream: CUstream) -> Result<Location> {
    let place = Location::of(m, from);
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    Ok(match place {
        Location::Host(span) if s.streams[stream].capture.is_none() && !s.is_registered(from, bytes) => {
            Location::Staged(Arc::from(span.bytes(bytes)))
        }
        place => place,
    })
}

fn copy_to_device_async(
    m: &'static Machine,
    to: CUdeviceptr,
    from: In<c_void>,
    bytes: usize,
    stream: CUstream,
) -> Result {
    require(!from.is_null() || bytes == 0, || "the source is NULL".into())?;
    let from = staged(m, from.address() as u64, bytes, stream)?;
    run_async(m, stream, Work::Copy(CopyWork::plain(Location::Device(to), from, bytes)))
}

fn copy_to_host_async(
    m: &'static Machine,
    to: Out<c_void>,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    require(!to.is_null() || bytes == 0, || "the target is NULL".into())?;
    let to = Location::of(m, to.address() as u64);
    run_async(m, stream, Work::Copy(CopyWork::plain(to, Location::Device(from), bytes)))
}

fn copy_on_device_async(
    m: &'static Machine,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    run_async(m, stream, Work::Copy(CopyWork::plain(Location::Device(to), Location::Device(from), bytes)))
}

fn copy_unified_async(
    m: &'static Machine,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    let from = staged(m, from, bytes, stream)?;
    run_async(m, stream, Work::Copy(CopyWork::plain(Location::of(m, to), from, bytes)))
}

fn fill(to: u64, value: u32, size: usize, count: usize) -> Work {
    Work::Fill(FillWork { to, pitch: 0, value, size, width: count, height: 1 })
}

fn fill_8(m: &'static Machine, to: CUdeviceptr, value: u8, count: usize) -> Result {
    run_now(m, fill(to, value.into(), 1, count))
}

fn fill_16(m: &'static Machine, to: CUdeviceptr, value: u16, count: usize) -> Result {
    run_now(m, fill(to, value.into(), 2, count))
}

fn fill_32(m: &'static Machine, to: CUdeviceptr, value: c_uint, count: usize) -> Result {
    run_now(m, fill(to, value, 4, count))
}

fn fill_8_async(m: &'static Machine, to: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> Result {
    run_async(m, stream, fill(to, value.into(), 1, count))
}

fn fill_16_async(m: &'static Machine, to: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> Result {
    run_async(m, stream, fill(to, value.into(), 2, count))
}

fn fill_32_async(
    m: &'static Machine,
    to: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> Result {
    run_async(m, stream, fill(to, value, 4, count))
}

/// Where a copy in a graph lies: the node runs later, so nothing is staged.
fn end(
    m: &Machine,
    kind: CUmemorytype,
    host: u64,
    device: u64,
    offset: usize,
    shape: (usize, usize),
) -> Result<CopyEnd> {
    let address = match kind {
        CUmemorytype::HOST => host,
        CUmemorytype::DEVICE | CUmemorytype::UNIFIED => device,
        other => return refuse(CUresult::NOT_SUPPORTED, format!("memory of type {other:?} is not emulated")),
    };
    let address = address.wrapping_add(offset as u64);
    let place = match kind {
        CUmemorytype::DEVICE => Location::Device(address),
        CUmemorytype::HOST if address == 0 => return refuse(CUresult::INVALID_VALUE, "host memory at NULL"),
        _ => Location::of(m, address),
    };
    Ok(CopyEnd { place, pitch: shape.0, slice: shape.0 * shape.1 })
}

/// The copy that a `CUDA_MEMCPY3D` describes.
pub(crate) fn copy_of(m: &Machine, p: &CUDA_MEMCPY3D_v2) -> Result<CopyWork> {
    let offset = |x, y, z, pitch: usize, height: usize| x + (z * height + y) * pitch;
    let from = offset(p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight);
    let to = offset(p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight);
    let copy = CopyWork {
        from: end(m, p.srcMemoryType, p.srcHost as u64, p.srcDevice, from, (p.srcPitch, p.srcHeight))?,
        to: end(m, p.dstMemoryType, p.dstHost as u64, p.dstDevice, to, (p.dstPitch, p.dstHeight))?,
        width: p.WidthInBytes,
        height: p.Height,
        depth: p.Depth,
    };
    let rows = copy.height <= 1 || p.srcPitch.min(p.dstPitch) >= copy.width;
    let slices = copy.depth <= 1 || p.srcHeight.min(p.dstHeight) >= copy.height;
    require(copy.width * copy.height * copy.depth > 0, || "a copy of no bytes".into())?;
    require(rows && slices, || "rows or slices of the copy overlap".into())?;
    copy.check(m)?;
    Ok(copy)
}

/// The fill that a memset node describes.
pub(crate) fn fill_of(m: &Machine, p: &CUDA_MEMSET_NODE_PARAMS_v1) -> Result<FillWork> {
    let (size, width, height) = (p.elementSize as usize, p.width, p.height);
    let fill = FillWork { to: p.dst, pitch: p.pitch, value: p.value, size, width, height };
    require(width * height > 0, || "a fill of no bytes".into())?;
    require(height == 1 || p.pitch >= width * size, || "rows of the fill overlap".into())?;
    fill.check(m)?;
    Ok(fill)
}
