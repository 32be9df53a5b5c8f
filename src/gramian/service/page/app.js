// The router of the page: shows the view that the fragment of the address names, whenever it changes.

import { formatState, linkTo, readState } from "./address.js";
import { fetchJson } from "./api.js";
import { $, announce, clearError, fill, make, showError } from "./dom.js";
import * as explore from "./explore.js";
import { showLeaderboard } from "./leaderboard.js";
import { showModel } from "./models.js";

let models; // fetched once
let current = new AbortController(); // aborts the requests of the view that is shown
let currentPlace; // the view, and the item or model it shows

addEventListener("hashchange", show);
$("copy").onclick = copyLink;
$("skip").onclick = skipToContent;
explore.listen();
show();

async function show() {
  current.abort(); // so that an older response cannot arrive after a newer one
  current = new AbortController();
  const { signal } = current;
  try {
    models ??= (await fetchJson("models", { signal })).models;
    await showView(readState(), signal);
    clearError();
  } catch (error) {
    if (!signal.aborted) showError(error);
  }
}

function showView(state, signal) {
  const isExploring = state.view === "explore" || state.view === "similar";
  switchView(state, isExploring);
  if (isExploring) return explore.show(state, models, signal);
  return state.view === "model" ? showModel(state.of, signal) : showLeaderboard(signal);
}

/** Show the part of the page that the view needs, update the links at the top, and move the focus if the part changed. */
function switchView(state, isExploring) {
  const place = `${state.view} ${state.of}`;
  $("to-explore").href = linkTo({ view: "explore", of: "" });
  $("to-leaderboard").href = linkTo({ view: "leaderboard", of: "" });
  markCurrent($("to-explore"), isExploring);
  markCurrent($("to-leaderboard"), state.view === "leaderboard");
  if (place === currentPlace) return;
  const name = { model: `Model ${state.of}`, leaderboard: "Leaderboard", similar: "Similar items" }[state.view] ?? "Explore";
  document.title = `${name} · Gramian`;
  const hasSwitched = $("explore").hidden === isExploring;
  $("explore").hidden = !isExploring;
  $("page").hidden = isExploring;
  if (!isExploring) {
    fill($("page"), make("p", { class: "dim" }, "Loading …"));
    scrollTo(0, 0);
  }
  if (currentPlace) {
    announce(name);
    if (hasSwitched) $(isExploring ? "explore" : "page").focus({ preventScroll: true });
  }
  currentPlace = place;
}

function markCurrent(anchor, isCurrent) {
  if (isCurrent) anchor.setAttribute("aria-current", "page");
  else anchor.removeAttribute("aria-current");
}

function skipToContent(event) {
  event.preventDefault(); // following the link would overwrite the state after the #
  const content = $("page").hidden ? $("columns") : $("page");
  content.tabIndex = -1;
  content.focus();
}

async function copyLink() {
  const state = readState();
  const names = models ? explore.chosenModels(state, models) : state.models;
  history.replaceState(null, "", formatState({ ...state, models: names })); // name the models even if they are the default
  $("copy").textContent = (await copyToClipboard(location.href)) ? "Copied" : "Copy it from the address bar";
  announce($("copy").textContent);
  setTimeout(() => ($("copy").textContent = "Copy link"), 2000);
}

async function copyToClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // browsers allow it only over https and on this machine
  }
}
