#!/usr/bin/env python3
"""Renders the chat templates of some folders with transformers, and prints digests of the texts as JSON.

    pip install transformers==5.23.0 jinja2==3.1.6
    python3 model/tests/data/templates/render.py model/tests/data/templates > model/tests/data/templates/rendered.json

Each template meets each conversation. What it renders is there as the first 16 digits of its SHA-256, what it raises as
{"raised": sentence}, and any other failure as {"failed": name of the exception}. With --text, whole texts.
"""
import datetime, hashlib, json, pathlib, sys

import jinja2, transformers
from transformers.utils import chat_template_utils as utils

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 2, 3)


utils.datetime = Day


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(arguments):
    return say("assistant", "", tool_calls=[{"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": arguments}}])


TALK = [say("user", "What is a crate?"), say("assistant", "A unit of compilation.\n"), say("user", " And übung – 你好? \"it's\" <b>\\n")]
SYSTEM = [say("system", "  You are brief. ")] + TALK
THOUGHT = [say("user", "Why?"), say("assistant", "<think>\nWell, so.\n</think>\n\nBecause."), say("user", "And then?")]
REASONED = [say("user", "Why?"), say("assistant", "Because.", reasoning_content="Well, so."), say("user", "And then?")]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says how the weather is \"now\" in <place> – é",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "Where"},
                    "days": {"type": "integer", "default": 1, "enum": [1, 2]},
                    "exact": {"type": ["number", "null"]},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "time", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]
ASKED = [say("user", "Is it warm in Málaga?")]
CALLED = ASKED + [call({"place": "Málaga", "days": 2, "exact": 1.5e-7, "far": None, "near": True}), say("tool", "{\"celsius\": 21}", name="weather", tool_call_id="call00001")]
PARTS = [say("user", [{"type": "text", "text": "What is "}, {"type": "text", "text": "a crate?"}])]

# Name, messages, whether a reply follows, and more variables.
CONVERSATIONS = [
    ("question", TALK[:1], True, {}),
    ("talk", TALK, True, {}),
    ("system", SYSTEM, True, {}),
    ("answered", SYSTEM + [say("assistant", "  A word. ")], False, {}),
    ("two questions", TALK[:1] * 2, True, {}),
    ("only system", SYSTEM[:1], True, {}),
    ("without thinking", TALK, True, {"enable_thinking": False}),
    ("with thinking", SYSTEM, True, {"enable_thinking": True}),
    ("thought", THOUGHT, True, {}),
    ("thought, answered", THOUGHT[:2], False, {}),
    ("reasoned", REASONED, True, {}),
    ("tools", SYSTEM, True, {"tools": TOOLS}),
    ("tool called", CALLED, True, {"tools": TOOLS}),
    ("tool called, answered", CALLED + [say("assistant", "Yes.")], False, {"tools": TOOLS}),
    ("tool called with text", ASKED + [call("{\"place\": \"Málaga\"}")] + CALLED[2:], True, {"tools": TOOLS}),
    ("parts", PARTS, True, {}),
]


def rendered(template, messages, then, more):
    tools, rest = more.get("tools"), {k: v for k, v in more.items() if k != "tools"}
    texts, _ = utils.render_jinja_template(
        conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=then, **SPECIAL, **rest
    )
    return texts[0]


def outcome(template, conversation, whole):
    try:
        text = rendered(template, *conversation[1:])
        return text if whole else hashlib.sha256(text.encode()).hexdigest()[:16]
    except Exception as error:
        # `raise_exception` raises this, and Jinja only its subclasses.
        return {"raised": str(error)} if type(error) is jinja2.TemplateError else {"failed": type(error).__name__}


def main(arguments):
    whole = "--text" in arguments
    files = [file for folder in arguments if folder != "--text" for file in sorted(pathlib.Path(folder).glob("*.jinja"))]
    templates = {file.stem: file.read_text() for file in files}
    names = ["messages", "then", "more"]
    print(json.dumps({
        "versions": {"transformers": transformers.__version__, "jinja2": jinja2.__version__},
        "conversations": {name: dict(zip(names, rest)) for name, *rest in CONVERSATIONS},
        "templates": {
            name: {of[0]: outcome(text, of, whole) for of in CONVERSATIONS} for name, text in templates.items()
        },
    }, ensure_ascii=False, indent=1))


main(sys.argv[1:])
