"""CDAE, Mult-DAE and Mult-VAE: what they serve, learn and resume."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from gradient.cases import EVENTS, GROUPS, RECIPES, M, N, X, fraction_in_group, recipe_id
from gramian.gradient import CDAE, FactorModel, MultDAE, MultVAE
from gramian.gradient.autoencoder_training import AutoencoderTrainer
from gramian.gradient.scorers import history_keys
from gramian.gradient.trainer import seed_generator

each_autoencoder = pytest.mark.parametrize("recipe", [r for r in RECIPES if not isinstance(r, FactorModel)], ids=recipe_id)


@each_autoencoder
def test_serving_equals_the_forward_pass_of_training(recipe):
    """The forward pass in NumPy against PyTorch's, without dropout and noise; and the loss of training against its formula."""
    recipe = replace(recipe, dropout=0.0, n_epochs=2)
    training = recipe.iterate(EVENTS, recipe.initial_state(EVENTS, np.float64))
    state = [next(training) for _ in range(2)][-1]
    scores = np.concatenate([panel for _, panel in recipe.to_scorer(EVENTS, state).panels(EVENTS.matrix)], axis=1)
    weights = {name: torch.from_numpy(array) for name, array in state.arrays.items()}
    x = torch.from_numpy(X.toarray().astype(np.float64))
    code = x / x.square().sum(1, keepdim=True).sqrt() if recipe.normalised else x
    code = code @ weights["weight0"] + weights["bias0"]
    if isinstance(recipe, CDAE):
        code = (code + weights["users"]).sigmoid()
    elif isinstance(recipe, MultDAE):
        code = code.tanh()
    else:
        code = (code.tanh() @ weights["weight1"] + weights["bias1"])[:, :6]
        code = (code @ weights["weight2"] + weights["bias2"]).tanh()
    expected = (code @ weights["output"].T + weights["output_bias"]).numpy()
    distinct = np.unique(history_keys(EVENTS.matrix), return_index=True)[1]
    np.testing.assert_allclose(scores[distinct], expected[distinct], atol=1e-6)
    trainer = AutoencoderTrainer(recipe, EVENTS, state)
    users = torch.arange(M)
    learned = {name: weights[name] for name in recipe.shapes(EVENTS)}
    loss = float(trainer.batch_loss(learned, users, 10**6, seed_generator(trainer.device, 0)))
    if isinstance(recipe, CDAE):
        cross_entropy = binary_cross_entropy_with_logits(torch.from_numpy(expected), x, reduction="none")
        assert loss == pytest.approx(float(cross_entropy.sum(1).mean()), rel=1e-6)
    elif isinstance(recipe, MultDAE):
        negative_log_likelihood = -(x * torch.from_numpy(expected).log_softmax(1)).sum(1).mean()
        assert loss == pytest.approx(float(negative_log_likelihood), rel=1e-6)
    else:
        assert np.isfinite(loss)


@each_autoencoder
def test_autoencoders_learn_and_resume_to_the_same_bits(recipe, tmp_path):
    recipe = replace(recipe, n_epochs=60, learning_rate=0.02, halve_after=1000)
    epochs = list(recipe.epochs(GROUPS))
    objectives, whole = [epoch.objective for epoch in epochs], epochs[-1].model
    assert np.mean(objectives[-5:]) < objectives[0]
    assert fraction_in_group(whole) > 0.7
    replace(recipe, n_epochs=30).fit(GROUPS, scratch=tmp_path)
    assert np.array_equal(recipe.fit(GROUPS, scratch=tmp_path).scores(GROUPS), whole.scores(GROUPS))


def test_the_divergence_is_that_of_normal_distributions():
    """Against a Monte Carlo estimate."""
    recipe = MultVAE(rank=2, hidden=3, divergence=1.0, warm_up=4, batch_size=M)
    trainer = AutoencoderTrainer(recipe, EVENTS, recipe.initial_state(EVENTS, np.float64))
    assert [trainer.divergence_weight(number) for number in (0, 1, 3, 9)] == [0.25, 0.5, 1, 1]
    zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in recipe.shapes(EVENTS).items()}
    zero["bias1"] = torch.tensor([0.3, -0.5, 0.2, 0.4], dtype=torch.float64)  # means and log-variances
    uniform_loss = float(np.diff(X.indptr).mean() * log(N))  # of scores that are all 0
    divergence = float(trainer.batch_loss(zero, torch.arange(M), 99, seed_generator(trainer.device, 0))) - uniform_loss
    mean, deviation = np.array([0.3, -0.5]), np.exp(np.array([0.2, 0.4]) / 2)
    z = mean + deviation * np.random.default_rng(0).standard_normal((400_000, 2))
    log_ratio = (-((z - mean) ** 2) / (2 * deviation**2) - np.log(deviation) + z**2 / 2).sum(1)
    assert divergence == pytest.approx(log_ratio.mean(), abs=0.01)
