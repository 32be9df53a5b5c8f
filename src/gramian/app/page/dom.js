// Elements, figures in words, and the two places where the page speaks.
// Titles, ids and tags are strangers' text: they only ever become text nodes.

export const $ = (id) => document.getElementById(id);

/** An element with attributes, listeners (onclick, ...) and children. What is null, undefined or false is left out. */
export function make(tag, given = {}, ...children) {
  return dressed(document.createElement(tag), given, children);
}

export function makeSvg(tag, given = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), given, children);
}

function dressed(node, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "function") node[name] = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function button(words, given, ...children) {
  return make("button", { type: "button", ...given }, words, ...children);
}

/** Replace what is inside a place. Focus stays on what has the same key; returns whether it would otherwise be lost. */
export function fill(place, ...children) {
  const held = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (held === undefined) return false;
  const heir = [...place.querySelectorAll("[data-key]")].find((node) => node.dataset.key === held);
  heir?.focus({ preventScroll: true });
  return !heir;
}

export const count = (number) => number.toLocaleString("en");

export const counted = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

export function score(value) {
  if (Number.isInteger(value)) return count(value).replace("-", "−");
  const words = Math.abs(value) < 0.0005 ? value.toExponential(1) : value.toFixed(4);
  return words.replaceAll("-", "−");
}

export const signed = (value) => (value > 0 ? "+" : "") + score(value);

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;

/** Said to those who listen to the page rather than look at it. */
export function say(words) {
  $("said").textContent = words;
}

let again; // the timer of the next try
let wait = 2;

/** Show an error's sentence. A server that has gone away is tried again, at longer and longer intervals. */
export function complain(error) {
  const parts = [make("span", {}, error.message)];
  clearTimeout(again);
  if (error.name === "Gone") {
    parts.push(button("Try again", { onclick: retry }));
    again = setTimeout(retry, 1000 * wait);
    wait = Math.min(2 * wait, 60);
  } else {
    parts.push(button("×", { class: "bare", "aria-label": "Close", onclick: hush }));
  }
  if ($("notice").firstChild?.textContent !== error.message) $("notice").replaceChildren(...parts); // say it once
}

export function hush() {
  clearTimeout(again);
  wait = 2;
  $("notice").replaceChildren();
}

function retry() {
  dispatchEvent(new Event("hashchange"));
}
