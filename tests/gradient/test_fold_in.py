"""Vectors of users who were not trained: iterative fold-in against SciPy's minimizers, and linear systems of squared losses."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import minimize

import gramian as gr
from gradient.cases import EVENTS, SMALL_LOSSES, N, loss_id, recipe_for
from gramian.gradient import (
    BPR,
    MF,
    MSE,
    ByPopularity,
    FactorModel,
    MINEPlus,
    MultDAE,
    RG2Loss,
    SampledSoftmax,
    Softmax,
    Uniform,
)
from gramian.gradient.backbones import backpropagate_rows, scoring_rows
from gramian.gradient.fold_in import PAIRWISE_CANDIDATES, FoldInProblem
from gramian.gradient.loss import Scores
from gramian.gradient.scorers import history_keys

ITERATIVE_LOSSES = [loss for loss in SMALL_LOSSES if not loss.row_loss(0.0, N)]


@pytest.mark.parametrize("loss", ITERATIVE_LOSSES, ids=loss_id)
def test_fold_in_minimises_the_loss(loss):
    """Against SciPy's minimizers, from several starting points."""
    model = recipe_for(loss, n_epochs=30, learning_rate=0.03, l2=0.01).fit(EVENTS, dtype="float64")
    scorer = model.scorer
    histories = sp.csr_array((np.ones(7), ([0, 0, 0, 1, 1, 1, 1], [0, 3, 9, 1, 4, 10, 13])), (2, N))
    vectors = scorer.fold_in(histories)
    problem = FoldInProblem(scorer, histories)
    for user in range(2):
        items = histories[[user]].indices

        def value(z, items=items):
            if loss.in_unit_ball:
                z = problem.project(z[None])[0]
            scores = scoring_rows(z[None, :6], scorer.geometry, "user") @ scorer.rows.T
            optional = {"user_bias": z[None, 6:]} if "user_bias" in scorer.loss.learned_biases else {}
            if scorer.loss.needs_item_item:
                optional["item_item"] = (scoring_rows(scorer.items, scorer.geometry, "user")[items] @ scorer.rows.T)[None]
                optional["item_bias"] = scorer.item_bias[items, 0][None]
            weight = np.full((1, len(items)), 1 / len(items))
            if getattr(loss, "debiased", None):
                prior = loss.debiased.priors(np.array([len(items)]), N)[:, None]
                optional |= {"extra_positives": scores[:, items], "extra_positive_weight": weight, "prior": prior}
            optional["n_items"] = N
            log_q = None if loss.uses_all_items else scorer.log_q
            if isinstance(loss, SampledSoftmax):
                s = Scores(scores[:, items], weight, scores, N)
                return float(Softmax(loss.temperature)(s)[0][0] + 0.01 * (z[:6] ** 2).sum())
            n = N if loss.uses_all_items else loss.n_negatives
            s = Scores(scores[:, items], weight, scores, n, negative_log_weight=log_q, log_q=log_q, **optional)
            return float(problem.loss(s)[0][0] + 0.01 * (z[:6] ** 2).sum())

        start = problem.initial_point()[user]
        starts = [start + k * np.random.default_rng(k).standard_normal(len(start)) for k in range(3)]
        minima = [minimize(value, point, method=method) for point in starts for method in ("BFGS", "Powell")]
        z = np.concatenate([vectors[user], np.zeros(len(start) - 6)])
        if len(start) > 6:  # with the best bias for this vector
            z[6] = minimize(lambda bias, z=z: value(np.append(z[:6], bias)), [0.0], method="Nelder-Mead").x[0]
        best, initial = min(minimum.fun for minimum in minima), value(start)
        assert value(z) <= initial + 1e-9
        assert value(z) - best <= 0.15 * (initial - best) + 1e-3  # CCL has kinks, at which a descent may stop early


def test_weight_decay_is_a_penalty_on_a_users_vector_once():
    """Not once per interaction, as l2 is: beside the mean over a user's interactions it weighs ½ · weight_decay · D/|I_u|."""
    recipe = recipe_for(MINEPlus(n_negatives=8), l2=0.01)
    state = next(recipe.iterate(EVENTS, recipe.initial_state(EVENTS, np.float64)))
    histories, z = EVENTS.matrix[:5], np.random.default_rng(0).standard_normal((5, 6))
    plain, decayed = (
        FoldInProblem(r.to_scorer(EVENTS, state), histories).value_and_gradient(z, np.arange(5))
        for r in (recipe, replace(recipe, weight_decay=1e-3))
    )
    penalty = 1e-3 / 2 * EVENTS.n_interactions / np.diff(histories.indptr)
    np.testing.assert_allclose(decayed[0] - plain[0], penalty * (z**2).sum(1))
    np.testing.assert_allclose(decayed[1] - plain[1], 2 * penalty[:, None] * z)


def test_gradients_are_backpropagated_through_every_geometry():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((2, 4))
    for geometry, width in {"product": 4, "cosine": 4, "distance": 6}.items():
        gradients = rng.standard_normal((2, width))
        leaf = torch.from_numpy(z.copy()).requires_grad_()
        (scoring_rows(leaf, geometry, "user") * torch.from_numpy(gradients)).sum().backward()
        np.testing.assert_allclose(backpropagate_rows(z, gradients, geometry), leaf.grad, atol=1e-12)
    q = rng.standard_normal((3, 4))
    distances = ((z[:, None] - q[None]) ** 2).sum(2)
    np.testing.assert_allclose(scoring_rows(z, "distance", "user") @ scoring_rows(q, "distance", "item").T, -distances)


def test_the_history_of_a_trained_user_gets_the_trained_vector():
    recipe = recipe_for(MINEPlus(n_negatives=8))
    state = next(recipe.iterate(EVENTS, recipe.initial_state(EVENTS, np.float32)))
    scorer = recipe.to_scorer(EVENTS, state)
    distinct = np.unique(history_keys(EVENTS.matrix), return_index=True)[1]
    assert np.array_equal(scorer.user_vectors(EVENTS.matrix)[distinct], state.users[distinct])
    reversed_users = scorer.user_vectors(EVENTS.matrix[::-1])
    assert np.array_equal(reversed_users[::-1][distinct], state.users[distinct])
    assert not scorer.user_vectors(sp.csr_array((1, N), dtype=np.float32)).any()


def test_pairwise_losses_fold_in_with_a_sample_of_many_items():
    n = 2 * PAIRWISE_CANDIDATES
    events = gr.Interactions.of(sp.csr_array((np.random.default_rng(0).random((50, n)) < 0.02).astype(np.float32)))
    model = FactorModel(MF(rank=4), BPR(), n_epochs=2).fit(events)
    problem = FoldInProblem(model.scorer, events.matrix[:3])
    assert len(problem.candidates) == PAIRWISE_CANDIDATES
    assert len(set(problem.candidates.tolist())) == PAIRWISE_CANDIDATES  # spread over all items
    lists = model.recommend_for([[1, 2, 3]], k=4)
    assert len(lists.items[0]) == 4
    assert lists.scores == model.recommend_for([[1, 2, 3]], k=4).scores


@pytest.mark.parametrize("loss", [MSE(n_negatives=8), RG2Loss()], ids=loss_id)
def test_squared_losses_of_inner_products_explain_their_scores(loss):
    model = recipe_for(loss, n_epochs=10, l2=0.01).fit(EVENTS, dtype="float64")
    explanation = model.explain([0, 3, 9], 6)
    history = gr.Interactions.of(sp.csr_array((np.ones(3), ([0, 0, 0], [0, 3, 9])), (1, N)))
    scores = model.scores(history)
    assert explanation.score == pytest.approx(float(scores[0, 6]), rel=1e-6)
    assert set(explanation) == {0, 3, 9}


@pytest.mark.parametrize("sampler", [Uniform(), ByPopularity()], ids=str)
@pytest.mark.parametrize("loss", [MSE(weight=3), RG2Loss()], ids=loss_id)
def test_the_linear_system_of_a_squared_loss_minimises_it(loss, sampler):
    """The gradient of the loss with every item as a negative is 0 at the solution."""
    if hasattr(loss, "sampler"):
        loss = replace(loss, sampler=sampler)
    model = recipe_for(loss, n_epochs=5, l2=0.02, weight_decay=1e-4).fit(EVENTS, dtype="float64")
    l2 = 0.02 + 1e-4 / 2 * EVENTS.n_interactions / 3
    q = model.scorer.fixed.factors
    history = sp.csr_array((np.ones(3), ([0, 0, 0], [0, 3, 9])), (1, N))
    p = model.scorer.user_vectors(history)
    log_q = None if loss.uses_all_items else loss.log_probabilities(EVENTS.popularity)
    third = np.full((1, 3), 1 / 3)

    def value(p):
        y = p @ q.T
        return float(loss(Scores(y[:, [0, 3, 9]], third, y, N, negative_log_weight=log_q))[0][0]) + l2 * float((p**2).sum())

    for factor in range(p.shape[1]):
        step = np.zeros_like(p)
        step[0, factor] = 1e-5
        assert (value(p + step) - value(p - step)) / 2e-5 == pytest.approx(0, abs=1e-6)


def test_models_that_are_not_sums_over_the_history_refuse_to_explain(refused):
    for recipe in (recipe_for(BPR(n_negatives=8)), MultDAE(rank=4, n_epochs=1)):
        model = recipe.fit(EVENTS)
        with refused(gr.errors.NotSupported, mentioning="sums over the history"):
            model.explain([0, 3], 6)
        with refused(gr.errors.NotSupported, mentioning="item-item"):
            model.weights()
