// The history that the lists are made for: the items of a user the models were fitted on, and items picked by hand.

import { readState, updateState } from "./address.js";
import { fetchJson } from "./api.js";
import { $, announce, fill, formatCount, make, makeButton, pluralize } from "./dom.js";
import { isRemembered, nameOf, rememberItems } from "./titles.js";

const FEW_ITEMS = 10; // of a user's history, shown before "more"
const MANY_ITEMS = 500; // of a user's history, fetched at most
const HINT = "Starts from the history of a user the models were fitted on.";

let userHistory; // { user, model, items, total } of the user shown last
let showsAllItems = false;

export function listenToUserForm() {
  $("user-form").onsubmit = (event) => {
    event.preventDefault(); // the id goes into the address after the #, and is never sent as part of a URL
    updateState({ user: $("user").value.trim() });
  };
}

/** Show the box for a user id if a model has users; the id is that of the state. */
export function renderUserForm({ user }, models) {
  $("user-form").hidden = !models.some((model) => model.users > 0) && !user;
  if ($("user").dataset.shown === user) return; // somebody may be typing
  $("user").dataset.shown = $("user").value = user;
  showUserMessage(HINT, false);
}

function showUserMessage(text, isError) {
  if (isError && $("user-message").textContent !== text) announce(text);
  $("user-message").textContent = text;
  $("user-message").classList.toggle("bad", isError);
  $("user").setAttribute("aria-invalid", String(isError));
}

/** Fetch the history of the state's user, from the first chosen model that knows the user. */
export async function loadUserHistory(state, names, signal) {
  const { user } = state;
  if (!user || (userHistory?.user === user && names.includes(userHistory.model))) return;
  userHistory = undefined;
  for (const model of names) {
    try {
      const response = await fetchJson("history", { body: { model, user, k: MANY_ITEMS }, signal });
      rememberItems(response.items);
      userHistory = { ...response, user };
      showsAllItems = false;
      showUserMessage(HINT, false);
      announce(`User ${user}: ${pluralize(response.total, "item")} in the history`);
      return renderHistory(state);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  showUserMessage(`${names.length > 1 ? "None of the chosen models knows" : `${names[0]} does not know`} user ${user}.`, true);
}

/** Fetch the titles of picked items that came with a link. */
export async function loadTitles(state, names, signal) {
  const items = state.view === "similar" ? [...state.items, state.of] : state.items;
  for (const model of names) {
    const untitled = items.filter((item) => !isRemembered(item));
    if (untitled.length) rememberItems((await fetchJson("items", { params: { model, id: untitled }, signal })).items);
  }
  renderHistory(state);
}

export function pick(item) {
  announce(`Added ${nameOf(item)} to the history`);
  updateState({ items: [...readState().items, item] });
}

export function remove(item) {
  announce(`Removed ${nameOf(item)} from the history`);
  updateState({ items: readState().items.filter((other) => other !== item) });
}

/** Whether an item is in the history of the state's user. */
export function isOfUser(item, { user }) {
  return userHistory?.user === user && userHistory.items.some((row) => String(row.item) === String(item));
}

export function renderHistory(state) {
  const { user, items } = state;
  const picked = items.map((item, index) => chip(nameOf(item), `remove ${index}`, () => remove(item)));
  const clearHistory = () => updateState({ items: [], user: "" });
  const clear = makeButton("Clear", { class: "bare", "data-key": "clear", "aria-label": "Clear the history", onclick: clearHistory });
  const hasMany = items.length + (user ? 1 : 0) > 1;
  const lostFocus = fill($("history"), user && userChips(state), picked, hasMany && make("li", {}, clear));
  if (lostFocus) $("query").focus();
}

/** A chip for the user, and one for each item of the user's history, or for the first few. */
function userChips(state) {
  const { user } = state;
  const isLoaded = userHistory?.user === user;
  const { items, total } = isLoaded ? userHistory : { items: [], total: 0 };
  const removeUser = () => {
    announce(`Removed user ${user}`);
    updateState({ user: "" });
  };
  const size = total > items.length ? `the first ${formatCount(items.length)} of ${pluralize(total, "item")}` : pluralize(total, "item");
  const label = isLoaded ? `User ${user}: ${size}` : `User ${user}`;
  const shown = showsAllItems ? items : items.slice(0, FEW_ITEMS);
  const toggle = () => {
    showsAllItems = !showsAllItems;
    renderHistory(readState());
  };
  const text = showsAllItems ? "fewer" : `${formatCount(items.length - shown.length)} more`;
  const more = makeButton(text, { class: "bare", "data-key": "more", "aria-expanded": String(showsAllItems), onclick: toggle });
  return [
    chip(label, "remove user", removeUser, `Remove user ${user}`, "user"),
    shown.map(({ item }) => make("li", { class: "chip of-user" }, nameOf(item))),
    items.length > FEW_ITEMS && make("li", {}, more),
  ];
}

function chip(text, key, onclick, label = `Remove ${text}`, className = "") {
  const button = makeButton("×", { class: "bare", "aria-label": label, "data-key": key, onclick });
  return make("li", { class: `chip ${className}` }, text, button);
}
