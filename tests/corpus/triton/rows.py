"""Triton kernels on vectors and rows."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from cases import *


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(z + i, tl.load(x + i, mask) + tl.load(y + i, mask), mask)


@tile(add, "*fp32 *fp32 *fp32 i32", grid=4, BLOCK=256)
def add_case(r):
    x, y = r.standard_normal((2, 900), dtype=f32)
    return [x, y, Out(x + y), i32(900)]


@triton.jit
def softmax(x, y, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c, c < columns, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * stride + c, e / tl.sum(e, 0), c < columns)


def softmax_of(x):
    e = np.exp(x.astype(f64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@tile(softmax, "*fp32 *fp32 i32 i32", grid=5, BLOCK=256)
def softmax_case(r):
    x = r.standard_normal((5, 200), dtype=f32) * 3
    return [x, Out(f32(softmax_of(x)), 1e-5), i32(200), i32(200)]


@triton.jit
def layer_norm(x, gain, bias, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + c, c < columns, 0.0)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        d = tl.where(c < columns, tl.load(x + row * columns + c, c < columns, 0.0) - mean, 0.0)
        squares += d * d
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + eps)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = c < columns
        v = (tl.load(x + row * columns + c, mask) - mean) * scale
        tl.store(y + row * columns + c, v * tl.load(gain + c, mask) + tl.load(bias + c, mask), mask)


@tile(layer_norm, "*fp32 *fp32 *fp32 *fp32 i32 fp32", grid=3, BLOCK=128)
def layer_norm_case(r):
    x, g, b = r.standard_normal((3, 300)), r.random(300), r.random(300)
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
    return [f32(x), f32(g), f32(b), Out(f32(y), 1e-5), i32(300), f32(1e-5)]


@triton.jit
def rms_norm(x, gain, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + c, c < columns, 0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / columns + 1e-6)
    out = v * scale * tl.load(gain + c, c < columns, 0.0).to(tl.float32)
    tl.store(y + row * columns + c, out.to(tl.bfloat16), c < columns)


@tile(rms_norm, "*bf16 *bf16 *bf16 i32", grid=3, warps=2, BLOCK=256)
def rms_norm_case(r):
    x, g = bf16(r.standard_normal((3, 240))), bf16(r.random(240))
    v = from_bf16(x).astype(f64)
    y = v / np.sqrt((v * v).mean(1, keepdims=True) + 1e-6) * from_bf16(g)
    return [x, g, Out(bf16(f32(y)), 1e-4), i32(240)]


@triton.jit
def dropout(x, y, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > p
    tl.store(y + i, tl.where(keep, tl.load(x + i, i < n) / (1 - p), 0.0), i < n)


def philox(counter, key):
    c, k = [np.asarray(counter, u64), *[np.zeros(len(counter), u64)] * 3], [key % 2**32, key >> 32]
    low = u64(2**32 - 1)
    for _ in range(10):
        a, b = u64(0xD2511F53) * c[0], u64(0xCD9E8D57) * c[2]
        c = [b >> u64(32) ^ c[1] ^ u64(k[0]), b & low, a >> u64(32) ^ c[3] ^ u64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c[0].astype(u32)


@tile(dropout, "*fp32 *fp32 i32 fp32 i32", grid=2, BLOCK=256)
def dropout_case(r):
    x = r.standard_normal(500, dtype=f32)
    bits = philox(np.arange(500), 1234).view(i32)
    uniform = np.where(bits < 0, -bits - 1, bits).astype(f32) * f32(4.6566127342e-10)
    return [x, Out(np.where(uniform > f32(0.3), x / f32(0.7), f32(0)), 1e-6), i32(500), f32(0.3), i32(1234)]


@triton.jit
def rope(x, cosine, sine, heads, HALF: tl.constexpr):
    token, head = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, HALF)
    at = x + (token * heads + head) * 2 * HALF + k
    a, b = tl.load(at), tl.load(at + HALF)
    c, s = tl.load(cosine + token * HALF + k), tl.load(sine + token * HALF + k)
    tl.store(at, a * c - b * s)
    tl.store(at + HALF, b * c + a * s)


@tile(rope, "*fp32 *fp32 *fp32 i32", grid=(4, 2), warps=1, HALF=32)
def rope_case(r):
    x, c, s = r.standard_normal((4, 2, 64)), r.standard_normal((4, 1, 32)), r.standard_normal((4, 1, 32))
    a, b = x[..., :32], x[..., 32:]
    y = np.concatenate([a * c - b * s, b * c + a * s], 2)
    return [InOut(f32(x), f32(y), 1e-6), f32(c), f32(s), i32(2)]


@triton.jit
def cross_entropy(logits, label, loss, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(logits + row * classes + c, c < classes, -float("inf"))
    most = tl.max(v, 0)
    total = tl.log(tl.sum(tl.exp(v - most), 0)) + most
    tl.store(loss + row, total - tl.load(logits + row * classes + tl.load(label + row)))


@tile(cross_entropy, "*fp32 *i64 *fp32 i32", grid=4, BLOCK=128)
def cross_entropy_case(r):
    x, label = r.standard_normal((4, 100), dtype=f32), r.integers(0, 100, 4)
    loss = -np.log(softmax_of(x)[np.arange(4), label])
    return [x, label, Out(f32(loss), 1e-6), i32(100)]


@triton.jit
def embedding(token, table, y, dim, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    t = tl.load(token + tl.program_id(0))
    tl.store(y + tl.program_id(0) * dim + c, tl.load(table + t * dim + c, c < dim), c < dim)


@tile(embedding, "*i64 *fp16 *fp16 i32", grid=6, warps=1, BLOCK=128)
def embedding_case(r):
    t, table = r.integers(0, 20, 6), r.standard_normal((20, 96)).astype(f16)
    return [t, table, Out(table[t]), i32(96)]


@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(y + i, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), i < n)


@tile(gelu, "*fp32 *fp32 i32", grid=2, BLOCK=128)
def gelu_case(r):
    x = r.standard_normal(200, dtype=f32) * 2
    from math import erf

    return [x, Out(f32([0.5 * v * (1 + erf(v / 2**0.5)) for v in x.astype(f64)]), 1e-6), i32(200)]


@triton.jit
def maths(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, 1.0)
    tl.store(y + i, libdevice.tanh(v) + libdevice.pow(v, 1.5) + tl.sin(v) * tl.cos(v) + libdevice.log1p(v), i < n)


@tile(maths, "*fp32 *fp32 i32", grid=1, BLOCK=128)
def maths_case(r):
    x = r.random(100, dtype=f32) * 5
    v = x.astype(f64)
    return [x, Out(f32(np.tanh(v) + v**1.5 + np.sin(v) * np.cos(v) + np.log1p(v)), 1e-6), i32(100)]


@triton.jit
def cumulative(x, y, columns, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + c, c < columns, 0)
    tl.store(y + tl.program_id(0) * columns + c, tl.cumsum(v, 0), c < columns)


@tile(cumulative, "*i32 *i32 i32", grid=3, BLOCK=512)
def cumulative_case(r):
    x = r.integers(-99, 99, (3, 500), i32)
    return [x, Out(x.cumsum(1, dtype=i32)), i32(500)]


@triton.jit
def sort_rows(x, y, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + c, tl.sort(tl.load(x + c)))


@tile(sort_rows, "*fp32 *fp32", grid=2, BLOCK=128)
def sort_rows_case(r):
    x = r.standard_normal((2, 128), dtype=f32)
    return [x, Out(np.sort(x, 1))]


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + i, i < n, 0), BINS, i < n)
    tl.atomic_add(bins + tl.arange(0, BINS), counts, sem="relaxed")


@tile(histogram, "*i32 *i32 i32", grid=3, BLOCK=256, BINS=64)
def histogram_case(r):
    x = r.integers(0, 64, 700, i32)
    return [x, InOut(np.zeros(64, i32), np.bincount(x, minlength=64).astype(i32)), i32(700)]


@triton.jit
def argmax(x, best, where, columns, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v, at = tl.max(tl.load(x + row * columns + c, c < columns, -float("inf")), 0, return_indices=True)
    tl.store(best + row, v)
    tl.store(where + row, at)


@tile(argmax, "*fp32 *fp32 *i32 i32", grid=4, BLOCK=256)
def argmax_case(r):
    x = r.integers(0, 99, (4, 250)).astype(f32)
    return [x, Out(x.max(1)), Out(x.argmax(1).astype(i32)), i32(250)]


@triton.jit
def sum_all(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + i, i < n, 0.0)
    tl.atomic_add(y, tl.sum(total, 0))


@tile(sum_all, "*fp32 *fp32 i32", grid=3, BLOCK=128)
def sum_all_case(r):
    x = r.random(1000, dtype=f32)
    return [x, InOut(f32([0]), f32([x.sum(dtype=f64)]), 1e-5), i32(1000)]
