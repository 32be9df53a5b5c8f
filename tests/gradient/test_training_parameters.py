"""Weight decay, clipping, dropout, initial vectors and plateaus, each against PyTorch or its definition."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gradient.cases import EVENTS, loss_id, recipe_for
from gramian.gradient import BPR, CCL, MF, SML, UIB, FactorModel, MINEPlus, RG2Loss, Softmax, Training, Uniform
from gramian.gradient.backbones import score_geometry, scoring_rows
from gramian.gradient.encoder import scatter_rows
from gramian.gradient.factor_training import FactorTrainer
from gramian.gradient.loss import Scores
from gramian.gradient.scorers import BIAS_ARRAYS
from gramian.gradient.trainer import seed_generator

SMALL = [
    BPR(n_negatives=4),
    CCL(margin=0.1, n_negatives=4),
    UIB(n_negatives=4),
    BPR(n_negatives=9, sampler=Uniform(shared=True)),
]


def autograd_loss(recipe, tables, users, items, negatives, masks=(1.0, 1.0)):
    """The mean loss of a batch by autograd, without penalties. `masks` multiply the tables of users and items."""
    geometry = score_geometry(recipe.backbone, recipe.loss.uses_distances)
    p = scoring_rows(tables["users"] * masks[0], geometry, "user")[users]
    q = scoring_rows(tables["items"] * masks[1], geometry, "item")
    drawn = negatives.expand(len(users), -1) if negatives.ndim == 1 else negatives
    fields = {"positives": (p * q[items]).sum(1)[:, None], "negatives": torch.einsum("bk,bnk->bn", p, q[drawn])}
    if "user_bias" in recipe.loss.learned_biases:
        fields["user_bias"] = tables[BIAS_ARRAYS["user_bias"]][users]
    fields |= {"positive_weight": torch.ones_like(fields["positives"]), "n_negatives": drawn.shape[1]}
    return recipe.loss(Scores(**fields))[0].mean()


def as_leaves(state):
    return {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in state.arrays.items()}


@pytest.mark.parametrize("loss", SMALL, ids=str)
def test_clipping_is_that_of_pytorch(loss):
    """Two epochs against `clip_grad_norm_`, with the same batches and draws. The penalty is part of the gradient."""
    recipe = recipe_for(loss, weight_decay=0.01, learning_rate=0.02, training=Training(max_norm=0.02, initial_sd=0.3))
    state = recipe.initial_state(EVENTS, np.float64)
    trainer, tables, norms = FactorTrainer(recipe, EVENTS, state), as_leaves(state), []
    adam = torch.optim.Adam(list(tables.values()), lr=0.02)
    for number in range(2):
        generator = seed_generator(trainer.device, recipe.seed, number)
        for batch in trainer.batches(generator):
            users, items = trainer.rows[batch], trainer.columns[batch]
            adam.zero_grad()
            value = autograd_loss(recipe, tables, users, items, trainer.sample_negatives(items, generator))
            (value + 0.01 / 2 * sum((table**2).sum() for table in tables.values())).backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(list(tables.values()), 0.02)))
            adam.step()
        trainer.train_epoch(number, 0.02)
    assert min(norms) > 0.02  # the test would show nothing otherwise
    for name, table in tables.items():
        np.testing.assert_allclose(trainer.tables[name], table.detach(), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("loss", SMALL, ids=str)
def test_weight_decay_is_that_of_pytorch(loss):
    recipe = recipe_for(loss, weight_decay=0.01, learning_rate=0.02, training=Training(initial_sd=0.3))
    state = recipe.initial_state(EVENTS, np.float64)
    trainer, tables = FactorTrainer(recipe, EVENTS, state), as_leaves(state)
    adam = torch.optim.Adam(list(tables.values()), lr=0.02, weight_decay=0.01)
    generator, total = seed_generator(trainer.device, recipe.seed, 0), 0.0
    for batch in trainer.batches(generator):
        users, items = trainer.rows[batch], trainer.columns[batch]
        adam.zero_grad()
        value = autograd_loss(recipe, tables, users, items, trainer.sample_negatives(items, generator))
        value.backward()
        penalty = 0.01 / 2 * sum(float((table.detach() ** 2).sum()) for table in tables.values())
        total += (float(value.detach()) + penalty) * len(batch)
        adam.step()
    assert trainer.train_epoch(0, 0.02) == pytest.approx(total / EVENTS.n_interactions)
    for name, table in tables.items():
        np.testing.assert_allclose(trainer.tables[name], table.detach(), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("loss", [BPR(n_negatives=4), CCL(margin=0.1, n_negatives=4), RG2Loss(), Softmax()], ids=loss_id)
def test_dropout_multiplies_the_vectors_of_a_step_by_random_masks(loss, monkeypatch):
    recipe = recipe_for(loss, training=Training(dropout=0.4, initial_sd=1))
    state = recipe.initial_state(EVENTS, np.float64)
    trainer, tables = FactorTrainer(recipe, EVENTS, state), as_leaves(state)
    masks, draw_mask = [], trainer.dropout_mask

    def record_mask(vectors, generator):
        masks.append(draw_mask(vectors, generator))
        return masks[-1]

    monkeypatch.setattr(trainer, "dropout_mask", record_mask)
    recorded = {}
    monkeypatch.setattr(
        trainer.tables,
        "update",
        lambda name, rows, gradient, rate: recorded.update({name: scatter_rows(rows, gradient, len(trainer.tables[name]))}),
    )
    generator = seed_generator(trainer.device, 3)
    if loss.batches_by_user:
        users = torch.arange(EVENTS.n_users)
        trainer.step_on_users(users, generator, 0.1)
        batch, negatives = torch.arange(EVENTS.n_interactions), torch.arange(EVENTS.n_items)
        users, items = trainer.rows[batch], trainer.columns[batch]
        user_mask, item_mask = masks
    else:
        batch = torch.arange(0, EVENTS.n_interactions, 5)
        users, items = trainer.rows[batch], trainer.columns[batch]
        trainer.step_on_interactions(users, items, generator, 0.1)
        negatives = trainer.sample_negatives(items, seed_generator(trainer.device, 3))
        user_mask, item_mask = (torch.ones_like(trainer.tables[name]) for name in ("users", "items"))
        user_mask[users.unique()], item_mask[torch.cat([items, negatives.reshape(-1)]).unique()] = masks
    autograd_loss(recipe, tables, users, items, negatives, (user_mask, item_mask)).backward()
    for name, gradient in recorded.items():
        np.testing.assert_allclose(gradient, tables[name].grad, atol=1e-8, err_msg=name)
    assert torch.cat(masks).unique().tolist() == pytest.approx([0, 1 / 0.6])
    many = draw_mask(torch.zeros(2000, 50), generator)
    assert float((many == 0).float().mean()) == pytest.approx(0.4, abs=0.01)


def test_initial_vectors_have_the_given_standard_deviation():
    for recipe, sd in (
        (FactorModel(MF(rank=16)), 0.1 / 4),
        (FactorModel(MF(rank=16), training=Training(initial_sd=1e-4)), 1e-4),
        (FactorModel(MF(rank=16), SML(), training="training(initial_sd=2)"), 2),
    ):
        arrays = recipe.initial_state(EVENTS, np.float32).arrays
        assert arrays["users"].std() == pytest.approx(sd, rel=0.1)
        assert arrays["items"].std() == pytest.approx(sd, rel=0.1)


@pytest.mark.parametrize("loss", [SML(n_negatives=4), RG2Loss(), BPR(n_negatives=4)], ids=loss_id)
def test_vectors_are_projected_on_a_ball_after_each_step(loss):
    """A step is the free one, and then longer vectors are shortened; so vectors never leave the ball."""
    training = Training(initial_sd=0.4)
    recipe = recipe_for(loss, learning_rate=0.1, batch_size=10_000, training=training)
    state = recipe.initial_state(EVENTS, np.float64)
    free = FactorTrainer(recipe, EVENTS, state)
    bounded = FactorTrainer(replace(recipe, training=replace(training, max_length=1.0)), EVENTS, state)
    for trainer in (free, bounded):
        trainer.train_epoch(0, 0.1)  # one step, in which every vector is updated
    for name in ("users", "items"):
        unbounded = free.tables[name].numpy()
        lengths = np.linalg.norm(unbounded, axis=1, keepdims=True)
        assert lengths.min() < 1 < lengths.max()
        np.testing.assert_allclose(bounded.tables[name], unbounded / np.maximum(lengths, 1), atol=1e-12)
    for number in range(1, 4):
        bounded.train_epoch(number, 0.1)
        assert max(float(bounded.tables[name].norm(dim=1).max()) for name in ("users", "items")) <= 1 + 1e-12


def send_scores(recipe, scores, scratch=None, stop=None):
    """Train with these validation scores, and return the models; stop after epoch `stop`."""
    epochs, models, score = recipe.epochs(EVENTS, scratch=scratch, repeat_last=True), {}, None
    while True:
        try:
            epoch = epochs.send(score)
        except StopIteration:
            return models
        models[epoch.number], score = epoch.model, scores[epoch.number - 1]
        if epoch.number == stop:
            epochs.close()
            return models


def test_a_plateau_lowers_the_learning_rate_and_restores_the_best_vectors(monkeypatch):
    starts, train_epoch = [], FactorTrainer.train_epoch

    def record_start(trainer, number, learning_rate):
        starts.append((learning_rate, trainer.tables["items"].numpy().copy()))
        return train_epoch(trainer, number, learning_rate)

    monkeypatch.setattr(FactorTrainer, "train_epoch", record_start)
    recipe = recipe_for(MINEPlus(n_negatives=4), n_epochs=6, halve_after=2, learning_rate=0.01)
    scores = [1, 3, 2, 2, 4, 5]  # epoch 2 is the best when epochs 3 and 4 are no better
    for training in (Training(plateau_factor=0.1), Training(plateau_factor=0.1, reload_best=True)):
        starts.clear()
        models = send_scores(replace(recipe, training=training), scores)
        assert [rate for rate, _ in starts] == pytest.approx([0.01] * 4 + [0.001] * 2)
        ends = {number: model.scorer.items for number, model in models.items()}
        for number in (2, 3, 4, 6):
            assert np.array_equal(starts[number - 1][1], ends[number - 1])
        assert np.array_equal(starts[4][1], ends[2] if training.reload_best else ends[4])


def test_trainings_with_all_parameters_resume_to_the_same_bits(tmp_path):
    training = Training(initial_sd=0.05, dropout=0.2, max_norm=0.5, plateau_factor=0.3, reload_best=True)
    recipe = recipe_for(UIB(n_negatives=4), n_epochs=7, halve_after=1, weight_decay=1e-3, training=training)
    scores = [1, 3, 2, 2, 4, 1, 5]
    whole = send_scores(recipe, scores)
    for stop in range(1, 7):
        folder = tmp_path / str(stop)
        send_scores(recipe, scores, folder, stop)
        resumed = send_scores(recipe, scores, folder)
        assert set(resumed) == set(range(stop, 8))
        assert all(np.array_equal(model.scores(EVENTS), whole[number].scores(EVENTS)) for number, model in resumed.items())
