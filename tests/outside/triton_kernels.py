"""Runs kernels that Triton compiles on the emulator: `LD_LIBRARY_PATH` names the folder of its library, which must hold
it as `libcuda.so.1` and `libcuda.so`; a C compiler builds Triton's launcher.

`ptxas.py` beside this file stands in for ptxas, so Triton's cubin is its PTX. Buffers are the driver's own, since
PyTorch needs NVIDIA's runtime. Prints one line a check; ends with 1 if one failed.
"""

import ctypes
import math
import os
import pathlib
import tempfile

for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
    os.environ[variable] = str(pathlib.Path(__file__).with_name("ptxas.py"))
# Machine code that an earlier run left there would be loaded instead.
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import numpy as np  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from checks import check, main  # noqa: E402
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

cuda = ctypes.CDLL("libcuda.so.1")


def ok(code):
    assert code == 0, code


def start():
    context = ctypes.c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))


class Type(str):
    """The name of a type, with the bytes of an element, which descriptors ask for."""

    itemsize: int


class Buffer:
    """What Triton asks of a tensor: its address and the type of its elements."""

    def __init__(self, array):
        self.array, self.dtype, address = array, Type(array.dtype), ctypes.c_uint64()
        self.dtype.itemsize = array.dtype.itemsize
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


@triton.jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PREC: tl.constexpr):
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + d[None, :])
    y = tl.load(b + d[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, input_precision=PREC))


@check
def products_of_all_types():
    types = [
        (np.float16, "ieee", 1e-3),
        (bfloat16, "ieee", 1e-3),
        (np.float32, "tf32", 3e-3),
        (np.float32, "tf32x3", 1e-5),
        (np.float32, "ieee", 1e-5),
        (float8_e5m2, "ieee", 1e-3),
        (float8_e4m3fn, "ieee", 1e-3),
        (np.float64, "ieee", 1e-12),
    ]
    for dtype, precision, tolerance in types:
        a, b = numbers(32, 64).astype(dtype), numbers(64, 32).astype(dtype)
        out = Buffer(np.zeros((32, 32), np.float64 if dtype == np.float64 else np.float32))
        dot_kernel[(1,)](Buffer(a), Buffer(b), out, M=32, N=32, K=64, PREC=precision)
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(out.numpy(), wanted, tolerance, 8 * tolerance, err_msg=f"{dtype} {precision}")


@triton.jit
def int8_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + d[None, :])
    y = tl.load(b + d[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y))


@check
def a_product_of_bytes():
    r = np.random.default_rng(2)
    a, b = r.integers(-128, 128, (32, 64)).astype(np.int8), r.integers(-128, 128, (64, 32)).astype(np.int8)
    out = Buffer(np.zeros((32, 32), np.int32))
    int8_kernel[(1,)](Buffer(a), Buffer(b), out, M=32, N=32, K=64)
    assert (out.numpy() == a.astype(np.int32) @ b.astype(np.int32)).all()


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def recur(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scan_kernel(x, sums, products, a, linear, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(sums + i, tl.cumsum(v, 0))
    tl.store(products + i, tl.cumprod(tl.abs(v) * 0.01 + 0.99, 0))
    tl.store(a + i, tl.associative_scan(v, 0, add, reverse=True))
    _, state = tl.associative_scan((v * 0.4, v), 0, recur)
    tl.store(linear + i, state)


@check
def scans():
    x = numbers(256)
    o = [Buffer(np.zeros(256, np.float32)) for _ in range(4)]
    scan_kernel[(1,)](Buffer(x), *o, N=256)
    x = x.astype(np.float64)
    np.testing.assert_allclose(o[0].numpy(), np.cumsum(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(o[1].numpy(), np.cumprod(abs(x) * 0.01 + 0.99), rtol=1e-4)
    np.testing.assert_allclose(o[2].numpy(), np.cumsum(x[::-1])[::-1], rtol=1e-4, atol=1e-4)
    state, want = 0, []
    for v in x:
        state = state * (v * 0.4) + v
        want.append(state)
    np.testing.assert_allclose(o[3].numpy(), want, rtol=1e-3, atol=1e-3)


@triton.jit
def sort_kernel(x, up, top, flip, arg, bins, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(up + i, tl.sort(v))
    tl.store(top + tl.arange(0, 16), tl.topk(v, 16))
    tl.store(flip + i, tl.flip(v))
    tl.store(arg, tl.argmax(v, 0))
    tl.store(arg + 1, tl.argmin(v, 0))
    tl.store(bins + tl.arange(0, 16), tl.histogram((v & 15), 16))


@check
def sorting():
    x = np.random.default_rng(5).permutation(256).astype(np.int32)
    up, top, flip, arg, bins = (Buffer(np.zeros(n, np.int32)) for n in (256, 16, 256, 2, 16))
    sort_kernel[(1,)](Buffer(x), up, top, flip, arg, bins, N=256)
    assert (up.numpy() == np.arange(256)).all() and (top.numpy() == np.arange(255, 239, -1)).all(), top.numpy()
    assert (flip.numpy() == x[::-1]).all() and arg.numpy().tolist() == [x.argmax(), x.argmin()]
    assert (bins.numpy() == 16).all()


@triton.jit
def atomics_kernel(x, i32, f32, won, N: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + i)
    tl.atomic_add(i32 + 0 * v, v, sem=SEM, scope=SCOPE)
    tl.atomic_max(i32 + 1 + 0 * v, v, sem=SEM, scope=SCOPE)
    tl.atomic_min(i32 + 2 + 0 * v, v, sem=SEM, scope=SCOPE)
    tl.atomic_or(i32 + 3 + 0 * v, v, sem=SEM, scope=SCOPE)
    tl.atomic_and(i32 + 4 + 0 * v, v | 1024, sem=SEM, scope=SCOPE)
    tl.atomic_xor(i32 + 5 + 0 * v, v, sem=SEM, scope=SCOPE)
    tl.atomic_xchg(i32 + 6, 7, sem=SEM, scope=SCOPE)
    tl.atomic_add(f32 + v % 8, v.to(tl.float32), sem=SEM, scope=SCOPE)
    tl.atomic_max(f32 + 8, tl.max(v, 0).to(tl.float32), sem=SEM, scope=SCOPE)
    old = tl.atomic_cas(won, 0, tl.program_id(0) + 1, sem=SEM, scope=SCOPE)
    if old == 0:
        tl.store(won + 1, tl.program_id(0) + 1)


@check
def atomics_of_all_kinds():
    x = np.random.default_rng(6).integers(0, 512, 512).astype(np.int32)
    for sem in ("relaxed", "acquire", "release", "acq_rel"):
        for scope in ("gpu", "sys"):
            i32 = Buffer(np.array([0, 0, 4095, 0, 2047, 0, 0], np.int32))
            f32, won = Buffer(np.zeros(9, np.float32)), Buffer(np.zeros(2, np.int32))
            atomics_kernel[(4,)](Buffer(x), i32, f32, won, N=128, SEM=sem, SCOPE=scope)
            a = np.bitwise_and.reduce(x | 1024) & 2047
            assert i32.numpy().tolist() == [
                x.sum(),
                x.max(),
                x.min(),
                np.bitwise_or.reduce(x),
                a,
                np.bitwise_xor.reduce(x),
                7,
            ]
            assert f32.numpy().tolist() == [x[x % 8 == k].sum() for k in range(8)] + [x.max()]
            assert won.numpy()[0] == won.numpy()[1] > 0


@triton.jit
def half_atomics_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(out + i % 8, tl.load(x + i))


@check
def atomics_of_halves():
    for dtype in (np.float16, bfloat16, np.float64):
        x = np.random.default_rng(6).integers(0, 8, 128).astype(dtype)
        out = Buffer(np.zeros(8, dtype))
        half_atomics_kernel[(1,)](Buffer(x), out, N=128)
        assert (out.numpy().astype(np.float32) == x.astype(np.float32).reshape(16, 8).sum(0)).all(), dtype


@triton.jit
def print_kernel(x, N: tl.constexpr):
    tl.device_print("v", tl.load(x + tl.arange(0, N)))
    tl.device_assert(tl.load(x) == 1.5)


@check
def printed():
    print_kernel[(1,)](Buffer(np.array([1.5, 2.5], np.float32)), N=2, num_warps=1, debug=True)
    ok(cuda.cuCtxSynchronize())


@triton.jit
def descriptor_kernel(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    e = tl.make_tensor_descriptor(y, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    e.store([i, j], d.load([i, j]) * 2)


@check
def descriptors_made_on_the_device():
    def alloc(size, align, stream):
        return Buffer(np.zeros(size, np.int8))

    triton.set_allocator(alloc)
    x = numbers(40, 64)
    y = Buffer(np.zeros_like(x))
    kernel = descriptor_kernel[(3, 2)](Buffer(x), y, 40, 64, BM=16, BN=32)
    assert "tensormap.replace" in kernel.asm["ptx"]
    assert np.array_equal(y.numpy(), x * 2)


@triton.jit
def host_descriptor_kernel(d, e, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    e.store([i, j], d.load([i, j]) * 2)


@check
def descriptors_made_on_the_host():
    x = numbers(40, 64)
    bx, by = Buffer(x), Buffer(np.zeros_like(x))
    kernel = host_descriptor_kernel[(3, 2)](
        TensorDescriptor(bx, [40, 64], [64, 1], [16, 32]),
        TensorDescriptor(by, [40, 64], [64, 1], [16, 32]),
        BM=16,
        BN=32,
    )
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"]
    assert np.array_equal(by.numpy(), x * 2)


@triton.jit
def random_kernel(out, ints, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.rand(42, i))
    tl.store(ints + i, tl.randint(42, i))


@check
def random():
    out, ints = Buffer(np.zeros(1024, np.float32)), Buffer(np.zeros(1024, np.int32))
    random_kernel[(8,)](out, ints, N=128)
    o = out.numpy()
    assert (o >= 0).all() and (o < 1).all() and 0.45 < o.mean() < 0.55 and len(set(ints.numpy())) > 1000


@triton.jit
def maths_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    a = tl.abs(v) + 0.5
    tl.store(out + 0 * N + i, tl.exp(v))
    tl.store(out + 1 * N + i, tl.log(a))
    tl.store(out + 2 * N + i, tl.sin(v) + tl.cos(v))
    tl.store(out + 3 * N + i, tl.sqrt(a) + tl.rsqrt(a))
    tl.store(out + 4 * N + i, tl.erf(v))
    tl.store(out + 5 * N + i, tl.sigmoid(v))
    tl.store(out + 6 * N + i, tl.fma(v, a, v))
    tl.store(out + 7 * N + i, tl.floor(v) + tl.ceil(v))
    tl.store(out + 8 * N + i, tl.div_rn(v, a) + tl.sqrt_rn(a))
    tl.store(out + 9 * N + i, libdevice.tanh(v) + libdevice.pow(a, v))
    tl.store(out + 10 * N + i, tl.clamp(v, -1.0, 1.0))


@check
def maths():
    x = numbers(128)
    out = Buffer(np.zeros((11, 128), np.float32))
    maths_kernel[(1,)](Buffer(x), out, N=128)
    v = x.astype(np.float64)
    a = abs(v) + 0.5
    want = np.stack(
        [
            np.exp(v),
            np.log(a),
            np.sin(v) + np.cos(v),
            np.sqrt(a) + 1 / np.sqrt(a),
            np.vectorize(math.erf)(v),
            1 / (1 + np.exp(-v)),
            v * a + v,
            np.floor(v) + np.ceil(v),
            v / a + np.sqrt(a),
            np.tanh(v) + a**v,
            np.clip(v, -1, 1),
        ]
    )
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)


@triton.jit
def scaled_kernel(
    a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, PA: tl.constexpr
):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(a + i[:, None] * (K // PA) + tl.arange(0, K // PA)[None, :])
    y = tl.load(b + tl.arange(0, K)[:, None] * N + j[None, :])
    s, t = tl.arange(0, K // 32), tl.arange(0, K // 32)
    p = tl.load(sa + i[:, None] * (K // 32) + s[None, :])
    q = tl.load(sb + j[:, None] * (K // 32) + t[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(x, p, FA, y, q, "e4m3"))


@check
def scaled_products():
    r = np.random.default_rng(8)
    a, b = numbers(128, 64).astype(float8_e4m3fn), numbers(64, 64).astype(float8_e4m3fn)
    sa, sb = r.integers(125, 130, (128, 2)).astype(np.uint8), r.integers(125, 130, (64, 2)).astype(np.uint8)
    out = Buffer(np.zeros((128, 64), np.float32))
    scaled_kernel[(1,)](Buffer(a), Buffer(sa), Buffer(b), Buffer(sb), out, M=128, N=64, K=64, FA="e4m3", PA=1)
    A = a.astype(np.float64) * np.repeat(2.0 ** (sa.astype(int) - 127), 32, 1)
    B = b.astype(np.float64) * np.repeat(2.0 ** (sb.astype(int) - 127), 32, 1).T
    np.testing.assert_allclose(out.numpy(), A @ B, rtol=1e-3, atol=1e-2)


@triton.jit
def control_kernel(x, out, n, N: tl.constexpr):
    s = tl.zeros((N,), tl.float32)
    k = 0
    while k < n:
        v = tl.load(x + k * N + tl.arange(0, N))
        if tl.sum(v, 0) > 0:
            s += v
        else:
            s -= v
        k += 1
    r = tl.reshape(s, (N // 8, 8))
    a, b = tl.split(tl.reshape(s, (N // 2, 2)))
    tl.store(
        out + tl.arange(0, N),
        tl.reshape(tl.join(b, a), (N,)) + tl.broadcast_to(tl.sum(r, 1)[:, None], (N // 8, 8)).reshape(N),
    )


@check
def loops_and_shapes():
    x = numbers(7, 64)
    out = Buffer(np.zeros(64, np.float32))
    control_kernel[(1,)](Buffer(x), out, 7, N=64)
    s = sum(v if v.sum() > 0 else -v for v in x.astype(np.float64))
    want = s.reshape(32, 2)[:, ::-1].ravel() + np.repeat(s.reshape(8, 8).sum(1), 8)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)


@triton.jit
def gather_kernel(x, k, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(k + i), 0))


@check
def gathers():
    x, k = numbers(128), np.random.default_rng(1).integers(0, 128, 128).astype(np.int32)
    out = Buffer(np.zeros(128, np.float32))
    gather_kernel[(1,)](Buffer(x), Buffer(k), out, N=128)
    assert np.array_equal(out.numpy(), x[k])


@triton.jit
def inline_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(
        out + i,
        tl.inline_asm_elementwise("lop3.b32 $0, $1, 255, 85, 0x6a;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1),
    )


@check
def inline_assembly():
    x = np.arange(128, dtype=np.int32) * 7
    out = Buffer(np.zeros(128, np.int32))
    inline_kernel[(1,)](Buffer(x), out, N=128)
    assert (out.numpy() == ((x & 255) ^ 85)).all()


@triton.jit
def persistent_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    start = tl.program_id(0)
    tn = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tn
    for t in tl.range(start, tiles, tl.num_programs(0), flatten=True, warp_specialize=WS):
        i, j = t // tn * BM, t % tn * BN
        ad = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
        bd = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
        cd = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(ad.load([i, k]), bd.load([k, j]), acc)
        cd.store([i, j], acc)


@check
def a_persistent_product():
    a, b = numbers(130, 64, dtype=np.float16), numbers(64, 96, dtype=np.float16)
    out = Buffer(np.zeros((130, 96), np.float32))
    kernel = persistent_kernel[(2,)](
        Buffer(a), Buffer(b), out, 130, 96, 64, BM=64, BN=64, BK=32, WS=False, num_stages=3
    )
    assert "wgmma.mma_async" in kernel.asm["ptx"]
    np.testing.assert_allclose(out.numpy(), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-2)


start()
main()
