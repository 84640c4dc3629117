#!/usr/bin/env python3
"""Writes a GGUF file of a known model's shapes and type mix with random weights, to measure loading.

    scripts/synthetic-gguf.py OUT.gguf [llama3.1-8b|qwen2.5-1.5b]

The types are those of Q4_K_M: Q6_K for the LM head and for attn_v and ffn_down in half of the layers, Q4_K else.
The file's layout is that of the GGUF specification, version 3 (ggml, docs/gguf.md).
"""
import os, struct, sys

MODELS = {
    "llama3.1-8b": dict(arch="llama", layers=32, hidden=4096, ff=14336, heads=32, kv=8, dim=128, vocab=128256, tied=False, bias=False),
    "qwen2.5-1.5b": dict(arch="qwen2", layers=28, hidden=1536, ff=8960, heads=12, kv=2, dim=128, vocab=151936, tied=True, bias=True),
}
F32, Q4_K, Q6_K = 0, 12, 14
BLOCK = {F32: (1, 4), Q4_K: (256, 144), Q6_K: (256, 210)}

def text(s):
    return struct.pack("<Q", len(s)) + s.encode()

def u32(key, value):
    return text(key) + struct.pack("<II", 4, value)

def f32(key, value):
    return text(key) + struct.pack("<If", 6, value)

def pool(kind):
    """Some megabytes of valid blocks: any codes under small scales."""
    half = lambda v: struct.pack("<e", v)
    if kind == F32:
        return struct.pack("<f", 1.0) * (1 << 20)
    n = 1 << 15
    codes = os.urandom(n * 208)
    if kind == Q4_K:
        return b"".join(half(0.0004) + half(0.003) + codes[i * 140 : i * 140 + 140] for i in range(n))
    return b"".join(codes[i * 208 : i * 208 + 208] + half(0.00004) for i in range(n))

def tensors(m):
    more = lambda i: i < m["layers"] // 8 or i >= 7 * m["layers"] // 8 or (i - m["layers"] // 8) % 3 == 2
    q, kv, hidden, ff = m["heads"] * m["dim"], m["kv"] * m["dim"], m["hidden"], m["ff"]
    yield "token_embd.weight", Q6_K if m["tied"] else Q4_K, (hidden, m["vocab"])
    for i in range(m["layers"]):
        big = Q6_K if more(i) else Q4_K
        yield f"blk.{i}.attn_norm.weight", F32, (hidden,)
        for name, kind, rows in [("attn_q", Q4_K, q), ("attn_k", Q4_K, kv), ("attn_v", big, kv)]:
            yield f"blk.{i}.{name}.weight", kind, (hidden, rows)
            if m["bias"]:
                yield f"blk.{i}.{name}.bias", F32, (rows,)
        yield f"blk.{i}.attn_output.weight", Q4_K, (q, hidden)
        yield f"blk.{i}.ffn_norm.weight", F32, (hidden,)
        yield f"blk.{i}.ffn_gate.weight", Q4_K, (hidden, ff)
        yield f"blk.{i}.ffn_up.weight", Q4_K, (hidden, ff)
        yield f"blk.{i}.ffn_down.weight", big, (ff, hidden)
    yield "output_norm.weight", F32, (hidden,)
    if not m["tied"]:
        yield "output.weight", Q6_K, (hidden, m["vocab"])

def size(kind, dims):
    n = 1
    for d in dims:
        n *= d
    return n // BLOCK[kind][0] * BLOCK[kind][1]

def main():
    if len(sys.argv) not in (2, 3) or sys.argv[-1] in ("-h", "--help"):
        sys.exit(__doc__)
    name = sys.argv[2] if len(sys.argv) == 3 else "llama3.1-8b"
    if name not in MODELS:
        sys.exit(f"no shapes of {name}; there are {', '.join(MODELS)}")
    m = MODELS[name]
    a = m["arch"]
    keys = [
        text("general.architecture") + struct.pack("<I", 8) + text(a),
        u32(f"{a}.block_count", m["layers"]), u32(f"{a}.embedding_length", m["hidden"]),
        u32(f"{a}.feed_forward_length", m["ff"]), u32(f"{a}.attention.head_count", m["heads"]),
        u32(f"{a}.attention.head_count_kv", m["kv"]), u32(f"{a}.context_length", 32768),
        u32(f"{a}.vocab_size", m["vocab"]), u32(f"{a}.rope.dimension_count", m["dim"]),
        f32(f"{a}.rope.freq_base", 500000.0), f32(f"{a}.attention.layer_norm_rms_epsilon", 1e-5),
    ]
    all_tensors = list(tensors(m))
    infos, offset = [], 0
    for tensor, kind, dims in all_tensors:
        infos.append(text(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        offset += (size(kind, dims) + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(keys)) + b"".join(keys + infos)
    pools = {kind: pool(kind) for kind in BLOCK}
    with open(sys.argv[1], "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for _, kind, dims in all_tensors:
            left = size(kind, dims)
            pad = -left % 32
            while left:
                part = pools[kind][:left]
                out.write(part)
                left -= len(part)
            out.write(bytes(pad))

main()
