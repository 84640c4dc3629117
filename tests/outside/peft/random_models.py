#!/usr/bin/env python3
"""Writes small random models of the families llama, qwen2 and qwen3, each in bf16 and in f32, as transformers saves them.

    random_models.py TOKENIZER_FOLDER OUT

The vocabulary is that of the folder, a Hugging Face model, whose tokenizer is copied.
"""
import json, pathlib, shutil, sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

# Rows of llama and qwen3 are no multiple of 64 weights: blocks of NF4 cross rows.
SIZES = {
    "llama": (LlamaConfig, dict(hidden_size=96, intermediate_size=160, num_hidden_layers=2, head_dim=32,
                                rope_theta=5e5, tie_word_embeddings=False)),
    "qwen2": (Qwen2Config, dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, rope_theta=1e6,
                                tie_word_embeddings=True)),
    "qwen3": (Qwen3Config, dict(hidden_size=96, intermediate_size=160, num_hidden_layers=2, head_dim=32,
                                tie_word_embeddings=False)),
}


def fill(model):
    """Random numbers for all: biases and the weights of norms too, which a new model has as 0 and 1."""
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape)
        if weight.dim() == 2:
            weight.data = noise * weight.shape[1] ** -0.5
        else:
            weight.data = 0.3 * noise + (0.0 if name.endswith("bias") else 1.0)


def main(tokenizer, out):
    config = json.loads((tokenizer / "config.json").read_text())
    tokens = {key: config[key] for key in ["vocab_size", "bos_token_id", "eos_token_id"]}
    for name, (family, sizes) in SIZES.items():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(
            family(num_attention_heads=4, num_key_value_heads=2, **tokens, **sizes), dtype=torch.float32)
        fill(model)
        for dtype in [torch.float32, torch.bfloat16]:
            folder = out / f"{name}-{'f32' if dtype == torch.float32 else 'bf16'}"
            model.to(dtype).save_pretrained(folder)
            for file in tokenizer.glob("tokenizer*"):
                shutil.copyfile(file, folder / file.name)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
