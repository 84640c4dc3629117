#!/usr/bin/env python3
"""Sends the requests that schemathesis makes from `/openapi.json`, and checks the responses.

    python3 openapi.py PROGRAM MODEL

A response fails if its status is 500 or more, or if its status, its content type or its body is not what the
description says. So does a status of success for a request that the description forbids. The requests are the same in
every run. The replies are scripted, because thousands of them are needed.

Some valid requests are refused, because a description cannot say that two fields exclude each other. So that this does
not hide everything, each operation must also succeed at least once. Needs the packages in openapi.txt.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from run import Server

HERE = pathlib.Path(__file__).parent
# Longest time of the whole run, in seconds.
END = 900
# Requests per operation and phase.
EXAMPLES = 30
# Operations that cannot succeed here, and the status that they have instead.
REFUSED = {
    "POST /infill": 501,
    "POST /lora-adapters": 501,
    "POST /props": 501,
    "POST /rerank": 501,
    "POST /slots/{id}": 501,
    # The server has no folder of adapters.
    "POST /v1/load_lora_adapter": 403,
    "POST /v1/unload_lora_adapter": 403,
}
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]
# See the explanation at the beginning of openapi.py.
positive_data_acceptance.enabled = false
"""


def statuses(report):
    """Returns the number of responses of each status, for each operation."""
    found = collections.defaultdict(collections.Counter)
    for line in report.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line).get("ScenarioFinished")
        if not scenario:
            continue
        recorder = scenario["recorder"]
        for interaction in recorder["interactions"].values():
            response = interaction.get("response")
            found[recorder["label"]][response["status_code"] if response else "no response"] += 1
    return found


def main(program, model):
    server = Server(program, model, "--scripted", str(HERE / "page.jsonl"), "--chat-template", str(HERE / "page.jinja"),
                    "--ctx", "512")
    with tempfile.TemporaryDirectory() as folder:
        config, report = pathlib.Path(folder) / "schemathesis.toml", pathlib.Path(folder) / "report.ndjson"
        config.write_text(CONFIG, encoding="utf-8")
        command = [str(pathlib.Path(sys.executable).parent / "schemathesis"), "--no-color", "--config-file", str(config)]
        command += ["run", server.url + "/openapi.json", "--phases", "examples,coverage,fuzzing"]
        command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--no-shrink", "--continue-on-failure"]
        command += ["--request-timeout", "60", "--report", "ndjson", "--report-ndjson-path", str(report)]
        done = subprocess.run(command, cwd=folder, timeout=END)
        server.stop()
        if done.returncode:
            sys.exit(f"schemathesis ended with {done.returncode}")
        found = statuses(report)

    paths = 0
    for operation, counts in sorted(found.items()):
        wanted = REFUSED.get(operation, 200)
        print(f"openapi: {operation}: {dict(counts)}")
        if not counts[wanted]:
            sys.exit(f"openapi: no response of {operation} has the status {wanted}")
        paths += 1
    if paths < len(REFUSED) + 10:
        sys.exit(f"openapi: only {paths} operations were tried")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
