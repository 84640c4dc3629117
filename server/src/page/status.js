// The status page: asks for /status.json once a second and shows it.
"use strict";

const $ = (id) => document.getElementById(id);
/** The counters of each model at the time of the previous answer. */
let before = new Map();

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

function fact(name, value) {
  return make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }));
}

/** Returns the increase of a counter per second since the previous answer. */
function rate(model, name, now) {
  const old = before.get(model.name);
  if (!old || now <= old.time) return "-";
  return number(Math.max(0, (model[name] - old[name]) / ((now - old.time) / 1000)));
}

function draw(model, now) {
  const pages = model.pages;
  const all = pages.used + pages.kept + pages.free || 1;
  const bar = make("div", { className: "pages" },
    make("span", { className: "used" }), make("span", { className: "kept" }));
  bar.children[0].style.width = `${(100 * pages.used) / all}%`;
  bar.children[1].style.width = `${(100 * pages.kept) / all}%`;
  const section = make("section", {},
    make("h2", { textContent: model.name }),
    make("dl", {},
      fact("Sequences", `${model.sequences.length} of ${model.slots}`),
      fact("Waiting", number(model.waiting)),
      fact("New tokens/s", rate(model, "generated_tokens", now)),
      fact("Prompt tokens/s", rate(model, "prompt_tokens", now)),
      fact("From the cache/s", rate(model, "cached_tokens", now)),
      fact("Requests ended", number(model.ended)),
      fact("Evictions", number(model.evicted))),
    bar,
    make("p", { className: "note", textContent: `Pages of ${model.page_len} positions: ${number(pages.used)} in use, ${number(pages.kept)} kept for later prompts, ${number(pages.free)} free` }));
  if (model.lost) section.append(make("p", { className: "warn", textContent: `The device has failed: ${model.lost}` }));
  if (model.sequences.length) {
    section.append(make("table", {},
      make("thead", {}, make("tr", {}, ...["Request", "Prompt", "Processed", "New tokens"].map((name) => make("th", { scope: "col", textContent: name })))),
      make("tbody", {}, ...model.sequences.map((sequence) => make("tr", {},
        ...[sequence.request_id, number(sequence.prompt), number(sequence.processed), number(sequence.generated)].map((value) => make("td", { textContent: value })))))));
  }
  return section;
}

async function update() {
  try {
    const key = $("key").value;
    const response = await fetch("/status.json", { headers: key ? { Authorization: `Bearer ${key}` } : {} });
    if (!response.ok) throw new Error((await response.json()).error?.message ?? `the server answered ${response.status}`);
    const status = await response.json();
    const now = performance.now();
    $("models").replaceChildren(...status.models.map((model) => draw(model, now)));
    before = new Map(status.models.map((model) => [model.name, { ...model, time: now }]));
    $("state").textContent = status.models.length ? "Running" : "No model is loaded";
    $("state").className = "";
  } catch (error) {
    $("state").textContent = error instanceof TypeError ? "The server does not answer." : error.message;
    $("state").className = "warn";
  }
  setTimeout(update, 1000);
}

$("key").form.onsubmit = (event) => event.preventDefault();
update();
