#!/usr/bin/env python3
"""Gets the tests of llama.cpp and their model, and checks that they are the right ones.

    fetch.py FOLDER

Writes `FOLDER/llama.cpp`, with `tools/server` and `models/templates`, and `FOLDER/models/stories260K.gguf` in the shape
that `widen.py` explains. What is there already is kept.

The tests are part of the source package of llama-cpp-python, which pip downloads. The model comes from Hugging Face, or
from the file that the variable `LLAMA_SERVER_MODEL` names.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
PACKAGE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"

MODEL_URL = "https://huggingface.co/ggml-org/models/resolve/main/tinyllamas/stories260K.gguf"
MODEL_SHA256 = "270cba1bd5109f42d03350f60406024560464db173c0e387d91f0426d3bd256d"

# The folders of llama.cpp that the tests read.
NEEDED = ("tools/server/", "models/templates/")


def check(name, data, expected):
    """Ends the program if data is not the one that the expected outcomes were measured with."""
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        sys.exit(f"{name} has the SHA-256 {found}: expected {expected}")


def fetch_tests(target):
    """Extracts the tests from the source package."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--no-binary", PACKAGE, "--dest", folder, f"{PACKAGE}=={VERSION}"]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            sys.exit(f"cannot download {PACKAGE} {VERSION}: {lines[-1] if lines else 'pip gave no reason'}")
        (archive,) = Path(folder).glob("*.tar.gz")
        check(archive.name, archive.read_bytes(), PACKAGE_SHA256)
        root = f"{PACKAGE.replace('-', '_')}-{VERSION}/vendor/llama.cpp/"
        # The folder appears only when it is complete, so that an interrupted run is repeated.
        partial = Path(folder) / "llama.cpp"
        with tarfile.open(archive) as files:
            for file in files:
                name = file.name.removeprefix(root)
                if file.isfile() and file.name.startswith(root) and name.startswith(NEEDED):
                    path = partial / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(files.extractfile(file).read())
        subprocess.run(["cp", "-r", str(partial), f"{target}.new"], check=True)
        os.rename(f"{target}.new", target)


def fetch_model(target):
    """Writes the model in the shape that the kernels for batches run."""
    given = os.environ.get("LLAMA_SERVER_MODEL")
    if given:
        data = Path(given).read_bytes()
    else:
        try:
            with urllib.request.urlopen(MODEL_URL, timeout=60) as response:
                data = response.read()
        except OSError as error:
            sys.exit(f"cannot download {MODEL_URL}: {error}; LLAMA_SERVER_MODEL can name the file")
    check("stories260K.gguf", data, MODEL_SHA256)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(suffix=".gguf") as source:
        source.write(data)
        source.flush()
        widened = target.with_suffix(".new")
        subprocess.run([sys.executable, HERE / "widen.py", source.name, widened], check=True)
    os.rename(widened, target)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "llama.cpp").exists():
        fetch_tests(folder / "llama.cpp")
    if not (folder / "models" / "stories260K.gguf").exists():
        fetch_model(folder / "models" / "stories260K.gguf")


main()
