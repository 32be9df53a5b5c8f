"""`gramian demo`, `models`, `datasets` and `warm-up`, and models of plugins."""

import inspect
import json
import os
import re
import subprocess
import sys

import pytest

import gramian as gr
from command_line import gramian, ok


def test_models_are_listed_in_one_line_each_and_explained():
    shown = ok("models")
    for name, recipe in gr.MODELS.items():
        assert re.search(rf"^{name.lower()} +{re.escape(recipe.__doc__.split(maxsplit=1)[0])}", shown, flags=re.MULTILINE)
    assert ok("models", "edlae").strip() == inspect.getdoc(gr.EDLAE).strip()
    assert "dropout : float, default 0.3" in ok("models", "EDLAE")
    rows = json.loads(ok("models", "--json"))["models"]
    assert [row["name"] for row in rows] == [recipe.__name__ for recipe in gr.MODELS.values()]
    (row,) = json.loads(ok("models", "ease", "--json"))["models"]
    assert row["params"]["l2"]["default"] == 200


PLUGIN = """
import numpy as np
import gramian as gr
from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.models.scorers import GlobalScores


@gr.register
@configurable
class Alphabetical(Recipe):
    "The items in the order of their titles, for [everybody]."

    shift: float = param(0.0, "number added to every score")
    rank: float = param(0.5, "something else than a number of factors")
    out: int = param(1, "a parameter with the name of an option")

    def fit_scorer(self, events, dtype):
        return GlobalScores(np.linspace(1, 0, events.n_items, dtype=dtype) + self.shift)
"""


def test_a_model_of_a_plugin_is_listed_fitted_and_loaded(csv, tmp_path):
    (tmp_path / "plugin.py").write_text(PLUGIN)
    environment = os.environ | {"GRAMIAN_PLUGINS": str(tmp_path / "plugin.py"), "COLUMNS": "140"}

    def run(*words):
        quiet = ("-W", "error", "-W", "ignore::UserWarning")  # a list in alphabetical order is worse than Popularity
        command = [sys.executable, *quiet, "-c", "from gramian.cli.main import run; run()", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    listed = run("models")
    assert re.search(r"^alphabetical +The items in the order of their titles, for \[everybody\]\.", listed.stdout, re.MULTILINE)
    words = ["--model", "alphabetical(out=3, rank=0.25)", "--shift", 2, "--out", tmp_path / "m", "--json"]
    fitted = run("fit", csv, *words)
    assert (fitted.returncode, fitted.stderr.count("\n")) == (0, 1)  # what was read
    expected = {"name": "Alphabetical", "params": {"shift": 2.0, "rank": 0.25, "out": 3}}
    assert json.loads(fitted.stdout)["recipe"] == expected
    lists = json.loads(run("recommend", tmp_path / "m", "--history", 260, "-k", 2, "--json").stdout)["recommendations"]
    assert lists[0]["items"][0]["score"] == pytest.approx(3, abs=0.01)
    environment["GRAMIAN_PLUGINS"] = str(tmp_path / "nowhere.py")
    missing = run("models")
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
    assert "Correct GRAMIAN_PLUGINS" in missing.stderr


def test_datasets_are_listed_with_their_source():
    rows = {row["name"]: row for row in json.loads(ok("datasets", "--json"))["datasets"]}
    assert rows["movielens"]["here"]
    assert not rows["gowalla"]["here"]
    assert "LightGCN" in rows["gowalla"]["address"]
    assert "GRAMIAN_DATA" in ok("datasets")


def test_demo_shows_a_leaderboard_and_reasons():
    shown = ok("demo")
    models = re.findall(r"^(\w+).* 0\.\d{4} ±", shown, flags=re.MULTILINE)
    assert sorted(models) == ["DEQL", "DLAE", "EASE", "EDLAE", "Popularity"]
    for words in ("memory", "Return of the Jedi", "because of", "gramian fit"):
        assert words in shown


def test_demo_in_json(monkeypatch):
    load = gr.datasets.load  # fewer movies: the test above runs the demo on all of them
    monkeypatch.setattr(gr.datasets, "load", lambda name, **options: load(name, **options).k_core(20))
    found = json.loads(ok("demo", "--json"))
    assert [row["recipe"]["name"] for row in found["models"]] == ["Popularity", "EASE", "DLAE", "EDLAE", "DEQL"]
    assert found["recommendations"][0]["title"].startswith("Star Wars: Episode VI")


def test_after_a_warm_up_a_fit_compiles_nothing(tmp_path, csv):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}

    def run(*words):
        command = [sys.executable, "-c", "from gramian.cli.main import run; run()", *map(str, words)]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        return sorted(path.name for path in (tmp_path / "kernels").rglob("*.nbc"))

    compiled = run("warm-up", "popularity", "rg2")
    assert compiled
    assert run("fit", csv, "--model", "rg2(rank=4)", "--out", tmp_path / "m") == compiled
    assert run("fit", csv, "--model", "popularity", "--out", tmp_path / "n") == compiled


def test_a_warm_up_of_no_model_names_those_there_are():
    run = gramian("warm-up", "eas")
    assert run.returncode == 2
    assert "Close: ease" in run.stderr
