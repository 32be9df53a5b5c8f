"""Judge a model on a split: the lists it would serve, metrics per user, their mean and standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtr

from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import InvalidInput, UnknownId
from gramian.evaluation.metrics import CATALOG_METRICS, METRICS, Lists, find_hits, parse
from gramian.linalg.threads import threads
from gramian.recommender import Hide, Recommender

DEFAULT_METRICS = ("ndcg@20", "recall@20")


@dataclass(frozen=True)
class Comparison:
    """One model against another on the same users: the mean of the differences, its standard error, and a paired t-test."""

    metric: str
    difference: float
    stderr: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Report:
    """Metrics of one model on one split."""

    per_user: dict[str, np.ndarray]
    catalog: dict[str, float]  # metrics of all lists together, such as coverage
    users: list[Any]
    split: str  # the split's fingerprint
    metrics: tuple[str, ...]  # in the order they were asked for

    def __getitem__(self, metric: str) -> float:
        if metric not in self.metrics:
            raise UnknownId(f"a metric of the report ({', '.join(self.metrics)})", repr(metric), "Evaluate it")
        return self.mean[metric]

    @property
    def mean(self) -> dict[str, float]:
        found = {name: float(values.mean()) for name, values in self.per_user.items()} | self.catalog
        return {name: found[name] for name in self.metrics}

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors of the means over users (none for the catalog metrics)."""
        root = np.sqrt(len(self.users))
        return {n: float(v.std(ddof=1) / root) if len(v) > 1 else float("nan") for n, v in self.per_user.items()}

    def frame(self) -> pl.DataFrame:
        """One row per metric."""
        rows = [(name, mean, self.stderr.get(name)) for name, mean in self.mean.items()]
        return pl.DataFrame(rows, schema={"metric": pl.String, "mean": pl.Float64, "stderr": pl.Float64}, orient="row")

    def __str__(self) -> str:
        errors = self.stderr
        lines = (f"{n:<18}{mean:.4f}" + (f" ± {errors[n]:.4f}" if n in errors else "") for n, mean in self.mean.items())
        return "\n".join([*lines, f"{len(self.users):,} users"])

    def compare(self, other: Report, metric: str) -> Comparison:
        """This report minus the other, user by user, which needs the same split."""
        if self.split != other.split or self.users != other.users:
            raise InvalidInput("two reports on the same split", "different splits", "Evaluate both models on one split")
        if metric not in self.per_user or metric not in other.per_user:
            raise InvalidInput(f"a metric in both reports ({', '.join(self.per_user)})", metric, "Evaluate it for both")
        difference = self.per_user[metric] - other.per_user[metric]
        if not difference.any():
            return Comparison(metric, 0.0, 0.0, 1.0)
        mean, error = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))
        p_value = 2 * stdtr(len(difference) - 1, -abs(mean / error)) if error else 0.0  # Student's, of paired values
        return Comparison(metric, mean, error, float(p_value))


def evaluate(
    model: Recommender,
    split: Split,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    exclude_self: bool = False,
    n_threads: int | None = None,
) -> Report:
    """Rank all items for every tested user of the split, without what is in their fold-in, and compare with their targets.

    An item the model does not know can never be recommended, and counts as a miss where it is a target. Where users and items
    are the nodes of one graph, `exclude_self` links nobody to themselves, and does not ask for it.
    """
    if not isinstance(model, Recommender):
        raise InvalidInput("a fitted model", type(model).__name__, "Fit it first: recipe.fit(split.train)")
    if not isinstance(split, Split):
        raise InvalidInput("a Split", type(split).__name__, "Make one: gr.split.strong(events)")
    parsed = parsed_metrics(metrics)
    split = split.without_self_links() if exclude_self else split
    users, items = split.target.users, model.events.items
    fold_in = split.fold_in.reindex(users, items).matrix
    with threads(n_threads):
        hide = Hide(selves=users.tolist() if exclude_self else None)
        columns, _ = model.top_k(fold_in, max(k for _, k in parsed.values()), hide=hide)
        return judged(columns, model.events, split, parsed)


def parsed_metrics(metrics: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Metric → its name and k."""
    if isinstance(metrics, str):
        raise InvalidInput("a list of metrics", repr(metrics), f"Pass [{metrics!r}]")
    if not metrics:
        raise InvalidInput("at least one metric", "none", f"Pass {list(DEFAULT_METRICS)}")
    return {metric: parse(metric) for metric in metrics}


def judged(columns: np.ndarray, train: Interactions, split: Split, parsed: dict[str, tuple[str, int]]) -> Report:
    """The report on lists for the users of a split, given in the columns of what the model was trained on."""
    users = split.target.users
    target = split.target.reindex(users, train.items).matrix
    n_targets = np.diff(split.target.matrix.indptr).astype(np.int64)
    lists = Lists(columns, find_hits(columns, target), n_targets, train.popularity, train.n_users)
    per_user = {metric: METRICS[name](lists, k) for metric, (name, k) in parsed.items() if name in METRICS}
    catalog = {metric: CATALOG_METRICS[name](lists, k) for metric, (name, k) in parsed.items() if name in CATALOG_METRICS}
    return Report(per_user, catalog, users.tolist(), split.fingerprint, tuple(parsed))
