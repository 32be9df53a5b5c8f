"""The report of a selection: one self-contained HTML page with pictures, made from experiments/templates/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from gramian.data.profile import as_dates
from gramian.experiments.experiment import format_p_value
from gramian.experiments.plots import plot_grouped_bars, plot_lines, require_matplotlib
from gramian.experiments.report import load_template
from gramian.experiments.report_pictures import Picture, adapt_svg
from gramian.io.atomic import atomic_file
from gramian.linalg.memory import format_bytes
from gramian.progress import format_duration
from gramian.selection.auto import Selection
from gramian.selection.finals import Finalist

COUNT_BINS = (1, 2, 5, 10, 30, 100, 300, 1000, 10_000)  # lower ends
TIME_BINS = 6  # of equal length, from the first event to the last


def write_selection_page(selection: Selection, path: str | Path) -> Path:
    """Write the report page of a selection, and return its path.

    Parameters
    ----------
    selection
        What `gr.auto` returned.
    path
        The file to write, which ends in .html.
    """
    require_matplotlib()
    page = load_template("selection.html.j2").render(
        selection=selection,
        metric=selection.comparison.metric,
        heads=[*leaderboard_figures(selection, selection.finalists[0])],
        rows=[describe_finalist(selection, finalist) for finalist in selection.ranked],
        tied=selection.comparison.tied,
        used=format_duration(selection.seconds),
        budget=format_duration(selection.budget),
        pictures=list(draw_data(selection)),
        result_pictures=list(draw_results(selection)),
        card=json.dumps(selection.model.card, indent=2, ensure_ascii=False),
    )
    path = Path(path)
    with atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def leaderboard_figures(selection: Selection, finalist: Finalist) -> dict[str, str]:
    """Return the columns of the leaderboard for a finalist: head → text."""
    report, errors, candidate = finalist.report, finalist.report.stderr, finalist.candidate
    figures = {"validation": f"{candidate.value:.4f} ± {candidate.stderr:.4f}"}
    paired = selection.comparison.behind.get(finalist.name)
    for name, mean in report.mean.items():
        figures[name] = f"{mean:.4f} ± {errors[name]:.4f}" if name in errors else f"{mean:.3f}"
        if name == selection.comparison.metric:
            figures["behind the best"] = "" if paired is None else f"{-paired.difference:.4f} ± {paired.stderr:.4f}"
            figures["p"] = "" if paired is None else format_p_value(paired.p_value)
    for name, group in finalist.groups.items():
        figures[f"found of {name} items"] = "–" if group["found"] is None else f"{group['found']:.1%}"
    figures |= {"fit": format_duration(finalist.fit_seconds), "peak memory": format_bytes(finalist.peak_bytes)}
    return figures | {"model size": format_bytes(finalist.model_bytes), "ms per list": f"{finalist.list_milliseconds:.2g}"}


def describe_finalist(selection: Selection, finalist: Finalist) -> dict[str, Any]:
    """Return what the page shows of a finalist."""
    return {
        "name": finalist.name,
        "is_chosen": finalist is selection.finalists[0],
        "is_tied": finalist.name in selection.comparison.tied,
        "figures": [*leaderboard_figures(selection, finalist).values()],
    }


def draw_data(selection: Selection) -> Iterator[Picture]:
    """Draw how many items users have, how many users items have, and when events happened."""
    events = selection.profile.events
    for name, counts, x_label, y_label in (
        ("histories", np.diff(events.matrix.indptr), "items of a user, at least", "users"),
        ("popularity", events.popularity, "users of an item, at least", "items"),
    ):
        labels, heights = count_in_bins(counts)
        plot = plot_grouped_bars({y_label: heights}, labels, x_label, y_label)
        yield inline_picture(name, plot, f"How many {y_label} have how many {x_label.split()[0]}.")
    dates = None if events.times is None else as_dates(events.times)
    if dates is not None:
        per_span, edges = np.histogram(dates.astype(np.int64), TIME_BINS)
        labels = [str(day) for day in edges[:-1].astype(np.int64).astype("datetime64[us]").astype("datetime64[M]")]
        plot = plot_grouped_bars({"events": per_span.tolist()}, [label[2:] for label in labels], "from year-month", "events")
        yield inline_picture("times", plot, "When the events happened, in spans of equal length.")


def draw_results(selection: Selection) -> Iterator[Picture]:
    """Draw quality against the time of a fit, and the targets found among head, tail and cold items."""
    metric, ranked = selection.comparison.metric, selection.ranked
    points = {f.name: [(max(f.fit_seconds, 1e-3), f.report[metric], f.report.stderr[metric])] for f in ranked}
    plot = plot_lines(points, "fitting time (seconds)", metric, joined=False)
    yield inline_picture("costs", plot, f"{metric} on the test users against the fitting time, ± one standard error.")
    groups = [name for name, group in ranked[0].groups.items() if group["targets"]]
    bars = {f.name: [f.groups[name]["found"] for name in groups] for f in ranked}
    labels = [f"{name} ({ranked[0].groups[name]['targets']:,} targets)" for name in groups]
    caption = (
        "Share of the test users' held-out items that are found. Head: the most popular items with half of the interactions; "
        "cold: no training user; tail: the others."
    )
    yield inline_picture("groups", plot_grouped_bars(bars, labels, "items", "share of targets found"), caption)


def inline_picture(name: str, plot: AbstractContextManager[Any], caption: str) -> Picture:
    """Return a plot as SVG for the page."""
    svg = StringIO()
    with plot as figure:
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return Picture(adapt_svg(svg.getvalue(), name), caption)


def count_in_bins(counts: np.ndarray) -> tuple[list[str], list[int]]:
    """Return the lower ends of bins that grow, and how many counts are in each; empty bins at the end are left out."""
    ends = [*COUNT_BINS[1:], np.inf]
    heights = [int(((counts >= low) & (counts < high)).sum()) for low, high in zip(COUNT_BINS, ends, strict=True)]
    n_bins = max((k + 1 for k, height in enumerate(heights) if height), default=1)
    return [f"{low:,}" for low in COUNT_BINS[:n_bins]], heights[:n_bins]
