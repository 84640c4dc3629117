from cases import *


@case(grid=3, block=64)
def each_atomic(r):
    x = r.integers(0, 1000, 150, i32)
    bit = np.bitwise_or.reduce(u32(1) << (x & 31).astype(u32)).view(i32)
    y = i32([x.sum(), -x.sum(), x.min(), x.max(), ~bit, bit, np.bitwise_xor.reduce(x)])
    before = i32([0, 0, 9999, -1, -1, 0, 0])
    return [
        x,
        InOut(before, y),
        InOut(u32([0, 0]), u32([150 % 10, -150 % 10])),
        InOut(u64([0, 0]), u64([150 << 33, int(x.max()) << 20])),
        i32(150),
    ]


@case(grid=2, block=64)
def float_atomics(r):
    x = r.integers(0, 100, 120).astype(f32)
    return [x, InOut(np.zeros(3, f32), f32([x.sum(), x[:64].sum(), x[64:].sum()])), InOut(f64([0]), f64([x.sum()])), i32(120)]


@case(grid=2, block=64)
def max_by_cas(r):
    x = r.random(120, dtype=f32)
    return [x, InOut(f32([0]), f32([x.max()])), i32(120)]


@case(grid=6, block=32)
def spin_lock(r):
    x = r.integers(0, 100, 6, i32)
    return [x, InOut(i32([0]), i32([x.sum()])), InOut(i32([0]), i32([6]))]


@case(grid=2, block=32)
def ticket_lock(r):
    return [InOut(u32([0]), u32([64])), InOut(u32([0]), u32([64])), Out(np.arange(64, dtype=i32), order=True), InOut(i32([0]), i32([64]))]


@case(grid=3, block=64)
def publish(r):
    x = r.integers(0, 100, 64, i32)
    return [x, Out(2 * x), InOut(i32([0]), i32([1])), Out(2 * x + i32([[1], [2]]))]


@case(grid=1, block=128)
def warp_chain(r):
    x = r.integers(0, 100, (4, 32), i32)
    return [x, Out(x.sum(1).cumsum().astype(i32))]


@case(grid=1, block=64)
def bfs_level(r):
    edges = r.random((60, 60)) < 0.1
    start = np.concatenate([[0], edges.sum(1).cumsum()]).astype(i32)
    frontier = r.choice(60, 8, False).astype(i32)
    depth = np.full(60, -1, i32)
    depth[frontier] = 3
    reached = np.flatnonzero(edges[frontier].any(0) & (depth < 0)).astype(i32)
    after = depth.copy()
    after[reached] = 4
    return [start, np.nonzero(edges)[1].astype(i32), frontier, i32(8), InOut(depth, after), Out(reached, order=True), InOut(i32([0]), i32([len(reached)])), i32(4)]


@case(grid=2, block=64)
def hash_insert(r):
    keys = r.integers(0, 90, 120).astype(u32) * u32(7919)
    unique, counts = np.unique(keys, return_counts=True)
    empty = np.full(128, 2**32 - 1, u32)
    slots = np.concatenate([unique, empty[: 128 - len(unique)]])
    full = np.concatenate([counts, np.zeros(128 - len(unique), int)]).astype(i32)
    return [keys, InOut(empty, slots, order=True), InOut(np.zeros(128, i32), full, order=True), i32(120), i32(128)]


@case(grid=2, block=96)
def scopes(r):
    x = int(np.bitwise_xor.reduce(np.arange(96)))
    return [InOut(i32([0]), i32([192])), InOut(i32([0]), i32([95])), InOut(i32([0, 0]), i32([x, x]))]
