#!/usr/bin/env python3
"""Makes engine/tests/data/measured.json from the lines that the tests of families print.

    cargo test -p warpwright-engine --test it -- --nocapture measured:: folder_families:: gpt_oss:: transformers:: \
        | python3 engine/tests/data/measured.py > measured.json
    mv measured.json engine/tests/data/measured.json

The tests fail as long as the file differs from their results. Errors are rounded up to two digits.
"""
import json, math, sys


def rounded_up(x):
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / unit - 1e-9) * unit:.1e}")


def main():
    models = {}
    for line in sys.stdin:
        # A line of the test runner may stand before it.
        _, found, rest = line.partition("measured [")
        if not found:
            continue
        model, key, *value = json.loads("[" + rest)
        entry = models.setdefault(model, {})
        if key == "errors":
            passes = entry.setdefault(key, {})
            name, error = value
            passes[name] = max(passes.get(name, 0), rounded_up(error))
        else:
            entry[key] = value[0]
    rows = (f"{json.dumps(model)}: {json.dumps(entry, sort_keys=True)}" for model, entry in sorted(models.items()))
    print("{\n" + ",\n".join(rows) + "\n}")


main()
