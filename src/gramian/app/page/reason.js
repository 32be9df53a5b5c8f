// Why an item is recommended: one panel, glimpsed by hovering or focus, kept open by a click, a tap or Enter.

import { button, fill, make, say, score, signed } from "./dom.js";

const LINGER = 120; // milliseconds over a row before it opens
const panel = make("div", { id: "reason", class: "reason", role: "group", "aria-label": "Why" });
let open; // { line, why, kept, asking } of the row it is open for

/** Let a row of a list open its reason. `explained` asks for it; null where the list is not made from a history. */
export function offer(line, why, name, explained) {
  let lingering;
  const glimpse = () => open?.kept || show(line, why, name, explained, false);
  const leave = () => open?.line === line && !open.kept && close();
  line.onpointerenter = (event) => {
    if (event.pointerType === "mouse") lingering = setTimeout(glimpse, LINGER);
  };
  line.onpointerleave = () => {
    clearTimeout(lingering);
    leave();
  };
  why.onfocus = () => why.matches(":focus-visible") && glimpse();
  why.onblur = leave;
  why.onclick = () => {
    clearTimeout(lingering);
    if (open?.line === line && open.kept) close();
    else show(line, why, name, explained, true);
  };
}

export function close() {
  if (!open) return;
  const { line, why, asking } = open;
  const inside = panel.contains(document.activeElement);
  open = undefined;
  asking.abort();
  panel.remove();
  why.setAttribute("aria-expanded", "false");
  why.removeAttribute("aria-controls");
  twins(line).forEach((twin) => twin.classList.remove("same"));
  if (inside) why.focus();
}

document.addEventListener("keydown", (event) => event.key === "Escape" && close());
document.addEventListener("pointerdown", ({ target }) => {
  if (open && !panel.contains(target) && !open.why.contains(target)) close();
});

function show(line, why, name, explained, kept) {
  if (open?.line === line) return keep();
  close();
  open = { line, why, kept, asking: new AbortController() };
  why.setAttribute("aria-expanded", "true");
  why.setAttribute("aria-controls", panel.id);
  twins(line).forEach((twin) => twin.classList.add("same"));
  panel.classList.toggle("kept", kept);
  tell(name, open, explained);
}

function keep() {
  open.kept = true;
  panel.classList.add("kept");
  read();
}

/** Aloud, once it was asked for rather than passed by. */
function read() {
  say([...panel.querySelectorAll("p, li")].map((part) => part.textContent).join(". "));
}

/** The rows of the same item in all lists. */
function twins(line) {
  const rows = line.closest(".columns")?.querySelectorAll("li[data-item]") ?? [];
  return [...rows].filter((row) => row.dataset.item === line.dataset.item);
}

async function tell(name, mine, explained) {
  const shut = button("×", { class: "bare shut", "aria-label": "Close", onclick: close });
  const head = make("p", { class: "head" }, "Why ", make("b", {}, name));
  const put = (...parts) => {
    if (open !== mine) return; // it was closed, or opened for another
    fill(panel, head, shut, parts);
    mine.line.append(panel);
    place(mine.line);
    if (mine.kept) read();
  };
  if (!explained) return put(make("p", {}, "Nothing picked is known, so items are ranked by how many users they have."));
  try {
    put(bars(await explained(mine.asking.signal)));
  } catch (error) {
    if (!mine.asking.signal.aborted) put(make("p", {}, error.message));
  }
}

/** What each history item adds, largest first, and the sum. */
function bars({ contributions, score: total }) {
  const sorted = contributions.toSorted((one, other) => Math.abs(other.value) - Math.abs(one.value));
  const least = Math.min(0, ...sorted.map(({ value }) => value));
  const span = Math.max(0, ...sorted.map(({ value }) => value)) - least || 1;
  const lines = sorted.map(({ item, title, value }) => {
    const bar = make("span", { class: value < 0 ? "bar minus" : "bar" });
    bar.style.width = `${(100 * Math.abs(value)) / span}%`;
    bar.style.marginInlineStart = `${(100 * (Math.min(0, value) - least)) / span}%`;
    return make("li", {}, make("span", {}, title ?? String(item)), make("span", { class: "value" }, signed(value)), bar);
  });
  const sum = make("p", { class: "sum" }, make("span", {}, "Score"), make("span", { class: "value" }, score(total)));
  return [make("ol", { class: "bars", tabindex: lines.length > 8 ? 0 : null }, lines), sum];
}

/** Beside the row, to whichever side has room; under it where neither has. Narrow screens place it by style alone. */
function place(line) {
  const row = line.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const room = document.documentElement.clientWidth;
  const side = row.right + width < room ? "right" : row.left > width ? "left" : "under";
  panel.dataset.side = side;
  const below = innerHeight - 8 - (row.top + height);
  panel.style.top = side === "under" ? "" : `${Math.max(Math.min(0, below), 8 - row.top)}px`;
}
