//! The function table: one line per driver function, from which the typed field, the loader and the
//! list of names are generated.
//!
//! A line reads `version name(arguments)`. The version is the CUDA release whose driver first
//! exported the function, in the driver's encoding (12040 is 12.4). The arguments are those of the
//! prototype in `cuda.h`.
//!
//! Functions that every program needs are required. A driver without one of the others is still
//! usable.

use std::ffi::{CStr, c_char, c_float, c_int, c_uchar, c_uint, c_ushort, c_void};

use crate::api::{Function, MissingSymbol, api, c_name};
use crate::codes::*;
use crate::flags::*;
use crate::handles::*;
use crate::images::*;
use crate::result::CUresult;
use crate::structs::*;

api! {
    required {
        // Initialization, version, errors.
        2000 cuInit(flags: c_uint);
        2020 cuDriverGetVersion(version: *mut c_int);
        6000 cuGetErrorName(error: CUresult, text: *mut *const c_char);
        6000 cuGetErrorString(error: CUresult, text: *mut *const c_char);

        // Devices.
        2000 cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        2000 cuDeviceGetCount(count: *mut c_int);
        2000 cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
        3020 cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        2000 cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);

        // Contexts.
        7000 cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        11000 cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        4000 cuCtxSetCurrent(context: CUcontext);
        4000 cuCtxGetCurrent(context: *mut CUcontext);
        4000 cuCtxPushCurrent_v2(context: CUcontext);
        4000 cuCtxPopCurrent_v2(context: *mut CUcontext);

        // Modules and functions.
        2010 cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void);
        2000 cuModuleUnload(module: CUmodule);
        2000 cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        2020 cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);

        // Memory.
        3020 cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        3020 cuMemFree_v2(address: CUdeviceptr);
        3020 cuMemGetInfo_v2(free: *mut usize, total: *mut usize);

        // Copies and fills.
        3020 cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
        3020 cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
        3020 cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        3020 cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);

        // Streams and events.
        2000 cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags);
        4000 cuStreamDestroy_v2(stream: CUstream);
        2000 cuStreamSynchronize(stream: CUstream);
        2000 cuStreamQuery(stream: CUstream);
        3020 cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        2000 cuEventCreate(event: *mut CUevent, flags: CUevent_flags);
        4000 cuEventDestroy_v2(event: CUevent);
        2000 cuEventRecord(event: CUevent, stream: CUstream);
        2000 cuEventSynchronize(event: CUevent);
        2000 cuEventQuery(event: CUevent);
        2000 cuEventElapsedTime(milliseconds: *mut c_float, start: CUevent, end: CUevent);

        // Launch.
        4000 cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    }
    optional {
        11040 cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        2000 cuCtxSynchronize();
        9000 cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
        6050 cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize);
        2020 cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: CUmemhostalloc_flags);
        2000 cuMemFreeHost(pointer: *mut c_void);
        3020 cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint);
        3020 cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
        3020 cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
        10000 cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
        10000 cuGraphDestroy(graph: CUgraph);
        12000 cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
        10000 cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext);
        10000 cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext);
        10000 cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize);
        10000 cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1);
        10000 cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph);
        11010 cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent);
        11010 cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent);
        10000 cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
        10000 cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
        10000 cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
        10000 cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
        11040 cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags);
        11010 cuGraphUpload(exec: CUgraphExec, stream: CUstream);
        10000 cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        10000 cuGraphExecDestroy(exec: CUgraphExec);
        12000 cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
        12000 cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);
        11060 cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
        11060 cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);
        10010 cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        10000 cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        10000 cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
        11030 cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize);

        // Initialization, log.
        11030 cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64);
        12000 cuGetProcAddress_v2(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, found: *mut CUdriverProcAddressQueryResult);
        12090 cuLogsRegisterCallback(callback: CUlogsCallback, data: *mut c_void, handle: *mut CUlogsCallbackHandle);
        12090 cuLogsUnregisterCallback(callback: CUlogsCallbackHandle);
        12090 cuLogsCurrent(iterator: *mut CUlogIterator, flags: c_uint);
        12090 cuLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: c_uint);
        12090 cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint);
        4000 cuProfilerStart();
        4000 cuProfilerStop();

        // Devices.
        10000 cuDeviceGetLuid(luid: *mut c_char, node_mask: *mut c_uint, device: CUdevice);
        4010 cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice);
        4010 cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char);
        4000 cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
        8000 cuDeviceGetP2PAttribute(value: *mut c_int, attribute: CUdevice_P2PAttribute, from: CUdevice, to: CUdevice);
        11020 cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
        11020 cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
        11020 cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);
        11040 cuDeviceGetExecAffinitySupport(value: *mut c_int, kind: CUexecAffinityType, device: CUdevice);

        // Contexts.
        2000 cuCtxGetDevice(device: *mut CUdevice);
        11000 cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: CUctx_flags);
        7000 cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut CUctx_flags, active: *mut c_int);
        11000 cuDevicePrimaryCtxReset_v2(device: CUdevice);
        3020 cuCtxCreate_v2(context: *mut CUcontext, flags: CUctx_flags, device: CUdevice);
        11040 cuCtxCreate_v3(context: *mut CUcontext, params: *mut CUexecAffinityParam, count: c_int, flags: CUctx_flags, device: CUdevice);
        12050 cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: CUctx_flags, device: CUdevice);
        4000 cuCtxDestroy_v2(context: CUcontext);
        3020 cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
        13000 cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext);
        13000 cuCtxSynchronize_v2(context: CUcontext);
        7000 cuCtxGetFlags(flags: *mut CUctx_flags);
        12010 cuCtxSetFlags(flags: CUctx_flags);
        12000 cuCtxGetId(context: CUcontext, id: *mut u64);
        3010 cuCtxGetLimit(value: *mut usize, limit: CUlimit);
        3010 cuCtxSetLimit(limit: CUlimit, value: usize);
        3020 cuCtxGetCacheConfig(config: *mut CUfunc_cache);
        3020 cuCtxSetCacheConfig(config: CUfunc_cache);
        5050 cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        11000 cuCtxResetPersistingL2Cache();
        4000 cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
        4000 cuCtxDisablePeerAccess(peer: CUcontext);
        11040 cuCtxGetExecAffinity(affinity: *mut CUexecAffinityParam, kind: CUexecAffinityType);
        12050 cuCtxRecordEvent(context: CUcontext, event: CUevent);
        12050 cuCtxWaitEvent(context: CUcontext, event: CUevent);

        // Modules, linking, libraries.
        3020 cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
        2000 cuModuleLoad(module: *mut CUmodule, path: *const c_char);
        2000 cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
        2000 cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void);
        11070 cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode);
        12040 cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
        12040 cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule);
        6050 cuLinkCreate_v2(option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, state: *mut CUlinkState);
        6050 cuLinkAddData_v2(state: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char, option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void);
        6050 cuLinkAddFile_v2(state: CUlinkState, kind: CUjitInputType, path: *const c_char, option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void);
        5050 cuLinkComplete(state: CUlinkState, cubin: *mut *mut c_void, size: *mut usize);
        5050 cuLinkDestroy(state: CUlinkState);
        12000 cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, options: *mut CUjit_option, values: *mut *mut c_void, option_count: c_uint, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_option_count: c_uint);
        12000 cuLibraryLoadFromFile(library: *mut CUlibrary, path: *const c_char, options: *mut CUjit_option, values: *mut *mut c_void, option_count: c_uint, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_option_count: c_uint);
        12000 cuLibraryUnload(library: CUlibrary);
        12000 cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
        12040 cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary);
        12040 cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary);
        12000 cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
        12000 cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
        12000 cuLibraryGetManaged(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
        12000 cuLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char);
        12000 cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
        12050 cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel);
        12000 cuKernelGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice);
        12000 cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice);
        12000 cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice);
        12030 cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
        12040 cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize);
        13020 cuKernelGetParamCount(kernel: CUkernel, count: *mut usize);

        // Functions, occupancy.
        3000 cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache);
        11000 cuFuncGetModule(module: *mut CUmodule, function: CUfunction);
        12030 cuFuncGetName(name: *mut *const c_char, function: CUfunction);
        12040 cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
        13020 cuFuncGetParamCount(function: CUfunction, count: *mut usize);
        12040 cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction);
        12040 cuFuncLoad(function: CUfunction);
        7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize, flags: CUoccupancy_flags);
        6050 cuOccupancyMaxPotentialBlockSize(grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize, dynamic_shared: usize, limit: c_int);
        7000 cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize, dynamic_shared: usize, limit: c_int, flags: CUoccupancy_flags);
        10020 cuOccupancyAvailableDynamicSMemPerBlock(dynamic_shared: *mut usize, function: CUfunction, blocks: c_int, block_size: c_int);
        11070 cuOccupancyMaxPotentialClusterSize(size: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
        11070 cuOccupancyMaxActiveClusters(clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);

        // Memory.
        6050 cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: CUmemhostregister_flags);
        4000 cuMemHostUnregister(pointer: *mut c_void);
        11020 cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
        11020 cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
        3020 cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element_size: c_uint);
        6000 cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: CUmemAttach_flags);
        3020 cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize);
        2030 cuMemHostGetFlags(flags: *mut CUmemhostalloc_flags, pointer: *mut c_void);
        3020 cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
        4000 cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
        7000 cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, address: CUdeviceptr);
        6000 cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
        11020 cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
        8000 cuMemPrefetchAsync(address: CUdeviceptr, count: usize, to: CUdevice, stream: CUstream);
        12020 cuMemPrefetchAsync_v2(address: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream);
        8000 cuMemAdvise(address: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);
        12020 cuMemAdvise_v2(address: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation);
        8000 cuMemRangeGetAttribute(data: *mut c_void, data_bytes: usize, attribute: CUmem_range_attribute, address: CUdeviceptr, count: usize);
        8000 cuMemRangeGetAttributes(data: *mut *mut c_void, data_bytes: *mut usize, attributes: *mut CUmem_range_attribute, count: usize, address: CUdeviceptr, bytes: usize);
        6000 cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, length: usize, flags: CUmemAttach_flags);

        // Memory pools.
        11020 cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
        11020 cuMemPoolDestroy(pool: CUmemoryPool);
        11020 cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
        11020 cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
        11020 cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
        11020 cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation);
        11020 cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
        11020 cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: CUmemoryPool, handle_type: CUmemAllocationHandleType, flags: u64);
        11020 cuMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, handle: *mut c_void, handle_type: CUmemAllocationHandleType, flags: u64);
        11020 cuMemPoolExportPointer(shared: *mut CUmemPoolPtrExportData, address: CUdeviceptr);
        11020 cuMemPoolImportPointer(address: *mut CUdeviceptr, pool: CUmemoryPool, shared: *mut CUmemPoolPtrExportData);
        13000 cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType);
        13000 cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType);
        13000 cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool);

        // Virtual memory.
        10020 cuMemAddressReserve(address: *mut CUdeviceptr, size: usize, alignment: usize, wanted: CUdeviceptr, flags: u64);
        10020 cuMemAddressFree(address: CUdeviceptr, size: usize);
        10020 cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, properties: *const CUmemAllocationProp, flags: u64);
        10020 cuMemRelease(handle: CUmemGenericAllocationHandle);
        10020 cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
        10020 cuMemUnmap(address: CUdeviceptr, size: usize);
        10020 cuMemSetAccess(address: CUdeviceptr, size: usize, access: *const CUmemAccessDesc, count: usize);
        10020 cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, address: CUdeviceptr);
        10020 cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags);
        10020 cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
        11000 cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
        10020 cuMemExportToShareableHandle(shared: *mut c_void, handle: CUmemGenericAllocationHandle, handle_type: CUmemAllocationHandleType, flags: u64);
        10020 cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, handle_type: CUmemAllocationHandleType);
        11070 cuMemGetHandleForAddressRange(handle: *mut c_void, address: CUdeviceptr, size: usize, handle_type: CUmemRangeHandleType, flags: u64);

        // Other processes.
        4010 cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr);
        11000 cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: CUipcMem_flags);
        4010 cuIpcCloseMemHandle(address: CUdeviceptr);
        4010 cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
        4010 cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);

        // Copies and fills.
        3020 cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
        3020 cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
        3020 cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
        3020 cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize);
        3020 cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize);
        3020 cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize);
        4000 cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
        4000 cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        4000 cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize);
        4000 cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream);
        3020 cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D_v2);
        3020 cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D_v2);
        3020 cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D_v2, stream: CUstream);
        3020 cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D_v2);
        3020 cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D_v2, stream: CUstream);
        4000 cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER);
        4000 cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream);
        3020 cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize);
        3020 cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize);
        3020 cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize);
        3020 cuMemsetD2D8Async(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream);
        3020 cuMemsetD2D16Async(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream);
        3020 cuMemsetD2D32Async(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream);

        // Streams and events.
        5050 cuStreamCreateWithPriority(stream: *mut CUstream, flags: CUstream_flags, priority: c_int);
        5050 cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
        5050 cuStreamGetFlags(stream: CUstream, flags: *mut CUstream_flags);
        12000 cuStreamGetId(stream: CUstream, id: *mut u64);
        12080 cuStreamGetDevice(stream: CUstream, device: *mut CUdevice);
        9020 cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
        5000 cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint);
        11000 cuStreamGetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
        11000 cuStreamSetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
        11000 cuStreamCopyAttributes(to: CUstream, from: CUstream);
        11070 cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: CUstreamWaitValue_flags);
        11070 cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: CUstreamWaitValue_flags);
        11070 cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: CUstreamWriteValue_flags);
        11070 cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: CUstreamWriteValue_flags);
        11070 cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, operations: *mut CUstreamBatchMemOpParams, flags: c_uint);
        11010 cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: CUevent_record_flags);
        12080 cuEventElapsedTime_v2(milliseconds: *mut c_float, start: CUevent, end: CUevent);
        11030 cuFlushGPUDirectRDMAWrites(target: CUflushGPUDirectRDMAWritesTarget, scope: CUflushGPUDirectRDMAWritesScope);

        // Launch.
        11060 cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
        9000 cuLaunchCooperativeKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void);
        10000 cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);

        // Tensor maps.
        12000 cuTensorMapEncodeTiled(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: *mut c_void, dim: *const u64, strides: *const u64, box_dim: *const u32, element_strides: *const u32, interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill);
        12000 cuTensorMapEncodeIm2col(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: *mut c_void, dim: *const u64, strides: *const u64, lower_corner: *const c_int, upper_corner: *const c_int, channels_per_pixel: u32, pixels_per_column: u32, element_strides: *const u32, interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill);
        12080 cuTensorMapEncodeIm2colWide(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: *mut c_void, dim: *const u64, strides: *const u64, lower_corner_width: c_int, upper_corner_width: c_int, channels_per_pixel: u32, pixels_per_column: u32, element_strides: *const u32, interleave: CUtensorMapInterleave, mode: CUtensorMapIm2ColWideMode, swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill);
        12000 cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void);

        // Graphs: building.
        12030 cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams);
        12030 cuGraphAddDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);
        10000 cuGraphClone(clone: *mut CUgraph, original: CUgraph);
        10000 cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v1);
        12020 cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams);
        11040 cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1);
        11040 cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, address: CUdeviceptr);
        11070 cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1);
        12030 cuGraphConditionalHandleCreate(handle: *mut CUgraphConditionalHandle, graph: CUgraph, context: CUcontext, default: c_uint, flags: CUgraphConditional_flags);
        10000 cuGraphDestroyNode(node: CUgraphNode);
        10000 cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
        12030 cuGraphRemoveDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);

        // Graphs: queries.
        11030 cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: CUgraphDebugDot_flags);
        10000 cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
        12030 cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
        10000 cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
        12030 cuGraphNodeGetDependencies_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
        10000 cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
        12030 cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
        10000 cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph);
        10000 cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
        13010 cuGraphGetId(graph: CUgraph, id: *mut c_uint);
        13010 cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph);
        13010 cuGraphNodeGetLocalId(node: CUgraphNode, id: *mut c_uint);
        13010 cuGraphNodeGetToolsId(node: CUgraphNode, id: *mut u64);

        // Graphs: parameters of nodes.
        12000 cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v2);
        12000 cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
        10000 cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1);
        10000 cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1);
        11000 cuGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
        11000 cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
        11000 cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode);
        10000 cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMCPY3D_v2);
        10000 cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2);
        10000 cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS_v1);
        10000 cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1);
        10000 cuGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS_v1);
        10000 cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS_v1);
        11010 cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
        11010 cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
        11010 cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
        11010 cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
        11040 cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1);
        11040 cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr);
        11070 cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, params: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS_v1);
        11070 cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1);
        13020 cuGraphNodeGetParams(node: CUgraphNode, params: *mut CUgraphNodeParams);
        12020 cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams);

        // Graphs: running.
        12000 cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);
        12000 cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64);
        13010 cuGraphExecGetId(exec: CUgraphExec, id: *mut c_uint);
        10010 cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1);
        10020 cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2, context: CUcontext);
        10020 cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext);
        10020 cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS_v1);
        11010 cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph);
        11010 cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
        11010 cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
        11070 cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1);
        12020 cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams);
        10020 cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, result: *mut CUgraphExecUpdateResult);

        // Graphs: owned memory and objects.
        11040 cuDeviceGraphMemTrim(device: CUdevice);
        11040 cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
        11040 cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
        11030 cuUserObjectCreate(object: *mut CUuserObject, pointer: *mut c_void, destroy: CUhostFn, count: c_uint, flags: CUuserObject_flags);
        11030 cuUserObjectRetain(object: CUuserObject, count: c_uint);
        11030 cuUserObjectRelease(object: CUuserObject, count: c_uint);
        11030 cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: CUuserObjectRetain_flags);
        11030 cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);

        // Capture.
        10010 cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
        12030 cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode);
        12030 cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize);
        11030 cuStreamUpdateCaptureDependencies(stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: CUstreamUpdateCaptureDependencies_flags);
        12030 cuStreamUpdateCaptureDependencies_v2(stream: CUstream, nodes: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: CUstreamUpdateCaptureDependencies_flags);

        // Arrays, textures and surfaces.
        3020 cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v2);
        3020 cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v2);
        3020 cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v2, array: CUarray);
        3020 cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v2, array: CUarray);
        2000 cuArrayDestroy(array: CUarray);
        7000 cuMemcpyHtoA_v2(to: CUarray, offset: usize, from: *const c_void, bytes: usize);
        7000 cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, offset: usize, bytes: usize);
        7000 cuMemcpyDtoA_v2(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize);
        7000 cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize);
        7000 cuMemcpyAtoA_v2(to: CUarray, offset: usize, from: CUarray, from_offset: usize, bytes: usize);
        7000 cuMemcpyHtoAAsync_v2(to: CUarray, offset: usize, from: *const c_void, bytes: usize, stream: CUstream);
        7000 cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream);
        5000 cuTexObjectCreate(texture: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC, how: *const CUDA_TEXTURE_DESC, view: *const CUDA_RESOURCE_VIEW_DESC);
        5000 cuTexObjectDestroy(texture: CUtexObject);
        5000 cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, texture: CUtexObject);
        5000 cuTexObjectGetTextureDesc(how: *mut CUDA_TEXTURE_DESC, texture: CUtexObject);
        5000 cuTexObjectGetResourceViewDesc(view: *mut CUDA_RESOURCE_VIEW_DESC, texture: CUtexObject);
        5000 cuSurfObjectCreate(surface: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC);
        5000 cuSurfObjectDestroy(surface: CUsurfObject);
        5000 cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, surface: CUsurfObject);

        // No driver has this function. An emulator may have it, to name the allocation at `address`
        // in its faults.
        0 emuMemSetLabel(address: CUdeviceptr, label: *const c_char);
    }
}
