"""Metrics of cold, tail and head items."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.evaluation.breakdown import group_by_popularity

EVENTS = clustered(80, 50, 1_500, n_tastes=4)
EVENTS = EVENTS.with_features(gr.Features.of(np.arange(50.0)[:, None] % np.arange(2, 6), items=EVENTS.items.tolist()))
SPLIT = gr.split.cold_items(EVENTS, seed=0)


@pytest.fixture(scope="module")
def model():
    return gr.CEASE(l2=20, feature_weight=20).fit(SPLIT.train)


def test_groups_are_those_of_the_popularity():
    groups = group_by_popularity(np.array([0, 10, 1, 5, 4, 0]), 0.5)
    assert {name: np.flatnonzero(mask).tolist() for name, mask in groups.items()} == {
        "cold": [0, 5],
        "tail": [2, 3, 4],
        "head": [1],
    }


@pytest.mark.parametrize("within_group", [False, True])
def test_recalls_are_those_of_a_naive_count(model, within_group):
    reports = gr.evaluate_by_popularity(model, SPLIT, ["recall@5"], within_group=within_group)
    scores = model.scores(SPLIT.fold_in)
    scores[SPLIT.fold_in.matrix.toarray() > 0] = -np.inf
    targets = SPLIT.target.matrix.toarray() > 0
    for name, mask in group_by_popularity(model.catalog.popularity, 0.5).items():
        ranked = np.where(mask, scores, -np.inf) if within_group else scores
        lists = np.argsort(-ranked, axis=1, kind="stable")[:, :5]
        expected = [
            targets[user, [item for item in row if mask[item]]].sum() / targets[user, mask].sum()
            for user, row in enumerate(lists)
            if targets[user, mask].any()
        ]
        assert reports[name]["recall@5"] == pytest.approx(np.mean(expected))
        assert len(reports[name].users) == len(expected)


def test_reports_of_one_group_can_be_compared(model, refused):
    other = gr.EASE().fit(SPLIT.train)
    ours, theirs = (gr.evaluate_by_popularity(m, SPLIT, ["recall@5"]) for m in (model, other))
    assert ours["cold"].compare(theirs["cold"], "recall@5").p_value <= 1
    with refused(gr.errors.InvalidInput, "split"):
        ours["cold"].compare(theirs["head"], "recall@5")


def test_a_group_without_targets_is_left_out(model):
    split = gr.split.weak(EVENTS, seed=0)
    assert "cold" not in gr.evaluate_by_popularity(gr.EASE().fit(split.train), split)


def test_bad_arguments_are_refused(model, refused):
    with refused(gr.errors.InvalidInput, "head"):
        gr.evaluate_by_popularity(model, SPLIT, head=1.5)
    with refused(gr.errors.InvalidInput, "fit"):
        gr.evaluate_by_popularity(gr.EASE(), SPLIT)
    with refused(gr.errors.LeakedEvaluation, "split.train"):
        gr.evaluate_by_popularity(gr.EASE().fit(EVENTS), SPLIT)
