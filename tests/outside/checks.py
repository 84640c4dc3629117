"""A list of checks, each a function, and a program that runs them."""

import sys

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def main():
    """Prints one line a check; ends with 1 if one failed."""
    failed = []
    for run in CHECKS:
        try:
            run()
            print(f"passed  {run.__name__}", flush=True)
        except Exception as error:
            failed.append(run.__name__)
            print(f"FAILED  {run.__name__}: {str(error)[-800:]}", flush=True)
    print(f"{len(CHECKS) - len(failed)} of {len(CHECKS)} checks passed")
    sys.exit(1 if failed else 0)
