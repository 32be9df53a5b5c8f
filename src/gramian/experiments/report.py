"""The report of a benchmark journal: one self-contained HTML page, made from templates/, and its pictures as files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from gramian.core.params import format_json_params
from gramian.errors import InvalidInput, NotSupported
from gramian.evaluation.comparison import SIGNIFICANCE
from gramian.evaluation.report import Comparison
from gramian.experiments.claims import JudgedClaim, judge_claims
from gramian.experiments.experiment import (
    COSTS,
    EventsData,
    Experiment,
    ExperimentData,
    ModelEntry,
    format_figure,
    format_p_value,
)
from gramian.experiments.plots import require_matplotlib
from gramian.experiments.report_pictures import Picture, PictureFolder, draw_pictures
from gramian.experiments.runner import Benchmark, Cell, JournalRow, compares_with_published
from gramian.io.atomic import atomic_file
from gramian.io.journal import Journal
from gramian.validation import format_install_advice

REPORT_TEMPLATES = Path(__file__).with_name("templates")
AS_PUBLISHED = "as published: selected on test, for comparison only"
EXPLANATION_OF_AS_PUBLISHED = (
    "Ours was chosen on a validation split. The columns “as published” show the best point of a grid on the test split, as the "
    "authors' public code selects it; they are for comparison only."
)
GOOD_CHANGE = -0.01  # relative difference from a published figure that counts as reached


@dataclass(frozen=True)
class TableField:
    """A field of a table: its text, and a CSS class."""

    text: str = ""
    css: str = ""


@dataclass(frozen=True)
class TableRow:
    """A row of a table: the model, fields, then the parameters of the recipe and a note in the last column."""

    model: str
    is_winner: bool
    fields: list[TableField]
    params: str
    note: str


@dataclass(frozen=True)
class DataResults:
    """The table and the pictures of one data set, how to read them, and why the data is missing if nothing was measured."""

    name: str
    missing: str | None
    about: str
    heads: list[str]
    rows: list[TableRow]
    pictures: list[Picture]


@dataclass(frozen=True)
class ReportSection:
    """An experiment in the page, the command that measured it, and whether another program measured some of its fits."""

    name: str
    title: str
    command: str
    has_other_programs: bool
    has_results: bool
    data: list[DataResults]
    claims: list[JudgedClaim]


@dataclass(frozen=True)
class RankedCells:
    """The cells of one data set, best model first.

    Parameters
    ----------
    cells
        The cells; those without a figure come last.
    comparisons
        Model → its paired difference from the best model.
    winner
        The best model, if it is significantly better than every other; else None.
    about
        How to read the figures, and whether the best model is significantly better, in sentences.
    """

    cells: list[Cell]
    comparisons: dict[str, Comparison]
    winner: str | None
    about: str


def write_report(benchmark: Benchmark, experiments: list[Experiment], folder: Path) -> Path:
    """Write the report of a journal.

    Parameters
    ----------
    benchmark
        The journal.
    experiments
        The known tables. Tables that only the journal has, such as comparisons on own data, come first; if there are any,
        known tables without results are left out.
    folder
        Where to write index.html and the pictures.

    Returns
    -------
    Path
        The path of the page.
    """
    require_matplotlib()
    template = load_template("report.html.j2")
    if folder.is_file():
        raise InvalidInput("a folder for the report", f"{folder}, a file", "Choose another path")
    folder.mkdir(parents=True, exist_ok=True)
    pictures = PictureFolder(folder)
    own_tables = find_custom_tables(benchmark, {experiment.name for experiment in experiments})
    measured = [table for table in experiments if has_results(benchmark, table)]
    not_run = [] if own_tables else [table for table in experiments if not has_results(benchmark, table)]
    searches = Journal(benchmark.search_path, "objective").rows
    sections = [build_section(benchmark, table, searches, pictures) for table in (*own_tables, *measured, *not_run)]
    rows = benchmark.journal.rows
    page = template.render(n_fits=len(benchmark.fits), last_row=rows[-1] if rows else None, sections=sections)
    path = folder / "index.html"
    with atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def load_template(name: str) -> Any:
    """Load a template. Every value is escaped in it, since names, titles and claims are untrusted text."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    except ImportError:
        raise NotSupported("Jinja2, for HTML reports", "no such package", format_install_advice("plot")) from None
    loader = FileSystemLoader(REPORT_TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.get_template(name)


def find_custom_tables(benchmark: Benchmark, known: set[str]) -> list[Experiment]:
    """Return the tables that only the journal has, such as comparisons on a user's own data."""
    rows_by_table: dict[str, list[JournalRow]] = {}
    for row in [*benchmark.cells.values(), *benchmark.curves.values()]:
        if row["table"] not in known:
            rows_by_table.setdefault(row["table"], []).append(row)
    tables = []
    for table, rows in rows_by_table.items():
        fits = [benchmark.fits[row["fit"]] for row in rows if row.get("fit") in benchmark.fits]
        metrics = {metric: metric for fit in fits for metric in fit["metrics"]}
        data = tuple(EventsData(name) for name in dict.fromkeys(row["data"] for row in rows))
        models = tuple(ModelEntry(name) for name in dict.fromkeys(row["model"] for row in rows if "model" in row))
        tables.append(Experiment(table, table, metrics, next(iter(metrics), "ndcg@20"), data, models))
    return tables


def has_results(benchmark: Benchmark, table: Experiment) -> bool:
    """Whether the journal has rows of a table."""
    return any(row["table"] == table.name for row in [*benchmark.cells.values(), *benchmark.curves.values()])


def build_section(
    benchmark: Benchmark, table: Experiment, searches: list[dict[str, Any]], pictures: PictureFolder
) -> ReportSection:
    """Collect what the page shows of a table. Data sets with results come first."""
    all_cells = benchmark.cells_of(table)
    cells = {data.name: [cell for cell in all_cells if cell.data == data.name] for data in table.data}
    ordered = sorted(table.data, key=lambda data: all(cell.fit is None for cell in cells[data.name]))
    results = [build_results(benchmark, table, data, cells[data.name], searches, pictures) for data in ordered]
    others = any(cell.fit is not None and "by" in cell.fit for cell in all_cells)
    claims = judge_claims(benchmark, table)
    return ReportSection(table.name, table.title, find_command(table), others, has_results(benchmark, table), results, claims)


def find_command(table: Experiment) -> str:
    """Return the command that measures a table. On own data it has further options, which the journal does not record."""
    names = [data.name for data in table.data]
    own_data = re.fullmatch(r"(.+), (\S+) split", table.name, re.DOTALL)  # as `gramian benchmark --data` names its tables
    if own_data and names == [own_data[1]]:
        return f"gramian benchmark --data {quote(own_data[1])} --split {quote(own_data[2])} …"
    return f"gramian benchmark {quote(table.name)}"


def build_results(
    benchmark: Benchmark,
    table: Experiment,
    data: ExperimentData,
    cells: list[Cell],
    searches: list[dict[str, Any]],
    pictures: PictureFolder,
) -> DataResults:
    """Collect what the page shows of one data set: published and measured figures, or measured ones with the best first."""
    missing = cells[0].missing if cells and all(cell.fit is None for cell in cells) else None
    if compares_with_published(cells):
        is_shown = any(cell.best_on_test for cell in cells)
        test_heads = [AS_PUBLISHED, "difference"] if is_shown else []
        heads = [head for metric in table.metrics for head in (f"{metric}, published", "ours", "difference", *test_heads)]
        fields = [published_fields(table, cell, is_shown) for cell in cells]
        about, winner = describe_published(cells), None
    else:
        ranked = rank_cells(benchmark, cells, table.choose)
        cells, about, winner = ranked.cells, ranked.about, ranked.winner
        heads = [*table.metrics, f"behind the best in {table.choose}", "p"]
        fields = [measured_fields(table, cell, ranked.comparisons.get(cell.model)) for cell in cells]
    drawn = list(draw_pictures(benchmark, table, data.name, cells, searches, pictures))
    rows = [build_row(cell, figures, cell.model == winner) for cell, figures in zip(cells, fields, strict=True)]
    return DataResults(data.name, missing, about, ["model", *heads, "fitting time", "peak memory", "parameters"], rows, drawn)


def rank_cells(benchmark: Benchmark, cells: list[Cell], metric: str) -> RankedCells:
    """Sort the cells of one data set, the best first, and compare every model with the best one, user by user.

    Parameters
    ----------
    benchmark
        The journal, which has the metrics of each user beside it.
    cells
        The cells of one data set.
    metric
        The metric to sort by.
    """
    comparisons = benchmark.compare_with_best(cells, metric)
    measured = [cell for cell in cells if cell.measured_figure(metric) is not None]
    measured.sort(key=lambda cell: -(cell.measured_figure(metric) or 0))
    ranked = measured + [cell for cell in cells if cell.measured_figure(metric) is None]
    if not measured:
        return RankedCells(ranked, {}, None, "")
    best, *others = measured
    about = f"Best first by {metric}. {describe_figures(best)}"
    if not others:
        return RankedCells(ranked, comparisons, None, about)
    about += f" p is from a paired t-test against {best.model}, the best in {metric}, over the same users, corrected for"
    about += " the number of models (Holm 1979)."
    is_compared = all(cell.model in comparisons for cell in others)
    is_winner = is_compared and all(comparisons[cell.model].p_value < SIGNIFICANCE for cell in others)
    if is_winner:
        about += f" {best.model} is significantly better than every other model (p < {SIGNIFICANCE})."
    elif is_compared:
        about += f" No model is significantly better than all others (p < {SIGNIFICANCE})."
    else:
        about += " The metrics of each user, which the test needs, are not beside the journal for all models."
    return RankedCells(ranked, comparisons, best.model if is_winner else None, about)


def describe_published(cells: list[Cell]) -> str:
    """Explain the columns of a table with published figures."""
    measured = [cell for cell in cells if cell.fit is not None]
    about = f"Published figures, ours, and the difference. {describe_figures(measured[0]) if measured else ''}".strip()
    return f"{about} {EXPLANATION_OF_AS_PUBLISHED}" if any(cell.best_on_test for cell in cells) else about


def describe_figures(cell: Cell) -> str:
    """Explain a figure: how many users it is the mean of, and what stands after ±."""
    assert cell.fit is not None
    users = f"{cell.fit['users']:,} users" if "users" in cell.fit else "users"
    return f"Each figure is the mean over {users}{' ± its standard error' if cell.fit['stderr'] else ''}."


def build_row(cell: Cell, figures: list[TableField], is_winner: bool) -> TableRow:
    """Build a row: the model, its figures, and the cost and parameters of the fit."""
    fields = [*figures, TableField(cell.duration), TableField(cell.memory)]
    params = [] if cell.recipe is None else [cell.recipe["name"], ", ".join(format_json_params(cell.recipe))]
    note = ". ".join(filter(None, [cell.note, describe_test_point(cell)]))
    return TableRow(cell.model, is_winner, fields, ": ".join(filter(None, params)), note)


def describe_test_point(cell: Cell) -> str:
    """Return the parameters that were selected on test, and among how many points; empty if none were."""
    if cell.best_on_test is None:
        return ""
    params = ", ".join(format_json_params(cell.best_on_test["recipe"]))
    return f"Selected on test among {cell.n_test_points}: {params}"


def published_fields(table: Experiment, cell: Cell, is_test_shown: bool) -> list[TableField]:
    """Return the published figure, ours with its standard error, and the difference for each metric.

    If asked to, add the best figure of the points that were selected on test, and its difference.
    """
    fields = []
    for printed, metric in table.metrics.items():
        theirs, ours = cell.published.get(printed), cell.measured_figure(metric)
        difference = format_difference(theirs, ours, metric)
        fields += [TableField(format_figure(theirs, metric)), measured_field(cell, metric), difference]
        if is_test_shown:
            best = None if cell.best_on_test is None else cell.best_on_test["metrics"].get(metric)
            fields += [TableField(format_figure(best, metric), "comparison"), format_difference(theirs, best, metric)]
    return fields


def measured_fields(table: Experiment, cell: Cell, comparison: Comparison | None) -> list[TableField]:
    """Return each metric with its standard error, and the paired difference from the best model with its p-value.

    A model that is not run has its published figures in their place.
    """
    fields = [
        TableField(format_figure(cell.published.get(printed), metric)) if cell.fit is None else measured_field(cell, metric)
        for printed, metric in table.metrics.items()
    ]
    if comparison is None:
        return [*fields, TableField(), TableField()]
    behind = f"{-comparison.difference:.4f} ± {comparison.stderr:.4f}"
    return [*fields, TableField(behind), TableField(format_p_value(comparison.p_value))]


def measured_field(cell: Cell, metric: str) -> TableField:
    """Return a measured figure with its standard error, where it has one."""
    error = None if cell.fit is None else cell.fit["stderr"].get(metric)
    figure = format_figure(cell.measured_figure(metric), metric)
    return TableField(figure if error is None else f"{figure} ± {format_figure(error, metric)}")


def format_difference(theirs: float | None, ours: float | None, metric: str) -> TableField:
    """Format our figure relative to theirs: a percentage, green if reached; of costs, the ratio."""
    if not theirs or ours is None:
        return TableField()
    if metric in COSTS:
        return TableField(f"× {ours / theirs:.2g}")
    change = ours / theirs - 1
    return TableField(f"{change:+.1%}", "good" if change >= GOOD_CHANGE else "bad")
