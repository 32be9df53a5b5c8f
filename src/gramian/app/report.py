"""A report of a benchmark journal: one HTML file that needs nothing else, and its pictures as files beside it."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from gramian.app.benchmark import Benchmark, Cell, Row
from gramian.app.experiment import COSTS, Entry, Experiment, Given
from gramian.app.plots import groups, heat_map, lines, require_matplotlib, save
from gramian.app.show import in_words
from gramian.errors import InvalidInput
from gramian.journal import Journal
from gramian.models.recipe import short
from gramian.store import appearing

LEAST, MOST = 2, 12  # panels and points of a picture worth drawing
LONGEST = 120  # characters of a picture's name
KEPT = {"EDLAE": 0.0, "DLAE": 1.0}  # as DEQL's kept_weight, of which they are special cases
STYLE = Path(__file__).with_name("report.css")


def write(benchmark: Benchmark, experiments: list[Experiment], folder: Path) -> Path:
    """Write index.html and the pictures to a folder. `experiments` are the known tables; the journal may have others."""
    require_matplotlib()
    if folder.is_file():
        raise InvalidInput("a folder for the report", f"{folder}, a file", "Choose another path")
    folder.mkdir(parents=True, exist_ok=True)
    pictures = Pictures(folder)
    tables = [*experiments, *others(benchmark, {e.name for e in experiments})]
    searches = Journal(benchmark.search_path, "judge").rows
    parts = [section(benchmark, table, searches, pictures) for table in sorted(tables, key=lambda e: not is_run(benchmark, e))]
    run = [table for table in tables if is_run(benchmark, table)]
    links = " ".join(f'<a href="#{text(table.name)}">{text(table.name)}</a>' for table in run)
    body = f"<h1>Gramian: benchmark report</h1>{about(benchmark)}<nav>{links}</nav>{''.join(parts)}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Gramian benchmark</title>'
    head += f"<style>{STYLE.read_text(encoding='utf-8')}</style>"
    place = folder / "index.html"
    with appearing(place) as part:
        part.write_text(f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n', encoding="utf-8")
    return place


def others(benchmark: Benchmark, known: set[str]) -> list[Experiment]:
    """Tables that are only in the journal: comparisons on somebody's own data."""
    found: dict[str, list[Row]] = {}
    for row in [*benchmark.cells.values(), *benchmark.curves.values()]:
        if row["table"] not in known:
            found.setdefault(row["table"], []).append(row)
    tables = []
    for name, rows in found.items():
        fits = [benchmark.fits[row["fit"]] for row in rows if row.get("fit") in benchmark.fits]
        metrics = {metric: metric for fit in fits for metric in fit["metrics"]}
        data = tuple(Given(own) for own in dict.fromkeys(row["data"] for row in rows))
        models = tuple(Entry(own) for own in dict.fromkeys(row["model"] for row in rows if "model" in row))
        choose = next(iter(metrics), "ndcg@20")
        tables.append(Experiment(name, name, metrics, choose, data, models))
    return tables


def is_run(benchmark: Benchmark, table: Experiment) -> bool:
    rows = [*benchmark.cells.values(), *benchmark.curves.values()]
    return any(row["table"] == table.name for row in rows)


def about(benchmark: Benchmark) -> str:
    rows = benchmark.journal.rows
    if not rows:
        return "<p>The journal is empty.</p>"
    last = rows[-1]
    versions = ", ".join(f"{name} {number}" for name, number in last["versions"].items())
    made = (
        f"{len(benchmark.fits)} fits, the last row of {last['time'][:10]} at revision {last['revision']} on {last['machine']}; "
    )
    words = f"{made}{versions}. Settings were chosen on a validation part, never on the test part."
    return f"<p class=dim>{text(words)}</p>"


def section(benchmark: Benchmark, table: Experiment, searches: list[dict[str, Any]], pictures: Pictures) -> str:
    cells = benchmark.shown(table)
    parts = []
    for data in sorted(table.data, key=lambda data: all(cell.fit is None for cell in cells if cell.data == data.name)):
        own = [cell for cell in cells if cell.data == data.name]
        if own:
            shown = f"<div class=wide>{leaderboard(benchmark, table, own)}</div>"
            absent = None if any(cell.fit for cell in own) else data.absent()
            if absent:
                said = f"<p class=dim>Not here: {text(absent)}</p>"
                parts.append(f"<details><summary>{text(data.name)}, not here</summary>{shown}{said}</details>")
            else:
                parts.append(f"<h3>{text(data.name)}</h3>{shown}")
        drawn = [figure for figure in drawings(benchmark, table, data.name, own, searches, pictures) if figure]
        parts.append(f"<div class=pictures>{''.join(drawn)}</div>" if drawn else "")
    said = "".join(f"<li>{text(claim)}</li>" for claim in table.claims)
    body = "".join(parts) + (f"<h3>What holds here, and what does not</h3><ul>{said}</ul>" if said else "")
    if is_run(benchmark, table):
        return f'<section id="{text(table.name)}"><h2>{text(table.title)}</h2>{body}</section>'
    return f"<details><summary>{text(table.title)} <span class=dim>(not run)</span></summary>{body}</details>"


def leaderboard(benchmark: Benchmark, table: Experiment, cells: list[Cell]) -> str:
    """Published, ours and the difference for every metric, with the cost; of own data, the paired difference from the best."""
    printed = any(cell.published for cell in cells)
    pairs = {} if printed else benchmark.against_best(cells, table.choose)
    heads = ["model"]
    for metric in table.metrics:
        heads += [f"{metric}, published", "ours", "difference"] if printed else [metric, "±"]
    heads += ([] if printed else [f"behind the best in {table.choose}", "p"]) + ["fit", "memory", "settings"]
    rows = []
    ranked = cells if printed else sorted(cells, key=lambda cell: -(cell.ours(table.choose) or 0))
    for cell in ranked:
        row = [f"<td>{text(cell.model)}</td>"]
        for metric, here in table.metrics.items():
            theirs, ours = cell.published.get(metric), cell.ours(here)
            if printed:
                row += [number(theirs, here), number(None if theirs is None else ours, here), difference(theirs, ours, here)]
            else:
                error = cell.fit["stderr"].get(here) if cell.fit else None
                row += [number(ours, here), number(error, here)]
        if not printed:
            pair = pairs.get(cell.model)
            row += [
                f"<td>{-pair.difference:.4f} ± {pair.stderr:.4f}</td><td>{pair.p_value:.2g}</td>"
                if pair
                else "<td></td><td></td>"
            ]
        row += cost(cell)
        rows.append(f"<tr>{''.join(row)}</tr>")
    return f"<table><tr>{''.join(f'<th>{text(head)}</th>' for head in heads)}</tr>{''.join(rows)}</table>"


def number(value: float | None, metric: str) -> str:
    if value is None:
        return "<td></td>"
    return f"<td>{value:.3g}</td>" if metric in COSTS else f"<td>{value:.4f}</td>"


def difference(theirs: float | None, ours: float | None, metric: str) -> str:
    """Ours relative to theirs: green within a hundredth or better. Of costs, ours / theirs."""
    if theirs is None or ours is None:
        return "<td></td>"
    if metric in COSTS:
        return f"<td>× {ours / theirs:.2g}</td>" if theirs else "<td></td>"
    if theirs == 0:
        return "<td></td>"
    change = ours / theirs - 1
    return f'<td class="{"good" if change >= -0.01 else "bad"}">{change:+.1%}</td>'


def cost(cell: Cell) -> list[str]:
    if cell.fit is None:
        return ["<td></td><td></td>", f'<td class="text dim">{text(cell.note)}</td>']
    settings = cell.chosen["recipe"] if cell.chosen else cell.fit["recipe"]
    words = ", ".join(f"{name}={in_words(value)}" for name, value in settings["settings"].items())
    noted = f"<br><span class=dim>{text(cell.note)}</span>" if cell.note else ""
    return [
        f"<td>{text(cell.time)}</td><td>{cell.memory}</td>",
        f"<td class=text>{text(settings['name'])}: {text(words)}{noted}</td>",
    ]


def text(words: object) -> str:
    return html.escape(str(words))


class Pictures:
    """Drawn once, as SVG for the page and as SVG and PNG files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, set[str]()

    def add(self, name: str, picture: AbstractContextManager[Any], caption: str) -> str:
        """The picture as part of the page."""
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name.lower())[-LONGEST:]
        while safe in self.names:
            safe += "-"
        self.names.add(safe)
        with picture as figure:
            for suffix in (".svg", ".png"):
                save(figure, self.folder / f"{safe}{suffix}")
        svg = (self.folder / f"{safe}.svg").read_text(encoding="utf-8")
        drawn = svg[svg.index("<svg") :].replace('id="', f'id="{safe}-').replace("url(#", f"url(#{safe}-")
        drawn = drawn.replace('xlink:href="#', f'xlink:href="#{safe}-')
        return f"<figure>{drawn}<figcaption>{text(caption)}</figcaption></figure>"


def drawings(
    benchmark: Benchmark, table: Experiment, data: str, cells: list[Cell], searches: list[dict[str, Any]], pictures: Pictures
) -> Iterator[str]:
    """Every picture that the journal has enough for."""
    metric = table.choose
    filled = [cell for cell in cells if cell.fit is not None and metric in cell.fit["metrics"]]
    name = f"{table.name}-{data}"
    if len(filled) >= LEAST:
        quality = [(cell, cell.fit["metrics"][metric], cell.fit["stderr"].get(metric)) for cell in filled if cell.fit]
        for what, of in (("seconds of fitting", fitting), ("megabytes of memory", memory)):
            points = {cell.model: [(x, value, error)] for cell, value, error in quality if (x := of(cell)) is not None}
            if len(points) < LEAST:
                continue
            drawn = lines(points, what, metric, joined=False)
            yield pictures.add(f"{name}-{what.split()[-1]}", drawn, f"{metric} on {data} against the {what}")
        yield from breakdowns(name, data, metric, filled, pictures)
    for along, across, base in (("rank", "rank", 2.0), ("epoch", "seconds of training", 10.0)):
        curves = [r for r in benchmark.curves.values() if (r["table"], r["data"], r["along"]) == (table.name, data, along)]
        if curves:
            points = {label(row, curves): curve_points(row) for row in curves}
            drawn = lines(points, across, curves[0]["metric"], base=base)
            yield pictures.add(
                f"{name}-{along}s", drawn, f"{curves[0]['metric']} on the validation part of {data}, by {across}"
            )
    judges = dict.fromkeys(row["judge"] for row in (cell.chosen.get("chosen") for cell in cells if cell.chosen) if row)
    for judge in judges:
        yield from heat_maps(name, [row for row in searches if row["judge"] == judge], pictures)


def fitting(cell: Cell) -> float | None:
    return None if cell.fit is None or "resumed" in cell.fit else max(cell.fit["seconds"], 1e-3)


def memory(cell: Cell) -> float | None:
    return None if cell.fit is None or cell.fit["peak_bytes"] is None else max(cell.fit["peak_bytes"] / 1e6, 0.1)


def curve_points(row: Row) -> list[tuple[float, float, float | None]]:
    return [(max(point.get("seconds", point["at"]), 1e-3), point["value"], point["stderr"]) for point in row["points"]]


def label(row: Row, among: list[Row]) -> str:
    """A curve's model in a few words, and how it differs from others of its kind."""

    def name(own: Row) -> str:
        settings = own["recipe"]["settings"]
        return f"{own['recipe']['name']} {settings['loss']['name']}" if "loss" in settings else str(own["recipe"]["name"])

    alike = [own["recipe"]["settings"] for own in among if name(own) == name(row)]
    differing = [key for key in row["recipe"]["settings"] if any(own.get(key) != alike[0].get(key) for own in alike)]
    return ", ".join([name(row), *(f"{key}={in_words(row['recipe']['settings'][key])}" for key in differing)])


def breakdowns(name: str, data: str, metric: str, cells: list[Cell], pictures: Pictures) -> Iterator[str]:
    """By the users' activity and the items' popularity."""
    fits: list[tuple[str, Row]] = [
        (cell.model, cell.fit) for cell in cells if cell.fit and metric in cell.fit.get("activity", {})
    ][:MOST]
    if not fits:
        return
    known, rare = fits[0][1]["activity"][metric], fits[0][1]["popularity"]
    bars = {model: [row["mean"] for row in fit["activity"][metric]] for model, fit in fits}
    drawn = groups(bars, [f"{row['from']}–{row['to']}" for row in known], "items known of the user", metric)
    yield pictures.add(f"{name}-activity", drawn, f"{metric} on {data} for users of whom few and many items are known")
    bars = {model: [row["found"] for row in fit["popularity"]] for model, fit in fits}
    drawn = groups(bars, [f"{row['from']}–{row['to']}" for row in rare], "training users of the item", "share of targets found")
    caption = f"Targets found in lists of 20 on {data}, rare items and popular ones; each group has as many interactions"
    yield pictures.add(f"{name}-popularity", drawn, caption)


def heat_maps(name: str, rows: list[dict[str, Any]], pictures: Pictures) -> Iterator[str]:
    """The metric over dropout and l2, in a panel for each kept_weight."""
    found: dict[float, dict[tuple[float, float], float]] = {}
    for row in rows:
        kind, settings = row["recipe"]["name"], row["recipe"]["settings"]
        if (kind == "DEQL" or kind in KEPT) and row["lost_to"] is None:  # those given up were not judged on all users
            kept = KEPT.get(kind, settings.get("kept_weight", 0.0))
            found.setdefault(kept, {})[settings["dropout"], settings["l2"]] = row["value"]
    axes = [sorted({point[at] for own in found.values() for point in own}) for at in (0, 1)]
    if min(map(len, axes)) < LEAST:
        return
    panels = {}
    for kept in sorted(found)[:MOST]:
        values = np.full((len(axes[0]), len(axes[1])), np.nan)
        for (dropout, l2), value in found[kept].items():
            values[axes[0].index(dropout), axes[1].index(l2)] = value
        panels[f"kept_weight {short(kept)}"] = (axes[0], axes[1], values)
    metric = rows[0].get("metric", "value")
    drawn = heat_map(panels, "dropout", "l2", metric)
    yield pictures.add(
        f"{name}-search", drawn, f"{metric} on the validation part; the star is the best (0 is EDLAE, 1 is DLAE)"
    )
