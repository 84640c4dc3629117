from cases import *


@case(grid=(3, 9), block=(16, 8))
def transpose_naive(r):
    x = r.standard_normal((70, 45), dtype=f32)
    return [x, Out(x.T), i32(70), i32(45)]


@case(grid=(2, 3), block=(32, 8))
def transpose_tiled(r):
    x = r.standard_normal((70, 45), dtype=f32)
    return [x, Out(x.T), i32(70), i32(45)]


@case(grid=(2, 2), block=(32, 4))
def transpose_swizzled(r):
    x = r.integers(0, 65536, (64, 64), u16)
    return [x, Out(x.T), i32(64)]


@case(grid=2, block=32)
def copy_vectors(r):
    x = r.integers(0, 256, 1003, u8)
    return [x, Out(x), i32(1003)]


@case(grid=2, block=64)
def split_points(r):
    p = r.standard_normal((100, 3), dtype=f32)
    return [p, Out(p[:, 0]), Out(p[:, 1]), Out(p[:, 2]), i32(100)]
