#!/usr/bin/env python3
"""Runs tests of vLLM's server, unchanged, against a running server. The outcomes are printed, and none is required.

    run.py URL TESTS [FILE ..]

TESTS is the folder `tests` of vLLM. Without files, those of `FILES` run. Needs pytest, pytest-asyncio, pytest-timeout,
openai, anthropic, requests, regex and jsonschema.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The files that start a server with a text model and do not need several GPUs or vLLM's own endpoints.
FILES = [
    "openai/completion/test_completion.py",
    "openai/chat_completion/test_chat.py",
    "openai/chat_completion/test_chat_echo.py",
    "openai/chat_completion/test_chat_completion.py",
    "openai/chat_completion/test_chat_logit_bias_validation.py",
    "openai/chat_completion/test_completion_with_function_calling.py",
    "openai/models/test_models.py",
    "openai/test_chunked_prompt.py",
    "openai/responses/test_simple.py",
    "anthropic/test_messages.py",
    "serve/tokenize/test_tokenization.py",
]


def main(url, tests, *files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(Path(tests) / "entrypoints", root / "tests/entrypoints")
        (root / "tests/__init__.py").touch()
        shutil.copy(HERE / "utils.py", root / "tests")
        shutil.copy(HERE / "conftest.py", root)
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", "-p", "no:cacheprovider"]
        command += ["-o", "asyncio_mode=auto", "--timeout", "120"]
        command += [f"tests/entrypoints/{file}" for file in files or FILES]
        done = subprocess.run(command, cwd=root, env={**os.environ, "URL": url}, check=False)
    # pytest ends with 1 if a test failed, and with more if it could not run them.
    if done.returncode > 1:
        sys.exit(f"pytest ended with {done.returncode}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
