"""What every backbone promises, as every registered model: it learns, resumes, saves, serves without PyTorch, and tunes."""

import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from gradient.cases import (
    EVENTS,
    GROUPS,
    NEW_HISTORIES,
    M,
    fraction_in_group,
    require_the_same_bits_after_a_stop,
    small_backbones,
)
from gramian.gradient import BPR, FactorModel, PinSage, SampledSoftmax, Softmax, YouTubeNet
from gramian.gradient.backbones import BACKBONES

LOSS = SampledSoftmax(temperature=0.3, n_negatives=8)
each_backbone = pytest.mark.parametrize("backbone", small_backbones(), ids=lambda backbone: type(backbone).__name__)


def small_recipe(backbone, **params):
    return FactorModel(backbone, LOSS, **({"n_epochs": 3, "batch_size": 64} | params))


@each_backbone
@pytest.mark.parametrize("loss", [LOSS, BPR(n_negatives=4), Softmax()], ids=lambda loss: type(loss).__name__)
def test_it_learns_the_groups(backbone, loss):
    learning_rate = 0.005 if isinstance(backbone, PinSage | YouTubeNet) else 0.02  # networks of ReLU need smaller steps
    recipe = small_recipe(backbone, n_epochs=40, learning_rate=learning_rate)
    epochs = list(replace(recipe, loss=loss).epochs(GROUPS))
    objectives = [epoch.objective for epoch in epochs]
    assert np.mean(objectives[-5:]) < objectives[0]
    assert fraction_in_group(epochs[-1].model) > 0.7


@each_backbone
def test_it_is_reproducible_and_resumes_to_the_same_bits(backbone, tmp_path):
    require_the_same_bits_after_a_stop(small_recipe(backbone, n_epochs=4), tmp_path)


@each_backbone
def test_two_threads_train_the_model_of_one(backbone):
    recipe = small_recipe(backbone)
    one, two = (recipe.fit(EVENTS, n_threads=n) for n in (1, 2))
    np.testing.assert_allclose(two.scores(EVENTS), one.scores(EVENTS), rtol=1e-3, atol=1e-4)


@each_backbone
def test_a_loaded_model_scores_as_the_saved_one_and_without_pytorch(backbone, tmp_path):
    model = small_recipe(backbone).fit(EVENTS)
    model.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.recipe == model.recipe
    assert np.array_equal(loaded.scores(EVENTS), model.scores(EVENTS))
    lists = model.recommend_for(NEW_HISTORIES, k=3)
    assert loaded.recommend_for(NEW_HISTORIES, k=3) == lists
    assert loaded.similar_items(3, k=2) == model.similar_items(3, k=2)
    assert len(model.factors()[0]) == M
    code = f"""
        import sys
        import gramian as gr
        lists = gr.load({str(tmp_path / "model")!r}).recommend_for({NEW_HISTORIES}, k=3)
        assert lists.items == {lists.items} and "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code)], check=True)


@each_backbone
def test_a_trained_users_history_has_the_list_of_that_user(backbone, refused):
    model = small_recipe(backbone).fit(EVENTS)
    users = EVENTS.users.tolist()[:10]
    known = model.recommend(users, k=5)
    assert model.recommend_for([model.history(user) for user in users], k=5).items == known.items
    with refused(gr.errors.NotSupported, "Fit it again"):
        model.forget_users(users[:1])


@each_backbone
def test_it_tunes_and_is_parsed_as_it_is_printed(backbone):
    recipe = small_recipe(backbone, n_epochs=1)
    assert FactorModel(str(backbone)).backbone == backbone
    split = gr.split.strong(EVENTS, validation_users=0, test_users=20)
    search = gr.tune(FactorModel, split, {name: [value] for name, value in recipe.params.items()}, "ndcg@5")
    assert search.recipe == recipe


@each_backbone
def test_the_memory_estimate_covers_the_tables_and_the_checkpoints(backbone):
    recipe = small_recipe(backbone)
    state = next(recipe.iterate(EVENTS, recipe.initial_state(EVENTS, np.float32)))
    state_bytes = sum(array.nbytes for array in state.arrays.values())
    assert recipe.fit_bytes(EVENTS, np.float32) >= 2 * state_bytes
    assert recipe.scratch_bytes(EVENTS, np.float32)[1] >= 3 * state_bytes


def require_better_than_popularity(backbone, events):
    """As tests/contracts/test_defaults.py, on the same data."""
    split = gr.split.strong(events.k_core(20), seed=0)
    popularity = gr.evaluate(gr.Popularity().fit(split.train), split, ["ndcg@20"])["ndcg@20"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FactorModel(backbone()).fit(split.train)
    assert gr.evaluate(model, split, ["ndcg@20"])["ndcg@20"] >= popularity


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda backbone: backbone.__name__)
def test_defaults_beat_popularity_on_the_bundled_data(backbone):
    require_better_than_popularity(backbone, gr.datasets.load("movielens", min_value=4))


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda backbone: backbone.__name__)
def test_defaults_beat_popularity_on_lastfm(backbone, shared_data):
    require_better_than_popularity(backbone, gr.datasets.load("lastfm-2k"))
