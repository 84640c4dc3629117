#!/usr/bin/env python3
"""Runs Hugging Face folders with transformers in float64 and prints their logits as JSON.

    cargo run -p warpwright-model --example folders -- DIR
    python3 engine/tests/data/folders.py DIR > engine/tests/data/folders.json

It needs torch and transformers from PyPI. The folders are read by transformers alone. Norms, angles and probabilities
are float32 in it, whatever the weights are.
"""
import json, pathlib, sys, zlib

import torch, transformers
from transformers import AutoModelForCausalLM

IDS = [3, 90, 0, 17, 17, 55, 40, 8, 61, 2, 33, 95, 12, 77, 5, 17, 29, 64, 1, 48]


def logits(path):
    # Other implementations of experts have no float64.
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, **eager)
    model = model.double().eval()
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0]


def main(folder):
    models = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        rows = [[float(f"{x:.7g}") for x in row] for row in logits(path).tolist()]
        models[path.name] = {"crc32": zlib.crc32((path / "model.safetensors").read_bytes()), "logits": rows}
        print(path.name, file=sys.stderr)
    versions = {m.__name__: m.__version__ for m in (torch, transformers)}
    head = {"versions": versions, "ids": IDS}
    print(json.dumps(head)[:-1] + ', "models": {')
    print(",\n".join(f"{json.dumps(name)}: {json.dumps(model)}" for name, model in models.items()))
    print("}}")


main(sys.argv[1])
