"""The split by cold items."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered

EVENTS = clustered(80, 50, 1_500, n_tastes=4)


def pairs(events):
    return set(zip(events.users[events.rows], events.items[events.matrix.indices], strict=True))


def test_every_interaction_is_in_one_part_and_cold_items_are_untouched():
    split = gr.split.cold_items(EVENTS, seed=3)
    test, validation = split.target, split.validation.target
    assert split.train.items == EVENTS.items
    is_cold = split.train.popularity == 0
    assert is_cold.sum() == 10  # a tenth for test, and a tenth for validation
    for target in (test, validation):
        share = is_cold[target.matrix.indices].mean()
        assert 0.2 < share < 0.8
    assert not is_cold[split.fold_in.matrix.indices].any()
    cold_in_test, cold_in_validation = (set(t.matrix.indices[is_cold[t.matrix.indices]]) for t in (test, validation))
    assert not cold_in_test & cold_in_validation
    parts = [pairs(split.train), pairs(test), pairs(validation)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert set.union(*parts) <= pairs(EVENTS)
    assert pairs(split.fold_in) <= pairs(split.train)


def test_without_warm_targets_all_are_cold():
    split = gr.split.cold_items(EVENTS, warm=0, validation=0)
    assert split.validation is None
    assert (split.train.popularity[split.target.matrix.indices] == 0).all()
    assert split.target.n_interactions == EVENTS.n_interactions - split.train.n_interactions


def test_the_seed_chooses_the_items():
    first, again, other = (gr.split.cold_items(EVENTS, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_features_come_along():
    features = gr.Features.of(np.eye(50), items=EVENTS.items.tolist())
    split = gr.split.cold_items(EVENTS.with_features(features))
    assert split.train.catalog.features.n_features == split.validation.train.catalog.features.n_features == 50


@pytest.mark.parametrize("options", [{"test": 0}, {"test": 1}, {"validation": -0.1}, {"warm": 2}, {"warm": "x"}])
def test_shares_are_between_0_and_1(options, refused):
    with refused(gr.errors.InvalidInput, next(iter(options))):
        gr.split.cold_items(EVENTS, **options)


def test_some_items_must_be_left(refused):
    with refused(gr.errors.InvalidInput, "items to train on"):
        gr.split.cold_items(EVENTS, test=0.5, validation=0.5)
