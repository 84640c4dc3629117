"""Writes formats.json: random blocks of every format, and the weights that the Python package `gguf` reads from them.

python3 formats.py > formats.json   (gguf 0.17 or newer, numpy)

Blocks are hexadecimal; weights are the bits of binary32, so that they compare equal or not.
"""

import json

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

NAMES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
# Bytes of a block that are a binary16 number, which must not be infinite.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}

random = np.random.default_rng(9)


def blocks(name, count, size):
    data = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        half = random.normal(0, 0.1, count).astype(np.float16)
        data[:, at : at + 2] = half.view(np.uint8).reshape(count, 2)
    if name in ("F32", "BF16"):
        floats = random.normal(0, 1, count).astype(np.float32).view(np.uint8).reshape(count, 4)
        data = np.ascontiguousarray(floats[:, 4 - size :])
    if name == "MXFP4":
        # The smallest and largest powers of two, and others.
        data[:6, 0] = [0, 1, 2, 127, 254, 255]
    return data


formats = []
for name in NAMES:
    kind = Type[name]
    length, size = GGML_QUANT_SIZES[kind]
    data = blocks(name, {1: 8, 32: 8, 256: 3}[length], size)
    weights = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(len(data), length)
    rows = [{"bytes": b.tobytes().hex(), "weights": w.view(np.uint32).astype("<u4").tobytes().hex()} for b, w in zip(data, weights)]
    formats.append({"name": name, "type": int(kind), "length": length, "blocks": rows})
print(json.dumps({"gguf": __import__("importlib.metadata").metadata.version("gguf"), "formats": formats}, indent=1))
