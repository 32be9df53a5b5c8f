// Requests to the server. The `error` field of a 4xx or 5xx response becomes the message of the exception.

import { $ } from "./dom.js";

const TOKEN_KEY = "gramian-token"; // in the session storage

/** The server answered with an error; `status` is its HTTP status. */
export class RefusedRequest extends Error {
  name = "RefusedRequest";

  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The server did not answer. */
export class Unreachable extends Error {
  name = "Unreachable";
  message = "The server does not answer.";
}

/** GET with `params`, or POST of `body`; returns the JSON of the response. */
export async function fetchJson(path, { params = {}, body, signal } = {}) {
  const pairs = Object.entries(params).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  const query = new URLSearchParams(pairs).toString();
  const response = await fetchWithToken(query ? `${path}?${query}` : path, body, signal);
  const content = await response.json().catch(() => null);
  signal?.throwIfAborted(); // an outdated response never reaches the page
  const { ok, status } = response;
  if (!ok) throw new RefusedRequest(content?.error ?? `The server answered with an error, ${status}.`, status);
  if (content === null) throw new Unreachable();
  return content;
}

/** Fetch, and ask the user for a token for as long as the server refuses the one we have. */
async function fetchWithToken(url, body, signal) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN_KEY);
    const response = await fetchOnce(url, body, token, signal);
    if (response.status !== 401) return response;
    const isOutdated = sessionStorage.getItem(TOKEN_KEY) !== token; // another request has a new one meanwhile
    if (!isOutdated && !(await promptForToken(token !== null))) return response;
  }
}

async function fetchOnce(url, body, token, signal) {
  const headers = new Headers(token === null ? {} : { Authorization: `Bearer ${token}` });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const method = body === undefined ? "GET" : "POST";
  try {
    return await fetch(url, { method, headers, body: JSON.stringify(body), signal });
  } catch (error) {
    throw signal?.aborted ? error : new Unreachable();
  }
}

let openPrompt; // one dialog for all requests that wait for a token

function promptForToken(wasRefused) {
  openPrompt ??= showTokenDialog(wasRefused).finally(() => (openPrompt = undefined));
  return openPrompt;
}

/** Resolves to whether a token was entered. */
function showTokenDialog(wasRefused) {
  const dialog = $("token");
  const { token, cancel } = dialog.querySelector("form").elements;
  $("token-message").textContent = wasRefused ? "That token was not accepted." : "This server asks for a token.";
  token.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    cancel.onclick = () => dialog.close();
    dialog.onclose = () => resolve(false);
    dialog.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN_KEY, token.value.trim());
      resolve(true);
      dialog.close();
    };
  });
}
