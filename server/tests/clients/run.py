#!/usr/bin/env python3
"""Runs programs of others against the server: SDKs of PyPI and npm, and the pages in Chromium.

    python3 run.py PROGRAM MODEL

Each script gets a fresh server on a free port: page.py one with scripted replies, the SDKs one that computes them on the
emulator. Prints the scripts that could not run. Needs the packages in requirements.txt.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
import time

HERE = pathlib.Path(__file__).parent
# Packages of npm, which sdk.mjs calls.
NPM = ["openai@6.49.0", "ai@6.0.326", "@ai-sdk/openai-compatible@2.0.92", "zod@4"]
# Longest time until a server is ready, and until a script ends, in seconds.
READY = 120
END = 300


class Server:
    """A running `warpwright serve`."""

    def __init__(self, program, model, *options):
        command = [program, "serve", model, "--port", "0", "--device", "emu", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.url = None
        found = threading.Event()

        def read():
            for line in self.process.stderr:
                self.lines.append(line)
                address = re.search(r"http://[\w.:\[\]]+", line)
                if address and not self.url:
                    self.url = address.group(0)
                    found.set()
            found.set()

        threading.Thread(target=read, daemon=True).start()
        found.wait(READY)
        if not self.url:
            self.fail("the server printed no address")
        self.wait_until_ready()

    def wait_until_ready(self):
        end = time.monotonic() + READY
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5)
                return
            except OSError:
                time.sleep(0.1)
        self.fail("the server did not become ready")

    def fail(self, why):
        self.process.kill()
        sys.exit(f"{why}:\n{''.join(self.lines)}")

    def stop(self):
        """Ends the server as a user does, and checks that it ends well."""
        self.process.terminate()
        code = self.process.wait(timeout=60)
        if code != 0:
            sys.exit(f"the server ended with {code}:\n{''.join(self.lines)}")


def run(script, server, *arguments):
    print(f"== {script}", flush=True)
    done = subprocess.run([sys.executable, HERE / script, server.url, *arguments], timeout=END)
    server.stop()
    if done.returncode:
        sys.exit(f"{script} failed; the server's log:\n{''.join(server.lines[-30:])}")


def run_npm(start):
    """Runs sdk.mjs in a folder with its packages, because node looks for packages next to the script."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        print("not run: sdk.mjs, because there is no npm (apt-get install npm)")
        return
    with tempfile.TemporaryDirectory() as folder:
        installed = subprocess.run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *NPM], timeout=END)
        if installed.returncode:
            print("not run: sdk.mjs, because npm could not install", *NPM)
            return
        shutil.copy(HERE / "sdk.mjs", folder)
        server = start()
        print("== sdk.mjs", flush=True)
        done = subprocess.run([node, "sdk.mjs", server.url], cwd=folder, timeout=END)
        server.stop()
        if done.returncode:
            sys.exit(f"sdk.mjs failed; the server's log:\n{''.join(server.lines[-30:])}")


def main(program, model):
    def computing():
        return Server(program, model, "--chat-template", str(HERE / "page.jinja"), "--ctx", "512")

    run("sdk.py", computing())
    run_npm(computing)
    run("frameworks.py", Server(program, model, "--scripted", str(HERE / "frameworks.jsonl"),
                                "--chat-template", str(HERE / "agents.jinja"), "--ctx", "8192"))
    # It starts its own server, because its model needs a larger context and its own replies.
    print("== agents.py", flush=True)
    subprocess.run([sys.executable, HERE / "agents.py", program, model], timeout=END, check=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium:
        scripted = Server(program, model, "--scripted", str(HERE / "page.jsonl"), "--scripted-delay", "5",
                          "--chat-template", str(HERE / "page.jinja"))
        run("page.py", scripted, chromium)
    else:
        print("not run: page.py, because there is no Chromium (apt-get install chromium)")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
