from cases import *


def halves(r, *shape):
    return r.integers(-8, 9, shape).astype(f16) / f16(4)


@case(grid=(2, 2), block=(32, 2))
def wmma_f16_f32(r):
    a, b = halves(r, 32, 48), halves(r, 48, 64)
    return [a, b, Out(np.maximum(a.astype(f32) @ b.astype(f32), 0)), i32(64), i32(48)]


@case(grid=1, block=32)
def wmma_f16_f16(r):
    a, b, c = halves(r, 16, 32), halves(r, 8, 16), halves(r, 32, 8)
    e = a.T.astype(f32) @ b.T.astype(f32) + c
    return [a, b, InOut(c, e.astype(f16), 2e-3)]


@case(grid=1, block=32)
def wmma_s8(r):
    a, b = r.integers(-128, 128, (2, 16, 16), i8)
    return [a, b, Out(2 * (a.astype(i32) @ b.T.astype(i32) + 7))]


@case(grid=1, block=32)
def wmma_bf16(r):
    a, b = r.integers(-8, 9, (8, 16)).astype(f32), r.integers(-8, 9, (16, 32)).astype(f32)
    return [bf16(a), bf16(b), Out(a @ b)]


@case(grid=1, block=32)
def wmma_tf32(r):
    a, b = r.standard_normal((16, 8), dtype=f32), r.standard_normal((8, 16), dtype=f32)
    return [a, b, Out(a @ b, 1e-3)]


@case(grid=1, block=32)
def wmma_f64(r):
    a, b, c = r.standard_normal((8, 4)), r.standard_normal((8, 4)), r.standard_normal((8, 8))
    return [a, b, InOut(c, a @ b.T + c, 1e-14)]


@case(grid=1, block=32)
def ldmatrix_mma(r):
    a, b = halves(r, 16, 16), halves(r, 16, 8)
    return [a, b, Out(a.astype(f32) @ b.astype(f32))]


@case(grid=1, block=32)
def mma_s8(r):
    a, b = r.integers(-128, 128, (16, 32), i8), r.integers(-128, 128, (8, 32), i8)
    return [a, b, Out(a.astype(i32) @ b.T.astype(i32))]
