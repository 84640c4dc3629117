from cases import *


@case(grid=1, block=256, shared=2048)
def scan_hillis(r):
    x = r.integers(-9, 9, 250, i32)
    return [x, Out(x.cumsum(dtype=i32)), i32(250)]


@case(grid=1, block=256)
def scan_blelloch(r):
    x = r.integers(0, 100, 501).astype(f32)
    return [x, Out((x.cumsum() - x).astype(f32)), i32(501)]


@case(grid=6, block=64)
def scan_chained(r):
    x = r.integers(-9, 99, 370, i32)
    return [x, Out(x.cumsum(dtype=i32)), InOut(np.zeros(6, u64), None), InOut(u32([0]), u32([6])), i32(370)]


@case(grid=1, block=128)
def scan_segments(r):
    x, head = r.integers(0, 9, 120).astype(f32), (r.random(120) < 0.1).astype(u8)
    head[0] = 1
    starts = np.maximum.accumulate(np.where(head, np.arange(120), 0))
    total = np.concatenate([[0], x.cumsum()])
    return [x, head, Out((total[1:] - total[starts]).astype(f32)), i32(120)]


@case(grid=4, block=128)
def compact(r):
    x = r.integers(0, 100, 500, i32)
    kept = x[x > 60]
    return [x, Out(kept, order=True), InOut(i32([0]), i32([len(kept)])), i32(60), i32(500)]
