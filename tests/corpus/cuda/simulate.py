from cases import *


@case(grid=2, block=64)
def n_body(r):
    p = f32(r.random((90, 4)))
    q = p.astype(f64)
    d = q[None, :, :3] - q[:, None, :3]
    s = q[:, 3] / ((d**2).sum(2) + 0.01) ** 1.5
    force = np.concatenate([(d * s[:, :, None]).sum(1), np.zeros((90, 1))], 1)
    return [p, Out(f32(force), 1e-5), i32(90)]


@case(grid=(4, 3), block=(8, 8))
def mandelbrot(r):
    x, y = np.meshgrid(-2.03 + np.arange(30) * 0.1, -1 + np.arange(20) * 0.1)
    c, z, n = x + 1j * y, 0, np.zeros((20, 30), i32)
    for _ in range(50):
        inside = z * np.conj(z) if np.ndim(z) else np.zeros_like(c)
        inside = inside.real <= 4
        n += inside
        z = np.where(inside, z * z + c, z)
    return [Out(n), i32(30), i32(20), f64(-2.03), f64(-1), f64(0.1), i32(50)]


@case(grid=3, block=64)
def fft_128(r):
    x = (r.standard_normal((3, 128)) + 1j * r.standard_normal((3, 128))).astype(np.complex64)
    as_floats = lambda v: v.astype(np.complex64).view(f32)
    return [as_floats(x), Out(as_floats(np.fft.fft(x)), 1e-6)]


@case(grid=(2, 20), block=16)
def trace_spheres(r):
    s = np.zeros(12, [("p", f32, 3), ("r", f32), ("id", i32)])
    s["p"], s["r"], s["id"] = r.uniform(0, 6, (12, 3)), r.uniform(0.3, 1.5, 12), r.permutation(12)
    y, x = np.mgrid[:20, :25] * f32(0.25)
    a = s["p"][:, :2].astype(f64)
    d = s["r"].astype(f64) ** 2 - (a[:, 0] - x[..., None]) ** 2 - (a[:, 1] - y[..., None]) ** 2
    z = np.where(d >= 0, s["p"][:, 2] - np.sqrt(d.clip(0)), -1)
    z = np.where(z > 0, z, 1e9)
    who = np.where(z.min(2) < 1e9, s["id"][z.argmin(2)], -1).astype(i32)
    return [s.view(u8), i32(12), Out(who), Out(f32(z.min(2)), 1e-14), i32(25)]


@case(grid=1, block=(16, 16))
def floyd_block(r):
    d = np.where(r.random((16, 16)) < 0.3, r.integers(1, 100, (16, 16)), 10**6).astype(i32)
    e = d.copy()
    for k in range(16):
        e = np.minimum(e, e[:, k : k + 1] + e[k])
    return [InOut(d, e), i32(16)]


@case(grid=3, block=64)
def edit_distance(r):
    a, b = r.integers(97, 101, (2, 3, 40), i8)

    def distance(p, q):
        row = np.arange(41)
        for i in range(1, 41):
            next_row = [i]
            for j in range(1, 41):
                next_row.append(min(row[j] + 1, next_row[-1] + 1, row[j - 1] + (p[i - 1] != q[j - 1])))
            row = next_row
        return row[-1]

    return [a, b, Out(i32([distance(p, q) for p, q in zip(a, b)])), i32(40)]


@case(grid=(3, 3), block=(16, 8))
def resize(r):
    x = r.integers(0, 256, (13, 17, 4), u8)
    fy, fx = np.arange(20) * 12 * 256 // 19, np.arange(40) * 16 * 256 // 39
    y0, x0, ay, ax = fy >> 8, fx >> 8, (fy & 255)[:, None, None], (fx & 255)[:, None]
    y1, x1, w = np.minimum(y0 + 1, 12), np.minimum(x0 + 1, 16), x.astype(i32)
    top = w[y0][:, x0] * (256 - ax) + w[y0][:, x1] * ax
    low = w[y1][:, x0] * (256 - ax) + w[y1][:, x1] * ax
    return [x, Out(((top * (256 - ay) + low * ay + 32768) >> 16).astype(u8)), i32(17), i32(13), i32(40), i32(20)]


@case(grid=2, block=64)
def random_walks(r):
    s, at = (np.arange(1, 129, dtype=u64) * 2654435769 % 2**32).astype(u32), np.zeros(128, i32)
    for _ in range(100):
        s ^= s << u32(13)
        s ^= s >> u32(17)
        s ^= s << u32(5)
        at += np.where(s & 1, 1, -1).astype(i32)
    return [Out(at), i32(100), u32(2654435769)]


@case(grid=2, block=64)
def structure_argument(r):
    x, w = r.standard_normal(100, dtype=f32), f32([1, 2, -3])
    y = np.roll(x, -7) * np.resize(w, 100) + f32(0.5)
    return [Struct([x, Out(y, 1e-6), i32(100), f32(1), f32(2), f32(-3), i16(7)]), f64(0.5)]


@case(grid=3, block=128)
def count_words(r):
    text = r.choice(np.frombuffer(b"ab c", i8), 350)
    return [text, InOut(i32([0]), i32([len(text.tobytes().split())])), i32(350)]
