import hashlib
import math
import zlib

from cases import *


def wide(r, n, low=0):
    return r.integers(low, 2**64, n, u64)


@case(grid=2, block=32)
def multiply_mod_128(r):
    a, b, m = wide(r, 50), wide(r, 50), wide(r, 50, 1)
    return [a, b, m, Out(u64([int(p) * int(q) % int(s) for p, q, s in zip(a, b, m)])), i32(50)]


@case(grid=1, block=64)
def montgomery_power(r):
    m = 0xFFFFFFFFFFFFFFC5
    x, e = r.integers(0, m, 64, u64), 65537
    back = pow(2**64, -1, m)
    expected = [pow(int(v) * back % m, e, m) * 2**64 % m for v in x]
    return [x, Out(u64(expected)), u64(m), u64(pow(m, -1, 2**64)), u64(2**64 % m), u32(e)]


@case(grid=2, block=32)
def add_256(r):
    a, b = r.integers(0, 2**32, (2, 50, 8)).astype(u32)
    a[:, 1:6] = 2**32 - 1
    number = lambda v: int.from_bytes(v.tobytes(), "little")
    e = [(number(p) + number(q)) % 2**256 for p, q in zip(a, b)]
    return [a, b, Out(np.frombuffer(b"".join(v.to_bytes(32, "little") for v in e), u32)), i32(50)]


@case(grid=1, block=32)
def crc32_rows(r):
    x = r.integers(0, 256, (32, 21), u8)
    return [x, Out(u32([zlib.crc32(row.tobytes()) for row in x])), i32(21)]


@case(grid=1, block=32)
def sha256_blocks(r):
    x = r.integers(0, 256, (20, 64), u8)
    x[:, 55], x[:, 56:62], x[:, 62], x[:, 63] = 128, 0, 55 * 8 >> 8, 55 * 8 & 255
    e = b"".join(hashlib.sha256(row[:55].tobytes()).digest() for row in x)
    return [x, Out(np.frombuffer(e, u32)), i32(20)]


@case(grid=2, block=32)
def philox(r):
    expected = []
    for i in range(64):
        c, k = [i, 0, 0, 0], [123, 456]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        expected.append(c)
    return [Out(u32(expected)), u32(123), u32(456)]


@case(grid=2, block=64)
def bits(r):
    x = (r.integers(0, 2**32, 100) >> r.integers(0, 33, 100)).astype(u32)
    text = [f"{v:032b}" for v in x]
    low = (x >> 5 & 511).astype(i32)
    return [
        x,
        Out(i32([t.count("1") for t in text])),
        Out(i32([32 - len(t.lstrip("0")) for t in text])),
        Out(i32([t[::-1].find("1") + 1 for t in text])),
        Out(u32([int(t[::-1], 2) for t in text])),
        Out(np.where(low > 255, low - 512, low)),
        i32(100),
    ]


@case(grid=2, block=32)
def gcd_and_division(r):
    a, b = r.integers(-(10**15), 10**15, (2, 50)), None
    b = np.where(a[1] == 0, 1, a[1] >> r.integers(0, 30, 50))
    a, b = a[0], np.where(b == 0, 3, b)
    q = [abs(int(p)) // abs(int(s)) * (1 if (p < 0) == (s < 0) else -1) for p, s in zip(a, b)]
    rest = np.fmod(a.astype(i32), 1000)
    return [a, b, Out(np.gcd(a, b)), Out(i64(q)), Out(rest), i32(50)]


@case(grid=1, block=64)
def collatz(r):
    x = r.integers(1, 3000, 60).astype(u32)

    def steps(v):
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v % 2 else v // 2), count + 1
        return count

    return [x, Out(u32([steps(int(v)) for v in x])), i32(60)]
