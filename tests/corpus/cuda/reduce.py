from cases import *


@case(grid=8, block=256)
def sum_shared(r):
    x = r.standard_normal(2000, dtype=f32)
    return [x, Out(chunks(x, 256).sum(1, dtype=f64).astype(f32), 1e-5), i32(2000)]


@case(grid=3, block=128)
def sum_shuffle(r):
    x = r.random(3001, dtype=f32)
    return [x, InOut(np.zeros(1, f32), f32([x.sum(dtype=f64)]), 1e-5), i32(3001)]


@case(grid=7, block=128)
def sum_last_block(r):
    x = r.integers(-1000, 1000, 850, i32)
    return [x, Out(chunks(x, 128).sum(1, dtype=i32)), Out(i32([x.sum()])), i32(850)]


@case(grid=3, block=128)
def argmax_rows(r):
    x = r.integers(0, 50, (10, 77)).astype(f32)
    return [x, Out(x.max(1)), Out(x.argmax(1).astype(i32)), i32(10), i32(77)]


@case(grid=1, block=64)
def dot_kahan(r):
    x, y = r.standard_normal(500), r.standard_normal(500)
    return [x, y, Out(f64([x @ y]), 1e-13), i32(500)]


@case(grid=2, block=64)
def redux_each_warp(r):
    x = r.integers(-(2**31), 2**31, 128).astype(i32)
    w = x.reshape(4, 32)
    return [x, Out(w.min(1)), Out(w.max(1)), Out(np.bitwise_or.reduce(w, 1).view(u32))]
