"""Factor models: every loss written out in full, half steps at their least, closed forms and the papers' equivalences."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import gramian as gr
from gramian.core.epochs import TrainingState
from gramian.data.ids import Index
from gramian.linalg.row_solvers import (
    FixedSide,
    RowProblems,
    solve_cholesky,
    solve_conjugate_gradient,
    solve_shared,
    solve_subspaces,
)
from gramian.linalg.threads import limit_threads
from gramian.models.als import AlternatingRecipe
from models.factor_cases import CASES, EVENTS, SIZES, SOLVERS, WEIGHTS, M, N, X, ranking, states


def with_solvers():
    for recipe, value in CASES:
        for solver in SOLVERS if isinstance(recipe, AlternatingRecipe) else [None]:
            yield pytest.param(replace(recipe, solver=solver) if solver else recipe, value, id=f"{recipe} {solver}")


@pytest.mark.parametrize(("recipe", "value"), list(with_solvers()))
def test_the_objective_is_the_loss_written_out_and_falls(recipe, value):
    found = states(recipe, 6)
    if isinstance(recipe, gr.RGX) and recipe.form == "exact":
        found = found[1:]  # the items' half step counts on scores that sum to 0, as they do after the first
    for state in found:
        assert state.objective == pytest.approx(value(recipe, X, state.users, state.items), rel=1e-9)
    for before, after in pairwise(found):
        assert after.objective < before.objective


def slope(f, at, towards, far=1e-5):
    return (f(at + far * towards) - f(at - far * towards)) / (2 * far)


@pytest.mark.parametrize(("recipe", "value"), [case for case in CASES if isinstance(case[0], AlternatingRecipe)])
def test_each_half_step_is_stationary(recipe, value):
    recipe = replace(recipe, solver=gr.Cholesky())
    state = states(recipe, 3)[-1]
    model = recipe.to_scorer(EVENTS, state)
    folded, items = model.user_vectors(EVENTS.matrix), model.fixed.factors
    typical = abs(slope(lambda p: value(recipe, X, p, items), folded + 0.1, np.ones_like(folded)))
    rng = np.random.default_rng(7)
    for _ in range(5):
        towards = rng.standard_normal(state.items.shape)
        towards_users = rng.standard_normal(folded.shape)
        assert abs(slope(lambda q: value(recipe, X, state.users, q), state.items, towards)) < 1e-6 * typical
        assert abs(slope(lambda p: value(recipe, X, p, items), folded, towards_users)) < 1e-6 * typical


@pytest.mark.parametrize("recipe", [case[0] for case in CASES if not isinstance(case[0], gr.RG2NewtonCG)], ids=str)
def test_a_row_is_the_solution_of_its_system_for_all_solvers(recipe):
    rank = 9
    q = np.random.default_rng(7).standard_normal((N, rank))
    loss = recipe.row_loss(N)
    numbers = loss.row_coefficients(SIZES)
    gram, total = q.T @ q, q.sum(axis=0)
    fixed, basis = FixedSide.of(q, gram, total)
    rows = RowProblems(EVENTS.matrix, numbers, np.ones((N, 2)))
    naive = np.empty((M, rank))
    for u in range(M):
        shared, own, pull, rest, ridge = numbers[u]
        mine = q[X[u] > 0]
        naive[u] = np.linalg.solve(
            shared * gram + own * mine.T @ mine + ridge * np.eye(rank), pull * mine.sum(axis=0) + rest * total
        )
    ways = [solve_cholesky, lambda *a: solve_conjugate_gradient(*a, 40), lambda *a: solve_subspaces(*a, 9)] + (
        [solve_shared] if rows.is_shared else []
    )
    for solve in ways:
        found = np.zeros((M, rank))
        values = solve(rows, fixed, found)
        np.testing.assert_allclose(found, naive @ basis, atol=1e-7 * np.abs(naive).max())
        quadratic = [
            numbers[u, 0] * p @ gram @ p
            + numbers[u, 1] * ((q[X[u] > 0] @ p) ** 2).sum()
            + numbers[u, 4] * p @ p
            - 2 * p @ (numbers[u, 2] * q[X[u] > 0].sum(axis=0) + numbers[u, 3] * total)
            for u, p in enumerate(naive)
        ]
        np.testing.assert_allclose(values, quadratic, rtol=1e-7, atol=1e-7 * np.abs(quadratic).max())


@pytest.mark.parametrize("rank", [3, 12, 29])  # below and above the length of most rows: both kinds of system
def test_solvers_agree_on_rows_of_any_length(rank):
    recipe = gr.IALS(rank=rank, unobserved_weight=0.2, l2=0.05, solver=gr.Cholesky())
    one = states(recipe, 1)[0]
    for solver in (gr.ConjugateGradient(steps=60), gr.Subspace(size=rank)):
        other = states(replace(recipe, solver=solver), 1)[0]
        np.testing.assert_allclose(other.users @ other.items.T, one.users @ one.items.T, atol=1e-8)


def test_rows_are_the_same_bits_on_any_number_of_threads():
    q = np.random.default_rng(7).standard_normal((N, 8)).astype(np.float32)
    fixed, _ = FixedSide.of(q, q.T @ q, q.sum(axis=0))
    rows = RowProblems(EVENTS.matrix, gr.IALS().row_loss(N).row_coefficients(SIZES), np.ones((N, 2), np.float32))
    for solve in (solve_cholesky, lambda *a: solve_conjugate_gradient(*a, 2), lambda *a: solve_subspaces(*a, 3)):
        found = []
        for n_threads in (1, 2):
            out = np.zeros((M, 8), np.float32)
            with limit_threads(n_threads):
                solve(rows, fixed, out)
            found.append(out)
        assert np.array_equal(*found)


def test_a_system_that_has_no_least_is_refused(refused):
    q = np.eye(N, 4)
    fixed, _ = FixedSide.of(q, q.T @ q, q.sum(axis=0))
    numbers = np.tile([-1.0, 0.5, 1, 1, 0.1], (M, 1))
    for solve in (solve_cholesky, lambda *a: solve_conjugate_gradient(*a, 30), lambda *a: solve_subspaces(*a, 2), solve_shared):
        values = solve(RowProblems(EVENTS.matrix, numbers, np.ones((N, 2))), fixed, np.zeros((M, 4)))
        assert np.isnan(values).any()
    with pytest.warns(gr.errors.PrecisionWarning), refused(gr.errors.Inaccurate, "Raise l2, to 30, say"):
        gr.WRMF(rank=8, l2=0, solver=gr.Cholesky()).fit(gr.Interactions.of(np.tile(np.eye(2, 20, 1) + np.eye(2, 20), (9, 1))))


# RG2 in closed form


def rg2_twin(x, rank, l2):
    """Scores of the training users by the dense SVD of T'."""
    s, n = x.sum(axis=1, keepdims=True), x.shape[1]
    u, sigma, vt = np.linalg.svd(np.sqrt(s) * (n * x / s - 1), full_matrices=False)
    left = np.maximum(sigma[:rank] - l2 * np.sqrt(n * x.sum()), 0)
    return (u[:, :rank] * left) @ vt[:rank] / np.sqrt(s)


@pytest.mark.parametrize("x", [X, WEIGHTS], ids=["binary", "weights"])
@pytest.mark.parametrize(("rank", "l2"), [(5, 0.1), (12, 0.02), (29, 0.0), (20, 0.3)])
def test_rg2_is_the_soft_thresholded_svd(x, rank, l2):
    model = gr.RG2(rank=rank, l2=l2).fit(gr.Interactions.of(x), dtype="float64")
    np.testing.assert_allclose(model.scores(gr.Interactions.of(x)), rg2_twin(x, rank, l2), atol=1e-6)


@pytest.mark.parametrize("l2", [0, 3, 100])
def test_rg2_with_a_penalty_on_the_product_is_a_truncated_svd(l2, refused):
    """Of the rows |I_x|/√(|I_x| + l2) · t_x; no other scores of the same rank have a lower Σ |I_x|·‖t_x − y_x‖² + l2·‖Y‖²."""
    model = gr.RG2(rank=4, l2=l2, penalty="product").fit(EVENTS, dtype="float64")
    s, target = SIZES[:, None], N * X / SIZES[:, None] - 1
    u, sigma, vt = np.linalg.svd(s / np.sqrt(s + l2) * target, full_matrices=False)
    scores = model.scores(EVENTS)
    np.testing.assert_allclose(scores, (u[:, :4] * sigma[:4]) @ vt[:4] / np.sqrt(s + l2), atol=1e-6)
    p, q = np.linalg.lstsq(vt[:4].T, scores.T, rcond=None)[0].T, vt[:4].T

    def loss(p, q):
        return float((s * (target - p @ q.T) ** 2).sum() + l2 * ((p @ q.T) ** 2).sum())

    rng = np.random.default_rng(0)
    for _ in range(5):
        step_p, step_q = 1e-3 * rng.standard_normal(p.shape), 1e-3 * rng.standard_normal(q.shape)
        assert loss(p + step_p, q + step_q) > loss(p, q)
    with refused(mentioning="interactions for RG2"):
        gr.RG2(rank=4, penalty="product").fit_gram(gr.Gram.of(EVENTS, user_power=0.5))


@pytest.mark.parametrize(
    "recipe",
    [
        gr.RG2ALS(rank=5, l2=0.1, n_epochs=1500),
        gr.RGX(rank=5, l2=0.1, n_epochs=1500, form="exact"),
        gr.RG2NewtonCG(rank=5, l2=0.1, n_epochs=600),
    ],
    ids=str,
)
def test_alternating_exact_rgx_and_newton_end_at_rg2(recipe):
    epoch = recipe.train(EVENTS, dtype="float64")
    closed = gr.RG2(rank=5, l2=0.1).fit(EVENTS, dtype="float64")
    p, q = closed.factors()
    assert epoch.objective == pytest.approx(ranking(gr.RG2(l2=0.1), X, p, q), rel=1e-7)
    np.testing.assert_allclose(epoch.model.scores(EVENTS), closed.scores(EVENTS), atol=2e-3)


def test_rg2_is_below_every_training_from_every_seed():
    p, q = gr.RG2(rank=4, l2=0.1).fit(EVENTS, dtype="float64").factors()
    least = ranking(gr.RG2(l2=0.1), X, p, q)
    for seed in range(5):
        assert states(gr.RG2ALS(rank=4, l2=0.1, seed=seed), 40)[-1].objective >= least * (1 - 1e-12)


def test_rgx_without_interaction_is_rg2als_and_the_printed_update_is_equation_38_and_39():
    plain, none = gr.RG2ALS(rank=5, l2=0.1), gr.RGX(rank=5, l2=0.1, interaction=0)
    assert np.array_equal(states(plain, 3)[-1].items, states(none, 3)[-1].items)
    recipe = gr.RGX(rank=5, l2=0.1, negative_weight=0.5, interaction=6, solver=gr.Cholesky())
    start = states(recipe, 2)[-1]
    found = next(recipe.iterate(EVENTS, start))
    weight = np.where(X > 0, SIZES[:, None], 0.5 * SIZES[:, None])
    target, v = X * N / SIZES[:, None] - 1, 6 * SIZES / N
    p, q = np.empty_like(start.users), np.empty_like(start.items)
    for u in range(M):
        a = start.items.T @ np.diag(weight[u] - v[u]) @ start.items + 0.1 * weight[u].sum() * np.eye(5)
        p[u] = np.linalg.solve(a, (target[u] * weight[u]) @ start.items)
    for i in range(N):
        a = p.T @ np.diag(weight[:, i] - v) @ p + 0.1 * weight[:, i].sum() * np.eye(5)
        q[i] = np.linalg.solve(a, (target[:, i] * weight[:, i]) @ p)
    np.testing.assert_allclose(found.users @ found.items.T, p @ q.T, atol=1e-8)


@pytest.mark.parametrize("beta", [0, 0.5])
def test_rgx_as_its_authors_run_it(beta):
    """Half steps in the units of the public code, with the right sign of the targets −1 in the items' step."""
    alpha, l2 = 0.03, 0.035
    recipe = gr.RGX(rank=5, l2=l2, positive_weight=alpha, interaction=beta, form="public", solver=gr.Cholesky())
    start = states(recipe, 2)[-1]
    found = next(recipe.iterate(EVENTS, start))
    shared = (1 - beta) * SIZES / (2 * N)  # the weight of every item of a user
    right_side = X * (0.5 + alpha) - SIZES[:, None] / (2 * N)
    p, q = np.empty_like(start.users), np.empty_like(start.items)
    for u in range(M):
        weight = shared[u] + alpha * X[u]
        a = start.items.T @ np.diag(weight) @ start.items + l2 * (SIZES[u] / 2 + alpha * N) * np.eye(5)
        p[u] = np.linalg.solve(a, right_side[u] @ start.items)
    for i in range(N):
        weight = shared + alpha * X[:, i]
        a = p.T @ np.diag(weight) @ p + l2 * (SIZES.sum() / (2 * N) + alpha * M) * np.eye(5)
        q[i] = np.linalg.solve(a, right_side[:, i] @ p)
    np.testing.assert_allclose(found.users @ found.items.T, p @ q.T, atol=1e-8)
    y = p @ q.T
    loss = (shared[:, None] * y**2 - 2 * right_side * y + alpha * X * (y**2 + 1)).sum() + (N - SIZES).sum() / 2
    loss += l2 * ((SIZES / 2 + alpha * N) @ (p**2).sum(1) + (SIZES.sum() / (2 * N) + alpha * M) * (q**2).sum())
    assert found.objective == pytest.approx(2 * N * loss)
    if beta == 0:
        plain = gr.RG2ALS(rank=5, l2=l2, positive_weight=alpha, solver=gr.Cholesky())
        assert np.array_equal(next(plain.iterate(EVENTS, start)).items, found.items)


def test_sampled_softmax_weights_are_equation_19_and_32():
    assert gr.RG2ALS.sampled(9, 100, rank=4).negative_weight == pytest.approx(0.1)
    rgx = gr.RGX.sampled(9, 100, rank=4)
    s = np.array([3.0])
    unobserved_weight = rgx.row_loss(100).unobserved_weight.at(s)
    assert unobserved_weight == pytest.approx(3 * 10 / 100 - 3 * 10 / 100**2)  # w − V


def test_the_scores_of_rg2_sum_to_nothing():
    scores = gr.RG2(rank=6, l2=0.05).fit(EVENTS, dtype="float64").scores(EVENTS)
    np.testing.assert_allclose(scores.sum(axis=1), 0, atol=1e-9)


# Debiased iALS


def test_a_debiased_half_step_with_constant_c_is_that_of_ials_with_mapped_parameters():
    """Theorem 1 of Jin and Li (2023): the row solutions differ by the factor 1/(1 − α₀), if the penalties are divided too."""
    a, l2, c = 0.2, 0.7, 1.4
    plain = gr.IALS(rank=6, unobserved_weight=a / ((1 - a) * c), l2=l2 / ((1 - a) * c), l2_exponent=0)
    biased = gr.DebiasedIALS(rank=6, unobserved_weight=a, l2=l2, l2_exponent=0, hidden_share=c - 1, hidden_items=0)
    q = np.random.default_rng(7).standard_normal((N, 6))
    one, other = (
        r.to_scorer(EVENTS, TrainingState.of(np.zeros((M, 6)), q)).user_vectors(EVENTS.matrix) for r in (plain, biased)
    )
    np.testing.assert_allclose(other, one / (1 - a), rtol=1e-9)


def test_debiased_ials_ends_where_ials_with_mapped_parameters_does():
    """Both halves being larger by 1/(1 − α₀), the whole training is iALS with the penalty l2/c (not l2/((1 − α₀)c))."""
    a, l2, c = 0.2, 0.7, 1.4
    plain = gr.IALS(rank=4, unobserved_weight=a / ((1 - a) * c), l2=l2 / c, l2_exponent=0, n_epochs=3000)
    biased = gr.DebiasedIALS(
        rank=4, unobserved_weight=a, l2=l2, l2_exponent=0, hidden_share=c - 1, hidden_items=0, n_epochs=3000
    )
    one, other = (r.fit(EVENTS, dtype="float64").scores(EVENTS) for r in (plain, biased))
    np.testing.assert_allclose(other, one / (1 - a), atol=1e-5)


def test_debiased_with_nothing_hidden_is_ials_with_the_positives_taken_out_of_the_unobserved():
    recipe = gr.DebiasedIALS(rank=5, unobserved_weight=0.2, hidden_share=0, hidden_items=0)
    loss = recipe.row_loss(N)
    assert (loss.extra_weight.constant, loss.extra_target.constant) == (0.8, 1)


# weights of interactions, and users and items that have none


@pytest.mark.parametrize(("recipe", "value"), CASES[1:5])
def test_weights_of_interactions_weigh_the_positives(recipe, value):
    found = states(recipe, 3, gr.Interactions.of(WEIGHTS))
    for state in found:
        assert state.objective == pytest.approx(value(recipe, WEIGHTS, state.users, state.items), rel=1e-9)


def test_who_touched_nothing_does_not_matter():
    users, items = Index([*EVENTS.users.tolist(), M]), Index([*EVENTS.items.tolist(), N])
    wider = EVENTS.reindex(users, items)
    for recipe in (gr.WRMF(rank=4), gr.RG2(rank=4, l2=0.1), gr.RG2ALS(rank=4, l2=0.1), gr.RG2NewtonCG(rank=4, l2=0.1)):
        model = recipe.fit(wider, dtype="float64")
        scores = model.scores(wider)
        assert np.isfinite(scores).all()
        assert not scores[-1].any()
        assert len(model.recommend([M], k=3).items[0]) == 3
