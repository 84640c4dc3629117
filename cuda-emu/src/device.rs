//! Start, version, errors, the one device, the log, and `cuGetProcAddress`.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use warpwright_driver_sys::*;

use crate::ffi::{Export, In, Out, Result, exports, refuse, require};
use crate::machine::Machine;

exports! {
    required {
        2000 cuInit cuInit(flags: c_uint) => init;
        2020 cuDriverGetVersion cuDriverGetVersion(version: *mut c_int) => driver_version;
        6000 cuGetErrorName cuGetErrorName(error: CUresult, text: *mut *const c_char) => error_name;
        6000 cuGetErrorString cuGetErrorString(error: CUresult, text: *mut *const c_char) => error_string;
        2000 cuDeviceGet cuDeviceGet(device: *mut CUdevice, ordinal: c_int) => get;
        2000 cuDeviceGetCount cuDeviceGetCount(count: *mut c_int) => get_count;
        2000 cuDeviceGetName cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) => get_name;
        3020 cuDeviceTotalMem cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) => total_memory;
        2000 cuDeviceGetAttribute cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) => get_attribute;
        11040 cuDeviceGetUuid cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) => get_uuid;
    }
    optional {
        12000 cuGetProcAddress cuGetProcAddress_v2(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, found: *mut CUdriverProcAddressQueryResult) => proc_address;
        12090 cuLogsCurrent cuLogsCurrent(iterator: *mut CUlogIterator, flags: c_uint) => log_end;
        12090 cuLogsDumpToMemory cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint) => dump_log;
    }
    more {
        11030 cuGetProcAddress cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) => proc_address_v1;
        9020 cuDeviceGetUuid cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) => get_uuid;
        5000 cuDeviceComputeCapability cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) => compute_capability;
    }
}

/// Refuses every device but the first.
pub(crate) fn check(device: CUdevice) -> Result {
    if device == 0 {
        Ok(())
    } else {
        refuse(CUresult::INVALID_DEVICE, format!("there is no device {device}"))
    }
}

fn init(m: &'static Machine, flags: c_uint) -> Result {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    m.initialise();
    Ok(())
}

fn driver_version(m: &'static Machine, version: Out<c_int>) -> Result {
    version.set(m.config.driver_version as c_int)
}

/// Names and meanings as C strings, made once.
fn texts(code: CUresult) -> Option<&'static (CString, CString)> {
    static TEXTS: OnceLock<HashMap<u32, (CString, CString)>> = OnceLock::new();
    let c_string = |text: Option<&str>| CString::new(text.unwrap_or_default()).unwrap_or_default();
    let row = |code: &CUresult| (code.0, (c_string(code.name()), c_string(code.description())));
    TEXTS.get_or_init(|| CUresult::ALL.iter().map(row).collect()).get(&code.0)
}

fn error_name(_: &'static Machine, error: CUresult, text: Out<*const c_char>) -> Result {
    write_text(texts(error).map(|row| &row.0), text)
}

fn error_string(_: &'static Machine, error: CUresult, text: Out<*const c_char>) -> Result {
    write_text(texts(error).map(|row| &row.1), text)
}

fn write_text(found: Option<&'static CString>, text: Out<*const c_char>) -> Result {
    text.set(found.map_or(std::ptr::null(), |found| found.as_ptr()))?;
    if found.is_some() { Ok(()) } else { Err(CUresult::INVALID_VALUE.into()) }
}

fn get(_: &'static Machine, device: Out<CUdevice>, ordinal: c_int) -> Result {
    check(ordinal)?;
    device.set(ordinal)
}

fn get_count(_: &'static Machine, count: Out<c_int>) -> Result {
    count.set(1)
}

fn get_name(_: &'static Machine, name: Out<c_char>, len: c_int, device: CUdevice) -> Result {
    check(device)?;
    require(!name.is_null() && len > 0, || "there is no room for the name".into())?;
    name.set_text("Warpwright CPU emulator", len as usize);
    Ok(())
}

fn total_memory(m: &'static Machine, bytes: Out<usize>, device: CUdevice) -> Result {
    check(device)?;
    bytes.set(m.config.memory as usize)
}

fn get_uuid(_: &'static Machine, uuid: Out<CUuuid>, device: CUdevice) -> Result {
    check(device)?;
    uuid.set(CUuuid { bytes: *b"warpwright-emu-0" })
}

fn compute_capability(m: &'static Machine, major: Out<c_int>, minor: Out<c_int>, device: CUdevice) -> Result {
    check(device)?;
    major.set(m.config.compute_capability.0 as c_int)?;
    minor.set(m.config.compute_capability.1 as c_int)
}

fn get_attribute(
    m: &'static Machine,
    value: Out<c_int>,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Result {
    check(device)?;
    match attribute_value(m, attribute) {
        Some(found) => value.set(found),
        None => refuse(CUresult::INVALID_VALUE, format!("there is no device attribute {}", attribute.0)),
    }
}

/// Largest number of threads in a block.
pub(crate) const MAX_THREADS: u32 = 1024;
/// Largest block in each dimension.
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Largest grid in each dimension.
pub(crate) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Shared memory of a block that did not ask for more.
pub(crate) const SHARED: u32 = 48 << 10;

/// Shared memory that a block may ask for, by the compute capability table of the CUDA programming guide.
pub(crate) fn shared_optin(m: &Machine) -> u32 {
    let kib = match m.config.compute_capability {
        (..=6, _) => 48,
        (7, 5) => 64,
        (7, _) => 96,
        (8, 0 | 7) => 163,
        (8, _) | (12, _) => 99,
        _ => 227,
    };
    kib << 10
}

/// Threads resident on one multiprocessor, by the same table.
pub(crate) fn threads_per_multiprocessor(m: &Machine) -> u32 {
    match m.config.compute_capability {
        (7, 5) => 1024,
        (8, 6 | 7 | 9) | (12, _) => 1536,
        _ => 2048,
    }
}

/// Shared memory that each block takes in addition to its own, by the same table.
pub(crate) fn shared_reserved(m: &Machine) -> u32 {
    if m.config.compute_capability.0 >= 8 { 1 << 10 } else { 0 }
}

/// Shared memory of a multiprocessor: that of the largest block.
pub(crate) fn shared_per_multiprocessor(m: &Machine) -> u32 {
    shared_optin(m) + shared_reserved(m)
}

/// Blocks resident on one multiprocessor, by the same table.
pub(crate) fn blocks_per_multiprocessor(m: &Machine) -> u32 {
    match m.config.compute_capability {
        (7, 5) | (8, 6 | 7) => 16,
        (8, 9) | (12, _) => 24,
        _ => 32,
    }
}

fn attribute_value(m: &Machine, attribute: CUdevice_attribute) -> Option<c_int> {
    use CUdevice_attribute as A;
    Some(match attribute {
        A::MAX_THREADS_PER_BLOCK => MAX_THREADS,
        A::MAX_BLOCK_DIM_X => MAX_BLOCK[0],
        A::MAX_BLOCK_DIM_Y => MAX_BLOCK[1],
        A::MAX_BLOCK_DIM_Z => MAX_BLOCK[2],
        A::MAX_GRID_DIM_X => MAX_GRID[0],
        A::MAX_GRID_DIM_Y => MAX_GRID[1],
        A::MAX_GRID_DIM_Z => MAX_GRID[2],
        A::MAX_SHARED_MEMORY_PER_BLOCK => SHARED,
        A::TOTAL_CONSTANT_MEMORY => 64 << 10,
        A::WARP_SIZE => 32,
        A::MAX_REGISTERS_PER_BLOCK | A::MAX_REGISTERS_PER_MULTIPROCESSOR => 65536,
        A::CLOCK_RATE | A::MEMORY_CLOCK_RATE => 1_000_000,
        A::MULTIPROCESSOR_COUNT => m.config.multiprocessors,
        A::INTEGRATED | A::COMPUTE_MODE | A::ECC_ENABLED | A::PCI_BUS_ID | A::PCI_DEVICE_ID => 0,
        A::CAN_MAP_HOST_MEMORY | A::CONCURRENT_KERNELS | A::UNIFIED_ADDRESSING | A::ASYNC_ENGINE_COUNT => 1,
        A::GLOBAL_MEMORY_BUS_WIDTH => 64,
        A::L2_CACHE_SIZE => 4 << 20,
        A::MAX_THREADS_PER_MULTIPROCESSOR => threads_per_multiprocessor(m),
        A::COMPUTE_CAPABILITY_MAJOR => m.config.compute_capability.0,
        A::COMPUTE_CAPABILITY_MINOR => m.config.compute_capability.1,
        A::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => shared_per_multiprocessor(m),
        A::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => shared_optin(m),
        A::MAX_BLOCKS_PER_MULTIPROCESSOR => blocks_per_multiprocessor(m),
        A::RESERVED_SHARED_MEMORY_PER_BLOCK => shared_reserved(m),
        A::MEMORY_POOLS_SUPPORTED | A::HOST_REGISTER_SUPPORTED | A::READ_ONLY_HOST_REGISTER_SUPPORTED => 1,
        // What the emulator refuses, it does not advertise.
        A::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::COOPERATIVE_LAUNCH
        | A::CLUSTER_LAUNCH
        | A::TENSOR_MAP_ACCESS_SUPPORTED
        | A::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 0,
        // Properties of hardware that is not there: absent, as for a device that lacks them.
        CUdevice_attribute(1..=150) => 0,
        _ => return None,
    } as c_int)
}

/// Every exported function.
pub(crate) fn exports() -> impl Iterator<Item = &'static Export> {
    crate::CHAPTERS.iter().flat_map(|chapter| chapter.iter())
}

/// The newest ABI of a base name at or below a version.
fn resolve(base: &str, version: u32) -> Result<*const c_void, CUdriverProcAddressQueryResult> {
    let named = || exports().filter(|export| export.base == base);
    let newest = named().filter(|export| export.since <= version).max_by_key(|export| export.since);
    match newest {
        Some(export) => Ok((export.address)()),
        None if named().next().is_some() => Err(CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT),
        None => Err(CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
    }
}

fn proc_address(
    m: &'static Machine,
    symbol: In<c_char>,
    function: Out<*mut c_void>,
    version: c_int,
    flags: u64,
    found: Out<CUdriverProcAddressQueryResult>,
) -> Result {
    let base = symbol.text()?;
    require(flags <= 2, || format!("the flags {flags} are unknown"))?;
    let known = 0..=m.config.driver_version as c_int;
    require(known.contains(&version), || format!("version {version} is above the driver's"))?;
    let resolved = resolve(base, version as u32);
    found.set_if(resolved.err().unwrap_or(CUdriverProcAddressQueryResult::SUCCESS));
    function.set(resolved.unwrap_or(std::ptr::null()).cast_mut())
}

/// The 11.3 form, which reports an unknown name as NOT_FOUND.
fn proc_address_v1(
    m: &'static Machine,
    symbol: In<c_char>,
    function: Out<*mut c_void>,
    version: c_int,
    flags: u64,
) -> Result {
    let base = symbol.text()?;
    require(flags <= 2, || format!("the flags {flags} are unknown"))?;
    let known = 0..=m.config.driver_version as c_int;
    require(known.contains(&version), || format!("version {version} is above the driver's"))?;
    match resolve(base, version as u32) {
        Ok(address) => function.set(address.cast_mut()),
        Err(_) => refuse(CUresult::NOT_FOUND, format!("there is no {base}")),
    }
}

fn dump_log(
    m: &'static Machine,
    iterator: Out<CUlogIterator>,
    buffer: Out<c_char>,
    size: Out<usize>,
    flags: c_uint,
) -> Result {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    let from = if iterator.is_null() { 0 } else { iterator.get()? };
    let (entries, end) = m.entries(from);
    let text = entries.iter().map(|entry| format!("{entry}\n")).collect::<String>();
    let written = buffer.set_text(&text, size.get()?);
    size.set(written)?;
    iterator.set_if(end);
    Ok(())
}

fn log_end(m: &'static Machine, iterator: Out<CUlogIterator>, _flags: c_uint) -> Result {
    iterator.set(m.entries(u32::MAX).1)
}
