"""What a benchmark's journal says, for the page: its tables, and what was measured of a recipe. Read again once it grows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gramian.app.benchmark import Benchmark
from gramian.app.experiment import Experiment, papers
from gramian.app.report import is_run, others
from gramian.app.show import in_words
from gramian.errors import MissingFile
from gramian.recommender import RecipeLike


class Standings:
    """The journal at a path."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise MissingFile(f"a benchmark's journal at {path}", "no such file", "Run `gramian benchmark movielens` first")
        self.path, self.lock, self.seen = path, threading.Lock(), (0, 0)
        self.known = [Experiment.read(file) for file in papers().values()]

    def benchmark(self) -> Benchmark:
        with self.lock:
            facts = self.path.stat()
            if self.seen != (facts.st_mtime_ns, facts.st_size):
                self.seen, self.read = (facts.st_mtime_ns, facts.st_size), Benchmark(self.path)
            return self.read

    def tables(self) -> list[dict[str, Any]]:
        """Every table that was run, with the cells of each of its data sets that were filled."""
        benchmark = self.benchmark()
        every = [*self.known, *others(benchmark, {table.name for table in self.known})]
        return [table_json(benchmark, table) for table in every if is_run(benchmark, table)]

    def measured(self, recipe: RecipeLike) -> list[dict[str, Any]]:
        """The figures of fits of the same recipe, on whatever data."""
        wanted = recipe.to_json()
        fits = [fit for fit in self.benchmark().fits.values() if fit["recipe"] == wanted]
        return [{"data": fit["data"], "metrics": fit["metrics"]} for fit in fits]


def table_json(benchmark: Benchmark, table: Experiment) -> dict[str, Any]:
    data: dict[str, list[dict[str, Any]]] = {}
    for cell in benchmark.shown(table):
        if cell.fit is not None or cell.published:
            figures = {
                name: {"published": cell.published.get(name), "ours": cell.ours(here)} for name, here in table.metrics.items()
            }
            fit: Any = cell.fit or {"recipe": {"settings": {}}}
            settings = ", ".join(f"{name}={in_words(value)}" for name, value in fit["recipe"]["settings"].items())
            row = {"model": cell.model, "figures": figures, "settings": settings, "note": cell.note}
            data.setdefault(cell.data, []).append(row | {"seconds": fit.get("seconds"), "peak_bytes": fit.get("peak_bytes")})
    filled = {name: rows for name, rows in data.items() if any(row["seconds"] is not None for row in rows)}
    return {
        "name": table.name,
        "title": table.title,
        "metrics": list(table.metrics),
        "data": [{"name": name, "rows": rows} for name, rows in filled.items()],
    }
