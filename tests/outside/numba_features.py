"""Runs what numba-cuda offers beyond plain kernels on the emulator, as `numba_kernels.py` does: atomics, halves, lanes,
grids that meet, memory of the host, debug builds, libdevice.

Each kernel's results are compared with NumPy's. Prints one line a check; ends with 1 if one failed.
"""

import math
import warnings

import numpy as np
from checks import check, main
from numba import cuda, float32, float64, guvectorize, int32, uint32
from numba.cuda import libdevice
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_normal_float64

warnings.filterwarnings("ignore")


def numbers(n, dtype=np.float32):
    return np.random.default_rng(7).uniform(-4, 4, n).astype(dtype)


@check
def a_grid_meets():
    @cuda.jit
    def rotate(a, steps):
        grid, i = cuda.cg.this_grid(), cuda.grid(1)
        for _ in range(steps):
            v = a[(i + 1) % a.size]
            grid.sync()
            a[i] = v + 1
            grid.sync()

    a = np.arange(512, dtype=np.int32)
    d = cuda.to_device(a)
    rotate[4, 128](d, 3)
    assert (d.copy_to_host() == np.roll(a, -3) + 3).all()


@check
def atomics_of_all_kinds():
    @cuda.jit
    def apply(x, add, sub, low, high, bits, wrap, swap, won):
        i = cuda.grid(1)
        v = x[i]
        cuda.atomic.add(add, v % 7, v)
        cuda.atomic.sub(sub, v % 7, v)
        cuda.atomic.min(low, v % 7, v)
        cuda.atomic.max(high, v % 7, v)
        cuda.atomic.or_(bits, 0, v)
        cuda.atomic.and_(bits, 1, v | 1024)
        cuda.atomic.xor(bits, 2, v)
        cuda.atomic.inc(wrap, 0, 99)
        cuda.atomic.dec(wrap, 1, 99)
        swap[i] = cuda.atomic.exch(won, 0, v)
        if cuda.atomic.cas(won, 1, -1, v) == -1:
            won[2] = v

    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        x = np.random.default_rng(3).integers(0, 512, 256).astype(dtype)
        add, sub, high = np.zeros(7, dtype), np.zeros(7, dtype), np.zeros(7, dtype)
        low = np.full(7, 4095, dtype)
        bits = np.array([0, 2047, 0], dtype)
        wrap = np.zeros(2, np.uint64 if np.dtype(dtype).itemsize == 8 else np.uint32)
        won = np.array([1000, -1, 0], np.int64 if np.dtype(dtype).itemsize == 8 else np.int32)
        swap = np.zeros_like(won, shape=256)
        apply[2, 128](x, add, sub, low, high, bits, wrap, swap, won)
        groups = [x[x % 7 == k] for k in range(7)]
        assert add.tolist() == [int(g.sum()) for g in groups]
        assert (sub == (0 - add)).all()
        assert low.tolist() == [g.min() for g in groups] and high.tolist() == [g.max() for g in groups]
        assert bits.tolist() == [
            np.bitwise_or.reduce(x),
            np.bitwise_and.reduce(x | 1024) & 2047,
            np.bitwise_xor.reduce(x),
        ]
        assert wrap.tolist() == [256 % 100, (0 - 256) % 100], wrap
        assert sorted(swap.tolist() + [int(won[0])]) == sorted(x.tolist() + [1000])
        assert won[1] == won[2]


@check
def atomics_of_floats():
    @cuda.jit
    def apply(x, out):
        i = cuda.grid(1)
        cuda.atomic.add(out, 0, x[i])
        cuda.atomic.max(out, 1, x[i])
        cuda.atomic.min(out, 2, x[i])
        cuda.atomic.nanmax(out, 3, x[i])
        cuda.atomic.nanmin(out, 4, x[i])

    for dtype in (np.float32, np.float64):
        x = numbers(256, dtype)
        out = np.array([0, -9, 9, np.nan, np.nan], dtype)
        apply[2, 128](x, out)
        np.testing.assert_allclose(out, [x.sum(), x.max(), x.min(), x.max(), x.min()], rtol=1e-3)


@check
def atomics_on_shared_memory():
    @cuda.jit
    def f(x, out):
        s = cuda.shared.array(16, int32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        if t < 16:
            s[t] = 0
        cuda.syncthreads()
        cuda.atomic.add(s, x[i], 1)
        cuda.syncthreads()
        if t < 16:
            cuda.atomic.add(out, t, s[t])

    x = np.random.default_rng(1).integers(0, 16, 1024).astype(np.int32)
    out = np.zeros(16, np.int32)
    f[8, 128](x, out)
    assert (out == np.bincount(x, minlength=16)).all()


@check
def halves():
    @cuda.jit
    def f(x, y, out):
        i = cuda.grid(1)
        if i < x.size:
            a, b = x[i], y[i]
            out[0, i] = a + b
            out[1, i] = a * b
            out[2, i] = cuda.fp16.hfma(a, b, a)
            out[3, i] = a / b
            out[4, i] = cuda.fp16.hmax(a, b)
            out[5, i] = -a if a < b else abs(b)
            out[6, i] = cuda.fp16.hsqrt(abs(a))
            out[7, i] = cuda.fp16.hexp(a)
            out[8, i] = cuda.fp16.hsin(a)
            out[9, i] = cuda.fp16.hfloor(a)
            out[10, i] = cuda.fp16.hlog(abs(a))
            out[11, i] = cuda.fp16.hrcp(b)
            out[12, i] = cuda.fp16.htrunc(a)
            out[13, i] = cuda.fp16.hexp10(a)

    x, y = numbers(300, np.float16), numbers(300, np.float16)[::-1].copy()
    out = np.zeros((14, 300), np.float16)
    f[3, 128](x, y, out)
    a, b = x.astype(np.float64), y.astype(np.float64)
    want = np.stack(
        [
            a + b,
            a * b,
            a * b + a,
            a / b,
            np.maximum(a, b),
            np.where(a < b, -a, abs(b)),
            np.sqrt(abs(a)),
            np.exp(a),
            np.sin(a),
            np.floor(a),
            np.log(abs(a)),
            1 / b,
            np.trunc(a),
            10**a,
        ]
    )
    np.testing.assert_allclose(out.astype(np.float64), want, rtol=2e-3, atol=2e-3)


@check
def dynamic_shared_memory():
    @cuda.jit
    def f(x, out):
        s = cuda.shared.array(0, float32)
        n = cuda.shared.array(0, int32)
        t, w = cuda.threadIdx.x, cuda.blockDim.x
        ints = n[w:]
        s[t] = x[cuda.grid(1)]
        ints[t] = t
        cuda.syncthreads()
        out[cuda.grid(1)] = s[w - 1 - t] * ints[w - 1 - t]

    x, out = numbers(256), np.zeros(256, np.float32)
    f[2, 128, 0, 128 * 8](x, out)
    want = (x.reshape(2, 128) * np.arange(128))[:, ::-1].ravel()
    np.testing.assert_allclose(out, want, rtol=1e-6)


@check
def grids_of_three_dimensions():
    @cuda.jit
    def f(a, out):
        i, j, k = cuda.grid(3)
        x, y, z = cuda.gridsize(3)
        if i < a.shape[0] and j < a.shape[1] and k < a.shape[2]:
            out[k, j, i] = a[i, j, k] + x * 10000 + y * 100 + z

    a = np.arange(9 * 10 * 11, dtype=np.int64).reshape(9, 10, 11)
    out = np.zeros((11, 10, 9), np.int64)
    f[(3, 3, 3), (4, 4, 4)](a, out)
    assert (out == a.transpose(2, 1, 0) + 121212).all()


@check
def constant_arrays_of_two_dimensions():
    table = np.arange(12, dtype=np.float64).reshape(3, 4)
    points = np.array([(1, 2.5), (3, 4.5)], dtype=np.dtype([("n", np.int32), ("x", np.float64)], align=True))

    @cuda.jit
    def f(out):
        c, p = cuda.const.array_like(table), cuda.const.array_like(points)
        i = cuda.grid(1)
        if i < out.size:
            out[i] = c[i % 3, i % 4] * p[i % 2].x + p[i % 2].n

    out = np.zeros(40)
    f[1, 64](out)
    i = np.arange(40)
    assert (out == table[i % 3, i % 4] * points["x"][i % 2] + points["n"][i % 2]).all()


@check
def vector_types():
    @cuda.jit
    def f(x, out):
        i = cuda.grid(1)
        v = cuda.float32x4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3])
        w = cuda.int32x2(i, 2 * i)
        u = cuda.float64x3(v.x, v.y, cuda.float64x2(v.z, v.w).y)
        out[i] = v.x + v.y * w.y + u.z + w.x

    x, out = numbers(256), np.zeros(64, np.float64)
    f[1, 64](x, out)
    v, i = x.reshape(64, 4).astype(np.float64), np.arange(64)
    np.testing.assert_allclose(out, v[:, 0] + v[:, 1] * 2 * i + v[:, 3] + i, rtol=1e-5, atol=1e-5)


def bits(lanes):
    return int(sum(1 << k for k in range(32) if lanes[k]))


@check
def votes_and_matches():
    @cuda.jit
    def f(x, out):
        i = cuda.grid(1)
        v, m = x[i], uint32(0xFFFFFFFF)
        out[0, i] = cuda.ballot_sync(m, v & 1)
        out[1, i] = cuda.any_sync(m, v == 3)
        out[2, i] = cuda.all_sync(m, v < 8)
        out[3, i] = cuda.eq_sync(m, v & 1)
        out[4, i] = cuda.match_any_sync(m, v)
        same, every = cuda.match_all_sync(m, v >> 3)
        out[5, i] = same
        out[6, i] = every
        out[7, i] = cuda.popc(cuda.ballot_sync(m, v & 1) & cuda.lanemask_lt())
        out[8, i] = cuda.shfl_sync(m, v, (i + 5) % 32)
        out[9, i] = cuda.shfl_up_sync(m, v, 3)
        out[10, i] = cuda.shfl_xor_sync(m, v, 9)
        out[11, i] = cuda.activemask()
        out[12, i] = cuda.clz(v) + cuda.ffs(v) + cuda.brev(v)

    x = np.random.default_rng(4).integers(0, 8, 64).astype(np.int32)
    out = np.zeros((13, 64), np.int64)
    f[1, 64](x, out)
    for w in (0, 1):
        v, o = x[32 * w : 32 * w + 32], out[:, 32 * w : 32 * w + 32] & 0xFFFFFFFF
        assert (o[0] == bits(v & 1)).all() and (o[1] == (v == 3).any()).all() and (o[2] == 1).all()
        assert (o[3] == (len(set(v & 1)) == 1)).all()
        assert o[4].tolist() == [bits(v == k) for k in v]
        assert (o[5] == 0xFFFFFFFF).all() and (o[6] == 1).all()
        assert o[7].tolist() == np.concatenate([[0], np.cumsum(v & 1)[:-1]]).tolist()
        assert (
            (o[8] == np.roll(v, -5)).all()
            and (o[9] == np.concatenate([v[:3], v[:-3]])).all()
            and (o[10] == v[np.arange(32) ^ 9]).all()
        )
        assert (o[11] == 0xFFFFFFFF).all()
        want = [
            (32 - int(k).bit_length()) + ((int(k) & -int(k)).bit_length()) + int(f"{int(k):032b}"[::-1], 2) for k in v
        ]
        assert o[12].tolist() == [t & 0xFFFFFFFF for t in want], (o[12], want)


@check
def barriers_that_count():
    @cuda.jit
    def f(x, out):
        i, t = cuda.grid(1), cuda.threadIdx.x
        a = cuda.syncthreads_count(1 if x[i] > 0 else 0)
        b = cuda.syncthreads_and(1 if x[i] > -5 else 0)
        c = cuda.syncthreads_or(1 if x[i] > 3.9 else 0)
        cuda.threadfence()
        cuda.threadfence_block()
        cuda.threadfence_system()
        cuda.nanosleep(100)
        if t == 0:
            out[cuda.blockIdx.x, 0] = a
            out[cuda.blockIdx.x, 1] = b
            out[cuda.blockIdx.x, 2] = c

    x, out = numbers(512), np.zeros((4, 3), np.int32)
    f[4, 128](x, out)
    b = x.reshape(4, 128)
    assert (
        (out[:, 0] == (b > 0).sum(1)).all() and (out[:, 1] != 0).all() and ((out[:, 2] != 0) == (b > 3.9).any(1)).all()
    )


@check
def printed():
    @cuda.jit
    def f(x):
        i = cuda.grid(1)
        if i < 2:
            print("row", i, x[i])

    f[1, 32](np.array([1.5, 2.5]))
    cuda.synchronize()


@check
def complex_numbers():
    @cuda.jit
    def f(z, out):
        i = cuda.grid(1)
        if i < z.size:
            w = z[i]
            for _ in range(5):
                w = w * w + z[i]
            out[i] = w / (abs(w) + 1) + w.conjugate() * 0.5

    z = numbers(100, np.float64) * 0.2 + 1j * numbers(100, np.float64)[::-1] * 0.2
    out = np.zeros_like(z)
    f[1, 128](z, out)
    w = z.copy()
    for _ in range(5):
        w = w * w + z
    np.testing.assert_allclose(out, w / (abs(w) + 1) + w.conj() * 0.5, rtol=1e-10)


@check
def guvectorized():
    @guvectorize([(float64[:], float64[:], float64[:])], "(n),(n)->()", target="cuda")
    def dot(a, b, out):
        s = 0.0
        for i in range(a.shape[0]):
            s += a[i] * b[i]
        out[0] = s

    a, b = numbers(60, np.float64).reshape(12, 5), numbers(60, np.float64)[::-1].reshape(12, 5).copy()
    np.testing.assert_allclose(dot(a, b), (a * b).sum(1))


@check
def recursion():
    @cuda.jit("int64(int64)", device=True)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @cuda.jit
    def f(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = fib(i)

    out = np.zeros(12, np.int64)
    f[1, 32](out)
    assert out.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]


@check
def tuples_options_and_slices():
    @cuda.jit(fastmath=True, lineinfo=True, max_registers=64)
    def f(pair, a, out):
        x, y = pair
        row = a[cuda.threadIdx.x]
        s = float32(0)
        for v in row[1:-1:2]:
            s += v
        out[cuda.threadIdx.x] = s / x[cuda.threadIdx.x] + y

    a, x, out = numbers(32 * 9).reshape(32, 9), numbers(32) + 5, np.zeros(32, np.float32)
    f[1, 32]((x, np.float32(2)), a, out)
    np.testing.assert_allclose(out, a[:, 1:-1:2].sum(1) / x + 2, rtol=1e-4, atol=1e-4)


@check
def debug_builds_raise():
    @cuda.jit(debug=True, opt=False)
    def f(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i] // 3

    x, y = np.arange(100, dtype=np.int32), np.zeros(100, np.int32)
    f[1, 128](x, y)
    assert (y == x // 3).all()

    @cuda.jit(debug=True, opt=False)
    def g(x):
        if x[cuda.grid(1)] > 2:
            raise ValueError("too large")

    try:
        g[1, 4](np.arange(4))
    except ValueError as e:
        assert "too large" in str(e)
    else:
        raise AssertionError("no exception")


@check
def memory_of_the_host():
    @cuda.jit
    def f(a, b, c):
        i = cuda.grid(1)
        a[i] += 1
        b[i] += 2
        c[i] += 3

    a, b = cuda.mapped_array(64, np.int32), cuda.managed_array(64, np.int32)
    a[:] = 0
    b[:] = 0
    with cuda.pinned(p := np.zeros(64, np.int32)):
        s = cuda.stream()
        c = cuda.to_device(p, stream=s)
        f[2, 32, s](a, b, c)
        c.copy_to_host(p, stream=s)
        s.synchronize()
    assert (a == 1).all() and (b == 2).all() and (p == 3).all()


@check
def a_function_in_cuda_c():
    src = cuda.CUSource(
        'extern "C" __device__ int twice(int *out, float x, int n) { *out = (int)x * 2 + n; return 0; }'
    )
    twice = cuda.declare_device("twice", "int32(float32, int32)", link=src)

    @cuda.jit
    def f(x, out):
        i = cuda.grid(1)
        out[i] = twice(x[i], i)

    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.int32)
    f[1, 32](x, out)
    assert (out == 3 * np.arange(32)).all()


@check
def normal_numbers():
    @cuda.jit
    def draw(states, out):
        i = cuda.grid(1)
        for k in range(out.shape[1]):
            out[i, k] = xoroshiro128p_normal_float64(states, i)

    out = np.zeros((128, 16))
    draw[1, 128](create_xoroshiro128p_states(128, seed=3), out)
    assert abs(out.mean()) < 0.1 and 0.9 < out.std() < 1.1


@check
def libdevice_of_both_widths():
    @cuda.jit
    def f(x, o32, o64):
        i = cuda.grid(1)
        if i < x.size:
            v, w = float32(x[i]), x[i]
            o32[0, i] = math.tanh(v)
            o64[0, i] = math.tanh(w)
            o32[1, i] = math.lgamma(abs(v) + float32(0.5))
            o64[1, i] = math.lgamma(abs(w) + 0.5)
            o32[2, i] = math.atan2(v, float32(2))
            o64[2, i] = math.atan2(w, 2.0)
            o32[3, i] = math.fmod(v, float32(0.7))
            o64[3, i] = math.fmod(w, 0.7)
            o32[4, i] = math.log1p(abs(v))
            o64[4, i] = math.log1p(abs(w))
            o32[5, i] = math.ldexp(v, 3)
            o64[5, i] = math.ldexp(w, 3)
            o32[6, i] = libdevice.fast_cosf(v)
            o64[6, i] = libdevice.cbrt(w)
            o32[7, i] = round(v)
            o64[7, i] = round(w, 2)
            o32[8, i] = math.gamma(abs(v) + float32(0.5))
            o64[8, i] = math.gamma(abs(w) + 0.5)

    x = numbers(200, np.float64)
    o32, o64 = np.zeros((9, 200), np.float32), np.zeros((9, 200))
    f[2, 128](x, o32, o64)
    lg, gm = np.vectorize(math.lgamma), np.vectorize(math.gamma)

    def want(v, c, r):
        v = v.astype(np.float64)
        return np.stack(
            [
                np.tanh(v),
                lg(abs(v) + 0.5),
                np.arctan2(v, 2),
                np.fmod(v, np.float64(c)),
                np.log1p(abs(v)),
                v * 8,
                r[0],
                r[1],
                gm(abs(v) + 0.5),
            ]
        )

    np.testing.assert_allclose(o64, want(x, 0.7, (np.cbrt(x), np.round(x, 2))), rtol=1e-11, atol=1e-12)
    f32 = x.astype(np.float32)
    np.testing.assert_allclose(o32, want(f32, np.float32(0.7), (np.cos(f32), np.round(f32))), rtol=3e-5, atol=3e-6)


main()
