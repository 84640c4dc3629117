//! Unsupported functions: they exist, return NOT_SUPPORTED, and report the reason as a finding.

use std::ffi::{c_char, c_int, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::export::exports;

/// Declares functions that always return an error, with one line each: `since base
/// symbol(arguments) => reason`.
macro_rules! refused {
    ($($since:literal $base:ident $symbol:ident($($arg:ident: $type:ty),*) => $why:expr;)*) => {
        /// The functions, by their exported names.
        mod bodies {
            use super::*;
            use crate::error::{Result, refuse};
            use crate::ffi::pointer::CArgument;
            use crate::machine::Machine;

            $(
                #[allow(clippy::too_many_arguments)]
                pub(super) fn $symbol(_: &'static Machine, $(_: <$type as CArgument>::Inside),*) -> Result {
                    refuse(CUresult::NOT_SUPPORTED, $why)
                }
            )*
        }

        exports! {
            table { $($since $base $symbol($($arg: $type),*) => bodies::$symbol;)* }
            more {}
        }
    };
}

const PROCESSES: &str =
    "sharing with other processes is not emulated: the devices exist within one process";
const TENSOR_MAP: &str = "tensor maps of images are not emulated; encode a tiled one";
const WHOLE_CONTEXT: &str = "events of a whole context are not emulated; record one in each stream";
const POINTERS: &str = "addresses of device functions are not emulated";
const REMOTE: &str = "writes of other devices that bypass the driver are not emulated";

refused! {
    10020 cuMemExportToShareableHandle cuMemExportToShareableHandle(shared: *mut c_void, handle: CUmemGenericAllocationHandle, handle_type: CUmemAllocationHandleType, flags: u64) => PROCESSES;
    10020 cuMemImportFromShareableHandle cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, handle_type: CUmemAllocationHandleType) => PROCESSES;
    11070 cuMemGetHandleForAddressRange cuMemGetHandleForAddressRange(handle: *mut c_void, address: CUdeviceptr, size: usize, handle_type: CUmemRangeHandleType, flags: u64) => PROCESSES;
    11020 cuMemPoolExportToShareableHandle cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: CUmemoryPool, handle_type: CUmemAllocationHandleType, flags: u64) => PROCESSES;
    11020 cuMemPoolImportFromShareableHandle cuMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, handle: *mut c_void, handle_type: CUmemAllocationHandleType, flags: u64) => PROCESSES;
    11020 cuMemPoolExportPointer cuMemPoolExportPointer(shared: *mut CUmemPoolPtrExportData, address: CUdeviceptr) => PROCESSES;
    11020 cuMemPoolImportPointer cuMemPoolImportPointer(address: *mut CUdeviceptr, pool: CUmemoryPool, shared: *mut CUmemPoolPtrExportData) => PROCESSES;
    4010 cuIpcGetMemHandle cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr) => PROCESSES;
    11000 cuIpcOpenMemHandle cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: CUipcMem_flags) => PROCESSES;
    4010 cuIpcCloseMemHandle cuIpcCloseMemHandle(address: CUdeviceptr) => PROCESSES;
    4010 cuIpcGetEventHandle cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) => PROCESSES;
    4010 cuIpcOpenEventHandle cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) => PROCESSES;
    10000 cuDeviceGetLuid cuDeviceGetLuid(luid: *mut c_char, node_mask: *mut c_uint, device: CUdevice) => "only Windows numbers its adapters so";
    12050 cuCtxRecordEvent cuCtxRecordEvent(context: CUcontext, event: CUevent) => WHOLE_CONTEXT;
    12050 cuCtxWaitEvent cuCtxWaitEvent(context: CUcontext, event: CUevent) => WHOLE_CONTEXT;
    12000 cuLibraryGetUnifiedFunction cuLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char) => POINTERS;
    11030 cuFlushGPUDirectRDMAWrites cuFlushGPUDirectRDMAWrites(target: CUflushGPUDirectRDMAWritesTarget, scope: CUflushGPUDirectRDMAWritesScope) => REMOTE;
    12000 cuTensorMapEncodeIm2col cuTensorMapEncodeIm2col(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: *mut c_void, dim: *const u64, strides: *const u64, lower_corner: *const c_int, upper_corner: *const c_int, channels_per_pixel: u32, pixels_per_column: u32, element_strides: *const u32, interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill) => TENSOR_MAP;
    12080 cuTensorMapEncodeIm2colWide cuTensorMapEncodeIm2colWide(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: *mut c_void, dim: *const u64, strides: *const u64, lower_corner_width: c_int, upper_corner_width: c_int, channels_per_pixel: u32, pixels_per_column: u32, element_strides: *const u32, interleave: CUtensorMapInterleave, mode: CUtensorMapIm2ColWideMode, swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill) => TENSOR_MAP;
}
