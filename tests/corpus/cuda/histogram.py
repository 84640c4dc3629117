from cases import *


@case(grid=3, block=128)
def histogram_global(r):
    x = r.integers(0, 256, 1000, u8)
    return [x, InOut(np.zeros(256, u32), np.bincount(x, minlength=256).astype(u32)), i32(1000)]


@case(grid=3, block=128)
def histogram_shared(r):
    x = r.integers(0, 256, 1000, u8)
    return [x, InOut(np.zeros(256, u32), np.bincount(x, minlength=256).astype(u32)), i32(1000)]


@case(grid=4, block=96)
def histogram_match(r):
    x = r.integers(0, 10, 350, i32)
    return [x, InOut(np.zeros(10, i32), np.bincount(x, minlength=10).astype(i32)), i32(350)]


@case(grid=2, block=64)
def histogram_private(r):
    x = r.integers(0, 256, 2 * 64 * 20, u8)
    return [x, InOut(np.zeros(16, u32), np.bincount(x >> 4, minlength=16).astype(u32)), i32(20)]
