"""What compute-sanitizer said of the mistakes in `bugs/`, kept in `sanitizer.json`, and who finds which of them."""

import json

import corpus

KEPT = corpus.HERE / "sanitizer.json"
PAGE = corpus.ROOT / "docs" / "checker" / "coverage.md"
MARKS = "<!-- who finds what: written by `bugs.py --table` in tests/corpus -->", "<!-- end of who finds what -->"
TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
COLUMNS = [*TOOLS, "none"]
# What a class of mistakes is called, by its source.
CLASSES = {
    "bounds": "indices and addresses beyond what is there, misaligned ones",
    "places": "pointers: neighboring variables, alignment, heap, stack",
    "uninitialised": "uninitialized values",
    "shared": "races on shared memory",
    "lanes": "lanes of a warp that are assumed to run in lockstep",
    "global": "races on global memory, fences and scopes",
    "scopes": "data passed between blocks: scope, place and effect of the order",
    "copies": "asynchronous copies of sm_80, mbarriers",
    "phases": "phases and counts of mbarriers, stages of copies, barriers",
    "hopper": "clusters and bulk copies of sm_90",
    "grids": "grids, clusters, bulk copies and `wgmma`",
    "warps": "shuffles and votes, barriers in divergent code, endless loops",
    "arithmetic": "divisions by zero, NaN and infinity",
}


def condensed(found, commit):
    """What is kept of the file that `sanitizer.py` wrote: a word for each launch, without the tools' texts."""
    if not all("digest" in row for row in found["rows"]):
        raise SystemExit("rows without a digest: pack again, so that each tells which text the card has run")
    kept = {}
    for row in found["rows"]:
        entry = kept.setdefault(row["bug"], {"digest": row["digest"], "planted": {}, "twin": {}})
        word = "named" if row.get("named") else row["outcome"]
        entry["planted" if row["planted"] else "twin"][row["tool"]] = word
    lists = {bug: entry | {side: [entry[side].get(t, "not run") for t in COLUMNS] for side in ("planted", "twin")} for bug, entry in kept.items()}
    meta = {"columns": COLUMNS, "commit": commit, **{k: found["meta"][k] for k in ("card", "driver", "date", "sanitizer", "jobs", "limits")}}
    lines = ",\n".join(f"{json.dumps(bug)}: {json.dumps(entry)}" for bug, entry in lists.items())
    return f'{{"meta": {json.dumps(meta)},\n"mistakes": {{\n{lines}\n}}}}\n'


class Outcomes:
    """The words of `sanitizer.json`."""

    def __init__(self, text):
        kept = json.loads(text)
        self.meta, self.mistakes = kept["meta"], kept["mistakes"]

    def of(self, bug, side="planted"):
        """{tool: word} of a mistake or of its twin. Words: named, found, clean, failed, hung, not run."""
        return dict(zip(COLUMNS, self.mistakes.get(bug.name, {}).get(side, ["not run"] * len(COLUMNS))))

    def named(self, bug, tool):
        return self.of(bug)[tool] == "named"

    def any(self, bug):
        return any(self.named(bug, tool) for tool in TOOLS)

    def flagged(self, bug):
        """The tools that flag the twin."""
        return [t for t, word in self.of(bug, "twin").items() if word in ("named", "found")]

    def changed(self, bug):
        """Whether the source of a mistake or of its twin is no longer what the card ran."""
        return bug.name in self.mistakes and self.mistakes[bug.name]["digest"] != bug.digest

    def cells(self, bug):
        """Three cells of bugs.tsv: what the tools say, how the launch alone ends, and which tools flag the twin."""
        words = self.of(bug)
        alone = words.pop("none")
        said = [f"{tool}: {WORDS[word]}" for tool, word in words.items() if word not in ("clean", alone) or word == "not run"]
        twin = ", ".join(self.flagged(bug)) or "clean"
        return "; ".join(said), WORDS[alone], twin + " (an earlier text)" * self.changed(bug)


WORDS = {"named": "yes", "found": "elsewhere", "clean": "ends", "hung": "hangs", "failed": "fails", "not run": "not run"}


def page(rows, card):
    """The part of docs/checker/coverage.md. `rows` are (mistake, whether the emulator names it, what it says of the twin)."""
    return "\n".join([MARKS[0], "", *conditions(rows, card), "", *lines(rows, card), "", *lists(rows, card), "", MARKS[1]])


def conditions(rows, card):
    meta = card.meta
    version = next(line for line in meta["sanitizer"].splitlines() if line.startswith("Version"))
    return [
        f"The tools are those of compute-sanitizer {version.removeprefix('Version ')}, with default checks, on one {meta['card']}, driver "
        f"{meta['driver']}, {meta['date']}, commit {meta['commit']}, {meta['jobs']} processes at a time. Each tool saw each launch once, "
        f"in a separate process. The emulator runs {len(corpus.SCHEDULES)} schedules, with `--race`, `--arithmetic` and `--provenance`. "
        f"*Hangs* means that the launch without a tool does not end ({meta['limits']}). *Fails* means that without a tool the driver "
        f"reports an error, which names no line.",
    ]


def lines(rows, card):
    """The table, a line for each class."""
    head = ["class", "bugs", "emulator", *TOOLS, "any tool", "hangs", "fails"]
    classes = [(title, [r for r in rows if r[0].source.stem == stem]) for stem, title in CLASSES.items()]
    if missing := {r[0].source.stem for r in rows} - CLASSES.keys():
        raise SystemExit(f"CLASSES names no class for {sorted(missing)}")
    out = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    out += [line(title, part, card) for title, part in classes if part]
    flags = [sum(twin == "flagged" for _, _, twin in rows), *(sum(t in card.flagged(b) for b, *_ in rows) for t in TOOLS)]
    twins = ["twins flagged", len(rows), *flags, sum(bool(card.flagged(b)) for b, *_ in rows), "", ""]
    return out + [line("all", rows, card), f"| {' | '.join(map(str, twins))} |"]


def line(title, rows, card):
    alone = [card.of(bug)["none"] for bug, *_ in rows]
    tools = [sum(card.named(bug, tool) for bug, *_ in rows) for tool in TOOLS]
    either = sum(card.any(bug) for bug, *_ in rows)
    cells = [title, len(rows), sum(yes for _, yes, _ in rows), *tools, either, alone.count("hung"), alone.count("failed")]
    return f"| {' | '.join(map(str, cells))} |"


def lists(rows, card):
    """Which bugs only one side names, and which neither does."""
    mended = lambda b: " (changed since)" if card.changed(b) else ""
    listed = lambda bugs: ", ".join(f"`{b.name}`{mended(b)}" for b in bugs) or "none"
    names = lambda test: listed(b for b, yes, _ in rows if test(b, yes))
    elsewhere = lambda b: any(card.of(b)[t] == "found" for t in TOOLS)
    silent = lambda b: not elsewhere(b) and card.of(b)["none"] not in ("hung", "failed")
    only = [b for b, yes, _ in rows if yes and not card.any(b)]
    return [
        f"- Named by the emulator and by no tool: {len(only)}. Of these, {sum(map(silent, only))} neither hang nor fail on the GPU, and no "
        "tool finds them at another line.",
        f"- Named by a tool and not by the emulator: {names(lambda b, yes: not yes and card.any(b))}.",
        f"- Found by a tool, but at no line that the source marks: {names(lambda b, yes: not card.any(b) and elsewhere(b))}.",
        f"- Named by neither: {names(lambda b, yes: not yes and not card.any(b))}.",
        f"- Twins that a tool flags: {names(lambda b, yes: card.flagged(b))}.",
        f"- Twins that the emulator does not load: {listed(b for b, _, twin in rows if twin == 'not run')}.",
    ]


def replaced(text, part):
    """A page with its part between the marks replaced."""
    before, _, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise SystemExit(f"{PAGE}: a line `{MARKS[0]}` and, below it, `{MARKS[1]}` are needed")
    return before + part + after
