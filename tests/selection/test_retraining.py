"""Retraining: the gate lets a better model pass, keeps the old one otherwise, and never tests on what a model has seen."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.selection.retraining import find_known, hold_out_newest

RNG = np.random.default_rng(2)
LEFT, RIGHT = np.arange(20), np.arange(20, 40)


def make_rows(users, pools, n, start):
    """Events of users who each draw n items of a pool, at times from `start` on."""
    rows = []
    for user in users:
        for at, item in enumerate(RNG.choice(pools[user % len(pools)], n, replace=False)):
            rows.append((user, int(item), start + at))
    return rows


def to_events(rows):
    return gr.Interactions.of(pl.DataFrame(rows, schema=["user_id", "item_id", "t"], orient="row"), time="t")


OLD_ROWS = make_rows(range(100), [LEFT, RIGHT], 8, 0)
NEW_ROWS = make_rows(range(100, 260), [LEFT, RIGHT], 8, 1000)


def test_a_model_that_learned_more_replaces_the_old_one():
    old = gr.EASE(l2=10).fit(to_events(make_rows(range(100), [np.arange(40)], 8, 0)))  # noise
    events = to_events(OLD_ROWS + NEW_ROWS)
    result = gr.retrain(old, events)
    assert result.is_replaced
    assert result.comparison.difference > 0
    assert "better" in result.reason
    assert result.model.recipe == old.recipe
    assert result.model.histories.fingerprint == events.fingerprint
    assert result.model.card["data"]["fingerprint"] == events.fingerprint
    assert result.model.card["retrained"]["p_value"] == result.comparison.p_value
    assert "replaced" in repr(result)
    assert result.to_json()["is_replaced"]


def test_a_model_that_learned_nonsense_does_not():
    old = gr.EASE(l2=10).fit(to_events(OLD_ROWS))
    nonsense = [(user, int(RNG.choice(LEFT)), 500) for user in range(1000, 1600)]
    nonsense += [(user, int(item), 501) for user in range(1000, 1600) for item in RNG.choice(RIGHT, 9, replace=False)]
    newest = make_rows(range(100, 180), [LEFT], 3, 400) + make_rows(range(100, 180), [LEFT], 5, 2000)
    result = gr.retrain(old, to_events(nonsense + newest))
    assert not result.is_replaced
    assert result.model is old
    assert result.comparison.difference < 0
    assert "significantly worse" in result.reason


def test_events_that_lack_the_old_ones_are_named():
    old = gr.EASE(l2=10).fit(to_events(OLD_ROWS))
    alone, together = (gr.retrain(old, to_events(rows)).reason for rows in (NEW_ROWS, OLD_ROWS + NEW_ROWS))
    assert "only 0% of those that the old model was fitted on" in alone
    assert "that the old model was fitted on" not in together


def test_a_recipe_that_does_not_suit_the_events_keeps_the_old_model():
    old = gr.RegularizedPCA(rank=4, l2=30).fit(to_events(make_rows(range(2000), [np.arange(8)], 6, 0)))
    result = gr.retrain(old, to_events(NEW_ROWS))
    assert not result.is_replaced
    assert "cannot be fitted on these events" in result.reason


def test_without_anything_new_the_old_model_is_kept():
    events = to_events(OLD_ROWS)
    old = gr.EASE(l2=10).fit(events)
    assert "has seen all" in gr.retrain(old, events).reason
    few = gr.retrain(old, to_events(OLD_ROWS + NEW_ROWS[:16]))
    assert not few.is_replaced
    assert "too few" in few.reason


@pytest.mark.parametrize("has_times", [True, False])
def test_neither_model_has_seen_the_targets(has_times):
    events = to_events(OLD_ROWS + NEW_ROWS)
    if not has_times:
        events = gr.Interactions(events.matrix, events.users, events.catalog)
    seen = to_events(OLD_ROWS)
    is_new = ~find_known(events, seen)
    pairs = set(zip(events.users[events.rows], events.items[events.matrix.indices], strict=True))
    known = {(user, item) for user, item, _ in OLD_ROWS}
    assert is_new.sum() == len(pairs - known)
    train, held_out = hold_out_newest(events, is_new, seed=0)
    targets = held_out.target
    target_pairs = set(zip(targets.users[targets.rows], targets.items[targets.matrix.indices], strict=True))
    train_pairs = set(zip(train.users[train.rows], train.items[train.matrix.indices], strict=True))
    assert not target_pairs & (known | train_pairs)
    if has_times:
        assert targets.times.min() > train.times.max()


def test_bad_arguments():
    events = to_events(OLD_ROWS)
    with pytest.raises(gr.errors.InvalidInput, match="Recommender"):
        gr.retrain("model", events)
    with pytest.raises(gr.errors.InvalidInput, match="histories"):
        gr.retrain(gr.EASE().fit_gram(gr.Gram.of(events)), events)
