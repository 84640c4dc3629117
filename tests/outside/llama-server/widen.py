#!/usr/bin/env python3
"""Writes `stories260K.gguf` in a shape that the kernels for batches run.

    widen.py SOURCE TARGET

The model has heads of 8 values and rows of 64 and 172 values. The kernels need heads of 16 and rows of
multiples of 128. Zeros make up the difference, so that the function stays the same:

- A head has 16 values. Pair `i` of RoPE moves to pair `2 * i`, because the angle of pair `2 * i` of 16
  values is that of pair `i` of 8 values. All other weights of the head are zero.
- Queries are multiplied by the square root of 2, because scores are divided by the square root of the
  size of a head.
- RMS norms divide by the mean of 128 squares, half of which are zero. The mean is half as large, so the
  epsilon is halved and the weights are divided by the square root of 2.
- The feed-forward layer gets units whose weights are zero.

Matrices are rounded to `f16`. Only the metadata that a Llama model needs is copied.
"""

import math
import struct
import sys

import numpy

ALIGNMENT = 32
F32 = 0
F16 = 1
WIDE_HEAD = 16
ROW_MULTIPLE = 128

SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
UINT32 = 4
FLOAT32 = 6
STRING = 8
ARRAY = 9


class Reader:
    """Reads the metadata and the tensors of a GGUF file."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        magic, version, tensors, keys = self.take("<4sIQQ")
        if magic != b"GGUF" or version != 3:
            sys.exit("not a GGUF file of version 3")
        self.metadata = {}
        for _ in range(keys):
            key = self.string()
            (kind,) = self.take("<I")
            self.metadata[key] = (kind, self.value(kind))
        self.infos = [self.info() for _ in range(tensors)]
        self.start = -(-self.at // ALIGNMENT) * ALIGNMENT

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def string(self):
        (length,) = self.take("<Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, length = self.take("<IQ")
            return element, [self.value(element) for _ in range(length)]
        return self.take("<" + SIZES[kind])[0]

    def info(self):
        name = self.string().decode()
        (dimensions,) = self.take("<I")
        shape = self.take(f"<{dimensions}Q")
        kind, offset = self.take("<IQ")
        if kind != F32:
            sys.exit(f"{name} is not F32")
        return name, shape, offset

    def tensors(self):
        """Returns the tensors by name, with rows as the first dimension."""
        result = {}
        for name, shape, offset in self.infos:
            count = math.prod(shape)
            values = numpy.frombuffer(self.data, "<f4", count, self.start + offset)
            result[name] = values.reshape(shape[::-1])
        return result


def write(path, metadata, tensors):
    """Writes a GGUF file. Matrices are rounded to `f16`, and vectors stay `f32`."""

    def string(text):
        return struct.pack("<Q", len(text)) + text

    def value(kind, content):
        if kind == STRING:
            return string(content)
        if kind == ARRAY:
            element, items = content
            return struct.pack("<IQ", element, len(items)) + b"".join(value(element, item) for item in items)
        return struct.pack("<" + SIZES[kind], content)

    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, (kind, content) in metadata.items():
        head += string(key) + struct.pack("<I", kind) + value(kind, content)
    body = b""
    for name, tensor in tensors.items():
        kind = F16 if tensor.ndim == 2 else F32
        shape = tensor.shape[::-1]
        head += string(name.encode()) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += tensor.astype("<f2" if kind == F16 else "<f4").tobytes()
        body += bytes(-len(body) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + body)


def wide_rows(matrix, heads):
    """Returns a matrix whose rows are heads, with the rows of each head moved to every other pair."""
    narrow = matrix.shape[0] // heads
    result = numpy.zeros((heads, WIDE_HEAD, matrix.shape[1]), matrix.dtype)
    for row in range(narrow):
        pair, part = divmod(row, 2)
        result[:, 4 * pair + part] = matrix.reshape(heads, narrow, -1)[:, row]
    return result.reshape(heads * WIDE_HEAD, -1)


def padded(matrix, rows, columns):
    result = numpy.zeros((rows, columns), matrix.dtype)
    result[: matrix.shape[0], : matrix.shape[1]] = matrix
    return result


def wide_length(length):
    """Returns the smallest length of a row that is possible."""
    return -(-length // ROW_MULTIPLE) * ROW_MULTIPLE


def main():
    source, target = sys.argv[1:]
    with open(source, "rb") as file:
        reader = Reader(file.read())
    metadata = dict(reader.metadata)
    heads = metadata[b"llama.attention.head_count"][1]
    kv_heads = metadata[b"llama.attention.head_count_kv"][1]
    hidden = metadata[b"llama.embedding_length"][1]
    wide = wide_length(hidden)
    feed_forward = wide_length(metadata[b"llama.feed_forward_length"][1])
    if hidden // heads * 2 != WIDE_HEAD or hidden * 2 != wide:
        sys.exit(f"{heads} heads of {hidden // heads} values are not half of {WIDE_HEAD} values")

    tensors = {}
    for name, tensor in reader.tensors().items():
        root = numpy.float32(math.sqrt(2))
        if name.endswith("norm.weight"):
            tensor = padded(tensor[None] / root, 1, wide)[0]
        elif name.endswith("attn_q.weight"):
            tensor = padded(wide_rows(tensor, heads) * root, heads * WIDE_HEAD, wide)
        elif name.endswith(("attn_k.weight", "attn_v.weight")):
            tensor = padded(wide_rows(tensor, kv_heads), kv_heads * WIDE_HEAD, wide)
        elif name.endswith("attn_output.weight"):
            tensor = padded(wide_rows(tensor.T, heads).T, wide, heads * WIDE_HEAD)
        elif name.endswith(("ffn_gate.weight", "ffn_up.weight")):
            tensor = padded(tensor, feed_forward, wide)
        elif name.endswith("ffn_down.weight"):
            tensor = padded(tensor, wide, feed_forward)
        elif name in ("token_embd.weight", "output.weight"):
            tensor = padded(tensor, tensor.shape[0], wide)
        else:
            sys.exit(f"the tensor {name} is unknown")
        tensors[name] = numpy.ascontiguousarray(tensor)

    metadata[b"llama.embedding_length"] = (UINT32, wide)
    metadata[b"llama.feed_forward_length"] = (UINT32, feed_forward)
    epsilon = b"llama.attention.layer_norm_rms_epsilon"
    metadata[epsilon] = (FLOAT32, metadata[epsilon][1] / 2)
    for key in (b"llama.rope.dimension_count", b"llama.attention.key_length", b"llama.attention.value_length"):
        metadata[key] = (UINT32, WIDE_HEAD)
    metadata.pop(b"general.file_type", None)
    write(target, metadata, tensors)


main()
