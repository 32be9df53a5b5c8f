"""Metrics broken down by the users' activity and by the items' popularity."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.evaluation.metrics import find_hits
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
    """Return the share of targets found, and the share of listed items, for groups of items from rare to popular.

    Items are in groups with about equally many training interactions each.
    """
    popularity = task.catalog.popularity
    order = np.argsort(popularity, kind="stable")
    share = np.cumsum(popularity[order]) / max(popularity.sum(), 1)
    group = np.empty(len(popularity), np.int64)
    group[order] = np.minimum((share * GROUPS - 1e-9).astype(np.int64), GROUPS - 1)
    shown = columns >= 0
    n_listed = np.bincount(group[columns[shown]], minlength=GROUPS)
    n_found = np.bincount(group[columns[shown & find_hits(columns, task.targets)]], minlength=GROUPS)
    n_targets = np.bincount(group[task.targets.indices], minlength=GROUPS)
    rows = []
    for number in np.unique(group):
        counts = popularity[group == number]
        rows.append(
            {
                "from": int(counts.min()),
                "to": int(counts.max()),
                "items": len(counts),
                "targets": int(n_targets[number]),
                "found": float(n_found[number] / max(n_targets[number], 1)),
                "listed": float(n_listed[number] / max(n_listed.sum(), 1)),
            }
        )
    return rows
