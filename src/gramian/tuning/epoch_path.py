"""Quality against epochs, and where to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from gramian.data.split import Split
from gramian.errors import InvalidInput, NotSupported
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, evaluate, parsed_metrics
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
    n_threads: int | None = None,
) -> EpochPath:
    """Train on a split's train part, judge each epoch, and stop when the first metric has not risen for `patience` of them.

    To choose the number of epochs, pass the split's `validation`.
    """
    if not isinstance(recipe, Iterative):
        raise NotSupported("a recipe that is trained in epochs", str(recipe), "Pass gr.IALS(), say")
    if not isinstance(split, Split):
        raise InvalidInput("a Split", type(split).__name__, "Make one: gr.split.strong(events)")
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise InvalidInput("patience of at least 1 epoch", repr(patience), "Pass patience=3, say")
    metric = next(iter(parsed_metrics(metrics)))
    reports: dict[int, Report] = {}
    objectives: dict[int, float] = {}
    best: Epoch | None = None
    for epoch in recipe.epochs(split.train, dtype=dtype, n_threads=n_threads):
        reports[epoch.number] = evaluate(epoch.model, split, metrics, n_threads=n_threads)
        objectives[epoch.number] = epoch.objective
        if best is None or reports[epoch.number][metric] > reports[best.number][metric]:
            best = epoch
        elif epoch.number - best.number >= patience:
            break
    assert best is not None
    found = replace(recipe, n_epochs=best.number)  # type: ignore[call-arg]
    return EpochPath(found, metric, reports, objectives, Recommender(best.model.scorer, found, split.train))
