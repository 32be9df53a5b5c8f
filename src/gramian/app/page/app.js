// The shell: the address says what to show, and every change of it shows that anew.

import { read, link, written } from "./address.js";
import { ask } from "./api.js";
import { $, complain, fill, hush, make, say } from "./dom.js";
import * as explore from "./explore.js";
import { leaderboard, modelPage } from "./models.js";

let models; // as the server told them once
let current = new AbortController(); // of what is being shown
let shown; // the view and what it is of

addEventListener("hashchange", show);
$("copy").onclick = copyLink;
$("skip").onclick = skip;
explore.listen();
show();

async function show() {
  current.abort(); // so that an older answer can not come after a newer one
  current = new AbortController();
  const { signal } = current;
  try {
    models ??= (await ask("models", { signal })).models;
    await view(read(), signal);
    hush();
  } catch (error) {
    if (!signal.aborted) complain(error);
  }
}

function view(state, signal) {
  const exploring = state.view === "explore" || state.view === "similar";
  arrive(state, exploring);
  if (exploring) return explore.show(state, models, signal);
  return state.view === "model" ? modelPage(state.of, signal) : leaderboard(signal);
}

/** Turn to the view: which part is visible, the links at the top, and the focus when it is another page than before. */
function arrive(state, exploring) {
  const place = `${state.view} ${state.of}`;
  $("to-explore").href = link({ view: "explore", of: "" });
  $("to-leaderboard").href = link({ view: "leaderboard", of: "" });
  mark($("to-explore"), exploring);
  mark($("to-leaderboard"), state.view === "leaderboard");
  if (place === shown) return;
  const name = { model: `Model ${state.of}`, leaderboard: "Leaderboard", similar: "Similar items" }[state.view] ?? "Explore";
  document.title = `${name} · Gramian`;
  const turned = $("explore").hidden === exploring;
  $("explore").hidden = !exploring;
  $("page").hidden = exploring;
  if (!exploring) {
    fill($("page"), make("p", { class: "dim" }, "Loading …"));
    scrollTo(0, 0);
  }
  if (shown) {
    say(name);
    if (turned) $(exploring ? "explore" : "page").focus({ preventScroll: true });
  }
  shown = place;
}

function mark(anchor, here) {
  if (here) anchor.setAttribute("aria-current", "page");
  else anchor.removeAttribute("aria-current");
}

function skip(event) {
  event.preventDefault(); // the address after # is taken
  const place = $("page").hidden ? $("columns") : $("page");
  place.tabIndex = -1;
  place.focus();
}

async function copyLink() {
  const state = read();
  const full = written({ ...state, models: models ? explore.chosen(state, models) : state.models });
  history.replaceState(null, "", full); // with the models said, even where they are the default
  $("copy").textContent = (await copied(location.href)) ? "Copied" : "Copy it from the address bar";
  say($("copy").textContent);
  setTimeout(() => ($("copy").textContent = "Copy link"), 2000);
}

async function copied(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    return false; // plain http from another machine: browsers lend no clipboard
  }
}
