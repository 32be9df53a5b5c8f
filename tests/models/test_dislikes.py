"""Models that take dislikes: EASE with a signed X, and zero-target entries in weighted factorizations."""

import numpy as np
import pytest

import gramian as gr
import naive

SOLVERS = [gr.Cholesky(), gr.ConjugateGradient(steps=8), gr.Subspace(size=2)]


def signed(n_users=40, n_items=14, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.choice([-1.0, 0.0, 1.0], (n_users, n_items), p=[0.1, 0.5, 0.4])
    x[:, 0] = 1
    return x


def events_of(x):
    return gr.Interactions.of(x, signed=True)


def test_ease_of_a_signed_matrix_is_the_regression_on_it():
    x = signed()
    np.testing.assert_allclose(
        gr.EASE(l2=3).fit(events_of(x), dtype="float64").weights(), naive.ease(x, 3), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(
        gr.EDLAE(dropout=0.3, l2=3).fit(events_of(x), dtype="float64").weights(), naive.edlae(x, 0.3, 3), rtol=1e-8, atol=1e-10
    )


def user_vector(q, row, weight_of, all_weight, ridge):
    """argmin Σ_i weight (target − p·q_i)² + all_weight Σ_i (p·q_i)² + ridge ‖p‖², dislikes with the target 0."""
    system, right = all_weight * q.T @ q + ridge * np.eye(q.shape[1]), np.zeros(q.shape[1])
    for i in np.flatnonzero(row):
        system += weight_of * abs(row[i]) * np.outer(q[i], q[i])
        right += (weight_of if all_weight != 1 else 1 + weight_of) * max(row[i], 0) * q[i]
    return np.linalg.solve(system, right)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_a_dislike_is_an_entry_with_the_target_0(solver):
    x = signed()
    events = events_of(x)
    ials = gr.IALS(rank=3, unobserved_weight=0.2, l2=0.02, n_epochs=30, solver=solver).fit(events, dtype="float64")
    wrmf = gr.WRMF(rank=3, positive_weight=4, l2=2, n_epochs=30, solver=solver).fit(events, dtype="float64")
    for u in range(5):
        q, row = ials.factors()[1], x[u]
        p = user_vector(q, row, 1, 0.2, 0.02 * (np.abs(row).sum() + 0.2 * len(row)))
        np.testing.assert_allclose(ials.scores(events)[u], q @ p, rtol=1e-6, atol=1e-8)
        q = wrmf.factors()[1]
        np.testing.assert_allclose(wrmf.scores(events)[u], q @ user_vector(q, row, 4, 1, 2), rtol=1e-6, atol=1e-8)


def loss(x, p, q, recipe):
    """The objective of IALS on signed data, term by term."""
    a, total = recipe.unobserved_weight, 0.0
    for u, i in zip(*np.nonzero(x), strict=True):
        total += abs(x[u, i]) * ((x[u, i] > 0) - p[u] @ q[i]) ** 2
    total += a * ((p @ q.T) ** 2).sum()
    total += recipe.l2 * ((np.abs(x).sum(axis=1) + a * x.shape[1]) * (p**2).sum(axis=1)).sum()
    return total + recipe.l2 * ((np.abs(x).sum(axis=0) + a * x.shape[0]) * (q**2).sum(axis=1)).sum()


def test_the_objective_is_that_of_the_definition():
    x, recipe = signed(), gr.IALS(rank=3, unobserved_weight=0.2, l2=0.02, n_epochs=40, solver=gr.Cholesky())
    *_, last = recipe.epochs(events_of(x), dtype="float64")
    q = last.model.factors()[1]
    p = np.array([user_vector(q, row, 1, 0.2, 0.02 * (np.abs(row).sum() + 0.2 * x.shape[1])) for row in x])
    assert last.objective == pytest.approx(loss(x, p, q, recipe), rel=1e-3)


def test_without_dislikes_nothing_changes():
    x = np.abs(signed())
    for recipe in (gr.EASE(l2=3), gr.IALS(rank=3), gr.WRMF(rank=3)):
        plain, with_signs = recipe.fit(gr.Interactions.of(x)), recipe.fit(events_of(x))
        np.testing.assert_array_equal(plain.scores(events_of(x)), with_signs.scores(events_of(x)))


@pytest.mark.parametrize("recipe", [gr.EASE(l2=20), gr.EDLAE(l2=20), gr.IALS(rank=2), gr.WRMF(rank=2)], ids=str)
def test_a_disliked_neighbour_speaks_against_an_item(recipe, tmp_path):
    """Two groups: who likes items 0 to 3 dislikes 4 to 7, and the other way round."""
    rng = np.random.default_rng(0)
    side = np.repeat([[1] * 4 + [-1] * 4, [-1] * 4 + [1] * 4], 20, axis=0)
    model = recipe.fit(events_of(side * (rng.random(side.shape) < 0.7)))
    ranked = model.recommend_for([{0: 1.0, 4: -1.0}], k=8)
    scores = dict(zip(ranked.items[0], ranked.scores[0], strict=True))
    assert set(scores) == {1, 2, 3, 5, 6, 7}  # what is disliked counts as seen
    assert sum(scores[item] for item in (1, 2, 3)) > sum(scores[item] for item in (5, 6, 7))
    why = model.explain({0: 1.0, 4: -1.0}, 1)
    assert set(why) == {0, 4}
    model.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.histories.has_dislikes
    user = model.users[0]
    assert loaded.history(user) == model.history(user)
    assert loaded.recommend([user], k=3).items == model.recommend([user], k=3).items


def test_only_a_model_that_takes_dislikes_takes_them_in_a_history(refused):
    x = np.abs(signed())
    with refused(mentioning="above 0"):
        gr.ItemKNN().fit(gr.Interactions.of(x)).recommend_for([{0: -1.0}])
    with refused(mentioning="not 0"):
        gr.EASE().fit(gr.Interactions.of(x)).recommend_for([{0: 0.0}])


def test_updates_are_exact_with_dislikes():
    x = signed(60)
    model = gr.EASE(l2=5).fit(events_of(x[:55]), dtype="float64")
    later = events_of(np.vstack([np.zeros((55, x.shape[1])), x[55:]])).take(np.arange(55, 60))
    added = model.add_users(later)
    np.testing.assert_allclose(added.weights(), naive.ease(x, 5), rtol=1e-6, atol=1e-8)
