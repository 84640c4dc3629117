from cases import *

TAPS = np.linspace(-1, 1, 9).astype(f32)


@case(grid=3, block=128)
def heat_1d(r):
    u = r.standard_normal(300, dtype=f32)
    p = np.pad(u, 1)
    return [u, Out((u + f32(0.1) * (p[:-2] - 2 * u + p[2:])), 1e-5), f32(0.1), i32(300)]


@case(grid=(3, 2), block=(16, 16))
def jacobi_2d(r):
    u, f = r.standard_normal((2, 27, 40), dtype=f32)
    p = np.pad(u, 1)
    expected = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - f)
    return [u, f, Out(expected, 1e-5), i32(40), i32(27)]


@case(grid=(2, 2), block=(8, 4))
def stencil_3d(r):
    u = r.standard_normal((6, 7, 12))
    e = np.zeros_like(u)
    c = (slice(1, -1),) * 3
    e[c] = sum(np.roll(u, d, a)[c] for a in range(3) for d in (1, -1)) - 6 * u[c]
    return [u, InOut(np.zeros_like(u), e, 1e-13), i32(12), i32(7), i32(6)]


@case(grid=2, block=96, symbols={"taps": TAPS})
def fir_constant(r):
    x = r.standard_normal(150, dtype=f32)
    return [x, Out(np.convolve(x, TAPS)[:150], 1e-5), i32(150)]


@case(grid=(2, 3), block=64, shared=4 * (64 + 10 + 11))
def filter_rows(r):
    x, f = r.standard_normal((3, 100), dtype=f32), r.random(11, dtype=f32)
    p = np.pad(x, ((0, 0), (5, 5)), mode="edge")
    expected = np.stack([np.convolve(row, f[::-1], "valid") for row in p])
    return [x, f, Out(expected, 1e-5), i32(100), i32(5)]


@case(grid=(2, 3), block=(16, 8))
def median_3x3(r):
    x = r.integers(0, 256, (19, 30), u8)
    p = np.pad(x, 1, mode="edge")
    around = np.stack([p[a : a + 19, b : b + 30] for a in range(3) for b in range(3)])
    return [x, Out(np.median(around, 0).astype(u8)), i32(30), i32(19)]


@case(grid=(2, 2, 3), block=(8, 8))
def conv2d_nchw(r):
    x, k, b = r.standard_normal((2, 12, 15)), r.standard_normal((3, 2, 3, 3)), r.standard_normal(3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    expected = np.maximum(np.einsum("chwyx,ocyx->ohw", windows, k) + b[:, None, None], 0)
    x, k, b, expected = (a.astype(f32) for a in (x, k, b, expected))
    return [x, k, b, Out(expected, 1e-5), i32(2), i32(12), i32(15)]


@case(grid=3, block=128)
def life(r):
    x = r.integers(0, 2, (15, 20), u8)
    n = sum(np.roll(x, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - x
    return [x, Out(((n == 3) | ((n == 2) & (x == 1))).astype(u8)), i32(20), i32(15)]
