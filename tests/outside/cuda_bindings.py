"""Runs NVIDIA's Python bindings of the driver API on the emulator: `LD_LIBRARY_PATH` names the folder of its library.

Every call is checked, and so is what it did. Prints one line a check; ends with 1 if one failed.
"""

import ctypes
import sys
import threading

import numpy as np
from cuda.bindings import driver as cu

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .b32 offset = 5;
.visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    .reg .pred %p;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p bra done;
    mul.wide.u32 %rd3, %r2, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f2, %f1, %f3, %f2;
    st.global.f32 [%rd4], %f2;
done:
    ret;
}
.visible .entry bump(.param .u64 p)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    ld.global.u32 %r2, [offset];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}
\0"""

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def ok(answer):
    """The results of a call that must succeed."""
    code, *results = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return results[0] if len(results) == 1 else tuple(results)


def refused(answer, code):
    assert answer[0] == code, f"{answer[0]} instead of {code}"


def upload(array):
    address = ok(cu.cuMemAlloc(array.nbytes))
    ok(cu.cuMemcpyHtoD(address, array, array.nbytes))
    return address


def download(address, like):
    out = np.empty_like(like)
    ok(cu.cuMemcpyDtoH(out, address, out.nbytes))
    return out


class World:
    def __init__(self):
        ok(cu.cuInit(0))
        self.device = ok(cu.cuDeviceGet(0))
        self.context = ok(cu.cuDevicePrimaryCtxRetain(self.device))
        ok(cu.cuCtxSetCurrent(self.context))
        self.module = ok(cu.cuModuleLoadData(PTX))
        self.axpy = ok(cu.cuModuleGetFunction(self.module, b"axpy"))
        self.bump = ok(cu.cuModuleGetFunction(self.module, b"bump"))
        self.stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def launch_bump(self, address, stream=None):
        values = ((int(address),), (ctypes.c_uint64,))
        ok(cu.cuLaunchKernel(self.bump, 1, 1, 1, 1, 1, 1, 0, self.stream if stream is None else stream, values, 0))


@check
def a_kernel_computes(w):
    n = 1000
    x, y = np.arange(n, dtype=np.float32), np.ones(n, dtype=np.float32)
    xd, yd = upload(x), upload(y)
    values = ((int(yd), int(xd), 2.0, n), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint32))
    ok(cu.cuLaunchKernel(w.axpy, 8, 1, 1, 128, 1, 1, 0, w.stream, values, 0))
    ok(cu.cuStreamSynchronize(w.stream))
    assert np.array_equal(download(yd, y), 2 * x + 1)
    ok(cu.cuMemFree(xd))
    ok(cu.cuMemFree(yd))


@check
def devices_and_contexts_answer(w):
    assert ok(cu.cuDeviceGetCount()) >= 1
    assert ok(cu.cuDriverGetVersion()) >= 12000
    assert ok(cu.cuDeviceGetName(64, w.device)).startswith(b"Warpwright")
    assert ok(cu.cuDeviceGetPCIBusId(20, w.device)).startswith(b"0000:01:00.0")
    assert ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, w.device)) == 32
    ok(cu.cuDeviceGetUuid(w.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(w.device))[1] == 1
    limit = cu.CUlimit.CU_LIMIT_STACK_SIZE
    ok(cu.cuCtxSetLimit(limit, 4096))
    assert ok(cu.cuCtxGetLimit(limit)) == 4096
    ok(cu.cuCtxSetCacheConfig(cu.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1))
    assert ok(cu.cuCtxGetCacheConfig()) == cu.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1
    ok(cu.cuCtxGetStreamPriorityRange())
    made = ok(cu.cuCtxCreate(None, 0, w.device))
    assert int(ok(cu.cuCtxGetCurrent())) == int(made)
    ok(cu.cuCtxDestroy(made))
    ok(cu.cuCtxSetCurrent(w.context))
    ok(cu.cuProfilerStart())
    ok(cu.cuProfilerStop())


@check
def functions_tell_what_they_are(w):
    attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ok(cu.cuFuncSetAttribute(w.axpy, attribute, 64 << 10))
    assert ok(cu.cuFuncGetAttribute(attribute, w.axpy)) == 64 << 10
    assert ok(cu.cuFuncGetName(w.axpy)) == b"axpy"
    assert ok(cu.cuFuncGetParamInfo(w.axpy, 3)) == (20, 4)
    assert ok(cu.cuModuleGetFunctionCount(w.module)) == 2
    assert len(ok(cu.cuModuleEnumerateFunctions(2, w.module))) == 2
    assert ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(w.axpy, 256, 0)) == 8
    grid, block = ok(cu.cuOccupancyMaxPotentialBlockSize(w.axpy, None, 0, 0))
    assert grid > 0 and block % 32 == 0
    address, size = ok(cu.cuModuleGetGlobal(w.module, b"offset"))
    assert size == 4 and download(address, np.zeros(1, dtype=np.uint32))[0] == 5
    refused(cu.cuModuleGetFunction(w.module, b"absent"), cu.CUresult.CUDA_ERROR_NOT_FOUND)


@check
def libraries_and_links_load(w):
    library = ok(cu.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    assert ok(cu.cuLibraryGetKernelCount(library)) == 2
    kernel = ok(cu.cuLibraryGetKernel(library, b"bump"))
    assert ok(cu.cuKernelGetName(kernel)) == b"bump"
    function = ok(cu.cuKernelGetFunction(kernel))
    p = upload(np.array([1], dtype=np.uint32))
    values = ((int(p),), (ctypes.c_uint64,))
    ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, w.stream, values, 0))
    ok(cu.cuStreamSynchronize(w.stream))
    assert download(p, np.zeros(1, dtype=np.uint32))[0] == 6
    ok(cu.cuLibraryUnload(library))
    state = ok(cu.cuLinkCreate(0, [], []))
    kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
    ok(cu.cuLinkAddData(state, kind, PTX, len(PTX), b"whole.ptx", 0, [], []))
    image, _ = ok(cu.cuLinkComplete(state))
    module = ok(cu.cuModuleLoadData(image))
    ok(cu.cuModuleGetFunction(module, b"axpy"))
    ok(cu.cuLinkDestroy(state))
    ok(cu.cuModuleUnload(module))
    refused(cu.cuModuleLoadData(b".version 7.0\n.target sm_75\n.entry f() { nonsense; }\0"),
            cu.CUresult.CUDA_ERROR_INVALID_PTX)


@check
def memory_of_every_kind_works(w):
    word = np.zeros(1, dtype=np.uint32)
    managed = ok(cu.cuMemAllocManaged(64, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    view = (ctypes.c_uint32 * 16).from_address(int(managed))
    view[0] = 7
    w.launch_bump(managed)
    ok(cu.cuStreamSynchronize(w.stream))
    assert view[0] == 12
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert ok(cu.cuPointerGetAttribute(attribute, managed)) == 1
    ok(cu.cuMemFree(managed))

    pinned = ok(cu.cuMemHostAlloc(64, cu.CU_MEMHOSTALLOC_DEVICEMAP))
    view = (ctypes.c_uint32 * 16).from_address(int(pinned))
    view[0] = 1
    w.launch_bump(ok(cu.cuMemHostGetDevicePointer(pinned, 0)))
    ok(cu.cuStreamSynchronize(w.stream))
    assert view[0] == 6
    ok(cu.cuMemFreeHost(pinned))

    own = np.array([2] * 1024, dtype=np.uint32)
    ok(cu.cuMemHostRegister(own.ctypes.data, own.nbytes, 0))
    w.launch_bump(own.ctypes.data)
    ok(cu.cuStreamSynchronize(w.stream))
    assert own[0] == 7
    ok(cu.cuMemHostUnregister(own.ctypes.data))

    pool = ok(cu.cuDeviceGetDefaultMemPool(w.device))
    used = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    before = int(ok(cu.cuMemPoolGetAttribute(pool, used)))
    address = ok(cu.cuMemAllocFromPoolAsync(4096, pool, w.stream))
    assert int(ok(cu.cuMemPoolGetAttribute(pool, used))) == before + 4096
    ok(cu.cuMemsetD32Async(address, 3, 1024, w.stream))
    ok(cu.cuMemcpyDtoHAsync(word, address, 4, w.stream))
    ok(cu.cuMemFreeAsync(address, w.stream))
    ok(cu.cuStreamSynchronize(w.stream))
    assert word[0] == 3 and int(ok(cu.cuMemPoolGetAttribute(pool, used))) == before

    address, pitch = ok(cu.cuMemAllocPitch(100, 4, 4))
    ok(cu.cuMemsetD2D8(address, pitch, 9, 100, 4))
    copy = cu.CUDA_MEMCPY2D()
    out = np.zeros((4, 100), dtype=np.uint8)
    copy.srcMemoryType, copy.srcDevice, copy.srcPitch = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, address, pitch
    copy.dstMemoryType, copy.dstHost, copy.dstPitch = cu.CUmemorytype.CU_MEMORYTYPE_HOST, out.ctypes.data, 100
    copy.WidthInBytes, copy.Height = 100, 4
    ok(cu.cuMemcpy2D(copy))
    assert (out == 9).all()
    ok(cu.cuMemFree(address))
    refused(cu.cuIpcGetMemHandle(address), cu.CUresult.CUDA_ERROR_NOT_SUPPORTED)


@check
def streams_wait_for_words_and_events(w):
    p = upload(np.zeros(2, dtype=np.uint32))
    other = ok(cu.cuStreamCreateWithPriority(cu.CUstream_flags.CU_STREAM_NON_BLOCKING, -1))
    ok(cu.cuStreamWaitValue32(other, p, 4, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ))
    ok(cu.cuStreamWriteValue32(other, int(p) + 4, 8, 0))
    assert cu.cuStreamQuery(other)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
    ok(cu.cuStreamWriteValue32(w.stream, p, 4, 0))
    ok(cu.cuStreamSynchronize(other))
    assert download(p, np.zeros(2, dtype=np.uint32)).tolist() == [4, 8]
    start, end = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    ok(cu.cuEventRecord(start, w.stream))
    w.launch_bump(p)
    ok(cu.cuEventRecord(end, w.stream))
    ok(cu.cuStreamWaitEvent(other, end, 0))
    ok(cu.cuStreamSynchronize(other))
    assert ok(cu.cuEventElapsedTime(start, end)) >= 0
    ok(cu.cuStreamDestroy(other))


@check
def graphs_are_built_updated_and_launched(w):
    p = upload(np.zeros(1, dtype=np.uint32))
    graph = ok(cu.cuGraphCreate(0))
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = w.bump
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ((int(p),), (ctypes.c_uint64,))
    one = ok(cu.cuGraphAddKernelNode(graph, None, 0, params))
    two = ok(cu.cuGraphAddKernelNode(graph, [one], 1, params))
    empty = ok(cu.cuGraphAddEmptyNode(graph, [two], 1))
    nodes, count = ok(cu.cuGraphGetNodes(graph, 3))
    assert count == 3 and len(nodes) == 3
    execution = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphLaunch(execution, w.stream))
    ok(cu.cuGraphNodeSetEnabled(execution, two, 0))
    ok(cu.cuGraphLaunch(execution, w.stream))
    ok(cu.cuStreamSynchronize(w.stream))
    assert download(p, np.zeros(1, dtype=np.uint32))[0] == 15
    clone = ok(cu.cuGraphClone(graph))
    assert ok(cu.cuGraphExecUpdate(execution, clone)).result == \
        cu.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_SUCCESS
    ok(cu.cuGraphDestroyNode(empty))
    refused(cu.cuGraphExecUpdate(execution, graph), cu.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    ok(cu.cuGraphExecDestroy(execution))
    ok(cu.cuGraphDestroy(clone))
    ok(cu.cuGraphDestroy(graph))


@check
def captures_become_graphs(w):
    p = upload(np.zeros(1, dtype=np.uint32))
    ok(cu.cuStreamBeginCapture(w.stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    w.launch_bump(p)
    status, number, graph, nodes, edges, count = ok(cu.cuStreamGetCaptureInfo(w.stream))
    assert status == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE and count == 1
    assert len(nodes) == 1 and len(edges) == 1 and edges[0].type == 0
    w.launch_bump(p)
    graph = ok(cu.cuStreamEndCapture(w.stream))
    execution = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphLaunch(execution, w.stream))
    ok(cu.cuStreamSynchronize(w.stream))
    assert download(p, np.zeros(1, dtype=np.uint32))[0] == 10
    whole = ok(cu.cuGraphCreate(0))
    ok(cu.cuStreamBeginCaptureToGraph(w.stream, whole, None, None, 0,
                                      cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    w.launch_bump(p)
    assert int(ok(cu.cuStreamEndCapture(w.stream))) == int(whole)


@check
def other_threads_have_their_own_context(w):
    found = []

    def run():
        found.append(int(ok(cu.cuCtxGetCurrent())))
        ok(cu.cuCtxSetCurrent(w.context))
        found.append(int(ok(cu.cuCtxGetCurrent())))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [0, int(w.context)]


@check
def a_fault_is_reported_and_stays(w):
    refused(cu.cuMemFree(12345), cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    made = ok(cu.cuCtxCreate(None, 0, w.device))
    module = ok(cu.cuModuleLoadData(PTX))
    bump = ok(cu.cuModuleGetFunction(module, b"bump"))
    p = upload(np.zeros(1, dtype=np.uint32))
    values = ((int(p) + 4096,), (ctypes.c_uint64,))
    ok(cu.cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, 0, values, 0))
    refused(cu.cuCtxSynchronize(), cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    refused(cu.cuMemAlloc(16), cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    ok(cu.cuCtxDestroy(made))
    ok(cu.cuCtxSetCurrent(w.context))


def main():
    world, failed = World(), []
    for run in CHECKS:
        try:
            run(world)
            print(f"passed  {run.__name__}", flush=True)
        except Exception as error:
            failed.append(run.__name__)
            print(f"FAILED  {run.__name__}: {error!r}", flush=True)
    print(f"{len(CHECKS) - len(failed)} of {len(CHECKS)} checks passed")
    sys.exit(1 if failed else 0)


main()
