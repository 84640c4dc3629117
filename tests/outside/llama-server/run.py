#!/usr/bin/env python3
"""Runs llama.cpp's server tests against `warpwright serve`, and compares each outcome with `expected.tsv`.

    run.py PROGRAM TESTS MODELS [NAME ..] [--write]

PROGRAM is `warpwright`, TESTS the folder `tools/server/tests` of llama.cpp, and MODELS the folder with
`stories260K.gguf` that `widen.py` wrote. Names of test files select some of them. `--write` changes the
outcomes in `expected.tsv` and keeps the reasons.

The script exits with 1 if the outcome of a test is not the expected one, in either direction.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.tsv"
HEADER = "test\toutcome\treason\n"
# The outcome of tests that depend on other programs of the machine.
ANY = "any"


def read(path):
    """Returns the rows of a table by their first column."""
    if not path.exists():
        return {}
    rows = path.read_text(encoding="utf-8").splitlines()
    rows = (row.split("\t") for row in rows if row + "\n" != HEADER)
    return {name: (outcome, reason) for name, outcome, reason in rows}


def write(expected):
    """Writes the table."""
    rows = (f"{name}\t{outcome}\t{reason}\n" for name, (outcome, reason) in sorted(expected.items()))
    EXPECTED.write_text(HEADER + "".join(rows), encoding="utf-8")


def run(arguments, file, port):
    """Runs a file of tests. Returns the outcome of each test with the error's first line."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes.tsv"
        environment = {
            **os.environ,
            "LLAMA_SERVER_BIN_PATH": str(HERE / "llama-server"),
            "WARPWRIGHT": str(arguments.program.resolve()),
            "WARPWRIGHT_TEST_MODELS": str(arguments.models.resolve()),
            "OUTCOMES": str(outcomes),
            "SHIM_FAILURE": str(Path(folder) / "failure.txt"),
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PORT": str(port),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "record", "-p", "no:cacheprovider"]
        command += ["-m", "not slow", f"unit/{file}"]
        done = subprocess.run(
            command, cwd=arguments.tests, env=environment, capture_output=True, text=True, check=False
        )
        found = read(outcomes)
        if not found:
            print(done.stdout[-4000:] + done.stderr[-4000:])
            sys.exit(f"{file}: pytest ran no test")
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("tests", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--port", type=int, default=18431)
    parser.add_argument("--write", action="store_true")
    # Options may stand between the names.
    arguments = parser.parse_intermixed_args()

    expected = read(EXPECTED)
    files = arguments.names or sorted(path.name for path in (arguments.tests / "unit").glob("test_*.py"))
    changed = 0
    for file in files:
        found = run(arguments, file, arguments.port)
        passed = sum(outcome == "passed" for outcome, _ in found.values())
        print(f"{file}: {passed} of {len(found)} pass", flush=True)
        for name, (outcome, error) in found.items():
            before, reason = expected.get(name, ("not listed", ""))
            if before == ANY:
                continue
            if before != outcome:
                changed += 1
                print(f"  {name}: expected {before}, found {outcome}: {error}", flush=True)
            expected[name] = (outcome, reason if outcome == before else error)
        known = [name for name in expected if name.startswith(f"{file}::") and name not in found]
        for name in known:
            changed += 1
            print(f"  {name}: expected {expected.pop(name)[0]}, not found", flush=True)
        # A run takes long, so the outcomes of a file are kept even if a later one fails.
        if arguments.write:
            write(expected)

    if changed and not arguments.write:
        sys.exit(f"{changed} outcomes are not the expected ones")


main()
