"""A model that was fitted on the targets is not evaluated on them, unless somebody insists."""

from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.evaluation.task import RankingTask

EVENTS = clustered(200, 40, 3_000)
TIMED = replace(EVENTS, times=np.random.default_rng(0).permutation(EVENTS.n_interactions))
SPLITS = {
    "strong": gr.split.strong(EVENTS, test_users=0.2),
    "weak": gr.split.weak(EVENTS),
    "leave_last": gr.split.leave_last(TIMED),
    "temporal": gr.split.temporal(TIMED),
}


def pairs(events):
    """The set of (user id, item id) of interactions."""
    users, items = events.users[events.rows], events.items[events.matrix.indices]
    return set(zip(users, items, strict=True))


@pytest.mark.parametrize("name", SPLITS)
def test_a_model_fitted_on_the_targets_is_refused(name, refused):
    split = SPLITS[name]
    leaked = gr.Popularity().fit(EVENTS)
    n_targets = split.target.n_interactions
    with refused(gr.errors.LeakedEvaluation, f"{n_targets:,} of {n_targets:,} targets"):
        gr.evaluate(leaked, split)
    with refused(gr.errors.LeakedEvaluation, "split.train"):
        gr.evaluate(leaked, split.held_out)
    report = gr.evaluate(leaked, split, allow_leakage=True)
    assert report.n_leaked == n_targets
    assert f"fitted on {n_targets:,} of the targets" in str(report)
    honest = gr.evaluate(gr.Popularity().fit(split.train), split)
    assert honest.n_leaked == 0
    assert "targets" not in str(honest)


@pytest.mark.parametrize("name", SPLITS)
def test_leaked_targets_are_counted_by_their_ids(name):
    """Other users, other items and another order of both change nothing."""
    split = SPLITS[name]
    rng = np.random.default_rng(1)
    some = EVENTS.keep(rng.random(EVENTS.n_interactions) < 0.5).take(rng.permutation(EVENTS.n_users)[:150]).compact()
    shuffled = some.reindex(some.users, some.items.take(rng.permutation(some.n_items)))
    expected = pairs(split.target) & pairs(some) - pairs(split.fold_in)
    assert expected
    report = gr.evaluate(gr.Popularity().fit(shuffled), split, allow_leakage=True)
    assert report.n_leaked == len(expected)


def test_weights_however_small_count_as_interactions():
    tiny = gr.Interactions.of(EVENTS.matrix * np.float32(1e-30))
    assert RankingTask.of(SPLITS["weak"].held_out, tiny.catalog).count_leaked(tiny) == SPLITS["weak"].target.n_interactions


def test_a_target_in_its_own_fold_in_leaks_nothing():
    """Published train and test files may overlap. No list shows what the user already has, so nothing is gained."""
    train = SPLITS["weak"].train
    overlapping = gr.split.published(train, EVENTS)
    report = gr.evaluate(gr.Popularity().fit(overlapping.train), overlapping)
    assert report.n_leaked == 0


def test_a_model_without_histories_says_that_it_was_not_checked():
    split = SPLITS["strong"]
    report = gr.evaluate(gr.EASE().fit_gram(gr.Gram.of(split.train)), split)
    assert report.n_leaked is None
    assert "not checked" in str(report)
    assert "not checked" in report._repr_html_()


def test_the_honest_and_the_leaked_figure_of_the_bundled_data():
    """What a newcomer would have believed: 0.69 in place of 0.32."""
    events = gr.datasets.load("movielens", min_value=4).k_core(10)
    split = gr.split.strong(events, test_users=0.2)
    honest = gr.evaluate(gr.EASE().fit(split.train), split)["ndcg@20"]
    leaked = gr.evaluate(gr.EASE().fit(events), split, allow_leakage=True)["ndcg@20"]
    assert leaked > 2 * honest
    with pytest.raises(gr.errors.LeakedEvaluation):
        gr.evaluate(gr.EASE().fit(events), split)


def test_updated_models_are_checked_too():
    split = SPLITS["strong"]
    targets = split.target.take(np.arange(5))
    updated = gr.EASE().fit(split.train).add_users(targets)
    with pytest.raises(gr.errors.LeakedEvaluation, match=f"{targets.n_interactions} of"):
        gr.evaluate(updated, split)


def leaky_split():
    """A split whose training part holds the targets, as one made by hand may."""
    split = SPLITS["strong"]
    return gr.Split(EVENTS, split.fold_in, split.target)


@pytest.mark.parametrize(
    "run",
    [
        lambda split: gr.tune(gr.EASE, split, {"l2": [10]}),
        lambda split: gr.rank_path(gr.LRR(), [4], split),
        lambda split: gr.epoch_path(gr.IALS(rank=4, n_epochs=1), split),
    ],
    ids=["tune", "rank_path", "epoch_path"],
)
def test_searches_refuse_a_split_that_leaks(run):
    with pytest.raises(gr.errors.LeakedEvaluation):
        run(leaky_split())


@pytest.mark.parametrize(
    "run",
    [
        lambda split: gr.tune(gr.EASE, split, {"l2": [10]}),
        lambda split: gr.epoch_path(gr.IALS(rank=4, n_epochs=1), split),
    ],
    ids=["tune", "epoch_path"],
)
def test_choosing_on_the_test_users_is_said(run):
    with pytest.warns(gr.errors.TunedOnTestWarning, match=r"Pass split\.validation"):
        run(SPLITS["strong"])
    run(SPLITS["strong"].validation)
