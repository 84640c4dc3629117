#!/usr/bin/env python3
"""Samples to fine-tune on, of this repository's own documentation.

    python3 docs/guide/fine-tuning/samples.py text      > text.jsonl       # a doc comment a line
    python3 docs/guide/fine-tuning/samples.py questions > questions.jsonl  # what an item is, and its first sentence

The same sources give the same lines.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CRATES = ["ptx-gen", "ptx-emu", "driver-sys", "driver", "cuda-emu", "kernels", "model", "engine", "train", "cli", "xtask"]
DOC = re.compile(r"^\s*//[/!] ?(.*)$")
ITEM = re.compile(r"^\s*pub(?:\([a-z]+\))? (?:const |unsafe |async )*(fn|struct|enum|trait|type|mod|const) (\w+)")
# Below it, a doc comment says too little to be learned from.
LEAST = 40


def comments(path):
    """Each doc comment of a file, with the line of code behind it."""
    doc = []
    for line in path.read_text().splitlines():
        if found := DOC.match(line):
            doc.append(found[1])
        elif not line.lstrip().startswith("#["):
            if doc:
                yield "\n".join(doc).strip(), line
            doc = []


def text(doc, _):
    """A comment as it stands, without headings and code."""
    prose = re.sub(r"```.*?(```|$)", "", doc, flags=re.S)
    prose = re.sub(r"^#+ .*$", "", prose, flags=re.M)
    prose = re.sub(r"(?<!\n)\n(?!\n)", " ", prose).strip()
    return {"text": prose} if len(prose) >= LEAST else None


def question(doc, code):
    """What an item is, answered by the first sentence of its comment."""
    item, sentence = ITEM.match(code), re.split(r"(?<=\.)\s|\n\n|:\n", doc)[0].replace("\n", " ")
    if not item or len(sentence) < LEAST:
        return None
    ask = f"What does `{item[2]}` do?" if item[1] == "fn" else f"What is `{item[2]}`?"
    return {"instruction": ask, "input": "", "output": sentence}


def main():
    make = {"text": text, "questions": question}.get(sys.argv[1] if len(sys.argv) == 2 else None)
    if not make:
        sys.exit(__doc__)
    paths = sorted(path for crate in CRATES for path in (ROOT / crate / "src").rglob("*.rs"))
    seen = set()
    for path in paths:
        for doc, code in comments(path):
            sample = json.dumps(make(doc, code), ensure_ascii=False)
            if sample != "null" and sample not in seen:
                seen.add(sample)
                print(sample)


main()
