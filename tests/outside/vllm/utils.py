"""The part of vLLM's `tests/utils.py` that tests of the server use. The server at `URL` is already running."""

import os
from unittest.mock import MagicMock

import anthropic
import openai

SECONDS = 120


class RemoteOpenAIServer:
    """A client of the running server. The arguments of the server that a test wants are ignored."""

    DUMMY_API_KEY = "none"

    def __init__(self, model, arguments, **_options):
        self.url_root = os.environ["URL"].rstrip("/")

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def url_for(self, *parts):
        return "/".join([self.url_root, *(part.strip("/") for part in parts)])

    def options(self, base_url, options):
        return {"base_url": base_url, "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": SECONDS, **options}

    def get_client(self, **options):
        return openai.OpenAI(**self.options(self.url_for("v1"), options))

    def get_async_client(self, **options):
        return openai.AsyncOpenAI(**self.options(self.url_for("v1"), options))

    def get_client_anthropic(self, **options):
        return anthropic.Anthropic(**self.options(self.url_root, options))

    def get_async_client_anthropic(self, **options):
        return anthropic.AsyncAnthropic(**self.options(self.url_root, options))


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)
