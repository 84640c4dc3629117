#!/usr/bin/env python3
"""Trains adapters with `warpwright finetune` and compares what PEFT and warpwright compute with them.

    compare.py PROGRAM MODEL... WORK [--device DEVICE] [--logits LOGITS] [--step]

MODEL is a Hugging Face folder of the family llama, qwen2 or qwen3; WORK is a folder for adapters and models; LOGITS is
the example `logits` of `train`, in the folder of PROGRAM unless it is named. Prints a row for each adapter, and ends
with 1 if a number is above its bound. `--step` compares the logits of training alone, with one adapter a model, over NF4
that is unpacked to a folder in bf16. README.md says what the columns are.
"""
import argparse, json, logging, pathlib, shutil, subprocess, sys, warnings

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
# An adapter that changes logits by less shows nothing.
LEAST_EFFECT = 1e-2
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


def base_folder(model, base, work, dtype=torch.float32):
    """The model in this type, its projections with the values that training with `--base` has."""
    folder, unpacked = work / f"base-{base}", load(model)
    for name, weight in unpacked.named_parameters():
        if base == "nf4" and name.split(".")[-2] in PROJECTIONS and name.endswith(".weight"):
            weight.data = nf4(weight.data)
    unpacked.to(dtype).save_pretrained(folder)
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


class Case:
    """An adapter, trained over a base, and what PEFT says of it."""

    def __init__(self, program, model, work, base, targets, rank, dtype=torch.float32):
        self.program, self.targets, self.rank = program, targets, rank
        self.folder = base_folder(model, base, work, dtype)
        self.adapter = work / f"adapter-{base}-{targets}-{rank}"
        self.learned, self.losses = program.finetune(model, self.adapter, base, targets, rank)
        self.plain = load(self.folder)
        self.prompts = np.random.default_rng(5).integers(0, self.plain.config.vocab_size, (2, 24)).tolist()
        self.before = [logits(self.plain, ids) for ids in self.prompts]
        self.plain_loss = loss(self.plain, self.folder, self.learned)
        self.peft, self.told = load_adapter(self.plain, self.adapter)
        self.after = [logits(self.peft, ids) for ids in self.prompts]

    def step(self):
        """How far the logits of training in f32 are from PEFT's, and PEFT's from those without the adapter."""
        ours = [self.program.step_logits(self.folder, ids, self.adapter, self.targets, self.rank)
                for ids in self.prompts]
        return {"effect": max(map(apart, self.after, self.before)), "step": max(map(apart, ours, self.after))}

    def decoded(self):
        """The same of logits that the decoder makes, and of losses."""
        after_16 = [logits(self.peft, ids, "kv16") for ids in self.prompts]
        ours = [self.program.logits(self.folder, ids, self.adapter) for ids in self.prompts]
        ours_before = [self.program.logits(self.folder, ids) for ids in self.prompts]
        theirs = [self.plain_loss, loss(self.peft, self.folder, self.learned)]
        return {
            "base": max(map(apart, ours_before, self.before)),
            "logits": max(map(apart, ours, self.after)),
            "kv16": max(map(apart, ours, after_16)),
            "loss": max(abs(a / b - 1) for a, b in zip(self.losses, theirs, strict=True)),
        }

    def merged(self, out):
        """How far projections of the merged model are from PEFT's. Takes PEFT's model apart."""
        merged = self.program.merge(self.folder, self.adapter, out)
        return dict(zip(["merged", "changed"], merged_apart(merged, self.peft.merge_and_unload()), strict=True))


def rows(program, model, work, step):
    """The rows of a model's table, each with what PEFT said."""
    if step:
        case = Case(program, model, work, "nf4", "all-linear", 16, torch.bfloat16)
        yield ["nf4", "all-linear", 16], case.step(), case.told
        return
    for names in CASES:
        case = Case(program, model, work, *names)
        yield names, case.step() | case.decoded() | case.merged(work / "merged"), case.told


def problems(row, told):
    above = [f"{name} is above {BOUNDS[name]}" for name in row if name in BOUNDS and not row[name] <= BOUNDS[name]]
    idle = [] if row["effect"] >= LEAST_EFFECT else [f"the effect is below {LEAST_EFFECT}"]
    return above + idle + [f"PEFT said: {what}" for what in told]


def main(options):
    example = options.logits or pathlib.Path(options.program).parent / "examples/logits"
    program = Ours(options.program, options.device, example)
    torch.manual_seed(0)
    disable_progress_bar()
    columns = ["effect", "step"] if options.step else ["effect", "step", "base", "logits", "kv16", "loss", "merged", "changed"]
    print(f"| model | base | targets | rank | {' | '.join(columns)} |\n{'|---' * (4 + len(columns))}|")
    missed = 0
    for model in options.models:
        work = options.work / model.name
        work.mkdir(parents=True, exist_ok=True)
        for names, row, told in rows(program, model, work, options.step):
            cells = [model.name, *map(str, names), *(f"{row[column]:.1e}" for column in columns)]
            print(f"| {' | '.join(cells)} |", flush=True)
            for problem in problems(row, told):
                print(problem)
                missed += 1
    print(f"MISSED: {missed} bounds" if missed else "passed", flush=True)
    sys.exit(1 if missed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--device", default="emu")
    parser.add_argument("--logits")
    parser.add_argument("--step", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
