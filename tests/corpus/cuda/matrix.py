from cases import *


def product(r, m, n, k):
    a, b = r.standard_normal((m, k), dtype=f32), r.standard_normal((k, n), dtype=f32)
    return a, b, (a.astype(f64) @ b).astype(f32)


@case(grid=(2, 3), block=(16, 8))
def sgemm_naive(r):
    a, b, c = product(r, 20, 30, 17)
    return [a, b, Out(c, 1e-5), i32(20), i32(30), i32(17)]


@case(grid=(3, 2), block=(16, 16))
def sgemm_tiled(r):
    a, b, c = product(r, 30, 37, 41)
    d = r.standard_normal((30, 37), dtype=f32)
    return [a, b, InOut(d, 2 * c - d, 1e-5), i32(30), i32(37), i32(41), f32(2), f32(-1)]


@case(grid=(2, 1), block=64)
def sgemm_registers(r):
    a, b, c = product(r, 32, 64, 24)
    return [a, b, Out(c, 1e-5), i32(64), i32(24)]


@case(grid=3, block=128)
def matvec_warp(r):
    a, x = r.standard_normal((11, 200), dtype=f32), r.standard_normal(200, dtype=f32)
    return [a, x, Out(a @ x, 1e-5), i32(11), i32(200)]


@case(grid=3, block=(7, 7))
def dgemm_small(r):
    a, b = r.standard_normal((2, 3, 7, 7))
    return [a, b, Out(a @ b, 1e-13), i32(7)]


@case(grid=2, block=32)
def solve_4x4(r):
    a, x = r.standard_normal((40, 4, 4)) + 3 * np.eye(4), r.standard_normal((40, 4))
    a[:, :2] = a[:, 1::-1]
    b = np.einsum("nij,nj->ni", a, x)
    a, b, x = (v.astype(f32) for v in (a, b, x))
    return [a, b, Out(np.linalg.solve(a.astype(f64), b.astype(f64)[..., None])[..., 0].astype(f32), 1e-3), i32(40)]


@case(grid=2, block=64)
def spmv_csr(r):
    dense = r.standard_normal((100, 60), dtype=f32) * (r.random((100, 60)) < 0.1)
    rows, columns = np.nonzero(dense)
    start = np.concatenate([[0], np.bincount(rows, minlength=100).cumsum()]).astype(i32)
    x = r.standard_normal(60, dtype=f32)
    return [start, columns.astype(i32), dense[rows, columns].astype(f32), x, Out((dense @ x).astype(f32), 1e-5), i32(100)]


@case(grid=1, block=32, shared=4 * 24 * 24)
def cholesky_block(r):
    g = r.standard_normal((24, 24))
    a = (g @ g.T + 24 * np.eye(24)).astype(f32)
    return [InOut(a, np.linalg.cholesky(a.astype(f64)), 1e-5), i32(24)]
