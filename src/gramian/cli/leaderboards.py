"""Leaderboards for the terminal: the best first, each value with its standard error, and a paired test against the best.

The best row is highlighted only where it is significantly better than every other. A narrow terminal gets fewer columns and a
note that names the missing ones: a number is never cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gramian.cli.model_options import format_recipe
from gramian.cli.render import out, plain_table
from gramian.core.params import Configurable, format_json_params, format_value, params_of_json
from gramian.core.registry import MODELS
from gramian.evaluation.comparison import SIGNIFICANCE
from gramian.evaluation.report import Comparison, Report
from gramian.experiments.experiment import COSTS, Experiment
from gramian.experiments.runner import Cell
from gramian.experiments.trial import Trial
from gramian.linalg.memory import format_bytes
from gramian.tuning.epoch_path import EpochPath
from gramian.tuning.rank_path import RankPath
from gramian.tuning.search import Search

COLUMN_GAP = 2  # characters between two columns
MIN_TEXT_WIDTH = 24  # characters; a column of words is wrapped, but not to less than this
TEXT_COLUMNS = ("model", "parameters")  # the columns of words; all others are numbers
BAR_COLUMN, MAX_BAR_WIDTH = "", 40
MAX_HEAT_MAP_VALUES = 16  # of a parameter

Row = dict[str, Text]  # column → cell, in the order of the columns


def leaderboard(rows: Sequence[Row], drop: Sequence[str], *, highlight: bool = False, title: str | None = None) -> Group:
    """Return a table and, if columns were dropped, a note that names them.

    Parameters
    ----------
    rows
        The rows, which all have the same columns. A header may have several lines.
    drop
        The columns that a narrow terminal can do without, the least important first.
    highlight
        Whether the first row is significantly better than all others.
    title
        Printed above the table.
    """
    columns = list(rows[0])
    for name in drop:
        if table_width(rows, columns) <= out.width:
            break
        columns.remove(name)
    table = plain_table(title)
    for name in columns:
        is_text = name in TEXT_COLUMNS
        table.add_column(name, justify="left" if is_text or name == BAR_COLUMN else "right", no_wrap=not is_text)
    for place, row in enumerate(rows):
        table.add_row(*(row[name] for name in columns), style="bold green" if highlight and place == 0 else None)
    dropped = [name.partition("\n")[0] for name in rows[0] if name not in columns and name != BAR_COLUMN]
    hint = f"Not shown in {out.width} characters: {', '.join(dropped)}. Use a wider terminal, or --json."
    return Group(table, Text(hint, style="dim")) if dropped else Group(table)


def table_width(rows: Sequence[Row], columns: Sequence[str]) -> int:
    """Return the characters that a table needs if its words are wrapped."""
    width = COLUMN_GAP * (len(columns) - 1)
    for name in columns:
        longest = max(Text(line).cell_len for cell in (name, *(row[name].plain for row in rows)) for line in cell.split("\n"))
        width += min(longest, MIN_TEXT_WIDTH) if name in TEXT_COLUMNS else longest
    return width


def format_mean(value: float, error: float | None) -> Text:
    """Format a mean with its standard error, if it has one."""
    return Text(f"{value:.4f}" if error is None or error != error else f"{value:.4f} ±{error:.4f}")


def format_p(p_value: float | None) -> Text:
    """Format a p-value; nothing for the best row, and where there is none."""
    if p_value is None or p_value != p_value:
        return Text()
    return Text("<0.0001" if p_value < 0.0001 else f"{p_value:.4f}")


def compare_with_best(reports: Sequence[Report], best: Report, metric: str) -> list[float | None]:
    """Return the p-value of each report against the best; None for the best itself, and for a metric without users."""
    is_per_user = metric in best.per_user
    return [report.compare(best, metric).p_value if is_per_user and report is not best else None for report in reports]


def is_lead_significant(p_values: Sequence[float | None]) -> bool:
    """Whether the first row is significantly better than the others, by their p-values against it; the second must have one."""
    others = p_values[1:]
    return len(others) > 0 and others[0] is not None and all(p is None or p < SIGNIFICANCE for p in others)


def explain_p_values(metric: str, p_values: Sequence[float | None]) -> list[Text]:
    """Return a line that says what p is, and whether the lead of the first row is significant; no line if there is no p."""
    if len(p_values) < 2 or p_values[1] is None:
        return []
    lead = "" if is_lead_significant(p_values) else " The lead of the best is not significant."
    return [Text(f"p: paired t-test on {metric} against the best, user by user.{lead}", style="dim")]


def trial_leaderboard(trials: Sequence[Trial]) -> Group:
    """Return a leaderboard of evaluated models, best first by the first metric."""
    metric, *others = trials[0].report.metrics
    best_first = sorted(trials, key=lambda trial: -trial.report[metric])
    p_values = compare_with_best([trial.report for trial in best_first], best_first[0].report, metric)
    rows = []
    for trial, p_value in zip(best_first, p_values, strict=True):
        report, errors = trial.report, trial.report.stderr
        row = {"model": Text(format_recipe(trial.recipe).removesuffix("()"))}
        row |= {name: format_mean(report[name], errors.get(name)) for name in (metric, *others)}
        row |= {"p": format_p(p_value), "fit": Text(f"{trial.seconds:.2f} s")}
        rows.append(row | {"memory": Text(format_bytes(trial.peak_bytes))})
    table = leaderboard(rows, ["memory", "fit", *reversed(others)], highlight=is_lead_significant(p_values))
    return Group(table, *explain_p_values(metric, p_values))


def benchmark_leaderboard(experiment: Experiment, cells: Sequence[Cell], comparisons: Mapping[str, Comparison]) -> Group:
    """Return the leaderboard of one data set of one's own: the best model first, and how far the others are behind."""
    metric, behind = experiment.choose, f"behind in\n{experiment.choose}"
    others = [name for name in experiment.metrics.values() if name != metric]
    best_first = sorted(cells, key=lambda cell: -(cell.measured_figure(metric) or 0))
    p_values = [comparisons[cell.model].p_value if cell.model in comparisons else None for cell in best_first]
    rows = []
    for cell, p_value in zip(best_first, p_values, strict=True):
        row = {"model": Text(describe_cell(cell))}
        row |= {name: format_measured(cell, name) for name in (metric, *others)}
        comparison = comparisons.get(cell.model)
        row[behind] = Text() if comparison is None else format_mean(-comparison.difference, comparison.stderr)
        rows.append(row | {"p": format_p(p_value), "fit": Text(cell.duration), "memory": Text(cell.memory)})
    drop = ["memory", "fit", *reversed(others), behind]
    table = leaderboard(rows, drop, highlight=is_lead_significant(p_values), title=cells[0].data)
    return Group(table, *explain_p_values(metric, p_values))


def describe_cell(cell: Cell) -> str:
    """Return a model with the parameters that were chosen for it, or its name alone if it has no fit."""
    if cell.recipe is None:
        return cell.model
    recipe = MODELS.find(cell.recipe["name"])(**params_of_json(cell.recipe))
    return format_recipe(recipe).removesuffix("()")


def published_table(experiment: Experiment, cells: Sequence[Cell]) -> Group:
    """Return a published table beside what was measured: for each metric the published figure, ours and the difference."""
    metrics = {f"{metric}\npublished  ours       ": (metric, measured) for metric, measured in experiment.metrics.items()}
    rows = []
    for cell in cells:
        row = {"model": Text(cell.model)}
        for head, (metric, measured) in metrics.items():
            row[head] = compare_with_published(cell.published.get(metric), cell.measured_figure(measured), measured)
            if any(other.best_on_test for other in cells):
                best = None if cell.best_on_test is None else cell.best_on_test["metrics"].get(measured)
                row[f"{metric}\nselected on test"] = compare_with_published(cell.published.get(metric), best, measured)
        params = "" if cell.recipe is None else ", ".join(format_json_params(cell.recipe))
        rows.append(row | {"fit": Text(cell.duration), "memory": Text(cell.memory), "parameters": Text(params)})
    _, *others = [head for head in rows[0] if "\n" in head]
    return leaderboard(rows, ["parameters", "memory", "fit", *reversed(others)], title=cells[0].data)


def compare_with_published(published: float | None, ours: float | None, measured_metric: str) -> Text:
    """Return a published figure, ours, and the difference in per cent."""
    if published is None:
        return Text()
    if ours is None:
        return Text(f"{published:.4g}" + " " * 15, style="dim")
    if measured_metric in COSTS:
        return Text(f"{published:.4g}  {ours:.3g}")
    if published == 0:
        return Text(f"{published:.4f}  {ours:.4f}        ")
    change = ours / published - 1
    return Text.assemble(f"{published:.4f}  {ours:.4f} ", (f"{change:+6.1%}", "green" if change >= -0.01 else "red"))


def format_measured(cell: Cell, metric: str) -> Text:
    """Return the mean of a metric that was measured, with its standard error."""
    if cell.fit is None or metric not in cell.fit["metrics"]:
        return Text()
    return format_mean(cell.fit["metrics"][metric], cell.fit["stderr"].get(metric))


def merge_notes(cells: Sequence[Cell]) -> list[str]:
    """Return the notes on cells, one line for the models that share a note."""
    models: dict[str, list[str]] = {}
    for cell in cells:
        if cell.note:
            models.setdefault(cell.note, []).append(cell.model)
    return [f"{', '.join(names)}: {text}" for text, names in models.items()]


def path_tables(paths: Sequence[RankPath | EpochPath], metric: str) -> Iterator[Group]:
    """Yield a table for each path, the best path first: a bar from zero for each rank or epoch, in their order.

    The test is against the best rank or epoch of all paths.
    """
    ranked = sorted((report for path in paths for report in path.reports.values()), key=lambda report: -report[metric])
    best, ranked_p_values = ranked[0], compare_with_best(ranked, ranked[0], metric)
    for path in sorted(paths, key=lambda path: -max(report[metric] for report in path.reports.values())):
        key = "rank" if isinstance(path, RankPath) else "epoch"
        p_values = compare_with_best(list(path.reports.values()), best, metric)
        rows = []
        for (step, report), p_value in zip(path.reports.items(), p_values, strict=True):
            row = {key: Text(str(step)), metric: format_mean(report[metric], report.stderr.get(metric))}
            rows.append(row | {"p": Text("best") if report is best else format_p(p_value)})
        bar_width = min(MAX_BAR_WIDTH, out.width - table_width(rows, list(rows[0])) - COLUMN_GAP)
        for row, report in zip(rows, path.reports.values(), strict=True):
            bar = "█" * round(report[metric] / (best[metric] or 1) * bar_width)
            row[BAR_COLUMN] = Text(bar, style="green" if report is best and is_lead_significant(ranked_p_values) else "")
        name = path.name if isinstance(path, RankPath) else format_recipe(path.recipe)
        yield Group(leaderboard(rows, [BAR_COLUMN], title=name))
    yield Group(*explain_p_values(metric, ranked_p_values))


def point_leaderboard(search: Search, n: int = 10) -> Group:
    """Return the best points of a search. Pruned points were evaluated on fewer users."""
    varied, results = varied_params(search), search.results[:n]
    rows = []
    for result in results:
        params = [f"{name}={format_value(value)}" for name, value in result.recipe.params.items() if name in varied]
        row = {"parameters": Text(", ".join(params)), search.metric: format_mean(result.value, result.stderr)}
        rows.append(row | {"p": format_p(result.p_value), "users": Text(f"{result.n_users:,}")})
    p_values = [result.p_value for result in results]
    table = leaderboard(rows, ["users"], highlight=is_lead_significant(p_values))
    return Group(table, *explain_p_values(search.metric, p_values))


def varied_params(search: Search) -> list[str]:
    """Return the parameters of which a search tried several values; all of them if it tried a single point."""
    params = search.recipe.params
    varied = [name for name in params if len({str(result.recipe.params[name]) for result in search.results}) > 1]
    return varied or list(params)


def heat_maps(search: Search) -> Iterator[Group]:
    """Yield the metric over each pair of parameters that a grid varied, lighter where better."""
    params = search.recipe.params
    tried = {name: {result.recipe.params[name] for result in search.results} for name in params}
    plain = [name for name, value in params.items() if not isinstance(value, Configurable)]
    varied = [name for name in plain if 1 < len(tried[name]) <= MAX_HEAT_MAP_VALUES]
    for pair in combinations(varied, 2):
        across, down = sorted(pair, key=lambda name: len(tried[name]))
        frame = search.heat_map(down, across)
        labels = [f"{format_value(value)} " for value in frame[down]]
        heads = [f"{format_value(value)} " for value in sorted(tried[across])]
        cell_width = max(len(" 0.0000 "), *map(len, heads))
        n_columns = max(1, (out.width - max(map(len, labels))) // cell_width)  # side by side in this terminal
        values = frame.drop(down).to_numpy().astype(float)
        tables = [
            heat_map_table(labels, heads[first : first + n_columns], values, slice(first, first + n_columns))
            for first in range(0, len(heads), n_columns)
        ]
        yield Group(Text(f"\n{search.metric}, {down} down and {across} across"), *tables)


def heat_map_table(labels: Sequence[str], heads: Sequence[str], values: np.ndarray, columns: slice) -> Table:
    """Return some columns of a heat map, shaded by the lowest and the highest of all its values."""
    low, high = np.nanmin(values), np.nanmax(values)
    table = Table(box=None, pad_edge=False, padding=(0, 0), show_header=False)
    table.add_row("", *(Text(head, style="bold", justify="right") for head in heads))
    for label, row in zip(labels, values[:, columns], strict=True):
        levels = np.nan_to_num((row - low) / (high - low or 1)) * 255
        cells = [
            Text(f" {value:.4f} ", style=shade(int(level))) if value == value else Text()
            for value, level in zip(row, levels, strict=True)
        ]
        table.add_row(Text(label, style="bold", justify="right"), *cells)
    return table


def shade(level: int) -> str:
    """Return a style from dark blue (0) to light yellow (255), with a text colour that is legible on it."""
    red, green, blue = level, 40 + level * 180 // 255, 110 - level * 60 // 255
    return f"{'black' if level > 140 else 'white'} on rgb({red},{green},{blue})"
