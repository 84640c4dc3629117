"""Runs the mistakes in `bugs/`, each with its corrected twin. `README.md` says how to call it."""

import argparse
import hashlib
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import corpus
import outcomes
from cases import Case, InOut

# Checks that are asked for are on, of arithmetic and of where pointers come from.
SCHEDULES = [{**s, "trace": True, "arithmetic": True, "provenance": True} for s in corpus.SCHEDULES]
HEADER = re.compile(r"^// (\w+): grid (\d+), block (\d+)((?:, (?:\w+)(?: \d+)?)*)$", re.M)

# The version of PTX that is packed. nvcc writes a newer one, with nothing in it that is new.
CARRIED = "9.0"
# Options of a launch that the runner on a GPU takes with a number.
LAUNCH = ["shared", "cluster"]


@dataclass
class Bug:
    """A kernel with a mistake, its launch, the lines one of which a finding must name, and a hash of its text."""

    source: object
    name: str
    grid: int
    block: int
    options: dict
    lines: list
    digest: str


def bugs_of(source):
    """The mistakes of a source."""
    text = source.read_text()
    heads = list(HEADER.finditer(text))
    for head, after in zip(heads, [*[h.start() for h in heads[1:]], len(text)]):
        options = dict((o.split() + ["1"])[:2] for o in head[4].split(", ") if o)
        first = text.count("\n", 0, head.start()) + 1
        whole = text[head.start() : after]
        # What stands before the first mistake, such as functions, belongs to each.
        digest, body = hashlib.sha256((text[: heads[0].start()] + whole.strip()).encode()).hexdigest()[:8], whole.split("\n")
        lines = [first + i for i, line in enumerate(body) if line.rstrip().endswith("//!")]
        yield Bug(source, head[1], int(head[2]), int(head[3]), options, lines, digest)


def case_of(bug):
    """A launch with `n` numbers in, and `n` out, which are zero if the mistake says so."""
    n = int(bug.options.get("n", bug.grid * bug.block))

    def make(r):
        x = r.integers(0, 100, n).astype(np.int32)
        return [x, InOut(np.zeros(n + 64, np.int32), None) if "zero" in bug.options else Fresh(n), np.int32(n)]

    launch = {name: int(bug.options[name]) for name in ("shared", "cluster", "fuel") if name in bug.options}
    launch["cooperative"] = "cooperative" in bug.options
    return Case(bug.name, make, bug.grid, bug.block, **{"fuel": 1 << 20, **launch})


class Fresh(InOut):
    """A buffer that holds nothing before, and anything after."""

    def __init__(self, n):
        super().__init__(np.zeros(n, np.int32), None)


def compiled(source, planted):
    """Compiles a source with or without its mistakes; gives the PTX file."""
    arch = re.search(r"^// arch (\w+)", source.read_text(), re.M)
    ptx = corpus.TARGET / "bugs" / f"{source.stem}_{'planted' if planted else 'twin'}.ptx"
    ptx.parent.mkdir(parents=True, exist_ok=True)
    flags = [f"-I{source.parent}", "-diag-suppress=20054", *(["-DBUG_PLANTED"] if planted else [])]
    if error := corpus.compile_cuda(source, arch[1] if arch else "sm_80", flags, ptx):
        raise SystemExit(f"{source.name}: {error}")
    return ptx


def findings(bug, planted):
    """The findings of a kernel over the schedules, or a message; and its PTX text."""
    ptx = compiled(bug.source, planted)
    folder = corpus.TARGET / "bugs" / f"{bug.name}_{'planted' if planted else 'twin'}"
    shutil.rmtree(folder, ignore_errors=True)
    job = corpus.Job(case_of(bug), bug.name, ptx, folder)
    for buffer in job.buffers[1:]:
        buffer["data"] = buffer["data"] if "zero" in bug.options else None
    answer = job.run(SCHEDULES, 60)
    if "runs" not in answer:
        return f"not run: {answer.get('load') or answer.get('stopped')}", ""
    return [f for f in answer["runs"] if f], ptx.read_text()


def source_lines(finding, text, name):
    """Every line of the source that a finding names."""
    places = filter(None, (finding["at"], finding["other"]))
    return {line for place in places for file, line in corpus.places(text.split("\n"), place["line"]) if file == name}


def judged(bug):
    """(named, classes, places, twin): whether a finding names a line, what they say, and what the twin got."""
    planted, text = findings(bug, True)
    twin, _ = findings(bug, False)
    flagged = twin if isinstance(twin, str) else ", ".join(sorted({f["class"] for f in twin}))
    if isinstance(planted, str):
        return "no", planted, "", flagged
    if not planted:
        return "no", "no finding", "", flagged
    places = [source_lines(f, text, bug.source.name) for f in planted]
    named = any(p & set(bug.lines) for p in places)
    classes = ", ".join(sorted({f["class"] for f in planted}))
    return "yes" if named else "elsewhere", f"{classes} in {len(planted)} of {len(SCHEDULES)}", str(sorted(set().union(*places)))[1:-1], flagged


def pack(bugs, folder):
    """Writes every mistake and its twin for `sanitizer.py`: PTX that drivers for CUDA 13.0 take, inputs and a plan."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    plan = [packed(bug, planted, folder) for planted in (True, False) for bug in bugs]
    (folder / "plan.json").write_text(json.dumps(plan, indent=0))


def packed(bug, planted, folder):
    """Writes one of them; gives its entry of the plan."""
    case = case_of(bug)
    x, y, n = case.make(np.random.default_rng(corpus.seed(case)))
    name = f"{bug.name}_{'planted' if planted else 'twin'}.ptx"
    text = corpus.cut(compiled(bug.source, planted).read_text(), bug.name)
    text = re.sub(r"^\.version .*$", f".version {CARRIED}", text, flags=re.M)
    (folder / name).write_text(re.sub(r'^(\s*\.file\s+\d+ ").*/', r"\1", text, flags=re.M))
    (folder / f"x_{n}.bin").write_bytes(x.tobytes())
    launch = ["--grid", bug.grid, "--block", bug.block, *(w for o in LAUNCH if o in bug.options for w in (f"--{o}", bug.options[o]))]
    launch = [str(word) for word in launch] + ["--cooperative"] * ("cooperative" in bug.options)
    args = [f"in:x_{n}.bin", f"{'zero' if 'zero' in bug.options else 'uninit'}:{y.initial.nbytes}", f"i32:{n}"]
    hangs = {"fuel": True} if "fuel" in bug.options else {}
    place = {"bug": bug.name, "source": bug.source.name, "planted": planted, "lines": bug.lines, "digest": bug.digest}
    return place | {"ptx": name, "launch": launch, "args": args} | hangs


HEADER = ["source", "bug", "named", "finding", "lines", "marked", "twin", "tools", "alone", "tools on twin"]


def of_twin(row):
    """What the emulator says of the twin."""
    return "not run" if row[3].startswith("not run") else "flagged" if row[3] else "clean"


def table(rows, card):
    """bugs.tsv"""
    cells = lambda b, r: [
        f"bugs/{b.source.name}",
        b.name,
        r[0],
        corpus.shortened(r[1]),
        r[2],
        str(b.lines)[1:-1],
        corpus.shortened(r[3]) or "clean",
        *card.cells(b),
    ]
    return corpus.tsv(HEADER, [cells(b, r) for b, r in rows])


def write(rows):
    """Writes bugs.tsv and the part of docs/checker/coverage.md."""
    card = outcomes.Outcomes(outcomes.KEPT.read_text())
    (corpus.HERE / "bugs.tsv").write_text(table(rows, card))
    part = outcomes.page([(bug, row[0] == "yes", of_twin(row)) for bug, row in rows], card)
    outcomes.PAGE.write_text(outcomes.replaced(outcomes.PAGE.read_text(), part))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="stems of sources; all without")
    parser.add_argument("--table", action="store_true", help="write bugs.tsv and the table of docs/checker/coverage.md")
    parser.add_argument("--card", metavar="JSON", type=Path, help="keep what sanitizer.py wrote, and run nothing")
    parser.add_argument("--commit", help="of what --card was packed from")
    parser.add_argument("--pack", metavar="FOLDER", type=Path, help="write them for sanitizer.py and run nothing")
    args = parser.parse_args()
    if bool(args.card) != bool(args.commit):
        parser.error("--card and --commit go together")
    if args.card:
        return outcomes.KEPT.write_text(outcomes.condensed(json.loads(args.card.read_text()), args.commit))
    if args.table and args.names:
        parser.error("--table is of all sources")
    sources = [s for s in sorted((corpus.HERE / "bugs").glob("*.cu")) if not args.names or s.stem in args.names]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: compiled(*job), [(s, planted) for s in sources for planted in (True, False)]))
        bugs = [b for s in sources for b in bugs_of(s)]
        if args.pack:
            return pack(bugs, args.pack)
        rows = list(zip(bugs, pool.map(judged, bugs)))
    for bug, row in rows:
        print(f"{bug.source.stem:14} {bug.name:34} {row[0]:10} {row[1][:70]:50} {row[2]:16} want {bug.lines} twin: {row[3][:60] or 'clean'}")
    if args.table:
        write(rows)


if __name__ == "__main__":
    main()
