"""The full-rank closed forms with their parameters, small data, and their naive twins."""

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
