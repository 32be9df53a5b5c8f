"""Head, tail and cold items: the groups, and what is found of each, against a loop over users."""

import numpy as np
import pytest

import gramian as gr
from gramian.evaluation.breakdown import by_item_group
from gramian.evaluation.task import RankingTask


def test_groups_agree_with_a_loop():
    events = gr.datasets.load("movielens", min_value=4).k_core(3)
    split = gr.split.strong(events, seed=3)
    task = RankingTask.of(split.held_out, split.train.catalog)
    columns = task.rank(gr.ItemKNN().fit(split.train), 20)
    popularity = split.train.popularity
    order, running, head = np.argsort(-popularity, kind="stable"), 0, set()
    for column in order:
        if running < popularity.sum() / 2:
            head.add(column)
        running += popularity[column]
    members = {"head": head, "cold": set(np.flatnonzero(popularity == 0))}
    members["head"] -= members["cold"]
    members["tail"] = set(range(events.n_items)) - members["head"] - members["cold"]
    groups = by_item_group(columns, task)
    for name, items in members.items():
        n_targets = n_found = n_listed = 0
        for user in range(len(columns)):
            targets = set(task.targets[[user]].indices) & items
            n_targets += len(targets)
            n_found += len(targets & set(columns[user]))
            n_listed += len(items & set(columns[user]))
        assert groups[name]["items"] == len(items)
        assert groups[name]["targets"] == n_targets
        assert groups[name]["found"] == (pytest.approx(n_found / n_targets) if n_targets else None)
        assert groups[name]["listed"] == pytest.approx(n_listed / columns.size)
    assert sum(group["listed"] for group in groups.values()) == pytest.approx(1)
