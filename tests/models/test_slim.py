"""SLIM against coordinate descent written out, its optimality conditions, and EASE as its limit."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import elastic_net

rng = np.random.default_rng(0)
X = (rng.random((200, 40)) < rng.random(40) ** 1.5 * 0.6 + 0.05) * 1.0
X[:, 7] = 0
S = X.T @ X
EVENTS = gr.Interactions.of(X)


def naive(l1, l2, non_negative):
    n = len(S)
    w = np.zeros((n, n))
    for i in range(n):
        before = None
        while before is None or np.abs(w[:, i] - before).max() > 1e-12:
            before = w[:, i].copy()
            for j in set(range(n)) - {i}:
                correlation = S[j, i] - S[j] @ w[:, i] + S[j, j] * w[j, i]
                shrunk = max(correlation - l1, 0) if non_negative else np.sign(correlation) * max(abs(correlation) - l1, 0)
                w[j, i] = shrunk / (S[j, j] + l2) if shrunk else 0
    return w


@pytest.mark.parametrize("non_negative", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(3, 5), (0, 5), (8, 0)])
def test_equals_coordinate_descent(l1, l2, non_negative):
    model = gr.SLIM(l1, l2, non_negative).fit(EVENTS, dtype="float64")
    expected = naive(l1, l2, non_negative)
    np.testing.assert_allclose(model.weights(), expected, atol=2e-4)
    if l1:
        assert 0 < model.scorer.matrix.nnz < 40 * 39
        assert (model.weights() != 0).sum() == pytest.approx((expected != 0).sum(), abs=4)


def test_without_l1_and_with_negative_weights_it_is_ease():
    np.testing.assert_allclose(
        gr.SLIM(0, 5, non_negative=False).fit(EVENTS, dtype="float64").weights(),
        gr.EASE(5).fit(EVENTS, dtype="float64").weights(),
        atol=2e-4,
    )


@pytest.mark.parametrize("non_negative", [True, False])
def test_small_rounds_end_in_the_same_optimum(non_negative, monkeypatch):
    """Optimality: the gradient is l1 where w > 0 and at most l1 where w = 0, for all items and not only neighbours."""
    monkeypatch.setattr(elastic_net, "FIRST_ROUND_JOINS", 3)
    monkeypatch.setattr(elastic_net, "TARGETS_PER_BATCH", 33)
    events = clustered(500, 100, 8_000)
    l1, l2 = 4, 20
    w = gr.SLIM(l1, l2, non_negative).fit(events, dtype="float64").weights().astype(np.float64)
    gram = (events.matrix.T @ events.matrix).toarray().astype(np.float64)
    gradient = gram - gram @ w - l2 * w
    np.fill_diagonal(gradient, 0)
    slack = 2e-3 * np.sqrt(gram.diagonal()[:, None] + l2) * np.sqrt(gram.diagonal())
    assert (np.abs(gradient - l1 * np.sign(w))[w != 0] <= slack[w != 0]).all()
    assert ((gradient if non_negative else np.abs(gradient)) <= l1 + slack).all()
    assert (np.diag(w) == 0).all()
    assert not non_negative or (w >= 0).all()


def test_is_saved_loaded_asked_and_explained(tmp_path):
    model = gr.SLIM(3, 5).fit(EVENTS)
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model")
    assert again.recommend_for([[0, 3, 5]], k=5) == model.recommend_for([[0, 3, 5]], k=5)
    assert again.similar_items(3, k=3) == model.similar_items(3, k=3)
    np.testing.assert_allclose(model.scores(EVENTS), X @ model.weights(), rtol=1e-4, atol=1e-5)
    reasons = model.explain([0, 3, 5], 8)
    assert reasons.score == pytest.approx(float(model.weights()[[0, 3, 5], 8].sum()), abs=1e-5)
    with pytest.raises(gr.errors.NotSupported):
        model.factors()
