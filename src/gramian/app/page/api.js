// Questions to the server. What it refuses it says in a sentence, which becomes the error's message.

import { $ } from "./dom.js";

const TOKEN = "gramian-token";

export class Refused extends Error {
  name = "Refused";
}

export class Gone extends Error {
  name = "Gone";
  message = "The server does not answer.";
}

/** GET with `params`, or POST of `body`. */
export async function ask(path, { params = {}, body, signal } = {}) {
  const pairs = Object.entries(params).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const query = new URLSearchParams(pairs).toString();
  const response = await admitted(query ? `${path}?${query}` : path, body, signal);
  const answer = await response.json().catch(() => null);
  signal?.throwIfAborted(); // an old answer never reaches the page
  if (!response.ok) throw new Refused(answer?.error ?? `The server answered with an error, ${response.status}.`);
  if (answer === null) throw new Gone();
  return answer;
}

/** The response, once the server accepts the token or needs none. */
async function admitted(url, body, signal) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const response = await sent(url, body, token, signal);
    if (response.status !== 401) return response;
    const changed = sessionStorage.getItem(TOKEN) !== token; // by another question, meanwhile
    if (!changed && !(await tokenGiven(token !== null))) return response;
  }
}

async function sent(url, body, token, signal) {
  const headers = new Headers(token === null ? {} : { Authorization: `Bearer ${token}` });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const method = body === undefined ? "GET" : "POST";
  try {
    return await fetch(url, { method, headers, body: JSON.stringify(body), signal });
  } catch (error) {
    throw signal?.aborted ? error : new Gone();
  }
}

let asking; // one dialog for all questions that wait for it

function tokenGiven(refused) {
  asking ??= askToken(refused).finally(() => (asking = undefined));
  return asking;
}

function askToken(refused) {
  const dialog = $("token");
  const { token, cancel } = dialog.querySelector("form").elements;
  $("token-words").textContent = refused ? "That token was not accepted." : "This server asks for a token.";
  token.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    cancel.onclick = () => dialog.close();
    dialog.onclose = () => resolve(false);
    dialog.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, token.value.trim());
      resolve(true);
      dialog.close();
    };
  });
}
