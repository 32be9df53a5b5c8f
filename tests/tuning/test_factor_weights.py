"""One penalty for each factor: the loss is that of pairs of scores, and the search lowers it."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.split import Split
from gramian.data.synthetic import clustered
from gramian.models.spectral import right_singular_vectors
from gramian.tuning.factor_weights import (
    RATIOS,
    learn_penalties,
    pair_features,
    pairwise_loss,
    search_factor_weights,
    singular_values,
)

SPLIT = gr.split.strong(clustered(400, 60, 8_000, n_tastes=5)).validation
START = gr.LRR(rank=12, l2=50)
PAIRS = right_singular_vectors(SPLIT.train, START.rank, np.float32)


def test_features_times_shrinkage_are_differences_of_scores():
    sigma, features = singular_values(PAIRS), pair_features(SPLIT, PAIRS.vectors, seed=0)
    scores = SPLIT.fold_in.reindex(SPLIT.fold_in.users, SPLIT.train.items).matrix @ START.fit(SPLIT.train).weights()
    targets = SPLIT.target.reindex(SPLIT.fold_in.users, SPLIT.train.items).matrix.toarray() > 0
    touched = targets | (SPLIT.fold_in.reindex(SPLIT.fold_in.users, SPLIT.train.items).matrix.toarray() > 0)
    margins = features @ (sigma**2 / (sigma**2 + START.l2)).astype(np.float32)
    possible = [
        {round(float(x), 3) for x in (row[t][:, None] - row[~seen][None, :]).ravel()}
        for row, t, seen in zip(scores, targets, touched, strict=True)
    ]
    everywhere = set.union(*possible)
    near = {round(x + step * 0.001, 3) for x in everywhere for step in (-1, 0, 1)}
    assert all(round(float(margin), 3) in near for margin in margins)
    assert 0 < len(margins) <= SPLIT.target.n_interactions


def test_the_gradient_is_that_of_the_loss():
    features = np.random.default_rng(0).standard_normal((50, 4))
    f = np.array([0.2, 0.5, 0.7, 0.9])
    loss, gradient = pairwise_loss(features, f, 1.5)
    assert loss == pytest.approx(np.mean([np.log(1 + np.exp(-1.5 * (row @ f))) for row in features]))
    for i in range(4):
        step = 1e-6 * np.eye(4)[i]
        slope = (pairwise_loss(features, f + step, 1.5)[0] - pairwise_loss(features, f - step, 1.5)[0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, abs=1e-6)


def test_the_search_lowers_the_loss_and_stays_nearby():
    found = learn_penalties(START, SPLIT, PAIRS, 10, seed=0)
    assert found.rank == START.rank == len(found.l2)
    assert all(START.l2 / 10 * 0.999 <= l2 <= START.l2 * 10 * 1.001 for l2 in found.l2)
    sigma, features = singular_values(PAIRS), pair_features(SPLIT, PAIRS.vectors, seed=0)
    before, after = (sigma**2 / (sigma**2 + np.asarray(l2)) for l2 in (START.l2, found.l2))
    scale = 1 / np.std(features @ before)
    assert pairwise_loss(features, after, scale)[0] < pairwise_loss(features, before, scale)[0]
    assert len({round(l2, 3) for l2 in found.l2}) > 2


def test_the_bound_is_chosen_on_users_that_were_not_learned_from():
    """It is the one whose penalties, learned from every other user, are best for the rest; then all users are learned from."""
    rows = np.arange(SPLIT.target.n_users)
    halves = [Split(SPLIT.train, SPLIT.fold_in.take(rows[h::2]), SPLIT.target.take(rows[h::2])) for h in (0, 1)]
    scores = {}
    for ratio in RATIOS:
        candidate = learn_penalties(START, halves[0], PAIRS, ratio, seed=0)
        scores[ratio] = gr.evaluate(candidate.fit(SPLIT.train), halves[1], ["ndcg@10"])["ndcg@10"]
    found = search_factor_weights(START, SPLIT, "ndcg@10")
    assert found.l2 == pytest.approx(learn_penalties(START, SPLIT, PAIRS, max(scores, key=scores.get), seed=0).l2)
    assert learn_penalties(START, SPLIT, PAIRS, 1, seed=0).l2 == pytest.approx([START.l2] * START.rank)


def test_a_recipe_that_has_its_weights_already_is_refused(refused):
    with refused(mentioning="a single l2"):
        search_factor_weights(gr.LRR(2, (3.0, 4.0)), SPLIT, "ndcg@10")
    with refused(mentioning="a single l2"):
        search_factor_weights(gr.LRR(2, 0), SPLIT, "ndcg@10")
