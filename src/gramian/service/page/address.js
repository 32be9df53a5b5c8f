// The state of the page, kept in the address after the #, which browsers never send: a copied link restores everything.

const LISTS = ["items", "models", "only", "never"];
const VIEWS = ["similar", "model", "leaderboard"];

/** Return { view, of, user, items, models, only, never }; `of` is the item or model that the view shows. */
export function readState(fragment = location.hash) {
  const parameters = new Map(fragment.slice(1).split("&").map((pair) => pair.split(/=(.*)/s, 2)));
  const view = VIEWS.find((name) => parameters.has(name)) ?? "explore";
  const state = { view, of: decode(parameters.get(view) ?? ""), user: decode(parameters.get("user") ?? "") };
  for (const list of LISTS) {
    const values = (parameters.get(list) ?? "").split(",").filter(Boolean);
    state[list] = [...new Set(values.map(decode))];
  }
  return state;
}

export function formatState(state) {
  const view = state.view === "explore" ? [] : [state.of ? `${state.view}=${encodeURIComponent(state.of)}` : state.view];
  const user = state.user ? [`user=${encodeURIComponent(state.user)}`] : [];
  const lists = LISTS.filter((list) => state[list].length);
  return "#" + [...view, ...user, ...lists.map((list) => `${list}=${state[list].map(encodeURIComponent).join(",")}`)].join("&");
}

/** Return the address of the current state with some changes. */
export function linkTo(changes) {
  return formatState({ ...readState(), ...changes });
}

export function updateState(changes) {
  location.hash = linkTo(changes);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray % in a link typed by hand
  }
}
