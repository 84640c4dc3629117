"""Kernels in Python, compiled by numba-cuda."""

import math

import numba as nb
from numba import cuda

from cases import *


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@numba(axpy, "void(float32, float32[::1], float32[::1])", grid=2, block=64)
def axpy_case(r):
    x, y = r.standard_normal((2, 100), dtype=f32)
    return [f32(1.5), x, InOut(y, y + f32(1.5) * x, 1e-6)]


@cuda.jit
def matmul(a, b, c):
    s, t = cuda.shared.array((16, 16), nb.float32), cuda.shared.array((16, 16), nb.float32)
    col, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = nb.float32(0)
    for k in range(0, a.shape[1], 16):
        s[y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else 0
        t[y, x] = b[k + y, col] if k + y < b.shape[0] and col < b.shape[1] else 0
        cuda.syncthreads()
        for i in range(16):
            total += s[y, i] * t[i, x]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


@numba(matmul, "void(float32[:,::1], float32[:,::1], float32[:,::1])", grid=(2, 2), block=(16, 16))
def matmul_case(r):
    a, b = r.standard_normal((20, 35), dtype=f32), r.standard_normal((35, 25), dtype=f32)
    return [a, b, Out(a @ b, 1e-5)]


@cuda.jit
def block_sum(x, y):
    s = cuda.shared.array(128, nb.int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i] if i < x.size else 0
    half = 64
    while half > 0:
        cuda.syncthreads()
        if t < half:
            s[t] += s[t + half]
        half //= 2
    if t == 0:
        y[cuda.blockIdx.x] = s[0]


@numba(block_sum, "void(int32[::1], int32[::1])", grid=3, block=128)
def block_sum_case(r):
    x = r.integers(-99, 99, 300, i32)
    return [x, Out(chunks(x, 128).sum(1, dtype=i32))]


@cuda.jit
def histogram(x, bins):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(bins, x[i], 1)


@numba(histogram, "void(uint8[::1], int64[::1])", grid=2, block=64)
def histogram_case(r):
    x = r.integers(0, 32, 500, u8)
    return [x, InOut(np.zeros(32, i64), np.bincount(x, minlength=32))]


@cuda.jit
def mandelbrot(out, x0, y0, step, limit):
    c, r = cuda.grid(2)
    if r < out.shape[0] and c < out.shape[1]:
        z, point, n = 0j, complex(x0 + c * step, y0 + r * step), 0
        while n < limit and z.real * z.real + z.imag * z.imag <= 4.0:
            z, n = z * z + point, n + 1
        out[r, c] = n


@numba(mandelbrot, "void(int32[:,::1], float64, float64, float64, int32)", grid=(4, 3), block=(8, 8))
def mandelbrot_case(r):
    x, y = np.meshgrid(-2.03 + np.arange(30) * 0.1, -1.01 + np.arange(20) * 0.1)
    c, z, n = x + 1j * y, np.zeros((20, 30), complex), np.zeros((20, 30), i32)
    for _ in range(40):
        inside = z.real**2 + z.imag**2 <= 4
        n += inside
        z = np.where(inside, z * z + c, z)
    return [Out(n), f64(-2.03), f64(-1.01), f64(0.1), i32(40)]


@cuda.jit
def maths(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = math.sin(x[i]) + math.exp(-x[i]) * math.sqrt(x[i]) + math.erf(x[i]) + math.atan2(x[i], 2.0)


@numba(maths, "void(float64[::1], float64[::1])", grid=1, block=64)
def maths_case(r):
    x = r.uniform(0, 9, 60)
    e = [math.sin(v) + math.exp(-v) * math.sqrt(v) + math.erf(v) + math.atan2(v, 2) for v in x]
    return [x, Out(f64(e), 1e-14)]


@cuda.jit
def warp_scan(x, y):
    i, lane = cuda.grid(1), cuda.laneid
    v, offset = x[i], 1
    while offset < 32:
        below = cuda.shfl_up_sync(0xFFFFFFFF, v, offset)
        if lane >= offset:
            v += below
        offset *= 2
    y[i] = v


@numba(warp_scan, "void(int32[::1], int32[::1])", grid=2, block=64)
def warp_scan_case(r):
    x = r.integers(-99, 99, (4, 32), i32)
    return [x.ravel(), Out(x.cumsum(1, dtype=i32).ravel())]


@cuda.jit(device=True)
def collatz_steps(n):
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@cuda.jit
def collatz(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = collatz_steps(x[i])


@numba(collatz, "void(int64[::1], int64[::1])", grid=1, block=64)
def collatz_case(r):
    x = r.integers(1, 3000, 50)

    def steps(v):
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v % 2 else v // 2), count + 1
        return count

    return [x, Out(i64([steps(int(v)) for v in x]))]


@cuda.jit
def local_sort(x, k):
    i = cuda.grid(1)
    if i < x.shape[0]:
        v = cuda.local.array(16, nb.float32)
        for j in range(16):
            v[j] = x[i, j]
        for a in range(1, 16):
            key, b = v[a], a - 1
            while b >= 0 and v[b] > key:
                v[b + 1] = v[b]
                b -= 1
            v[b + 1] = key
        k[i] = v[7]


@numba(local_sort, "void(float32[:,:], float32[::1])", grid=1, block=64)
def local_sort_case(r):
    x = r.standard_normal((50, 16), dtype=f32)
    return [x, Out(np.sort(x, 1)[:, 7])]


TAPS = np.array([1, 4, 6, 4, 1], f32) / f32(16)


@cuda.jit
def smooth(x, y):
    taps = cuda.const.array_like(TAPS)
    i = cuda.grid(1)
    if i < x.size:
        total = nb.float32(0)
        for k in range(5):
            total += taps[k] * x[min(max(i + k - 2, 0), x.size - 1)]
        y[i] = total


@numba(smooth, "void(float32[::1], float32[::1])", grid=2, block=64)
def smooth_case(r):
    x = r.standard_normal(100, dtype=f32)
    return [x, Out(np.convolve(np.pad(x, 2, mode="edge"), TAPS, "valid").astype(f32), 1e-6)]


@cuda.jit
def max_atomic(x, y, where):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(y, 0, x[i])
        cuda.atomic.compare_and_swap(where[x[i] % 4 :], -1, i)


@numba(max_atomic, "void(int32[::1], int32[::1], int32[::1])", grid=1, block=32)
def max_atomic_case(r):
    x = r.integers(0, 999, 32, i32)
    return [x, InOut(i32([-1]), i32([x.max()])), InOut(i32([-1] * 4), None)]


@cuda.jit
def checked(x, y):
    i = cuda.grid(1)
    if i < x.size:
        assert x[i] != 0
        y[i] = 1000 // x[i]


@numba(checked, "void(int32[::1], int32[::1])", grid=1, block=64, options={"debug": True, "opt": False})
def checked_case(r):
    x = r.integers(1, 99, 50, i32)
    return [x, Out(1000 // x)]
