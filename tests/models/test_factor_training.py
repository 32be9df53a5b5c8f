"""Training of factor models: checkpoints, seeds, searches over epochs, memory, and rows without interactions."""

import os
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.core.epochs import EpochRecipe
from gramian.data.synthetic import clustered
from gramian.io.checkpoints import CHECKPOINTS
from gramian.linalg.row_solvers import (
    FixedSide,
    RowProblems,
    solve_shared,
)
from gramian.models.rg import rg_loss
from models.factor_cases import EVENTS, M, N, movie_split

# epochs


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


def test_training_stops_where_validation_is_best():
    validation = movie_split().validation
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
    validation = movie_split().validation
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
    validation = movie_split().validation
    space = {"rank": [8, 5000], "l2": [0.1], "negative_weight": [0.5], "n_epochs": [2]}
    with pytest.warns(UserWarning, match="left out"):
        found = gr.tune(gr.RG2ALS, validation, space | {"solver": [gr.Cholesky(), "Subspace(size=4)"]})
    assert {str(r.recipe.solver) for r in found.results} == {"Cholesky()", "Subspace(size=4)"}
    assert found.frame()["solver"].to_list() == [str(r.recipe.solver) for r in found.results]


def test_rank_path_serves_rg2():
    path = gr.rank_path(gr.RG2(l2=0.2), [4, 16], movie_split())
    assert gr.evaluate(gr.RG2(rank=4, l2=0.2).fit(movie_split().train), movie_split())["ndcg@20"] == pytest.approx(
        path.reports[4]["ndcg@20"], abs=0.003
    )


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
    x[:35, :20] = np.random.default_rng(7).random((35, 20)) < 0.4
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
