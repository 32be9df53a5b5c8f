"""The inverse from the users' matrix against NumPy's, and the models that take it against their fits from the Gram."""

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.errors import Inaccurate
from gramian.linalg import inverse_by_users
from gramian.linalg.inverse_by_users import MAX_PENALTY_RATIO, MIN_ITEMS, by_users_bytes, invert_by_users, prefers_users
from gramian.linalg.sparse import squared_column_norms
from gramian.tuning.shared_fits import SharedFits

WIDE = (MIN_ITEMS // 8, MIN_ITEMS)  # users × items that prefer the users' matrix


def draw(n_users, n_items, seed=0):
    """A matrix with signed weights, an empty row and an empty column."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_users, n_items)) * (rng.random((n_users, n_items)) < 0.1)
    x[n_users // 2] = 0
    x[:, n_items // 3] = 0
    return sp.csr_array(x.astype(np.float32))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("shape", [(30, 50), (700, 1_100), (1, 70), (600, 64)])
def test_equals_the_inverse_of_the_items_matrix(monkeypatch, shape, dtype, tolerance):
    monkeypatch.setattr(inverse_by_users, "ITEMS_PER_CHUNK", 512)  # so that there are several
    x = draw(*shape)
    s, penalty = squared_column_norms(x), np.random.default_rng(1).uniform(1, 5, shape[1])
    dense = x.toarray().astype(np.float64)
    expected = np.linalg.inv(dense.T @ dense + np.diag(penalty))
    inverse = invert_by_users(x, s, penalty, dtype)
    assert inverse.dtype == dtype
    np.testing.assert_allclose(inverse.dense(), expected, atol=tolerance)


def test_refuses_an_inverse_that_rounding_spoils():
    x = draw(40, 60)
    x.data *= 1e4
    with pytest.raises(Inaccurate, match="Raise l2"):
        invert_by_users(x, squared_column_norms(x), np.full(60, 1e-3), np.float32)


def test_is_preferred_only_where_it_is_cheaper_accurate_and_fits(monkeypatch):
    x = draw(*WIDE)
    s = squared_column_norms(x)
    enough, too_small = np.full(len(s), s.max() / MAX_PENALTY_RATIO), np.full(len(s), s.max() / MAX_PENALTY_RATIO / 2)
    assert prefers_users(x, s, enough, np.float32)
    assert not prefers_users(x, s, too_small, np.float32)
    few_items, many_users = x[:, :-1], sp.csr_array(sp.vstack([x] * 8))
    assert not prefers_users(few_items, s[:-1], enough[:-1], np.float32)
    assert not prefers_users(many_users, s, enough, np.float32)
    monkeypatch.setattr(inverse_by_users, "available_bytes", lambda: by_users_bytes(x, np.float32) - 1)
    assert not prefers_users(x, s, enough, np.float32)


@pytest.fixture(scope="module")
def events():
    return clustered(WIDE[0], int(1.3 * WIDE[1]), 30_000)


@pytest.mark.parametrize(
    "recipe",
    [gr.EASE(l2=30), gr.DLAE(0.4, 20), gr.DEQL(0.5, 1.5, 10), gr.RDLAE(0.5, 0.2, 0), gr.DAN(0.3, 0, 10, 0.2, 0.1)],
    ids=lambda recipe: type(recipe).__name__,
)
def test_models_are_those_of_the_gram(recipe, events):
    assert not recipe.needs_dense_gram(events, np.float32)
    model = recipe.fit(events)
    from_gram = recipe.fit_gram(gr.Gram.of(events, **recipe.gram_powers._asdict()))
    np.testing.assert_allclose(model.weights(), from_gram.weights(), atol=2e-5)
    assert recipe.residual(model.scorer, events) < 1e-4


def test_updates_start_from_it_as_from_any_inverse(events):
    recipe, rows = gr.EDLAE(0.3, 20), np.arange(events.n_users)
    known = events.take(rows[:-2])
    assert not recipe.needs_dense_gram(known, np.float32)
    updated = recipe.fit(known).add_users(events.take(rows[-2:]))
    np.testing.assert_allclose(updated.weights(), recipe.fit(events).weights(), atol=2e-5)


def test_a_search_ranks_with_it_as_with_a_fit(events):
    recipes = [gr.EDLAE(0.4, 20), gr.DLAE(0.4, 20), gr.DEQL(0.4, 2, 20), gr.DAN(0.3, 0, 10, 0.2, 0.1)]
    lists = {}
    for fit in SharedFits(events, np.float32, events.n_users).fit(recipes):
        columns = fit.rank(events.matrix, events.catalog, 10)
        lists |= dict(zip(fit.recipes, columns, strict=True))
    for recipe in recipes:
        model = recipe.fit_gram(gr.Gram.of(events, **recipe.gram_powers._asdict()))
        expected = events.catalog.ids.positions([i for row in model.recommend_for(events, k=10).items for i in row])
        assert (lists[recipe].ravel() == expected).mean() > 0.99  # near ties may be in another order


def test_leaves_binary_models_to_binary_data(events):
    weighted = events.with_weights("log") if not events.is_binary else gr.Interactions.of(2 * events.matrix)
    with pytest.raises(gr.errors.InvalidInput, match="0/1"):
        gr.DAN().fit(weighted)
