// Elements, number formats, error messages and announcements for screen readers.
// Titles, ids and tags are untrusted: they only ever become text nodes.

export const $ = (id) => document.getElementById(id);

/** Make an element with attributes, listeners (onclick, ...) and children; null, undefined and false are left out. */
export function make(tag, attributes = {}, ...children) {
  return setUp(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return setUp(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function setUp(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node[name] = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function makeButton(text, attributes, ...children) {
  return make("button", { type: "button", ...attributes }, text, ...children);
}

/** Replace the children of a node. The focus stays on the element with the same data-key; returns whether it was lost. */
export function fill(parent, ...children) {
  const focusedKey = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (focusedKey === undefined) return false;
  const successor = [...parent.querySelectorAll("[data-key]")].find((node) => node.dataset.key === focusedKey);
  successor?.focus({ preventScroll: true });
  return !successor;
}

export const formatCount = (number) => number.toLocaleString("en");

export const pluralize = (number, noun) => `${formatCount(number)} ${noun}${number === 1 ? "" : "s"}`;

export function formatScore(value) {
  if (Number.isInteger(value)) return formatCount(value).replace("-", "−");
  const text = Math.abs(value) < 0.0005 ? value.toExponential(1) : value.toFixed(4);
  return text.replaceAll("-", "−");
}

export const formatSigned = (value) => (value > 0 ? "+" : "") + formatScore(value);

/** Format the mean of a metric over users, with its standard error if it has one. */
export function formatMean(value, stderr) {
  return typeof stderr === "number" ? `${value.toFixed(4)} ± ${stderr.toFixed(4)}` : value.toFixed(4);
}

export const formatPercent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;

/** Tell screen readers. */
export function announce(text) {
  $("announcement").textContent = text;
}

/** Return the response; or null, with the server's refusal shown in place of the page. */
export async function loadOrShowRefusal(response, heading) {
  try {
    return await response;
  } catch (error) {
    if (error.name !== "RefusedRequest") throw error;
    announce(error.message);
    fill($("page"), make("h1", {}, heading), make("p", { class: "refused" }, error.message));
    return null;
  }
}

const FIRST_RETRY = 2; // seconds; each further wait is twice as long
const LONGEST_RETRY = 60; // seconds
let retryTimer;
let retrySeconds = FIRST_RETRY;

/** Show the message of an error. If the server does not answer, try again after a while. */
export function showError(error) {
  const parts = [make("span", {}, error.message)];
  clearTimeout(retryTimer);
  if (error.name === "Unreachable") {
    parts.push(makeButton("Try again", { onclick: retry }));
    retryTimer = setTimeout(retry, 1000 * retrySeconds);
    retrySeconds = Math.min(2 * retrySeconds, LONGEST_RETRY);
  } else {
    parts.push(makeButton("×", { class: "bare", "aria-label": "Close", onclick: clearError }));
  }
  if ($("notice").firstChild?.textContent !== error.message) $("notice").replaceChildren(...parts); // read aloud only once
}

export function clearError() {
  clearTimeout(retryTimer);
  retrySeconds = FIRST_RETRY;
  $("notice").replaceChildren();
}

function retry() {
  dispatchEvent(new Event("hashchange"));
}
