// Choose a history, models and tags, and compare the lists of the models.

import { linkTo, readState, updateState } from "./address.js";
import { fetchJson } from "./api.js";
import { $, announce, fill, formatCount, formatScore, make, makeButton, pluralize } from "./dom.js";
import * as explanation from "./explanation.js";
import { isOfUser, listenToUserForm, loadTitles, loadUserHistory, pick, remove, renderHistory, renderUserForm } from "./history.js";
import { listenToSearch } from "./search.js";
import { formatItem, nameOf, rememberItems } from "./titles.js";

const LIST_LENGTH = 10; // items
const MAX_MODELS = 4; // side by side
const DEFAULT_MODELS = 2;
const MAX_TAGS = 12; // shown before "more"

export function listen() {
  listenToSearch();
  listenToUserForm();
}

export async function show(state, models, signal) {
  const names = chosenModels(state, models);
  explanation.close();
  renderUserForm(state, models);
  renderModels(names, models);
  renderTags(state, names.map((name) => models.find((model) => model.name === name)));
  renderSimilarHeading(state);
  renderHistory(state);
  const columns = arrangeColumns(names, models);
  $("scale").textContent = SCALES[state.view];
  const loading = [
    loadTitles(state, names, signal).then(() => renderSimilarHeading(state)),
    loadUserHistory(state, names, signal),
    ...columns.map((column) => loadList(column, state, signal)),
  ];
  const failed = (await Promise.allSettled(loading)).find(({ status }) => status === "rejected");
  if (failed) throw failed.reason;
  const absent = state.models.filter((name) => !models.some((model) => model.name === name));
  if (absent.length) throw new Error(`This server has no model ${absent.join(", ")}.`);
}

const SCALES = {
  explore: "A score ranks the items of one list: a higher score is better. Scores of different models cannot be compared.",
  similar: "A similarity of 1 is the highest. Similarities of different models cannot be compared.",
};

/** Return the models of a state that are served; the first two if it names none. */
export function chosenModels(state, models) {
  const served = models.map((model) => model.name);
  const chosen = state.models.filter((name) => served.includes(name));
  return (chosen.length ? chosen : served.slice(0, DEFAULT_MODELS)).slice(0, MAX_MODELS);
}

// Models and tags

function renderModels(names, models) {
  const boxes = models.map(({ name, spec }) => {
    const isChosen = names.includes(name);
    const isFixed = isChosen ? names.length === 1 : names.length === MAX_MODELS;
    const next = isChosen ? names.filter((other) => other !== name) : [...names, name];
    const onchange = () => updateState({ models: next });
    const box = make("input", { type: "checkbox", "data-key": name, disabled: isFixed, onchange });
    box.checked = isChosen;
    return make("label", { class: "chip", title: spec }, box, name);
  });
  const isFull = names.length === MAX_MODELS && models.length > MAX_MODELS;
  fill($("models"), make("legend", {}, "Models"), boxes, isFull && make("span", { class: "dim" }, "four at most"));
}

let showsAllTags = false;

function renderTags(state, models) {
  const tags = [...new Set([...models.flatMap((model) => model.tags ?? []), ...state.only, ...state.never])];
  const isSet = (tag) => state.only.includes(tag) || state.never.includes(tag);
  const showsAll = showsAllTags || tags.length <= MAX_TAGS;
  const shown = showsAll ? tags : tags.filter((tag, index) => index < MAX_TAGS || isSet(tag));
  const toggle = () => {
    showsAllTags = !showsAllTags;
    renderTags(readState(), models);
  };
  const text = showsAllTags ? "fewer" : `${tags.length - shown.length} more`;
  const expanded = String(showsAllTags);
  const more = makeButton(text, { class: "bare", "data-key": " more", "aria-expanded": expanded, onclick: toggle });
  const clearTags = () => updateState({ only: [], never: [] });
  const clear = makeButton("clear", { class: "bare", "data-key": " clear", onclick: clearTags });
  const nSet = tags.filter(isSet).length;
  const buttons = [tags.length > (showsAllTags ? MAX_TAGS : shown.length) && more, nSet > 0 && clear];
  const legend = make("legend", {}, nSet ? `Tags (${nSet})` : "Tags");
  const lostFocus = fill($("filters"), legend, shown.map((tag) => tagChip(tag, state)), buttons);
  if (lostFocus) $("filters").querySelector("button")?.focus();
  $("filters").hidden = !tags.length || state.view === "similar";
}

/** A button that takes a tag from "any" to "only" to "never", and back to "any". */
function tagChip(tag, { only, never }) {
  const without = { only: only.filter((other) => other !== tag), never: never.filter((other) => other !== tag) };
  const chip = (setting, next, ...label) =>
    makeButton("", { class: `chip tag ${setting}`, "data-key": tag, onclick: () => updateState({ ...without, ...next }) }, ...label);
  if (only.includes(tag)) return chip("only", { never: [...never, tag] }, make("b", {}, "only "), tag);
  if (never.includes(tag)) return chip("never", {}, make("b", {}, "never "), tag);
  return chip("any", { only: [...only, tag] }, make("span", { class: "visually-hidden" }, "any "), tag);
}

// The lists, side by side

function renderSimilarHeading(state) {
  const heading = $("similar-heading");
  heading.hidden = state.view !== "similar";
  if (heading.hidden) return;
  const back = make("a", { href: linkTo({ view: "explore", of: "" }), "data-key": "back" }, "← Recommendations");
  fill(heading, back, make("h2", {}, "Similar to ", make("bdi", {}, nameOf(state.of)), " ", pickButton(state.of, "similar-heading")));
}

/** Return a column for each model. An existing column keeps its list until the next one has arrived. */
function arrangeColumns(names, models) {
  const existing = new Map([...$("columns").children].map((column) => [column.dataset.model, column]));
  const columns = names.map((name) => existing.get(name) ?? makeColumn(models.find((model) => model.name === name)));
  if (names.join("\n") !== [...existing.keys()].join("\n")) fill($("columns"), columns);
  return columns;
}

/** The head of a column has what tells models with the same recipe apart: the name of the folder, and the sizes of the data. */
function makeColumn({ name, spec, users, items, interactions, failed }) {
  const head = make("h2", {}, make("a", { href: "#", "data-key": `${name} head` }, name));
  const sizes = [users && pluralize(users, "user"), pluralize(items, "item"), interactions && pluralize(interactions, "interaction")];
  const about = [make("p", { class: "dim" }, spec), make("p", { class: "dim" }, sizes.filter(Boolean).join(", "))];
  const warning = failed && make("p", { class: "note bad" }, "A newer version could not be loaded.");
  const parts = [head, about, warning, make("p", { class: "note" }), make("ol", {})];
  return make("section", { "data-model": name, "aria-label": `By ${name}` }, parts);
}

async function loadList(column, state, signal) {
  const model = column.dataset.model;
  column.querySelector("a").href = linkTo({ view: "model", of: model });
  column.setAttribute("aria-busy", "true");
  try {
    const list = await fetchList(model, state, signal);
    rememberItems(list.items);
    const rows = list.items.map((item, index) => listRow(model, item, index + 1, state, list));
    renderList(column, notes(list, state), rows);
  } catch (error) {
    const isRefusal = error.name === "RefusedRequest"; // it concerns this model only, so it is shown here
    if (!signal.aborted) renderList(column, isRefusal ? [error.message] : [], []);
    if (!isRefusal) throw error;
    announce(`${model}: ${error.message}`);
  }
}

/** Return the list of a model. If the model does not know the user, the list is that of the other items of the history. */
async function fetchList(model, state, signal) {
  if (state.view === "similar") return fetchJson("similar", { params: { model, item: state.of, k: LIST_LENGTH }, signal });
  try {
    return await fetchRecommendations(model, state, signal);
  } catch (error) {
    if (!state.user || error.status !== 404) throw error;
    return { ...(await fetchRecommendations(model, { ...state, user: "" }, signal)), unknownUser: state.user };
  }
}

function fetchRecommendations(model, { user, items, only, never }, signal) {
  const tags = { ...(only.length && { allow_tags: only }), ...(never.length && { deny_tags: never }) };
  return fetchJson("recommend", { body: { model, ...(user && { user }), history: items, k: LIST_LENGTH, ...tags }, signal });
}

function renderList(column, sentences, rows) {
  column.removeAttribute("aria-busy");
  fill(column.querySelector("p.note:not(.bad)"), sentences.map((sentence) => make("span", {}, sentence)));
  fill(column.querySelector("ol"), rows);
}

/** Return what a reader should know about a list before reading it. */
function notes({ items, unknown = [], unknownUser, fallback }, state) {
  const sentences = [];
  if (unknownUser) sentences.push(`Does not know user ${unknownUser}`);
  if (fallback) {
    const isEmpty = !state.items.length && (unknownUser || !state.user);
    sentences.push(`${isEmpty ? "The history is empty" : "Knows no item of the history"}: these are the most popular items`);
  } else if (unknown.length) sentences.push(`Does not know ${unknown.map(nameOf).join(", ")}`);
  if (!items.length) sentences.push("Nothing is left to recommend");
  return sentences;
}

function listRow(model, item, rank, state, { fallback, unknownUser }) {
  const name = formatItem(item);
  const key = (part) => `${model} ${part} ${rank}`;
  const href = linkTo({ view: "similar", of: String(item.item) });
  const similar = make("a", { href, "data-key": key("similar"), "aria-label": `similar items to ${name}` }, "similar items");
  const row = make("li", { "data-item": item.item });
  row.append(make("span", { class: "rank" }, formatCount(rank)));
  if (state.view === "similar") {
    row.append(make("span", { class: "title" }, name));
  } else {
    const button = makeButton(name, { class: "title", "data-key": key("why"), "aria-expanded": "false" });
    row.append(button);
    const user = unknownUser ? {} : { ...(state.user && { user: state.user }) };
    const explain = (signal) => fetchJson("explain", { body: { model, item: item.item, ...user, history: state.items }, signal });
    explanation.attach(row, button, name, fallback ? null : explain);
  }
  const about = make("span", { class: "small" }, describeScore(item.score, state.view, fallback), " · ", similar);
  row.append(pickButton(String(item.item), key("add"), name), about);
  return row;
}

/** Return the number by which an item is ranked, with its name: without a history, it is the item's number of users. */
function describeScore(score, view, isFallback) {
  if (isFallback) return pluralize(score, "user");
  return `${view === "similar" ? "similarity" : "score"} ${formatScore(score)}`;
}

/** A button that adds an item to the history, or removes it. */
function pickButton(item, key, name = nameOf(item)) {
  const state = readState();
  const isPicked = state.items.includes(item);
  const isFixed = !isPicked && isOfUser(item, state);
  const label = isFixed ? `${name} is in the history of user ${state.user}` : `${isPicked ? "Remove" : "Add"} ${name}`;
  const attributes = { class: "add", "data-key": key, "aria-label": label, title: label, disabled: isFixed };
  const toggle = () => (isPicked ? remove(item) : pick(item));
  return makeButton(isPicked || isFixed ? "✓" : "+", { ...attributes, onclick: toggle });
}
