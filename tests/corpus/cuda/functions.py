from cases import *


@case(grid=1, block=32)
def recursion_ackermann(r):
    m, n = np.arange(32) % 3, np.arange(32) // 3
    return [Out(np.choose(m, [n + 1, n + 2, 2 * n + 3]).astype(u32))]


@case(grid=1, block=64)
def recursion_tree(r):
    tree, bound = r.integers(0, 100, 60, i32), r.integers(0, 100, 64, i32)
    return [tree, bound, Out(np.where(tree < bound[:, None], tree, 0).sum(1).astype(i32)), i32(60)]


@case(grid=2, block=64)
def pointers_to_functions(r):
    x, w = r.standard_normal(100, dtype=f32) * 2, r.integers(0, 4, 100, i32)
    return [x, w, Out(np.choose(w, [x * x, -x, x / 2, x.clip(-1, 1)])), i32(100)]


@case(grid=1, block=64)
def virtual_functions(r):
    a, b, k = r.random(50, dtype=f32), r.random(50, dtype=f32), r.integers(0, 3, 50, i32)
    return [a, b, k, Out(np.choose(k, [a * b, a * a, a * b / 2]), 1e-6), i32(50)]


@case(grid=2, block=32)
def printing(r):
    x = r.integers(-5, 60, 50, i32)
    return [x, Out(abs(x)), i32(50)]


@case(grid=2, block=32)
def asserting(r):
    x = r.permutation(60).astype(i32)
    return [x, Out(np.argsort(x).astype(i32)), i32(60)]


@case(grid=1, block=32)
def structures_by_value(r):
    x = r.integers(-1000, 1000, (32, 9), i32)
    return [x, Out(x.min(1)), Out(x.max(1)), Out(x.sum(1, dtype=i64)), Out(np.full(32, 9, i32)), i32(9)]


@case(grid=1, block=32)
def heap_list(r):
    x = r.integers(-1000, 1000, (32, 6), i32)
    return [x, Out((x[:, ::-1] * [1, -1, 1, -1, 1, -1]).sum(1).astype(i32)), i32(6)]


def interpret(program, a, b):
    wrap = lambda v: (v + 2**31) % 2**32 - 2**31
    at = 0
    while at < len(program):
        op, at = program[at], at + 1
        if op == 0: a = wrap(a + b)
        elif op == 1: a = wrap(a - b * 3)
        elif op == 2: a = wrap(a * 7)
        elif op == 3: a = wrap(a ^ a >> 3)
        elif op == 4: a, b = b, a
        elif op == 5: at += a & 1
        elif op == 6: b = wrap(int(f"{b % 2**32:032b}"[::-1], 2))
        elif op == 7: a = wrap((a % 2**32).bit_count() + b)
        elif op == 8: a = max(a, b)
        else: break
    return a


@case(grid=1, block=64)
def interpreter(r):
    x, program = r.integers(-1000, 1000, 64, i32), r.integers(0, 9, 40, u8)
    e = [interpret(program.tolist(), int(v), t) for t, v in enumerate(x)]
    return [program, x, Out(i32(e)), i32(40)]
