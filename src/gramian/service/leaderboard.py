"""The leaderboard: the tables of a benchmark journal, and the metrics it has for a recipe."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gramian.core.params import format_json_params
from gramian.core.recipe import Recipe
from gramian.errors import MissingFile
from gramian.evaluation.report import Comparison
from gramian.experiments.experiment import Experiment, papers
from gramian.experiments.report import describe_published, find_custom_tables, has_results, rank_cells
from gramian.experiments.runner import Benchmark, Cell, compares_with_published


class Leaderboard:
    """The benchmark journal in a file, which is read again when it has changed.

    Parameters
    ----------
    path
        The journal that `gramian benchmark` wrote.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise MissingFile(f"a benchmark's journal at {path}", "no such file", "Run `gramian benchmark movielens` first")
        self.path, self.lock, self.version = path, threading.Lock(), (0, 0)
        self.published = [Experiment.read(file) for file in papers().values()]

    def read_journal(self) -> tuple[Benchmark, list[dict[str, Any]]]:
        """Return the benchmark as the journal has it now, and its tables. Both are kept until the file changes."""
        with self.lock:
            facts = self.path.stat()
            version = (facts.st_mtime_ns, facts.st_size)
            if self.version != version:
                benchmark = Benchmark(self.path)
                self.version, self.contents = version, (benchmark, build_tables(benchmark, self.published))
            return self.contents

    def tables(self) -> list[dict[str, Any]]:
        """Return every table that the journal has rows of, those on own data first."""
        _, tables = self.read_journal()
        return tables

    def find_metrics(self, recipe: Recipe) -> list[dict[str, Any]]:
        """Return the metrics of all fits of a recipe, on any data, with their standard errors and the number of users."""
        recipe_json = recipe.to_json()
        benchmark, _ = self.read_journal()
        return [
            {"data": fit["data"], "metrics": fit["metrics"], "stderr": fit["stderr"], "users": fit.get("users")}
            for fit in benchmark.fits.values()
            if fit["recipe"] == recipe_json
        ]


def build_tables(benchmark: Benchmark, published: list[Experiment]) -> list[dict[str, Any]]:
    """Return the tables that a journal has rows of as JSON: those on own data, then those of published tables.

    Parameters
    ----------
    benchmark
        The journal.
    published
        The published tables.
    """
    tables = [*find_custom_tables(benchmark, {table.name for table in published}), *published]
    return [table_json(benchmark, table) for table in tables if has_results(benchmark, table)]


def table_json(benchmark: Benchmark, table: Experiment) -> dict[str, Any]:
    """Return a table with those of its data sets that have a row in the journal."""
    cells = benchmark.cells_of(table)
    data_names = dict.fromkeys(cell.data for cell in cells if cell.row is not None)
    data = [data_json(benchmark, table, [cell for cell in cells if cell.data == name]) for name in data_names]
    return {"name": table.name, "title": table.title, "metrics": list(table.metrics), "choose": table.choose, "data": data}


def data_json(benchmark: Benchmark, table: Experiment, cells: list[Cell]) -> dict[str, Any]:
    """Return the rows of one data set: those of a published table in its order, others with the best first."""
    name, winner, comparisons = cells[0].data, None, dict[str, Comparison]()
    if compares_with_published(cells):
        cells = [cell for cell in cells if cell.row is not None or cell.published]
        about = describe_published(cells)
    else:
        ranked = rank_cells(benchmark, [cell for cell in cells if cell.row is not None], table.choose)
        cells, winner, comparisons, about = ranked.cells, ranked.winner, ranked.comparisons, ranked.about
    rows = [row_json(table, cell, comparisons.get(cell.model)) | {"is_winner": cell.model == winner} for cell in cells]
    return {"name": name, "about": about, "rows": rows}


def row_json(table: Experiment, cell: Cell, comparison: Comparison | None) -> dict[str, Any]:
    """Return a row: published and measured figures, the paired difference from the best model, costs and parameters."""
    fit: Any = cell.fit or {"stderr": {}, "seconds": None, "peak_bytes": None}
    figures = {
        name: {"published": cell.published.get(name), "ours": cell.measured_figure(metric), "stderr": fit["stderr"].get(metric)}
        for name, metric in table.metrics.items()
    }
    is_tested = comparison is not None and comparison.p_value == comparison.p_value  # not NaN, as with a single user
    return {
        "model": cell.model,
        "figures": figures,
        "against_best": vars(comparison) if is_tested else None,
        "params": "" if cell.recipe is None else ", ".join(format_json_params(cell.recipe)),
        "note": cell.note,
        "seconds": fit["seconds"],
        "peak_bytes": fit["peak_bytes"],
    }
