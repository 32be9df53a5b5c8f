"""Recipes: parameters, what they refuse, memory estimates, and the command line."""

import inspect
import json
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import gramian as gr
from gradient.cases import BIASED_LOSSES, DEBIASED_LOSSES, EVENTS, EVERYTHING_LOSSES, N, X, recipe_for
from gramian.cli.main import build_app
from gramian.core.registry import LOSSES
from gramian.gradient import (
    BPR,
    CCL,
    MF,
    MSE,
    SML,
    ByPopularity,
    Debias,
    Everything,
    FactorModel,
    InBatch,
    InfoNCE,
    LightGCN,
    MINEPlus,
    MultVAE,
    Training,
    Uniform,
)
from gramian.gradient.backbones import BACKBONES
from gramian.gradient.samplers import SAMPLERS


def test_invalid_parameters_are_refused(refused):
    for make, word in (
        (lambda: FactorModel(MF(), CCL()), "cosine=True for CCL"),
        (lambda: FactorModel(MF(), MINEPlus()), "cosine=True for MINEPlus"),
        (lambda: FactorModel(MF(), InfoNCE(debiased=Debias())), "debiased InfoNCE"),
        (lambda: FactorModel(MF(cosine=True), SML()), "cosine=False"),
        (lambda: FactorModel(MF(), BPR(sampler=Everything())), "draws for BPR"),
        (lambda: FactorModel(MF(), SML(sampler=Everything())), "draws for SML"),
        (lambda: FactorModel(loss="CCL(margin=2)"), "margin of CCL"),
        (lambda: FactorModel(loss="nonsense"), "loss of FactorModel"),
        (lambda: FactorModel(loss="CCL(__import__('os'))"), "loss of FactorModel"),
        (lambda: FactorModel(loss="-" * 100_000 + "1"), "loss of FactorModel"),
        (lambda: FactorModel(loss={"name": "BPR", "params": None}), "loss of FactorModel"),
        (lambda: ByPopularity(power=50), "power"),
        (lambda: FactorModel(backbone="mf(rank=0)"), "rank of MF"),
        (lambda: CCL(debiased=Debias(prior=1)), "prior of Debias"),
        (lambda: CCL(debiased=3), "or None"),
        (lambda: BPR(n_negatives=0), "n_negatives"),
        (lambda: BPR(sampler="softly"), "sampler"),
        (lambda: FactorModel(device="gpu"), "device"),
        (lambda: FactorModel(batch_size=0), "batch_size"),
        (lambda: FactorModel(MF(rank=N)).fit(EVENTS), "rank"),
        (lambda: FactorModel(MF(rank=4)).fit(gr.Interactions.of(X * 2)), "0/1"),
        (lambda: MultVAE(dropout=1), "dropout"),
        (lambda: FactorModel(weight_decay=-1), "weight_decay"),
        (lambda: FactorModel(training="training(dropout=1)"), "dropout of Training"),
        (lambda: FactorModel(training=Training(max_norm=0)), "max_norm of Training"),
        (lambda: FactorModel(training=Training(plateau_factor=2)), "plateau_factor of Training"),
    ):
        with refused(mentioning=word):
            make()
    if not torch.cuda.is_available():
        with refused(gr.errors.NotSupported, mentioning="GPU"):
            FactorModel(MF(rank=4), device="cuda").fit(EVENTS)
    with refused(gr.errors.Diverged, mentioning="finite"):
        FactorModel(MF(rank=4), MSE(n_negatives=4), learning_rate=1e30, batch_size=64).fit(EVENTS)


@pytest.mark.parametrize(
    ("recipe", "signature"),
    [
        (
            FactorModel,
            [
                *("backbone", "loss", "n_epochs", "batch_size", "learning_rate", "l2", "halve_after", "seed", "device"),
                *("weight_decay", "training"),
            ],
        ),
        (MF, ["rank", "cosine"]),
        (LightGCN, ["rank", "n_layers", "cosine"]),
        (Training, ["initial_sd", "dropout", "max_norm", "max_length", "plateau_factor", "reload_best"]),
        (Debias, ["positives", "prior", "hidden_share", "hidden_items", "weigh_positives"]),
        (MINEPlus, ["temperature", "weight", "n_negatives", "sampler"]),
        (BPR, ["temperature", "n_negatives", "sampler"]),
        (CCL, ["margin", "weight", "n_negatives", "sampler", "debiased"]),
        (MSE, ["weight", "n_negatives", "sampler", "debiased"]),
        (InfoNCE, ["temperature", "weight", "n_negatives", "sampler", "debiased"]),
    ],
)
def test_recipes_have_the_promised_parameters(recipe, signature):
    assert list(inspect.signature(recipe).parameters) == signature


def test_importing_the_package_does_not_import_pytorch():
    code = "import sys, gramian as gr; gr.gradient.FactorModel(); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False"]


def test_losses_and_backbones_are_parsed_as_they_are_printed():
    with_samplers = [CCL(sampler=ByPopularity(power=0.5, shared=True)), BPR(sampler=InBatch())]
    for loss in (*BIASED_LOSSES, *DEBIASED_LOSSES, *with_samplers, *EVERYTHING_LOSSES):
        recipe = recipe_for(loss)
        assert FactorModel(str(recipe.backbone), str(loss)).loss == loss
        assert FactorModel(**recipe.to_json()["params"]) == replace(recipe, n_epochs=3)
        assert json.loads(json.dumps(recipe.to_json())) == recipe.to_json()
    assert {type(loss) for loss in BIASED_LOSSES} == set(LOSSES.values())


@pytest.mark.parametrize("part", [*gr.MODELS.values(), Debias, Training, *LOSSES.values(), *BACKBONES, *SAMPLERS])
def test_every_part_and_every_parameter_is_documented(part):
    assert inspect.cleandoc(part.__doc__)
    assert part.__doc__ != f"{part.__name__}()"  # what dataclass writes without a docstring
    assert all(f.metadata["about"] for f in fields(part))


def test_memory_estimates_cover_a_step_and_the_checkpoints():
    shared, own = (FactorModel(MF(rank=8), BPR(n_negatives=50, sampler=Uniform(shared=s))) for s in (True, False))
    draws = min(2048, EVENTS.n_interactions) * 50 * 8
    assert own.fit_bytes(EVENTS, np.float32) - shared.fit_bytes(EVENTS, np.float32) >= 2 * draws
    by_user = recipe_for(CCL(sampler=Everything()), backbone=MF(rank=8))
    assert by_user.fit_bytes(EVENTS, np.float32) >= 2 * by_user.max_users_per_batch(EVENTS) * N * 4
    for recipe in (shared, by_user, recipe_for(SML(), backbone=MF(rank=8)), MultVAE(rank=4, hidden=6)):
        state = next(recipe.iterate(EVENTS, recipe.initial_state(EVENTS, np.float32)))
        state_bytes = sum(array.nbytes for array in state.arrays.values())
        assert recipe.fit_bytes(EVENTS, np.float32) >= 2 * state_bytes
        assert recipe.scratch_bytes(EVENTS, np.float32)[1] >= 3 * state_bytes


def test_too_little_memory_is_refused_before_allocating(monkeypatch, refused):
    monkeypatch.setattr("gramian.linalg.memory.available_bytes", lambda: 1000)
    for recipe in (recipe_for(BPR()), MultVAE()):
        with refused(gr.errors.NotEnoughMemory):
            recipe.fit(EVENTS)


def test_the_command_line_fits_recommends_and_follows_epochs(tmp_path):
    runner, model = CliRunner(), tmp_path / "model"
    loss = "ccl(margin=0.5, weight=20, n_negatives=32, debiased=debias(positives=3))"
    options = ["movielens", "--min-value", "4", "--k-core", "20", "--model", "factormodel", "--n-epochs", "2"]
    options += ["--backbone", "mf(rank=8, cosine=True)"]
    result = runner.invoke(build_app(), ["fit", *options, "--loss", loss, "--out", str(model), "--json"])
    assert result.exit_code == 0, result.output
    recipe = json.loads(result.stdout)["recipe"]
    assert recipe["params"]["loss"]["params"]["debiased"]["params"]["positives"] == 3
    assert gr.load(model).recipe.loss == CCL(0.5, 20, 32, debiased=Debias(3))
    result = runner.invoke(build_app(), ["recommend", str(model), "--history", "318", "-k", "3", "--json"])
    assert result.exit_code == 0, result.output
    scratch = ["--scratch", str(tmp_path / "scratch")]
    result = runner.invoke(
        build_app(), ["epochs", *options, "--loss", "bpr(n_negatives=4)", "--metric", "ndcg@10", *scratch, "--json"]
    )
    assert result.exit_code == 0, result.output
    assert [row["epoch"] for row in json.loads(result.stdout)["epochs"]] == [1, 2]
    assert not (tmp_path / "scratch").exists()
