#!/usr/bin/env python3
"""Calls the server through the SDKs of OpenAI, Anthropic and LangChain.

    python3 sdk.py URL

The texts may be nonsense, because a small model generates them. Their form, their order and their counts may not.
"""
import sys

import anthropic
import openai
from langchain_openai import ChatOpenAI

ASK = [{"role": "user", "content": "fn main"}]


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"sdk: {what}: {seen!r}")
    print(f"sdk: {what}")


def chat(client):
    plain = client.chat.completions.create(model="m", messages=ASK, max_tokens=8, temperature=0, seed=1)
    text = plain.choices[0].message.content
    check("openai: a reply has its tokens", 0 < plain.usage.completion_tokens <= 8, plain.usage)

    stream = client.chat.completions.create(model="m", messages=ASK, max_tokens=8, temperature=0, seed=1, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check("openai: a stream has the same text", streamed == text, (streamed, text))
    check("openai: its last chunk has the usage", chunks[-1].usage.completion_tokens == plain.usage.completion_tokens)
    check("openai: all chunks have one id", len({chunk.id for chunk in chunks}) == 1)

    logprobs = client.chat.completions.create(model="m", messages=ASK, max_tokens=3, logprobs=True, top_logprobs=2)
    content = logprobs.choices[0].logprobs.content
    check("openai: log-probabilities", content and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in content), content)

    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    parsed = client.chat.completions.create(model="m", messages=ASK, max_tokens=40, response_format=form)
    check("openai: a schema is followed", '"ok"' in parsed.choices[0].message.content, parsed.choices[0].message.content)


def completions(client):
    echoed = client.completions.create(model="m", prompt="fn main", max_tokens=2, echo=True, logprobs=1)
    choice = echoed.choices[0]
    check("openai: echo begins with the prompt", choice.text.startswith("fn main"), choice.text)
    tokens = choice.logprobs
    check("openai: echo has the prompt's log-probabilities", len(tokens.tokens) == len(tokens.token_logprobs) > 2, tokens)
    many = client.completions.create(model="m", prompt=["a", "b"], max_tokens=2, n=2)
    check("openai: prompts times n choices", [c.index for c in many.choices] == [0, 1, 2, 3], many.choices)


def errors(client):
    try:
        client.chat.completions.create(model="m", messages=ASK, temperature=-1)
    except openai.BadRequestError as error:
        check("openai: a wrong field is named", "temperature" in error.message, error.message)
    else:
        sys.exit("sdk: a negative temperature was accepted")
    try:
        client.completions.create(model="m", prompt="word " * 2000, max_tokens=1)
    except openai.BadRequestError as error:
        body = error.body or {}
        check("openai: a prompt that is too long", body.get("type") == "exceed_context_size_error" and body.get("n_ctx"), body)
    else:
        sys.exit("sdk: a prompt beyond the context was accepted")


def responses(client):
    plain = client.responses.create(model="m", input="fn main", max_output_tokens=16, temperature=0)
    check("openai: responses have text", isinstance(plain.output_text, str) and plain.usage.output_tokens > 0, plain)
    kinds = [event.type for event in client.responses.create(model="m", input="fn main", max_output_tokens=16, temperature=0, stream=True)]
    check("openai: events of a response are in order", kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds)


def embeddings(client):
    vectors = client.embeddings.create(model="m", input=["fn main", "struct"]).data
    check("openai: embeddings", len(vectors) == 2 and len(vectors[0].embedding) == len(vectors[1].embedding) > 0)


def messages(client):
    plain = client.messages.create(model="m", max_tokens=8, messages=ASK)
    check("anthropic: a message", plain.content[0].type == "text" and plain.usage.output_tokens > 0, plain)
    with client.messages.stream(model="m", max_tokens=8, messages=ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("anthropic: a stream", text == "".join(block.text for block in final.content), (text, final))
    counted = client.messages.count_tokens(model="m", messages=ASK)
    check("anthropic: counted tokens are the prompt's", counted.input_tokens == plain.usage.input_tokens, (counted, plain.usage))


def langchain(url):
    model = ChatOpenAI(base_url=url + "/v1", api_key="none", model="m", max_tokens=8)
    check("langchain: invoke", isinstance(model.invoke("fn main").content, str))
    pieces = list(model.stream("fn main"))
    check("langchain: stream", len(pieces) > 1, pieces)


def main(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
    check("openai: the list of models", len(client.models.list().data) == 1)
    chat(client)
    completions(client)
    errors(client)
    responses(client)
    embeddings(client)
    messages(anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120))
    langchain(url)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1].rstrip("/"))
