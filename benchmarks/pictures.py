"""Draw the pictures of README and documentation from the journals.

    python benchmarks/pictures.py                # docs/pictures/*.svg and docs/growth.svg, in seconds; needs matplotlib

Nothing is measured here: every point is a row of results/. A picture whose rows are missing is named and left out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import growth
from journal import RESULTS, rows

from gramian.experiments.plots import (
    AXES_HEIGHT,
    MARKERS,
    SERIES_COLOURS,
    PlotPoint,
    label_axes,
    legend_height,
    new_figure,
    plot_lines,
    save_figure,
)

PICTURES = RESULTS.parents[1] / "docs" / "pictures"
RANK_TABLE = "landscape-ml-1m"  # the table whose curves by rank are drawn
BIAS_TABLE, BIAS_DATA = "filters-validation", "amazon-beauty-m1"  # whose accuracy is drawn against popularity bias
VARIETY_DATA = "ml-1m"
VARIETY_AXES = {"intra_list_diversity@20": "intra-list diversity of genres", "tail_share@20": "share of the long tail"}
OURS, THEIRS = SERIES_COLOURS[:2]
Row = dict[str, Any]


def draw_quality_by_rank(file: Path) -> None:
    """Draw the validation metric of low-rank models against their rank."""
    curves = [row for row in rows("papers") if row["kind"] == "curve" and (row["table"], row["along"]) == (RANK_TABLE, "rank")]
    require(curves, "curves by rank in papers.jsonl")
    series: dict[str, list[PlotPoint]] = {
        row["recipe"]["name"]: [(point["at"], point["value"], point["stderr"]) for point in row["points"]] for row in curves
    }
    with plot_lines(series, "rank", f"{curves[0]['metric']} on the validation split", log_base=2) as figure:
        save_figure(figure, file)


def draw_popularity_bias(file: Path) -> None:
    """Draw accuracy against the share of the lists that the most popular items take, a point for each model."""
    fits = {row["key"]: row for row in rows("papers") if row["kind"] == "fit" and row.get("popularity")}
    newest = {
        (row["data"], row["model"]): fits[row["fit"]]
        for row in rows("papers")
        if row["kind"] == "cell" and row["table"] == BIAS_TABLE and row.get("fit") in fits
    }
    models = {model: fit for (data, model), fit in newest.items() if data == BIAS_DATA}
    require(models, f"fits of {BIAS_TABLE} on {BIAS_DATA} with a breakdown by popularity in papers.jsonl")
    metric = "ndcg@20"
    with new_figure(AXES_HEIGHT + legend_height(models)) as (figure, (axes,)):
        for position, (model, fit) in enumerate(models.items()):
            marker, colour = MARKERS[position % len(MARKERS)], SERIES_COLOURS[position % len(SERIES_COLOURS)]
            axes.plot(fit["popularity"][-1]["listed"], fit["metrics"][metric], marker, color=colour, label=model)
        axes.grid(alpha=0.3)
        label_axes(figure, axes, "share of the lists that the most popular items take", f"{metric}, {BIAS_DATA}")
        save_figure(figure, file)


def draw_peers(file: Path) -> None:
    """Draw how many times faster each job is than in another library, newest measurement of each."""
    newest: dict[tuple[str, str], Row] = {(row["job"], row["peer"]): row for row in rows("peers") if row["agree"]}
    require(newest, "peers.jsonl")
    ratios = {f"{job}, {peer.split()[0]}": row["theirs_s"] / row["ours_s"] for (job, peer), row in newest.items()}
    names = sorted(ratios, key=ratios.__getitem__)
    with new_figure(0.6 + 0.19 * len(names)) as (figure, (axes,)):
        bars = axes.barh(names, [ratios[name] for name in names], color=[OURS if ratios[n] >= 1 else THEIRS for n in names])
        axes.bar_label(bars, [f"{ratios[name]:.2g} ×" for name in names], padding=2, fontsize=7)
        axes.axvline(1, color="#7f7f7f", linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.tick_params(axis="y", labelsize=7)
        axes.margins(x=0.12)
        axes.set_xlabel("seconds of the other library / seconds of Gramian")
        save_figure(figure, file)


def draw_unlearning(file: Path) -> None:
    """Draw the seconds to forget one user beside those of a new fit."""
    newest = {row["job"]: row for row in rows("exact") if row["job"].startswith("forget")}
    require(newest, "rows of forgetting in exact.jsonl")
    with new_figure(2.4) as (figure, (axes,)):
        for offset, key, name, colour in (
            (-0.2, "seconds", "forget one user", OURS),
            (0.2, "rival_seconds", "fit again", THEIRS),
        ):
            places, lengths = [n + offset for n in range(len(newest))], [row[key] for row in newest.values()]
            bars = axes.barh(places, lengths, 0.38, color=colour, label=name)
            axes.bar_label(bars, fmt="%.2g s", padding=2, fontsize=8)
        axes.set_yticks(range(len(newest)), [job.rpartition(" ")[2] for job in newest])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.15)
        label_axes(figure, axes, f"seconds, {next(iter(newest.values()))['items']:,} items", "")
        save_figure(figure, file)


def draw_variety(file: Path) -> None:
    """Draw accuracy against variety: stages of re-ranking at several strengths, newest measurement of each."""
    measured = [row for row in rows("rerank") if row["job"] == "variety" and row["data"] == VARIETY_DATA]
    newest: dict[tuple[str, str], Row] = {(row["curve"], row["spec"]): row for row in measured}
    require(newest, f"rows of variety on {VARIETY_DATA} in rerank.jsonl")
    plain = newest.pop(("plain", ""))["metrics"]
    curves = {name: [plain, *(row["metrics"] for (curve, _), row in newest.items() if curve == name)] for name, _ in newest}
    with new_figure(AXES_HEIGHT + legend_height(curves), n_columns=2) as (figure, panels):
        for axes, (metric, label) in zip(panels, VARIETY_AXES.items(), strict=True):
            for position, (name, points) in enumerate(curves.items()):
                style = {"marker": MARKERS[position % len(MARKERS)], "color": SERIES_COLOURS[position % len(SERIES_COLOURS)]}
                x, y = [point[metric] for point in points], [point["ndcg@20"] for point in points]
                axes.plot(x, y, label=name if axes is panels[0] else None, markersize=5, **style)
            axes.set_xlabel(label)
            axes.grid(alpha=0.3)
        label_axes(figure, panels[0], VARIETY_AXES["intra_list_diversity@20"], f"ndcg@20, {VARIETY_DATA}")
        save_figure(figure, file)


PICTURE_DRAWERS: dict[str, Callable[[Path], None]] = {
    "quality_by_rank": draw_quality_by_rank,
    "popularity_bias": draw_popularity_bias,
    "peers": draw_peers,
    "unlearning": draw_unlearning,
    "variety_by_stage": draw_variety,
}


def require(found: Any, what: str) -> None:
    """Raise LookupError if the journals have no such rows."""
    if not found:
        raise LookupError(what)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, draw in PICTURE_DRAWERS.items():
        try:
            draw(PICTURES / f"{name}.svg")
            print(f"docs/pictures/{name}.svg")
        except LookupError as error:
            print(f"{name}: no {error.args[0]} yet")
    growth.plot()
    print("docs/growth.svg")


if __name__ == "__main__":
    main()
