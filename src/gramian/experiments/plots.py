"""Plots by Matplotlib, which is imported only to draw. Names are untrusted text and are not parsed as math ($...$)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from gramian.core.params import format_value
from gramian.errors import InvalidInput, NotSupported
from gramian.io.atomic import atomic_file
from gramian.tuning.rank_path import RankPath
from gramian.validation import format_install_advice

PICTURE_FORMATS = (".svg", ".png", ".pdf")
MARKERS = "osD^vP*Xhp<>"
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#8c1d40", "#a05a2c", "#6a51a3")
FIGURE_WIDTH, AXES_HEIGHT = 4.6, 3.0  # inches: at this width, the text can still be read on a phone
LEGEND_ROW_HEIGHT = 0.18  # inches
PANELS_PER_ROW = 2  # of a heat map
MAX_LABEL_LENGTH = 44  # characters of a name in a legend
MAX_ERROR_BARS = 8  # points of a line; error bars on more points would hide the line

PlotPoint = tuple[float, float, float | None]  # x, y and the standard error of y


def require_matplotlib() -> Any:
    """Return the module, or raise NotSupported if it is not installed."""
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        raise NotSupported("Matplotlib, for pictures", "no such package", format_install_advice("plot")) from None
    return matplotlib


def rank_plotter(file: Path) -> Callable[[Sequence[RankPath], str], None]:
    """Return a function that plots a metric of rank paths against rank to a file.

    An invalid file name or a missing Matplotlib is reported here, before the paths are computed.
    """
    if file.suffix not in PICTURE_FORMATS or not file.absolute().parent.is_dir():
        expected = f"a picture's name, ending in {', '.join(PICTURE_FORMATS)}, in a folder that exists"
        raise InvalidInput(expected, str(file), "Choose another name")
    require_matplotlib()

    def plot(paths: Sequence[RankPath], metric: str) -> None:
        series = {
            path.name: [(rank, report[metric], report.stderr.get(metric)) for rank, report in path.reports.items()]
            for path in paths
        }
        with plot_lines(series, "rank", metric, log_base=2) as figure:
            save_figure(figure, file)

    return plot


@contextmanager
def new_figure(height: float, n_rows: int = 1, n_columns: int = 1) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and a list of its axes, row by row. The height is in inches."""
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415

    style = {"text.parse_math": False, "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    with matplotlib.rc_context(style | {"axes.spines.right": False, "svg.hashsalt": "gramian"}):
        figure = Figure(figsize=(FIGURE_WIDTH, height), layout="constrained")
        yield figure, figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel().tolist()


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure in the format of the file's suffix."""
    with atomic_file(file) as temporary:
        figure.savefig(temporary, format=file.suffix[1:], dpi=144, metadata={"Date": None} if file.suffix == ".svg" else None)


@contextmanager
def plot_lines(
    series: Mapping[str, Sequence[PlotPoint]], x_label: str, y_label: str, *, log_base: float = 10, joined: bool = True
) -> Iterator[Any]:
    """Plot one line for each name, or its points alone, over a logarithmic x axis."""
    with new_figure(AXES_HEIGHT + legend_height(series)) as (figure, (axes,)):
        for position, (name, points) in enumerate(series.items()):
            x, y, errors = zip(*points, strict=True)
            axes.errorbar(
                x,
                y,
                errors if has_error_bars(points) else None,
                capsize=2,
                label=shorten_label(name),
                linestyle="-" if joined else "none",
                marker=MARKERS[position % len(MARKERS)],
                color=SERIES_COLOURS[position % len(SERIES_COLOURS)],
                markersize=5,
            )
        axes.set_xscale("log", base=log_base)
        ticks = sorted({x for points in series.values() for x, *_ in points})
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}" if ticks[-1] < 10 * ticks[0] else "")
        if log_base == 2:
            axes.set_xticks(ticks)
            axes.set_xticks([], minor=True)
        label_axes(figure, axes, x_label, y_label)
        axes.grid(alpha=0.3)
        yield figure


def has_error_bars(points: Sequence[PlotPoint]) -> bool:
    """Whether the points of a line are drawn with error bars."""
    return len(points) <= MAX_ERROR_BARS and all(error is not None for *_, error in points)


@contextmanager
def plot_grouped_bars(
    bars: Mapping[str, Sequence[float]], group_names: Sequence[str], x_label: str, y_label: str
) -> Iterator[Any]:
    """Plot bars side by side: for every group of users or items, one bar for each model."""
    with new_figure(AXES_HEIGHT + legend_height(bars)) as (figure, (axes,)):
        width = 0.8 / len(bars)
        for position, (name, values) in enumerate(bars.items()):
            x = np.arange(len(values)) + (position - (len(bars) - 1) / 2) * width
            axes.bar(x, values, width, label=shorten_label(name), color=SERIES_COLOURS[position % len(SERIES_COLOURS)])
        axes.set_xticks(range(len(group_names)), group_names)
        label_axes(figure, axes, x_label, y_label)
        axes.grid(axis="y", alpha=0.3)
        yield figure


def label_axes(figure: Any, axes: Any, x_label: str, y_label: str) -> None:
    """Label both axes, and add a legend above them."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    _, names = axes.get_legend_handles_labels()
    figure.legend(loc="outside upper left", fontsize="small", frameon=False, ncols=legend_columns(names))


def legend_columns(names: Iterable[str]) -> int:
    """Return the number of columns of a legend: as many as fit beside each other."""
    longest = max((len(shorten_label(name)) for name in names), default=0)
    return 3 if longest <= 16 else 2 if longest <= 28 else 1


def legend_height(names: Collection[str]) -> float:
    """Return the height of a legend in inches."""
    return LEGEND_ROW_HEIGHT * ceil(len(names) / legend_columns(names))


def shorten_label(name: str) -> str:
    """Return a name that fits into a legend. The middle is left out: names of one model often differ at their end."""
    half = MAX_LABEL_LENGTH // 2
    return name if len(name) <= MAX_LABEL_LENGTH else f"{name[:half]}…{name[-half:]}"


@contextmanager
def plot_heat_map(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float], np.ndarray]], y_label: str, x_label: str, metric: str
) -> Iterator[Any]:
    """Plot a metric over two parameters, in a panel for each value of a third one. A star marks the best of all.

    A panel is the values of the parameter on the y axis, those on the x axis, and the matrix of the metric.
    """
    lowest, highest = (float(f([f(values) for *_, values in panels.values()])) for f in (np.nanmin, np.nanmax))
    n_columns = min(len(panels), PANELS_PER_ROW)
    n_rows = ceil(len(panels) / n_columns)
    with new_figure(2.4 * n_rows, n_rows, n_columns) as (figure, all_axes):
        for axes, (name, (rows, columns, values)) in zip(all_axes, panels.items(), strict=False):
            image = axes.imshow(values, vmin=lowest, vmax=highest, cmap="viridis", aspect="auto")
            axes.set_xticks(range(len(columns)), [format_value(float(c)) for c in columns], rotation=60)
            axes.set_yticks(range(len(rows)), [format_value(float(r)) for r in rows])
            axes.set_title(name, fontsize="small")
            axes.set_xlabel(x_label)
            if np.nanmax(values) == highest:
                row, column = np.unravel_index(np.nanargmax(values), values.shape)
                axes.plot(column, row, marker="*", color="white", markeredgecolor="#111111", markersize=11)
        for axes in all_axes[::n_columns]:
            axes.set_ylabel(y_label)
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        figure.colorbar(image, ax=all_axes, label=metric)
        yield figure
