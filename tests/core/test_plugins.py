"""A model from outside the package: registered by one line, it saves, loads, tunes, is evaluated, listed and served."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gramian as gr

PLUGIN = Path(__file__).parent / "outside" / "item_cosine.py"
RUN = """
import json, sys
import gramian as gr
from gramian.core.registry import load_plugins
events = gr.datasets.load("movielens", min_value=4).k_core(10)
split = gr.split.strong(events, validation_users=0, test_users=0.2)
load_plugins()
ItemCosine = gr.MODELS.find("itemcosine")
search = gr.tune(ItemCosine, split, metric="ndcg@20")
model = search.fit(split.train)
model.save(sys.argv[1])
report = gr.evaluate(gr.load(sys.argv[1]), split, ["ndcg@20", "reciprocal_hits@5"])
popular = gr.evaluate(gr.Popularity().fit(split.train), split)
print(json.dumps([report["ndcg@20"], popular["ndcg@20"], report["reciprocal_hits@5"], search.value, str(search.recipe)]))
"""


def run(code, *arguments, plugins=""):
    environment = {**os.environ, "GRAMIAN_PLUGINS": plugins}
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside") / "model"
    done = run(RUN, folder, plugins=str(PLUGIN))
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_it_tunes_saves_loads_and_is_evaluated(saved):
    _, (ndcg, popular, hits, value, spec) = saved
    assert ndcg > popular
    assert ndcg == pytest.approx(value)
    assert 0 < hits <= 1
    assert spec.startswith("ItemCosine(")


def test_without_its_registration_the_folder_says_what_is_missing(saved, refused):
    with refused(gr.errors.NotRegistered, "gramian.register"):
        gr.load(saved[0])


def test_it_is_served(saved):
    code = """
import sys
from fastapi.testclient import TestClient
from gramian.service.app import create_app
with TestClient(create_app([sys.argv[1]]), base_url="http://127.0.0.1") as client:
    items = [item["item"] for item in client.get("/items", params={"limit": 3}).json()["items"]]
    answer = client.post("/recommend", json={"history": items, "k": 4}).json()
    print(len(answer["items"]), client.get("/models").json()["models"][0]["recipe"]["name"])
"""
    done = run(code, saved[0], plugins=str(PLUGIN))
    assert done.stdout.split() == ["4", "ItemCosine"], done.stderr


def test_a_plugin_that_is_not_there_is_named(tmp_path):
    done = run("import gramian as gr; gr.MODELS.find('nothing')", plugins=str(tmp_path / "none.py"))
    assert "a plugin at" in done.stderr


def test_a_name_is_taken_once(refused):
    class EASE(gr.EASE):
        pass

    with refused(gr.errors.InvalidInput, "EASE"):
        gr.register(EASE)
    with refused(gr.errors.InvalidInput, "Subclass"):
        gr.register(object())
