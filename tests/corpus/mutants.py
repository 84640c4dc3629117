"""Plants mutants in the corpus and counts which of them the emulator finds. `README.md` says how to call it."""

import argparse
import hashlib
import re
import shutil
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import corpus
from equivalent import EQUIVALENT
from operators import OPERATORS, Context

SEED = "2026-11-24"
LIMIT = 60
TRACED = [{**s, "trace": True} for s in corpus.SCHEDULES]


@dataclass
class Mutant:
    """A kernel with one mutation."""

    operator: str
    kernel: tuple
    text: str
    line: int
    old: str
    new: str

    @property
    def key(self):
        return f"{self.kernel[1]}/{self.operator}/{self.line}"

    def kernel_lines(self):
        """The lines of the kernel as it was."""
        return kernel_text(self.kernel).split("\n")

    @property
    def rank(self):
        return hashlib.sha256(f"{SEED} {self.key} {self.new}".encode()).hexdigest()


def kernel_text(kernel):
    """The PTX text of a kernel alone."""
    text = kernel[4].read_text()
    return corpus.cut(text, corpus.entry_of(text, kernel[2].kernel))


def mutants_of(kernel):
    """Every mutant of a kernel."""
    lines = kernel_text(kernel).split("\n")
    x, y, z = corpus.triple(kernel[2].block)
    for at, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith(("//", ".")):
            continue
        for name, operator in OPERATORS.items():
            for new in operator(line, Context(lines, at, x * y * z)):
                changed = list(lines)
                if isinstance(new, tuple):
                    new, other, there = new
                    changed[other] = there
                changed[at] = new
                yield Mutant(name, kernel, "\n".join(changed), at + 1, line.strip(), new.strip())


def order(mutants):
    """The mutants: from each operator in turn, and there from each kernel in turn, by a hash with a fixed seed."""
    queues = defaultdict(lambda: defaultdict(list))
    for mutant in sorted(mutants, key=lambda m: m.rank):
        queues[mutant.operator][mutant.kernel[1]].append(mutant)
    rows = []
    for name in OPERATORS:
        kernels = sorted(queues[name].values(), key=lambda q: q[0].rank)
        rows.append([q[i] for i in range(max(map(len, kernels), default=0)) for q in kernels if i < len(q)])
    return [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]


def sample(mutants, count):
    """The first `count` mutants in order whose place some thread of the launch reaches."""
    queue, taken = order(mutants), []
    with ThreadPoolExecutor(2) as pool:
        while queue and len(taken) < count:
            some, queue = queue[:count], queue[count:]
            taken += [mutant for mutant, yes in zip(some, pool.map(reached, some)) if yes]
    return taken[:count]


def reached(mutant):
    """Whether the kernel comes to the place: with a trap there it faults."""
    lines = mutant.kernel_lines()
    guard = re.match(r"@!?%\w+\s+", mutant.old)
    lines[mutant.line - 1] = f"{guard[0] if guard else ''}trap; {mutant.old}"
    job = job_of(mutant, "\n".join(lines), "reached")
    runs = job.run([{**corpus.SCHEDULES[0], "trace": False}], LIMIT).get("runs")
    shutil.rmtree(job.folder)
    return bool(runs and runs[0] and runs[0]["class"] == "Trap")


def job_of(mutant, text, kind):
    """A job of changed text."""
    case = mutant.kernel[2]
    folder = corpus.TARGET / "mutants" / f"{mutant.key}/{kind}".replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "kernel.ptx"
    path.write_text(text)
    return corpus.Job(case, corpus.entry_of(text, case.kernel), path, folder)


def judged(mutant):
    """What came of a mutant: (kind, detail)."""
    job = job_of(mutant, mutant.text, "judged")
    answer = job.run(TRACED, LIMIT)
    kind, detail = verdict(job, answer)
    if kind in ("differs", "missed") and answer.get("unwritten") and not unwritten(mutant):
        kind, detail = "note", "bytes of an output that nobody has written"
    if kind != "missed":
        shutil.rmtree(job.folder)
    return kind, detail


def unwritten(mutant):
    """Whether the kernel as it was leaves bytes of an output unwritten."""
    job = job_of(mutant, "\n".join(mutant.kernel_lines()), "unwritten")
    answer = job.run(TRACED[:1], LIMIT)
    shutil.rmtree(job.folder)
    return answer.get("unwritten", True)


def verdict(job, answer):
    if "load" in answer:
        return "refused", answer["load"][0]
    if "stopped" in answer:
        return "stopped", answer["stopped"]
    found = [f for f in answer["runs"] if f]
    if found:
        return "finding", f"{found[0]['class']} in {len(found)} of {len(answer['runs'])}"
    wrong = [w for w in map(job.wrong, range(len(answer["runs"]))) if w]
    return ("differs", wrong[0]) if wrong else ("missed", "")


def place(mutant):
    """File and line of the kernel's own source, or else of what it includes."""
    found = corpus.places(mutant.text.split("\n"), mutant.line) or [("?", 0)]
    name = mutant.kernel[0].split("/")[-1]
    file, line = next((p for p in found if p[0] == name), found[-1])
    return f"{file}:{line}"


def healthy(kernels):
    """The kernels that load and give the expected results without a finding."""
    with ThreadPoolExecutor(2) as pool:
        return [k for k, (_, _, what) in zip(kernels, pool.map(corpus.outcome, kernels)) if what is None]


OPERATORS_HEADER = ["operator", "what it does", "sites", "drawn", "finding", "note", "differs", "refused", "stopped", "missed"]
OPERATORS_HEADER += ["equivalent", "found", "with results"]
HEADER = ["result", "mutant", "source", "PTX", "became", "equivalent because, or what differs"]


def tables(mutants, taken):
    """mutant-operators.tsv and mutants.tsv; `taken` is of (mutant, (kind, detail))."""
    rows = [counts(name, doc, mutants, taken) for name, doc in documents().items()]
    rows.append(counts(None, "", mutants, taken))
    listed = lambda kind: [(m, detail) for m, (k, detail) in taken if k == kind]
    missed = [line("missed", m, EQUIVALENT.get(m.key, "")) for m, _ in listed("missed")]
    differs = [line("wrong result", m, detail) for kind in ("note", "differs") for m, detail in listed(kind)]
    return corpus.tsv(OPERATORS_HEADER, rows), corpus.tsv(HEADER, sorted(missed) + sorted(differs))


def documents():
    return {name: " ".join(operator.__doc__.split()) for name, operator in OPERATORS.items()}


def counts(name, doc, mutants, taken):
    """A row of the table: of an operator, or of all."""
    mine = [(m, kind) for m, (kind, _) in taken if name in (None, m.operator)]
    number = Counter(kind for _, kind in mine)
    equivalent = sum(kind == "missed" and m.key in EQUIVALENT for m, kind in mine)
    real = len(mine) - number["refused"] - equivalent
    share = lambda count: f"{100 * count / real:.0f} %" if real else ""
    found = share(number["finding"]), share(number["finding"] + number["note"] + number["differs"])
    sites = sum(name in (None, m.operator) for m in mutants)
    kinds = [number[k] for k in ("finding", "note", "differs", "refused", "stopped", "missed")]
    return [name or "all", doc, sites, len(mine), *kinds, equivalent, *found]


def line(result, mutant, last):
    cell = lambda text: re.sub(r"\s+", " ", text)
    return [result, mutant.key, place(mutant), cell(mutant.old), cell(mutant.new), corpus.shortened(last)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="stems of sources; all without")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--table", action="store_true", help="write mutant-operators.tsv and mutants.tsv")
    args = parser.parse_args()
    kernels = healthy(list(corpus.all_kernels(args.names)))
    mutants = [m for k in kernels for m in mutants_of(k)]
    taken = sample(mutants, args.count)
    with ThreadPoolExecutor(2) as pool:
        taken = list(zip(taken, pool.map(judged, taken)))
    for mutant, (kind, detail) in taken:
        print(f"{kind:8} {mutant.key:50} {place(mutant):18} {mutant.old[:60]:60} {detail[:80]}")
    operators, listed = tables(mutants, taken)
    print(operators)
    if args.table:
        (corpus.HERE / "mutant-operators.tsv").write_text(operators)
        (corpus.HERE / "mutants.tsv").write_text(listed)


if __name__ == "__main__":
    main()
