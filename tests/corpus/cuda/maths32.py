import math

from cases import *


def each(r, *functions, low=-10, high=10, within=2e-6):
    """Every function in double precision of 200 numbers; errors are relative to the greatest."""
    x = r.uniform(low, high, 200).astype(f32)
    rows = np.array([[f(float(v)) for v in x] for f in functions])
    return [x, Out(rows.astype(f32), within), i32(200)]


@case(grid=2, block=128)
def trigonometry(r):
    sin, cos = lambda v: math.sin(math.pi * math.fmod(v, 2)), lambda v: math.cos(math.pi * math.fmod(v, 2))
    a, b = lambda v: math.asin(f32(v) / f32(1e4)), lambda v: math.acos(f32(v) / f32(1e4))
    return each(r, math.sin, math.cos, math.tan, a, b, math.atan, sin, cos, low=-9e3, high=9e3, within=1e-6)


@case(grid=2, block=128)
def hyperbolic(r):
    m = math
    return each(r, m.sinh, m.cosh, m.tanh, m.asinh, lambda v: m.acosh(abs(v) + 1), lambda v: m.atanh(v / 100), low=-5, high=5)


@case(grid=2, block=128)
def exponentials(r):
    m = math
    return each(r, m.exp, m.exp2, lambda v: 10**v, m.expm1, m.log, m.log2, m.log10, m.log1p, low=0, high=4)


def bessel_j0(v):
    t = (np.arange(400) + 0.5) * math.pi / 400
    return float(np.cos(v * np.sin(t)).mean())


def bessel_i0(v):
    t = (np.arange(400) + 0.5) * math.pi / 400
    return float(np.exp(v * np.cos(t)).mean())


def erfinv(v):
    low, high = -6.0, 6.0
    for _ in range(80):
        mid = (low + high) / 2
        low, high = (mid, high) if math.erf(mid) < v else (low, mid)
    return low


@case(grid=2, block=128)
def special(r):
    m = math
    cdf = lambda v: m.erfc(-v / m.sqrt(2)) / 2
    return each(r, m.erf, m.erfc, cdf, m.gamma, m.lgamma, bessel_j0, bessel_i0, lambda v: erfinv(v / 100), low=0.1, high=4)


@case(grid=2, block=128)
def roots(r):
    m = math
    h = lambda v: 1 / m.hypot(v, 4)
    return each(r, m.sqrt, m.cbrt, lambda v: v**-0.5, lambda v: v ** (-1 / 3), lambda v: m.hypot(v, 3), h, lambda v: 1 / v, low=0.01)


@case(grid=2, block=128)
def rounding(r):
    m, away = math, lambda v: math.copysign(math.floor(abs(v) + 0.5), v)
    near = lambda v: float(round(v))
    return each(r, m.floor, m.ceil, m.trunc, near, away, near, lambda v: -abs(v), lambda v: max(v - 2, 0))


@case(grid=2, block=128)
def parts(r):
    m, f = math, float(f32(1.7))
    up = lambda v: float(np.nextafter(f32(v), f32(1e9)))
    logb = lambda v: m.floor(m.log2(abs(v)))
    return each(r, lambda v: v * 32, logb, lambda v: m.fmod(v, f), lambda v: m.remainder(v, f), up, lambda v: v * v - 1, lambda v: min(v, 0.5))


def directed_to(exact, away):
    """`exact` as single precision, never on the other side of it: down for -1, up for 1, to zero for 0."""
    near = f32(exact)
    if away < 0 or (away == 0 and exact > 0):
        return near if float(near) <= exact else np.nextafter(near, f32(-np.inf))
    return near if float(near) >= exact else np.nextafter(near, f32(np.inf))


@case(grid=2, block=128)
def directed(r):
    x = r.uniform(-10, 10, 200).astype(f32)
    tenth, d = float(f32(0.1)), directed_to
    whole = lambda v: (math.ceil(v) * 16777217 + 2**31) % 2**32 - 2**31
    rows = [
        [d(v + tenth, -1) for v in map(float, x)],
        [d(v * v, 1) for v in map(float, x)],
        [d(v / 3, 0) for v in map(float, x)],
        [d(math.sqrt(abs(v)), 1) for v in map(float, x)],
        [d(1 / v, -1) for v in map(float, x)],
        [d(v * v + v, 0) for v in map(float, x)],
        [d(float(whole(v)), -1) for v in map(float, x)],
        [d(4000000001.0, 1) for v in x],
    ]
    return [x, Out(np.array(rows, f32)), i32(200)]


@case(grid=1, block=64)
def powers(r):
    x, p = r.uniform(0.1, 5, 60).astype(f32), r.uniform(-5, 5, 60).astype(f32)
    a, b = x.astype(f64), p.astype(f64)
    exponent = np.frexp(x)[1]
    return [
        x,
        p,
        Out((a**b + np.arctan2(b, a)).astype(f32), 1e-6),
        Out(np.sin(b).astype(f32), 1e-6),
        Out(np.cos(b).astype(f32), 1e-6),
        Out((2 * exponent - 1 + (p < 0)).astype(i32)),
        i32(60),
    ]
