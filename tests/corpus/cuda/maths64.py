import math
from fractions import Fraction

from cases import *


def each(r, *functions, low=-10, high=10, within=1e-14):
    x = r.uniform(low, high, 100)
    return [x, Out(np.array([[float(f(float(v))) for v in x] for f in functions]), within), i32(100)]


@case(grid=1, block=128)
def trigonometry64(r):
    m = math
    sinpi = lambda v: m.sin(m.pi * m.fmod(v, 2)) if abs(m.fmod(v, 1)) < 0.5 else m.sin(m.pi * (m.fmod(v, 2) - m.copysign(2, v)))
    return each(r, m.sin, m.cos, m.tan, lambda v: m.asin(v / 1e5), lambda v: m.acos(v / 1e5), m.atan, lambda v: m.atan2(v, 2), sinpi, low=-3e4, high=3e4, within=1e-13)


@case(grid=1, block=128)
def hyperbolic64(r):
    m = math
    return each(r, m.sinh, m.cosh, m.tanh, m.asinh, lambda v: m.acosh(abs(v) + 1), lambda v: m.atanh(v / 100), low=-5, high=5)


@case(grid=1, block=128)
def exponentials64(r):
    m = math
    return each(r, m.exp, m.exp2, lambda v: 10**v, m.expm1, m.log, m.log2, m.log10, m.log1p, lambda v: v**1.7, low=0, high=4)


@case(grid=1, block=128)
def special64(r):
    m = math
    t = (np.arange(400) + 0.5) * m.pi / 400
    j0 = lambda v: np.cos(v * np.sin(t)).mean()
    return each(r, m.erf, m.erfc, m.gamma, m.lgamma, j0, lambda v: m.erfc(-v / m.sqrt(2)) / 2, low=0.1, high=4)


@case(grid=1, block=128)
def roots64(r):
    m = math
    return each(r, m.sqrt, m.cbrt, lambda v: v**-0.5, lambda v: m.hypot(v, 3), lambda v: 1 / v, lambda v: m.fmod(v, 0.3), lambda v: v / 7, lambda v: m.remainder(v, 0.3), low=0.01)


@case(grid=1, block=128)
def rounding64(r):
    m, away = math, lambda v: math.copysign(math.floor(abs(v) + 0.5), v)
    return each(r, m.floor, m.ceil, m.trunc, round, away, round, f32, lambda v: int(v) % 2**32, within=0)


def directed_to(exact, away):
    """The double nearest to an exact fraction, and not on the other side of it."""
    near = float(exact)
    if away < 0 or (away == 0 and exact > 0):
        return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def root_up(v):
    near = math.sqrt(v)
    return near if Fraction(near) ** 2 >= v else math.nextafter(near, math.inf)


@case(grid=1, block=128)
def directed64(r):
    d, tenth = directed_to, Fraction(0.1)
    single = lambda v: f32(v) if float(f32(v)) <= v else np.nextafter(f32(v), f32(-np.inf))
    return each(
        r,
        lambda v: d(Fraction(v) + tenth, -1),
        lambda v: d(Fraction(v) ** 2, 1),
        lambda v: d(Fraction(v) / 3, 0),
        lambda v: root_up(Fraction(abs(v))),
        lambda v: d(1 / Fraction(v), -1),
        lambda v: d(Fraction(v) ** 2 + Fraction(v), 0),
        single,
        lambda v: d(Fraction(9007199254740993), 1),
        within=0,
    )
