from cases import *


def axpy(r, t, alpha):
    x, y = (r.standard_normal((2, 90)) * 100).astype(t)
    return [t(alpha), x, InOut(y, (t(alpha) * x + y).astype(t), 1e-6), i32(90)]


@case(grid=1, block=32, entry="axpyIfLi4")
def axpy_f32_by_4(r):
    return axpy(r, f32, 0.5)


@case(grid=3, block=32, entry="axpyIdLi1")
def axpy_f64(r):
    return axpy(r, f64, -2.5)


@case(grid=2, block=32, entry="axpyIxLi2")
def axpy_i64_by_2(r):
    return axpy(r, i64, 12345678901)


@case(grid=3, block=64, entry="reduceI3Add")
def reduce_add(r):
    x = r.integers(-99, 99, 500, i32)
    strips = chunks(x, 192).reshape(-1, 3, 64)
    return [x, Out(strips.sum((0, 2)).astype(i32)), i32(500), u8(0)]


@case(grid=2, block=128, entry="reduceI3Max")
def reduce_max(r):
    x = r.integers(-99999, 0, 700, i32)
    strips = chunks(x, 256, -(2**31)).reshape(-1, 2, 128)
    return [x, Out(strips.max((0, 2)).astype(i32)), i32(700), u8(0)]


@case(grid=2, block=64)
def chain_of_lambdas(r):
    x = r.standard_normal(100, dtype=f32)
    v = x * f32(1.5)
    return [x, Out(np.where(v > 0, v, f32(0.01) * v) + f32(1.5), 1e-6), f32(1.5), i32(100)]


@case(grid=1, block=64)
def polynomial(r):
    x = r.integers(-20, 20, 50, i32)
    return [x, Out(7 - 3 * x + 2 * x**3 + x**4), i32(50)]


@case(grid=1, block=64)
def powers_of_matrices(r):
    m = (r.standard_normal((50, 2, 2)) * 0.7).astype(f32)
    p = np.linalg.matrix_power(m.astype(f64), 5)
    return [m, Out(f32(np.trace(p, axis1=1, axis2=2)), 1e-4), Out(f32(np.linalg.det(p)), 1e-4), i32(5), i32(50)]
