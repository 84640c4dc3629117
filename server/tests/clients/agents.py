#!/usr/bin/env python3
"""Runs coding agents against a server with scripted replies, and the SDKs with tools.

    python3 agents.py PROGRAM MODEL [NODE_MODULES]

NODE_MODULES is a folder with the packages @anthropic-ai/claude-code, @openai/codex and opencode-ai. Each agent must run one
command through its tool and then end, and must show a reply that is nonsense. Agents and SDKs that are not installed are reported and left out. MODEL serves only as
the tokenizer.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from run import HERE, Server

# Longest time of an agent in seconds.
END = 180
# A request to which the reply is nonsense: marks of calls that no call follows, and rare characters.
NONSENSE = "Nonsense, please"
# The text that only the command of the script prints, and the reply after it.
PRINTED = "said-by-the-tool"
ANSWER = "The tool has answered."

WEATHER = "What's the weather like in San Francisco?"
SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
CITY = {"location": "San Francisco, CA"}


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"agents: {what}: {seen!r}")
    print(f"agents: {what}")


def openai_sdk(url):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
    with client.responses.stream(model="m", input=WEATHER, tools=tools) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    calls = [item for item in final.output if item.type == "function_call"]
    check("openai: a call is streamed", "response.function_call_arguments.delta" in kinds and kinds[-1] == "response.completed", kinds)
    check("openai: the call has its arguments", len(calls) == 1 and json.loads(calls[0].arguments) == CITY, final)

    history = [{"role": "user", "content": WEATHER}, *final.output,
               {"type": "function_call_output", "call_id": calls[0].call_id, "output": PRINTED}]
    answered = client.responses.create(model="m", input=history, tools=tools)
    check("openai: the answer of the tool is read", answered.output_text == ANSWER, answered)
    check("openai: reasoning is a summary", answered.output[0].summary[0].text == "It worked.", answered)
    check("openai: the conversation is cached", answered.usage.input_tokens_details.cached_tokens > 0, answered.usage)
    for refused in ({"previous_response_id": "resp_1"}, {"background": True}):
        try:
            client.responses.create(model="m", input="hi", **refused)
        except openai.BadRequestError as error:
            check(f"openai: {error.param} is refused by name", error.param in refused, error)
        else:
            sys.exit(f"agents: {refused} was accepted")


def anthropic_sdk(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    tools = [{"name": "get_weather", "input_schema": SCHEMA}]
    ask = [{"role": "user", "content": WEATHER}]
    with client.messages.stream(model="m", max_tokens=500, messages=ask, tools=tools) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    check("anthropic: a call is streamed", {"input_json", "message_stop"} <= kinds and final.stop_reason == "tool_use", kinds)
    check("anthropic: the call has its arguments", len(calls) == 1 and calls[0].input == CITY, final)

    history = [*ask, {"role": "assistant", "content": final.content},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": calls[0].id, "content": PRINTED}]}]
    with client.messages.stream(model="m", max_tokens=500, messages=history, tools=tools) as stream:
        answered = stream.get_final_message()
    check("anthropic: the answer of the tool is read", [block.type for block in answered.content] == ["thinking", "text"], answered)
    check("anthropic: its text", answered.content[1].text == ANSWER, answered)
    check("anthropic: the conversation is cached", answered.usage.cache_read_input_tokens > 0, answered.usage)
    beta = client.beta.messages.create(model="m", max_tokens=5, messages=ask, betas=["context-management-2025-06-27"])
    check("anthropic: the beta endpoint", beta.type == "message", beta)
    try:
        client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])
    except anthropic.BadRequestError as error:
        check("anthropic: an image is refused by name", "messages[0].content[0]" in error.message, error)
    else:
        sys.exit("agents: an image was accepted")


def settings(home, url):
    """Writes the settings of Codex and opencode."""
    codex = home / ".codex"
    codex.mkdir()
    (codex / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "local"\n[model_providers.local]\nname = "local"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n')
    models = {"scripted": {"name": "scripted", "tool_call": True, "limit": {"context": 131072, "output": 4096}}}
    local = {"npm": "@ai-sdk/openai-compatible", "name": "local", "options": {"baseURL": url + "/v1", "apiKey": "none"},
             "models": models}
    (home / "opencode.json").write_text(json.dumps({
        "model": "local/scripted", "small_model": "local/scripted", "autoupdate": False, "share": "disabled",
        "provider": {"local": local}}))


def agent(name, program, arguments, home, **variables):
    """Runs an agent twice: once with a task for a tool, and once with nonsense as the reply."""
    if not program.exists():
        print(f"not run: {name}, because {program} does not exist")
        return
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", **variables}
    for task in (f"Task for {name}", NONSENSE):
        done = subprocess.run([program, *arguments, task], cwd=home, env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=END)
        print(f"== {name}: {task}\n{done.stdout}")
        if task == NONSENSE:
            check(f"{name}: nonsense is shown", done.returncode == 0 and "\u00df\u00f8" in done.stdout, done.returncode)
        else:
            check(f"{name}: a tool runs", PRINTED in done.stdout, done.returncode)
            check(f"{name}: the agent ends", done.returncode == 0 and ANSWER in done.stdout, done.returncode)


def main(program, model, modules=None):
    server = Server(program, model, "--scripted", str(HERE / "agents.jsonl"), "--chat-template", str(HERE / "agents.jinja"),
                    "--ctx", "131072")
    for test in (openai_sdk, anthropic_sdk):
        try:
            test(server.url)
        except ModuleNotFoundError as error:
            print(f"not run: {test.__name__}, because {error}")

    if modules:
        programs = pathlib.Path(modules) / ".bin"
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            settings(home, server.url)
            agent("Claude Code", programs / "claude", ["--model", "scripted", "--allowedTools=Bash", "--output-format",
                  "stream-json", "--verbose", "-p"], home, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_AUTH_TOKEN="none",
                  DISABLE_AUTOUPDATER="1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
            agent("Codex", programs / "codex", ["exec", "--skip-git-repo-check"], home)
            agent("opencode", programs / "opencode", ["run"], home)
    server.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
