"""One step of training: sampling, batches, and gradients against a naive dense step under autograd; Adam against PyTorch's."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import gramian as gr
from gradient.cases import ALL_LOSSES, EVENTS, EVERYTHING_LOSSES, SKEWED, M, N, X, loss_id, recipe_for
from gramian.core.epochs import TrainingState
from gramian.gradient import (
    BPR,
    CCL,
    MF,
    MINE,
    ByPopularity,
    Debias,
    FactorModel,
    InBatch,
    InfoNCE,
    LightGCN,
    SampledSoftmax,
    Softmax,
    Uniform,
)
from gramian.gradient.backbones import score_geometry
from gramian.gradient.encoder import scatter_rows
from gramian.gradient.factor_training import FactorTrainer
from gramian.gradient.loss import Scores
from gramian.gradient.optimizer import RowAdam
from gramian.gradient.scorers import BIAS_ARRAYS
from gramian.gradient.trainer import seed_generator


def test_negatives_are_drawn_with_the_samplers_probabilities():
    popularity = SKEWED.popularity
    for sampler in (Uniform(), Uniform(shared=True), ByPopularity(power=0.5), ByPopularity(shared=True), InBatch()):
        probabilities = np.exp(sampler.log_probabilities(popularity))
        assert probabilities.sum() == pytest.approx(1)
        recipe = FactorModel(MF(rank=4), BPR(n_negatives=20_000, sampler=sampler))
        trainer = FactorTrainer(recipe, SKEWED, recipe.initial_state(SKEWED, np.float32))
        items = trainer.columns[torch.randperm(len(trainer.columns), generator=torch.Generator().manual_seed(0))]
        shared = getattr(sampler, "shared", True)
        drawn = trainer.sample_negatives(items if shared else items[:3], seed_generator(trainer.device, 1))
        assert drawn.shape == ((len(items),) if isinstance(sampler, InBatch) else (20_000,) if shared else (3, 20_000))
        frequency = np.bincount(drawn.reshape(-1).numpy(), minlength=N) / drawn.numel()
        np.testing.assert_allclose(frequency, probabilities, atol=0.01)
        wrong_sampler = Uniform() if isinstance(sampler, ByPopularity | InBatch) else ByPopularity()
        assert np.abs(frequency - np.exp(wrong_sampler.log_probabilities(popularity))).max() > 0.03
    np.testing.assert_allclose(np.exp(ByPopularity().log_probabilities(popularity)), popularity / popularity.sum(), atol=1e-9)


def naive_step(recipe, state, users, items, negatives, extra_positives, n_negatives=None):
    """The loss of a batch and its gradients by autograd, through a dense computation over single interactions."""
    tables = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in state.arrays.items()}
    p, q = tables["users"], tables["items"]
    if recipe.backbone.n_layers:
        a = torch.zeros(M + N, M + N, dtype=p.dtype)
        dense = torch.from_numpy((X.toarray() > 0).astype(np.float64)).to(p.dtype)
        a[:M, M:], a[M:, :M] = dense, dense.T
        degree = a.sum(1).clamp(min=1) ** -0.5
        a = degree[:, None] * a * degree
        layer = layer_sum = torch.cat([p, q])
        for _ in range(recipe.backbone.n_layers):
            layer = a @ layer
            layer_sum = layer_sum + layer
        p, q = (layer_sum / (recipe.backbone.n_layers + 1)).split([M, N])
    geometry = score_geometry(recipe.backbone, recipe.loss.uses_distances)

    def score(a, b):
        if geometry == "distance":
            return -((a - b) ** 2).sum(-1)
        if geometry == "cosine":
            return torch.nn.functional.cosine_similarity(a, b, dim=-1)
        return (a * b).sum(-1)

    total = 0
    for row, (u, i) in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
        drawn = negatives if negatives.ndim == 1 else negatives[row]
        fields = {
            "positives": score(p[u], q[i]).view(1, 1),
            "positive_weight": torch.ones(1, 1, dtype=p.dtype),
            "negatives": score(p[u][None], q[drawn])[None],
            "n_negatives": n_negatives or len(drawn),
            "log_q": torch.full((len(drawn),), -log(N), dtype=p.dtype),
            "item_item": score(q[i][None], q[drawn])[None, None],
            "n_items": N,
        }
        if recipe.loss.masks_accidental_hits:
            log_weight = torch.full((1, len(drawn)), -log(len(drawn)), dtype=p.dtype)
            fields["negative_log_weight"] = log_weight.masked_fill(drawn[None] == i, -float("inf"))
        for bias in recipe.loss.learned_biases:
            fields[bias] = tables[BIAS_ARRAYS[bias]][u if bias == "user_bias" else i].view(1, 1)
        if getattr(recipe.loss, "debiased", None):
            extra = extra_positives[row]
            fields |= {
                "extra_positives": score(p[u][None], q[extra])[None],
                "extra_positive_weight": 1 / len(extra),
                "prior": 0.2,
            }
        total = total + recipe.loss(Scores(**fields))[0][0]
    total = total / len(users)
    base_p, base_q = tables["users"], tables["items"]
    total = total + recipe.l2 * (base_p[users] ** 2).sum(1).mean() + recipe.l2 * (base_q[items] ** 2).sum(1).mean()
    if not recipe.loss.uses_all_items:
        total = total + recipe.l2 * (base_q[negatives.reshape(-1)] ** 2).sum(1).mean()
    total.backward()
    return float(total.detach()), {name: table.grad for name, table in tables.items()}


def random_state(recipe):
    """Vectors and biases that are not small."""
    rng = np.random.default_rng(0)
    arrays = recipe.initial_state(EVENTS, np.float64).arrays
    return TrainingState({name: array + rng.standard_normal(array.shape) for name, array in arrays.items()})


def record_updates(trainer, monkeypatch):
    """Record the gradient by each whole table that a step passes to Adam, in place of an update."""
    recorded = {}

    def record(name, rows, gradient, learning_rate):
        recorded[name] = scatter_rows(rows, gradient, len(trainer.tables[name]))

    monkeypatch.setattr(trainer.tables, "update", record)
    return recorded


each_backbone = pytest.mark.parametrize("backbone", [MF(rank=5), LightGCN(rank=5, n_layers=2)], ids=["MF", "LightGCN"])


@each_backbone
@pytest.mark.parametrize("loss", [loss for loss in ALL_LOSSES if not loss.batches_by_user], ids=loss_id)
@pytest.mark.parametrize("shape", [(9,), (16, 9)], ids=["shared", "own"])
def test_step_on_interactions_has_the_gradients_of_a_naive_step(backbone, loss, shape, monkeypatch):
    backbone = replace(backbone, cosine=recipe_for(loss).backbone.cosine)
    recipe = FactorModel(backbone, loss, l2=0.03, batch_size=16)
    state, rng = random_state(recipe), np.random.default_rng(1)
    trainer = FactorTrainer(recipe, EVENTS, state)
    batch = torch.from_numpy(rng.permutation(X.nnz)[:16])
    negatives, extra = torch.from_numpy(rng.integers(0, N, shape)), torch.from_numpy(rng.integers(0, N, (16, 4)))
    monkeypatch.setattr(trainer, "sample_negatives", lambda *a: negatives)
    monkeypatch.setattr(trainer, "sample_extra_positives", lambda *a: extra)
    recorded = record_updates(trainer, monkeypatch)
    users, items = trainer.rows[batch], trainer.columns[batch]
    value = trainer.step_on_interactions(users, items, seed_generator(trainer.device, 0), 0.1)
    expected, gradients = naive_step(recipe, state, users, items, negatives, extra)
    assert float(value) == pytest.approx(expected)
    assert set(recorded) == set(recipe.tables)
    for name, gradient in recorded.items():
        np.testing.assert_allclose(gradient, gradients[name], atol=1e-8, err_msg=name)


@each_backbone
@pytest.mark.parametrize("loss", EVERYTHING_LOSSES, ids=loss_id)
def test_step_on_users_equals_a_step_on_all_their_interactions(backbone, loss, monkeypatch):
    """A naive step and our step on interactions, with every item as a negative and the whole history as extra positives."""
    backbone = replace(backbone, cosine=recipe_for(loss).backbone.cosine)
    recipe = FactorModel(backbone, loss, l2=0.03)
    state, users = random_state(recipe), torch.tensor([7, 2, 40, 11])
    trainer = FactorTrainer(recipe, EVENTS, state)
    recorded = record_updates(trainer, monkeypatch)
    value = trainer.step_on_users(users, seed_generator(trainer.device, 0), 0.1)
    histories = trainer.columns.split(trainer.sizes.tolist())
    rows, columns = torch.repeat_interleave(users, trainer.sizes[users]), torch.cat([histories[u] for u in users.tolist()])
    naive = replace(recipe, loss=loss.all_items_loss())
    n = None if naive.loss.uses_all_items else loss.n_negatives
    extra = [histories[u] for u in rows.tolist()]
    expected, gradients = naive_step(naive, state, rows, columns, torch.arange(N), extra, n)
    assert float(value) == pytest.approx(expected)
    assert set(recorded) == set(recipe.tables)
    for name, gradient in recorded.items():
        np.testing.assert_allclose(gradient, gradients[name], atol=1e-8, err_msg=name)
    if loss.uses_all_items or isinstance(loss, SampledSoftmax) or getattr(loss, "debiased", None):
        return
    sampling = FactorTrainer(replace(recipe, loss=replace(loss, sampler=Uniform())), EVENTS, state)
    sampled = record_updates(sampling, monkeypatch)
    sampling.loss = replace(sampling.loss, n_negatives=N)
    monkeypatch.setattr(sampling, "sample_negatives", lambda *a: torch.arange(N))
    scores = sampling.scores
    monkeypatch.setattr(sampling, "scores", lambda *a: scores(*a)._replace(n_negatives=n))
    sampled_value = sampling.step_on_interactions(rows, columns, seed_generator(trainer.device, 0), 0.1)
    assert float(sampled_value) == pytest.approx(float(value))
    for name, gradient in sampled.items():
        np.testing.assert_allclose(recorded[name], gradient, atol=1e-8, err_msg=name)


def test_batches_of_users_cover_each_user_once_with_about_batch_size_interactions():
    """With histories of very different sizes; users without interactions are left out."""
    rng = np.random.default_rng(7)
    x = sp.csr_array((rng.random((200, N)) < (np.arange(200)[:, None] % 40 / 40) ** 3).astype(np.float32))
    events = gr.Interactions.of(x)
    recipe = FactorModel(MF(rank=4), Softmax(), batch_size=30)
    trainer = FactorTrainer(recipe, events, recipe.initial_state(events, np.float32))
    batches = trainer.batches(seed_generator(trainer.device, 0))
    assert sorted(torch.cat(batches).tolist()) == np.flatnonzero(np.diff(events.matrix.indptr)).tolist()
    sizes = [int(trainer.sizes[batch].sum()) for batch in batches]
    assert max(sizes) < 30 + N
    assert np.mean(sizes) > 25
    assert max(len(batch) for batch in batches) <= recipe.max_users_per_batch(events)
    next_epoch = trainer.batches(seed_generator(trainer.device, 1))
    assert torch.cat(next_epoch).tolist() != torch.cat(batches).tolist()


def test_extra_positives_are_drawn_from_the_history():
    recipe = FactorModel(MF(rank=4, cosine=True), CCL(debiased=Debias(positives=50)))
    trainer = FactorTrainer(recipe, EVENTS, recipe.initial_state(EVENTS, np.float32))
    users = torch.tensor([3, 8])
    drawn = trainer.sample_extra_positives(users, seed_generator(trainer.device, 0))
    for user, row in zip(users.tolist(), drawn.tolist(), strict=True):
        assert set(row) == set(X[[user]].indices.tolist())
    np.testing.assert_allclose(trainer.priors[:, 0], np.diff(X.indptr) / N)


def test_in_batch_negatives_are_the_other_positives_of_the_batch():
    loss = InfoNCE(temperature=0.5, n_negatives=6, sampler=InBatch())
    recipe = FactorModel(MF(rank=4), loss, batch_size=9)
    trainer = FactorTrainer(recipe, EVENTS, recipe.initial_state(EVENTS, np.float64))
    users, items = trainer.rows[:9], torch.tensor([3, 5, 3, 7, 8, 9, 1, 5, 2])
    negatives = trainer.sample_negatives(items, seed_generator(trainer.device, 0))
    assert negatives.tolist() == [3, 5, 3, 7, 8, 9]
    inputs = {"positives": torch.zeros(9, 1, dtype=torch.float64), "negatives": torch.zeros(9, 6, dtype=torch.float64)}
    weight = trainer.scores(inputs, users, items, negatives).negative_weight().numpy()
    hits = items[:, None].numpy() == negatives.numpy()
    assert not weight[hits].any()
    np.testing.assert_allclose(weight, ~hits / (~hits).sum(1, keepdims=True))
    corrected = replace(recipe, loss=SampledSoftmax(n_negatives=6, sampler=InBatch()))
    trainer = FactorTrainer(corrected, EVENTS, corrected.initial_state(EVENTS, np.float64))
    weight = trainer.scores(inputs, users, items, negatives).negative_weight().numpy()
    n_drawn = np.array([5, 5, 5, 5, 5, 5, 6, 6, 6])[:, None]  # the first six positives are the negatives
    np.testing.assert_allclose(weight, ~hits / n_drawn)


def test_batches_without_negatives_keep_the_model_finite():
    """Batches of one interaction, whose only in-batch negative, or only draw, may be the positive itself."""
    events = gr.Interactions.of(sp.csr_array((np.arange(33)[:, None] % 8 == np.arange(8)).astype(np.float32)))
    for loss in (
        SampledSoftmax(n_negatives=1),
        *(replace(loss, sampler=InBatch()) for loss in (InfoNCE(), MINE(), SampledSoftmax())),
    ):
        for batch_size in (1, events.n_interactions - 1):
            model = FactorModel(MF(rank=3), loss, n_epochs=2, batch_size=batch_size).fit(events)
            assert np.isfinite(model.scores(events)).all()


def test_row_adam_equals_pytorchs_adam_and_sparse_adam():
    rng = np.random.default_rng(0)
    start = rng.standard_normal((7, 3))
    ours = RowAdam(TrainingState({"a": start.copy(), "b": start.copy()}), ("a", "b"), torch.device("cpu"))
    dense, sparse = (torch.from_numpy(start.copy()).requires_grad_() for _ in range(2))
    theirs, lazy = torch.optim.Adam([dense], lr=0.01), torch.optim.SparseAdam([sparse], lr=0.01)
    for number in range(5):
        gradients = torch.from_numpy(rng.standard_normal((7, 3)))
        rows = torch.tensor([number % 7, (number + 3) % 7])
        ours.steps += 1
        ours.update("a", None, gradients, 0.01)
        ours.update("b", rows, gradients[rows], 0.01)
        dense.grad = gradients
        sparse.grad = torch.sparse_coo_tensor(rows[None], gradients[rows], (7, 3), check_invariants=False).coalesce()
        theirs.step()
        lazy.step()
    np.testing.assert_allclose(ours["a"], dense.detach(), rtol=1e-6)
    np.testing.assert_allclose(ours["b"], sparse.detach(), rtol=1e-6)
