#!/usr/bin/env python3
"""Uses the helpers of SDKs that programs build on: tools, structured output and embeddings, also without blocking.

    python3 frameworks.py URL

The server needs the scripted replies of frameworks.jsonl and the template agents.jinja.
"""
import asyncio
import json
import sys

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

WEATHER = "What's the weather like in San Francisco?"
SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"], "additionalProperties": False}
CITY = {"location": "San Francisco, CA"}
ANSWER = "The tool has answered."
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA, "strict": True}}


class City(BaseModel):
    """A city and the number of people in it."""

    name: str
    people: int


OSLO = City(name="Oslo", people=717710)


@tool
def get_weather(location: str) -> str:
    """Returns the weather."""
    return f"sunny-by-the-tool in {location}"


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"frameworks: {what}: {seen!r}")
    print(f"frameworks: {what}")


def user(text):
    return [{"role": "user", "content": text}]


def openai_chat(client):
    plain = client.chat.completions.create(model="m", messages=user(WEATHER), tools=[TOOL], tool_choice="auto")
    message = plain.choices[0].message
    check("openai: a call ends a reply", plain.choices[0].finish_reason == "tool_calls", plain)
    check("openai: a call has its arguments", json.loads(message.tool_calls[0].function.arguments) == CITY, message)

    with client.chat.completions.stream(model="m", messages=user(WEATHER), tools=[TOOL]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0].message
    check("openai: a streamed call", "tool_calls.function.arguments.done" in kinds, kinds)
    check("openai: a streamed call is parsed", final.tool_calls[0].function.parsed_arguments == CITY, final)

    two = client.chat.completions.create(model="m", messages=user("Weather in two cities"), tools=[TOOL]).choices[0].message
    cities = [json.loads(call.function.arguments)["location"] for call in two.tool_calls]
    check("openai: two calls", cities == ["Oslo", "Rome"] and len({call.id for call in two.tool_calls}) == 2, two)

    history = [*user(WEATHER), message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny-by-the-tool"}]
    answered = client.chat.completions.create(model="m", messages=history, tools=[TOOL]).choices[0]
    check("openai: the answer of a tool is read", answered.message.content == ANSWER and answered.finish_reason == "stop", answered)

    parsed = client.chat.completions.parse(model="m", messages=user("Describe Oslo"), response_format=City)
    check("openai: a parsed reply", parsed.choices[0].message.parsed == OSLO, parsed)
    with client.chat.completions.stream(model="m", messages=user("Describe Oslo"), response_format=City) as stream:
        check("openai: a parsed stream", stream.get_final_completion().choices[0].message.parsed == OSLO)
    response = client.responses.parse(model="m", input="Describe Oslo", text_format=City)
    check("openai: a parsed response", response.output_parsed == OSLO, response)


async def openai_async(url):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        replies = await asyncio.gather(*(client.chat.completions.create(model="m", messages=user("hi")) for _ in range(6)))
        check("openai: requests at the same time", [reply.choices[0].message.content for reply in replies] == ["Hello."] * 6, replies)
        stream = await client.chat.completions.create(model="m", messages=user("hi"), stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        check("openai: a stream without blocking", text == "Hello.", text)
        vectors = await client.embeddings.create(model="m", input=["a", "b"], encoding_format="base64")
        check("openai: vectors as base64", len(vectors.data) == 2 and vectors.usage.total_tokens > 0, vectors)


async def anthropic_async(url):
    client = anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
    tools = [{"name": "get_weather", "description": "Returns the weather.", "input_schema": SCHEMA}]
    async with client.messages.stream(model="m", max_tokens=99, messages=user(WEATHER), tools=tools) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    check("anthropic: a streamed call", final.stop_reason == "tool_use" and calls[0].input == CITY, (kinds, final))
    two = await client.messages.create(model="m", max_tokens=99, messages=user("Weather in two cities"), tools=tools)
    check("anthropic: two calls", [b.input["location"] for b in two.content if b.type == "tool_use"] == ["Oslo", "Rome"], two)
    parsed = await client.messages.parse(model="m", max_tokens=99, messages=user("Describe Oslo"), output_format=City)
    check("anthropic: a parsed reply", parsed.parsed_output == OSLO, parsed)


def chain(name, model):
    """Checks a chat model of LangChain, whatever protocol it uses."""
    caller = model.bind_tools([get_weather])
    called = caller.invoke(WEATHER)
    check(f"{name}: a call", [call["args"] for call in called.tool_calls] == [CITY], called)
    check(f"{name}: the usage", called.usage_metadata["output_tokens"] > 0, called)
    merged = None
    for chunk in caller.stream(WEATHER):
        merged = chunk if merged is None else merged + chunk
    check(f"{name}: a streamed call", [call["args"] for call in merged.tool_calls] == [CITY], merged)

    answers = [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in called.tool_calls]
    final = caller.invoke([HumanMessage(WEATHER), called, *answers])
    check(f"{name}: the answer of the tool", ANSWER in final.text, final)

    structured = model.with_structured_output(City, method="json_schema").invoke("Describe Oslo")
    check(f"{name}: structured output by a schema", structured == OSLO, structured)
    structured = model.with_structured_output(City, method="function_calling").invoke("Extract the city Oslo")
    check(f"{name}: structured output by a call", structured == OSLO, structured)

    batch = model.batch(["hi"] * 4)
    check(f"{name}: a batch", [reply.text for reply in batch] == ["Hello."] * 4, batch)


async def chains_async(models):
    # One event loop for all models, because LangChain shares connections between them.
    for name, model in models.items():
        reply = await model.ainvoke("hi")
        check(f"{name}: without blocking", reply.text == "Hello.", reply)
        text = "".join([chunk.text async for chunk in model.astream("hi")])
        check(f"{name}: a stream without blocking", text == "Hello.", text)


def vectors(url):
    # Without this option, LangChain sends the token ids of OpenAI's own models.
    model = OpenAIEmbeddings(base_url=url + "/v1", api_key="none", model="m", check_embedding_ctx_length=False)
    documents = model.embed_documents(["fn main", "struct"])
    query = model.embed_query("fn main")
    check("langchain: embeddings", len(documents) == 2 and len(query) == len(documents[0]) > 0)
    near = max(abs(a - b) for a, b in zip(query, documents[0]))
    check("langchain: the same text has the same vector", near < 1e-3, near)


def main(url):
    openai_chat(openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0))
    asyncio.run(openai_async(url))
    asyncio.run(anthropic_async(url))
    options = {"base_url": url + "/v1", "api_key": "none", "model": "m", "max_retries": 0}
    models = {
        "langchain-openai": ChatOpenAI(**options),
        "langchain-openai, responses": ChatOpenAI(**options, use_responses_api=True),
        "langchain-anthropic": ChatAnthropic(base_url=url, api_key="none", model="m", max_tokens=99, max_retries=0),
    }
    for name, model in models.items():
        chain(name, model)
    asyncio.run(chains_async(models))
    vectors(url)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1].rstrip("/"))
