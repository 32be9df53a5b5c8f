"""SparseEDLAE against a ridge regression for each item, its optimality on the support, and EDLAE as its limit."""

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.neighbours import nearest_neighbours
from gramian.linalg.product import multiply_by_sparse

EVENTS = clustered(150, 40, 1_500)
X = EVENTS.matrix.toarray().astype(np.float64)


def naive_weights(x, dropout, l2, neighbours):
    s, n = (x**2).sum(0), x.shape[1]
    gram, penalty = x.T @ x, dropout / (1 - dropout) * s + l2
    w = np.zeros((n, n))
    for i in range(n):
        nearness = gram[i] / np.sqrt(s + penalty) / np.sqrt(s[i] + penalty[i])
        nearness[i] = 0
        support = [k for k in np.lexsort((np.arange(n), -nearness.round(12)))[:neighbours] if nearness[k] > 0]
        system = gram[np.ix_(support, support)] + np.diag(penalty[support])
        w[support, i] = np.linalg.solve(system, gram[support, i]) / (1 - dropout)
    return w


@pytest.mark.parametrize(("dropout", "l2", "neighbours"), [(0.3, 20, 7), (0, 5, 1), (0.8, 50, 15), (0.3, 0, 5)])
def test_it_is_a_ridge_regression_of_each_item_on_its_neighbours(dropout, l2, neighbours, two_threads):
    model = gr.SparseEDLAE(dropout, l2, neighbours).fit(EVENTS)
    assert np.allclose(model.weights(), naive_weights(X, dropout, l2, neighbours), atol=2e-5)


def test_weighted_interactions_count_with_their_weights():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2, X.shape) * X
    weights = gr.SparseEDLAE(0.2, 3, 10).fit(gr.Interactions.of(sp.csr_array(x))).weights()
    assert np.allclose(weights, naive_weights(x.astype(np.float32).astype(np.float64), 0.2, 3, 10), atol=2e-5)


def test_of_equal_neighbours_the_lower_columns_are_kept(two_threads):
    x = sp.csr_array((np.random.default_rng(0).random((30, 25)) < 0.3).astype(np.float32))
    shared = (x.T @ x).toarray()  # small whole numbers: many ties
    np.fill_diagonal(shared, 0)
    for k in (1, 4, 25):
        found = nearest_neighbours(x, np.ones(25), np.ones(25), 0.0, k).toarray()
        for i, row in enumerate(shared):
            kept = [j for j in np.lexsort((np.arange(25), -row))[:k] if row[j] > 0]
            expected = np.zeros(25)
            expected[kept] = row[kept]
            assert np.array_equal(found[i], expected)


def test_with_all_items_as_neighbours_it_is_edlae():
    x = sp.csr_array((np.random.default_rng(0).random((200, 12)) < 0.4).astype(np.float32))  # every pair shares a user
    events = gr.Interactions.of(x)
    for neighbours in (11, 500):
        sparse, dense = gr.SparseEDLAE(0.4, 10, neighbours).fit(events), gr.EDLAE(0.4, 10).fit(events)
        assert np.allclose(sparse.weights(), dense.weights(), atol=2e-5)


def test_more_neighbours_lower_the_loss_of_edlae():
    p, l2 = 0.4, 10
    penalty = p / (1 - p) * (X**2).sum(0) + l2

    def loss(neighbours):
        w = gr.SparseEDLAE(p, l2, neighbours).fit(EVENTS).weights() * (1 - p)
        return ((X - X @ w) ** 2).sum() + (penalty[:, None] * w**2).sum()

    losses = [loss(neighbours) for neighbours in (1, 3, 10, 30)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


def test_items_that_nobody_shares_have_no_weights():
    events = gr.Interactions.of(sp.csr_array(np.eye(5, dtype=np.float32)))
    assert gr.SparseEDLAE().fit(events).scorer.matrix.nnz == 0


def test_a_singular_system_is_refused_with_what_to_change():
    x = np.ones((5, 4), np.float32)  # four times the same column
    with pytest.raises(gr.errors.Inaccurate, match=r"pivot not above 0 for item 0.*Raise l2"):
        gr.SparseEDLAE(dropout=0, l2=0, neighbours=3).fit(gr.Interactions.of(sp.csr_array(x)), dtype="float64")


def test_scores_of_sparse_weights_are_products(monkeypatch):
    rng = np.random.default_rng(0)
    left, right = (
        sp.random_array(shape, density=0.2, format="csr", rng=rng, dtype=np.float32) for shape in ((9, 30), (30, 17))
    )
    assert np.allclose(multiply_by_sparse(left, right), (left @ right).toarray(), atol=1e-6)
    model = gr.SparseEDLAE(neighbours=5).fit(EVENTS)
    expected = model.top_k(EVENTS.matrix, 10)
    monkeypatch.setattr("gramian.models.scorers.SPARSE_SCORES", 7 * EVENTS.n_items)  # blocks of seven users
    assert np.array_equal(model.top_k(EVENTS.matrix, 10)[0], expected[0])
