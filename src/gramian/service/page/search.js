// The search for items: a combobox. Arrow keys choose a suggestion while the focus stays in the input.

import { readState } from "./address.js";
import { fetchJson } from "./api.js";
import { $, announce, fill, make, pluralize, showError } from "./dom.js";
import { isOfUser, pick } from "./history.js";
import { formatItem, rememberItems } from "./titles.js";

const MAX_SUGGESTIONS = 20; // of a search
const TYPING_PAUSE = 150; // milliseconds without typing before a search

let suggestions = []; // items
let active = -1; // index of the chosen suggestion
let searchRequest = new AbortController();
let typingTimer;

export function listenToSearch() {
  const query = $("query");
  query.oninput = () => {
    clearTimeout(typingTimer);
    suggestions = []; // those on the screen belong to the previous text
    setBusy(true);
    typingTimer = setTimeout(search, TYPING_PAUSE);
  };
  query.onkeydown = handleKey;
  query.onfocus = () => query.value.trim() && search();
  query.onblur = closeSuggestions;
  $("suggestions").onpointerdown = (event) => event.preventDefault(); // keep the focus in the input
  $("suggestions").onclick = (event) => choose(Number(event.target.closest("[role=option]")?.dataset.index ?? -1));
}

/** Mark the suggestions as those of an older text until the new ones are there. */
function setBusy(isBusy) {
  $("suggestions").setAttribute("aria-busy", String(isBusy));
}

async function search() {
  searchRequest.abort();
  searchRequest = new AbortController();
  const { signal } = searchRequest;
  const query = $("query").value.trim();
  const model = $("columns").firstElementChild?.dataset.model;
  if (!query || !model) return closeSuggestions();
  setBusy(true);
  try {
    const { items } = await fetchJson("items", { params: { model, query, limit: MAX_SUGGESTIONS }, signal });
    renderSuggestions(items, query);
  } catch (error) {
    if (signal.aborted) return; // by a newer search
    setBusy(false);
    showError(error);
  }
}

function renderSuggestions(items, query) {
  rememberItems(items);
  const state = readState();
  suggestions = items.filter(({ item }) => !state.items.includes(String(item)) && !isOfUser(item, state));
  const text = items.length ? "All of these are in the history" : `No title contains “${query}”`;
  const none = make("p", { class: "dim" }, text);
  fill($("suggestions"), suggestions.length ? suggestions.map(option) : none);
  announce(suggestions.length ? pluralize(suggestions.length, "suggestion") : text);
  setBusy(false);
  $("suggestions").hidden = false;
  $("query").setAttribute("aria-expanded", "true");
  activate(suggestions.length ? 0 : -1);
}

function option(item, index) {
  const about = [(item.tags ?? []).join(", "), pluralize(item.users, "user")].filter(Boolean).join(" · ");
  const parts = [make("span", {}, formatItem(item)), make("span", { class: "small" }, about)];
  return make("div", { role: "option", id: `option-${index}`, "data-index": index, "aria-selected": "false" }, parts);
}

function activate(index) {
  active = index;
  for (const node of $("suggestions").querySelectorAll("[role=option]")) {
    node.setAttribute("aria-selected", String(Number(node.dataset.index) === index));
  }
  if (index < 0) return $("query").removeAttribute("aria-activedescendant");
  $("query").setAttribute("aria-activedescendant", `option-${index}`);
  $(`option-${index}`).scrollIntoView({ block: "nearest" });
}

function handleKey(event) {
  const last = suggestions.length - 1;
  const moves = { ArrowDown: active < last ? active + 1 : 0, ArrowUp: active > 0 ? active - 1 : last };
  if (event.isComposing) return;
  if (event.key in moves && !$("suggestions").hidden && suggestions.length) activate(moves[event.key]);
  else if (event.key in moves) search();
  else if (event.key === "Enter") suggestions.length ? choose(active) : search().then(() => choose(0));
  else if (event.key === "Escape") cancel();
  else return;
  event.preventDefault();
}

/** The first Escape closes the suggestions, the next one clears the input. */
function cancel() {
  if ($("suggestions").hidden) $("query").value = "";
  closeSuggestions();
}

function choose(index) {
  if (!suggestions[index]) return;
  const item = String(suggestions[index].item);
  $("query").value = "";
  closeSuggestions();
  pick(item);
}

function closeSuggestions() {
  clearTimeout(typingTimer);
  searchRequest.abort();
  suggestions = [];
  activate(-1);
  setBusy(false);
  $("suggestions").hidden = true;
  $("query").setAttribute("aria-expanded", "false");
}
