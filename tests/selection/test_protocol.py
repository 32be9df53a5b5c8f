"""The protocol: no user or event is held out twice, and what cannot be tested is refused."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.selection.protocol import SAMPLE_ITEMS, choose_protocol, sample_split, split_into_folds

RNG = np.random.default_rng(1)


def make_events(n_users, n_items=60, per_user=10, times=None):
    users = np.repeat(np.arange(n_users), per_user)
    items = np.concatenate([RNG.choice(n_items, per_user, replace=False) for _ in range(n_users)])
    frame = pl.DataFrame({"user_id": users, "item_id": items})
    if times is None:
        return gr.Interactions.of(frame)
    return gr.Interactions.of(frame.with_columns(t=times(len(users))), time="t")


def pairs(events):
    ids = zip(events.users[events.rows], events.items[events.matrix.indices], strict=True)
    return set(ids)


def test_without_times_whole_users_are_held_out():
    events = make_events(200)
    protocol = choose_protocol(events)
    assert protocol.name == "strong"
    test_users = set(protocol.test.target.users.tolist())
    assert not test_users & set(protocol.test.train.users.tolist())
    validated = [set(fold.target.users.tolist()) for fold in protocol.folds]
    assert sum(map(len, validated)) == len(set.union(*validated)) == protocol.test.train.n_users
    for fold in protocol.folds:
        assert not set(fold.target.users.tolist()) & (set(fold.train.users.tolist()) | test_users)
        assert not pairs(fold.fold_in) & pairs(fold.target)
        assert pairs(fold.train) | pairs(fold.fold_in) | pairs(fold.target) == pairs(protocol.test.train)
    assert "have no times" in str(protocol)


def test_with_times_the_newest_events_are_held_out():
    events = make_events(400, times=RNG.permutation)
    protocol = choose_protocol(events)
    assert protocol.name == "temporal"
    assert protocol.test.target.times.min() >= protocol.test.train.times.max()
    (fold,) = protocol.folds
    assert fold.target.times.min() >= fold.train.times.max()
    assert pairs(fold.train) | pairs(fold.target) <= pairs(protocol.test.train)
    assert "later than those it predicts" in str(protocol)


def test_where_few_users_come_back_times_are_not_used():
    events = make_events(300, times=np.arange)  # one user after the other
    protocol = choose_protocol(events)
    assert protocol.name == "strong"
    assert "before and after the cutoff" in protocol.reason


@pytest.mark.parametrize(
    "events",
    [
        make_events(3),  # 30 rows
        make_events(1, per_user=50),  # one user
        make_events(100, n_items=1, per_user=1),  # one item
        gr.Interactions.of(pl.DataFrame({"user_id": range(500), "item_id": RNG.integers(0, 9, 500)})),  # users number the rows
    ],
    ids=["tiny", "one user", "one item", "row numbers"],
)
def test_what_cannot_be_tested_is_refused(events):
    with pytest.raises(gr.errors.InvalidInput, match="to compare models") as error:
        gr.auto(events, budget="1m")
    assert "Check which columns" in str(error.value)


def test_folds_are_the_same_every_time():
    events = make_events(100)
    first, second = (split_into_folds(events, 5, seed=4) for _ in range(2))
    assert [fold.fingerprint for fold in first] == [fold.fingerprint for fold in second]
    assert first[0].fingerprint != split_into_folds(events, 5, seed=5)[0].fingerprint


def test_a_sample_keeps_the_popular_items_and_only_users_that_can_be_tested():
    assert sample_split(choose_protocol(make_events(100)).folds[0]) is None
    fold = choose_protocol(gr.datasets.load("movielens")).folds[0]
    sample = sample_split(fold)
    assert sample.train.n_items == SAMPLE_ITEMS
    left_out = set(fold.train.items.tolist()) - set(sample.train.items.tolist())
    popularity = dict(zip(fold.train.items.tolist(), fold.train.popularity, strict=True))
    assert max(popularity[item] for item in left_out) <= min(popularity[item] for item in sample.train.items.tolist())
    assert (np.diff(sample.target.matrix.indptr) > 0).all()
    assert (np.diff(sample.fold_in.matrix.indptr) > 0).all()
    assert pairs(sample.target) <= pairs(fold.target)
