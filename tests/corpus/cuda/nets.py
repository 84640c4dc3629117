from cases import *


def softmax(x):
    e = np.exp(x.astype(f64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@case(grid=4, block=96)
def softmax_online(r):
    x = (r.standard_normal((4, 150)) * 4).astype(f32)
    return [x, Out(softmax(x).astype(f32), 1e-5), i32(150)]


@case(grid=3, block=64)
def rms_norm(r):
    x, g = r.standard_normal((3, 300)), r.random(300)
    y = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * g
    return [f32(x), f32(g), Out(f32(y), 1e-5), i32(300), f32(1e-5)]


@case(grid=(5, 3), block=16)
def rope(r):
    x, p = r.standard_normal((5, 3, 32)), r.integers(0, 100, 5, i32)
    angle = (p[:, None] * 10000.0 ** (-np.arange(16) / 16))[:, None]
    a, b, c, s = x[..., :16], x[..., 16:], np.cos(angle), np.sin(angle)
    return [InOut(f32(x), f32(np.concatenate([a * c - b * s, a * s + b * c], 2)), 1e-5), p, i32(3), i32(32), f32(10000)]


@case(grid=10, block=(32, 4))
def attention(r):
    q, k, v = r.standard_normal((3, 38, 32))
    s = np.where(np.tri(38) > 0, q @ k.T * 0.2, -np.inf)
    return [f32(q), f32(k), f32(v), Out(f32(softmax(s) @ v), 1e-5), i32(38), f32(0.2)]


@case(grid=6, block=32)
def embedding(r):
    table, t = r.standard_normal((20, 160), dtype=f32), i32([3, 19, 0, -1, 20, 7])
    known = (t >= 0) & (t < 20)
    return [t, table, Out(np.where(known[:, None], table[t.clip(0, 19)], f32(0))), i32(40), i32(20)]


@case(grid=2, block=64)
def swiglu(r):
    g, u = r.standard_normal((2, 100))
    return [f32(g), f32(u), Out(f32(g / (1 + np.exp(-g)) * u), 1e-6), i32(100)]


@case(grid=2, block=64)
def gelu_bias(r):
    x, b = r.standard_normal((10, 30)), r.standard_normal(30)
    v = x + b
    y = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    return [f32(x), f32(b), Out(f32(y), 1e-5), i32(300), i32(30)]


@case(grid=4, block=32)
def cross_entropy(r):
    x, label = r.standard_normal((4, 50)), r.integers(0, 50, 4, i32)
    p = softmax(x)
    loss = -np.log(p[np.arange(4), label]).sum()
    return [f32(x), label, InOut(f32([0]), f32([loss]), 1e-5), Out(f32(p - np.eye(50)[label]), 1e-5), i32(50)]


@case(grid=2, block=64)
def adam(r):
    w, g, m, v = r.standard_normal((4, 100))
    v = abs(v)
    m2, v2 = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    w2 = w - 0.01 * (m2 / 0.5) / (np.sqrt(v2 / 0.3) + 1e-8)
    io = lambda a, b: InOut(f32(a), f32(b), 1e-5)
    return [io(w, w2), f32(g), io(m, m2), io(v, v2), f32(0.01), f32(0.9), f32(0.99), f32(0.5), f32(0.3), i32(100)]


@case(grid=(2, 2), block=(8, 4))
def max_pool(r):
    x = r.standard_normal((14, 22), dtype=f32)
    w = x.reshape(7, 2, 11, 2).transpose(0, 2, 1, 3).reshape(7, 11, 4)
    return [x, Out(w.max(2)), Out(w.argmax(2).astype(u8)), i32(14), i32(22)]
