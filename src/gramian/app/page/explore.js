// Pick a history, choose models and tags, and compare what each model makes of it.

import { change, link, read } from "./address.js";
import { ask } from "./api.js";
import { $, button, complain, count, counted, fill, make, say, score } from "./dom.js";
import * as reason from "./reason.js";

const LISTED = 10; // items of a list
const MOST = 4; // models side by side
const FEW_TAGS = 12; // shown without asking
const PAUSE = 150; // milliseconds without typing before a search

const titles = new Map(); // of the items seen so far
const titleOf = (item) => titles.get(String(item)) ?? String(item);

export async function show(state, models, signal) {
  const names = chosen(state, models);
  reason.close();
  paintModels(names, models);
  paintFilters(state, names.map((name) => models.find((model) => model.name === name)));
  paintOver(state);
  paintHistory(state);
  const columns = arranged(names, models);
  const waiting = [resolved(state, names, signal), ...columns.map((column) => load(column, state, signal))];
  const failed = (await Promise.allSettled(waiting)).find((one) => one.status === "rejected");
  if (failed) throw failed.reason;
  const absent = state.models.filter((name) => !models.some((model) => model.name === name));
  if (absent.length) throw new Error(`This server has no model ${absent.join(", ")}.`);
}

/** The models of a state that are served here; the first two if it names none. */
export function chosen(state, models) {
  const served = models.map((model) => model.name);
  const wanted = state.models.filter((name) => served.includes(name));
  return (wanted.length ? wanted : served.slice(0, 2)).slice(0, MOST);
}

/** Find the titles of picked items that came by a link. */
async function resolved(state, names, signal) {
  const wanted = state.view === "similar" ? [...state.items, state.of] : state.items;
  for (const model of names) {
    const missing = wanted.filter((item) => !titles.has(item));
    if (missing.length) learn((await ask("items", { params: { model, id: missing }, signal })).items);
  }
  paintHistory(state);
  paintOver(state);
}

function learn(items) {
  for (const { item, title } of items) {
    const known = titles.has(String(item)); // by a model with titles, perhaps, while this one has none
    if (title || !known) titles.set(String(item), title ?? String(item));
  }
}

// The history

function pick(item) {
  say(`Picked ${titleOf(item)}`);
  change({ items: [...read().items, item] });
}

function drop(item) {
  say(`Removed ${titleOf(item)}`);
  change({ items: read().items.filter((other) => other !== item) });
}

function paintHistory({ items }) {
  const chips = items.map((item, at) => make("li", { class: "chip" }, titleOf(item), remover(item, at)));
  const all = button("Clear", { class: "bare", "data-key": "clear", onclick: () => change({ items: [] }) });
  const lost = fill($("history"), chips, items.length > 1 && make("li", {}, all));
  if (lost) $("query").focus();
}

function remover(item, at) {
  const words = `Remove ${titleOf(item)}`;
  return button("×", { class: "bare", "aria-label": words, "data-key": `remove ${at}`, onclick: () => drop(item) });
}

// Models and tags

function paintModels(names, models) {
  const boxes = models.map(({ name, words }) => {
    const on = names.includes(name);
    const stuck = on ? names.length === 1 : names.length === MOST;
    const next = on ? names.filter((other) => other !== name) : [...names, name];
    const given = { type: "checkbox", "data-key": name, disabled: stuck, onchange: () => change({ models: next }) };
    const box = make("input", given);
    box.checked = on;
    return make("label", { class: "chip", title: words }, box, name);
  });
  const note = names.length === MOST && models.length > MOST && make("span", { class: "dim" }, "four at most");
  fill($("models"), make("legend", {}, "Models"), boxes, note);
}

let allTags = false; // whether those behind "more" are shown

function paintFilters(state, models) {
  const tags = [...new Set([...models.flatMap((model) => model.tags ?? []), ...state.only, ...state.never])];
  const used = (tag) => state.only.includes(tag) || state.never.includes(tag);
  const shown = allTags || tags.length <= FEW_TAGS ? tags : tags.filter((tag, at) => at < FEW_TAGS || used(tag));
  const toggle = () => {
    allTags = !allTags;
    paintFilters(read(), models);
  };
  const words = allTags ? "fewer" : `${tags.length - shown.length} more`;
  const more = button(words, { class: "bare", "data-key": " more", "aria-expanded": String(allTags), onclick: toggle });
  const clear = button("clear", { class: "bare", "data-key": " clear", onclick: () => change({ only: [], never: [] }) });
  const set = tags.filter(used).length;
  const ends = [tags.length > (allTags ? FEW_TAGS : shown.length) && more, set > 0 && clear];
  const legend = make("legend", {}, set ? `Tags (${set})` : "Tags");
  const lost = fill($("filters"), legend, shown.map((tag) => tagChip(tag, state)), ends);
  if (lost) $("filters").querySelector("button")?.focus();
  $("filters").hidden = !tags.length || state.view === "similar";
}

/** A tag goes from any to only to never, and around. */
function tagChip(tag, { only, never }) {
  const without = { only: only.filter((other) => other !== tag), never: never.filter((other) => other !== tag) };
  const chip = (standing, next, ...words) =>
    button("", { class: `chip tag ${standing}`, "data-key": tag, onclick: () => change({ ...without, ...next }) }, ...words);
  if (only.includes(tag)) return chip("only", { never: [...never, tag] }, make("b", {}, "only "), tag);
  if (never.includes(tag)) return chip("never", {}, make("b", {}, "never "), tag);
  return chip("any", { only: [...only, tag] }, make("span", { class: "unseen" }, "any "), tag);
}

// The lists, side by side

function paintOver(state) {
  $("over").hidden = state.view !== "similar";
  if ($("over").hidden) return;
  const back = make("a", { href: link({ view: "explore", of: "" }), "data-key": "back" }, "← Recommendations");
  fill($("over"), back, make("h2", {}, `Similar to ${titleOf(state.of)} `, adder(state.of, "over")));
}

/** A column for each model; one that was there before keeps its list until the next is known. */
function arranged(names, models) {
  const there = new Map([...$("columns").children].map((column) => [column.dataset.model, column]));
  const columns = names.map((name) => there.get(name) ?? newColumn(models.find((model) => model.name === name)));
  if (names.join("\n") !== [...there.keys()].join("\n")) fill($("columns"), columns);
  return columns;
}

function newColumn({ name, words, failed }) {
  const head = make("h2", {}, make("a", { href: "#", "data-key": `${name} head` }, name));
  const warning = failed && make("p", { class: "note bad" }, "A newer version could not be loaded.");
  const parts = [head, make("p", { class: "dim" }, words), warning, make("p", { class: "note" }), make("ol", {})];
  return make("section", { "data-model": name, "aria-label": `By ${name}` }, parts);
}

async function load(column, state, signal) {
  const model = column.dataset.model;
  column.querySelector("a").href = link({ view: "model", of: model });
  column.setAttribute("aria-busy", "true");
  try {
    const answer = await listed(model, state, signal);
    learn(answer.items);
    const rows = answer.items.map((found, at) => row(model, found, at + 1, state, answer.fallback));
    paint(column, remarks(answer, state), rows);
  } catch (error) {
    const refused = error.name === "Refused"; // this model only, so it is told here
    if (!signal.aborted) paint(column, refused ? [error.message] : [], []);
    if (!refused) throw error;
    say(`${model}: ${error.message}`);
  }
}

function listed(model, { view, of, items, only, never }, signal) {
  if (view === "similar") return ask("similar", { params: { model, item: of, k: LISTED }, signal });
  const tags = { ...(only.length && { allow_tags: only }), ...(never.length && { deny_tags: never }) };
  return ask("recommend", { body: { model, history: items, k: LISTED, ...tags }, signal });
}

function paint(column, words, rows) {
  column.removeAttribute("aria-busy");
  fill(column.querySelector("p.note:not(.bad)"), words.map((sentence) => make("span", {}, sentence)));
  fill(column.querySelector("ol"), rows);
}

/** What should be known before reading the list. */
function remarks({ items, unknown = [], fallback }, state) {
  const said = [];
  if (fallback && state.items.length) said.push("Knows none of what is picked: the most popular items");
  else if (fallback) said.push("Nothing picked yet: the most popular items");
  else if (unknown.length) said.push(`Does not know ${unknown.map(titleOf).join(", ")}`);
  if (!items.length) said.push("Nothing is left to recommend");
  return said;
}

function row(model, { item, title, score: value }, rank, state, fallback) {
  const name = title ?? String(item);
  const key = (part) => `${model} ${part} ${rank}`;
  const near = make(
    "a",
    { href: link({ view: "similar", of: String(item) }), "data-key": key("similar"), "aria-label": `Similar to ${name}` },
    "similar",
  );
  const line = make("li", { "data-item": item });
  line.append(make("span", { class: "rank" }, count(rank)));
  if (state.view === "similar") {
    line.append(make("span", { class: "title" }, name));
  } else {
    const why = button(name, { class: "title", "data-key": key("why"), "aria-expanded": "false" });
    line.append(why);
    const explained = (signal) => ask("explain", { body: { model, item, history: state.items }, signal });
    reason.offer(line, why, name, fallback ? null : explained);
  }
  line.append(adder(String(item), key("add"), name), make("span", { class: "small" }, score(value), " · ", near));
  return line;
}

function adder(item, key, name = titleOf(item)) {
  const picked = read().items.includes(item);
  const words = picked ? `Remove ${name}` : `Add ${name}`;
  const given = { class: "add", "data-key": key, "aria-label": words, title: words };
  return button(picked ? "✓" : "+", { ...given, onclick: () => (picked ? drop(item) : pick(item)) });
}

// The search: a combobox, whose options are chosen by arrows while the focus stays in the box

let found = []; // what is offered
let active = -1;
let searching = new AbortController();
let pause;

export function listen() {
  const query = $("query");
  query.oninput = () => {
    clearTimeout(pause);
    found = []; // what is still on the screen answers another question
    pause = setTimeout(search, PAUSE);
  };
  query.onkeydown = steer;
  query.onfocus = () => query.value.trim() && search();
  query.onblur = shut;
  $("found").onpointerdown = (event) => event.preventDefault(); // the focus stays in the box
  $("found").onclick = (event) => take(Number(event.target.closest("[role=option]")?.dataset.at ?? -1));
}

async function search() {
  searching.abort();
  searching = new AbortController();
  const { signal } = searching;
  const query = $("query").value.trim();
  const model = $("columns").firstElementChild?.dataset.model;
  if (!query || !model) return shut();
  try {
    const { items } = await ask("items", { params: { model, query, limit: 20 }, signal });
    offer(items, query);
  } catch (error) {
    if (!signal.aborted) complain(error);
  }
}

function offer(items, query) {
  learn(items);
  const picked = read().items;
  found = items.filter(({ item }) => !picked.includes(String(item)));
  const none = make("p", { class: "dim" }, items.length ? "All of these are picked" : `Nothing is called “${query}”`);
  fill($("found"), found.length ? found.map(option) : none);
  say(found.length ? `${found.length} found` : none.textContent);
  $("found").hidden = false;
  $("query").setAttribute("aria-expanded", "true");
  mark(found.length ? 0 : -1);
}

function option({ item, title, tags = [], users }, at) {
  const about = [tags.join(", "), counted(users, "user")].filter(Boolean).join(" · ");
  const parts = [make("span", {}, title ?? String(item)), make("span", { class: "small" }, about)];
  return make("div", { role: "option", id: `option-${at}`, "data-at": at, "aria-selected": "false" }, parts);
}

function mark(at) {
  active = at;
  for (const each of $("found").querySelectorAll("[role=option]")) {
    each.setAttribute("aria-selected", String(Number(each.dataset.at) === at));
  }
  if (at < 0) return $("query").removeAttribute("aria-activedescendant");
  $("query").setAttribute("aria-activedescendant", `option-${at}`);
  $(`option-${at}`).scrollIntoView({ block: "nearest" });
}

function steer(event) {
  const last = found.length - 1;
  const moves = { ArrowDown: active < last ? active + 1 : 0, ArrowUp: active > 0 ? active - 1 : last };
  if (event.isComposing) return;
  if (event.key in moves && !$("found").hidden && found.length) mark(moves[event.key]);
  else if (event.key in moves) search();
  else if (event.key === "Enter") found.length ? take(active) : search().then(() => take(0));
  else if (event.key === "Escape") cancel();
  else return;
  event.preventDefault();
}

/** Escape shuts the list first, and empties the box next. */
function cancel() {
  if ($("found").hidden) $("query").value = "";
  shut();
}

function take(at) {
  if (!found[at]) return;
  const item = String(found[at].item);
  $("query").value = "";
  shut();
  pick(item);
}

function shut() {
  clearTimeout(pause);
  searching.abort();
  found = [];
  mark(-1);
  $("found").hidden = true;
  $("query").setAttribute("aria-expanded", "false");
}
