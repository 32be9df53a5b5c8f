"""The final test: the best recipe of each family, fitted on everything but the test part, measured once on the test users."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender
from gramian.data.split import Split
from gramian.errors import GramianError
from gramian.evaluation.breakdown import by_item_group
from gramian.evaluation.comparison import ModelComparison
from gramian.evaluation.metrics import Metric, largest_cutoff, parse_metrics
from gramian.evaluation.report import Report
from gramian.evaluation.task import RankingTask
from gramian.experiments.trial import MeasuredCost
from gramian.selection.budget import Clock
from gramian.selection.search import PREDICTION_MARGIN
from gramian.selection.standing import Candidate

CHEAPER = 0.5  # of the cost of the best model, below which a tied model is worth naming
FEW_TEST_USERS = 30  # below which a paired t-test says little


@dataclass(frozen=True, eq=False)
class Finalist:
    """A candidate that was tested.

    Parameters
    ----------
    candidate
        The recipe with its validation metric.
    report
        The metrics on the test users.
    groups
        The share of targets found, and of listed items, for head, tail and cold items.
    fit_seconds, peak_bytes
        Time and peak memory of the fit.
    model_bytes
        The size of the fitted arrays.
    list_milliseconds
        The time to rank all items for one user.
    """

    candidate: Candidate
    report: Report
    groups: dict[str, dict[str, Any]]
    fit_seconds: float
    peak_bytes: int
    model_bytes: int
    list_milliseconds: float

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.candidate.recipe

    @property
    def name(self) -> str:
        """The recipe as text, which names the finalist in tables."""
        return str(self.recipe)

    def to_json(self) -> dict[str, Any]:
        """Return all figures for JSON."""
        errors = {name: error for name, error in self.report.stderr.items() if error == error}  # NaN is not JSON
        return {
            "family": self.candidate.family,
            "recipe": self.recipe.to_json(),
            "spec": self.name,
            "validation": {"mean": self.candidate.value, "stderr": self.candidate.stderr, "users": self.candidate.n_users},
            "test": {name: {"mean": mean, "stderr": errors.get(name)} for name, mean in self.report.mean.items()},
            "items": self.groups,
            "fit_seconds": self.fit_seconds,
            "peak_bytes": self.peak_bytes,
            "model_bytes": self.model_bytes,
            "list_milliseconds": self.list_milliseconds,
        }


def final_metrics(metric: Metric) -> list[Metric]:
    """Return the metrics of the final test: the one that was maximised, and recall, coverage and novelty."""
    return parse_metrics([metric, *(f"{name}@{metric.k}" for name in ("recall", "coverage", "novelty"))])


def run_final_test(candidates: Sequence[Candidate], split: Split, metric: Metric, clock: Clock) -> list[Finalist]:
    """Test candidates in their order, as long as there is time for another and for the last fit; always the first.

    Parameters
    ----------
    candidates
        The candidates, the chosen one first.
    split
        The final test.
    metric
        The metric that was maximised.
    clock
        The budget.

    Returns
    -------
    list[Finalist]
        In the same order. Ctrl-C ends the test, but not before the first.
    """
    metrics = final_metrics(metric)
    task = RankingTask.of(split.held_out, split.train.catalog)
    finalists: list[Finalist] = []
    try:
        for candidate in candidates:
            if finalists:
                last_fit = PREDICTION_MARGIN * finalists[0].fit_seconds
                if clock.left < PREDICTION_MARGIN * candidate.seconds + last_fit + clock.closing:
                    continue
            try:
                finalists.append(test_candidate(candidate, split, task, metrics))
            except GramianError:
                if not finalists and candidate is candidates[-1]:
                    raise
    except KeyboardInterrupt:
        if not finalists:
            raise
    return finalists


def test_candidate(candidate: Candidate, split: Split, task: RankingTask, metrics: Sequence[Metric]) -> Finalist:
    """Fit a candidate and measure it on the test users."""
    with MeasuredCost() as cost, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = candidate.recipe.fit(split.train)
    started = time.perf_counter()
    columns = task.rank(model, largest_cutoff(metrics))
    milliseconds = 1000 * (time.perf_counter() - started) / len(columns)
    report = task.report(columns, metrics)
    groups = by_item_group(columns[:, : metrics[0].k], task)
    return Finalist(candidate, report, groups, cost.seconds, cost.peak_bytes, count_bytes(model), milliseconds)


def count_bytes(model: Recommender) -> int:
    """Return the size of a model's fitted arrays."""
    return sum(array.nbytes for array in model.scorer.save()[1].values())


def recommend_finalist(finalists: Sequence[Finalist], comparison: ModelComparison, n_left_out: int = 0) -> str:
    """Return a sentence that says which model to use and why; a second one if only Popularity could be tried.

    Parameters
    ----------
    finalists
        The finalists, the one chosen on validation first.
    comparison
        All of them on the test users.
    n_left_out
        How many families of models were left out.
    """
    chosen, metric = finalists[0], comparison.metric
    figure, error = chosen.report[metric], chosen.report.stderr[metric]
    sentence = (
        f"Use {chosen.name}: the best of all models on the validation users, with {metric} {figure:.4f} ± {error:.4f} on "
    )
    sentence += f"{len(chosen.report.users):,} test users"
    if len(chosen.report.users) < FEW_TEST_USERS:
        sentence += ", too few to tell good models apart"
    tied = set(comparison.tied)
    if comparison.winner == chosen.name:
        sentence += ", significantly better than every other finalist"
    elif chosen.name in tied:
        others = [f for f in finalists[1:] if f.name in tied]
        cheaper = [
            f for f in others if f.model_bytes < CHEAPER * chosen.model_bytes or f.fit_seconds < CHEAPER * chosen.fit_seconds
        ]
        cheapest = min(cheaper, key=lambda f: (f.model_bytes, f.fit_seconds), default=None)
        if cheapest is not None:
            size = chosen.model_bytes / max(cheapest.model_bytes, 1)
            speed = chosen.fit_seconds / max(cheapest.fit_seconds, 1e-3)
            gains = [f"{size:.0f} times smaller"] if size > 1 / CHEAPER else []
            gains += [f"{speed:.0f} times faster to fit"] if speed > 1 / CHEAPER else []
            sentence += f"; {cheapest.name} is statistically tied with it and {' and '.join(gains)}"
        elif others:
            sentence += f"; {others[0].name} is statistically tied with it, but not much cheaper"
    else:
        sentence += f"; on the test users {comparison.best} is significantly better, which choosing by the test would overrate"
    if chosen.candidate.family == "popularity" and len(finalists) == 1 and n_left_out:
        sentence += f". For want of time or memory no other model was tried ({n_left_out} families): raise the budget"
    return sentence + "."
