// Calls the server through the npm packages openai, ai and @ai-sdk/openai-compatible.
//
//     npm install openai ai @ai-sdk/openai-compatible zod
//     node sdk.mjs URL
//
// The texts may be nonsense, because a small model generates them. Their form, their order and their counts may not.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, streamText } from "ai";
import OpenAI from "openai";

const ASK = [{ role: "user", content: "fn main" }];
const SAME = { model: "m", messages: ASK, max_tokens: 8, temperature: 0, seed: 1 };

function check(what, holds, seen = "") {
  if (!holds) {
    console.error(`sdk: ${what}:`, JSON.stringify(seen));
    process.exit(1);
  }
  console.log(`sdk: ${what}`);
}

async function chat(client) {
  const plain = await client.chat.completions.create(SAME);
  const text = plain.choices[0].message.content;
  const count = plain.usage.completion_tokens;
  check("openai (npm): a reply has its tokens", count > 0 && count <= 8, plain.usage);

  const stream = await client.chat.completions.create({ ...SAME, stream: true, stream_options: { include_usage: true } });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const streamed = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  check("openai (npm): a stream has the same text", streamed === text, [streamed, text]);
  check("openai (npm): its last chunk has the usage", chunks.at(-1).usage.completion_tokens === count, chunks.at(-1));

  // The helper of the package checks the order of deltas and puts them together.
  const helper = client.chat.completions.stream({ ...SAME, stream_options: { include_usage: true } });
  const final = await helper.finalChatCompletion();
  check("openai (npm): the helper for streams", final.choices[0].message.content === text, final);
}

async function completions(client) {
  const echoed = await client.completions.create({ model: "m", prompt: "fn main", max_tokens: 2, echo: true, logprobs: 1 });
  check("openai (npm): echo begins with the prompt", echoed.choices[0].text.startsWith("fn main"), echoed);
  const stream = await client.completions.create({ model: "m", prompt: ["a", "b"], max_tokens: 2, stream: true });
  const seen = new Set();
  for await (const chunk of stream) chunk.choices.forEach((choice) => seen.add(choice.index));
  check("openai (npm): a stream of two prompts", seen.size === 2, [...seen]);
}

async function errors(client) {
  for (const [what, fields, test] of [
    ["a wrong field is named", { temperature: -1 }, (error) => error.param === "temperature"],
    ["a long prompt", { messages: [{ role: "user", content: "word ".repeat(2000) }] }, (error) => error.code === "context_length_exceeded"],
  ]) {
    const error = await client.chat.completions.create({ ...SAME, ...fields }).then(() => null, (error) => error);
    check(`openai (npm): ${what}`, error?.status === 400 && test(error), error);
  }
}

async function vercel(url) {
  const provider = createOpenAICompatible({ name: "warpwright", baseURL: `${url}/v1`, includeUsage: true });
  const options = { model: provider("m"), prompt: "fn main", maxOutputTokens: 8, temperature: 0, seed: 1, maxRetries: 0 };
  const plain = await generateText(options);
  check("ai: a text has its tokens", plain.usage.outputTokens > 0, plain.usage);

  const result = streamText({ ...options, onError: ({ error }) => check("ai: no error", false, String(error)) });
  let streamed = "";
  for await (const piece of result.textStream) streamed += piece;
  check("ai: a stream has the same text", streamed === plain.text, [streamed, plain.text]);
  check("ai: a stream has its usage", (await result.usage).outputTokens === plain.usage.outputTokens);

  const { embeddings } = await embedMany({ model: provider.textEmbeddingModel("m"), values: ["fn main", "struct"], maxRetries: 0 });
  check("ai: embeddings", embeddings.length === 2 && embeddings[0].length > 0);
}

const url = process.argv[2]?.replace(/\/$/, "");
if (!url) {
  console.error("node sdk.mjs URL");
  process.exit(2);
}
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
check("openai (npm): the list of models", (await client.models.list()).data.length === 1);
await chat(client);
await completions(client);
await errors(client);
const vectors = await client.embeddings.create({ model: "m", input: ["fn main", "struct"] });
check("openai (npm): embeddings in base64", vectors.data[0].embedding.length > 1 && Number.isFinite(vectors.data[0].embedding[0]));
await vercel(url);
