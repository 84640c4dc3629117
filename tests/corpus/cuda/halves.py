import math

from cases import *


@case(grid=1, block=64)
def half_axpy(r):
    x, y = r.standard_normal((2, 100)).astype(f16)
    e = (f64(f16(1.5)) * x.astype(f64) + y).astype(f16)
    return [f16(1.5), x, InOut(y, e), i32(100)]


@case(grid=1, block=64)
def half_compare(r):
    x, y = r.integers(-5, 6, (2, 60, 2)).astype(f16)
    mask = np.where(x > y, 0xFFFF, 0).astype(u16).view(u32)
    return [x, y, Out(np.minimum(x, y)), Out((x == y).astype(f16)), Out(mask), i32(60)]


@case(grid=1, block=64)
def half_functions(r):
    x = r.uniform(-4, 4, 60).astype(f16)
    v = abs(x).astype(f64)
    rows = [np.sqrt(v), np.exp(x.astype(f64)), np.log2(v), np.tanh(x.astype(f64)), 1 / v, np.floor(x), x.astype(f64) / 3]
    return [x, Out(np.array(rows).astype(f16), 1e-3), i32(60)]


@case(grid=3, block=64)
def bf16_layer_norm(r):
    x, g = bf16(r.standard_normal((3, 150)) + 1), bf16(r.random(150))
    v = from_bf16(x).astype(f64)
    e = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5) * from_bf16(g)
    return [x, g, Out(bf16(e), 2e-4), i32(150), f32(1e-5)]


@case(grid=1, block=64)
def bf16_arithmetic(r):
    x, y = bf16(r.standard_normal((2, 60)))
    a, b = from_bf16(x).astype(f64), from_bf16(y).astype(f64)
    z = from_bf16(bf16((a * b + np.maximum(a, b)).astype(f32))) + b
    return [x, y, Out(bf16(z.astype(f32))), i32(60)]


@case(grid=1, block=64)
def half_atomics(r):
    x = r.integers(0, 9, (60, 2)).astype(f16)
    return [x, InOut(f16([0, 0]), x.sum(0)), InOut(bf16([0]), bf16([60])), i32(60)]


def to_float8(x, exponent, mantissa, most):
    """The bits of an fp8 format without infinities in use, ties to even, saturated."""
    bias = 2 ** (exponent - 1) - 1
    values = [m / 2**mantissa * 2.0 ** (1 - bias) for m in range(2**mantissa)]
    values += [(1 + m / 2**mantissa) * 2.0 ** (e - bias) for e in range(1, 2**exponent) for m in range(2**mantissa)]
    values = np.array([v for v in values if v <= most])
    at = np.searchsorted(values, abs(x)).clip(1, len(values) - 1)
    low, high = values[at - 1], values[at]
    middle = (low + high) / 2
    up = (abs(x) > middle) | ((abs(x) == middle) & (at % 2 == 0))
    bits = np.where(up, at, at - 1)
    return (bits | np.where(np.signbit(x), 128, 0)).astype(u8), np.copysign(values[bits], x)


@case(grid=3, block=32)
def fp8_round_trip(r):
    x = r.standard_normal((3, 50), dtype=f32)
    scale = abs(x).max(1, keepdims=True) / f32(448)
    bits, values = to_float8((x / scale).astype(f64), 4, 3, 448)
    return [x, Out(bits), Out(scale), Out(values.astype(f32) * scale, 1e-6), i32(50)]


@case(grid=1, block=64)
def fp8_e5m2_pairs(r):
    x = (r.standard_normal((60, 2)) * 10.0 ** r.integers(-6, 6, (60, 2))).astype(f32)
    bits, values = to_float8(x.astype(f64), 5, 2, 57344)
    return [x, Out(bits.view(u16).ravel()), Out(values.astype(f16)), i32(60)]


@case(grid=1, block=64)
def dot_bytes(r):
    a, b = r.integers(-128, 128, (2, 50, 16), i8)
    u = r.integers(0, 256, (50, 16), u8)
    dot = (a.astype(i32) * b).sum(1)
    words, bytes_ = a.view(i16).reshape(-1)[:100].reshape(50, 2).astype(i32), b.reshape(-1)[:200].reshape(50, 4).astype(i32)
    return [a, b, u, Out((dot + (words * bytes_[:, :2]).sum(1)).astype(i32)), Out((u.astype(u32) ** 2).sum(1, dtype=u32)), i32(50)]


@case(grid=1, block=64)
def simd_in_words(r):
    a, b = r.integers(0, 2**32, (2, 60)).astype(u32)
    p, q = a.view(u8).astype(i32), b.view(u8).astype(i32)
    s, t = a.view(i16).astype(i32), b.view(i16).astype(i32)
    words = lambda v, kind: v.astype(kind).view(u32)
    sad = abs(a.view(i32).astype(i64) - b.view(i32)) + 5
    rows = [words(p + q, u8), words(abs(p - q), u8), words(np.maximum(s, t), i16), words(np.where(p > q, 255, 0), u8)]
    rows += [sad.astype(u64).astype(u32), words((s - t).clip(-32768, 32767), i16)]
    return [a, b, Out(np.array(rows, u32)), i32(60)]


@case(grid=2, block=(32, 4))
def gemv_int4(r):
    q = r.integers(0, 16, (8, 1280), u8)
    scale, x = r.random((8, 40)).astype(f16), r.standard_normal(1280).astype(f16)
    packed = (q[:, ::2] | q[:, 1::2] << 4).astype(u8)
    w = (q.astype(f64) - 8) * scale.astype(f64).repeat(32, 1)
    return [packed, scale, x, Out((w @ x.astype(f64)).astype(f32), 1e-4), i32(1280)]
