"""The full-rank closed forms: what must not matter, scores, empty rows and columns, hard problems, parameters."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
import naive
from models.full_rank_cases import (
    RECIPES,
    SETTINGS,
    UNIVERSAL,
    WITH_L2_0,
    assert_close,
    binary,
    fit,
    large,
    off_diagonal,
    over,
    twin,
    weighted,
    weights,
)

# What must not matter


@over(RECIPES)
def test_order_of_users_does_not_matter(recipe):
    X = binary()
    shuffled = np.random.default_rng(3).permutation(X)
    assert not np.array_equal(shuffled, X)
    assert_close(weights(recipe, shuffled), weights(recipe, X), rtol=1e-12)


@over(RECIPES)
def test_order_of_items_only_permutes_the_weights(recipe):
    order = np.random.default_rng(4).permutation(15)
    assert_close(weights(recipe, binary()[:, order]), weights(recipe, binary())[np.ix_(order, order)], rtol=1e-10)


@over(SETTINGS)
def test_every_user_twice_with_twice_the_l2_gives_the_same_weights(recipe):
    doubled = dataclasses.replace(recipe, l2=2 * recipe.l2)
    assert_close(weights(doubled, np.vstack([binary(), binary()])), weights(recipe, binary()), rtol=1e-10)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array, lambda X: X.astype(np.int64)])
def test_form_of_the_matrix_does_not_matter(form):
    assert np.array_equal(weights(gr.EASE(l2=2.0), form(binary())), weights(gr.EASE(l2=2.0), binary()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@over(RECIPES)
def test_fitting_twice_gives_the_same_bits(recipe, dtype):
    X = large(300, 600)
    assert np.array_equal(weights(recipe, X, dtype), weights(recipe, X, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_gram_serves_every_recipe_and_stays_as_it_was(dtype):
    X = large(200, 600)
    gram = gr.Gram.of(gr.Interactions.of(X), dtype)
    for recipe in [*RECIPES, RECIPES[0]]:
        assert np.array_equal(recipe.fit_gram(gram).weights(), weights(recipe, X, dtype))


# Scores


@over(RECIPES)
def test_scores_are_history_times_weights_and_not_the_transpose(recipe):
    events = gr.Interactions.of(binary())
    model = recipe.fit(events, dtype="float64")
    assert_close(model.scores(events), binary() @ twin(recipe, binary()))
    assert np.abs(model.scores(events) - binary() @ twin(recipe, binary()).T).max() > 0.01


@over(UNIVERSAL)
def test_new_users_are_scored_by_their_weighted_histories(recipe):
    model, strangers = fit(recipe, weighted()), weighted(n_users=7, seed=9)
    assert_close(model.scores(gr.Interactions.of(strangers)), strangers @ twin(recipe, weighted()))


@over(RECIPES)
def test_scores_of_a_large_catalog_are_history_times_weights(recipe):
    X = large(300, 1100)
    model = fit(recipe, X)
    assert_close(model.scores(gr.Interactions.of(X)), X @ model.weights())


@pytest.mark.parametrize("k", [1, 4, 15])
@over(RECIPES)
def test_recommendations_are_the_best_unseen_items(recipe, k):
    lists = naive.top_k(binary() @ twin(recipe, binary()), binary(), k)
    assert fit(recipe, binary()).recommend(range(40), k=k).items == lists


# Items nobody touched, users with nothing

EMPTY_ITEMS, EMPTY_USERS = [0, 7, 17], [0, 21, 42]


def with_gaps(X):
    """X with three empty columns and three empty rows put into it, first and last ones among them."""
    gaps = np.zeros((X.shape[0] + 3, X.shape[1] + 3))
    gaps[np.ix_(np.delete(np.arange(43), EMPTY_USERS), np.delete(np.arange(18), EMPTY_ITEMS))] = X
    return gaps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@over(SETTINGS)
def test_untouched_items_get_no_weight_and_change_no_other(recipe, dtype):
    assert len(WITH_L2_0) > 3  # the hard ones are among them
    W = weights(recipe, with_gaps(binary()), dtype)
    assert np.isfinite(W).all()
    assert not off_diagonal(W)[EMPTY_ITEMS].any()
    assert not off_diagonal(W)[:, EMPTY_ITEMS].any()
    rest = np.delete(np.delete(W, EMPTY_ITEMS, 0), EMPTY_ITEMS, 1)
    assert_close(rest, weights(recipe, binary(), dtype), rtol=1e-10 if dtype == "float64" else 1e-5)


@over(SETTINGS)
def test_users_with_nothing_score_zero(recipe):
    events = gr.Interactions.of(with_gaps(binary()))
    scores = recipe.fit(events, dtype="float64").scores(events)
    assert not scores[EMPTY_USERS].any()
    assert np.delete(scores, EMPTY_USERS, 0).any(axis=1).all()


# Hard and impossible problems


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(8, 20), (200, 600)])
@over([gr.EASE(0), gr.DLAE(0, 0), gr.EDLAE(0, 0), gr.DEQL(0, 0.5, 0), gr.DebiasedEASE(0.2, 0)])
def test_a_singular_problem_is_refused(recipe, shape, dtype):
    events = gr.Interactions.of(binary(*shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gr.errors.PrecisionWarning)
        with pytest.raises(gr.errors.Inaccurate):
            recipe.fit(events, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", range(0, -20, -1))
def test_twin_items_are_weighted_right_or_refused_however_small_l2(exponent, dtype):
    """k items with the same c users: by symmetry each off-diagonal weight is c / ((k − 1)c + l2)."""
    c, k, l2 = 50, 6, 10.0**exponent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gr.errors.PrecisionWarning)
        try:
            W = weights(gr.EASE(l2), np.ones((c, k)), dtype)
        except gr.errors.Inaccurate:
            assert exponent < -4  # easy enough in float64 up to here
            return
    assert_close(W, (1 - np.eye(k)) * c / ((k - 1) * c + l2), rtol=2e-3)


@over([gr.EASE(1e-5), gr.DLAE(0, 1e-5), gr.EDLAE(0, 1e-5), gr.DEQL(0, 0.5, 1e-5), gr.DebiasedEASE(0.2, 1e-5)])
def test_float32_gives_way_to_float64_where_it_would_be_wrong(recipe):
    X = binary(n_users=20, n_items=40)
    with pytest.warns(gr.errors.PrecisionWarning):
        W = weights(recipe, X, "float32")
    assert_close(W, twin(recipe, X), rtol=1e-3)


@over([gr.EASE(1e-5), gr.EDLAE(0, 1e-5)])
def test_float64_needs_no_warning_there(recipe):
    X = binary(n_users=20, n_items=40)
    assert_close(weights(recipe, X), twin(recipe, X), rtol=1e-6)


@pytest.mark.parametrize("n_unrelated", [0, 2000])
def test_unrelated_items_do_not_hide_a_badly_conditioned_corner(n_unrelated):
    """Items 0 and 1 are heavy twins; every unrelated item has one user of its own and must not change the corner."""
    corner = binary(n_users=60, n_items=4, seed=3)
    corner[:, 1] = corner[:, 0] = 128 * corner[:, 0]
    X = sp.block_diag([sp.csr_array(corner), sp.eye_array(n_unrelated)], format="csr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gr.errors.PrecisionWarning)
        W = weights(gr.EASE(l2=1.0), X, "float32")
    assert_close(W[2:4, :2], naive.ease(corner, 1.0)[2:, :2], rtol=0.01)


def test_unregularized_ease_of_enough_users_is_least_squares():
    assert_close(weights(gr.EASE(l2=0), weighted()), naive.ease(weighted(), 0))


def test_debiased_ease_refuses_weights():
    with pytest.raises(gr.errors.InvalidInput):
        fit(gr.DebiasedEASE(alpha=0.2, l2=1.0), weighted())


# Recipes

CLASSES = [gr.EASE, gr.DLAE, gr.EDLAE, gr.DEQL, gr.DebiasedEASE]
WRONG = {
    "l2": [-1.0, -1e-9, math.nan, math.inf, 10**400, "1", None],
    "dropout": [1.0, 1.5, -0.1, math.nan, math.inf, "0.5", None],
    "kept_weight": [-1.0, math.nan, math.inf, "1", None],
    "alpha": [1.0, 2.0, math.nan, math.inf, "0.5", None],
}


def wrong_parameters():
    for recipe in CLASSES:
        for field in dataclasses.fields(recipe):
            for value in WRONG.get(field.name, []):
                yield pytest.param(recipe, field.name, value, id=f"{recipe.__name__}-{field.name}-{value!r:.9}")


@pytest.mark.parametrize(("recipe", "name", "value"), list(wrong_parameters()))
def test_a_wrong_hyperparameter_is_refused_by_name(recipe, name, value):
    with pytest.raises(gr.errors.InvalidInput, match=name):
        recipe(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("a", value) for value in (0, -1, math.nan, math.inf, "1")],
        *[("b", value) for value in (-1, math.nan, math.inf, "1")],
        *[("p", value) for value in (1, 1.5, -0.1, math.nan, "0.3")],
        *[("lam", value) for value in (-1, math.nan, math.inf, "1")],
    ],
)
def test_a_wrong_paper_parameter_is_refused(name, value, refused):
    with refused(mentioning=f"{name}={value!r}"):
        gr.DEQL.from_paper(**({"a": 1, "b": 0.5, "p": 0.3, "lam": 1} | {name: value}))


@pytest.mark.parametrize(("a", "b", "p"), [(1, 0, 0), (1e200, 1, 0.3), (1, 1e200, 0.3), (1e-200, 0, 0.3), (1e-160, 0, 0.999)])
def test_paper_parameters_that_overflow_are_refused(a, b, p, refused):
    with refused(mentioning="above 0 and finite"):
        gr.DEQL.from_paper(a, b, p, lam=1)


@over(RECIPES)
def test_recipes_are_frozen(recipe):
    with pytest.raises(AttributeError):
        recipe.l2 = 4.0


@over(RECIPES)
def test_recipes_compare_and_hash_by_value(recipe):
    same, other = dataclasses.replace(recipe), dataclasses.replace(recipe, l2=4.0)
    assert recipe == same is not recipe
    assert hash(recipe) == hash(same)
    assert recipe != other
    assert len({*RECIPES, same, other}) == len(RECIPES) + 1
