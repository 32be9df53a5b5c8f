// The leaderboard: the tables of a benchmark journal.

import { fetchJson } from "./api.js";
import { $, fill, formatMean, loadOrShowRefusal, make } from "./dom.js";

const COST_METRIC = /^(minutes|GB|rank)/; // printed names of costs: compared by their ratio
const GOOD_DIFFERENCE = -0.01; // relative to the published figure
const SMALLEST_P = 1e-4; // smaller p-values are shown as a bound

export async function showLeaderboard(signal) {
  const response = await loadOrShowRefusal(fetchJson("leaderboard", { signal }), "Leaderboard");
  if (!response) return;
  const { tables } = response;
  const sections = tables.map((table, number) => {
    const head = make("summary", {}, make("h2", {}, table.title));
    return make("details", { open: number === 0 }, head, table.data.map((data) => dataSection(table, data)));
  });
  fill($("page"), make("h1", {}, "Leaderboard"), !tables.length && make("p", { class: "dim" }, "The journal is empty."), sections);
}

function dataSection({ title, metrics, choose }, { name, about, rows }) {
  const published = metrics.filter((metric) => rows.some(({ figures }) => isNumber(figures[metric]?.published)));
  const isRanked = published.length === 0 && rows.length > 1; // best first, with the differences from the best
  const columns = metrics.flatMap((metric) => metricColumns(metric, published.includes(metric)));
  const all = [modelColumn, ...columns, ...(isRanked ? differenceColumns(choose) : []), ...costColumns];
  const head = make("tr", {}, all.map(({ head }) => make("th", { scope: "col" }, head)));
  const body = rows.map((row) => make("tr", {}, all.map(({ cell }) => cell(row))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, body));
  const scroller = { class: "wide", tabindex: 0, role: "region", "aria-label": `Table of ${name}` };
  return [!title.includes(name) && make("h3", {}, name), make("p", { class: "dim" }, about), make("div", scroller, table)];
}

// A column has a head, and makes the cell of a row.

const modelColumn = {
  head: "model",
  cell: ({ model, is_winner: isWinner }) =>
    make("th", { scope: "row" }, model, isWinner && [" ", make("span", { class: "badge" }, "best")]),
};

/** Ours alone; or the published figure, ours and the difference. */
function metricColumns(metric, isPublished) {
  const figureOf = ({ figures }) => figures[metric] ?? {};
  const ours = (row) => make("td", {}, formatFigure(figureOf(row).ours, metric, figureOf(row).stderr));
  if (!isPublished) return [{ head: metric, cell: ours }];
  return [
    { head: `${metric}, published`, cell: (row) => make("td", {}, formatFigure(figureOf(row).published, metric)) },
    { head: "ours", cell: ours },
    { head: "difference", cell: (row) => differenceCell(figureOf(row), metric) },
  ];
}

const differenceColumns = (metric) => [
  {
    head: `behind the best in ${metric}`,
    cell: ({ against_best: paired }) => make("td", {}, paired ? formatMean(-paired.difference, paired.stderr) : ""),
  },
  { head: "p", cell: ({ against_best: paired }) => make("td", {}, paired ? formatP(paired.p_value) : "") },
];

const costColumns = [
  { head: "fitting time", cell: ({ seconds }) => make("td", {}, formatDuration(seconds)) },
  { head: "peak memory", cell: ({ peak_bytes: size }) => make("td", {}, formatBytes(size)) },
  { head: "parameters", cell: ({ params, note }) => make("td", { class: "text" }, [params, note].filter(Boolean).join("; ")) },
];

const isNumber = (value) => typeof value === "number";

function formatFigure(value, metric, stderr) {
  if (!isNumber(value)) return "";
  return COST_METRIC.test(metric) ? String(Number(value.toPrecision(3))) : formatMean(value, stderr);
}

const formatP = (value) => (value < SMALLEST_P ? "< 0.0001" : String(Number(value.toPrecision(2))));

/** The difference to the published figure in percent, green if ours is better or close; for costs, their ratio. */
function differenceCell({ published, ours }, metric) {
  if (!isNumber(published) || !isNumber(ours) || published === 0) return make("td");
  if (COST_METRIC.test(metric)) return make("td", {}, `× ${Number((ours / published).toPrecision(2))}`);
  const relative = ours / published - 1;
  const text = `${relative < 0 ? "−" : "+"}${Math.abs(100 * relative).toFixed(1)}%`;
  return make("td", { class: relative >= GOOD_DIFFERENCE ? "good" : "bad" }, text);
}

function formatDuration(seconds) {
  if (!isNumber(seconds)) return "";
  if (seconds < 0.01) return "under 0.01 s";
  if (seconds < 100) return `${Number(seconds.toPrecision(2))} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function formatBytes(size) {
  if (!isNumber(size)) return "";
  const [unit, name] = size < 1e6 ? [1e3, "kB"] : size < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${Number((size / unit).toPrecision(2))} ${name}`;
}
