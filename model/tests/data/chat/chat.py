#!/usr/bin/env python3
"""Renders the templates of this folder with transformers, and prints what it renders as JSON.

    pip install transformers==5.23.0 jinja2==3.1.6
    python3 model/tests/data/chat/chat.py > model/tests/data/chat/rendered.json

Each case has a template, variables, and the text or the error; "replies" are what is in {% generation %}.
"""
import datetime, json, pathlib

from transformers.utils import chat_template_utils as utils

FOLDER = pathlib.Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 2, 3)


utils.datetime = Day


def say(role, content, **more):
    return {"role": role, "content": content, **more}


TALK = [say("user", "What is a crate?"), say("assistant", "A unit of compilation.\n"), say("user", " And übung – 你好? ")]
SYSTEM = [say("system", "  You are brief. ")] + TALK
WHOLE = SYSTEM + [say("assistant", "  <think>\nwell\n</think>\n\nA word.")]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says how the weather is \"now\" in <place> – é",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1.0}}, "required": ["place"]},
    },
}
CALL = [
    say("user", "Is it warm in Málaga?"),
    say("assistant", "", tool_calls=[{"type": "function", "function": {"name": "weather", "arguments": {"place": "Málaga", "days": 2, "exact": 1.5e-7, "far": None}}}]),
    say("tool", "{\"celsius\": 21}"),
]
TWO = CALL[:2] + [say("tool", "one"), say("tool", "two"), say("assistant", "Yes.")]

CASES = [
    (name, messages, then, more)
    for name in ["chatml", "headers", "thinking", "turns", "marked"]
    for messages, then, more in [(TALK, True, {}), (SYSTEM, True, {}), (WHOLE, False, {})]
]
CASES += [
    ("headers", CALL, True, {"tools": [TOOL, TOOL]}),
    ("headers", TALK, True, {"date_string": "24 Dec 2025"}),
    ("headers", CALL[:1] + [say("assistant", "", tool_calls=[{}, {}])], True, {}),
    ("thinking", CALL, True, {"tools": [TOOL]}),
    ("thinking", TWO, False, {"tools": [TOOL]}),
    ("thinking", TALK, True, {"enable_thinking": False}),
    ("thinking", TALK, True, {"enable_thinking": True}),
    ("turns", TALK[:1] * 2, False, {}),
    ("turns", TALK[:1] + [say("tool", "x")], False, {}),
    ("marked", WHOLE[1:3] + WHOLE[1:3], False, {}),
    ("python", [say("user", " a banana "), say("skip", "x"), say("tool", "cd ef", name="f", rate=0.25), say("stop", "y"), say("user", "z")], False, {}),
    ("python", [], False, {}),
]


def case(name, messages, then, more):
    template = (FOLDER / f"{name}.jinja").read_text()
    says = {"template": name, "messages": messages, "then": then, **more}
    tools = more.get("tools")
    rest = {k: v for k, v in more.items() if k != "tools"}
    try:
        rendered, spans = utils.render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=then,
            return_assistant_tokens_mask=name == "marked", **SPECIAL, **rest,
        )
    except Exception as error:
        return {**says, "error": str(error)}
    text = rendered[0]
    replies = [text[start:end] for start, end in spans[0]] if spans else []
    return {**says, "text": text, "replies": replies}


print(json.dumps([case(*of) for of in CASES], ensure_ascii=False, indent=1))
