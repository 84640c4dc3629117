from cases import *


@case(grid=2, block=64)
def stages_of_cp_async(r):
    x = r.integers(0, 10, (2, 6, 256)).astype(f32)
    y = (x * np.arange(1, 7)[:, None]).sum(1)
    return [x, Out(np.roll(y, -1, 1).reshape(2, 4, 64).sum(1).astype(f32)), i32(6)]


@case(grid=2, block=32)
def zero_filled_tail(r):
    x = r.standard_normal(201, dtype=f32)
    return [np.pad(x, (0, 3)), Out(chunks(x, 128)[:, ::-1]), i32(201)]


@case(grid=(2, 2), block=(16, 16))
def sgemm_cp_async(r):
    a, b = r.standard_normal((2, 32, 32), dtype=f32)
    return [a, b, Out(a @ b, 1e-5), i32(32)]


@case(grid=1, block=64)
def library_pipeline(r):
    x = r.integers(0, 10, (5, 64), i32)
    return [x, Out((x[:, ::-1] * (3 ** np.arange(4, -1, -1))[:, None]).sum(0).astype(i32)), i32(5)]


@case(grid=1, block=64)
def producer_consumer(r):
    x = r.integers(0, 100, (5, 32), i32)
    return [x, Out((x * np.arange(1, 6)[:, None]).sum(0)[::-1].astype(i32)), i32(5)]


@case(grid=2, block=64)
def copies_on_barrier(r):
    x = r.integers(0, 100, (2, 64, 4), i32)
    return [x, Out((x[:, ::-1] * [1, 2, 3, 4]).sum(2).astype(i32))]


@case(grid=1, block=64)
def mbarrier_by_hand(r):
    x = r.integers(0, 100, 64, i32)
    return [x, Out(np.roll(x, -33 * 3) + i32(3)), i32(3)]


@case(grid=1, block=128)
def named_barriers(r):
    x = r.integers(0, 100, (4, 64), i32)
    return [x, Out((x * [[8], [4], [2], [1]]).sum(0)[np.arange(64) ^ 32].astype(i32)), i32(4)]


@case(grid=3, block=64)
def voting_barriers(r):
    x = r.integers(0, 98, (3, 64), i32)
    x[1, 5], x[2, 63] = -1, 99
    return [x, Out(np.stack([(x > 50).sum(1), (x >= 0).all(1), (x > 98).any(1)], 1).astype(i32))]
