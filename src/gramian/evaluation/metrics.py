"""Ranking metrics from lists, per user. Every item is ranked; a list shorter than k simply has fewer hits.

precision@k       hits / k
recall@k          hits / |targets|
capped_recall@k   hits / min(k, |targets|)          (the form of Liang et al. 2018)
hit_rate@k        1 if there is a hit
mrr@k             1 / rank of the first hit
map@k             Σ over hits of precision at their rank, / min(k, |targets|)
ndcg@k            Σ over hits of 1/log2(rank + 1), / the same for a perfect list of min(k, |targets|)
novelty@k         mean over the list of −log2 of the share of training users who touched the item (add-one smoothed)
popularity@k      mean over the list of the number of training users who touched the item
coverage@k        share of the catalog that appears in anybody's list (one number, no value per user)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.errors import InvalidInput


@dataclass(frozen=True)
class Lists:
    """Recommended columns (users × K, best first, −1 where a list has ended), and what they are judged by."""

    columns: np.ndarray
    hits: np.ndarray  # users × K, whether the item at that rank is a target
    n_targets: np.ndarray
    popularity: np.ndarray  # training users per item
    n_train_users: int

    def n_hits(self, k: int) -> np.ndarray:
        return np.asarray(self.hits[:, :k].sum(axis=1))

    def cap(self, k: int) -> np.ndarray:
        """The most hits a list of k can have."""
        return np.minimum(self.n_targets, k)

    def mean_of(self, k: int, of_item: np.ndarray) -> np.ndarray:
        """The mean of an item's property over each list's first k."""
        shown = self.columns[:, :k]
        total = np.sum(of_item[shown], axis=1, where=shown >= 0)
        return total / np.maximum(np.sum(shown >= 0, axis=1), 1)


def precision(lists: Lists, k: int) -> np.ndarray:
    return lists.n_hits(k) / k


def recall(lists: Lists, k: int) -> np.ndarray:
    return lists.n_hits(k) / lists.n_targets


def capped_recall(lists: Lists, k: int) -> np.ndarray:
    return lists.n_hits(k) / lists.cap(k)


def hit_rate(lists: Lists, k: int) -> np.ndarray:
    return np.where(lists.n_hits(k) > 0, 1.0, 0.0)


def mrr(lists: Lists, k: int) -> np.ndarray:
    hits = lists.hits[:, :k]
    return hits.any(axis=1) / (hits.argmax(axis=1) + 1.0)


def average_precision(lists: Lists, k: int) -> np.ndarray:
    hits = lists.hits[:, :k]
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return (precisions * hits).sum(axis=1) / lists.cap(k)


def ndcg(lists: Lists, k: int) -> np.ndarray:
    hits = lists.hits[:, :k]
    discount = 1 / np.log2(np.arange(2, max(hits.shape[1], lists.cap(k).max(initial=0)) + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    return (hits @ discount[: hits.shape[1]]) / ideal[lists.cap(k)]


def novelty(lists: Lists, k: int) -> np.ndarray:
    return lists.mean_of(k, -np.log2((lists.popularity + 1) / (lists.n_train_users + 1)))


def popularity(lists: Lists, k: int) -> np.ndarray:
    return lists.mean_of(k, lists.popularity)


def coverage(lists: Lists, k: int) -> float:
    shown = lists.columns[:, :k]
    return len(np.unique(shown[shown >= 0])) / len(lists.popularity)


METRICS: dict[str, Callable[[Lists, int], np.ndarray]] = {
    "precision": precision,
    "recall": recall,
    "capped_recall": capped_recall,
    "hit_rate": hit_rate,
    "mrr": mrr,
    "map": average_precision,
    "ndcg": ndcg,
    "novelty": novelty,
    "popularity": popularity,
}
CATALOG_METRICS: dict[str, Callable[[Lists, int], float]] = {"coverage": coverage}


def parse(metric: str) -> tuple[str, int]:
    """'ndcg@20' → ('ndcg', 20)."""
    found = re.fullmatch(r"([a-z_]+)@([1-9][0-9]*)", metric) if isinstance(metric, str) else None
    if not found or found[1] not in METRICS | CATALOG_METRICS:
        raise InvalidInput(
            f"a metric like ndcg@20, with one of {', '.join([*METRICS, *CATALOG_METRICS])}", repr(metric), "Rename it"
        )
    return found[1], int(found[2])


def find_hits(columns: np.ndarray, targets: sp.csr_array) -> np.ndarray:
    """Whether each recommended column is among its user's targets."""
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
