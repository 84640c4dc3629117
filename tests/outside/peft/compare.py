#!/usr/bin/env python3
"""Trains adapters with `warpwright finetune` and compares what PEFT and warpwright compute with them.

    compare.py PROGRAM MODEL WORK [DEVICE] [LOGITS]

MODEL is a Hugging Face folder of the family llama, qwen2 or qwen3; WORK is a folder for adapters and models; LOGITS is
the example `logits` of `train`, in the folder of PROGRAM unless it is named. Prints a
row for each adapter, and ends with 1 if a number is above its bound. README.md says what the columns are.
"""
import json, logging, pathlib, shutil, subprocess, sys, warnings

import numpy as np
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import eager_attention_forward
from transformers.utils.logging import disable_progress_bar

SAMPLES = pathlib.Path(__file__).resolve().parents[3] / "assets/samples.jsonl"
TEXT = "A slice borrows from the vector that owns the memory."
PROJECTIONS = [f"{name}_proj" for name in ["q", "k", "v", "o", "gate", "up", "down"]]
ADAPTERS = [("all-linear", 16), ("all-linear", 6), ("q_proj,v_proj", 16), ("q_proj,v_proj", 6)]
CASES = [(base, targets, rank) for base in ["keep", "nf4"] for targets, rank in ADAPTERS]
BOUNDS = {"step": 1e-4, "logits": 1e-3, "base": 1e-3, "kv16": 3e-4, "loss": 1e-5, "merged": 1e-6, "changed": 0}

# The values of bitsandbytes' NF4 and the midpoints between them.
NF4 = np.array([-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803,
                0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0], np.float32)
THRESHOLDS = (NF4[1:] + NF4[:-1]) / np.float32(2)


def nf4(weight):
    """The weight, rounded to NF4: blocks of 64 of the flattened matrix, in f32."""
    w = weight.numpy().astype(np.float32)
    blocks = np.resize(np.pad(w.ravel(), (0, -w.size % 64)), (-(-w.size // 64), 64))
    absmax = np.abs(blocks).max(axis=1, keepdims=True)
    inverse = np.divide(np.float32(1), absmax, out=np.zeros_like(absmax), where=absmax > 0)
    rounded = NF4[np.searchsorted(THRESHOLDS, blocks * inverse)] * absmax
    return torch.from_numpy(rounded.ravel()[:w.size].reshape(w.shape).copy())


def attention_16(module, query, key, value, *args, **more):
    """Attention over keys and values in f16, as warpwright's cache has them."""
    return eager_attention_forward(module, query, key.half().float(), value.half().float(), *args, **more)


AttentionInterface.register("kv16", attention_16)
AttentionMaskInterface.register("kv16", eager_mask)


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def base_folder(model, base, work):
    """The model in f32, its projections with the values that training with `--base` has."""
    folder, unpacked = work / f"base-{base}", load(model)
    for name, weight in unpacked.named_parameters():
        if base == "nf4" and name.split(".")[-2] in PROJECTIONS and name.endswith(".weight"):
            weight.data = nf4(weight.data)
    unpacked.save_pretrained(folder)
    for file in model.glob("tokenizer*"):
        shutil.copyfile(file, folder / file.name)
    return folder


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stderr}")


class Ours:
    """What the program computes."""

    def __init__(self, program, device, example):
        self.program, self.example, self.device = program, example, ["--device", device]
        self.number = ["--cuda", device.removeprefix("cuda:")] if device.startswith("cuda:") else []

    def finetune(self, model, out, base, targets, rank):
        """Trains an adapter, and gives TEXT's learned tokens and its losses before and after."""
        text = out.parent / "text.jsonl"
        text.write_text(json.dumps({"text": TEXT}) + "\n")
        shutil.rmtree(out, ignore_errors=True)
        run(self.program, "finetune", model, "--data", SAMPLES, "--out", out, "--eval", text, "--steps", 3, "--seq", 32,
            "--batch", 1, "--lr", "5e-3", "--precision", "f32", "--base", base, "--targets", targets, "--rank", rank,
            *self.device)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        first, last = [row for row in rows if "eval_loss" in row]
        return first["eval_tokens"], [first["eval_loss"], last["eval_loss"]]

    def logits(self, model, ids, adapter=None):
        out = model.parent / "logits"
        run(self.program, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out,
            *(["--adapter", adapter] if adapter else []), *self.device)
        return np.fromfile(out, "<f4").reshape(len(ids), -1)

    def step_logits(self, model, ids, adapter, targets, rank):
        """Those of the step of training in f32, over the model as it is."""
        out = model.parent / "logits"
        names = ["--targets", targets] if targets != "all-linear" else []
        run(self.example, model, "--ids", ",".join(map(str, ids)), "--out", out, "--adapter", adapter, "--rank", rank,
            "--base", "keep", *names, *self.number)
        return np.fromfile(out, "<f4").reshape(len(ids), -1)

    def merge(self, model, adapter, out):
        shutil.rmtree(out, ignore_errors=True)
        run(self.program, "merge", model, adapter, "--out", out)
        return load(out)


def logits(model, ids, attention="eager"):
    model.set_attn_implementation(attention)
    with torch.no_grad():
        rows = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    model.set_attn_implementation("eager")
    return rows


def loss(model, folder, learned):
    """The mean loss of TEXT's tokens with the end of a text behind them; so many are learned."""
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids + [model.config.eos_token_id]
    # The first token of all is not learned. The program puts BOS in front of texts for llama, tokenizers does not.
    if learned == len(ids):
        ids = [model.config.bos_token_id] + ids
    return torch.nn.functional.cross_entropy(torch.tensor(logits(model, ids)[:-1]), torch.tensor(ids[1:])).item()


def apart(a, b):
    """The largest difference, relative to the largest number of b."""
    return float(np.abs(a - b).max() / np.abs(b).max())


class Complaints(logging.Handler):
    """Collects warnings of libraries."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def load_adapter(base, adapter):
    """PEFT's model, and what it said while loading. Its tensors must be those of the file, each of them."""
    complaints = Complaints()
    libraries = [logging.getLogger(name) for name in [None, "peft", "transformers"]]
    for library in libraries:
        library.addHandler(complaints)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(base, adapter).eval()
    for library in libraries:
        library.removeHandler(complaints)
    file, has = load_file(adapter / "adapter_model.safetensors"), get_peft_model_state_dict(model)
    same = file.keys() == has.keys() and all(torch.equal(file[name], has[name]) for name in file)
    said = complaints.said + [str(w.message) for w in warned]
    # PEFT uses what transformers calls deprecated; that is between these two.
    told = [what for what in said if "deprecated" not in what]
    return model, told + ([] if same else ["other tensors than in the file"])


def merged_apart(ours, theirs):
    """The largest difference of a merged projection, and how many other tensors differ."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    projections = {name for name in ours if name.split(".")[-2] in PROJECTIONS and name.endswith(".weight")}
    others = sum(not torch.equal(ours[name], theirs[name]) for name in ours.keys() - projections)
    return max(apart(ours[name].numpy(), theirs[name].numpy()) for name in projections), others


def compare(program, model, work, base, targets, rank):
    """A row of the table, and what PEFT said."""
    folder = base_folder(model, base, work)
    adapter = work / f"adapter-{base}-{targets}-{rank}"
    learned, losses = program.finetune(model, adapter, base, targets, rank)
    plain = load(folder)
    prompts = np.random.default_rng(5).integers(0, plain.config.vocab_size, (2, 24)).tolist()
    before, plain_loss = [logits(plain, ids) for ids in prompts], loss(plain, folder, learned)
    with_adapter, told = load_adapter(plain, adapter)
    after = [logits(with_adapter, ids) for ids in prompts]
    after_16 = [logits(with_adapter, ids, "kv16") for ids in prompts]
    with_loss = loss(with_adapter, folder, learned)
    ours = [program.logits(folder, ids, adapter) for ids in prompts]
    ours_step = [program.step_logits(folder, ids, adapter, targets, rank) for ids in prompts]
    ours_before = [program.logits(folder, ids) for ids in prompts]
    row = {
        "effect": max(map(apart, after, before)),
        "base": max(map(apart, ours_before, before)),
        "step": max(map(apart, ours_step, after)),
        "logits": max(map(apart, ours, after)),
        "kv16": max(map(apart, ours, after_16)),
        "loss": max(abs(a / b - 1) for a, b in zip(losses, [plain_loss, with_loss], strict=True)),
    }
    merged = program.merge(folder, adapter, work / "merged")
    row["merged"], row["changed"] = merged_apart(merged, with_adapter.merge_and_unload())
    return row, told


def main(program, model, work, device="emu", example=None):
    example = example or pathlib.Path(program).parent / "examples/logits"
    program, model, work = Ours(program, device, example), pathlib.Path(model), pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    disable_progress_bar()
    fine = True
    print("| base | targets | rank | effect | base | step | logits | kv16 | loss | merged | changed |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        row, told = compare(program, model, work, *case)
        cells = [*map(str, case), *(f"{number:.1e}" for number in row.values())]
        print(f"| {' | '.join(cells)} |", flush=True)
        missed = [f"{name} is above {bound}" for name, bound in BOUNDS.items() if not row[name] <= bound]
        for problem in missed + [f"PEFT said: {what}" for what in told]:
            print(problem)
            fine = False
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
