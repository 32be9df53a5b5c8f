"""Whole trainings: they learn, are reproducible, resume from checkpoints, and adapt the learning rate."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from gradient.cases import (
    EVENTS,
    GROUPS,
    SMALL_EVERYTHING,
    SMALL_LOSSES,
    fraction_in_group,
    loss_id,
    recipe_for,
    require_the_same_bits_after_a_stop,
)
from gramian.gradient import (
    BPR,
    MF,
    MSE,
    ByPopularity,
    Debias,
    FactorModel,
    InBatch,
    InfoNCE,
    MINEPlus,
    RG2Loss,
    SampledSoftmax,
    Uniform,
)
from gramian.gradient.optimizer import MIN_LEARNING_RATE, LearningRateSchedule
from gramian.io.folder import read_folder


def test_rg2_by_gradients_converges_to_the_closed_form():
    recipe = FactorModel(MF(rank=3), RG2Loss(), n_epochs=400, batch_size=10_000, learning_rate=0.05, halve_after=5)
    closed = gr.RG2(rank=3, l2=0).fit(EVENTS, dtype="float64").scores(EVENTS)
    trained = recipe.fit(EVENTS, dtype="float64").scores(EVENTS)
    np.testing.assert_allclose(trained, closed, atol=0.02 * np.abs(closed).max())


@pytest.mark.parametrize("loss", [*SMALL_LOSSES, *SMALL_EVERYTHING], ids=loss_id)
def test_training_lowers_the_loss_and_learns_the_groups(loss):
    """Users and items are of three groups; a model that has learned anything recommends items of the user's group."""
    recipe = recipe_for(loss, n_epochs=40, learning_rate=0.03)
    epochs = list(recipe.epochs(GROUPS))
    objectives = [epoch.objective for epoch in epochs]
    assert np.mean(objectives[-5:]) < objectives[0]
    assert fraction_in_group(epochs[-1].model) > 0.7


@pytest.mark.parametrize("loss", [*SMALL_LOSSES, *SMALL_EVERYTHING], ids=loss_id)
def test_trainings_are_reproducible_and_resume_to_the_same_bits(loss, tmp_path):
    require_the_same_bits_after_a_stop(recipe_for(loss, n_epochs=4), tmp_path)


@pytest.mark.parametrize("sampler", [Uniform(shared=True), ByPopularity(power=0.5), InBatch()], ids=str)
@pytest.mark.parametrize("loss", [SampledSoftmax(n_negatives=8), BPR(n_negatives=8), MSE(n_negatives=8)], ids=loss_id)
def test_training_learns_with_every_sampler(loss, sampler):
    recipe = recipe_for(replace(loss, sampler=sampler), n_epochs=30, learning_rate=0.03)
    assert fraction_in_group(recipe.fit(GROUPS)) > 0.7


def test_debiased_info_nce_is_finite_at_low_temperatures():
    for t in (0.3, 0.02, 0.005, 0.001):
        recipe = recipe_for(InfoNCE(temperature=t, n_negatives=8, debiased=Debias(prior=0.2)))
        assert np.isfinite(recipe.fit(EVENTS).scores(EVENTS)).all()


def test_later_epochs_do_not_change_earlier_models():
    recipe = recipe_for(MINEPlus(n_negatives=8))
    first, *_ = epochs = list(recipe.epochs(EVENTS))
    assert not np.array_equal(first.model.scores(EVENTS), epochs[-1].model.scores(EVENTS))
    alone = replace(recipe, n_epochs=1).train(EVENTS)
    assert np.array_equal(first.model.scores(EVENTS), alone.model.scores(EVENTS))


def test_the_learning_rate_is_halved_without_improvement(tmp_path):
    recipe = recipe_for(MINEPlus(n_negatives=8), n_epochs=9, halve_after=2)
    epochs = recipe.epochs(EVENTS, scratch=tmp_path)
    validation_score = None
    for next_score in (0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5):
        epochs.send(validation_score)
        validation_score = next_score
    epochs.send(validation_score)
    epochs.close()
    facts, _, _ = read_folder(tmp_path / "gramian-epoch-even", "checkpoint")
    assert facts["facts"]["rate"] == recipe.learning_rate / 4  # after (0.4, 0.4) and (0.5, 0.5), not yet after the last


def test_the_learning_rate_has_a_minimum_and_losses_are_not_compared_with_metrics():
    schedule = LearningRateSchedule(1.0, 1, {})
    for _ in range(20):
        schedule.observe(0, -1.0)
    assert schedule.rate == MIN_LEARNING_RATE
    schedule.observe(None, -5.0)  # a loss after metrics starts anew
    assert (schedule.best, schedule.stale_epochs) == (5.0, 0)


def test_an_epoch_path_resumes_with_its_reports_and_its_best_model(tmp_path):
    split = gr.split.weak(EVENTS, validation=0, test=0.2)
    recipe = recipe_for(MINEPlus(n_negatives=8), n_epochs=6, halve_after=1)
    whole = gr.epoch_path(recipe, split, patience=10)
    partial = gr.epoch_path(replace(recipe, n_epochs=3), split, patience=10, scratch=tmp_path)
    assert list(partial.reports) == [1, 2, 3]
    resumed = gr.epoch_path(recipe, split, patience=10, scratch=tmp_path)
    assert resumed.frame().equals(whole.frame())
    assert np.array_equal(resumed.model.scores(EVENTS), whole.model.scores(EVENTS))
    again = gr.epoch_path(recipe, split, patience=10, scratch=tmp_path)  # already complete
    assert again.frame().equals(whole.frame())
    assert np.array_equal(again.model.scores(EVENTS), whole.model.scores(EVENTS))


@pytest.mark.parametrize("loss", [MINEPlus(n_negatives=8), RG2Loss()], ids=loss_id)
def test_a_stopped_or_interrupted_epoch_path_resumes_to_the_same_reports(loss, tmp_path, monkeypatch):
    split = gr.split.weak(EVENTS, validation=0, test=0.2)
    recipe = recipe_for(loss, n_epochs=8, halve_after=1, learning_rate=0.03)
    whole = gr.epoch_path(recipe, split, patience=20)
    gr.epoch_path(recipe, split, patience=1, scratch=tmp_path / "stopped")
    assert gr.epoch_path(recipe, split, patience=20, scratch=tmp_path / "stopped").frame().equals(whole.frame())
    module = sys.modules["gramian.tuning.epoch_path"]
    calls, evaluate = [], module.evaluate

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(*args, **kwargs)

    monkeypatch.setattr(module, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gr.epoch_path(recipe, split, patience=20, scratch=tmp_path / "cut")
    resumed = gr.epoch_path(recipe, split, patience=20, scratch=tmp_path / "cut")
    assert resumed.frame().equals(whole.frame())
    assert np.array_equal(resumed.model.scores(EVENTS), whole.model.scores(EVENTS))


def test_the_scratch_folder_of_another_epoch_path_is_refused(tmp_path, refused):
    split = gr.split.weak(EVENTS, validation=0, test=0.2)
    recipe = recipe_for(MINEPlus(n_negatives=8), n_epochs=1)
    gr.epoch_path(recipe, split, scratch=tmp_path)
    for other in (replace(recipe, seed=3), gr.IALS(rank=4, n_epochs=1)):
        with refused(mentioning="another"):
            gr.epoch_path(other, split, scratch=tmp_path)
    with refused(mentioning="metrics"):
        gr.epoch_path(recipe, split, ["recall@5"], scratch=tmp_path)
    with refused():
        gr.epoch_path(recipe, split, dtype="float64", scratch=tmp_path)
