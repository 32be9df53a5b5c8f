"""Metrics broken down by the users' activity and by the items' popularity."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.evaluation.metrics import find_hits
from gramian.evaluation.report import standard_error
from gramian.evaluation.task import RankingTask

GROUPS = 4
FEW_USERS = 5  # an item with fewer training users is cold
HEAD_SHARE = 0.5  # of the training interactions, which the most popular items, the head, make up


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


def by_item_group(columns: np.ndarray, task: RankingTask) -> dict[str, dict[str, Any]]:
    """Return the share of targets found, and the share of listed items, for head, tail and cold items.

    The head are the most popular items that make up half of the training interactions; cold items have fewer than five training
    users; the tail are all others. A group without targets has nothing to find: its share is None.
    """
    popularity = task.catalog.popularity
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    group = np.full(len(popularity), "tail", dtype="<U4")
    group[order[before < HEAD_SHARE * popularity.sum()]] = "head"
    group[popularity < FEW_USERS] = "cold"
    is_listed = columns >= 0
    listed, found = columns[is_listed], columns[is_listed & find_hits(columns, task.targets)]
    groups = {}
    for name in ("head", "tail", "cold"):
        n_targets = int((group[task.targets.indices] == name).sum())
        groups[name] = {
            "items": int((group == name).sum()),
            "targets": n_targets,
            "found": float((group[found] == name).sum() / n_targets) if n_targets else None,
            "listed": float((group[listed] == name).sum() / max(len(listed), 1)),
        }
    return groups
