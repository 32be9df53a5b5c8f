// What is shown is written in the address after the #, which browsers keep to themselves: a copied link is the whole state.

const LISTS = ["items", "models", "only", "never"];
const VIEWS = ["similar", "model", "leaderboard"];

export function read(fragment = location.hash) {
  const given = new Map(fragment.slice(1).split("&").map((part) => part.split(/=(.*)/s, 2)));
  const view = VIEWS.find((name) => given.has(name)) ?? "explore";
  const state = { view, of: decoded(given.get(view) ?? "") };
  for (const list of LISTS) {
    const words = (given.get(list) ?? "").split(",").filter(Boolean);
    state[list] = [...new Set(words.map(decoded))];
  }
  return state;
}

export function written(state) {
  const view = state.view === "explore" ? [] : [state.of ? `${state.view}=${encodeURIComponent(state.of)}` : state.view];
  const lists = LISTS.filter((list) => state[list].length);
  return "#" + [...view, ...lists.map((list) => `${list}=${state[list].map(encodeURIComponent).join(",")}`)].join("&");
}

/** The address that differs from this one in a few parts. */
export function link(parts) {
  return written({ ...read(), ...parts });
}

export function change(parts) {
  location.hash = link(parts);
}

function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word; // a stray % in a link typed by hand
  }
}
