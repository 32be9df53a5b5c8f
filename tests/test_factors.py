"""Factor models: every loss written out in full, half steps at their least, closed forms and the papers' equivalences."""

import os
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.core.epochs import EpochRecipe, TrainingState
from gramian.data.ids import Index
from gramian.data.synthetic import clustered
from gramian.io.checkpoints import CHECKPOINTS
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
from gramian.models.rg import rg_loss

RNG = np.random.default_rng(7)
X = (RNG.random((50, 30)) < RNG.random(30) ** 1.5 * 0.7 + 0.06).astype(float)
X[X.sum(axis=1) == 0, 3] = 1
EVENTS = gr.Interactions.of(X)
WEIGHTS = X * RNG.integers(1, 5, X.shape)
M, N = X.shape
SIZES, D = X.sum(axis=1), X.sum()


def squared(target, weight, p, q):
    return (weight * (target - p @ q.T) ** 2).sum()


def penalty(p, q, of_users, of_items):
    return (of_users * (p**2).sum(axis=1)).sum() + (of_items * (q**2).sum(axis=1)).sum()


def wrmf(r, x, p, q):
    return squared(x > 0, 1 + r.positive_weight * x, p, q) + r.l2 * ((p**2).sum() + (q**2).sum())


def ials_penalty(r, x, p, q):
    of_users = r.l2 * (x.sum(axis=1) + r.unobserved_weight * x.shape[1]) ** r.l2_exponent
    of_items = r.l2 * (x.sum(axis=0) + r.unobserved_weight * x.shape[0]) ** r.l2_exponent
    return penalty(p, q, of_users, of_items)


def ials(r, x, p, q):
    return squared(1, x, p, q) + r.unobserved_weight * ((p @ q.T) ** 2).sum() + ials_penalty(r, x, p, q)


def debiased(r, x, p, q):
    c = (1 + r.hidden_share + r.hidden_items / x.sum(axis=1))[:, None]
    a, scores = r.unobserved_weight, p @ q.T
    touched = (x * c * ((scores - 1) ** 2 - a * scores**2)).sum()
    return touched + a * (scores**2).sum() + ials_penalty(r, x, p, q)


def ranking(r, x, p, q):
    """RG², RG× as printed, RG× as it is."""
    s, n = x.sum(axis=1, keepdims=True), x.shape[1]
    weight = np.where(x > 0, s, s * getattr(r, "negative_weight", 1.0))
    scores = p @ q.T
    value = squared(x * n / s - 1, weight, p, q)
    if isinstance(r, gr.RGX):
        met = scores.sum(axis=1) ** 2 if r.form == "exact" else (scores**2).sum(axis=1)
        value -= (r.interaction * s[:, 0] / n * met).sum()
    return value + penalty(p, q, r.l2 * weight.sum(axis=1), r.l2 * weight.sum(axis=0))


SOLVERS = [gr.Cholesky(), gr.ConjugateGradient(), gr.ConjugateGradient(steps=5), gr.Subspace(size=3), gr.Subspace(size=50)]
CASES = [
    (gr.WRMF(rank=5, positive_weight=3, l2=2), wrmf),
    (gr.IALS(rank=5, unobserved_weight=0.2, l2=0.05), ials),
    (gr.IALS(rank=7, unobserved_weight=0.1, l2=0.5, l2_exponent=0.5), ials),
    (gr.DebiasedIALS(rank=5, unobserved_weight=0.2, l2=0.05, hidden_share=0.4, hidden_items=0), debiased),
    (gr.DebiasedIALS(rank=5, unobserved_weight=0.2, l2=0.05, hidden_share=0.1, hidden_items=6), debiased),
    (gr.RG2ALS(rank=5, l2=0.1), ranking),
    (gr.RG2ALS(rank=5, l2=0.1, negative_weight=0.3), ranking),
    (gr.RG2ALS(rank=5, l2=0.1, negative_weight=1.7), ranking),
    (gr.RG2ALS.sampled(4, N, rank=5, l2=0.1), ranking),
    (gr.RGX(rank=5, l2=0.1, interaction=4), ranking),
    (gr.RGX(rank=5, l2=0.1, negative_weight=0.4, interaction=7), ranking),
    (gr.RGX.sampled(4, N, rank=5, l2=0.1), ranking),
    (gr.RGX(rank=5, l2=0.1, form="exact"), ranking),
    (gr.RG2NewtonCG(rank=5, l2=0.1), ranking),
]
IDS = [str(recipe) for recipe, _ in CASES]


def states(recipe, n, events=EVENTS, dtype=np.float64):
    training = recipe.iterate(events, recipe.initial_state(events, dtype))
    return [next(training) for _ in range(n)]


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
    for _ in range(5):
        towards = RNG.standard_normal(state.items.shape)
        towards_users = RNG.standard_normal(folded.shape)
        assert abs(slope(lambda q: value(recipe, X, state.users, q), state.items, towards)) < 1e-6 * typical
        assert abs(slope(lambda p: value(recipe, X, p, items), folded, towards_users)) < 1e-6 * typical


@pytest.mark.parametrize("recipe", [case[0] for case in CASES if not isinstance(case[0], gr.RG2NewtonCG)], ids=str)
def test_a_row_is_the_solution_of_its_system_for_all_solvers(recipe):
    rank = 9
    q = RNG.standard_normal((N, rank))
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
    q = RNG.standard_normal((N, 8)).astype(np.float32)
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


def test_sampled_softmax_weights_are_equation_19_and_32():
    assert gr.RG2ALS.sampled(9, 100, rank=4).negative_weight == pytest.approx(0.1)
    rgx = gr.RGX.sampled(9, 100, rank=4)
    s = np.array([3.0])
    shared = rgx.row_loss(100).shared.at(s)
    assert shared == pytest.approx(3 * 10 / 100 - 3 * 10 / 100**2)  # w − V


def test_the_scores_of_rg2_sum_to_nothing():
    scores = gr.RG2(rank=6, l2=0.05).fit(EVENTS, dtype="float64").scores(EVENTS)
    np.testing.assert_allclose(scores.sum(axis=1), 0, atol=1e-9)


# Debiased iALS


def test_a_debiased_half_step_with_constant_c_is_that_of_ials_with_mapped_parameters():
    """Theorem 1 of Jin and Li (2023): the row solutions differ by the factor 1/(1 − α₀), if the penalties are divided too."""
    a, l2, c = 0.2, 0.7, 1.4
    plain = gr.IALS(rank=6, unobserved_weight=a / ((1 - a) * c), l2=l2 / ((1 - a) * c), l2_exponent=0)
    biased = gr.DebiasedIALS(rank=6, unobserved_weight=a, l2=l2, l2_exponent=0, hidden_share=c - 1, hidden_items=0)
    q = RNG.standard_normal((N, 6))
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
    assert (loss.own.constant, loss.pull.constant) == (0.8, 1)


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


# epochs


ITERATIVE = [recipe for recipe, _ in CASES]


@pytest.mark.parametrize(
    "recipe", [gr.IALS(rank=4, n_epochs=6), gr.RG2ALS(rank=4, n_epochs=6), gr.RG2NewtonCG(rank=4, n_epochs=6)]
)
def test_a_killed_training_goes_on_to_the_same_bits(recipe, tmp_path):
    whole = recipe.train(EVENTS)
    for epoch in recipe.epochs(EVENTS, scratch=tmp_path / "s"):
        if epoch.number == 4:
            break
    resumed = list(recipe.epochs(EVENTS, scratch=tmp_path / "s"))
    assert [epoch.number for epoch in resumed] == [5, 6]
    assert resumed[-1].objective == whole.objective
    for name, array in resumed[-1].model.scorer.save()[1].items():
        assert np.array_equal(array, whole.model.scorer.save()[1][name])
    again = list(recipe.epochs(EVENTS, scratch=tmp_path / "s"))
    assert [epoch.number for epoch in again] == [6]
    assert np.array_equal(again[0].model.scores(EVENTS), whole.model.scores(EVENTS))
    longer = replace(recipe, n_epochs=8)
    assert np.array_equal(longer.fit(EVENTS, scratch=tmp_path / "s").scores(EVENTS), longer.fit(EVENTS).scores(EVENTS))


def test_a_checkpoint_that_is_damaged_gives_way_to_the_one_before(tmp_path):
    recipe = gr.IALS(rank=4, n_epochs=5)
    whole = recipe.train(EVENTS, scratch=tmp_path)
    with (tmp_path / CHECKPOINTS[1] / "arrays.safetensors").open("r+b") as file:  # epoch 5
        file.seek(200)
        file.write(b"x")
    (tmp_path / ".gramian-epoch-odd.gramian-0123456789abcdef.part").mkdir()
    with pytest.warns(gr.errors.RestartWarning, match="epoch before"):
        resumed = list(recipe.epochs(EVENTS, scratch=tmp_path))
    assert [epoch.number for epoch in resumed] == [5]
    assert resumed[0].objective == whole.objective
    assert sorted(path.name for path in tmp_path.glob("*epoch*")) == sorted(CHECKPOINTS)
    for name in CHECKPOINTS:
        (tmp_path / name / "manifest.json").unlink()
    with pytest.raises(gr.errors.DamagedFile):  # never quietly from the beginning
        list(recipe.epochs(EVENTS, scratch=tmp_path))


def test_a_training_killed_for_good_goes_on(tmp_path):
    code = f"""
import os, signal
import gramian as gr
from gramian.data.synthetic import clustered
events = clustered(200, 80, 2000)
for epoch in gr.IALS(rank=6, n_epochs=6).epochs(events, scratch={str(tmp_path / "s")!r}):
    if epoch.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    events, recipe = clustered(200, 80, 2000), gr.IALS(rank=6, n_epochs=6)
    resumed = list(recipe.epochs(events, scratch=tmp_path / "s"))
    assert resumed[0].number in (3, 4)  # the third was yielded before or after it was kept
    np.testing.assert_allclose(resumed[-1].model.scores(events), recipe.fit(events).scores(events), atol=1e-5)


def test_a_scratch_folder_belongs_to_one_training(tmp_path, refused):
    list(gr.IALS(rank=4, n_epochs=3).epochs(EVENTS, scratch=tmp_path))
    for other in (gr.IALS(rank=4, n_epochs=3, l2=0.5), gr.IALS(rank=4, n_epochs=3, seed=1)):
        with refused(mentioning="another"):
            other.fit(EVENTS, scratch=tmp_path)
    with refused(mentioning="another"):
        gr.IALS(rank=4, n_epochs=3).fit(EVENTS, scratch=tmp_path, dtype="float64")
    with refused(mentioning="n_epochs"):
        gr.IALS(rank=4, n_epochs=2).fit(EVENTS, scratch=tmp_path)
    training = gr.IALS(rank=4, n_epochs=9).epochs(EVENTS, scratch=tmp_path)
    next(training)
    with refused(mentioning="alone"):
        gr.IALS(rank=4, n_epochs=9).fit(EVENTS, scratch=tmp_path)
    training.close()  # unlocks the folder and removes the progress bar


def test_seeds_start_differently_and_the_same_seed_the_same():
    one, same, other = (gr.IALS(rank=4, n_epochs=2, seed=seed).fit(EVENTS).scores(EVENTS) for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)


def split():
    return gr.split.strong(gr.datasets.load("movielens", min_value=4), seed=1)


def test_training_stops_where_validation_is_best():
    validation = split().validation
    path = gr.epoch_path(gr.WRMF(rank=48, l2=1, n_epochs=40), validation, ["ndcg@20", "recall@20"], patience=2)
    values = path.frame()["ndcg@20"].to_list()
    best = int(np.argmax(values)) + 1
    assert len(values) == best + 2 < 40
    assert path.recipe == gr.WRMF(rank=48, l2=1, n_epochs=best)
    assert gr.evaluate(path.model, validation)["ndcg@20"] == values[best - 1]
    assert path.frame().columns == ["epoch", "objective", "ndcg@20", "recall@20", "ndcg@20 stderr", "recall@20 stderr"]
    refit = path.recipe.fit(validation.train)
    assert np.array_equal(refit.scorer.fixed.factors, path.model.scorer.fixed.factors)


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
def test_a_search_over_epochs_trains_once(monkeypatch):
    validation = split().validation
    begun = []
    initial_state = EpochRecipe.initial_state
    monkeypatch.setattr(EpochRecipe, "initial_state", lambda self, *a: begun.append(self) or initial_state(self, *a))
    found = gr.tune(gr.IALS, validation, {"rank": [8], "l2": [0.01], "unobserved_weight": [0.3], "n_epochs": [2, 4, 7]})
    assert len(begun) == 1
    values = {r.recipe.n_epochs: r.value for r in found.results}
    for n_epochs, value in values.items():
        recipe = gr.IALS(rank=8, l2=0.01, unobserved_weight=0.3, n_epochs=n_epochs)
        assert gr.evaluate(recipe.fit(validation.train), validation)["ndcg@20"] == pytest.approx(value)


def test_a_search_leaves_out_what_makes_no_sense_and_tries_solvers():
    validation = split().validation
    space = {"rank": [8, 5000], "l2": [0.1], "negative_weight": [0.5], "n_epochs": [2]}
    with pytest.warns(UserWarning, match="left out"):
        found = gr.tune(gr.RG2ALS, validation, space | {"solver": [gr.Cholesky(), "Subspace(size=4)"]})
    assert {str(r.recipe.solver) for r in found.results} == {"Cholesky()", "Subspace(size=4)"}
    assert found.frame()["solver"].to_list() == [str(r.recipe.solver) for r in found.results]


def test_rank_path_serves_rg2():
    path = gr.rank_path(gr.RG2(l2=0.2), [4, 16], split())
    assert gr.evaluate(gr.RG2(rank=4, l2=0.2).fit(split().train), split())["ndcg@20"] == pytest.approx(
        path.reports[4]["ndcg@20"], abs=0.003
    )


# serving


@pytest.mark.parametrize("recipe", [gr.RG2(rank=5, l2=0.1), *ITERATIVE], ids=str)
def test_explanations_add_up_and_models_survive_saving(recipe, tmp_path):
    model = recipe.fit(EVENTS)
    history = [item for item, weight in zip(EVENTS.items.tolist(), X[4], strict=True) if weight]
    scores = model.scores(EVENTS)[4]
    for item in (0, 7):
        why = model.explain(history, EVENTS.items[item])
        assert set(why) == set(history)
        assert why.score == pytest.approx(scores[item], abs=1e-4 * float(np.abs(scores).max()))
    assert not model.explain(["unknown"], EVENTS.items[3])
    model.save(tmp_path / "m")
    again = gr.load(tmp_path / "m")
    assert again.recipe == recipe
    assert np.array_equal(again.scores(EVENTS), model.scores(EVENTS))
    users, items = again.factors()
    np.testing.assert_allclose(users @ items.T, model.scores(EVENTS), atol=1e-5 * np.abs(scores).max())
    known, stranger = again.recommend([EVENTS.users[4]], k=4), again.recommend_for([history], k=4)
    assert known.items == stranger.items
    cosine = items @ items[2] / np.linalg.norm(items, axis=1) / np.linalg.norm(items[2])
    cosine[2] = -1
    assert again.similar_items(EVENTS.items[2], k=1).items[0] == [EVENTS.items[int(np.argmax(cosine))]]


def test_factors_go_to_files_of_items_and_of_users(tmp_path, refused):
    model = gr.RG2(rank=3, l2=0.1).fit(EVENTS)
    users, items = model.factors()
    model.factors_to(tmp_path / "items.parquet")
    model.factors_to(tmp_path / "users.parquet", of="users")
    model.factors_to(tmp_path / "users.npy", of="users")
    assert np.array_equal(np.array(pl.read_parquet(tmp_path / "items.parquet")["vector"].to_list(), np.float32), items)
    found = pl.read_parquet(tmp_path / "users.parquet")
    assert found["user"].to_list() == model.users
    assert np.array_equal(np.array(found["vector"].to_list(), np.float32), users)
    assert np.array_equal(np.load(tmp_path / "users.npy"), users)
    low = gr.LRR(rank=3).fit(EVENTS)
    low.factors_to(tmp_path / "low.npy", of="users")
    np.testing.assert_allclose(np.load(tmp_path / "low.npy"), X @ low.factors()[0], rtol=1e-5, atol=1e-6)
    with refused(mentioning="users"):
        model.factors_to(tmp_path / "x.npy", of="both")


def test_vectors_that_are_not_finite_are_not_saved(tmp_path):
    model = gr.IALS(rank=3, n_epochs=1).fit(EVENTS)
    model.scorer.fixed.factors[2, 1] = np.nan
    with pytest.raises(gr.errors.Inaccurate, match="finite"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "change", [{"shared": [1]}, {"l2": "x"}, {"pull": [0, 1, 2, float("inf")]}, {"binary": 3}, {"more": 1}]
)
def test_a_loss_that_is_not_one_is_not_loaded(change, tmp_path):
    model = gr.IALS(rank=3, n_epochs=1).fit(EVENTS)
    facts, arrays = model.scorer.save()
    model.scorer.save = lambda: ({"rule": facts["rule"] | change}, arrays)
    model.save(tmp_path / "m")
    with pytest.raises(gr.errors.DamagedFile):
        gr.load(tmp_path / "m")


def test_weights_in_a_history_count_as_one_where_the_loss_is_for_binary_data():
    model = gr.RG2ALS(rank=4, negative_weight=2, l2=0.1).fit(EVENTS)
    assert model.recommend_for([{3: 5.0, 4: 2.0}], k=3).items == model.recommend_for([[3, 4]], k=3).items
    assert model.explain({3: 5.0, 4: 2.0}, 7) == model.explain([3, 4], 7)


# links of one graph


def graph():
    near = np.abs(np.subtract.outer(np.arange(40), np.arange(40))) % 37 < 4
    links = near & (RNG.random((40, 40)) < 0.8)
    left, right = np.nonzero(links)
    return gr.Interactions.of(pl.DataFrame({"user": left, "item": right}))


def test_nobody_is_linked_to_themselves(tmp_path):
    parts = gr.split.weak(graph(), seed=0)
    model = gr.RG2(rank=8, l2=0.02).fit(parts.train)
    lists = model.recommend(model.users, k=5, exclude_self=True)
    assert all(user not in row for user, row in zip(lists.users, lists.items, strict=True))
    open_lists = model.recommend(model.users, k=5)
    assert any(user in row for user, row in zip(open_lists.users, open_lists.items, strict=True))
    model.recommend_to(tmp_path / "links.parquet", k=5, exclude_self=True)
    written = pl.read_parquet(tmp_path / "links.parquet")
    assert written.filter(pl.col("user") == pl.col("item")).is_empty()
    assert written["item"].to_list() == [item for row in lists.items for item in row]


def test_map_of_links_without_self_links():
    events = graph()
    parts = gr.split.weak(events, seed=0)
    model = gr.RG2(rank=8, l2=0.02).fit(parts.train)
    report = gr.evaluate(model, parts, ["map@10", "mrr@10"], exclude_self=True)
    parts = parts.without_self_links()
    assert len(report.users) == parts.target.n_users
    for at, user in enumerate(report.users[:10]):
        known = {events.items.tolist()[c] for c in parts.fold_in.matrix[[at]].indices}
        wanted = {parts.target.items.tolist()[c] for c in parts.target.matrix[[at]].indices}
        row = parts.fold_in.take(np.array([at])).reindex(Index([user]), parts.train.items)
        scores = dict(zip(model.items, model.scores(row)[0], strict=True))
        ranked = sorted((i for i in scores if i not in known and i != user), key=lambda i: -scores[i])[:10]
        hits = [rank for rank, item in enumerate(ranked, start=1) if item in wanted]
        expected = sum((n + 1) / rank for n, rank in enumerate(hits)) / min(10, len(wanted))
        assert report.per_user["map@10"][at] == pytest.approx(expected)


def test_a_stranger_to_all_gets_popular_links_without_the_own():
    events = graph()
    (popular,) = gr.Popularity().fit(events).recommend_for([[]], k=1).items[0]
    model = gr.RG2(rank=4, l2=0.02).fit(events.reindex(Index([*events.users.tolist(), 99]), events.items))
    assert model.recommend([99], k=3, exclude_self=True).items[0][0] == popular
    alone_there = events.keep(events.rows != events.users.tolist().index(popular))
    assert popular not in gr.RG2(rank=4, l2=0.02).fit(alone_there).recommend([popular], k=3, exclude_self=True).items[0]


# bad input


def test_bad_input_names_the_parameter_and_a_value_that_works(refused):
    with refused(mentioning="Choose rank=29 or less"):
        gr.RG2(rank=30).fit(EVENTS)
    for kind in (gr.IALS, gr.WRMF, gr.DebiasedIALS, gr.RG2ALS, gr.RGX, gr.RG2NewtonCG):
        with refused(mentioning="Choose rank=29 or less"):
            kind(rank=30).fit(EVENTS)
        assert kind(rank=29, n_epochs=1).fit(EVENTS)
    with refused(mentioning="Choose at most 15"):
        gr.RGX(rank=4, negative_weight=0.5, interaction=16).fit(EVENTS)
    assert gr.RGX(rank=4, negative_weight=0.5, interaction=15).fit(EVENTS)
    with refused(mentioning="negative_weight=1"):
        gr.RGX(form="exact", negative_weight=0.5)
    with refused(mentioning="interaction of at most 1"):
        gr.RGX(form="exact", interaction=1.5)
    with refused(mentioning="same"):
        gr.RG2(rank=2).fit(gr.Interactions.of(np.ones((4, 4))))
    with refused(mentioning="rank"):
        gr.IALS(rank=300).epochs(EVENTS)  # before anything is asked of it
    with refused(mentioning="l2 of RG2"):
        gr.RG2(rank=4, l2=50).fit(EVENTS)
    for recipe in (gr.WRMF(rank=4), gr.RG2ALS(rank=4), gr.RGX(rank=4), gr.RG2NewtonCG(rank=4)):
        with refused(mentioning="weights"):
            recipe.fit(gr.Interactions.of(WEIGHTS))
    for solver in (
        "newton",
        "Cholesky(steps=3)",
        5,
        {"name": "CG"},
        "ConjugateGradient(3)",
        "Subspace(size=-)",
        "Subspace(size=open('x'))",
    ):
        with refused(mentioning="solver of IALS"):
            gr.IALS(solver=solver)
    with refused(mentioning="size of Subspace"):
        gr.IALS(solver="Subspace(size=two)")
    with refused(mentioning="steps"):
        gr.IALS(solver="ConjugateGradient(steps=0)")
    with refused(gr.errors.NotSupported, "epochs"):
        gr.epoch_path(gr.EASE(), split())
    with refused(mentioning="Split"):
        gr.epoch_path(gr.IALS(), EVENTS)
    with refused(mentioning="patience"):
        gr.epoch_path(gr.IALS(), split(), patience=0)
    with refused(gr.errors.NotSupported, "factor model"):
        gr.RG2(rank=3, l2=0.1).fit(EVENTS).weights()


def test_a_workable_l2_is_named(refused):
    with pytest.raises(gr.errors.InvalidInput) as caught:
        gr.RG2(rank=4, l2=50).fit(EVENTS)
    named = float(str(caught.value).split("below ")[1].rstrip("."))
    assert gr.RG2(rank=4, l2=0.95 * named).fit(EVENTS)
    with refused(mentioning="l2 of RG2"):
        gr.RG2(rank=4, l2=1.05 * named).fit(EVENTS)


def test_solvers_are_read_as_they_are_printed():
    for text, solver in (
        ("cholesky", gr.Cholesky()),
        ("ConjugateGradient(steps=7)", gr.ConjugateGradient(7)),
        ({"name": "Subspace", "params": {"size": 16}}, gr.Subspace(16)),
    ):
        recipe = gr.IALS(solver=text)
        assert recipe.solver == solver
        assert gr.IALS(solver=str(recipe.solver)) == gr.IALS(**recipe.to_json()["params"]) == recipe
    assert "solver" not in str(gr.IALS())
    assert not gr.equivalent(gr.IALS(solver=gr.ConjugateGradient(32)), gr.IALS(solver=gr.Subspace(32)))


def test_memory_is_counted():
    events = EVENTS
    assert gr.IALS(rank=16).estimate(events, scratch="nowhere").disk_bytes == 3 * 4 * 16 * (M + N)


@pytest.mark.parametrize("kind", [gr.IALS, gr.WRMF, gr.RG2ALS, gr.RG2NewtonCG, gr.RG2])
def test_no_more_memory_is_taken_than_counted(kind):
    events = clustered(20_000, 4_000, 300_000)
    recipe = replace(kind(rank=48), **({} if kind is gr.RG2 else {"n_epochs": 2}))
    recipe.fit(clustered(300, 200, 3_000))
    tracemalloc.start()
    recipe.fit(events)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.3 * recipe.fit_bytes(events, np.float32) < peak < recipe.fit_bytes(events, np.float32)


def test_prefetching_beyond_the_rows_changes_nothing():
    x = sp.csr_array((np.ones(20), np.zeros(20, np.int32), np.arange(21)), (20, 1))
    fixed, _ = FixedSide.of(np.ones((1, 3)), np.eye(3), np.ones(3))
    rows = RowProblems(x, rg_loss(1, 0.1).row_coefficients(np.ones(20)), np.ones((1, 2)))
    out = np.zeros((20, 3))
    solve_shared(rows, fixed, out)
    assert np.ptp(out, axis=0).max() == 0


ALTERNATING = [gr.IALS, gr.WRMF, gr.DebiasedIALS, gr.RG2ALS, gr.RGX]


@pytest.mark.parametrize("solver", [gr.ConjugateGradient(), gr.Cholesky(), gr.Subspace(4)], ids=str)
@pytest.mark.parametrize("model", ALTERNATING)
def test_rows_without_interactions_do_not_stop_a_training(model, solver):
    """Their vectors once shrank to 0 in a few epochs, until the products of conjugate gradients underflowed."""
    x = np.zeros((40, 30))
    x[:35, :20] = RNG.random((35, 20)) < 0.4
    events = gr.Interactions.of(x)
    recipe = model(rank=8, n_epochs=12, solver=solver)
    model = recipe.fit(events)
    assert np.isfinite(model.scores(events)).all()
    users, items = model.factors()
    np.testing.assert_array_equal(users[35:], 0)
    if not hasattr(recipe, "negative_weight"):  # the target of an unobserved item is 0, not −1
        np.testing.assert_array_equal(items[20:], 0)


def test_ials_trains_where_the_training_part_lacks_items():
    """`gramian epochs movielens --min-value 4 --model ials --rank 32 --n-epochs 4` was once refused."""
    split = gr.split.strong(gr.datasets.load("movielens", min_value=4))
    assert (split.train.popularity == 0).any()
    model = gr.IALS(rank=32, n_epochs=4).fit(split.train)
    np.testing.assert_array_equal(model.factors()[1][split.train.popularity == 0], 0)
