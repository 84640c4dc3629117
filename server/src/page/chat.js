// The chat page: conversations in this browser, replies from /v1/chat/completions of this server.
"use strict";

const STORE = "warpwright.conversations";
const SETTINGS = "warpwright.settings";
const $ = (id) => document.getElementById(id);

// Storage can be full, or forbidden in a private window. The page then works until it is closed.
function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** Conversations, the newest first: { id, title, messages: [{ role, content, reasoning, calls, figures, end }] }. */
let conversations = read(STORE, []);
if (!Array.isArray(conversations)) conversations = [];
let settings = read(SETTINGS, {});
let current = conversations[0] ?? blank();
/** The running request: { abort, conversation }, or null. */
let running = null;

function blank() {
  return { id: crypto.randomUUID?.() ?? String(Math.random()).slice(2), title: "", messages: [] };
}

function save() {
  if (!conversations.includes(current) && current.messages.length) conversations.unshift(current);
  if (!write(STORE, conversations)) {
    problem("The browser cannot store more conversations. Delete some to keep new ones.");
  }
}

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

// ---- Drawing ----

/** Returns an element with properties and children. Text is never parsed as HTML. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function markdown(text) {
  const html = marked.parse(text, { gfm: true, breaks: false });
  // A model's text must neither run scripts nor load anything, so only links stay, and they open in
  // a new tab.
  const clean = DOMPurify.sanitize(html, {
    FORBID_TAGS: ["style", "form", "input", "button", "img", "svg", "math", "video", "audio", "iframe", "textarea", "select"],
    FORBID_ATTR: ["style", "id", "name", "srcset"],
    RETURN_DOM_FRAGMENT: true,
  });
  for (const link of clean.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const block of clean.querySelectorAll("pre")) {
    const copy = make("button", { type: "button", className: "copy", textContent: "Copy" });
    copy.onclick = () => copyText(block.querySelector("code")?.textContent ?? "", copy);
    block.append(copy);
  }
  return clean;
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Cannot copy";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const NAMES = { user: "You", assistant: "Model", tool: "Tool" };

/** Fills the element of a message. */
function draw(element, index) {
  const message = current.messages[index];
  const parts = [make("div", { className: "who", textContent: NAMES[message.role] ?? message.role })];
  if (message.reasoning) {
    const open = element.querySelector(".reasoning")?.open ?? false;
    const label = message.content || message.end ? "Reasoning" : "Reasoning …";
    parts.push(make("details", { className: "reasoning", open },
      make("summary", { textContent: label }),
      make("div", { className: "text", textContent: message.reasoning })));
  }

  const body = make("div", { className: "body" });
  if (message.role === "assistant") body.append(markdown(message.content));
  else body.textContent = message.content;
  if (message.content || !message.calls?.length) parts.push(body);
  for (const call of message.calls ?? []) {
    parts.push(make("details", { className: "call", open: true },
      make("summary", { textContent: `Calls ${call.function.name}` }),
      make("div", { className: "text", textContent: call.function.arguments })));
  }
  if (message.end && message.end !== "stop" && message.end !== "tool_calls") {
    const why = { length: "The limit of tokens was reached.", stopped: "Stopped." }[message.end] ?? message.end;
    parts.push(make("div", { className: "cut", textContent: why }));
  }
  parts.push(actions(message, index));
  element.className = `message ${message.role}`;
  element.replaceChildren(...parts);
}

function actions(message, index) {
  const button = (text, run) => {
    const element = make("button", { type: "button", textContent: text });
    element.onclick = () => run(element);
    element.disabled = Boolean(running);
    return element;
  };
  const row = make("div", { className: "actions" });
  if (message.role !== "assistant" || message.end) row.append(button("Copy", (b) => copyText(message.content, b)));
  if (message.role === "user") row.append(button("Edit", () => edit(index)));
  if (message.role === "assistant" && message.end) row.append(button("Try again", () => again(index)));
  const last = index === current.messages.length - 1;
  if (last && message.calls?.length && message.end) row.append(button("Answer the call", () => answer(message)));
  if (message.figures) row.append(make("span", { className: "figures", textContent: message.figures }));
  return row;
}

function drawAll() {
  const list = $("messages");
  if (!current.messages.length) {
    list.replaceChildren(make("p", { className: "empty", textContent: "Write a message to begin." }));
  } else {
    list.replaceChildren(...current.messages.map((_, index) => {
      const element = make("article");
      draw(element, index);
      return element;
    }));
    list.scrollTop = list.scrollHeight;
  }
  drawList();
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
  document.title = current.title ? `${current.title} - Warpwright` : "Warpwright";
}

function drawList() {
  $("conversations").replaceChildren(...conversations.map((conversation) => {
    const open = make("button", { type: "button", className: "open", textContent: conversation.title || "Untitled" });
    open.onclick = () => show(conversation);
    const remove = make("button", { type: "button", className: "delete", textContent: "✕", title: "Delete" });
    remove.setAttribute("aria-label", `Delete ${conversation.title}`);
    remove.onclick = () => {
      if (!confirm(`Delete “${conversation.title}”?`)) return;
      conversations = conversations.filter((other) => other !== conversation);
      write(STORE, conversations);
      if (conversation === current) show(conversations[0] ?? blank());
      else drawList();
    };
    const row = make("div", {}, open, remove);
    if (conversation === current) {
      row.className = "current";
      open.setAttribute("aria-current", "true");
    }
    return row;
  }));
}

function show(conversation) {
  running?.abort.abort();
  running = null;
  current = conversation;
  problem("");
  document.body.classList.remove("sidebar");
  drawAll();
  $("input").focus();
}

// ---- Requests ----

function headers() {
  const all = { "Content-Type": "application/json" };
  if (settings.key) all.Authorization = `Bearer ${settings.key}`;
  return all;
}

/** Returns the message of an error response. */
async function refusal(response) {
  try {
    const body = await response.json();
    return body.error?.message ?? JSON.stringify(body);
  } catch {
    return `the server answered ${response.status}`;
  }
}

function requestBody() {
  const messages = current.messages.map((message) => {
    const plain = { role: message.role, content: message.content };
    if (message.reasoning) plain.reasoning_content = message.reasoning;
    if (message.calls?.length) plain.tool_calls = message.calls;
    if (message.tool_call_id) plain.tool_call_id = message.tool_call_id;
    return plain;
  });
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  const body = { model: $("model").value, messages, stream: true, stream_options: { include_usage: true } };
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
    if (settings[name] !== undefined) body[name] = settings[name];
  }
  if (settings.reasoning) body.reasoning_effort = settings.reasoning;
  if (settings.reasoning === "none") body.chat_template_kwargs = { enable_thinking: false };
  if (settings.tools) body.tools = JSON.parse(settings.tools);
  return body;
}

/** Asks for a reply to the conversation and shows it as it arrives. */
async function generate() {
  problem("");
  const conversation = current;
  const body = requestBody();
  const message = { role: "assistant", content: "", reasoning: "", calls: [], end: "" };
  const index = conversation.messages.push(message) - 1;
  const run = { abort: new AbortController(), conversation };
  running = run;
  drawAll();
  const element = $("messages").lastElementChild;
  const started = performance.now();
  let first = 0;
  let count = 0;
  let usage = null;
  let waiting = false;

  // Text may arrive faster than the screen can show it, so a frame draws all of it at once.
  const redraw = () => {
    if (waiting || current !== conversation) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (current !== conversation) return;
      const list = $("messages");
      const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
      draw(element, index);
      if (atEnd) list.scrollTop = list.scrollHeight;
      if (first && count > 1) {
        $("rate").textContent = `${((count - 1) / ((performance.now() - first) / 1000)).toFixed(1)} tokens/s`;
      }
    });
  };

  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(body), signal: run.abort.signal,
    });
    if (!response.ok) throw new Error(await refusal(response));
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message ?? String(event.error));
      if (event.usage) usage = event.usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      const delta = choice.delta ?? {};
      if (delta.content || delta.reasoning_content || delta.tool_calls) {
        first ||= performance.now();
        count += 1;
      }
      message.reasoning += delta.reasoning_content ?? "";
      message.content += delta.content ?? "";
      for (const call of delta.tool_calls ?? []) collect(message.calls, call);
      if (choice.finish_reason) message.end = choice.finish_reason;
      redraw();
    }
    message.end ||= "The reply ended early.";
  } catch (error) {
    message.end = error.name === "AbortError" ? "stopped" : "failed";
    if (message.end === "failed") {
      problem(error.message);
      message.end = "The reply failed.";
    }
  }

  message.figures = figures(usage, started, first, count);
  const nothing = !message.content && !message.reasoning && !message.calls.length;
  if (nothing && message.end !== "stop") conversation.messages.splice(index, 1);
  if (running === run) running = null;
  save();
  if (current === conversation) drawAll();
}

/** Adds a piece of a tool call to the calls that have arrived. */
function collect(calls, piece) {
  const call = calls[piece.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
  if (piece.id) call.id = piece.id;
  call.function.name += piece.function?.name ?? "";
  call.function.arguments += piece.function?.arguments ?? "";
}

/** Returns the tokens, the wait and the rate of a reply as a text. */
function figures(usage, started, first, count) {
  if (!first) return "";
  const wait = ((first - started) / 1000).toFixed(2);
  const tokens = usage?.completion_tokens ?? count;
  const seconds = (performance.now() - first) / 1000;
  const rate = tokens > 1 && seconds > 0 ? `, ${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  const prompt = usage ? `, prompt ${usage.prompt_tokens}${cached ? ` (${cached} from the cache)` : ""}` : "";
  return `${tokens} tokens after ${wait} s${rate}${prompt}`;
}

/** Yields the data of each server-sent event of a response. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  }
}

// ---- Actions ----

function send(text) {
  if (!text.trim() || running) return;
  if (!current.messages.length) current.title = text.trim().split("\n")[0].slice(0, 60);
  current.messages.push({ role: "user", content: text });
  save();
  generate();
}

function again(index) {
  if (running) return;
  current.messages.length = index;
  generate();
}

function edit(index) {
  const message = current.messages[index];
  const element = $("messages").children[index];
  const area = make("textarea", { className: "edit", value: message.content });
  area.setAttribute("aria-label", "Edit the message");
  const resend = make("button", { type: "button", textContent: "Send again" });
  const cancel = make("button", { type: "button", textContent: "Cancel" });
  const finish = () => draw(element, index);
  resend.onclick = () => {
    if (!area.value.trim() || running) return;
    current.messages.length = index;
    if (!index) current.title = area.value.trim().split("\n")[0].slice(0, 60);
    current.messages.push({ role: "user", content: area.value });
    save();
    generate();
  };
  cancel.onclick = finish;
  area.onkeydown = (event) => {
    if (event.key === "Escape") finish();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) resend.click();
  };
  element.replaceChildren(area, make("div", { className: "actions" }, resend, cancel));
  area.focus();
}

/** Asks for the results of the model's tool calls and sends them. */
function answer(message) {
  const results = [];
  for (const call of message.calls) {
    const result = prompt(`Result of ${call.function.name}(${call.function.arguments})`);
    if (result === null) return;
    results.push({ role: "tool", content: result, tool_call_id: call.id });
  }
  current.messages.push(...results);
  save();
  generate();
}

// ---- Settings ----

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

$("open-settings").onclick = () => {
  for (const name of [...NUMBERS, "system", "key", "tools", "reasoning"]) $(`set-${name}`).value = settings[name] ?? "";
  $("settings-problem").textContent = "";
  $("settings").showModal();
};

$("save-settings").onclick = (event) => {
  const changed = {};
  for (const name of NUMBERS) {
    const field = $(`set-${name}`);
    if (field.value === "" && !field.validity.badInput) continue;
    if (!field.reportValidity()) return event.preventDefault();
    changed[name] = Number(field.value);
  }
  for (const name of ["system", "key", "tools", "reasoning"]) {
    const text = $(`set-${name}`).value;
    if (text.trim()) changed[name] = name === "system" ? text : text.trim();
  }
  if (changed.tools) {
    try {
      if (!Array.isArray(JSON.parse(changed.tools))) throw new Error("not a list");
    } catch (error) {
      $("settings-problem").textContent = `Tools are not a JSON list: ${error.message}`;
      return event.preventDefault();
    }
  }
  settings = changed;
  write(SETTINGS, settings);
  listModels();
};

async function listModels() {
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    if (!response.ok) throw new Error(await refusal(response));
    const chosen = settings.model;
    const names = (await response.json()).data.map((model) => model.id);
    $("model").replaceChildren(...names.map((name) => make("option", { value: name, textContent: name, selected: name === chosen })));
    problem("");
  } catch (error) {
    problem(error instanceof TypeError ? "The server does not answer." : error.message);
  }
}

$("model").onchange = () => {
  settings.model = $("model").value;
  write(SETTINGS, settings);
};

// ---- Keyboard and layout ----

const input = $("input");
const fit = () => {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + 2}px`;
};
input.oninput = fit;
input.onkeydown = (event) => {
  // Enter also ends the composition of Chinese, Japanese and Korean text.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
};
$("composer").onsubmit = (event) => {
  event.preventDefault();
  if (running || !input.value.trim()) return;
  const text = input.value;
  input.value = "";
  fit();
  send(text);
};
$("stop").onclick = () => running?.abort.abort();
$("new").onclick = () => show(blank());
$("open-sidebar").onclick = () => {
  document.body.classList.add("sidebar");
  $("close-sidebar").focus();
};
$("close-sidebar").onclick = () => document.body.classList.remove("sidebar");
document.onkeydown = (event) => {
  if (event.key === "Escape" && document.body.classList.contains("sidebar")) {
    document.body.classList.remove("sidebar");
  } else if (event.key === "Escape" && running && !$("settings").open) {
    running.abort.abort();
  } else if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    show(blank());
  }
};
addEventListener("storage", (event) => {
  // Another tab has saved conversations. The one that is open here stays as it is.
  if (event.key !== STORE) return;
  const others = read(STORE, []).filter((other) => other.id !== current.id);
  conversations = conversations.includes(current) ? [current, ...others] : others;
  drawList();
});

listModels();
drawAll();
input.focus();
