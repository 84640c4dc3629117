"""Triton kernels on tiles: products, attention, transposes, locks."""

import triton
import triton.language as tl

from cases import *


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TYPE: tl.constexpr):
    row, col, depth = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros([BM, BN], TYPE)
    for start in range(0, k, BK):
        x = tl.load(a + row[:, None] * k + (start + depth)[None], (row[:, None] < m) & ((start + depth)[None] < k), 0.0)
        y = tl.load(b + (start + depth)[:, None] * n + col[None], ((start + depth)[:, None] < k) & (col[None] < n), 0.0)
        acc = tl.dot(x, y, acc, out_dtype=TYPE)
    tl.store(c + row[:, None] * n + col[None], acc, (row[:, None] < m) & (col[None] < n))


@tile(matmul, "*fp16:16 *fp16:16 *fp32:16 i32:16 i32:16 i32:16", grid=(2, 2), BM=64, BN=64, BK=32, TYPE=tl.float32)
def matmul_f16_case(r):
    a, b = r.standard_normal((80, 96)).astype(f16), r.standard_normal((96, 112)).astype(f16)
    return [a, b, Out(a.astype(f32) @ b.astype(f32), 1e-4), i32(80), i32(112), i32(96)]


@tile(matmul, "*bf16:16 *bf16:16 *fp32:16 i32 i32 i32", grid=(1, 2), warps=8, stages=2, BM=64, BN=32, BK=64, TYPE=tl.float32)
def matmul_bf16_case(r):
    a, b = bf16(r.standard_normal((50, 70))), bf16(r.standard_normal((70, 40)))
    return [a, b, Out(from_bf16(a) @ from_bf16(b), 1e-4), i32(50), i32(40), i32(70)]


@tile(matmul, "*fp32:16 *fp32:16 *fp32:16 i32:16 i32:16 i32:16", grid=(1, 1), BM=64, BN=64, BK=32, TYPE=tl.float32)
def matmul_tf32_case(r):
    a, b = r.standard_normal((64, 48), dtype=f32), r.standard_normal((48, 64), dtype=f32)
    return [a, b, Out(a @ b, 2e-3), i32(64), i32(64), i32(48)]


@tile(matmul, "*i8:16 *i8:16 *i32:16 i32:16 i32:16 i32:16", grid=(1, 1), BM=32, BN=32, BK=64, TYPE=tl.int32)
def matmul_i8_case(r):
    a, b = r.integers(-128, 128, (32, 128), i8), r.integers(-128, 128, (128, 32), i8)
    return [a, b, Out(a.astype(i32) @ b.astype(i32)), i32(32), i32(32), i32(128)]


@triton.jit
def attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    x = tl.load(q + row[:, None] * D + d[None], row[:, None] < n, 0.0)
    most, total = tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        col = start + tl.arange(0, BN)
        y = tl.load(k + col[None] * D + d[:, None], col[None] < n, 0.0)
        score = tl.where(row[:, None] >= col[None], tl.dot(x, y) * scale, -float("inf"))
        next_most = tl.maximum(most, tl.max(score, 1))
        p = tl.exp2(score - next_most[:, None])
        shrink = tl.exp2(most - next_most)
        total = total * shrink + tl.sum(p, 1)
        z = tl.load(v + col[:, None] * D + d[None], col[:, None] < n, 0.0)
        acc = tl.dot(p.to(tl.float16), z, acc * shrink[:, None])
        most = next_most
    tl.store(o + row[:, None] * D + d[None], (acc / total[:, None]).to(tl.float16), row[:, None] < n)


@tile(attention, "*fp16:16 *fp16:16 *fp16:16 *fp16:16 i32 fp32", grid=2, stages=2, BM=64, BN=32, D=32)
def attention_case(r):
    q, k, v = r.standard_normal((3, 100, 32)).astype(f16)
    s = np.where(np.tri(100) > 0, q.astype(f64) @ k.T.astype(f64) * 0.2, -np.inf)
    p = np.exp(s - s.max(1, keepdims=True))
    o = p @ v.astype(f64) / p.sum(1, keepdims=True)
    return [q, k, v, Out(f16(o), 3e-3), i32(100), f32(0.2 * np.log2(np.e))]


@triton.jit
def transpose(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    row, col = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.load(x + row[:, None] * n + col[None], (row[:, None] < m) & (col[None] < n))
    tl.store(y + col[:, None] * m + row[None], tl.trans(v), (col[:, None] < n) & (row[None] < m))


@tile(transpose, "*fp32:16 *fp32:16 i32 i32", grid=(2, 2), BM=32, BN=32)
def transpose_case(r):
    x = r.standard_normal((50, 40), dtype=f32)
    return [x, Out(x.T), i32(50), i32(40)]


@triton.jit
def quantize(x, q, scales, columns, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + c, c < columns, 0.0)
    scale = tl.max(tl.abs(v), 0) / 127.0
    rounded = tl.extra.cuda.libdevice.rint(v / scale)
    tl.store(q + row * columns + c, rounded.to(tl.int8), c < columns)
    tl.store(scales + row, scale)


@tile(quantize, "*fp32:16 *i8:16 *fp32:16 i32", grid=3, BLOCK=256)
def quantize_case(r):
    x = r.standard_normal((3, 200), dtype=f32)
    scale = abs(x).max(1, keepdims=True) / f32(127)
    return [x, Out(np.rint(x / scale).astype(i8)), Out(scale, 1e-6), i32(200)]


@triton.jit
def locked_sum(x, lock, count, total, columns, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + c, c < columns, 0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    turn = tl.load(count)
    before = tl.where(turn == 0, tl.zeros([BLOCK], tl.float32), tl.load(total + c, c < columns, 0.0))
    tl.store(total + c, before + v, c < columns)
    tl.debug_barrier()
    tl.store(count, turn + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@tile(locked_sum, "*fp32:16 *i32:16 *i32:16 *fp32:16 i32", grid=4, BLOCK=128)
def locked_sum_case(r):
    x = r.integers(0, 99, (4, 100)).astype(f32)
    return [x, InOut(i32([0]), i32([0])), InOut(i32([0]), i32([4])), InOut(np.zeros(100, f32), x.sum(0)), i32(100)]


@triton.jit
def combine(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def recurrence(a, b, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    _, out = tl.associative_scan((tl.load(a + at, mask, 1.0), tl.load(b + at, mask, 0.0)), 0, combine)
    tl.store(y + at, out, mask)


@tile(recurrence, "*fp32:16 *fp32:16 *fp32:16 i32", grid=2, BLOCK=256)
def recurrence_case(r):
    a, b = r.random((2, 200)), r.standard_normal((2, 200))
    y, h = np.zeros((2, 200)), np.zeros(2)
    for t in range(200):
        h = a[:, t] * h + b[:, t]
        y[:, t] = h
    return [f32(a), f32(b), Out(f32(y), 1e-5), i32(200)]


@triton.jit
def reduce_rows(x, low, total, n, m, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.arange(0, BN)
    mask = (row[:, None] < n) & (col[None] < m)
    v = tl.load(x + row[:, None] * m + col[None], mask, 0)
    tl.store(low + row, tl.min(v, 1), row < n)
    tl.store(total + row, tl.xor_sum(v, 1), row < n)


@tile(reduce_rows, "*i32:16 *i32:16 *i32:16 i32 i32", grid=2, BM=16, BN=64)
def reduce_rows_case(r):
    x = r.integers(-99, -1, (25, 64), i32)
    return [x, Out(x.min(1)), Out(np.bitwise_xor.reduce(x, 1)), i32(25), i32(64)]
