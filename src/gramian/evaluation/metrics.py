"""Ranking metrics from lists. Every item is ranked; a list shorter than k simply has fewer hits.

precision@k       hits / k
recall@k          hits / |targets|
capped_recall@k   hits / min(k, |targets|)          (the form of Liang et al. 2018)
hit_rate@k        1 if there is a hit
mrr@k             1 / rank of the first hit
map@k             Σ over hits of precision at their rank, / min(k, |targets|)
ndcg@k            Σ over hits of 1/log2(rank + 1), / the same for a perfect list of min(k, |targets|)
debiased_recall@k the same as recall, with every target weighted by its popularity^-1.5: popular items are seen more often, and
                  are among the targets more often than they are liked   (Yang et al. 2018)
novelty@k         mean over the list of −log2 of the share of training users who touched the item (add-one smoothed)
popularity@k      mean over the list of the number of training users who touched the item
coverage@k        share of the catalog that appears in anybody's list (one number, no value per user)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.core.registry import METRICS, Registry, register
from gramian.data.catalog import Catalog
from gramian.errors import InvalidInput
from gramian.validation import require_whole_number

DEFAULT_METRICS = ("ndcg@20", "recall@20")
DEFAULT_CUTOFF = 20  # k of a metric function without an attribute `k`
EXPOSURE_POWER = 1.5  # of popularity, to which the chance to be seen is proportional: (γ + 1)/2 of Yang et al. with γ = 2


@dataclass(frozen=True)
class RankedLists:
    """Recommended lists and what they are measured by.

    Parameters
    ----------
    columns
        Users × K recommended columns, best first, −1 where a list has ended.
    hits
        Users × K, whether the item at that rank is a target.
    n_targets
        The number of targets of each user.
    catalog
        The items, with their popularity in training.
    n_train_users
        The number of training users.
    targets
        Users × items, the targets that the catalog has.
    """

    columns: np.ndarray
    hits: np.ndarray
    n_targets: np.ndarray
    catalog: Catalog
    n_train_users: int
    targets: sp.csr_array

    def n_hits(self, k: int) -> np.ndarray:
        """Return the number of hits in each list's first k."""
        return np.asarray(self.hits[:, :k].sum(axis=1))

    def max_hits(self, k: int) -> np.ndarray:
        """Return the most hits that a list of k can have."""
        return np.minimum(self.n_targets, k)

    def mean_over_items(self, k: int, values: np.ndarray) -> np.ndarray:
        """Return the mean of a value per item over each list's first k."""
        shown = self.columns[:, :k]
        total = np.sum(values[shown], axis=1, where=shown >= 0)
        return total / np.maximum(np.sum(shown >= 0, axis=1), 1)


Compute = Callable[[RankedLists, int], Any]


@dataclass(frozen=True)
class Metric:
    """A metric with its cut-off k, as in 'ndcg@20'.

    Parameters
    ----------
    name
        The name before the @. A registered metric is found by it.
    compute
        A function of `RankedLists` and k that returns one value per user, or a single number with `per_user=False`.
    k
        The cut-off.
    needs
        What it looks at: "hits", "popularity" or both.
    per_user
        Whether it has a value for each user, so that it can be tuned for and compared in pairs.
    """

    registry: ClassVar[Registry[Metric]] = METRICS

    name: str
    compute: Compute
    k: int = DEFAULT_CUTOFF
    needs: frozenset[str] = frozenset({"hits"})
    per_user: bool = True

    def __str__(self) -> str:
        return f"{self.name}@{self.k}"

    def __call__(self, lists: RankedLists) -> Any:
        """Return the value of each user, or the single value of all lists."""
        return self.compute(lists, self.k)

    def at(self, k: int) -> Metric:
        """Return the metric with another cut-off."""
        return replace(self, k=require_whole_number("k", k))


MetricLike = str | Metric | Compute


def parse_metric(metric: MetricLike) -> Metric:
    """Return a metric from 'ndcg@20', a `Metric`, or a function of `RankedLists` and k."""
    if isinstance(metric, Metric):
        return metric
    if callable(metric):
        return Metric(getattr(metric, "__name__", type(metric).__name__), metric, getattr(metric, "k", DEFAULT_CUTOFF))
    match = re.fullmatch(r"([A-Za-z_][A-Za-z_0-9]*)@([1-9][0-9]*)", metric) if isinstance(metric, str) else None
    if not match:
        raise InvalidInput(f"a metric like ndcg@20, with one of {', '.join(METRICS)}", repr(metric), "Write it as name@k")
    registered: Metric = METRICS.find(match[1])
    return registered.at(int(match[2]))


def parse_metrics(metrics: Iterable[MetricLike]) -> list[Metric]:
    """Return metrics from names, `Metric` objects or functions; at least one."""
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise InvalidInput("a list of metrics", repr(metrics), f"Pass [{metrics!r}]")
    parsed = {str(metric): metric for metric in map(parse_metric, metrics)}
    if not parsed:
        raise InvalidInput("at least one metric", "none", f"Pass {list(DEFAULT_METRICS)}")
    return list(parsed.values())


def largest_cutoff(metrics: Sequence[Metric]) -> int:
    """Return the length of the lists that these metrics need."""
    return max(metric.k for metric in metrics)


def precision(lists: RankedLists, k: int) -> np.ndarray:
    """Return hits / k."""
    return lists.n_hits(k) / k


def recall(lists: RankedLists, k: int) -> np.ndarray:
    """Return hits / |targets|."""
    return lists.n_hits(k) / lists.n_targets


def capped_recall(lists: RankedLists, k: int) -> np.ndarray:
    """Return hits / min(k, |targets|)."""
    return lists.n_hits(k) / lists.max_hits(k)


def hit_rate(lists: RankedLists, k: int) -> np.ndarray:
    """Return 1 where there is a hit."""
    return np.where(lists.n_hits(k) > 0, 1.0, 0.0)


def mrr(lists: RankedLists, k: int) -> np.ndarray:
    """Return 1 / the rank of the first hit."""
    hits = lists.hits[:, :k]
    return hits.any(axis=1) / (hits.argmax(axis=1) + 1.0)


def average_precision(lists: RankedLists, k: int) -> np.ndarray:
    """Return the sum over hits of the precision at their rank, / min(k, |targets|)."""
    hits = lists.hits[:, :k]
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return (precisions * hits).sum(axis=1) / lists.max_hits(k)


def ndcg(lists: RankedLists, k: int) -> np.ndarray:
    """Return the discounted gain of the hits, / that of a perfect list."""
    hits = lists.hits[:, :k]
    discount = 1 / np.log2(np.arange(2, max(hits.shape[1], lists.max_hits(k).max(initial=0)) + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    return (hits @ discount[: hits.shape[1]]) / ideal[lists.max_hits(k)]


def debiased_recall(lists: RankedLists, k: int) -> np.ndarray:
    """Return the weight of the hits / that of all targets, each weighted by the inverse of its chance to be seen."""
    weights = np.maximum(lists.catalog.popularity, 1.0) ** -EXPOSURE_POWER
    n_unknown = lists.n_targets - np.diff(lists.targets.indptr)  # not in the catalog: weight 1
    total = lists.targets.astype(np.bool_) @ weights + n_unknown
    return np.sum(weights[lists.columns[:, :k]], axis=1, where=lists.hits[:, :k]) / total


def novelty(lists: RankedLists, k: int) -> np.ndarray:
    """Return the mean self-information of the listed items."""
    return lists.mean_over_items(k, -np.log2((lists.catalog.popularity + 1) / (lists.n_train_users + 1)))


def mean_popularity(lists: RankedLists, k: int) -> np.ndarray:
    """Return the mean popularity of the listed items."""
    return lists.mean_over_items(k, lists.catalog.popularity)


def coverage(lists: RankedLists, k: int) -> float:
    """Return the share of the catalog that appears in anybody's list."""
    shown = lists.columns[:, :k]
    return len(np.unique(shown[shown >= 0])) / len(lists.catalog)


POPULARITY = frozenset({"popularity"})
for metric in (
    Metric("precision", precision),
    Metric("recall", recall),
    Metric("capped_recall", capped_recall),
    Metric("hit_rate", hit_rate),
    Metric("mrr", mrr),
    Metric("map", average_precision),
    Metric("ndcg", ndcg),
    Metric("debiased_recall", debiased_recall, needs=frozenset({"hits", "popularity"})),
    Metric("novelty", novelty, needs=POPULARITY),
    Metric("popularity", mean_popularity, needs=POPULARITY),
    Metric("coverage", coverage, needs=frozenset(), per_user=False),
):
    register(metric)
del metric


def find_hits(columns: np.ndarray, targets: sp.csr_array) -> np.ndarray:
    """Return whether each recommended column is among its user's targets."""
    hits = np.empty(columns.shape, np.bool_)
    mark_hits(hits, columns, targets.indptr.astype(np.int64), targets.indices)
    return hits


@njit(parallel=True, cache=True)
def mark_hits(hits, columns, indptr, indices):  # type: ignore[no-untyped-def]
    for u in prange(len(columns)):
        targets = indices[indptr[u] : indptr[u + 1]]
        for rank in range(columns.shape[1]):
            at = np.searchsorted(targets, columns[u, rank])
            hits[u, rank] = at < len(targets) and targets[at] == columns[u, rank]
