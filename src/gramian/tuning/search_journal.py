"""A search's journal: one line per point as soon as it is evaluated, from which an interrupted search continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from gramian.io.journal import Journal, damaged_line


@dataclass(frozen=True)
class Outcome:
    """The value a point reached.

    Parameters
    ----------
    value, stderr
        The mean of the metric and its standard error.
    n_users
        On how many users it was evaluated: fewer than all if it was pruned.
    lost_to
        The key of the point it lost to, if it was pruned.
    """

    value: float
    stderr: float
    n_users: int
    lost_to: str | None = None


class SearchJournal:
    """Outcomes by key, of one objective. The file may hold those of other data, splits and metrics too."""

    def __init__(self, path: str | Path | None, objective: str, metric: str) -> None:
        self.objective, self.metric = objective, metric
        self.file = Journal(path, "objective")
        self.outcomes: dict[str, Outcome] = {}
        for number, row in enumerate(self.file.rows, start=1):
            try:
                error = float("nan") if row["stderr"] is None else float(row["stderr"])
                outcome = Outcome(float(row["value"]), error, int(row["n_users"]), row["lost_to"])
                key, row_objective = str(row["key"]), row["objective"]
            except (KeyError, TypeError, ValueError):
                assert self.file.path is not None
                raise damaged_line(self.file.path, number, str(row).encode()) from None
            if row_objective == objective:
                self.outcomes[key] = outcome

    def add(self, key: str, recipe: Mapping[str, Any], outcome: Outcome, seconds: float) -> None:
        """Add a point. `seconds` are those of its shared fit and evaluation, divided among the points of the fit."""
        self.outcomes[key] = outcome
        row = {"objective": self.objective, "metric": self.metric, "key": key, "recipe": recipe, "value": outcome.value}
        error = None if isnan(outcome.stderr) else outcome.stderr  # NaN, of a single user, is not JSON
        row |= {"stderr": error, "n_users": outcome.n_users, "lost_to": outcome.lost_to, "seconds": round(seconds, 3)}
        self.file.add(row)
