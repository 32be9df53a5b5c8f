"""Tables for the terminal. Titles and ids are strangers' text: they are printed as they are, never as markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.status import Status
from rich.table import Table
from rich.text import Text

from gramian.app.benchmark import Cell
from gramian.app.experiment import COSTS, Experiment
from gramian.app.trial import Trial
from gramian.evaluation.evaluate import Comparison
from gramian.linalg.memory import readable
from gramian.models.recipe import Part, short
from gramian.recommender import Explanation, Recommendations
from gramian.tuning.epoch_path import EpochPath
from gramian.tuning.rank_path import RankPath
from gramian.tuning.search import Search

WIDEST = 16  # columns of a heat map
WIDE = 120  # characters of a terminal that has room for settings


def leaderboard(trials: Sequence[Trial]) -> Table:
    """Best first by the first metric."""
    metrics = list(trials[0].report.mean)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    table.add_column("fit", justify="right", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("settings")
    ranked = sorted(trials, key=lambda trial: -trial.report[metrics[0]])
    for place, trial in enumerate(ranked):
        errors = trial.report.stderr
        cells = [with_error(mean, errors.get(m)) for m, mean in trial.report.mean.items()]
        cost = [f"{trial.seconds:.2f} s", readable(trial.peak_bytes)]
        name = type(trial.recipe).__name__
        table.add_row(name, *cells, *cost, trial.recipe.settings, style="green" if place == 0 else None)
    return table


def table_of(experiment: Experiment, cells: Sequence[Cell], pairs: Mapping[str, Comparison]) -> Table:
    """Published, ours and the difference where figures were published; else the best first, and how far others are behind.

    A narrow terminal gets neither settings nor standard errors, which `gramian report` has.
    """
    printed, wide = any(cell.published for cell in cells), out.width >= WIDE
    table = Table(box=None, pad_edge=False, header_style="bold", title=Text(cells[0].data), title_justify="left")
    table.add_column("model", no_wrap=True)
    heads = [f"{metric}\npublished  ours       " if printed else metric for metric in experiment.metrics]
    for name in (*heads, *(() if printed else (f"behind in\n{experiment.choose}", "p")), "fit", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("settings")
    best_first = sorted(cells, key=lambda cell: -(cell.ours(experiment.choose) or 0))
    for place, cell in enumerate(cells if printed else best_first):
        row = [Text(cell.model)]
        for metric, here in experiment.metrics.items():
            row.append(figures(cell, metric, here) if printed else measured(cell, here, wide))
        if not printed:
            pair = pairs.get(cell.model)
            row += (
                [Text(with_error(-pair.difference, pair.stderr, wide)), Text(f"{pair.p_value:.2g}")]
                if pair
                else [Text(), Text()]
            )
        settings = cell.chosen["recipe"]["settings"] if cell.chosen and cell.fit else {}
        words = ", ".join(f"{name}={in_words(value)}" for name, value in settings.items())
        row += [Text(cell.time), Text(cell.memory), Text(words)]
        table.add_row(*row[: len(table.columns)], style="green" if place == 0 and not printed else None)
    return table


def notes(cells: Sequence[Cell]) -> list[str]:
    """What is to be said of cells: one line for those of which it is the same."""
    said: dict[str, list[str]] = {}
    for cell in (cell for cell in cells if cell.note):
        said.setdefault(cell.note, []).append(cell.model)
    return [f"{', '.join(models)}: {words}" for words, models in said.items()]


def in_words(value: Any) -> str:
    """A setting as a journal has it."""
    if isinstance(value, Mapping):
        return f"{value['name']}({', '.join(f'{name}={in_words(own)}' for name, own in value['settings'].items())})"
    return short(value)


def with_error(value: float, error: float | None, wide: bool = True) -> str:
    return f"{value:.4f} ±{error:.4f}" if wide and error is not None else f"{value:.4f}"


def figures(cell: Cell, metric: str, here: str) -> Text:
    """A published figure, ours, and the difference in per cent."""
    theirs, ours = cell.published.get(metric), cell.ours(here)
    if theirs is None:
        return Text()
    if ours is None:
        return Text(f"{theirs:.4g}" + " " * 15, style="dim")
    if here in COSTS:
        return Text(f"{theirs:.4g}  {ours:.3g}")
    if theirs == 0:
        return Text(f"{theirs:.4f}  {ours:.4f}        ")
    change = ours / theirs - 1
    return Text.assemble(f"{theirs:.4f}  {ours:.4f} ", (f"{change:+6.1%}", "green" if change >= -0.01 else "red"))


def measured(cell: Cell, metric: str, wide: bool) -> Text:
    if cell.fit is None or metric not in cell.fit["metrics"]:
        return Text()
    return Text(with_error(cell.fit["metrics"][metric], cell.fit["stderr"].get(metric), wide))


def recommendations(result: Recommendations, row: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "item", "score"):
        table.add_column(name, justify="left" if name == "item" else "right")
    for rank, (item, score) in enumerate(zip(result.items[row], result.scores[row], strict=True), start=1):
        name = str(item) if result.titles is None else f"{result.titles[row][rank - 1]}  [{item}]"
        table.add_row(str(rank), Text(name), f"{score:.4f}")
    return table


def reasons(explanation: Explanation, n: int = 3, width: int = 12) -> Text:
    """The strongest contributions as bars, and what is left as one line."""
    strongest = list(explanation.items())[:n]
    longest = max((abs(value) for _, value in strongest), default=0) or 1
    text = Text()
    for item, value in strongest:
        bar = "█" * max(1, round(abs(value) / longest * width))
        style = "dim" if value >= 0 else "dim red"
        text.append(f"      {bar:<{width}} {value:+.3f}  {explanation.titles.get(item, item)}\n", style=style)
    if len(explanation) > n:
        rest = sum(list(explanation.values())[n:])
        text.append(f"      {'':<{width}} {rest:+.3f}  {len(explanation) - n:,} others together\n", style="dim")
    return text


def curve(path: RankPath | EpochPath, metric: str, title: str, width: int = 40) -> Table:
    """A bar for each rank or epoch, from the worst value to the best."""
    values = {at: report[metric] for at, report in path.reports.items()}
    low, high = min(values.values()), max(values.values())
    table = Table(box=None, pad_edge=False, header_style="bold", title=Text(title), title_justify="left")
    table.add_column("rank" if isinstance(path, RankPath) else "epoch", justify="right")
    table.add_column(metric, justify="right")
    table.add_column("")
    for at, value in values.items():
        length = 1 + round((value - low) / (high - low or 1) * (width - 1))
        error = path.reports[at].stderr.get(metric)
        table.add_row(str(at), with_error(value, error), "█" * length)
    return table


def points(search: Search, n: int = 10) -> Table:
    """The best points of a search."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*search.recipe.chosen, search.metric):
        table.add_column(name, justify="right", no_wrap=True)
    for place, result in enumerate(search.results[:n]):
        cells = [short(v) for v in result.recipe.chosen.values()]
        early = "" if result.n_users == search.n_users else f" (given up after {result.n_users:,} users)"
        value = f"{result.value:.4f} ±{result.stderr:.4f}{early}"
        table.add_row(*cells, value, style="green" if place == 0 else None)
    return table


def heat_maps(search: Search) -> Iterator[Group]:
    """The metric over each pair of settings that were varied in a grid, lighter where better."""
    tried = {name: {r.recipe.chosen[name] for r in search.results} for name in search.recipe.chosen}
    plain = [name for name, value in search.recipe.chosen.items() if not isinstance(value, Part)]
    varied = [name for name in plain if 1 < len(tried[name]) <= WIDEST]
    for pair in combinations(varied, 2):
        across, down = sorted(pair, key=lambda name: len(tried[name]))
        frame = search.heat_map(down, across)
        values = frame.drop(down).to_numpy().astype(float)
        low, high = np.nanmin(values), np.nanmax(values)
        table = Table(box=None, pad_edge=False, padding=(0, 0), show_header=False)
        table.add_row("", *(Text(f"{short(value)} ", style="bold", justify="right") for value in sorted(tried[across])))
        for name, row in zip(frame[down], values, strict=True):
            levels = np.nan_to_num((row - low) / (high - low or 1)) * 255
            cells = (Text(f" {v:.4f} ", style=shade(int(at))) if v == v else "" for v, at in zip(row, levels, strict=True))
            table.add_row(Text(f"{short(name)} ", style="bold", justify="right"), *cells)
        yield Group(Text(f"\n{search.metric}, {down} down and {across} across"), table)


def shade(level: int) -> str:
    """From dark blue (0) to light yellow (255), with a text colour to be read on it."""
    red, green, blue = level, 40 + level * 180 // 255, 110 - level * 60 // 255
    return f"{'black' if level > 140 else 'white'} on rgb({red},{green},{blue})"


def note(words: str) -> None:
    """A line on stderr about what is being done."""
    Console(stderr=True).print(words, style="dim", markup=False, highlight=False, soft_wrap=True)


def status(what: str) -> Status:
    """A spinner on stderr while something runs."""
    return Console(stderr=True).status(what)


out = Console()
