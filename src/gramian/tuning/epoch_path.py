"""Quality against epochs, and where to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gramian import store
from gramian.data.split import Split
from gramian.errors import InvalidInput, NotSupported
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, evaluate, parsed_metrics
from gramian.models import load
from gramian.models.iterative import Epoch, Iterative
from gramian.models.recipe import Recipe
from gramian.recommender import Recommender


@dataclass(frozen=True)
class EpochPath:
    """A report and the objective for each epoch of one training, up to where it was stopped, and the best model of them."""

    recipe: Recipe  # with as many epochs as were best
    metric: str  # by which they were best
    reports: dict[int, Report]
    objectives: dict[int, float]
    model: Recommender

    def frame(self) -> pl.DataFrame:
        """One row for each epoch: the objective, every metric and its standard error."""
        rows = []
        for number, report in self.reports.items():
            errors = {f"{metric} stderr": error for metric, error in report.stderr.items()}
            rows.append({"epoch": number, "objective": self.objectives[number]} | report.mean | errors)
        return pl.DataFrame(rows)


def epoch_path(
    recipe: Recipe,
    split: Split,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    patience: int = 3,
    dtype: str | type = "float32",
    scratch: str | Path | None = None,
    n_threads: int | None = None,
) -> EpochPath:
    """Train on a split's train part, judge each epoch, and stop when the first metric has not risen for `patience` of them.

    To choose the number of epochs, pass the split's `validation`. A training that adapts its learning rate goes by that metric,
    too. With a `scratch` folder the last epochs, all reports and the best model are kept there, and the same path, killed and
    started again, goes on where it was.
    """
    if not isinstance(recipe, Iterative):
        raise NotSupported("a recipe that is trained in epochs", str(recipe), "Pass gr.IALS(), say")
    if not isinstance(split, Split):
        raise InvalidInput("a Split", type(split).__name__, "Make one: gr.split.strong(events)")
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise InvalidInput("patience of at least 1 epoch", repr(patience), "Pass patience=3, say")
    metric = next(iter(parsed_metrics(metrics)))
    kept = Kept(scratch, recipe, split, metrics, dtype)
    epochs = recipe.epochs(split.train, dtype=dtype, scratch=scratch, again=True, n_threads=n_threads)
    path: dict[int, tuple[Report, float]] = {}
    best: Recommender | None = None
    verdict = None
    while True:
        try:
            epoch = epochs.send(verdict)
        except StopIteration:
            break
        path = path or kept.rows(epoch.number)
        if epoch.number not in path:
            report = evaluate(epoch.model, split, metrics, n_threads=n_threads)
            path[epoch.number] = (report, epoch.objective)
            kept.keep(epoch, report, leader(path, metric) == epoch.number)
        if leader(path, metric) == epoch.number:
            best = epoch.model
        verdict = path[epoch.number][0][metric]
        if epoch.number - leader(path, metric) >= patience:
            epochs.close()
            break
    found = replace(recipe, n_epochs=leader(path, metric))  # type: ignore[call-arg]
    reports, objectives = {n: report for n, (report, _) in path.items()}, {n: value for n, (_, value) in path.items()}
    model = Recommender((best or kept.best()).scorer, found, split.train)
    return EpochPath(found, metric, reports, objectives, model)


def leader(path: dict[int, tuple[Report, float]], metric: str) -> int:
    """The best epoch, the first of equals."""
    return max(path, key=lambda number: path[number][0][metric])


class Kept:
    """The reports and the best model of a path, in its scratch folder, if it has one."""

    def __init__(self, scratch: str | Path | None, recipe: Iterative, split: Split, metrics: Sequence[str], dtype: Any) -> None:
        self.folder = None if scratch is None else Path(scratch)
        self.key: dict[str, Any] = {"recipe": recipe.endless(), "split": split.fingerprint}
        self.key |= {"metrics": list(metrics), "dtype": np.dtype(dtype).name}

    def rows(self, number: int) -> dict[int, tuple[Report, float]]:
        """Report and objective of each epoch up to this one that was judged."""
        found = {}
        for path in sorted(self.folder.glob("gramian-report-*")) if self.folder else ():
            facts, arrays, ids = store.read(path, "report")
            if facts["key"] != self.key:
                what = f"the recipe, split and metrics of the path in {self.folder}"
                raise InvalidInput(what, "others", "Name a new folder")
            report = Report(arrays, facts["catalog"], ids["users"], self.key["split"], tuple(self.key["metrics"]))
            found[int(facts["epoch"])] = (report, float(facts["objective"]))
        return {epoch: row for epoch, row in found.items() if epoch <= number}

    def keep(self, epoch: Epoch, report: Report, ahead: bool) -> None:
        if self.folder is None:
            return
        if ahead:
            epoch.model.save(self.folder / "gramian-best")
        facts = {"key": self.key, "epoch": epoch.number, "objective": epoch.objective, "catalog": report.catalog}
        place = self.folder / f"gramian-report-{epoch.number:05}"
        store.write(place, "report", facts, report.per_user, {"users": report.users})

    def best(self) -> Recommender:
        assert self.folder is not None
        return load(self.folder / "gramian-best")
