"""Breakdowns by the users' activity and the items' popularity, which every fit of an experiment has."""

from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from gramian.evaluation.breakdown import GROUPS, by_activity, by_popularity
from gramian.evaluation.task import RankingTask
from small_experiments import EVENTS, pairs


def test_breakdowns_are_those_of_a_naive_count():
    split = gr.split.strong(EVENTS)
    task = RankingTask.of(split.held_out, split.train.catalog)
    model = gr.EASE(l2=20).fit(split.train)
    columns, _ = model.top_k(split.fold_in.reindex(split.target.users, split.train.items).matrix, 10)
    values = np.random.default_rng(0).random(split.target.n_users)
    sizes = np.diff(split.fold_in.matrix.indptr)
    rows = by_activity(values, task)
    assert sum(row["users"] for row in rows) == len(values)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        group = values[(sizes >= row["from"]) & (sizes <= row["to"])]
        assert row["mean"] == pytest.approx(group.mean())
        assert row["stderr"] == pytest.approx(group.std(ddof=1) / np.sqrt(len(group)))
        assert after is None or row["to"] < after["from"]
    rows, popularity = by_popularity(columns, task), split.train.popularity
    assert len(rows) == GROUPS
    assert sum(row["items"] for row in rows) == EVENTS.n_items
    share = [sum(sorted(popularity)[: sum(r["items"] for r in rows[: at + 1])]) / popularity.sum() for at in range(GROUPS)]
    np.testing.assert_allclose(share, np.arange(1, GROUPS + 1) / GROUPS, atol=0.05)
    order = np.argsort(popularity, kind="stable")
    first = 0
    for row in rows:
        group = {EVENTS.items[column] for column in order[first : first + row["items"]]}
        first += row["items"]
        targets = {(user, item) for user, item in pairs(split.target) if item in group}
        users = split.target.users.tolist()
        listed = {
            (users[u], split.train.items[c]) for u, line in enumerate(columns) for c in line if split.train.items[c] in group
        }
        assert row["targets"] == len(targets)
        assert row["found"] == pytest.approx(len(targets & listed) / max(len(targets), 1))
        assert row["listed"] == pytest.approx(len(listed) / columns.size)
        gains = []
        for u, user in enumerate(users):
            wanted = {item for target_user, item in targets if target_user == user}
            if wanted:
                gain = sum(1 / np.log2(rank + 2) for rank, c in enumerate(columns[u]) if split.train.items[c] in wanted)
                gains.append(gain / sum(1 / np.log2(rank + 2) for rank in range(min(len(wanted), columns.shape[1]))))
        assert row["ndcg"] == pytest.approx(np.mean(gains))


def test_users_with_equally_many_items_are_one_group():
    split = gr.split.leave_last(
        gr.Interactions.of(EVENTS.frame().with_columns(time=1), time="time").k_core(2), validation=False
    )
    same = replace(split, fold_in=split.target)  # one known item each
    task = RankingTask.of(same.held_out, same.train.catalog)
    assert [row["users"] for row in by_activity(np.ones(split.target.n_users), task)] == [split.target.n_users]
