"""The full-rank closed forms against naive twins, their objectives and their limits."""

import dataclasses

import numpy as np
import pytest

import gramian as gr
import naive
from models.full_rank_cases import (
    RECIPES,
    SETTINGS,
    UNIVERSAL,
    WITH_L2_0,
    assert_close,
    assert_zero_diagonal,
    binary,
    fit,
    large,
    off_diagonal,
    over,
    penalty,
    twin,
    weighted,
    weights,
)

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


@pytest.mark.parametrize("t", [0.01, 3.0])
@pytest.mark.parametrize("b", [0.0, 0.5, 2.0])
def test_deql_from_paper_does_not_see_the_scale_of_the_loss(t, b):
    scaled, plain = gr.DEQL.from_paper(t, t * b, 0.3, t**2 * 2), gr.DEQL.from_paper(1, b, 0.3, 2)
    assert_close(weights(scaled, binary()), weights(plain, binary()), rtol=1e-10)


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
