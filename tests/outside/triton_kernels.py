"""Runs kernels that Triton compiles on the emulator: `LD_LIBRARY_PATH` names the folder of its library, which must hold
it as `libcuda.so.1` and `libcuda.so`; a C compiler builds Triton's launcher.

`ptxas.py` beside this file stands in for ptxas, so Triton's cubin is its PTX. Buffers are the driver's own, since
PyTorch needs NVIDIA's runtime. Prints one line a check; ends with 1 if one failed.
"""

import ctypes
import os
import pathlib
import sys
import tempfile

for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
    os.environ[variable] = str(pathlib.Path(__file__).with_name("ptxas.py"))
# Machine code that an earlier run left there would be loaded instead.
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import numpy as np  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

cuda = ctypes.CDLL("libcuda.so.1")
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def ok(code):
    assert code == 0, code


def start():
    context = ctypes.c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))


class Buffer:
    """What Triton asks of a tensor: its address and the type of its elements."""

    def __init__(self, array):
        self.array, self.dtype, address = array, str(array.dtype), ctypes.c_uint64()
        ok(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(array.nbytes)))
        self.address = address.value
        source = array.ctypes.data_as(ctypes.c_void_p)
        ok(cuda.cuMemcpyHtoD_v2(address, source, ctypes.c_size_t(array.nbytes)))

    def data_ptr(self):
        return self.address

    def numpy(self):
        out = np.empty_like(self.array)
        target = out.ctypes.data_as(ctypes.c_void_p)
        ok(cuda.cuMemcpyDtoH_v2(target, ctypes.c_uint64(self.address), ctypes.c_size_t(out.nbytes)))
        return out


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(7).uniform(-2, 2, shape).astype(dtype)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * columns + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        d = start + tl.arange(0, K)
        x = tl.load(a + i[:, None] * k + d[None, :], mask=(i[:, None] < m) & (d[None, :] < k), other=0.0)
        y = tl.load(b + d[:, None] * n + j[None, :], mask=(d[:, None] < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def histogram_kernel(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@check
def a_sum_of_vectors():
    x, y = numbers(1000), numbers(1000)
    out = Buffer(np.zeros_like(x))
    add_kernel[(8,)](Buffer(x), Buffer(y), out, 1000, BLOCK=128)
    assert np.array_equal(out.numpy(), x + y)


@check
def a_softmax():
    x = numbers(5, 100)
    out = Buffer(np.zeros_like(x))
    softmax_kernel[(5,)](Buffer(x), out, 100, BLOCK=128)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)


@check
def a_product_of_halves():
    a, b = numbers(40, 70, dtype=np.float16), numbers(70, 50, dtype=np.float16)
    out = Buffer(np.zeros((40, 50), dtype=np.float32))
    matmul_kernel[(2, 2)](Buffer(a), Buffer(b), out, 40, 50, 70, M=32, N=32, K=32)
    np.testing.assert_allclose(out.numpy(), a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-2)


@check
def a_histogram():
    x = np.random.default_rng(1).integers(0, 10, 1000).astype(np.int32)
    bins = Buffer(np.zeros(10, dtype=np.int32))
    histogram_kernel[(8,)](Buffer(x), bins, 1000, BLOCK=128)
    assert (bins.numpy() == np.bincount(x, minlength=10)).all()


def main():
    start()
    failed = []
    for run in CHECKS:
        try:
            run()
            print(f"passed  {run.__name__}", flush=True)
        except Exception as error:
            failed.append(run.__name__)
            print(f"FAILED  {run.__name__}: {str(error)[-800:]}", flush=True)
    print(f"{len(CHECKS) - len(failed)} of {len(CHECKS)} checks passed")
    sys.exit(1 if failed else 0)


main()
