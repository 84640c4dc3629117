//! Memory: allocation, and registration of memory of the program.

use std::ffi::{c_char, c_uint, c_void};

use ptx_emu::MemoryError;
use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::host::program_words;
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::queue::Ticket;
use crate::state::objects::{Advice, AllocationKind, AllocationRecord};
use crate::state::{DriverState, capture};

exports! {
    table {
        3020 cuMemAlloc cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) => alloc;
        3020 cuMemAllocPitch cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element_size: c_uint) => alloc_pitch;
        6000 cuMemAllocManaged cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: CUmemAttach_flags) => alloc_managed;
        3020 cuMemFree cuMemFree_v2(address: CUdeviceptr) => free;
        3020 cuMemGetInfo cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => info;
        2020 cuMemHostAlloc cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: CUmemhostalloc_flags) => host_alloc;
        2000 cuMemFreeHost cuMemFreeHost(pointer: *mut c_void) => host_free;
        6050 cuMemHostRegister cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: CUmemhostregister_flags) => host_register;
        4000 cuMemHostUnregister cuMemHostUnregister(pointer: *mut c_void) => host_unregister;
        3020 cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) => host_device_pointer;
        0 emuMemSetLabel emuMemSetLabel(address: CUdeviceptr, label: *const c_char) => set_label;
        3020 cuMemAllocHost cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) => host_alloc_plain;
        2030 cuMemHostGetFlags cuMemHostGetFlags(flags: *mut CUmemhostalloc_flags, pointer: *mut c_void) => host_flags;
    }
    more {
        4000 cuMemHostRegister cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: CUmemhostregister_flags) => host_register;
    }
}

/// Returns the error code for a failure of the memory.
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
    require(!address.is_null() && bytes > 0, || {
        format!("the result pointer is NULL, or the allocation has {bytes} bytes")
    })?;
    let device = s.contexts[context].reach.device;
    let base = m
        .device
        .alloc(device, bytes as u64)
        .or_else(refuse_memory)?;
    let allocation = AllocationRecord {
        context,
        kind: AllocationKind::Device,
        bytes: bytes as u64,
    };
    s.allocations.insert(base, allocation);
    address.set(base)
}

/// The alignment of rows of a pitched allocation in bytes, which suits every access.
const PITCH: usize = 512;

fn alloc_pitch(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element_size: c_uint,
) -> Result {
    require(!pitch.is_null() && width > 0 && height > 0, || {
        format!("{height} rows of {width} bytes")
    })?;
    require(matches!(element_size, 4 | 8 | 16), || {
        format!("elements of {element_size} bytes: expected 4, 8 or 16")
    })?;
    let row = width.checked_next_multiple_of(PITCH);
    let bytes = row.and_then(|row| Some((row, row.checked_mul(height)?)));
    let Some((row, bytes)) = bytes else {
        return refuse(
            CUresult::OUT_OF_MEMORY,
            format!("{height} rows of {width} bytes"),
        );
    };

    alloc(m, address, bytes)?;
    pitch.set(row)
}

/// Allocates managed memory in host memory, which the devices access directly.
fn alloc_managed(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    bytes: usize,
    flags: CUmemAttach_flags,
) -> Result {
    let known = flags == CUmemAttach_flags::GLOBAL || flags == CUmemAttach_flags::HOST;
    require(known, || {
        format!("the flags are {:#x}: expected GLOBAL or HOST", flags.bits())
    })?;
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!address.is_null() && bytes > 0, || {
        format!("the result pointer is NULL, or the allocation has {bytes} bytes")
    })?;

    // Host code accesses managed memory at the same address, so it must be real host memory.
    let block = m
        .device
        .memory
        .alloc_host(bytes as u64)
        .or_else(refuse_memory)?;
    let allocation = AllocationRecord {
        context,
        kind: AllocationKind::Managed,
        bytes: bytes as u64,
    };
    s.allocations.insert(block.address(), allocation);
    s.managed.insert(block.address(), Advice::default());
    address.set(block.address())
}

/// Frees memory after all work of the context that owns it, as the driver does.
///
/// No context needs to be current.
fn free(m: &'static Machine, address: CUdeviceptr) -> Result {
    let mut s = m.state();
    s.no_fault()?;
    capture::refuse_unsafe(&mut s)?;
    let context = s.forget(address)?.context;
    let waiting = s.outstanding(context);
    let sticky = s
        .contexts
        .get(context)
        .map(|context| context.sticky.clone());
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.free(address).or_else(refuse_memory)?;
    Ok(sticky.map_or(Ok(()), |sticky| sticky.check())?)
}

fn info(m: &'static Machine, free: Out<usize>, total: Out<usize>) -> Result {
    let s = m.state();
    let device = s.contexts[s.context()?].reach.device;
    free.set_if((m.device.memory.capacity() - m.device.memory.used_on(device)) as usize);
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
    require(!pointer.is_null() && bytes > 0, || {
        format!("the result pointer is NULL, or the allocation has {bytes} bytes")
    })?;
    let block = m
        .device
        .memory
        .alloc_host(bytes as u64)
        .or_else(refuse_memory)?;
    let allocation = AllocationRecord {
        context,
        kind: AllocationKind::Host(flags),
        bytes: bytes as u64,
    };
    s.allocations.insert(block.address(), allocation);

    // The program writes through this pointer, which is sound because the words are atomics.
    pointer.set(block.words().as_ptr().cast_mut().cast())
}

fn host_free(m: &'static Machine, pointer: Out<c_void>) -> Result {
    let address = pointer.address() as u64;
    let mut s = m.state();
    s.no_fault()?;
    capture::refuse_unsafe(&mut s)?;
    s.host_allocation(address)?;
    let context = s
        .allocations
        .remove(&address)
        .map(|allocation| allocation.context);
    let waiting = context
        .map(|context| s.outstanding(context))
        .unwrap_or_default();
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.memory.free(address).or_else(refuse_memory)
}

/// Pins memory of the program.
///
/// Copies of it can then run asynchronously, and devices can access it at the same address, in
/// whole words.
fn host_register(
    m: &'static Machine,
    pointer: Out<c_void>,
    bytes: usize,
    flags: CUmemhostregister_flags,
) -> Result {
    let known = CUmemhostregister_flags::all().contains(flags);
    require(known, || {
        format!("the flags {:#x} are unknown", flags.bits())
    })?;
    if flags.contains(CUmemhostregister_flags::IOMEMORY) {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "memory of another device is not emulated",
        );
    }

    let mut s = m.state();
    s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!pointer.is_null() && bytes > 0, || {
        format!("the pointer is NULL, or the memory has {bytes} bytes")
    })?;
    let start = pointer.address() as u64;
    let words = program_words(pointer, bytes);

    // Mapping fails only if the bytes overlap memory that is mapped already.
    let Ok(mapped) = m.device.memory.map(words) else {
        let text = format!("some of the {bytes} bytes at 0x{start:x} are pinned already");
        return refuse(CUresult::HOST_MEMORY_ALREADY_REGISTERED, text);
    };

    s.registered.insert(start, (bytes as u64, mapped));
    Ok(())
}

/// Unpins memory after all work of the context, which may copy it.
fn host_unregister(m: &'static Machine, pointer: Out<c_void>) -> Result {
    let start = pointer.address() as u64;
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    let Some((_, mapped)) = s.registered.remove(&start) else {
        let text = format!("0x{start:x} is not the base of registered memory");
        return refuse(CUresult::HOST_MEMORY_NOT_REGISTERED, text);
    };

    let waiting = s.outstanding(context);
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.memory.free(mapped).or_else(refuse_memory)
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
    let registered = s
        .registered
        .range(..=at)
        .next_back()
        .is_some_and(|(start, (len, _))| at < start + len);
    if registered {
        return address.set(at);
    }

    let base = m.device.memory.find(at).map_or(at, |a| a.base);
    s.host_allocation(base)?;
    address.set(at)
}

fn host_flags(
    m: &'static Machine,
    flags: Out<CUmemhostalloc_flags>,
    pointer: Out<c_void>,
) -> Result {
    let s = m.state();
    s.context()?;
    flags.set(s.host_allocation(pointer.address() as u64)?)
}

/// Sets the name of an allocation in reports. Other drivers do not have this function.
fn set_label(m: &'static Machine, address: CUdeviceptr, label: In<c_char>) -> Result {
    m.device.memory.set_label(address, label.text()?);
    Ok(())
}

impl DriverState {
    /// Removes an allocation that a program may free from the record.
    pub(crate) fn forget(&mut self, address: u64) -> Result<AllocationRecord> {
        match self.allocations.get(&address).map(|a| a.kind) {
            None | Some(AllocationKind::Host(_) | AllocationKind::Array) => {
                return refuse(
                    CUresult::INVALID_VALUE,
                    format!("0x{address:x} is not the base of an allocation"),
                );
            }
            Some(AllocationKind::Pool(pool)) => {
                let bytes = self.allocations[&address].bytes;
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.used -= bytes;
                }
            }
            Some(_) => {
                self.managed.remove(&address);
            }
        }
        self.allocations
            .remove(&address)
            .ok_or_else(|| CUresult::INVALID_VALUE.into())
    }

    /// Returns the flags of the pinned allocation with this base.
    fn host_allocation(&self, address: u64) -> Result<CUmemhostalloc_flags> {
        match self.allocations.get(&address).map(|a| a.kind) {
            Some(AllocationKind::Host(flags)) => Ok(flags),
            _ => refuse(
                CUresult::INVALID_VALUE,
                format!("0x{address:x} is not the base of pinned memory"),
            ),
        }
    }
}
