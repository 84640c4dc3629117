"""Runs kernels that numba-cuda compiles on the emulator: `LD_LIBRARY_PATH` names the folder of its library.

Each kernel's results are compared with NumPy's. Prints one line a check; ends with 1 if one failed.
"""

import math
import warnings

import numpy as np
from checks import check, main
from numba import cuda, float32, int32, vectorize
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

warnings.filterwarnings("ignore")


def numbers(n, dtype=np.float32):
    return np.random.default_rng(7).uniform(-4, 4, n).astype(dtype)


@check
def a_kernel_over_an_array():
    @cuda.jit
    def axpy(y, x, a):
        i = cuda.grid(1)
        if i < y.size:
            y[i] = a * x[i] + y[i]

    x, y = numbers(1000), numbers(1000)
    device = cuda.to_device(y)
    axpy[8, 128](device, cuda.to_device(x), np.float32(2))
    np.testing.assert_allclose(device.copy_to_host(), 2 * x + y, rtol=1e-6)


@check
def arrays_of_the_host_are_copied_both_ways():
    @cuda.jit
    def scale(a):
        i, j = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            a[i, j] *= i + j

    a = numbers(35 * 17, np.float64).reshape(35, 17)
    wanted = a * np.add.outer(np.arange(35), np.arange(17))
    scale[(5, 3), (8, 8)](a)
    np.testing.assert_allclose(a, wanted)


@check
def shared_memory_and_barriers():
    @cuda.jit
    def total(x, out):
        s = cuda.shared.array(128, float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        s[t] = x[i] if i < x.size else 0
        cuda.syncthreads()
        w = 64
        while w > 0:
            if t < w:
                s[t] += s[t + w]
            cuda.syncthreads()
            w //= 2
        if t == 0:
            out[cuda.blockIdx.x] = s[0]

    x, out = numbers(1000), np.zeros(8, dtype=np.float32)
    total[8, 128](x, out)
    np.testing.assert_allclose(out, np.add.reduceat(x, np.arange(0, 1000, 128)), rtol=1e-4)


@check
def a_tiled_product():
    @cuda.jit
    def matmul(a, b, c):
        sa = cuda.shared.array((16, 16), float32)
        sb = cuda.shared.array((16, 16), float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        acc = float32(0)
        for k in range(0, a.shape[1], 16):
            sa[tx, ty] = a[x, k + ty] if x < a.shape[0] and k + ty < a.shape[1] else 0
            sb[tx, ty] = b[k + tx, y] if k + tx < b.shape[0] and y < b.shape[1] else 0
            cuda.syncthreads()
            for j in range(16):
                acc += sa[tx, j] * sb[j, ty]
            cuda.syncthreads()
        if x < c.shape[0] and y < c.shape[1]:
            c[x, y] = acc

    a, b = numbers(37 * 50).reshape(37, 50), numbers(50 * 21).reshape(50, 21)
    c = np.zeros((37, 21), dtype=np.float32)
    matmul[(3, 2), (16, 16)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@check
def atomics_count():
    @cuda.jit
    def histogram(x, bins):
        i = cuda.grid(1)
        if i < x.size:
            cuda.atomic.add(bins, x[i], 1)

    x = np.random.default_rng(1).integers(0, 10, 1000).astype(np.int32)
    bins = np.zeros(10, dtype=np.int32)
    histogram[8, 128](x, bins)
    assert (bins == np.bincount(x, minlength=10)).all()


@check
def functions_of_the_device_and_of_libdevice():
    @cuda.jit(device=True)
    def curve(x):
        return math.sin(x) * math.exp(-x * x) + math.sqrt(abs(x)) + math.pow(abs(x), 1.5) + math.erf(x)

    @cuda.jit
    def apply(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = curve(x[i])

    x = numbers(500, np.float64)
    y = np.zeros_like(x)
    apply[4, 128](x, y)
    erf = np.vectorize(math.erf)
    wanted = np.sin(x) * np.exp(-x * x) + np.sqrt(abs(x)) + np.power(abs(x), 1.5) + erf(x)
    np.testing.assert_allclose(y, wanted, rtol=1e-12)


@check
def lanes_exchange_values():
    @cuda.jit
    def sums(x, out):
        v = x[cuda.grid(1)]
        for delta in (16, 8, 4, 2, 1):
            v += cuda.shfl_down_sync(0xFFFFFFFF, v, delta)
        if cuda.laneid == 0:
            out[cuda.grid(1) // 32] = v

    x, out = np.arange(256, dtype=np.int32), np.zeros(8, dtype=np.int32)
    sums[2, 128](x, out)
    assert (out == x.reshape(8, 32).sum(1)).all()


@check
def local_arrays_and_integers():
    @cuda.jit
    def digits(x, out):
        d = cuda.local.array(10, int32)
        i = cuda.grid(1)
        if i < x.size:
            n, v = 0, x[i]
            while v > 0:
                d[n] = v % 10
                v //= 10
                n += 1
            s = 0
            for k in range(n):
                s = s * 10 + d[k]
            out[i] = s

    x = np.arange(1, 300, dtype=np.int32)
    out = np.zeros_like(x)
    digits[3, 128](x, out)
    assert out.tolist() == [int(str(v)[::-1]) for v in x]


@check
def a_ufunc():
    @vectorize(["float32(float32, float32)"], target="cuda")
    def hypot(a, b):
        return math.sqrt(a * a + b * b)

    a, b = numbers(100), numbers(100)[::-1].copy()
    np.testing.assert_allclose(hypot(a, b), np.hypot(a, b), rtol=1e-6)


@check
def random_numbers():
    @cuda.jit
    def draw(states, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = xoroshiro128p_uniform_float32(states, i)

    out = np.zeros(256, dtype=np.float32)
    draw[2, 128](create_xoroshiro128p_states(256, seed=1), out)
    assert ((0 <= out) & (out < 1)).all() and 0.4 < out.mean() < 0.6 and len(set(out)) > 250


@check
def streams_and_events():
    @cuda.jit
    def bump(x):
        x[cuda.grid(1)] += 1

    one, two, event = cuda.stream(), cuda.stream(), cuda.event()
    device = cuda.to_device(np.zeros(64, dtype=np.int32), stream=one)
    bump[2, 32, one](device)
    event.record(one)
    event.wait(two)
    bump[2, 32, two](device)
    assert (device.copy_to_host(stream=two) == 2).all()


@check
def structures_and_constants():
    point = np.dtype([("x", np.float32), ("y", np.float32), ("n", np.int64)])
    table = np.arange(5, dtype=np.float32) ** 2

    @cuda.jit
    def move(p):
        c = cuda.const.array_like(table)
        i = cuda.grid(1)
        if i < p.size:
            p[i].x += c[i % 5]
            p[i].n = i

    p = np.zeros(50, dtype=point)
    move[1, 64](p)
    assert (p["x"] == table[np.arange(50) % 5]).all() and (p["n"] == np.arange(50)).all()


@check
def the_reduction_of_numba_is_a_finding():
    """Its last step calls `syncwarp`, whose mask names 32 lanes, in a branch that two lanes take. After a fault the
    context is lost, so this check is the last one."""
    try:
        cuda.reduce(lambda a, b: a + b)(np.arange(1000, dtype=np.float64))
    except Exception as error:
        assert "CUDA_ERROR_LAUNCH_FAILED" in str(error), error
    else:
        raise AssertionError("nothing was found")


main()
