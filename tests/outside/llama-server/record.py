"""A plugin of pytest that writes the outcome of each test to the file in `OUTCOMES`.

The tests stay as they are. Two things are different from a run without the plugin:

- Models are not loaded before the first test of a file, because that would download them.
- A test that takes longer than `TEST_SECONDS` fails.
"""

import os
import signal
from pathlib import Path

import pytest

SECONDS = int(os.environ.get("TEST_SECONDS", "120"))
OUTCOMES = os.environ["OUTCOMES"]
# The file in which the shim names the option or the model that it does not have.
SHIM_FAILURE = Path(os.environ["SHIM_FAILURE"])


class TestTimeout(Exception):
    """A test took too long."""


def too_long(_signal, _frame):
    raise TestTimeout(f"longer than {SECONDS} s")


def pytest_collection_finish(session):
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    SHIM_FAILURE.unlink(missing_ok=True)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)


# The worst outcome of the phases of a test counts.
ORDER = ["passed", "skipped", "failed"]
outcomes = {}


def detail(report):
    """Returns the reason in one line."""
    if report.outcome == "skipped":
        return str(report.longrepr[2])
    if SHIM_FAILURE.exists():
        return SHIM_FAILURE.read_text(encoding="utf-8")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip() if lines else ""


def pytest_runtest_logreport(report):
    name = report.nodeid.split("unit/")[-1].replace("\t", " ").replace("\n", "\\n")
    before, _ = outcomes.get(name, ("passed", ""))
    if ORDER.index(report.outcome) > ORDER.index(before):
        outcomes[name] = (report.outcome, detail(report))
    else:
        outcomes.setdefault(name, ("passed", ""))


def pytest_sessionfinish(session):
    with open(OUTCOMES, "w", encoding="utf-8") as file:
        for name, (outcome, reason) in outcomes.items():
            file.write(f"{name}\t{outcome}\t{reason}\n")
