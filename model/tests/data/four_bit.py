"""Unpacks the matrices of model/tests/it/four_bit.rs with NumPy, and prints the hashes that the test holds.

    python3 model/tests/data/four_bit.py > model/tests/data/four_bit.json

The codes are numbers of a linear congruential generator. The arithmetic is that of bitsandbytes (csrc/cpu_ops.cpp and
functional.py, dequantize_4bit): the first code of a byte in its high four bits, absmax = map[code] * scale + offset,
weight = value * absmax, in float32 and rounded once.
"""

import json

import numpy as np

F = np.float32
# create_normal_map of bitsandbytes, as its C code has it.
NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], F)


class Numbers:
    def __init__(self, seed):
        self.x = seed

    def bytes(self, n):
        out = np.empty(n, np.uint8)
        for i in range(n):
            self.x = (self.x * 1664525 + 1013904223) % 2**32
            out[i] = self.x >> 24
        return out

    def units(self, n):
        """From 0 to 255/256."""
        return self.bytes(n).astype(F) / F(256)


def unpack(numbers, rows, n, dtype, nested):
    weights = rows * n
    blocks = -(-weights // 64)
    codes = numbers.bytes(-(-weights // 2))
    if nested:
        absmax, scales, table = numbers.bytes(blocks), numbers.units(-(-blocks // 256)), numbers.units(256)
        absmax = (table[absmax] * np.repeat(scales, 256)[:blocks]).astype(F) + F(0.125)
    else:
        absmax = numbers.units(blocks)
    values = NF4[np.stack([codes >> 4, codes & 15], 1).reshape(-1)[:weights]]
    w = values * np.repeat(absmax, 64)[:weights]
    assert w.dtype == F
    if dtype == "float32":
        return w.tobytes()
    if dtype == "float16":
        return w.astype(np.float16).tobytes()
    bits = w.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"{h:016x}"


def main():
    numbers, hashes = Numbers(1), []
    for nested in [False, True]:
        for dtype, rows, n in [("bfloat16", 1100, 16), ("float16", 1100, 16), ("float32", 16, 1100)]:
            data = unpack(numbers, rows, n, dtype, nested)
            hashes.append(fnv(data))
    print(json.dumps(hashes, indent=1))


main()
