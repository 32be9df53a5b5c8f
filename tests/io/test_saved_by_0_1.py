"""Folders that version 0.1 wrote still load, to the same lists."""

import json
from pathlib import Path

import pytest

import gramian as gr

FOLDER = Path(__file__).parent / "saved_by_0_1"
LISTS = json.loads((FOLDER / "lists.json").read_text())


@pytest.mark.parametrize("name", LISTS)
def test_a_model_gives_the_lists_it_gave(name):
    model = gr.load(FOLDER / name)
    assert model.recommend(range(12), k=3).items == LISTS[name]["items"]
    assert (model.catalog.titles[1], model.catalog.tags[1]) == ("Title 1", ("odd",))
    assert model.histories.n_users == 12


def test_a_gram_has_the_popularity_of_its_items():
    gram = gr.Gram.load(FOLDER / "gram")
    assert gram.catalog.popularity.tolist() == gr.load(FOLDER / "ease").catalog.popularity.tolist()
    assert gr.EASE(5).fit_gram(gram).recommend_for([[0, 1]], k=3).items


def test_a_saved_model_is_of_the_newer_format(tmp_path):
    gr.load(FOLDER / "ials").save(tmp_path / "again")
    manifest = json.loads((tmp_path / "again" / "manifest.json").read_text())
    assert manifest["format"] == 2
    assert manifest["facts"]["recipe"]["params"]["rank"] == 3
