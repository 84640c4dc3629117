"""Runs the mistakes that `bugs.py --pack` packed under NVIDIA's compute-sanitizer. `README.md` says how to call it.

Python's standard library is enough, so that it runs on a machine with a GPU and nothing else. For each mistake and its
twin, each tool sees one launch in a process of its own; `none` is the launch alone.
"""

import argparse
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck", "none"]
# The tool of a source's mistakes, which goes first together with memcheck.
CLASS = dict.fromkeys(["shared", "global", "copies", "hopper", "scopes", "lanes"], "racecheck")
CLASS |= dict.fromkeys(["warps", "phases", "grids"], "synccheck") | {"uninitialised": "initcheck"}
# What compute-sanitizer exits with if it found something.
FOUND = 33
# What the launch is tried with until a finding names a line: machine code or PTX, and the sanitizer's options.
WAYS = [(form, options) for options in (["--show-backtrace", "device"], []) for form in ("cubin", "ptx")]
# The mistake that is tried: every tool for memory finds it.
TRIED = "no_guard"
PLACE = re.compile(r"([\w.]+\.cu):(\d+)")
# Lines that begin a paragraph and are no finding. An error of the driver alone is none: it names no place.
BESIDE = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Program hit", "Target application")
BESIDE += ("Error: process didn't", "Saved host", "Host Frame")
# What is kept of a tool's output, in characters.
KEPT = 4000
# Seconds of a launch that another tool has seen hang.
AGAIN = 8


def installed(name, environment):
    """A tool of the CUDA toolkit: where the variable says, on PATH, or in the usual places."""
    named = os.environ.get(environment, "")
    places = [named, os.path.join(named, name), os.path.join(os.environ.get("CUDA_HOME", ""), "bin", name)]
    places += [shutil.which(name) or ""]
    places += sorted(glob.glob(f"/usr/local/cuda*/bin/{name}"), reverse=True)
    places += sorted(glob.glob(f"/usr/local/cuda*/compute-sanitizer/{name}"), reverse=True)
    places += sorted(glob.glob(f"/opt/nvidia/**/{name}", recursive=True))
    return next((p for p in places if os.path.isfile(p) and os.access(p, os.X_OK)), None)


def stopped(process):
    """Ends a process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def output_of(command, limit):
    """(exit code or None after the limit, output, seconds) of a command."""
    start = time.monotonic()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(list(map(str, command)), start_new_session=True, text=True, errors="replace", **streams)
    try:
        text, _ = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        stopped(process)
        text, _ = process.communicate()
        code = None
    return code, text, time.monotonic() - start


class Round:
    """Where things are, and how a launch is made."""

    def __init__(self, args):
        self.folder, self.runner, self.limit = Path(args.folder), Path(args.runner).resolve(), args.limit
        self.deadline = time.monotonic() + args.deadline
        self.sanitizer = installed("compute-sanitizer", "COMPUTE_SANITIZER")
        self.ptxas = installed("ptxas", "PTXAS")
        self.plan = json.loads((self.folder / "plan.json").read_text())
        self.form, self.options = "ptx", []
        self.hung = set()

    def assemble(self, entry):
        """Machine code with lines beside an entry's PTX, or what stopped it."""
        ptx = self.folder / entry["ptx"]
        command = [self.ptxas, "-lineinfo", "-arch", "sm_90a", ptx, "-o", ptx.with_suffix(".cubin")]
        code, text, _ = output_of(command, 60)
        return None if code == 0 else f"{ptx.name}: {text.strip()[:300]}"

    def file(self, entry, form):
        """The file of a launch: PTX if there is no machine code."""
        cubin = (self.folder / entry["ptx"]).with_suffix(".cubin")
        return cubin if form == "cubin" and cubin.exists() else self.folder / entry["ptx"]

    def command(self, entry, tool, form, options):
        call = [self.runner, self.file(entry, form), entry["bug"], *entry["launch"]]
        call += [a.replace("in:", f"in:{self.folder}/") for a in entry["args"]]
        if tool == "none":
            return call
        return [self.sanitizer, "--tool", tool, "--error-exitcode", FOUND, "--print-limit", "20", *options, *call]

    def run(self, entry, tool, form=None, options=None):
        """What a tool says of a launch."""
        row = {k: entry[k] for k in ("bug", "source", "planted", "lines")} | {"tool": tool}
        left = self.deadline - time.monotonic()
        if left < 1:
            return row | {"outcome": "not run"}
        form, options = form or self.form, self.options if options is None else options
        limit = AGAIN if entry["ptx"] in self.hung else self.limit
        code, text, seconds = output_of(self.command(entry, tool, form, options), min(limit, left))
        self.hung |= {entry["ptx"]} if code is None else set()
        row |= {"exit": code, "seconds": round(seconds, 2), "form": self.file(entry, form).suffix[1:]}
        kept = "\n".join(line for line in text.splitlines() if "Host Frame" not in line)
        return row | read(text, code, entry) | {"text": kept[:KEPT]}


def read(text, code, entry):
    """The outcome, the findings' first line, and the lines of the source that they name."""
    lines = [line.removeprefix("=========") for line in text.splitlines() if line.startswith("=========")]
    body = [line for line in lines if not line.strip().startswith(BESIDE)]
    starts = [line.strip() for line in body if line[:2].strip() and line.strip()]
    named = {int(line) for text in body for file, line in PLACE.findall(text) if file == entry["source"]}
    found = bool(named) or code == FOUND and bool(starts)
    ended = "hung" if code is None else "failed" if code else "clean"
    beside = next((line.strip() for line in lines if line.strip().startswith("Program hit")), "")
    places = {"places": sorted(named), "named": bool(named & set(entry["lines"]))}
    return {"outcome": "found" if found else ended, "first": starts[0] if starts else "", "api": beside} | places


def trial(work):
    """Finds a way in which the sanitizer names a line of the source; None if there is none."""
    entry = next(e for e in work.plan if e["bug"] == TRIED and e["planted"])
    for form, options in WAYS:
        if form == "cubin" and not work.file(entry, "cubin").suffix == ".cubin":
            continue
        row = work.run(entry, "memcheck", form, options)
        print(f"-- {TRIED} under memcheck, {form}, {options}: exit {row.get('exit')}, lines {row.get('places')}")
        print(row.get("text", "")[:1500], flush=True)
        if row.get("named"):
            return form, options
    return None


def jobs(plan, only):
    """Every (entry, tool), those that matter most first; what does not end comes last in each part."""
    hangs = lambda entry: "fuel" in entry
    first = lambda entry: ["memcheck", CLASS.get(entry["source"].split(".")[0], "memcheck")]
    planted, twins = [e for e in plan if e["planted"]], [e for e in plan if not e["planted"]]
    parts = [[(e, t) for e in es for t in TOOLS if t in first(e)] for es in (planted, twins)]
    rest = [[(e, t) for e in es for t in TOOLS if t not in first(e)] for es in (planted, twins)]
    for part in [*parts, *rest]:
        yield from sorted((j for j in part if not only or j[1] in only), key=lambda job: hangs(job[0]))


def table(rows):
    """A line for each mistake: what each tool says of it, and of the twin."""
    cell = lambda row: {"found": "LINE" if row.get("named") else "found"}.get(row["outcome"], row["outcome"])
    by = {(r["bug"], r["planted"], r["tool"]): cell(r) for r in rows}
    out = f"{'mistake':36}" + "".join(f"{t:>20}" for t in TOOLS) + "   (planted/twin)\n"
    for bug in dict.fromkeys(r["bug"] for r in rows):
        cells = ["/".join(by.get((bug, planted, t), "-") for planted in (True, False)) for t in TOOLS]
        out += f"{bug:36}" + "".join(f"{c:>20}" for c in cells) + "\n"
    return out


def summary(rows):
    """Of how many mistakes a tool names the line, and how many twins it flags."""
    out = ""
    for tool in TOOLS:
        count = lambda planted, test: sum(r["tool"] == tool and r["planted"] == planted and test(r) for r in rows)
        named, found = count(True, lambda r: r.get("named")), count(True, lambda r: r["outcome"] == "found")
        flagged, late = count(False, lambda r: r["outcome"] == "found"), count(True, lambda r: r["outcome"] == "not run")
        out += f"{tool}: {named} named at their line, {found} found at all, {flagged} twins flagged, {late} not run\n"
    any_tool = {r["bug"] for r in rows if r["planted"] and r["tool"] != "none" and r.get("named")}
    return out + f"by any tool: {len(any_tool)} named\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="what bugs.py --pack wrote")
    parser.add_argument("--runner", required=True, help="the built example launch_once")
    parser.add_argument("--out", required=True, help="the JSON file to write")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--limit", type=float, default=20, help="seconds of a launch")
    parser.add_argument("--deadline", type=float, default=540, help="seconds of all")
    parser.add_argument("--tools", help="some of the tools, with commas")
    parser.add_argument("--only", default="", help="mistakes whose name contains this")
    args = parser.parse_args()
    work, start = Round(args), time.monotonic()
    if not work.sanitizer:
        sys.exit("compute-sanitizer is not on PATH; COMPUTE_SANITIZER names its folder")
    _, version, _ = output_of([work.sanitizer, "--version"], 60)
    print(f"{work.sanitizer}: {version.strip().splitlines()[-1:]}; ptxas: {work.ptxas}")
    with ThreadPoolExecutor(args.jobs) as pool:
        errors = [e for e in pool.map(work.assemble, work.plan) if e] if work.ptxas else ["no ptxas"]
        print(f"{len(errors)} not assembled, the driver compiles them: {errors[:3]}", flush=True)
        way = trial(work)
        if not way:
            sys.exit("no way in which memcheck names the line of the mistake that it must find")
        work.form, work.options = way
        todo = [j for j in jobs(work.plan, args.tools and args.tools.split(",")) if args.only in j[0]["bug"]]
        rows = list(pool.map(lambda job: work.run(*job), todo))
    seconds = time.monotonic() - start
    meta = {"sanitizer": version.strip(), "way": way, "jobs": args.jobs, "seconds": round(seconds, 1), "errors": errors}
    Path(args.out).write_text(json.dumps({"meta": meta, "rows": rows}, indent=0))
    print(table(rows) + summary(rows) + f"{len(rows)} launches in {seconds:.0f} s, {way}")


if __name__ == "__main__":
    main()
