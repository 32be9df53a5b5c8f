"""Whom a model serves well, and with what: its lists broken down by the users' activity and by the items' popularity."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.evaluation.metrics import find_hits

GROUPS = 4


def by_activity(values: np.ndarray, split: Split) -> list[dict[str, Any]]:
    """The mean of a metric over users with few known items, more, and many: groups of about equal size.

    Users with equally many items are in the same group.
    """
    sizes = np.diff(split.fold_in.matrix.indptr)
    ends = np.unique(np.quantile(sizes, np.arange(1, GROUPS) / GROUPS, method="inverted_cdf"))
    group = np.searchsorted(ends, sizes)
    rows = []
    for number in np.unique(group):
        own = group == number
        found = values[own]
        error = float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else None
        known = {"from": int(sizes[own].min()), "to": int(sizes[own].max())}
        rows.append(known | {"users": len(found), "mean": float(found.mean()), "stderr": error})
    return rows


def by_popularity(columns: np.ndarray, train: Interactions, split: Split) -> list[dict[str, Any]]:
    """What was found of rare targets and of popular ones, and how often such items were listed.

    Items are in groups with about equally many training interactions each, the rarest first. Lists are given in the columns
    of what the model was trained on.
    """
    order = np.argsort(train.popularity, kind="stable")
    share = np.cumsum(train.popularity[order]) / max(train.n_interactions, 1)
    group = np.empty(train.n_items, np.int64)
    group[order] = np.minimum((share * GROUPS - 1e-9).astype(np.int64), GROUPS - 1)
    target = split.target.reindex(split.target.users, train.items).matrix
    shown = columns >= 0
    n_listed = np.bincount(group[columns[shown]], minlength=GROUPS)
    n_found = np.bincount(group[columns[shown & find_hits(columns, target)]], minlength=GROUPS)
    n_targets = np.bincount(group[target.indices], minlength=GROUPS)
    rows = []
    for number in np.unique(group):
        own = train.popularity[group == number]
        rows.append(
            {
                "from": int(own.min()),
                "to": int(own.max()),
                "items": len(own),
                "targets": int(n_targets[number]),
                "found": float(n_found[number] / max(n_targets[number], 1)),
                "listed": float(n_listed[number] / max(n_listed.sum(), 1)),
            }
        )
    return rows
