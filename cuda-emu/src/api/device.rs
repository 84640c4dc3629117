//! Initialization, version, errors, devices, and the log.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::texture::{TEXTURE_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT};
use crate::device::{MAX_BLOCK, MAX_GRID, MAX_THREADS, SHARED};
use crate::error::{Result, refuse, require};
use crate::exit;
use crate::ffi::host::LogCallback;
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;

exports! {
    table {
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
        12090 cuLogsCurrent cuLogsCurrent(iterator: *mut CUlogIterator, flags: c_uint) => log_end;
        12090 cuLogsRegisterCallback cuLogsRegisterCallback(callback: CUlogsCallback, data: *mut c_void, handle: *mut CUlogsCallbackHandle) => register_log;
        12090 cuLogsUnregisterCallback cuLogsUnregisterCallback(callback: CUlogsCallbackHandle) => unregister_log;
        12090 cuLogsDumpToFile cuLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: c_uint) => dump_log_to_file;
        12090 cuLogsDumpToMemory cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint) => dump_log;
    }
    more {
        9020 cuDeviceGetUuid cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) => get_uuid;
        5000 cuDeviceComputeCapability cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) => compute_capability;
    }
}

/// Returns the number of a device, or an error if it does not exist.
pub(crate) fn find(m: &Machine, device: CUdevice) -> Result<usize> {
    match usize::try_from(device) {
        Ok(number) if device < m.device.config.devices as CUdevice => Ok(number),
        _ => refuse(
            CUresult::INVALID_DEVICE,
            format!("device {device} does not exist"),
        ),
    }
}

fn init(m: &'static Machine, flags: c_uint) -> Result {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    m.initialize()?;
    exit::at_exit();
    Ok(())
}

fn driver_version(m: &'static Machine, version: Out<c_int>) -> Result {
    version.set(m.device.config.driver_version as c_int)
}

/// Returns the name and the description of an error code as C strings, which are created once.
fn texts(code: CUresult) -> Option<&'static (CString, CString)> {
    static TEXTS: OnceLock<HashMap<u32, (CString, CString)>> = OnceLock::new();
    let c_string = |text: Option<&str>| CString::new(text.unwrap_or_default()).unwrap_or_default();
    let row = |code: &CUresult| {
        (
            code.0,
            (c_string(code.name()), c_string(code.description())),
        )
    };
    TEXTS
        .get_or_init(|| CUresult::ALL.iter().map(row).collect())
        .get(&code.0)
}

fn error_name(_: &'static Machine, error: CUresult, text: Out<*const c_char>) -> Result {
    write_text(texts(error).map(|row| &row.0), text)
}

fn error_string(_: &'static Machine, error: CUresult, text: Out<*const c_char>) -> Result {
    write_text(texts(error).map(|row| &row.1), text)
}

fn write_text(found: Option<&'static CString>, text: Out<*const c_char>) -> Result {
    text.set(found.map_or(std::ptr::null(), |found| found.as_ptr()))?;
    if found.is_some() {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE.into())
    }
}

fn get(m: &'static Machine, device: Out<CUdevice>, ordinal: c_int) -> Result {
    find(m, ordinal)?;
    device.set(ordinal)
}

fn get_count(m: &'static Machine, count: Out<c_int>) -> Result {
    count.set(m.device.config.devices as c_int)
}

fn get_name(m: &'static Machine, name: Out<c_char>, len: c_int, device: CUdevice) -> Result {
    find(m, device)?;
    require(!name.is_null() && len > 0, || {
        "the buffer for the name is NULL or empty".into()
    })?;
    name.set_text("Warpwright CPU emulator", len as usize);
    Ok(())
}

fn total_memory(m: &'static Machine, bytes: Out<usize>, device: CUdevice) -> Result {
    find(m, device)?;
    bytes.set(m.device.config.memory as usize)
}

fn get_uuid(m: &'static Machine, uuid: Out<CUuuid>, device: CUdevice) -> Result {
    let mut bytes = *b"warpwright-emu-0";
    bytes[15] += find(m, device)? as u8;
    uuid.set(CUuuid { bytes })
}

fn compute_capability(
    m: &'static Machine,
    major: Out<c_int>,
    minor: Out<c_int>,
    device: CUdevice,
) -> Result {
    find(m, device)?;
    major.set(m.device.config.compute_capability.0 as c_int)?;
    minor.set(m.device.config.compute_capability.1 as c_int)
}

fn get_attribute(
    m: &'static Machine,
    value: Out<c_int>,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Result {
    find(m, device)?;
    match attribute_value(m, attribute, device) {
        Some(found) => value.set(found),
        None => refuse(
            CUresult::INVALID_VALUE,
            format!("unknown device attribute {}", attribute.0),
        ),
    }
}

fn attribute_value(m: &Machine, attribute: CUdevice_attribute, device: CUdevice) -> Option<c_int> {
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
        A::MULTIPROCESSOR_COUNT => m.device.config.multiprocessors,
        A::PCI_BUS_ID => device as u32 + 1,
        A::INTEGRATED | A::COMPUTE_MODE | A::ECC_ENABLED | A::PCI_DEVICE_ID => 0,
        A::CAN_MAP_HOST_MEMORY
        | A::CONCURRENT_KERNELS
        | A::UNIFIED_ADDRESSING
        | A::ASYNC_ENGINE_COUNT => 1,
        A::GLOBAL_MEMORY_BUS_WIDTH => 64,
        A::L2_CACHE_SIZE => 4 << 20,
        A::MAX_THREADS_PER_MULTIPROCESSOR => m.device.threads_per_multiprocessor(),
        A::COMPUTE_CAPABILITY_MAJOR => m.device.config.compute_capability.0,
        A::COMPUTE_CAPABILITY_MINOR => m.device.config.compute_capability.1,
        A::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => m.device.shared_per_multiprocessor(),
        A::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => m.device.shared_optin(),
        A::MAX_BLOCKS_PER_MULTIPROCESSOR => m.device.blocks_per_multiprocessor(),
        A::RESERVED_SHARED_MEMORY_PER_BLOCK => m.device.shared_reserved(),
        attribute if is_supported(attribute) => 1,
        A::MAX_ACCESS_POLICY_WINDOW_SIZE => 128 << 20,
        A::MAX_PITCH => i32::MAX as u32,
        A::TEXTURE_ALIGNMENT => TEXTURE_ALIGNMENT,
        A::TEXTURE_PITCH_ALIGNMENT => TEXTURE_PITCH_ALIGNMENT,
        A::TENSOR_MAP_ACCESS_SUPPORTED | A::CLUSTER_LAUNCH => {
            (m.device.config.compute_capability >= (9, 0)).into()
        }
        // Unsupported features must not be advertised, and properties of absent hardware are 0, as
        // on a device without it.
        CUdevice_attribute(1..=161) => 0,
        _ => return None,
    } as c_int)
}

/// Returns true for the attributes of features that the emulator supports.
fn is_supported(attribute: CUdevice_attribute) -> bool {
    use CUdevice_attribute as A;
    const ALL: [A; 14] = [
        A::MEMORY_POOLS_SUPPORTED,
        A::HOST_REGISTER_SUPPORTED,
        A::READ_ONLY_HOST_REGISTER_SUPPORTED,
        A::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        A::MANAGED_MEMORY,
        A::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        A::HOST_MEMORY_POOLS_SUPPORTED,
        A::HOST_NUMA_MEMORY_POOLS_SUPPORTED,
        A::CONCURRENT_MANAGED_ACCESS,
        A::STREAM_PRIORITIES_SUPPORTED,
        A::CAN_USE_64_BIT_STREAM_MEM_OPS,
        A::CAN_USE_STREAM_WAIT_VALUE_NOR,
        A::COMPUTE_PREEMPTION_SUPPORTED,
        A::COOPERATIVE_LAUNCH,
    ];
    ALL.contains(&attribute)
}

fn dump_log(
    m: &'static Machine,
    iterator: Out<CUlogIterator>,
    buffer: Out<c_char>,
    size: Out<usize>,
    flags: c_uint,
) -> Result {
    let (text, end) = log_text(m, iterator, flags)?;
    let written = buffer.set_text(&text, size.get()?);
    size.set(written)?;
    iterator.set_if(end);
    Ok(())
}

/// Returns the log entries from a position on, one per line, and the position of the end.
fn log_text(
    m: &Machine,
    iterator: Out<CUlogIterator>,
    flags: c_uint,
) -> Result<(String, CUlogIterator)> {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    let from = if iterator.is_null() {
        0
    } else {
        iterator.get()?
    };
    let (entries, end) = m.device.log.entries(from);
    Ok((
        entries.iter().map(|entry| format!("{entry}\n")).collect(),
        end,
    ))
}

fn dump_log_to_file(
    m: &'static Machine,
    iterator: Out<CUlogIterator>,
    path: In<c_char>,
    flags: c_uint,
) -> Result {
    let (text, end) = log_text(m, iterator, flags)?;
    let path = path.text()?;
    std::fs::write(path, text)
        .or_else(|error| refuse(CUresult::OPERATING_SYSTEM, format!("{path}: {error}")))?;
    iterator.set_if(end);
    Ok(())
}

fn register_log(
    m: &'static Machine,
    callback: CUlogsCallback,
    data: Out<c_void>,
    handle: Out<CUlogsCallbackHandle>,
) -> Result {
    require(!handle.is_null(), || "the result pointer is NULL".into())?;
    let number = m.device.log.register(LogCallback::new(callback, data)?);
    handle.set(CUlogsCallbackHandle(number as *mut c_void))
}

fn unregister_log(m: &'static Machine, callback: CUlogsCallbackHandle) -> Result {
    let known = m.device.log.unregister(callback.0 as usize);
    require(known, || {
        "the handle is not that of a registered callback".into()
    })
}

fn log_end(m: &'static Machine, iterator: Out<CUlogIterator>, _flags: c_uint) -> Result {
    iterator.set(m.device.log.entries(u32::MAX).1)
}
