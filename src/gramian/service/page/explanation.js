// Why an item is recommended: one panel. Hovering and focus open a preview; a click, a tap or Enter pins it.

import { announce, fill, formatScore, formatSigned, make, makeButton, pluralize } from "./dom.js";
import { formatItem } from "./titles.js";

const HOVER_DELAY = 120; // milliseconds over a row before its preview opens
const MAX_ROWS = 20; // contributions shown one by one; the others are added up
const SCROLLED_ROWS = 8; // with more contributions the list scrolls, and must be reachable by keyboard
const panel = make("div", { id: "explanation", class: "explanation", role: "group", "aria-label": "Why" });
let open; // { row, button, isPinned, request } of the row that the panel is open for

/** Let a row of a list open its explanation. `explain` fetches it; null if the list was not made from a history. */
export function attach(row, button, name, explain) {
  let hovering;
  const preview = () => open?.isPinned || show(row, button, name, explain, false);
  const leave = () => open?.row === row && !open.isPinned && close();
  row.onpointerenter = (event) => {
    if (event.pointerType === "mouse") hovering = setTimeout(preview, HOVER_DELAY);
  };
  row.onpointerleave = () => {
    clearTimeout(hovering);
    leave();
  };
  button.onfocus = () => button.matches(":focus-visible") && preview();
  button.onblur = leave;
  button.onclick = () => {
    clearTimeout(hovering);
    if (open?.row === row && open.isPinned) close();
    else show(row, button, name, explain, true);
  };
}

export function close() {
  if (!open) return;
  const { row, button, request } = open;
  const hasFocus = panel.contains(document.activeElement);
  open = undefined;
  request.abort();
  panel.remove();
  button.setAttribute("aria-expanded", "false");
  button.removeAttribute("aria-controls");
  rowsOfSameItem(row).forEach((other) => other.classList.remove("same-item"));
  if (hasFocus) button.focus();
}

document.addEventListener("keydown", (event) => event.key === "Escape" && close());
document.addEventListener("pointerdown", ({ target }) => {
  if (open && !panel.contains(target) && !open.button.contains(target)) close();
});

function show(row, button, name, explain, isPinned) {
  if (open?.row === row) return pin();
  close();
  open = { row, button, isPinned, request: new AbortController() };
  button.setAttribute("aria-expanded", "true");
  button.setAttribute("aria-controls", panel.id);
  rowsOfSameItem(row).forEach((other) => other.classList.add("same-item"));
  panel.classList.toggle("pinned", isPinned);
  load(name, open, explain);
}

function pin() {
  open.isPinned = true;
  panel.classList.add("pinned");
  announcePanel();
}

/** Only for a pinned panel: a preview that is merely passed is not announced. */
function announcePanel() {
  announce([...panel.querySelectorAll("p, li")].map((part) => part.textContent).join(". "));
}

/** Return the rows of the same item in all lists. */
function rowsOfSameItem(row) {
  const rows = row.closest(".columns")?.querySelectorAll("li[data-item]") ?? [];
  return [...rows].filter((other) => other.dataset.item === row.dataset.item);
}

async function load(name, opened, explain) {
  const closeButton = makeButton("×", { class: "bare close", "aria-label": "Close", onclick: close });
  const head = make("p", { class: "head" }, "Why ", make("bdi", {}, make("b", {}, name)), "?");
  const render = (...parts) => {
    if (open !== opened) return; // closed meanwhile, or opened for another row
    fill(panel, head, closeButton, parts);
    opened.row.append(panel);
    position(opened.row);
    if (opened.isPinned) announcePanel();
  };
  if (!explain) return render(make("p", {}, "No item of the history is known, so items are ranked by their number of users."));
  try {
    render(contributionBars(await explain(opened.request.signal)));
  } catch (error) {
    if (!opened.request.signal.aborted) render(make("p", {}, error.message));
  }
}

/** What each item of the history adds to the score, strongest first, and the sum. */
function contributionBars({ contributions, score }) {
  const others = contributions.slice(MAX_ROWS);
  const added = contributions.slice(0, MAX_ROWS).map((row) => ({ name: formatItem(row), value: row.value }));
  if (others.length) {
    const value = others.reduce((sum, row) => sum + row.value, 0);
    added.push({ name: `${pluralize(others.length, "other item")}, added up`, value });
  }
  const values = added.map(({ value }) => value);
  const least = Math.min(0, ...values);
  const span = Math.max(0, ...values) - least || 1;
  const rows = added.map(({ name, value }) => {
    const bar = make("span", { class: value < 0 ? "bar minus" : "bar" });
    bar.style.width = `${(100 * Math.abs(value)) / span}%`;
    bar.style.marginInlineStart = `${(100 * (Math.min(0, value) - least)) / span}%`;
    return make("li", {}, make("span", {}, name), make("span", { class: "value" }, formatSigned(value)), bar);
  });
  const about = make("p", { class: "small" }, "What each item of the history adds to the score");
  const sum = make("p", { class: "sum" }, make("span", {}, "Score "), make("span", { class: "value" }, formatScore(score)));
  return [about, make("ol", { class: "bars", tabindex: rows.length > SCROLLED_ROWS ? 0 : null }, rows), sum];
}

/** Put the panel beside the row where there is room, else under it. On narrow screens the style sheet places it. */
function position(row) {
  const box = row.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const room = document.documentElement.clientWidth;
  const side = box.right + width < room ? "right" : box.left > width ? "left" : "under";
  panel.dataset.side = side;
  const below = innerHeight - 8 - (box.top + height);
  panel.style.top = side === "under" ? "" : `${Math.max(Math.min(0, below), 8 - box.top)}px`;
}
