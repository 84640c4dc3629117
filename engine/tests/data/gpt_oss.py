#!/usr/bin/env python3
"""Runs the GGUF files and the folders of gpt-oss of a test with transformers in float64 and prints their logits as JSON.

    cargo test -p warpwright-engine --test it -- gpt_oss_agrees
    python3 engine/tests/data/gpt_oss.py target/tmp/gpt_oss-gpt_oss_agrees_with_transformers > engine/tests/data/gpt_oss.json

It needs torch, transformers, accelerate and gguf from PyPI. The test writes the files and then fails until the results
are there. Norms and angles are float32 in transformers, whatever the weights are. transformers reads the folders itself
and unpacks their experts to bfloat16, which holds every value of MXFP4.
"""
import json, pathlib, sys, zlib

import gguf, numpy, torch, transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM, Mxfp4Config

IDS = [3, 90, 0, 17, 17, 55, 40, 8, 61, 2, 33, 95, 12, 77, 5, 17, 29, 64, 1, 48]


def read(path):
    """The keys and the tensors of a file."""
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {}
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        tensors[tensor.name] = torch.tensor(numpy.asarray(numbers, dtype=numpy.float64)).reshape(shape)
    return keys, tensors


def configuration(keys):
    key = lambda name: keys["gpt-oss." + name]
    return GptOssConfig(
        num_hidden_layers=key("block_count"),
        num_local_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"),
        vocab_size=key("vocab_size"),
        hidden_size=key("embedding_length"),
        intermediate_size=key("expert_feed_forward_length"),
        head_dim=key("attention.key_length"),
        num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"),
        sliding_window=key("attention.sliding_window"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=key("context_length"),
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": key("rope.freq_base"),
            "factor": key("rope.scaling.factor"),
            "original_max_position_embeddings": key("rope.scaling.original_context_length"),
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
        tie_word_embeddings=False,
        attn_implementation="eager",
        experts_implementation="eager",
    )


def weights(keys, t):
    """The weights by their names in transformers, which stores the matrices of experts transposed."""
    state = {
        "model.embed_tokens.weight": t["token_embd.weight"],
        "model.norm.weight": t["output_norm.weight"],
        "lm_head.weight": t["output.weight"],
    }
    for i in range(keys["gpt-oss.block_count"]):
        of = lambda name: t[f"blk.{i}.{name}"]
        layer = f"model.layers.{i}."
        state[layer + "input_layernorm.weight"] = of("attn_norm.weight")
        state[layer + "post_attention_layernorm.weight"] = of("post_attention_norm.weight")
        for name, short in [("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"), ("attn_output", "o")]:
            for kind in ("weight", "bias"):
                state[f"{layer}self_attn.{short}_proj.{kind}"] = of(f"{name}.{kind}")
        state[layer + "self_attn.sinks"] = of("attn_sinks.weight")
        state[layer + "mlp.router.weight"] = of("ffn_gate_inp.weight")
        state[layer + "mlp.router.bias"] = of("ffn_gate_inp.bias")
        experts = layer + "mlp.experts."
        # Columns of gate and up alternate.
        both = torch.stack([of("ffn_gate_exps.weight"), of("ffn_up_exps.weight")], dim=2).flatten(1, 2)
        state[experts + "gate_up_proj"] = both.transpose(1, 2).contiguous()
        both = torch.stack([of("ffn_gate_exps.bias"), of("ffn_up_exps.bias")], dim=2).flatten(1, 2)
        state[experts + "gate_up_proj_bias"] = both
        state[experts + "down_proj"] = of("ffn_down_exps.weight").transpose(1, 2).contiguous()
        state[experts + "down_proj_bias"] = of("ffn_down_exps.bias")
    return state


def logits(path):
    keys, tensors = read(path)
    model = GptOssForCausalLM(configuration(keys)).double().eval()
    missing, unexpected = model.load_state_dict(weights(keys, tensors), strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0]


def logits_of_folder(path):
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.bfloat16, quantization_config=Mxfp4Config(dequantize=True),
        attn_implementation="eager", experts_implementation="eager").double().eval()
    # Vectors in float32 are rounded to bfloat16 above.
    with safe_open(path / "model.safetensors", "pt") as file:
        parameters = dict(model.named_parameters())
        for name in file.keys():
            if file.get_slice(name).get_dtype() == "F32":
                parameters[name].data.copy_(file.get_tensor(name).double())
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0]


def main(folder):
    models = {}
    entry = lambda data, rows: {
        "crc32": zlib.crc32(data.read_bytes()),
        "logits": [[float(f"{x:.7g}") for x in row] for row in rows.tolist()],
    }
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.suffix == ".gguf":
            models[path.stem] = entry(path, logits(path))
        elif path.is_dir():
            models[path.name] = entry(path / "model.safetensors", logits_of_folder(path))
        print(path.name, file=sys.stderr)
    versions = {m.__name__: m.__version__ for m in (torch, transformers)}
    head = {"versions": versions, "ids": IDS}
    print(json.dumps(head)[:-1] + ', "models": {')
    print(",\n".join(f"{json.dumps(name)}: {json.dumps(model)}" for name, model in models.items()))
    print("}}")


main(sys.argv[1])
