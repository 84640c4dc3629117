"""Makes tests of vLLM's server run without vLLM.

Modules that are not installed become mocks, so that test files can be imported. Tests that call vLLM's own functions fail,
because a mock is not a result.
"""

import importlib.abc
import importlib.machinery
import sys
from unittest.mock import MagicMock

ABSENT = ("vllm", "torch", "transformers", "huggingface_hub", "fastapi", "pybase64")


class Mocks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules in `ABSENT`, and all modules in them."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__ = []
        module.__spec__ = spec
        module.__name__ = spec.name
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Mocks())
