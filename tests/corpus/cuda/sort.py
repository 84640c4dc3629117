from cases import *


@case(grid=2, block=256)
def bitonic_shared(r):
    x = r.integers(-(2**31), 2**31, (2, 256)).astype(i32)
    return [InOut(x, np.sort(x, 1))]


@case(grid=4, block=64)
def bitonic_step(r):
    x = r.permutation(256).astype(f32)
    i = np.arange(256)
    j = i ^ 4
    low, high = np.minimum(x, x[j]), np.maximum(x, x[j])
    e = np.where(((i & 16) == 0) == (i < j), low, high)
    return [InOut(x, e), InOut(x.astype(u32) * 3, e.astype(u32) * 3), i32(4), i32(16)]


@case(grid=2, block=128)
def radix_block(r):
    x = r.integers(0, 256, (2, 128)).astype(u32)
    return [x, Out(np.sort(x, 1)), i32(8)]


@case(grid=5, block=64)
def radix_count(r):
    x = r.integers(0, 2**32, 300).astype(u32)
    e = np.stack([np.bincount(row >> 8 & 15, minlength=16) for row in (x[k : k + 64] for k in range(0, 300, 64))])
    return [x, Out(e.T.astype(u32)), i32(8), i32(300)]


@case(grid=3, block=64)
def merge_ranks(r):
    a, b = np.sort(r.integers(0, 50, 80, i32)), np.sort(r.integers(0, 50, 90, i32))
    return [a, i32(80), b, i32(90), Out(np.sort(np.concatenate([a, b])))]


@case(grid=2, block=32)
def quicksort_rows(r):
    x = r.integers(-30000, 30000, (40, 25), i16)
    return [InOut(x, np.sort(x, 1)), i32(40), i32(25)]


@case(grid=3, block=64)
def top_four(r):
    x = r.permutation(3 * 200).reshape(3, 200).astype(f32)
    return [x, Out(-np.sort(-x, 1)[:, :4]), i32(200)]
