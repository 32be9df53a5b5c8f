"""Pictures for files, by Matplotlib, which is only imported to draw. Names are strangers' text: never taken as mathematics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gramian.errors import InvalidInput, NotSupported
from gramian.models.recipe import short
from gramian.store import appearing
from gramian.tuning.rank_path import RankPath

FORMATS = (".svg", ".png", ".pdf")
MARKS = "osD^vP*Xhp<>"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#000000", "#a05a2c", "#6a51a3")
CROWD = 8  # points of a line beyond which bars of errors would hide it

Points = Mapping[str, Sequence[tuple[float, float, float | None]]]  # name → x, y and the standard error of y


def require_matplotlib() -> Any:
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        raise NotSupported("Matplotlib, for pictures", "no such package", "Install gramian[plot]") from None
    return matplotlib


def plots(file: Path) -> Callable[[Sequence[RankPath], str], None]:
    """What draws quality against rank to a file. That it can is checked before any work is done."""
    if file.suffix not in FORMATS or not file.absolute().parent.is_dir():
        wanted = f"a picture's name, ending in {', '.join(FORMATS)}, in a folder that is there"
        raise InvalidInput(wanted, str(file), "Choose another name")
    require_matplotlib()

    def draw(paths: Sequence[RankPath], metric: str) -> None:
        points = {
            path.name: [(rank, report[metric], report.stderr.get(metric)) for rank, report in path.reports.items()]
            for path in paths
        }
        with lines(points, "rank", metric, base=2) as figure:
            save(figure, file)

    return draw


@contextmanager
def drawing(width: float = 6, height: float = 4, columns: int = 1) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, in the house's style."""
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415

    style = {"text.parse_math": False, "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    with matplotlib.rc_context(style | {"axes.spines.right": False, "svg.hashsalt": "gramian"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(1, columns, squeeze=False)[0]


def save(figure: Any, file: Path) -> None:
    """Write a picture in the format that its name ends in."""
    with appearing(file) as part:
        figure.savefig(part, format=file.suffix[1:], dpi=144, metadata={"Date": None} if file.suffix == ".svg" else None)


@contextmanager
def lines(points: Points, across: str, up: str, *, base: float = 10, joined: bool = True) -> Iterator[Any]:
    """A line for each name, or its points alone, over a logarithmic axis."""
    with drawing() as (figure, (axes,)):
        for at, (name, own) in enumerate(points.items()):
            x, y = [p[0] for p in own], [p[1] for p in own]
            errors = None if len(own) > CROWD or any(p[2] is None for p in own) else [p[2] for p in own]
            mark = {"marker": MARKS[at % len(MARKS)], "color": COLOURS[at % len(COLOURS)], "markersize": 5}
            axes.errorbar(x, y, errors, capsize=2, label=name, linestyle="-" if joined else "none", **mark)
        axes.set_xscale("log", base=base)
        places = sorted({p[0] for own in points.values() for p in own})
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}" if places[-1] < 10 * places[0] else "")
        if base == 2:
            axes.set_xticks(places)
            axes.set_xticks([], minor=True)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
        yield figure


@contextmanager
def groups(bars: Mapping[str, Sequence[float]], names: Sequence[str], across: str, up: str) -> Iterator[Any]:
    """Bars side by side: for every group of users or items one for each model."""
    with drawing() as (figure, (axes,)):
        width = 0.8 / len(bars)
        for at, (name, values) in enumerate(bars.items()):
            where = np.arange(len(values)) + (at - (len(bars) - 1) / 2) * width
            axes.bar(where, values, width, label=name, color=COLOURS[at % len(COLOURS)])
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(axis="y", alpha=0.3)
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
        yield figure


@contextmanager
def heat_map(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float], np.ndarray]], down: str, across: str, what: str
) -> Iterator[Any]:
    """A panel for each value of a third setting: the metric over two others, with the best of all marked."""
    low, high = (float(f([f(values) for *_, values in panels.values()])) for f in (np.nanmin, np.nanmax))
    with drawing(1.2 + 2.3 * len(panels), 3.2, len(panels)) as (figure, every):
        for axes, (name, (rows, columns, values)) in zip(every, panels.items(), strict=True):
            shown = axes.imshow(values, vmin=low, vmax=high, cmap="viridis", aspect="auto")
            axes.set_xticks(range(len(columns)), [short(float(c)) for c in columns], rotation=60)
            axes.set_yticks(range(len(rows)), [short(float(r)) for r in rows] if axes is every[0] else [])
            axes.set_title(name, fontsize="small")
            axes.set_xlabel(across)
            if np.nanmax(values) == high:
                row, column = np.unravel_index(np.nanargmax(values), values.shape)
                axes.plot(column, row, marker="*", color="white", markeredgecolor="black", markersize=11)
        every[0].set_ylabel(down)
        figure.colorbar(shown, ax=list(every), label=what)
        yield figure
