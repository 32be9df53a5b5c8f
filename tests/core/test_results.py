"""What a user sees and passes on: short reprs, notebook tables, data frames, and scikit-learn's habits."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import gramian as gr
from gramian.gradient import CCL, FactorModel

HOSTILE = '<script>alert("1")</script>'


@pytest.fixture(scope="module")
def model(events):
    titles = {item: f"{title} {HOSTILE}" for item, title in zip(events.items.tolist(), events.titles, strict=True)}
    return gr.EASE(l2=1).fit(events.with_titles(titles))


@pytest.fixture(scope="module")
def objects(events, model):
    split = gr.split.weak(events)
    report = gr.evaluate(gr.Popularity().fit(split.train), split)
    return {
        "report": report,
        "recommendations": model.recommend_for([["A", HOSTILE], []], k=2),
        "explanation": model.explain(["A", "B", HOSTILE], "D"),
        "search": gr.tune(gr.EASE, split.validation, {"l2": [1, 5]}),
        "comparison": gr.compare({HOSTILE: report}),
    }


NAMES = ["report", "recommendations", "explanation", "search", "comparison"]


@pytest.mark.parametrize("name", NAMES)
def test_results_have_a_short_repr_and_a_table_for_notebooks(objects, name):
    value = objects[name]
    assert repr(value).startswith(type(value).__name__ + "(")
    assert len(repr(value)) < 400
    html = value._repr_html_()
    assert "<table>" in html
    assert "<script" not in html


def test_titles_and_ids_are_escaped(objects, model, events):
    for value in (objects["recommendations"], objects["explanation"], model, model.histories):
        html = value._repr_html_()
        assert "<script" not in html
        assert "<table>" in html
    assert "&lt;script&gt;" in objects["recommendations"]._repr_html_()
    assert "&lt;script&gt;" in model.histories._repr_html_()
    assert "&lt;script&gt;" in objects["explanation"]._repr_html_()
    assert "users" in events._repr_html_()


@pytest.mark.parametrize("name", NAMES)
def test_results_become_frames_of_other_libraries(objects, name):
    value = objects[name]
    frame = value.frame()
    assert isinstance(frame, pl.DataFrame)
    assert isinstance(value.frame("pandas"), pd.DataFrame)
    assert isinstance(value.frame("arrow"), pa.Table)
    assert list(value.frame("pandas").columns) == frame.columns == value.frame("arrow").column_names
    with pytest.raises(gr.errors.InvalidInput, match="polars, pandas, arrow"):
        value.frame("spark")


def test_a_missing_package_is_named(objects, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(gr.errors.NotSupported, match="Install pandas"):
        objects["report"].frame("pandas")


def test_pandas_in_pandas_out(model):
    table = pd.DataFrame({"user": ["x", "x", "y"], "item": ["A", "B", "C"]})
    lists = model.recommend_for(gr.Interactions.of(table), k=2).frame("pandas")
    assert lists["user"].unique().tolist() == ["x", "y"]


def test_an_explanation_shows_the_strongest_and_sums_up_the_rest():
    explanation = gr.Explanation({f"item {n}": float(10 - n) for n in range(8)}, unknown=["z"])
    assert repr(explanation).count("item") == 5
    assert "3 others: +12.0000" in repr(explanation)
    assert "score 52.0000" in repr(explanation)
    assert explanation.frame().columns == ["item", "contribution"]


def test_only_the_first_lists_are_shown(model):
    lists = model.recommend_for([["A"]] * 30, k=1)
    assert repr(lists) == "Recommendations(30 lists of up to 1 items)"
    html = lists._repr_html_()
    assert html.count("<tr>") == 1 + 5
    assert "first 5 of 30" in html
    assert "<table>" in model.recommend_for([])._repr_html_()


def test_unknown_and_fallback_are_said_in_a_notebook(model):
    html = model.recommend_for([["A", "no such item"], ["nor this"]], k=1)._repr_html_()
    assert "history 0: ignored, because the model does not know them: no such item" in html
    assert "history 1: no item that the model knows" in html


def test_paths_have_short_reprs(events):
    split = gr.split.strong(gr.Interactions.of(np.random.default_rng(0).random((40, 12)) < 0.5), validation_users=0)
    path = gr.rank_path(gr.LRR(l2=1), [2, 3], split)
    assert repr(path) == "RankPath(LRR(l2=1) at ranks 2, 3)"
    epochs = gr.epoch_path(gr.IALS(rank=2, n_epochs=2), split, ["ndcg@20"])
    assert repr(epochs).startswith("EpochPath(IALS(")
    assert isinstance(path.frame("pandas"), pd.DataFrame)
    assert isinstance(epochs.frame("pandas"), pd.DataFrame)


RECIPES = [gr.EDLAE(l2=7), gr.LRR(rank=3, l2=(1, 2, 3)), gr.IALS(), FactorModel(loss=CCL(margin=0.5))]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_recipes_follow_scikit_learn(recipe):
    assert clone(recipe) == recipe
    assert recipe.get_params(deep=False) == recipe.params
    assert type(recipe)(**recipe.get_params(deep=False)) == recipe
    assert recipe.set_params() == recipe
    assert recipe.set_params(**recipe.get_params()) == recipe


def test_set_params_returns_another_recipe():
    recipe = gr.EDLAE(l2=7)
    assert recipe.set_params(l2=9) == gr.EDLAE(l2=9)
    assert recipe.l2 == 7
    with pytest.raises(gr.errors.InvalidInput, match=r"parameters of EDLAE \(dropout, l2\)"):
        recipe.set_params(rank=9)
    with pytest.raises(gr.errors.InvalidInput, match="dropout"):
        recipe.set_params(dropout=2)


def test_nested_parameters_are_named_with_two_underscores(refused):
    recipe = FactorModel(loss=CCL(margin=0.5))
    assert recipe.get_params()["loss__margin"] == 0.5
    changed = recipe.set_params(loss__margin=0.7, n_epochs=2)
    assert (changed.loss.margin, changed.n_epochs, recipe.loss.margin) == (0.7, 2, 0.5)
    with refused(gr.errors.InvalidInput, "no_such"):
        recipe.set_params(loss__no_such=1)
    with refused(gr.errors.InvalidInput, "seed__x"):
        recipe.set_params(seed__x=1)
