"""A search's journal: a line for each point as soon as it is judged, from which an interrupted search goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from gramian import journal
from gramian.journal import damaged


@dataclass(frozen=True)
class Outcome:
    """What a point reached, on how many users: fewer than all, where it was hopeless by then."""

    value: float
    stderr: float
    n_users: int
    lost_to: str | None = None  # the point that was surely better


class Journal:
    """Outcomes by key, of one judge; those of other data, splits and metrics may be in the same file."""

    def __init__(self, path: str | Path | None, judge: str, metric: str) -> None:
        self.judge, self.metric = judge, metric
        self.file = journal.Journal(path, "judge")
        self.outcomes: dict[str, Outcome] = {}
        for number, row in enumerate(self.file.rows, start=1):
            try:
                error = float("nan") if row["stderr"] is None else float(row["stderr"])
                outcome = Outcome(float(row["value"]), error, int(row["n_users"]), row["lost_to"])
                key, of = str(row["key"]), row["judge"]
            except (KeyError, TypeError, ValueError):
                assert self.file.path is not None
                raise damaged(self.file.path, number, str(row).encode()) from None
            if of == judge:
                self.outcomes[key] = outcome

    def add(self, key: str, recipe: Mapping[str, Any], outcome: Outcome, seconds: float) -> None:
        """`seconds` are those of the fit and judgement of the point's family, divided among its points."""
        self.outcomes[key] = outcome
        row = {"judge": self.judge, "metric": self.metric, "key": key, "recipe": recipe, "value": outcome.value}
        error = None if isnan(outcome.stderr) else outcome.stderr  # of a single user: NaN is no JSON
        row |= {"stderr": error, "n_users": outcome.n_users, "lost_to": outcome.lost_to, "seconds": round(seconds, 3)}
        self.file.add(row)
