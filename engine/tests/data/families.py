#!/usr/bin/env python3
"""Runs GGUF files with Hugging Face transformers in float64 and prints their logits as JSON.

    cargo run -p warpwright-model --example families -- DIR
    python3 engine/tests/data/families.py DIR > engine/tests/data/families.json

It needs torch, transformers and gguf from PyPI. transformers reads the files itself: names, permutations, formats
and hyperparameters are its reading, not ours. `SAYS` holds what it does not read of a file; each entry is what the
model's config.json says where the GGUF has the key.
"""
import json, pathlib, sys, zlib

import torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

IDS = [3, 90, 0, 17, 17, 55, 40, 8, 61, 2, 33, 95, 12, 77, 5, 17, 29, 64, 1, 48]


def rope(kind, theta, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


LINEAR = rope("linear", 1e6, factor=8.0)
LONG = [1 + 0.25 * i for i in range(32)]
SHORT = [1 + 0.0625 * i for i in range(32)]
GEMMA = {"query_pre_attn_scalar": 64}
SAYS = {
    "llama-linear": {"rope_parameters": rope("linear", 10000.0, factor=4.0)},
    "qwen3": {"head_dim": 64},
    "gemma3": GEMMA,
    "gemma3-linear": GEMMA | {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": rope("default", 1e4)}},
    "phi3": {"sliding_window": None},
    "phi3-window": {"sliding_window": 6},
    "phi3-longrope": {
        "sliding_window": None,
        "original_max_position_embeddings": 16,
        "rope_parameters": rope("longrope", 500.0, long_factor=LONG, short_factor=SHORT,
                                original_max_position_embeddings=16, factor=4.0),
    },
    # Three quarters of each head are rotated, as in Phi-4-mini.
    "phi3-partial": {
        "sliding_window": None,
        "original_max_position_embeddings": 16,
        "rope_parameters": rope("longrope", 500.0, long_factor=LONG[:24], short_factor=SHORT[:24],
                                original_max_position_embeddings=16, factor=4.0, partial_rotary_factor=0.75),
    },
    "phi3-shortrope": {
        "sliding_window": None,
        "original_max_position_embeddings": 32,
        "rope_parameters": rope("longrope", 500.0, long_factor=LONG, short_factor=SHORT,
                                original_max_position_embeddings=32, factor=2.0),
    },
}


def divide_frequencies(model, factors):
    """What `rope_freqs.weight` means: each rotary frequency is divided by its factor."""
    model.model.rotary_emb.inv_freq.div_(torch.tensor(factors, dtype=torch.float64))


def logits(path):
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    for key, value in SAYS.get(path.stem, {}).items():
        setattr(config, key, value)
    config.pad_token_id = None
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=config, dtype=torch.float64,
        quantization_config=GgufConfig(dequantize=True))
    # Frequencies are computed in float32 by default.
    model = model.double().eval()
    exact_frequencies(model, config)
    if path.stem == "llama3-rope":
        divide_frequencies(model, [1 + 0.125 * i for i in range(32)])
    with torch.no_grad():
        rows = model(torch.tensor([IDS]), use_cache=False).logits[0]
    return rows


def exact_frequencies(model, config):
    """Replaces the float32 frequencies by the same formula in float64."""
    rotary = model.model.rotary_emb
    for name, buffer in list(rotary.named_buffers()):
        if not name.endswith("inv_freq"):
            continue
        kind = name.removesuffix("inv_freq").removesuffix("_").removesuffix("original").removesuffix("_")
        rope = config.rope_parameters
        rope = rope.get(kind, rope) if kind else rope
        n = buffer.numel()
        exact = rope["rope_theta"] ** (-torch.arange(n, dtype=torch.float64) / n)
        if rope["rope_type"] == "linear":
            exact /= rope["factor"]
        if rope["rope_type"] == "longrope":
            exact = exact / torch.tensor(rope["short_factor"], dtype=torch.float64)
        assert torch.allclose(exact, buffer.double(), rtol=1e-5), (name, rope)
        buffer.copy_(exact) if buffer.dtype == torch.float64 else setattr(rotary, name, exact)


def main(folder):
    files = sorted(pathlib.Path(folder).glob("*.gguf"))
    models = {}
    for path in files:
        rows = [[float(f"{x:.7g}") for x in row] for row in logits(path).tolist()]
        models[path.stem] = {"crc32": zlib.crc32(path.read_bytes()), "logits": rows}
        print(path.stem, file=sys.stderr)
    versions = {m.__name__: m.__version__ for m in (torch, transformers)}
    head = {"versions": versions, "ids": IDS}
    print(json.dumps(head)[:-1] + ', "models": {')
    print(",\n".join(f"{json.dumps(name)}: {json.dumps(model)}" for name, model in models.items()))
    print("}}")


main(sys.argv[1])
