"""NeuMF: scores and steps against the paper's formulas in loops, the vectors of new users, and damaged files."""

from math import exp, log

import numpy as np
import pytest
import torch

import gramian as gr
from gradient.cases import EVENTS, GROUPS, N, X, fraction_in_group
from gramian.core.epochs import TrainingState
from gramian.gradient import NeuMF
from gramian.gradient.fold_in import solve_fold_in
from gramian.gradient.neumf_scorer import NeuralFactors, NeuralProblem
from gramian.gradient.neumf_training import NeuMFTrainer

RECIPE = NeuMF(rank=6, n_layers=3, n_negatives=3, n_epochs=3, batch_size=64, l2=0.02)


def random_state(recipe=RECIPE):
    rng = np.random.default_rng(0)
    return TrainingState({name: 0.7 * rng.standard_normal(shape) for name, shape in recipe.shapes(EVENTS).items()})


def naive_score(arrays, p, q, recipe=RECIPE):
    """The score of one pair of vectors, each with its part for the product first and that for the tower second."""
    k = recipe.rank
    code = torch.cat([p[k:], q[k:]])
    for layer in range(recipe.n_layers):
        code = (code @ arrays[f"weight{layer}"] + arrays[f"bias{layer}"]).clamp(min=0)
    return torch.cat([p[:k] * q[:k], code]) @ arrays["output"][:, 0]


def test_scores_are_those_of_the_papers_formula(monkeypatch):
    arrays = random_state().arrays
    model = gr.Recommender(RECIPE.to_scorer(EVENTS, TrainingState(arrays)), RECIPE, EVENTS.catalog, EVENTS)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    expected = [[float(naive_score(tensors, p, q)) for q in tensors["items"]] for p in tensors["users"]]
    np.testing.assert_allclose(model.scores(EVENTS), expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr("gramian.gradient.neumf_scorer.PAIR_ELEMENTS", 1000)  # blocks of a few items
    np.testing.assert_allclose(model.scores(EVENTS), expected, rtol=1e-5, atol=1e-6)
    assert [layer.shape for name, layer in arrays.items() if name.startswith("weight")] == [(12, 6), (6, 3), (3, 1)]


def test_a_step_has_the_gradients_of_a_naive_step(monkeypatch):
    state, rng = random_state(), np.random.default_rng(1)
    trainer, recorded = NeuMFTrainer(RECIPE, EVENTS, state), {}
    batch = torch.from_numpy(rng.permutation(X.nnz)[:16])
    users, items, negatives = trainer.rows[batch], trainer.columns[batch], torch.from_numpy(rng.integers(0, N, (16, 3)))

    def record(name, rows, gradient, learning_rate):
        recorded[name] = rows, gradient

    monkeypatch.setattr(trainer.tables, "update", record)
    value = trainer.step(users, items, negatives, 0.1)
    leaves = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in state.arrays.items()}
    total = 0
    for u, i, drawn in zip(users.tolist(), items.tolist(), negatives.tolist(), strict=True):
        p, q = leaves["users"][u], leaves["items"]
        total = total - torch.log(torch.sigmoid(naive_score(leaves, p, q[i])))
        total = total - sum(torch.log(1 - torch.sigmoid(naive_score(leaves, p, q[j]))) for j in drawn)
        total = total + RECIPE.l2 * (p @ p + q[i] @ q[i] + sum(q[j] @ q[j] for j in drawn) / 3)
    (total / 16).backward()
    assert float(value) == pytest.approx(float(total.detach()) / 16)
    assert set(recorded) == set(leaves)
    for name, (rows, gradient) in recorded.items():
        expected = leaves[name].grad if rows is None else leaves[name].grad[rows]
        np.testing.assert_allclose(gradient, expected, atol=1e-10, err_msg=name)


def test_new_users_get_vectors_of_least_loss():
    scorer = RECIPE.to_scorer(EVENTS, random_state())
    histories = X[[3, 11, 20]]
    problem = NeuralProblem(scorer, histories)
    z, users = np.random.default_rng(2).standard_normal((3, 12)), np.arange(3)
    value, gradient = problem.value_and_gradient(z, users)
    tensors = {name: torch.from_numpy(array) for name, array in scorer.arrays.items()}
    for user in users:
        items = histories[[user]].indices
        scores = [float(naive_score(tensors, torch.from_numpy(z[user]), q)) for q in tensors["items"]]
        expected = sum(log(1 + exp(-scores[i])) for i in items) / len(items)
        expected += RECIPE.n_negatives * sum(log(1 + exp(y)) for y in scores) / N
        assert value[user] == pytest.approx(expected + RECIPE.l2 * float(z[user] @ z[user]))
    for column in range(12):
        step = np.zeros((3, 12))
        step[:, column] = 1e-6
        difference = problem.value_and_gradient(z + step, users)[0] - problem.value_and_gradient(z - step, users)[0]
        np.testing.assert_allclose(gradient[:, column], difference / 2e-6, atol=1e-6)
    start = problem.initial_point()
    solved = solve_fold_in(problem)
    assert (problem.value_and_gradient(solved, users)[0] < problem.value_and_gradient(start, users)[0]).all()


def test_it_learns_the_groups_of_trained_and_new_users():
    model = NeuMF(rank=8, n_epochs=40, batch_size=64, learning_rate=0.01).fit(GROUPS)
    assert fraction_in_group(model) > 0.7


def test_damaged_files_are_refused():
    facts, arrays = RECIPE.to_scorer(EVENTS, random_state()).save()
    for change in ({"n_negatives": 0}, {"n_negatives": "4"}, {"l2": -1}, {"l2": float("inf")}):
        with pytest.raises(gr.errors.DamagedFile):
            NeuralFactors.load(facts | change, arrays)
    for name in arrays.keys() - {"items"}:  # a model may have any number of items
        with pytest.raises(gr.errors.DamagedFile):
            NeuralFactors.load(facts, arrays | {name: arrays[name][:-1]})
    for name in arrays:
        with pytest.raises((gr.errors.DamagedFile, KeyError)):
            NeuralFactors.load(facts, {other: array for other, array in arrays.items() if other != name})
    with pytest.raises(gr.errors.DamagedFile):
        NeuralFactors.load(facts, arrays | {"items": arrays["items"].astype(np.float32)})
