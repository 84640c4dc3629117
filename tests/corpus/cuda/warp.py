from cases import *


@case(grid=2, block=64)
def shuffles(r):
    x = r.integers(-500, 500, 128, i32)
    w, l = x.reshape(4, 32), np.arange(32)
    take = lambda at: Out(np.take_along_axis(w, np.broadcast_to(at, w.shape), 1))
    down = np.where(l % 8 + 3 < 8, l + 3, l)
    return [x, take(down), take(np.where(l >= 5, l - 5, l)), take(l ^ 17), take(l // 16 * 16 + w % 16), i32(128)]


@case(grid=1, block=64)
def shuffle_wide(r):
    x, a = r.standard_normal(64), r.integers(-(2**62), 2**62, 64)
    w, l = x.reshape(2, 32), np.arange(32)
    return [x, Out(w[:, l ^ 1] + w[:, np.where(l < 30, l + 2, l)]), a, Out(a.reshape(2, 32)[:, ::-1])]


@case(grid=2, block=96)
def votes(r):
    x = r.integers(-60, 100, (6, 32), i32)
    x[2], x[3], x[4, 0] = 7, np.arange(32), 300
    one = lambda v: v.astype(i32)
    ballot = ((x > 0) << np.arange(32)).sum(1).astype(u32)
    q = (x / 200).astype(int)
    return [x, Out(ballot), Out(one((x > -50).all(1))), Out(one((x > 95).any(1))), Out(one((q == q[:, :1]).all(1)))]


@case(grid=1, block=64)
def divergent_groups(r):
    x = r.integers(0, 100, (2, 32), i32)
    e = [[w[w % 2 == 0].sum() * 1000 + w[w % 2 == 0][0] if v % 2 == 0 else w[w % 2 == 1].max() for v in w] for w in x]
    return [x, Out(i32(e))]


@case(grid=2, block=64)
def aggregated(r):
    x = r.integers(0, 100, 120, i32)
    kept = x[x % 3 == 0]
    return [x, Out(kept, order=True), InOut(i32([0]), i32([len(kept)])), i32(120)]


@case(grid=1, block=64)
def warp_sort(r):
    x = r.standard_normal((2, 32), dtype=f32)
    return [x, Out(np.sort(x, 1))]


@case(grid=1, block=64)
def through_shared(r):
    x = r.integers(0, 100, (2, 32), i32)
    return [x, Out(2 * x[:, (np.arange(32) * 5 & 31)[::-1]])]


@case(grid=2, block=64)
def sum_by_key(r):
    k, v = r.integers(0, 7, 128, i32), r.integers(0, 1000, 128).astype(u32)
    return [k, v, InOut(np.zeros(7, u32), np.bincount(k, v, 7).astype(u32))]
