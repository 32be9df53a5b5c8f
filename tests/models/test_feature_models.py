"""Models that learn from item features: their definitions, their limits, new items, and what features explain."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import gramian as gr
import naive
from gramian.core.recipe import equivalent
from gramian.models.feature_similarity import FeatureSimilarity
from models.factor_cases import ials, states
from models.full_rank_cases import assert_close, binary, weighted

N_COLD = 3
RNG = np.random.default_rng(3)
F = np.hstack([(RNG.random((15, 4)) < 0.4), np.zeros((15, 0))]).astype(float)
F[F.sum(axis=1) == 0, 0] = 1
NUMBERS = RNG.standard_normal((15, 3))
CLOSED_FORMS = [
    gr.CEASE(l2=2, feature_weight=3),
    gr.CEASE(l2=2, feature_weight=(3, 0.5)),
    gr.AddEASE(l2=2, feature_l2=1.5, feature_share=0.4),
    gr.AddEASE(l2=2, feature_l2=1.5, feature_share=1),
    gr.L3AE(l2=5, feature_l2=1.5, prior_weight=0.4),
    gr.L3AE(l2=5, feature_l2=1.5, prior_weight=1.7),
]
ALL = [*CLOSED_FORMS, gr.FeatureIALS(rank=4, l2=0.1, feature_l2=0.5, n_epochs=3)]


def over(recipes):
    return pytest.mark.parametrize("recipe", recipes, ids=repr)


def table(rows=slice(None)):
    """A table of tags and vectors for items 0 to 14."""
    tags = ["|".join(f"t{k}" for k in np.flatnonzero(row)) for row in F[rows]]
    return pl.DataFrame({"item_id": range(15)[rows], "kind": tags, "embedding": NUMBERS[rows].tolist()})


def features():
    return gr.Features.of(table(), tags="kind", vectors="embedding")


def events_of(X, n_items=15):
    return gr.Interactions.of(X[:, :n_items]).with_features(features().take(range(n_items)))


def cold(X):
    """The same matrix, of whose last items nobody has touched any."""
    X = X.copy()
    X[:, -N_COLD:] = 0
    X[X.sum(axis=1) == 0, 0] = 1
    return X


def interactions(X):
    """Interactions with a column for every item, also for those without interactions."""
    catalog = gr.Catalog(gr.Interactions.of(np.ones((1, X.shape[1]))).items)
    events = gr.Interactions(sp.csr_array(X.astype(np.float32)), gr.Interactions.of(np.ones((len(X), 1))).users, catalog)
    return events.with_features(features().take(events.items.tolist()))


def twin(recipe, X):
    f = features().matrix.toarray().astype(float)
    match recipe:
        case gr.CEASE():
            by_block = recipe.feature_weight if isinstance(recipe.feature_weight, tuple) else [recipe.feature_weight] * 2
            return naive.cease(X, f, np.repeat(by_block, [4, 3]), recipe.l2)
        case gr.AddEASE():
            return naive.add_ease(X, f, recipe.feature_share, recipe.l2, recipe.feature_l2)
        case gr.L3AE():
            lam_kd = recipe.prior_weight * recipe.l2
            return naive.l3ae(X, naive.ease(f.T, recipe.feature_l2), recipe.l2 - lam_kd, lam_kd)
    raise AssertionError(recipe)


@over(CLOSED_FORMS)
@pytest.mark.parametrize("X", [binary(), weighted()], ids=["binary", "weighted"])
def test_weights_are_those_of_the_definition(recipe, X):
    assert_close(recipe.fit(interactions(X), dtype="float64").weights(), twin(recipe, X), rtol=2e-6)


def test_the_similarity_of_features_is_ease_on_features():
    f = features().matrix.toarray().astype(float)
    similarity = FeatureSimilarity.of(features(), 0.7)
    weights = similarity.encoder @ similarity.decoder.T - np.diag(similarity.diagonal)
    assert_close(weights, naive.ease(f.T, 0.7))


def test_the_formula_of_the_prior_is_that_of_the_issue_off_the_diagonal():
    """B = λPC − P·diag((1 + λ·diag(PC))/diag(P)), with P = (S + (l2 + λ)I)⁻¹; its diagonal lacks the identity."""
    X, l2, lam = binary(), 2.0, 3.0
    C = naive.ease(features().matrix.toarray().astype(float).T, 1.5)
    P = np.linalg.inv(X.T @ X + (l2 + lam) * np.eye(15))
    B = lam * P @ C - P * ((1 + lam * np.diag(P @ C)) / np.diag(P)) + np.eye(15)
    assert_close(gr.L3AE.from_paper(l2, lam, 1.5).fit(interactions(X), dtype="float64").weights(), B, rtol=2e-6)


LIMITS = [
    gr.CEASE(l2=3, feature_weight=0),
    gr.AddEASE(l2=3, feature_share=0),
    gr.L3AE(l2=3, prior_weight=0),
    gr.L3AE.from_paper(3, 0),
]


@over(LIMITS)
def test_without_weight_on_features_it_is_ease(recipe):
    X = binary()
    assert equivalent(recipe, gr.EASE(3))
    assert_close(recipe.fit(interactions(X), dtype="float64").weights(), naive.ease(X, 3), rtol=2e-6)


def test_a_prior_without_interactions_is_the_similarity():
    """With a very large l2 the interactions count for nothing."""
    weights = gr.L3AE(l2=1e9, feature_l2=1.5, prior_weight=1).fit(interactions(binary()), dtype="float64").weights()
    assert_close(weights, naive.ease(features().matrix.toarray().astype(float).T, 1.5), rtol=1e-5)


def test_the_weights_of_blocks_are_those_of_scaled_features():
    weights = [gr.CEASE(l2=2, feature_weight=w).fit(interactions(binary())).weights() for w in (3, (3, 3))]
    np.testing.assert_array_equal(*weights)


def test_one_weight_for_each_block_is_needed(refused):
    with refused(gr.errors.InvalidInput, "kind, embedding"):
        gr.CEASE(feature_weight=(1, 2, 3)).fit(interactions(binary()))


@over(ALL)
def test_it_is_refused_without_features(recipe, refused):
    with refused(gr.errors.InvalidInput, "with_features"):
        recipe.fit(gr.Interactions.of(binary()))


@over(CLOSED_FORMS)
def test_new_items_give_the_model_of_a_new_fit(recipe):
    X = cold(binary())
    before = recipe.fit(events_of(X, 15 - N_COLD), dtype="float64")
    after = before.add_items(features().take(range(15 - N_COLD, 15)))
    again = recipe.fit(interactions(X), dtype="float64")
    assert after.items == again.items
    assert_close(after.weights(), again.weights(), rtol=2e-6)
    assert len(before.items) == 15 - N_COLD
    assert after.histories.n_items == 15


def test_new_items_of_feature_ials_are_those_of_a_new_fit():
    X, recipe = cold(binary()), gr.FeatureIALS(rank=4, l2=0.1, feature_l2=0.5, n_epochs=4, solver=gr.Cholesky())
    after = recipe.fit(events_of(X, 15 - N_COLD), dtype="float64").add_items(features().take(range(12, 15)))
    again = recipe.fit(interactions(X), dtype="float64")
    assert_close(after.scores(interactions(X)), again.scores(interactions(X)), rtol=1e-8)


@over(ALL)
def test_a_new_item_is_recommended_by_its_features(recipe):
    """A copy of a touched item in its features comes before one that has no feature of the history."""
    model = recipe.fit(events_of(cold(binary()), 12))
    after = model.add_items(table(slice(12, 15)), titles={12: "a new one"})
    scores = after.recommend_for([[0, 1]], k=15).scores[0]
    assert len(scores) == 13
    assert np.isfinite(scores).all()
    assert set(after.recommend_for([[0, 1]], k=3, allow=[12, 13, 14]).items[0]) == {12, 13, 14}
    if recipe.params.get("feature_weight") != 0:
        assert np.any(after.scores(interactions(cold(binary())))[:, 12:] != 0)


@over(ALL)
def test_features_explain_all_of_the_score_of_an_untouched_item(recipe):
    model = recipe.fit(events_of(cold(binary()), 12), dtype="float64").add_items(features().take([12, 13, 14]))
    history = {0: 1.0, 3: 2.0, 5: 1.0}
    explanation = model.explain(history, 13)
    scores = model.recommend_for([history], k=15, exclude_seen=False)
    score = dict(zip(scores.items[0], scores.scores[0], strict=True))[13]
    assert explanation.score == pytest.approx(score, rel=1e-5)
    assert sum(explanation.features.values()) == pytest.approx(score, rel=1e-5, abs=1e-7)
    assert explanation.from_interactions == pytest.approx(0, abs=1e-5 * abs(score) + 1e-8)
    own = {name for name, value in zip(model.catalog.features.names, features().matrix.toarray()[13], strict=True) if value}
    assert set(explanation.features) <= own


@over(CLOSED_FORMS)
def test_features_explain_what_the_right_side_of_an_item_has_of_them(recipe):
    """The column of an item solves A w = s + r, with s from interactions and r from features: w splits into both parts."""
    X, item = binary(), 4
    model = recipe.fit(interactions(X), dtype="float64")
    history = {0: 1.0, item: 3.0, 7: 2.0}
    explanation = model.explain(history, item)
    f, x = features().matrix.toarray().astype(float), np.zeros(15)
    x[[0, 7]] = 1, 2
    others = np.delete(np.arange(15), item)
    match recipe:
        case gr.CEASE():
            by_block = recipe.feature_weight if isinstance(recipe.feature_weight, tuple) else [recipe.feature_weight] * 2
            alpha = np.repeat(by_block, [4, 3])
            system = X.T @ X + (alpha * f) @ f.T + recipe.l2 * np.eye(15)
            by_feature = alpha * f[item] * f[others]
        case gr.AddEASE():
            weights = recipe.feature_share * naive.ease(f.T, recipe.feature_l2)[others, item]
            assert sum(explanation.features.values()) == pytest.approx(x[others] @ weights, rel=1e-5)
            return
        case gr.L3AE():
            system = X.T @ X + recipe.l2 * np.eye(15)
            similarity = FeatureSimilarity.of(features(), recipe.feature_l2)
            by_feature = recipe.prior_weight * recipe.l2 * similarity.decoder[item] * similarity.encoder[others]
    expected = x[others] @ np.linalg.solve(system[np.ix_(others, others)], by_feature)
    actual = [explanation.features.get(name, 0.0) for name in features().names]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-8)
    assert explanation.score == pytest.approx(x @ twin(recipe, X)[:, item], rel=1e-5)


@over(CLOSED_FORMS)
def test_users_come_and_go_exactly(recipe):
    X = binary(60)
    events = interactions(X)
    first, last = events.take(np.arange(58)), events.take(np.arange(58, 60))
    model = recipe.fit(first, dtype="float64")
    grown = model.add_users(last)
    assert_close(grown.weights(), recipe.fit(events, dtype="float64").weights(), rtol=2e-6)
    assert_close(grown.forget_users(last.users.tolist()).weights(), model.weights(), rtol=2e-6)


@over(CLOSED_FORMS)
def test_users_bring_new_items_that_have_features(recipe):
    X = binary(60)
    X[:58, -N_COLD:] = 0
    X[58, -N_COLD:] = 1
    X[X.sum(axis=1) == 0, 0] = 1
    first = events_of(X[:58], 12)
    last = interactions(X).take(np.arange(58, 60))
    grown = recipe.fit(first, dtype="float64").add_users(last)
    assert_close(grown.weights(), recipe.fit(interactions(X), dtype="float64").weights(), rtol=2e-6)


def test_users_with_items_without_features_are_refused(refused):
    model = gr.CEASE().fit(events_of(binary(), 12))
    with refused(gr.errors.InvalidInput, "with_features"):
        model.add_users(gr.Interactions.of(pl.DataFrame({"user_id": [-1, -1], "item_id": [0, 14]})))


@over(ALL)
def test_wrong_new_items_are_refused(recipe, refused):
    model = recipe.fit(events_of(binary(), 12))
    with refused(gr.errors.InvalidInput, "11"):
        model.add_items(features().take([11, 12]))
    with refused(gr.errors.InvalidInput, "knows"):
        model.add_items(table(slice(12, 13)).with_columns(kind=pl.lit("x"), embedding=pl.Series([[0.0, 0.0, 0.0]])))
    with refused(gr.errors.InvalidInput, "array"):
        model.add_items(np.ones((1, 7)), items=[12])
    other = gr.Features.of(table(), tags="kind")
    with refused(gr.errors.InvalidInput, "like"):
        model.add_items(other.take([12]))


def test_a_model_without_features_takes_no_new_items(refused):
    with refused(gr.errors.NotSupported, "CEASE"):
        gr.EASE().fit(events_of(binary(), 12)).add_items(features().take([12]))


def feature_ials_loss(recipe, X, p, q, G):
    """The loss of iALS with the prior, written out; items without interactions take no part."""
    of_items = recipe.l2 * (X.sum(axis=0) + recipe.unobserved_weight * len(X)) ** recipe.l2_exponent
    f = features().matrix.toarray().astype(float)
    plain = ials(recipe, X, p, q) - (of_items * (q**2).sum(axis=1)).sum()
    return plain + (of_items * ((q - f @ G) ** 2).sum(axis=1)).sum() + recipe.feature_l2 * (G**2).sum()


def best_feature_vectors(recipe, X, q):
    """The ridge regression of the item vectors on the features."""
    of_items = recipe.l2 * (X.sum(axis=0) + recipe.unobserved_weight * len(X)) ** recipe.l2_exponent
    f = features().matrix.toarray().astype(float)
    return np.linalg.solve((f.T * of_items) @ f + recipe.feature_l2 * np.eye(f.shape[1]), (f.T * of_items) @ q)


@pytest.mark.parametrize("exponent", [1.0, 0.5])
def test_feature_ials_converges_to_a_stationary_point_of_its_loss(exponent):
    X = binary()
    recipe = gr.FeatureIALS(rank=3, l2=0.05, l2_exponent=exponent, feature_l2=0.4, solver=gr.Cholesky())
    history = states(recipe, 400, interactions(X))
    objectives = [state.objective for state in history]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(objectives))
    p, q = history[-1].users, history[-1].items
    G = best_feature_vectors(recipe, X, q)
    value = feature_ials_loss(recipe, X, p, q, G)
    assert value == pytest.approx(objectives[-1], rel=1e-8)
    rng = np.random.default_rng(0)
    for _ in range(5):
        dp, dq, dG = (rng.standard_normal(array.shape) for array in (p, q, G))
        slopes = [feature_ials_loss(recipe, X, p + e * dp, q + e * dq, G + e * dG) for e in (1e-5, -1e-5)]
        assert abs(slopes[0] - slopes[1]) / 2e-5 < 1e-4 * abs(value)


def test_feature_ials_with_a_strong_penalty_is_ials():
    X = interactions(binary())
    options = {"rank": 4, "l2": 0.1, "n_epochs": 5, "solver": gr.Cholesky()}
    plain, strong = (
        gr.IALS(**options).fit(X, dtype="float64"),
        gr.FeatureIALS(**options, feature_l2=1e12).fit(X, dtype="float64"),
    )
    assert_close(strong.scores(X), plain.scores(X), rtol=1e-6)


def test_all_solvers_reach_the_same_items():
    events = interactions(binary())
    recipe = gr.FeatureIALS(rank=3, l2=0.05, feature_l2=0.4)
    solvers = (gr.Cholesky(), gr.ConjugateGradient(steps=20), gr.Subspace(size=2))
    scores = []
    for solver in solvers:
        state = states(replace(recipe, solver=solver), 300, events)[-1]
        scores.append(state.users @ state.items.T)
    assert_close(scores[1], scores[0], rtol=1e-4)
    assert_close(scores[2], scores[0], rtol=1e-4)


@over([gr.AddEASE(l2=2), gr.L3AE(l2=2)])
def test_free_axes_of_a_search_give_the_values_of_single_fits(recipe):
    events = interactions(binary(200))
    split = gr.split.strong(events, validation_users=0, test_users=40)
    axis = {gr.AddEASE: "feature_share", gr.L3AE: "prior_weight"}[type(recipe)]
    search = gr.tune(type(recipe), split, {"l2": [2.0], "feature_l2": [1.5], axis: [0, 0.3, 0.6, 1]}, "ndcg@5")
    assert len(search.results) == 4
    for trial in search.results:
        model = trial.recipe.fit(split.train)
        assert gr.evaluate(model, split, ["ndcg@5"])["ndcg@5"] == pytest.approx(trial.value, abs=1e-6)
