"""Metrics broken down by the users' activity and by the items' popularity, and of cold, tail and head items separately."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.recommender import Recommender
from gramian.data.split import HeldOutUsers, Split
from gramian.errors import InvalidInput
from gramian.evaluation.metrics import (
    DEFAULT_METRICS,
    HEAD_SHARE,
    MetricLike,
    RankedLists,
    is_tail,
    largest_cutoff,
    ndcg,
    parse_metrics,
)
from gramian.evaluation.report import Report, standard_error
from gramian.evaluation.task import RankingTask
from gramian.linalg.sparse import csr_from_sorted, row_of_entry
from gramian.linalg.threads import limit_threads
from gramian.validation import is_number, require_instance

GROUPS = 4
COLD, TAIL, HEAD = "cold", "tail", "head"


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


def by_item_group(columns: np.ndarray, task: RankingTask) -> dict[str, dict[str, Any]]:
    """Return the share of targets found, and the share of listed items, for head, tail and cold items.

    The head are the most popular items that make up half of the training interactions; cold items have no training user; the
    tail are all others. A group without targets has nothing to find: its share is None.
    """
    is_hit, groups = task.lists(columns).hits, {}
    listed, found = columns[columns >= 0], columns[is_hit & (columns >= 0)]
    members = group_by_popularity(task.catalog.popularity, HEAD_SHARE)
    for name in (HEAD, TAIL, COLD):
        n_targets = int(members[name][task.targets.indices].sum())
        groups[name] = {
            "items": int(members[name].sum()),
            "targets": n_targets,
            "found": float(members[name][found].sum() / n_targets) if n_targets else None,
            "listed": float(members[name][listed].sum() / max(len(listed), 1)),
        }
    return groups


def count_by_row(matrix: sp.csr_array, is_counted: np.ndarray) -> np.ndarray:
    """Return the number of entries of each row that are in the columns to count."""
    return np.asarray(matrix.astype(np.bool_) @ is_counted.astype(np.int64))


def mean_ndcg(lists: RankedLists) -> float:
    """Return the mean ndcg of the users who have targets, at the length of the lists; 0 if nobody has any."""
    has_targets = lists.n_targets > 0
    lists = replace(lists, hits=lists.hits[has_targets], n_targets=lists.n_targets[has_targets])
    return float(ndcg(lists, lists.hits.shape[1]).mean()) if has_targets.any() else 0.0


def evaluate_by_popularity(
    model: Recommender,
    split: Split | HeldOutUsers,
    metrics: Iterable[MetricLike] = DEFAULT_METRICS,
    *,
    head: float = HEAD_SHARE,
    within_group: bool = False,
    n_threads: int | None = None,
) -> dict[str, Report]:
    """Evaluate targets among cold, tail and head items separately.

    Parameters
    ----------
    model
        A model fitted on `split.train`.
    split
        A split, or the test users of one.
    metrics
        As in `gr.evaluate`.
    head
        Head items are the most popular ones, which together have this share of the training interactions. Cold items have
        none, and tail items are all others.
    within_group
        Rank only the items of the group, to see how well they are told apart. By default all items are ranked, so that cold
        items compete with popular ones.
    n_threads
        How many threads to use; all cores if left out.

    Returns
    -------
    dict of str to Report
        "cold", "tail" and "head", each over the users who have targets there; a group without targets is left out.
    """
    require_instance(model, Recommender, "Fit it first: recipe.fit(split.train)")
    if not (is_number(head) and 0 < head < 1):
        raise InvalidInput("head between 0 and 1", repr(head), "Pass 0.5, say")
    parsed = parse_metrics(metrics)
    held_out = split.held_out if isinstance(split, Split) else require_instance(split, HeldOutUsers, "Make a split first")
    task = RankingTask.of(held_out, model.catalog)
    n_leaked = None if model.histories is None else task.require_no_leakage(model.histories)
    groups = group_by_popularity(model.catalog.popularity, head)
    reports = {}
    with limit_threads(n_threads):
        k = largest_cutoff(parsed)
        columns = None if within_group else task.rank(model, k)
        for name, is_member in groups.items():
            part, rows = restrict_targets(task, is_member, name, within_group)
            if len(rows) == 0:
                continue
            lists = (
                model.top_k(task.encode_histories(model.scorer)[rows], k, allowed=is_member)[0]
                if columns is None
                else columns[rows]
            )
            reports[name] = part.report(lists, parsed, n_leaked)
    return reports


def group_by_popularity(popularity: np.ndarray, head: float) -> dict[str, np.ndarray]:
    """Return masks of the cold, tail and head items."""
    is_cold, outside_head = popularity == 0, is_tail(popularity, head)
    return {COLD: is_cold, TAIL: outside_head & ~is_cold, HEAD: ~outside_head & ~is_cold}


def restrict_targets(task: RankingTask, is_member: np.ndarray, name: str, within_group: bool) -> tuple[RankingTask, np.ndarray]:
    """Return the task with the targets of a group only, and its users who have one, by their rows."""
    entries = is_member[task.targets.indices]
    row = row_of_entry(task.targets)[entries]
    kept = csr_from_sorted(row, task.targets.indices[entries], task.targets.data[entries], task.targets.shape)
    rows = np.flatnonzero(np.diff(kept.indptr))
    part = replace(
        task,
        users=[task.users[at] for at in rows],
        histories=task.histories[rows],
        targets=kept[rows],
        n_targets=np.diff(kept.indptr)[rows],
        fingerprint=f"{task.fingerprint} {name}{' within the group' if within_group else ''}",
        fold_in=None if task.fold_in is None else task.fold_in.take(rows),
    )
    return part, rows
