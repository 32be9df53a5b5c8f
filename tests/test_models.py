"""The full-rank closed forms against naive twins, their objectives, their limits and their invariances."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
import naive

RECIPES = [
    gr.EASE(l2=3.0),
    gr.DLAE(dropout=0.3, l2=3.0),
    gr.EDLAE(dropout=0.3, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=0.5, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=0.5, l2=3.0, zero_diagonal=True),
    gr.DebiasedEASE(alpha=0.3, l2=3.0),
]
SETTINGS = [
    *RECIPES,
    gr.EASE(l2=0.01),
    gr.EASE(l2=500.0),
    gr.DLAE(dropout=0.0, l2=1.0),
    gr.DLAE(dropout=0.9, l2=0.5),
    gr.DLAE(dropout=0.2, l2=0.0),
    gr.EDLAE(dropout=0.9, l2=0.5),
    gr.EDLAE(dropout=0.2, l2=0.0),
    gr.DEQL(dropout=0.3, kept_weight=0.0, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=0.0, l2=0.0),
    gr.DEQL(dropout=0.3, kept_weight=0.01, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=1.0, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=2.0, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=5.0, l2=3.0),
    gr.DEQL(dropout=0.3, kept_weight=2.0, l2=3.0, zero_diagonal=True),
    gr.DEQL(dropout=0.8, kept_weight=0.7, l2=0.0),
    gr.DEQL(dropout=0.8, kept_weight=5.0, l2=0.0),
    gr.DEQL(dropout=0.8, kept_weight=0.7, l2=0.0, zero_diagonal=True),
    gr.DEQL(dropout=0.0, kept_weight=0.7, l2=2.0),
    gr.DEQL(dropout=0.0, kept_weight=0.7, l2=2.0, zero_diagonal=True),
    gr.RDLAE(dropout=0.3, max_diagonal=0.0, l2=3.0),
    gr.RDLAE(dropout=0.3, max_diagonal=0.3, l2=3.0),
    gr.RDLAE(dropout=0.6, max_diagonal=0.5, l2=0.0),
    gr.RDLAE(dropout=0.0, max_diagonal=0.6, l2=2.0),
    gr.RDLAE(dropout=0.3, max_diagonal=1.0, l2=3.0),
    gr.DebiasedEASE(alpha=0.0, l2=1.0),
    gr.DebiasedEASE(alpha=0.9, l2=10.0),
]
WITH_L2_0 = [recipe for recipe in SETTINGS if recipe.l2 == 0]
UNIVERSAL = [recipe for recipe in SETTINGS if not isinstance(recipe, gr.DebiasedEASE)]  # these accept weights too


def over(recipes):
    return pytest.mark.parametrize("recipe", recipes, ids=repr)


def binary(n_users=40, n_items=15, seed=0):
    """0/1, popular items first, no empty row and no empty column."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n_users, n_items)) < np.linspace(0.6, 0.1, n_items)).astype(float)
    X[rng.integers(n_users, size=n_items), np.arange(n_items)] = 1
    X[np.arange(n_users), rng.integers(n_items, size=n_users)] = 1
    return X


def weighted(n_users=40, n_items=15, seed=0):
    """The same with values 0.5, 1, ..., 4, exact in float32."""
    return binary(n_users, n_items, seed) * np.random.default_rng(seed + 1).integers(1, 9, (n_users, n_items)) / 2


def large(n_users, n_items, seed=0):
    """Sparse 0/1 with every item touched."""
    X = sp.random_array((n_users, n_items), density=0.02, rng=np.random.default_rng(seed)).toarray()
    X[np.arange(n_items) % n_users, np.arange(n_items)] = 1
    return (X > 0).astype(float)


def fit(recipe, X, dtype="float64"):
    return recipe.fit(gr.Interactions.of(X), dtype=dtype)


def weights(recipe, X, dtype="float64"):
    return fit(recipe, X, dtype).weights()


def penalty(recipe):
    """The DEQL paper's λ of a DEQL recipe: l2 is λ' = λ / (q²(p + q·b²)) with a = 1."""
    q = 1 - recipe.dropout
    return recipe.l2 * q**2 * (recipe.dropout + q * recipe.kept_weight**2)


def twin(recipe, X, columns=None):
    """W of this recipe, naively."""
    match recipe:
        case gr.EASE():
            return naive.ease(X, recipe.l2, columns)
        case gr.DLAE():
            return naive.dlae(X, recipe.dropout, recipe.l2, columns)
        case gr.EDLAE():
            return naive.edlae(X, recipe.dropout, recipe.l2, columns)
        case gr.DEQL():
            lam = penalty(recipe)
            return naive.deql(X, 1, recipe.kept_weight, recipe.dropout, lam, recipe.zero_diagonal, columns)
        case gr.RDLAE():
            return naive.rdlae(X, recipe.dropout, recipe.max_diagonal, recipe.l2, columns)
        case gr.DebiasedEASE():
            return naive.debiased_ease(X, recipe.alpha, recipe.l2, columns)
    raise AssertionError(recipe)


def assert_close(actual, expected, rtol=1e-8):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def off_diagonal(matrix):
    return matrix - np.diag(np.diag(matrix))


def assert_zero_diagonal(W):
    """Zero up to rounding: a diagonal entry is 1 − 1, or 1/q − 1/q."""
    assert np.abs(np.diag(W)).max() < 1e-14


# Each model is what its definition says


@over(SETTINGS)
def test_binary_weights_equal_the_naive_twin(recipe):
    assert_close(weights(recipe, binary()), twin(recipe, binary()))


@over(UNIVERSAL)
def test_weighted_weights_equal_the_naive_twin(recipe):
    assert_close(weights(recipe, weighted()), twin(recipe, weighted()))


@over([recipe for recipe in SETTINGS if recipe.l2 > 0])
def test_more_items_than_users_equals_the_naive_twin(recipe):
    X = binary(n_users=8, n_items=20)
    assert_close(weights(recipe, X), twin(recipe, X))


@over(WITH_L2_0)
def test_dropout_alone_regularizes_more_items_than_users(recipe):
    X = binary(n_users=8, n_items=20)
    assert_close(weights(recipe, X), twin(recipe, X))


@over(SETTINGS)
def test_float32_is_close_to_the_naive_twin(recipe):
    W = weights(recipe, binary(), "float32")
    assert W.dtype == np.float32
    assert_close(W, twin(recipe, binary()), rtol=1e-3)


@pytest.mark.parametrize("n_items", [512, 513, 1100])
@over(RECIPES)
def test_catalogs_around_and_beyond_one_storage_block_equal_the_naive_twin(recipe, n_items):
    X = large(300, n_items)
    columns = [0, n_items // 2, 511, n_items - 1]
    assert_close(weights(recipe, X)[:, columns], twin(recipe, X, columns))


@pytest.mark.parametrize("n_items", [600, 1100])
@over([recipe for recipe in RECIPES if isinstance(recipe, gr.EASE | gr.DLAE | gr.EDLAE)])
def test_every_column_of_a_large_catalog_solves_the_normal_equations(recipe, n_items):
    """Paper 001, cases 5–7: min ‖X − XV‖² + ‖Λ^½ V‖², diag(V) = 0 but for DLAE; W = V, but V / q for EDLAE."""
    X, W = large(300, n_items), weights(recipe, large(300, n_items))
    p = getattr(recipe, "dropout", 0.0)
    V = W * (1 - p) if isinstance(recipe, gr.EDLAE) else W
    S = X.T @ X
    gradient = S @ V - S + (p / (1 - p) * np.diag(S) + recipe.l2)[:, None] * V
    if not isinstance(recipe, gr.DLAE):
        assert_zero_diagonal(W)
        gradient = off_diagonal(gradient)
    assert np.abs(gradient).max() < 1e-10 * S.max()


def test_two_items_by_hand():
    """Ten users have item 0 alone, two have both: item 1 predicts item 0 well, and not the reverse."""
    X = np.array([[1, 0]] * 10 + [[1, 1]] * 2)
    assert_close(weights(gr.EASE(l2=2.0), X), np.array([[0, 2 / (12 + 2)], [2 / (2 + 2), 0]]))
    # with dropout 1/2 a diagonal entry of S counts twice, and EDLAE divides by q
    assert_close(weights(gr.EDLAE(dropout=0.5, l2=2.0), X), np.array([[0, 2 * 2 / (24 + 2)], [2 * 2 / (4 + 2), 0]]))


# Each model is the minimum of its objective


def objective(recipe, X, W):
    """What each recipe minimises over W. Expectations go through every possible dropout mask."""
    p = getattr(recipe, "dropout", 0.0)
    match recipe:
        case gr.EASE():
            return np.sum((X - X @ W) ** 2) + recipe.l2 * np.sum(W**2)
        case gr.DLAE() | gr.RDLAE():
            return naive.enumerated_loss(X, W / (1 - p), 1, 1, p) + recipe.l2 * np.sum(W**2)
        case gr.EDLAE():
            return naive.enumerated_loss(X, W, 1, 0, p) + recipe.l2 * (1 - p) ** 2 * p * np.sum(W**2)
        case gr.DEQL():
            return naive.enumerated_loss(X, W, 1, recipe.kept_weight, p) + penalty(recipe) * np.sum(W**2)
        case gr.DebiasedEASE():
            fit_loss = np.sum((X - X @ W) ** 2) - recipe.alpha * np.sum((X @ W) ** 2)
            return fit_loss + recipe.l2 * np.sum(W**2)
    raise AssertionError(recipe)


def has_zero_diagonal(recipe):
    if isinstance(recipe, gr.RDLAE):
        return recipe.max_diagonal == 0
    return not isinstance(recipe, gr.DLAE) and getattr(recipe, "zero_diagonal", True)


@over(SETTINGS)
def test_gradient_of_the_objective_is_zero_in_every_free_entry(recipe):
    """The objective is quadratic, so a central difference of any width is its exact derivative."""
    X = binary(n_users=12, n_items=5)
    W = weights(recipe, X)
    lowest = objective(recipe, X, W)
    if has_zero_diagonal(recipe):
        assert_zero_diagonal(W)
    for k, i in np.ndindex(*W.shape):
        if k == i and (has_zero_diagonal(recipe) or getattr(recipe, "kept_weight", 1) == 0):
            continue  # fixed, or (DEQL that ignores kept entries) without influence
        if k == i and isinstance(recipe, gr.RDLAE) and W[i, i] > recipe.max_diagonal - 1e-9:
            continue  # at its bound, which is active
        step = np.zeros_like(W)
        step[k, i] = 1
        up, down = objective(recipe, X, W + step), objective(recipe, X, W - step)
        assert up > lowest < down
        assert abs(up - down) < 1e-9 * (up + down - 2 * lowest)


@over([recipe for recipe in SETTINGS if isinstance(recipe, gr.RDLAE)])
def test_the_diagonal_of_rdlae_stays_below_its_bound_and_reaches_it_where_dlae_exceeds_it(recipe):
    W, dlae = weights(recipe, binary()), weights(gr.DLAE(recipe.dropout, recipe.l2), binary())
    np.testing.assert_allclose(np.diag(W), np.minimum(np.diag(dlae), recipe.max_diagonal), atol=1e-12)


@over([recipe for recipe in SETTINGS if isinstance(recipe, gr.DEQL)])
def test_no_perturbation_lowers_the_expected_loss_of_deql(recipe):
    """The expected loss of the paper's Eq. 11, from H and v."""
    X, rng = weighted(), np.random.default_rng(1)

    def loss(W):
        return naive.deql_loss(X, W, 1, recipe.kept_weight, recipe.dropout) + penalty(recipe) * np.sum(W**2)

    W = weights(recipe, X)
    for size in (1e-3, 1e-2, 1.0):
        change = size * rng.standard_normal(W.shape)
        if recipe.zero_diagonal:
            change = off_diagonal(change)
        assert loss(W + change) > loss(W) < loss(W - change)


@pytest.mark.parametrize(("a", "b", "p"), [(1, 0, 0.3), (1, 0.5, 0.3), (1, 1, 0.6), (1, 3, 0.6), (2, 0.1, 0.0)])
def test_the_oracle_itself_lemma_3_2_is_the_enumerated_expectation(a, b, p):
    X, W = weighted(n_users=6, n_items=5), np.random.default_rng(2).standard_normal((5, 5))
    assert_close(naive.deql_loss(X, W, a, b, p), naive.enumerated_loss(X, W, a, b, p), rtol=1e-12)


# Each model contains the others as limits


@pytest.mark.parametrize("l2", [0.5, 50.0])
def test_edlae_without_dropout_is_ease(l2):
    assert_close(weights(gr.EDLAE(dropout=0.0, l2=l2), weighted()), weights(gr.EASE(l2=l2), weighted()), rtol=1e-12)


@pytest.mark.parametrize("l2", [0.0, 2.0])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("zero_diagonal", [False, True])
def test_deql_ignoring_kept_entries_is_edlae(dropout, l2, zero_diagonal):
    W = weights(gr.DEQL(dropout, 0.0, l2, zero_diagonal), weighted())
    assert_close(W, weights(gr.EDLAE(dropout, l2), weighted()), rtol=1e-12)


def test_deql_is_continuous_where_kept_weight_goes_to_zero():
    limit, near = (weights(gr.DEQL(0.3, kept, 2.0), weighted()) for kept in (0.0, 1e-5))
    assert_close(off_diagonal(near), off_diagonal(limit), rtol=1e-7)


@pytest.mark.parametrize(("dropout", "l2"), [(0.0, 2.0), (0.1, 2.0), (0.5, 0.0), (0.5, 20.0)])
def test_deql_weighing_kept_entries_like_dropped_ones_is_dlae_over_q(dropout, l2):
    W = weights(gr.DEQL(dropout, 1.0, l2), weighted())
    assert_close(W * (1 - dropout), weights(gr.DLAE(dropout, l2), weighted()), rtol=1e-10)


@pytest.mark.parametrize("kept_weight", [0.0, 0.1, 1.0, 2.0, 5.0])
@pytest.mark.parametrize(("dropout", "l2"), [(0.0, 2.0), (0.4, 0.0), (0.4, 2.0)])
def test_deql_with_a_zero_diagonal_is_edlae_for_every_kept_weight(dropout, kept_weight, l2):
    W = weights(gr.DEQL(dropout, kept_weight, l2, zero_diagonal=True), weighted())
    assert_close(W, weights(gr.EDLAE(dropout, l2), weighted()), rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.9])
def test_debiased_ease_is_ease_rescaled(alpha):
    W = weights(gr.EASE(l2=3.0 / (1 - alpha)), binary()) / (1 - alpha)
    assert_close(weights(gr.DebiasedEASE(alpha=alpha, l2=3.0), binary()), W, rtol=1e-12)


@over(RECIPES)
def test_a_huge_l2_leaves_the_gram_matrix_over_l2(recipe):
    X, recipe = binary(), dataclasses.replace(recipe, l2=1e9)
    W = weights(recipe, X)
    assert np.abs(W).max() < 1e-7
    scale = 1 / (1 - recipe.dropout) if isinstance(recipe, gr.EDLAE | gr.DEQL) else 1
    assert_close(off_diagonal(W) * 1e9, off_diagonal(X.T @ X) * scale, rtol=1e-6)


# The paper's parameters of DEQL


@pytest.mark.parametrize("zero_diagonal", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "p", "lam"),
    [(1, 0, 0.3, 2), (1, 0.5, 0.3, 2), (2, 0.5, 0.3, 2), (0.5, 2, 0.6, 1), (3, 3, 0.2, 0), (1, 0.5, 0.0, 2)],
)
def test_deql_from_paper_equals_the_papers_systems(a, b, p, lam, zero_diagonal):
    recipe = gr.DEQL.from_paper(a, b, p, lam, zero_diagonal)
    assert_close(weights(recipe, weighted()), naive.deql(weighted(), a, b, p, lam, zero_diagonal))


@pytest.mark.parametrize("zero_diagonal", [False, True])
@pytest.mark.parametrize(("a", "b", "p", "lam"), [(1, 0.5, 0.3, 2), (2, 0.5, 0.3, 0), (0.5, 2, 0.6, 1), (3, 3, 0.2, 0)])
def test_one_inverse_gives_what_millers_algorithm_gives(a, b, p, lam, zero_diagonal):
    """Section 4 of the DEQL paper, which spends two more products of n × n matrices."""
    W = naive.miller_deql(weighted(), a, b, p, lam, zero_diagonal)
    assert_close(W, naive.deql(weighted(), a, b, p, lam, zero_diagonal), rtol=1e-7)
    assert_close(weights(gr.DEQL.from_paper(a, b, p, lam, zero_diagonal), weighted()), W, rtol=1e-7)


@pytest.mark.parametrize(("a", "b"), [(1, 0.01), (1, 1), (1, 2), (1, 100), (0.001, 1)])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.9])
def test_the_systems_of_deql_are_definite_for_b_above_a_too(a, b, p):
    """Theorem 3.3 of the DEQL paper without its condition a ≥ b: H ≥ min(a, b)²·(q²S + qp·diag(s))."""
    X, q = binary(n_users=8, n_items=20), 1 - p
    S = X.T @ X
    bound = min(a, b) ** 2 * (q**2 * S + q * p * np.diag(np.diag(S)))
    for i in range(20):
        H = naive.deql_system(X, a, b, p, i)[0]
        np.linalg.cholesky(H)
        assert np.linalg.eigvalsh(H - bound)[0] > -1e-12 * np.abs(H).max()


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kept_weight", [1e-3, 0.5, 2, 100, 1e6])
def test_the_denominator_of_deql_stays_positive_even_for_twin_items(dropout, kept_weight):
    X = binary()
    X[:, 1:6] = X[:, :1]
    recipe = gr.DEQL(dropout, kept_weight, 0)
    p_ii = fit(recipe, X).scorer.inverse.diagonal()
    assert recipe.coefficients.denominator(p_ii, np.diag(X.T @ X)).min() > 1e-3 * recipe.coefficients.n


def test_a_denominator_that_is_not_positive_is_refused(refused):
    coefficients = gr.DEQL(0.3, 5, 1).coefficients
    s = np.array([10.0, 3])
    with refused(gr.errors.Inaccurate, "positive definite"):
        coefficients.require_definite(np.array([0.05, 9]), s)  # P_ii of no inverse: it is at most 1/Λ


@pytest.mark.parametrize("t", [0.01, 3.0])
@pytest.mark.parametrize("b", [0.0, 0.5, 2.0])
def test_deql_from_paper_does_not_see_the_scale_of_the_loss(t, b):
    scaled, plain = gr.DEQL.from_paper(t, t * b, 0.3, t**2 * 2), gr.DEQL.from_paper(1, b, 0.3, 2)
    assert_close(weights(scaled, binary()), weights(plain, binary()), rtol=1e-10)


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
