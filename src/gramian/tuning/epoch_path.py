"""Quality against epochs, and early stopping."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gramian.core.epochs import Epoch, EpochRecipe
from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender, load_model
from gramian.data.frames import convert_frame
from gramian.data.split import Split
from gramian.errors import InvalidInput, NotSupported
from gramian.evaluation.evaluate import evaluate
from gramian.evaluation.metrics import DEFAULT_METRICS, Metric, MetricLike, parse_metrics
from gramian.evaluation.report import Report
from gramian.io.folder import read_folder, write_folder
from gramian.tuning.objective import warn_if_test_users
from gramian.tuning.rank_path import reports_frame
from gramian.validation import require_instance, require_whole_number

BEST_MODEL, REPORT = "gramian-best", "gramian-report-"  # folders in the scratch folder


@dataclass(frozen=True, repr=False)
class EpochPath:
    """A report and the objective of each epoch of a training, up to where it stopped, and the best model.

    Parameters
    ----------
    recipe
        The recipe with the best number of epochs.
    metric
        The metric by which it is best.
    reports, objectives
        By epoch.
    model
        The model after the best epoch.
    """

    recipe: Recipe
    metric: str
    reports: dict[int, Report]
    objectives: dict[int, float]
    model: Recommender

    def __repr__(self) -> str:
        best = self.reports[self.recipe.params["n_epochs"]]
        return f"EpochPath({self.recipe}: {self.metric} {best[self.metric]:.4f}, best of {len(self.reports)} epochs)"

    def frame(self, library: str = "polars") -> Any:
        """Return one row per epoch: the objective, every metric and its standard error.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        table = reports_frame("epoch", self.reports)
        return convert_frame(table.insert_column(1, pl.Series("objective", list(self.objectives.values()))), library)


def epoch_path(
    recipe: Recipe,
    split: Split,
    metrics: Iterable[MetricLike] = DEFAULT_METRICS,
    *,
    patience: int = 3,
    dtype: str | type = "float32",
    scratch: str | Path | None = None,
    n_threads: int | None = None,
) -> EpochPath:
    """Train on a split's training part, evaluate each epoch, and stop when the first metric has stopped rising.

    Parameters
    ----------
    recipe
        A recipe that is trained in epochs. A training that adapts its learning rate does so by the first metric.
    split
        To choose the number of epochs, the split's `validation`.
    metrics
        As in `gr.evaluate`; the first one decides.
    patience
        Stop when the metric has not risen for so many epochs.
    dtype, n_threads
        As in `recipe.fit`.
    scratch
        A folder for the last checkpoints, all reports and the best model. A path that was killed continues where it
        stopped when it is started again with this folder.

    Returns
    -------
    EpochPath
    """
    if not isinstance(recipe, EpochRecipe):
        raise NotSupported("a recipe that is trained in epochs", str(recipe), "Pass gr.IALS(), say")
    require_instance(split, Split, "Make one: gr.split.strong(events)")
    require_whole_number("patience", patience, example=3)
    warn_if_test_users(split)
    parsed = parse_metrics(metrics)
    metric = str(parsed[0])
    checkpoint = PathCheckpoint(scratch, recipe, split, parsed, dtype)
    epochs = recipe.epochs(split.train, dtype=dtype, scratch=scratch, repeat_last=True, n_threads=n_threads)
    path: dict[int, tuple[Report, float]] = {}
    best_model: Recommender | None = None
    score = None
    while True:
        try:
            epoch = epochs.send(score)
        except StopIteration:
            break
        path = path or checkpoint.load_reports(epoch.number)
        if epoch.number not in path:
            report = evaluate(epoch.model, split, parsed, n_threads=n_threads)
            path[epoch.number] = (report, epoch.objective)
            checkpoint.save(epoch, report, is_best=best_epoch(path, metric) == epoch.number)
        if best_epoch(path, metric) == epoch.number:
            best_model = epoch.model
        score = path[epoch.number][0][metric]
        if epoch.number - best_epoch(path, metric) >= patience:
            epochs.close()
            break
    best_recipe = replace(recipe, n_epochs=best_epoch(path, metric))  # type: ignore[type-var]
    reports, objectives = {n: report for n, (report, _) in path.items()}, {n: value for n, (_, value) in path.items()}
    scorer = (best_model or checkpoint.load_best_model()).scorer
    model = Recommender(scorer, best_recipe, split.train.catalog, split.train)
    return EpochPath(best_recipe, metric, reports, objectives, model)


def best_epoch(path: dict[int, tuple[Report, float]], metric: str) -> int:
    """Return the best epoch, the first of equals."""
    return max(path, key=lambda number: path[number][0][metric])


class PathCheckpoint:
    """The reports and the best model of a path in its scratch folder, if it has one."""

    def __init__(
        self, scratch: str | Path | None, recipe: EpochRecipe, split: Split, metrics: list[Metric], dtype: Any
    ) -> None:
        self.folder = None if scratch is None else Path(scratch)
        self.metrics = tuple(map(str, metrics))
        self.key: dict[str, Any] = {"recipe": recipe.resume_key(), "split": split.fingerprint}
        self.key |= {"metrics": list(self.metrics), "dtype": np.dtype(dtype).name}

    def load_reports(self, last: int) -> dict[int, tuple[Report, float]]:
        """Return the report and objective of each evaluated epoch up to `last`."""
        reports = {}
        for path in sorted(self.folder.glob(f"{REPORT}*")) if self.folder else ():
            facts, arrays, ids = read_folder(path, "report")
            if facts["key"] != self.key:
                expected = f"the recipe, split and metrics of the path in {self.folder}"
                raise InvalidInput(expected, "others", "Choose a new folder")
            report = Report(arrays, facts["catalog"], ids["users"], self.key["split"], self.metrics)
            reports[int(facts["epoch"])] = (report, float(facts["objective"]))
        return {epoch: row for epoch, row in reports.items() if epoch <= last}

    def save(self, epoch: Epoch, report: Report, is_best: bool) -> None:
        """Write the report of an epoch, and its model if it is the best so far."""
        if self.folder is None:
            return
        if is_best:
            epoch.model.save(self.folder / BEST_MODEL)
        facts = {"key": self.key, "epoch": epoch.number, "objective": epoch.objective, "catalog": report.catalog}
        write_folder(self.folder / f"{REPORT}{epoch.number:05}", "report", facts, report.per_user, {"users": report.users})

    def load_best_model(self) -> Recommender:
        """Return the best model of an earlier run."""
        assert self.folder is not None
        return load_model(self.folder / BEST_MODEL)
