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
gini@k            Gini index of how often each item of the catalog is listed: 0 if all equally often, towards 1 if few items
                  have all places (one number, no value per user)
tail_share@k      share of the list outside the head, which is the fewest items with half of the training interactions
serendipity@k     hits that the k most popular items the user has not seen would not have had, / k     (Ge et al. 2010)
intra_list_diversity@k   mean over pairs of the list of 1 − the cosine of their tags; 0 for a single item (Ziegler et al. 2005)
calibration_error@k      KL(p ‖ 0.99 q + 0.01 p), p and q the shares of tags in history and list; 0 without tags (Steck 2018)
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
from gramian.linalg.reranking import compare_sparse_rows
from gramian.linalg.sparse import mean_shares, row_of_entry, unit_rows
from gramian.linalg.topk import rank_values
from gramian.validation import require_whole_number

DEFAULT_METRICS = ("ndcg@20", "recall@20")
DEFAULT_CUTOFF = 20  # k of a metric function without an attribute `k`
EXPOSURE_POWER = 1.5  # of popularity, to which the chance to be seen is proportional: (γ + 1)/2 of Yang et al. with γ = 2
HEAD_SHARE = 0.5  # of the training interactions, which the head items make up; the other items are the tail
CALIBRATION_SMOOTHING = 0.01  # of Steck (2018)
PAIRS_AT_ONCE = 4_000_000  # similarities in memory, 16 MB


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
    histories
        The users' known items, in the columns of the catalog; None where they are not known.
    """

    columns: np.ndarray
    hits: np.ndarray
    n_targets: np.ndarray
    catalog: Catalog
    n_train_users: int
    targets: sp.csr_array
    histories: sp.csr_array | None = None

    def require_histories(self, metric: str) -> sp.csr_array:
        """Return the users' histories, or raise `InvalidInput` if there are none."""
        if self.histories is None:
            raise InvalidInput(f"lists with their users' histories, for {metric}", "none", "Pass histories=... to RankedLists")
        return self.histories

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
        What it looks at: "hits", "popularity", "tags", "histories".
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


def gini(lists: RankedLists, k: int) -> float:
    """Return the Gini index of how often each item of the catalog is listed."""
    shown = lists.columns[:, :k]
    counts = np.sort(np.bincount(shown[shown >= 0], minlength=len(lists.catalog)))
    n = len(counts)
    return float((2 * np.arange(1, n + 1) - n - 1) @ counts / max(n * counts.sum(), 1))


def is_tail(popularity: np.ndarray, head: float = HEAD_SHARE) -> np.ndarray:
    """Return a mask of the items outside the head: the fewest items that have this share of the interactions."""
    (order,), _ = rank_values(popularity, len(popularity), np.ones(len(popularity), np.bool_))
    before = np.cumsum(popularity[order]) - popularity[order]
    tail = np.empty(len(popularity), np.bool_)
    tail[order] = before >= head * popularity.sum()
    return tail


def tail_share(lists: RankedLists, k: int) -> np.ndarray:
    """Return the share of each list that is outside the head of popular items."""
    return lists.mean_over_items(k, is_tail(lists.catalog.popularity).astype(np.float64))


def serendipity(lists: RankedLists, k: int) -> np.ndarray:
    """Return the share of hits that a list of the most popular items the user has not seen would not have had."""
    histories, n = lists.require_histories("serendipity"), len(lists.catalog)
    (order,), _ = rank_values(lists.catalog.popularity, n, np.ones(n, np.bool_))
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    values = np.zeros(len(lists.columns))
    for user in np.flatnonzero(lists.hits[:, :k].any(axis=1)):
        seen = np.sort(rank[histories.indices[histories.indptr[user] : histories.indptr[user + 1]]])
        hits = rank[lists.columns[user, :k][lists.hits[user, :k]]]
        values[user] = np.sum(hits - np.searchsorted(seen, hits) >= k) / k  # ranks among what the user has not seen
    return values


def intra_list_diversity(lists: RankedLists, k: int) -> np.ndarray:
    """Return the mean of 1 − the cosine of tags over all pairs of each list."""
    vectors, columns = unit_rows(lists.catalog.tag_shares), np.ascontiguousarray(lists.columns[:, :k])
    together = max(1, PAIRS_AT_ONCE // max(1, columns.shape[1] ** 2))
    alike = np.empty(len(columns))
    for start in range(0, len(columns), together):
        rows = slice(start, start + together)
        cosines = compare_sparse_rows(columns[rows], vectors.indptr, vectors.indices, vectors.data)
        alike[rows] = cosines.sum(axis=(1, 2), dtype=np.float64)
    sizes = np.sum(columns >= 0, axis=1)
    n_pairs = sizes * (sizes - 1)  # each pair counts twice in the sum of cosines, too
    return np.where(n_pairs > 0, 1 - alike / np.maximum(n_pairs, 1), 0.0)


def calibration_error(lists: RankedLists, k: int) -> np.ndarray:
    """Return the divergence of the list's shares of tags from those of the history."""
    shares, shown = lists.catalog.tag_shares, lists.columns[:, :k]
    target = mean_shares(lists.require_histories("calibration_error"), shares)
    rows = np.repeat(np.arange(len(shown)), np.sum(shown >= 0, axis=1))
    listed = sp.csr_array((np.ones(len(rows)), (rows, shown[shown >= 0])), (len(shown), len(lists.catalog)))
    share_in_list = values_at(mean_shares(listed, shares), target)
    mixed = (1 - CALIBRATION_SMOOTHING) * share_in_list + CALIBRATION_SMOOTHING * target.data
    return np.bincount(row_of_entry(target), target.data * np.log(target.data / mixed), len(shown))


def values_at(x: sp.csr_array, places: sp.csr_array) -> np.ndarray:
    """Return the entries of X where another sparse matrix has entries; both have sorted indices."""
    keys, wanted = (row_of_entry(matrix) * x.shape[1] + matrix.indices for matrix in (x, places))
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    return np.where(keys[at] == wanted, x.data[at], 0) if len(keys) else np.zeros(len(wanted))


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
    Metric("gini", gini, needs=frozenset(), per_user=False),
    Metric("tail_share", tail_share, needs=POPULARITY),
    Metric("serendipity", serendipity, needs=POPULARITY | {"hits", "histories"}),
    Metric("intra_list_diversity", intra_list_diversity, needs=frozenset({"tags"})),
    Metric("calibration_error", calibration_error, needs=frozenset({"tags", "histories"})),
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
