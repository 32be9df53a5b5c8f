"""Metrics broken down by the users' activity and by the items' popularity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.evaluation.metrics import RankedLists, ndcg
from gramian.evaluation.report import standard_error
from gramian.evaluation.task import RankingTask

GROUPS = 4


def by_activity(values: np.ndarray, task: RankingTask) -> list[dict[str, Any]]:
    """Return the mean of a metric over groups of users with few, more and many known items, of about equal size.

    Users with equally many items are in the same group.
    """
    sizes = np.diff(task.histories.indptr)
    ends = np.unique(np.quantile(sizes, np.arange(1, GROUPS) / GROUPS, method="inverted_cdf"))
    group = np.searchsorted(ends, sizes)
    rows = []
    for number in np.unique(group):
        members = group == number
        error = standard_error(values[members]) if members.sum() > 1 else None
        known = {"from": int(sizes[members].min()), "to": int(sizes[members].max())}
        rows.append(known | {"users": int(members.sum()), "mean": float(values[members].mean()), "stderr": error})
    return rows


def by_popularity(columns: np.ndarray, task: RankingTask) -> list[dict[str, Any]]:
    """Return quality and the share of listed items, for groups of items from rare to popular.

    Items are in groups with about equally many training interactions each. `found` is the share of a group's targets that are
    in the lists, and `ndcg` the mean ndcg of the users who have targets in the group, if only those count.
    """
    popularity = task.catalog.popularity
    order = np.argsort(popularity, kind="stable")
    share = np.cumsum(popularity[order]) / max(popularity.sum(), 1)
    group = np.empty(len(popularity), np.int64)
    group[order] = np.minimum((share * GROUPS - 1e-9).astype(np.int64), GROUPS - 1)
    lists = task.lists(columns)
    n_listed = np.bincount(group[columns[columns >= 0]], minlength=GROUPS)
    rows = []
    for number in np.unique(group):
        counts = popularity[group == number]
        targets = count_by_row(task.targets, group == number)
        hits = lists.hits & (group[columns] == number)
        rows.append(
            {
                "from": int(counts.min()),
                "to": int(counts.max()),
                "items": len(counts),
                "targets": int(targets.sum()),
                "found": float(hits.sum() / max(targets.sum(), 1)),
                "ndcg": mean_ndcg(replace(lists, hits=hits, n_targets=targets)),
                "listed": float(n_listed[number] / max(n_listed.sum(), 1)),
            }
        )
    return rows


def count_by_row(matrix: sp.csr_array, is_counted: np.ndarray) -> np.ndarray:
    """Return the number of entries of each row that are in the columns to count."""
    return np.asarray(matrix.astype(np.bool_) @ is_counted.astype(np.int64))


def mean_ndcg(lists: RankedLists) -> float:
    """Return the mean ndcg of the users who have targets, at the length of the lists; 0 if nobody has any."""
    has_targets = lists.n_targets > 0
    lists = replace(lists, hits=lists.hits[has_targets], n_targets=lists.n_targets[has_targets])
    return float(ndcg(lists, lists.hits.shape[1]).mean()) if has_targets.any() else 0.0
