"""Cases for `textures.cu`."""

import numpy as np
from cases import InOut, Out, Surface, Texture, case, f16, f32, i16, i32, u8, u16, u32


def texels(u, n, mode):
    """The two texels around a coordinate in texels, and the weight of the second one, in steps of 1/256."""
    fixed = np.floor((np.asarray(u, float) - 0.5) * 256 + 0.5).astype(np.int64)
    first, weight = fixed >> 8, (fixed & 255) / 256
    if mode == "wrap":
        return first % n, (first + 1) % n, weight
    return first, first + 1, weight


def linear(x, at, mode="clamp"):
    """Values of `x` between its elements; `at` has a coordinate for each axis, the last axis of `x` first."""
    total = 0
    for corner in np.ndindex(*[2] * len(at)):
        weight, index, inside = 1, [], True
        for u, n, second in zip(at, x.shape[::-1], corner):
            both = texels(u, n, mode)
            weight = weight * (both[2] if second else 1 - both[2])
            inside = inside & (both[second] >= 0) & (both[second] < n)
            index.insert(0, np.clip(both[second], 0, n - 1))
        total = total + weight * np.where(inside if mode == "border" else True, x[tuple(index)], 0)
    return total


@case(grid=(2, 5), block=(16, 4))
def turned(rng):
    w, h, c, s = 27, 19, f32(0.8), f32(0.6)
    x = rng.standard_normal((h, w)).astype(f32)
    u, v = ((np.arange(w, dtype=f32) + f32(0.5)) / f32(w) - f32(0.5)), ((np.arange(h, dtype=f32)[:, None] + f32(0.5)) / f32(h) - f32(0.5))
    at = [(u * c - v * s + f32(0.5)).astype(float) % 1 * w, (v * c + u * s + f32(0.5)).astype(float) % 1 * h]
    picture = Texture(x, filter="linear", address="wrap", normalized=True)
    # A coordinate that differs in its last bit may be rounded to the next weight.
    return [picture, Out(linear(x, at, "wrap").astype(f32), 0.02), i32(w), i32(h), c, s]


@case(grid=4, block=64)
def looked_up(rng):
    n, table = 250, np.sin(np.arange(33) / 5).astype(f32)
    x = (rng.integers(-512, 40 * 256, n) / 256).astype(f32)
    return [Texture(table, filter="linear"), x, Out(linear(table, [x]).astype(f32), 1e-6), i32(n)]


@case(grid=6, block=10)
def rays(rng):
    w, h, steps, slope = 10, 6, 12, f32(0.25)
    x = rng.standard_normal((4, h, w)).astype(f32)
    i, j, k = np.arange(w), np.arange(h)[:, None], np.arange(steps)[:, None, None]
    values = linear(x, [i + slope * k, j + 0.5 + 0 * k, k * 0.5 + 0 * j], "border")
    return [Texture(x, filter="linear", address="border"), Out(values.mean(0).astype(f32), 1e-5), i32(w), i32(h), i32(steps), slope]


@case(grid=3, block=64)
def sparse(rng):
    n = 150
    counts = rng.integers(0, 9, n)
    rows = np.concatenate([[0], np.cumsum(counts)]).astype(i32)
    columns = rng.integers(0, n, rows[-1]).astype(i32)
    values, x = rng.standard_normal(rows[-1]).astype(f32), rng.standard_normal(n).astype(f32)
    y = np.array([values[a:b].astype(float) @ x[columns[a:b]] for a, b in zip(rows, rows[1:])])
    return [rows, columns, values, Texture(x, shape="1dfetch"), Out(y.astype(f32), 1e-5), i32(n)]


@case(grid=7, block=32)
def grey(rng):
    x = rng.integers(0, 256, (7, 20, 4)).astype(u8)
    y = (x[..., :3] / 255 @ [0.25, 0.5, 0.25]).astype(f32)
    smooth = Texture(x, channels=4, filter="linear", read="float")
    return [smooth, Texture(x, channels=4), Out(y, 1e-6), Out(x.sum(2, dtype=u32)), i32(20), i32(7)]


@case(grid=4, block=8)
def pooled(rng):
    x = rng.standard_normal((8, 16, 2)).astype(f32)
    y = x[..., 1].reshape(4, 2, 8, 2).max((1, 3))
    return [Texture(x, channels=2), Out(y), i32(8)]


@case(grid=5, block=6)
def layers(rng):
    x = rng.integers(-32768, 32768, (3, 5, 6)).astype(i16)
    return [Texture(x, shape="2dlayered"), Out(x.sum(0, dtype=i32)), i32(6), i32(3)]


@case(grid=2, block=32)
def sky(rng):
    n, size = 54, 3
    x = rng.standard_normal((6, size, size)).astype(f32)
    s = (2 * np.arange(size) + 1) / size - 1
    t, s = np.meshgrid(s, s, indexing="ij")
    one = np.ones_like(s)
    # The middles of all texels: x goes right and y down on each face, as the programming guide has them.
    faces = [(one, -t, -s), (-one, -t, s), (s, one, t), (s, -one, -t), (s, -t, one), (-s, -t, -one)]
    at = np.stack([np.stack(face, -1) for face in faces]).reshape(n, 3).astype(f32)
    return [Texture(x, shape="cube"), (at * rng.uniform(0.5, 2, (n, 1))).astype(f32), Out(x.reshape(n)), i32(n)]


@case(grid=(2, 2), block=(8, 8))
def surface_transposed(rng):
    x = rng.standard_normal((9, 13, 2)).astype(f32)
    return [Surface(x, channels=2), Surface(Out(np.ascontiguousarray(x.transpose(1, 0, 2))), channels=2), i32(13), i32(9)]


@case(grid=4, block=(5, 3))
def shifted(rng):
    x = rng.integers(0, 256, (4, 3, 5, 4)).astype(u8)
    y = x[np.minimum(np.arange(4) + 2, 3)]
    return [Surface(x, channels=4, shape="3d"), Surface(Out(y), channels=4, shape="3d"), i32(2)]


@case(grid=3, block=12)
def rows_reversed(rng):
    x = rng.standard_normal((3, 12)).astype(f16)
    return [Surface(InOut(x, x), shape="1dlayered"), Out(x[:, ::-1].copy().view(u16)), i32(12)]
