"""Saved models: they load to the same scores, serve without PyTorch, and are checked for damage."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gramian as gr
from gradient.cases import EVENTS, NEW_HISTORIES, RECIPES, M, N, recipe_for, recipe_id
from gramian.gradient import CDAE, SML
from gramian.gradient.backbones import score_geometry, scoring_rows


@pytest.mark.parametrize("recipe", RECIPES, ids=recipe_id)
def test_a_loaded_model_scores_as_the_saved_one(recipe, tmp_path):
    model = recipe.fit(EVENTS)
    model.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.recipe == recipe
    assert np.array_equal(loaded.scores(EVENTS), model.scores(EVENTS))
    assert loaded.recommend_for(NEW_HISTORIES, k=3) == model.recommend_for(NEW_HISTORIES, k=3)
    assert loaded.similar_items(3, k=2) == model.similar_items(3, k=2)
    users, items = model.factors()
    assert len(users) == M
    assert len(items) == N
    user_rows, item_rows = users, getattr(model.scorer, "rows", items)
    if hasattr(recipe, "loss"):
        user_rows = scoring_rows(users, score_geometry(recipe.backbone, recipe.loss.uses_distances), "user")
    np.testing.assert_allclose(user_rows @ item_rows.T, model.scores(EVENTS), atol=1e-4)


def test_a_saved_model_serves_without_pytorch(tmp_path):
    """In a process where torch cannot be imported."""
    expected = {}
    for recipe in RECIPES:
        name = recipe_id(recipe)
        model = recipe.fit(EVENTS)
        model.save(tmp_path / name)
        lists = model.recommend_for(NEW_HISTORIES, k=3)
        expected[name] = [lists.items, model.recommend(EVENTS.users.tolist()[:4], k=3).items]
    code = """
        import sys, json

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "torch":
                    raise ModuleNotFoundError("no torch here", name="torch")

        sys.meta_path.insert(0, Absent())
        import gramian as gr
        from gramian.gradient import MF, CCL, FactorModel, MultVAE
        recommended = {}
        for name in sys.argv[2:]:
            model = gr.load(f"{sys.argv[1]}/{name}")
            lists = model.recommend_for([[0, 3, 9], [1, 4, 10, 13], [2]], k=3)
            recommended[name] = [lists.items, model.recommend(model.users[:4], k=3).items]
        for recipe in (FactorModel(MF(rank=2, cosine=True), CCL()), MultVAE()):
            try:
                recipe.fit(model.histories)
            except gr.errors.NotSupported as error:
                assert "gramian[torch]" in str(error), error
            else:
                raise AssertionError
        print(json.dumps(recommended))
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path), *expected]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == expected


def test_damaged_models_are_refused():
    model = recipe_for(SML(n_negatives=4)).fit(EVENTS)
    facts, arrays = model.scorer.save()
    load = type(model.scorer).load
    for change in ({"geometry": "flat"}, {"l2": -1.0}, {"loss": {"name": "Os"}}, {"loss": "-" * 100_000}):
        with pytest.raises(gr.errors.DamagedFile):
            load(facts | change, arrays)
    broken = {
        "keys": arrays["keys"][:-1],
        "users": arrays["users"][:, :-1],
        "log_q": arrays["log_q"][:-1],
        "items": arrays["items"].astype(np.float64),
        "item_own": arrays["item_own"][:-1],  # the name of the items' margins since 0.1
    }
    for name, array in broken.items():
        with pytest.raises(gr.errors.DamagedFile):
            load(facts, arrays | {name: array})
    network = CDAE(rank=4, n_epochs=1).fit(EVENTS).scorer
    facts, arrays = network.save()
    wrong_layers = ({"activations": names} for names in (["softly"], [], ["tanh", "tanh"]))
    for change in (*wrong_layers, {"size_power": 3}, {"is_cosine": 1}):
        with pytest.raises(gr.errors.DamagedFile):
            type(network).load(facts | change, arrays)
    for name in arrays:
        with pytest.raises(gr.errors.DamagedFile):
            type(network).load(facts, arrays | {name: arrays[name][:-1]})
