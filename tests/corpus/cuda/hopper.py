from cases import *

ARCH = "sm_90a"


@case(grid=8, block=64, cluster=4)
def cluster_sum(r):
    x = r.integers(0, 100, (2, 256), i32)
    return [x, Out(x.sum(1, dtype=i32))]


@case(grid=4, block=64, cluster=2, shared=80)
def cluster_histogram(r):
    x = r.integers(0, 40, 500, i32)
    return [x, InOut(np.zeros(40, i32), np.bincount(x, minlength=40).astype(i32)), i32(20), i32(500)]


@case(grid=4, block=64, cluster=2)
def cluster_halo(r):
    x = r.standard_normal((2, 128), dtype=f32)
    return [x, Out(np.roll(x, 1, 1) + 2 * x + np.roll(x, -1, 1), 1e-6)]


@case(grid=2, block=64)
def bulk_load(r):
    x = r.integers(0, 100, (2, 256), i32)
    return [x, Out(3 * x[:, ::-1])]


@case(grid=1, block=128)
def bulk_ring(r):
    x = r.standard_normal((5, 128), dtype=f32)
    return [x, Out(2 * x[:, ::-1]), i32(5)]


@case(grid=(3, 2), block=128)
def tensor_load(r):
    x = r.standard_normal((13, 40), dtype=f32)
    p = np.pad(x, ((0, 3), (0, 8))).reshape(2, 8, 3, 16)
    return [TensorMap(x, (8, 16)), Out(p.transpose(0, 2, 1, 3))]


@case(grid=2, block=32)
def tensor_store(r):
    x, y = r.integers(0, 100, (2, 4, 8), i32), np.zeros((8, 16), i32)
    e = y.copy()
    e[4:, :8], e[4:, 8:] = x[0] + 1, x[1] + 1
    return [TensorMap(InOut(y, e), (4, 8)), x]


@case(grid=4, block=64, cluster=2)
def multicast(r):
    x = r.integers(0, 100, (2, 64), i32)
    return [x, Out(x[:, None] + i32([[0], [1]]))]


@case(grid=3, block=64)
def bulk_reduce(r):
    x = r.integers(0, 100, (3, 64), i32)
    return [x, InOut(np.ones(64, i32), 1 + x.sum(0, dtype=i32))]


@case(grid=4, block=32, cluster=2)
def remote_store(r):
    x = r.integers(0, 100, (2, 2, 32), i32)
    return [x, Out(x[:, ::-1, ::-1])]


@case(grid=2, block=64)
def dependent(r):
    x = r.integers(0, 100, 128, i32)
    return [x, Out(x + 1)]
