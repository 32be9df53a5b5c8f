"""The pictures of a report: each is drawn once, saved as SVG and PNG, and put into the page in the page's colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from gramian.core.params import format_json_params, format_value
from gramian.experiments.experiment import Experiment
from gramian.experiments.plots import (
    SERIES_COLOURS,
    PlotPoint,
    has_error_bars,
    plot_grouped_bars,
    plot_heat_map,
    plot_lines,
    save_figure,
)
from gramian.experiments.runner import BREAKDOWN_CUTOFF, Benchmark, Cell, JournalRow

MIN_POINTS = 2  # fewer points, or values of a parameter, make no picture
MAX_SERIES = 12  # models in a bar chart and panels of a heat map; more cannot be told apart
LONGEST_FILE_STEM = 120  # characters of a picture's file name without its suffix
FIXED_KEPT_WEIGHTS = {"EDLAE": 0.0, "DLAE": 1.0}  # the kept_weight with which DEQL is the same model
PAGE_COLOURS = {"#000000": "currentColor"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES_COLOURS, start=1)
}  # of a plot → of the page, which has a light and a dark one


@dataclass(frozen=True)
class Picture:
    """A picture in the page: its SVG, and a caption."""

    svg: str
    caption: str


class PictureFolder:
    """Saves pictures as SVG and PNG files under unique names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stems = folder, set[str]()

    def add(self, name: str, plot: AbstractContextManager[Any], caption: str) -> Picture:
        """Save a plot, and return it for the page."""
        stem = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name.lower())[-LONGEST_FILE_STEM:]
        while stem in self.stems:
            stem += "-"
        self.stems.add(stem)
        svg = StringIO()
        with plot as figure:
            for suffix in (".svg", ".png"):
                save_figure(figure, self.folder / f"{stem}{suffix}")
            figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        return Picture(adapt_svg(svg.getvalue(), stem), caption)


def adapt_svg(svg: str, prefix: str) -> str:
    """Return an SVG for the page: in the page's colours, and with a prefix before its ids, which are unique in a page."""
    svg = svg[svg.index("<svg") :].replace('id="', f'id="{prefix}-').replace("url(#", f"url(#{prefix}-")
    svg = svg.replace('xlink:href="#', f'xlink:href="#{prefix}-')
    return re.sub(r"(fill|stroke): (#[0-9a-f]{6})", lambda match: f"{match[1]}: {PAGE_COLOURS.get(match[2], match[2])}", svg)


def draw_pictures(
    benchmark: Benchmark,
    table: Experiment,
    data: str,
    cells: list[Cell],
    searches: list[dict[str, Any]],
    pictures: PictureFolder,
) -> Iterator[Picture]:
    """Draw every picture of a data set that the journal has enough points for."""
    name, metric = f"{table.name}-{data}", table.choose
    fits = {cell.model: cell.fit for cell in cells if cell.fit is not None and metric in cell.fit["metrics"]}
    if len(fits) >= MIN_POINTS:
        yield from draw_costs(name, data, metric, fits, pictures)
        yield from draw_breakdowns(name, data, metric, fits, pictures)
    axes = {"rank": ("rank", 2.0), "epoch": ("training time (seconds)", 10.0)}
    settings = {
        r["along"]: (r["along"], 10.0) for r in benchmark.curves.values() if (r["table"], r["data"]) == (table.name, data)
    }
    for along, (x_label, log_base) in (settings | axes).items():
        rows = [r for r in benchmark.curves.values() if (r["table"], r["data"], r["along"]) == (table.name, data, along)]
        for is_tuned in (False, True):
            curves = [row for row in rows if ("tuned" in row) == is_tuned]
            if not curves:
                continue
            points = {label_curve(row, curves): curve_points(row) for row in curves}
            curve_metric, split_name = curves[0]["metric"], "test" if is_tuned else "validation"
            plot = plot_lines(points, x_label, f"{curve_metric} on the {split_name} split", log_base=log_base)
            cost = "training time, a point for each epoch" if along == "epoch" else along
            over = "seeds" if all("seeds" in row for row in curves) else "users"
            caption = f"{curve_metric} on the {split_name} split of {data} by {cost}.{describe_error_bars(points, over)}"
            if is_tuned:
                caption += " At every rank, the other parameters were chosen on the validation split."
            yield pictures.add(f"{name}-{'tuned-' if is_tuned else ''}{along}s", plot, caption)
    chosen = [cell.row["chosen"] for cell in cells if cell.row and cell.row.get("chosen")]
    for objective in dict.fromkeys(search["objective"] for search in chosen):
        yield from draw_search(name, [row for row in searches if row["objective"] == objective], pictures)


def draw_costs(name: str, data: str, metric: str, fits: dict[str, JournalRow], pictures: PictureFolder) -> Iterator[Picture]:
    """Draw quality against the time and against the memory of the fits."""
    for cost, cost_name, x_label, cost_of in (
        ("fitting", "fitting time", "fitting time (seconds)", fit_seconds),
        ("memory", "peak memory of the fit", "peak memory of the fit (MB)", fit_megabytes),
    ):
        points: dict[str, list[PlotPoint]] = {
            model: [(x, fit["metrics"][metric], fit["stderr"].get(metric))]
            for model, fit in fits.items()
            if (x := cost_of(fit)) is not None
        }
        if len(points) >= MIN_POINTS:
            plot = plot_lines(points, x_label, metric, joined=False)
            caption = f"{metric} on {data} against the {cost_name}, a point for each model.{describe_error_bars(points)}"
            yield pictures.add(f"{name}-{cost}", plot, caption)


def describe_error_bars(series: Mapping[str, Sequence[PlotPoint]], over: str = "users") -> str:
    """Return a sentence about the error bars of a plot, with a space before it; empty if it has none."""
    return f" Error bars are ± one standard error over {over}." if any(map(has_error_bars, series.values())) else ""


def fit_seconds(fit: JournalRow) -> float | None:
    """Return the seconds of a fit, at least 0.001 for a logarithmic axis; None if a resumed fit was measured in part."""
    return None if "resumed" in fit else max(fit["seconds"], 1e-3)


def fit_megabytes(fit: JournalRow) -> float | None:
    """Return the peak memory of a fit in megabytes, at least 0.1 for a logarithmic axis; None if it is unknown."""
    return None if fit["peak_bytes"] is None else max(fit["peak_bytes"] / 1e6, 0.1)


def curve_points(row: JournalRow) -> list[PlotPoint]:
    """Return the points of a curve: rank, seconds or another parameter, metric, standard error."""
    return [(max(point.get("seconds", point["at"]), 1e-3), point["value"], point["stderr"]) for point in row["points"]]


def label_curve(row: JournalRow, curves: list[JournalRow]) -> str:
    """Return the name of a curve, or of its model with the parameters in which it differs from others of the same model."""
    if "name" in row:
        return str(row["name"])

    def model_name(curve: JournalRow) -> str:
        recipe = curve["recipe"]
        return f"{recipe['name']} {recipe['params']['loss']['name']}" if "loss" in recipe["params"] else str(recipe["name"])

    params = row["recipe"]["params"]
    same_model = [curve["recipe"]["params"] for curve in curves if model_name(curve) == model_name(row)]
    varied = {key: params[key] for key in params if any(p.get(key) != same_model[0].get(key) for p in same_model)}
    return ", ".join([model_name(row), *format_json_params({"params": varied})])


def draw_breakdowns(
    name: str, data: str, metric: str, fits: dict[str, JournalRow], pictures: PictureFolder
) -> Iterator[Picture]:
    """Draw quality by the users' activity and by the items' popularity."""
    detailed = {model: fit for model, fit in fits.items() if metric in fit.get("activity", {})}
    detailed = dict(list(detailed.items())[:MAX_SERIES])
    if not detailed:
        return
    first = next(iter(detailed.values()))
    bars = {model: [group["mean"] for group in fit["activity"][metric]] for model, fit in detailed.items()}
    plot = plot_grouped_bars(bars, group_ranges(first["activity"][metric]), "number of known items of the user", metric)
    yield pictures.add(f"{name}-activity", plot, f"{metric} on {data} for test users with few and with many known items.")
    bars = {model: [group["found"] for group in fit["popularity"]] for model, fit in detailed.items()}
    ranges = group_ranges(first["popularity"])
    plot = plot_grouped_bars(bars, ranges, "number of training users of the item", "share of targets found")
    caption = (
        f"Share of the test users' items on {data} that are found in lists of {BREAKDOWN_CUTOFF}, from rare to popular items. "
        "Each group has about as many interactions."
    )
    yield pictures.add(f"{name}-popularity", plot, caption)


def group_ranges(groups: list[dict[str, Any]]) -> list[str]:
    """Return the names of groups of users or items, as in 6–35."""
    return [f"{group['from']}–{group['to']}" for group in groups]


def draw_search(name: str, rows: list[dict[str, Any]], pictures: PictureFolder) -> Iterator[Picture]:
    """Draw the metric of a search over dropout and l2, in a panel for each kept_weight."""
    values_by_weight: dict[float, dict[tuple[float, float], float]] = {}
    for row in rows:
        model, params = row["recipe"]["name"], row["recipe"]["params"]
        if (model == "DEQL" or model in FIXED_KEPT_WEIGHTS) and row["lost_to"] is None:  # evaluated on all users
            kept_weight = FIXED_KEPT_WEIGHTS.get(model, params.get("kept_weight", 0.0))
            values_by_weight.setdefault(kept_weight, {})[params["dropout"], params["l2"]] = row["value"]
    points = {point for values in values_by_weight.values() for point in values}
    dropouts, l2s = sorted({dropout for dropout, _ in points}), sorted({l2 for _, l2 in points})
    if min(len(dropouts), len(l2s)) < MIN_POINTS:
        return
    panels = {}
    for kept_weight in sorted(values_by_weight)[:MAX_SERIES]:
        matrix = np.full((len(dropouts), len(l2s)), np.nan)
        for (dropout, l2), value in values_by_weight[kept_weight].items():
            matrix[dropouts.index(dropout), l2s.index(l2)] = value
        panels[f"kept_weight {format_value(kept_weight)}"] = (dropouts, l2s, matrix)
    metric = rows[0].get("metric", "value")
    plot = plot_heat_map(panels, "dropout", "l2", metric)
    caption = f"{metric} on the validation split by dropout and l2. The star marks the best; kept_weight 0 is EDLAE, 1 is DLAE."
    yield pictures.add(f"{name}-search", plot, caption)
