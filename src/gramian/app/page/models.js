// What is known of one model, and the leaderboard of a benchmark.

import { link } from "./address.js";
import { ask } from "./api.js";
import { alongLinear, barChart, lineChart, upLinear, upLog } from "./charts.js";
import { $, count, fill, make, percent, say } from "./dom.js";

const COST = /^(minutes|GB|rank)/; // figures of which less is better
const POPULAR = 0.1; // the share of items called the most popular

export async function modelPage(name, signal) {
  const model = await told(ask(`models/${encodeURIComponent(name)}`, { signal }), name);
  if (!model) return;
  const here = make("a", { href: link({ view: "explore", of: "", models: [model.name] }) }, "Explore with this model alone");
  fill(
    $("page"),
    make("h1", {}, model.name),
    make("p", {}, make("code", {}, model.words), " · ", here),
    model.failed && make("p", { class: "bad" }, `A newer version could not be loaded: ${model.failed}`),
    make("div", { class: "facts" }, recipe(model), data(model), measured(model)),
    make("div", { class: "pictures" }, picture(model.picture), popularity(model.popularity)),
  );
}

/** The answer; or nothing, and the server's sentence in place of the page. */
async function told(asked, heading) {
  try {
    return await asked;
  } catch (error) {
    if (error.name !== "Refused") throw error;
    say(error.message);
    fill($("page"), make("h1", {}, heading), make("p", { class: "refused" }, error.message));
    return null;
  }
}

function recipe({ recipe: { name, settings } }) {
  return facts("Recipe", [["model", name], ...Object.entries(settings).map(([own, value]) => [own, inWords(value)])]);
}

function data({ users, items, interactions, loaded }) {
  const when = new Date(loaded).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const sizes = { users, items, interactions };
  const rows = Object.entries(sizes).map(([name, size]) => [name, count(size)]);
  return facts("Data", [...rows, ["loaded", when]]);
}

function measured({ measured: found }) {
  return found.map(({ table, data: on, metrics }) => {
    const rows = Object.entries(metrics).map(([metric, value]) => [metric, value.toFixed(4)]);
    return facts(`Measured on ${on}`, rows, table);
  });
}

function facts(heading, rows, note) {
  const body = rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
  const about = note && make("p", { class: "small" }, note);
  return make("section", {}, make("h2", {}, heading), about, make("table", {}, body));
}

/** A setting: a number, a word, or a part with settings of its own. */
function inWords(value) {
  if (value === null) return "none";
  if (typeof value !== "object") return String(value);
  const own = Object.entries(value.settings ?? {}).map(([name, inner]) => `${name}=${inWords(inner)}`);
  return `${value.name}(${own.join(", ")})`;
}

function picture(given) {
  if (given?.kind === "spectrum") return spectrum(given.values);
  if (given?.kind === "weights") return weights(given);
  return null;
}

function spectrum(values) {
  const points = values.map((value, at) => [at + 1, value]).filter(([, value]) => value > 0);
  if (points.length < 2) return null;
  return lineChart({
    title: "Spectrum",
    caption: "Singular values of the model, largest first, on a logarithmic scale.",
    x: alongLinear("number", 1, points.at(-1)[0]),
    y: upLog("value", points.at(-1)[1], points[0][1]),
    lines: [{ name: "singular values", points }],
  });
}

function weights({ edges, counts }) {
  return barChart({
    title: "Weights",
    caption: "How many of the item-to-item weights have which size, on a logarithmic scale.",
    x: alongLinear("weight", edges[0], edges.at(-1)),
    y: upLog("weights", 0.7, Math.max(...counts, 1)),
    edges,
    heights: counts,
  });
}

function popularity(curve) {
  if (!curve) return null;
  const { items, events, lists } = curve;
  const along = (shares) => items.map((share, at) => [share, shares[at]]);
  const few = percent(POPULAR);
  const [inEvents, inLists] = [events, lists].map((shares) => percent(at(items, shares, POPULAR)));
  return lineChart({
    title: "Popularity",
    caption: `The ${few} most popular items have ${inEvents} of the events and ${inLists} of the recommendations.`,
    x: alongLinear("share of items, the most popular first", 0, 1, percent),
    y: upLinear("share", 0, 1, percent),
    lines: [
      { name: "recommendations", points: along(lists) },
      { name: "events", points: along(events) },
    ],
  });
}

/** A curve's height between its points. */
function at(xs, ys, x) {
  const next = Math.max(1, xs.findIndex((own) => own >= x));
  const [x0, x1, y0, y1] = [xs[next - 1], xs[next], ys[next - 1], ys[next]];
  return x1 > x0 ? y0 + ((x - x0) / (x1 - x0)) * (y1 - y0) : y1;
}

export async function leaderboard(signal) {
  const answer = await told(ask("leaderboard", { signal }), "Leaderboard");
  if (!answer) return;
  const { tables } = answer;
  const parts = tables.map((table, number) => {
    const head = make("summary", {}, make("h2", {}, table.title));
    return make("details", { open: number === 0 }, head, table.data.map((own) => ranking(table, own)));
  });
  const about = "Published figures, ours, and how far ours are from them. Time and memory are of our fits.";
  const words = tables.length ? about : "The journal is empty.";
  fill($("page"), make("h1", {}, "Leaderboard"), make("p", { class: "dim" }, words), parts);
}

function ranking({ metrics }, { name, rows }) {
  const printed = metrics.filter((metric) => rows.some(({ figures }) => isNumber(figures[metric]?.published)));
  const body = rows.map((row) => standing(row, metrics, printed));
  const table = make("table", {}, heads(metrics, printed), make("tbody", {}, body));
  const about = { class: "wide", tabindex: 0, role: "region", "aria-label": `Table of ${name}` };
  return [make("h3", {}, name), make("div", about, table)];
}

/** Two rows: the metrics, and under each whose figures they are. Only some are published. */
function heads(metrics, printed) {
  const head = (words, given) => make("th", { scope: "col", ...given }, words);
  const tall = (words) => head(words, { rowspan: 2 });
  const over = metrics.map((metric) => head(metric, { scope: "colgroup", colspan: printed.includes(metric) ? 3 : 1 }));
  const under = metrics.map((metric) => (printed.includes(metric) ? ["published", "ours", "difference"] : ["ours"]));
  const top = make("tr", {}, tall("model"), over, tall("fit"), tall("memory"), tall("settings"));
  return make("thead", {}, top, make("tr", {}, under.flat().map((words) => head(words))));
}

function standing(row, metrics, printed) {
  const cell = (words) => make("td", {}, words);
  const figures = metrics.map((metric) => {
    const { published, ours } = row.figures[metric] ?? {};
    const own = cell(figure(ours, metric));
    return printed.includes(metric) ? [cell(figure(published, metric)), own, difference(published, ours, metric)] : own;
  });
  const words = [row.settings, row.note].filter(Boolean).join("; ");
  const costs = [cell(duration(row.seconds)), cell(bytes(row.peak_bytes)), make("td", { class: "text" }, words)];
  return make("tr", {}, make("th", { scope: "row" }, row.model), figures, costs);
}

const isNumber = (value) => typeof value === "number";

function figure(value, metric) {
  if (!isNumber(value)) return "";
  return COST.test(metric) ? String(Number(value.toPrecision(3))) : value.toFixed(4);
}

/** Relative to what was published: green within a hundredth or better. Of costs, how many times as much. */
function difference(published, ours, metric) {
  if (!isNumber(published) || !isNumber(ours) || published === 0) return make("td");
  if (COST.test(metric)) return make("td", {}, `× ${Number((ours / published).toPrecision(2))}`);
  const change = ours / published - 1;
  const words = `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)}%`;
  return make("td", { class: change >= -0.01 ? "good" : "bad" }, words);
}

function duration(seconds) {
  if (!isNumber(seconds)) return "";
  if (seconds < 100) return `${Number(seconds.toPrecision(2))} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function bytes(size) {
  if (!isNumber(size)) return "";
  return size < 1e9 ? `${Number((size / 1e6).toPrecision(2))} MB` : `${Number((size / 1e9).toPrecision(2))} GB`;
}
