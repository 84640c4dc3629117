from cases import *


@case(grid=2, block=64)
def tile_reduce(r):
    x = r.integers(-99, 99, (16, 8), i32)
    return [x, Out(x.sum(1, dtype=i32)), Out(x.min(1))]


@case(grid=2, block=64)
def tile_scan(r):
    x = r.integers(-99, 99, (4, 32), i32)
    c = x.cumsum(1, dtype=i32)
    return [x, Out(c), Out(c - x)]


@case(grid=2, block=64)
def coalesced_filter(r):
    x = r.integers(-99, 99, 120, i32)
    kept = x[x >= 0]
    return [x, Out(kept, order=True), InOut(i32([0]), i32([len(kept)])), i32(120)]


@case(grid=1, block=64)
def labelled_partition(r):
    l, x = r.integers(0, 4, (2, 32), i32), r.integers(0, 99, (2, 32), i32)
    same = l[:, :, None] == l[:, None]
    return [l, x, Out(((same * x[:, None]).sum(2) * 100 + same.sum(2)).astype(i32))]


@case(grid=3, block=32, cooperative=True)
def grid_jacobi(r):
    a = r.standard_normal(200, dtype=f32)
    before = after = a
    for _ in range(5):
        p = np.pad(after, 1)
        before, after = after, f32(0.5) * after + f32(0.25) * (p[:-2] + p[2:])
    return [InOut(a, before, 1e-5), InOut(np.zeros(200, f32), after, 1e-5), i32(200), i32(5)]


@case(grid=2, block=64, shared=400)
def copy_collectively(r):
    x = r.integers(0, 99, (2, 100), i32)
    return [x, Out(x[:, ::-1]), i32(100)]


@case(grid=2, block=128)
def dynamic_groups(r):
    x = r.integers(0, 99, (2, 8, 16), i32)
    return [x, Out(np.concatenate([x.sum(2), x.sum((1, 2))[:, None]], 1).astype(i32))]
