"""Experiment files: every one of the papers' is sound and complete, and mistakes in a file are refused."""

import csv
import math
import re
from pathlib import Path

import pytest

import gramian as gr
from gramian.experiments.experiment import find_experiment, papers

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "published" / "published_results.csv"


@pytest.mark.parametrize("name", papers())
def test_every_experiment_file_is_sound(name):
    experiment = find_experiment(name)
    assert experiment.title
    assert experiment.data
    assert experiment.models
    assert all(math.isnan(x) or x > 0 for entry in experiment.models for figures in entry.published.values() for x in figures)


def test_experiment_files_have_every_published_figure():
    if not PUBLISHED.exists():
        pytest.skip(f"the published figures are not here: no file {PUBLISHED}")
    ours = {}
    for name in papers():
        experiment = find_experiment(name)
        for entry in experiment.models:
            for data, figures in entry.published.items():
                for metric, figure in zip(experiment.metrics, figures, strict=True):
                    if not math.isnan(figure):
                        ours[name, data, entry.name, metric] = (figure, experiment.on == "validation")
    with PUBLISHED.open() as file:
        theirs = {(f"{r['paper']}-{r['table']}", r["dataset"], r["model"], r["metric"]):
                  (float(r["value"]), "validation" in r["protocol"]) for r in csv.DictReader(file)}  # fmt: skip
    assert ours == theirs


GOOD_FILE = """
title = "t"
metrics = {"ndcg@20" = "ndcg@20"}
[data.movielens]
split = "strong"
[[model]]
name = "EASE"
recipe = "EASE"
search = {l2 = [10, 100]}
published = {movielens = [0.5]}
"""

CURVE = """[[curve]]
data = "movielens"
along = "rank"
recipe = "LRR"
params = {l2 = 7}
"""


@pytest.mark.parametrize(
    ("change", "mentioning"),
    [
        (("[data.movielens]", "[data.movielens]\nsplits = 3"), "splits"),
        (("title", "titel"), "titel"),
        (("[0.5]", "[0.5, 0.6]"), "1 figures of EASE"),
        (("{movielens = [0.5]}", "{netflix = [0.5]}"), "a data set of the table"),
        (('recipe = "EASE"', 'recipe = "ESAE"'), "a model among"),
        (("l2 = [10, 100]", "l3 = [10, 100]"), "parameters of EASE"),
        (("l2 = [10, 100]", "l2 = [-10]"), "l2 of EASE"),
        (('"ndcg@20"}', '"ncdg@20"}'), "'ncdg'"),
        (("[[model]]", CURVE.replace("rank", "time") + "[[model]]"), "a curve along the ranks of a low-rank model"),
        (("[[model]]", CURVE.replace("7", "-1") + "[[model]]"), "l2 of LRR"),
        (("[[model]]", CURVE.replace("rank", "epoch") + "[[model]]"), "epoch of LRR"),
        (('split = "strong"', 'split = "strung"'), "a split among strong"),
        (('split = "strong"', 'split = "strong"\noptions = {tset = 0.1}'), "strong with tset"),
        (("title", 'on = "train"\ntitle'), "figures on test or validation"),
        (
            ('metrics = {"ndcg@20" = "ndcg@20"}', 'metrics = {"c" = "coverage@20"}\nchoose = "coverage@20"'),
            "a value for each user",
        ),
    ],
)
def test_an_experiment_file_with_a_mistake_is_refused(tmp_path, change, mentioning):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_FILE)
    assert find_experiment(str(path)).models[0].published == {"movielens": [0.5]}
    path.write_text(GOOD_FILE.replace(*change, 1))
    with pytest.raises(gr.errors.GramianError, match=re.escape(mentioning)):
        find_experiment(str(path))


def test_files_that_are_not_experiments_are_refused(tmp_path, refused):
    with refused(gr.errors.UnknownId, "a table among"):
        find_experiment("no-such-table")
    with refused(gr.errors.MissingFile, "nowhere.toml"):
        find_experiment(str(tmp_path / "nowhere.toml"))
    (tmp_path / "bad.toml").write_text("title = ")
    with refused(gr.errors.DamagedFile, "TOML in"):
        find_experiment(str(tmp_path / "bad.toml"))
    (tmp_path / "empty.toml").write_text("")
    with refused(gr.errors.DamagedFile, "an experiment in"):
        find_experiment(str(tmp_path / "empty.toml"))


def test_a_part_of_a_table_is_selected(refused):
    whole = find_experiment("deql-table2")
    some = whole.select(["gowalla"], ["EASE", "DLAE"])
    assert [data.name for data in some.data] == ["gowalla"]
    assert [entry.name for entry in some.models] == ["DLAE", "EASE"]
    assert whole.select([], []) == whole
    with refused(gr.errors.UnknownId, "a data set of deql-table2"):
        whole.select(["nowhere"], [])
    with refused(gr.errors.UnknownId, "a model of deql-table2"):
        whole.select([], ["ease"])
