"""Experiment files: every one of the papers' is sound and complete, and mistakes in a file are refused."""

import csv
import math
import re
from pathlib import Path

import pytest

import gramian as gr
from gramian.experiments.experiment import find_experiment, list_grid, papers

SHARED = Path(__file__).resolve().parents[3] / "shared"
PUBLISHED = SHARED / "published" / "published_results.csv"


@pytest.mark.parametrize("name", papers())
def test_every_experiment_file_is_sound(name):
    experiment = find_experiment(name)
    assert experiment.title
    assert experiment.data
    assert experiment.models or experiment.curves
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
    table6 = {key: ours.pop(key) for key in list(ours) if key[:2] == ("regularization-landscape-tables5-7", "netflix")}
    filters = {key: ours.pop(key) for key in list(ours) if key[0].startswith("filters-")}  # figures of several papers
    assert ours == theirs
    assert len(table6) == 49  # these two the file of published figures does not have
    assert filters["filters-lightgcn", "gowalla", "ChebyCF", "recall@20"] == (0.1941, False)
    assert filters["filters-validation", "amazon-beauty-m1", "SimpleX (BARS)", "recall@20"] == (0.1721, False)


def test_table_6_is_that_of_the_paper():
    papers_text = sorted((SHARED / "papers").glob("001_*.txt"))
    if not papers_text:
        pytest.skip(f"the paper is not here: no file in {SHARED / 'papers'}")
    after = papers_text[0].read_text().partition("Table 6: netflix")[2].partition("E.3")[0]
    rows = [line.replace("P\t", "").split() for line in after.splitlines()[1:]]
    l2s, *lines = [row for row in rows if len(row) >= 7]
    theirs = {
        f"DLAE(dropout={float(dropout):g},l2={l2})": [float(figure)]
        for dropout, *figures in lines
        for l2, figure in zip(l2s, figures, strict=True)
    }
    entries = find_experiment("regularization-landscape-tables5-7").models
    ours = {entry.name: entry.published["netflix"] for entry in entries if "netflix" in entry.published}
    assert ours == theirs
    for entry in entries:
        ((recipe,),) = [[str(point) for point in entry.search_points(data)] for data in list(entry.published)[:1]]
        dropout, l2 = re.findall(r"=([\d.]+)", entry.name)
        assert recipe == str(gr.DLAE(dropout=float(dropout), l2=float(l2)))


def test_a_grid_in_the_units_of_the_paper():
    """λ of the DEQL paper is l2·q²·(p·a² + q·b²)."""
    grid = {"from_paper": {"a": 1, "b": [0.5, 2], "p": 0.8, "lam": [10, 20], "zero_diagonal": True}}
    points = list_grid(gr.DEQL, grid)
    assert [(point.kept_weight, point.dropout, point.zero_diagonal) for point in points] == 2 * [(0.5, 0.8, True)] + 2 * [
        (2, 0.8, True)
    ]
    lams = [point.l2 * 0.2**2 * (0.8 + 0.2 * point.kept_weight**2) for point in points]
    assert lams == pytest.approx([10, 20, 10, 20])
    both = list_grid(gr.DEQL, [grid, {"dropout": 0.1, "l2": [5], "kept_weight": 1, "zero_diagonal": False}])
    assert both == [*points, gr.DEQL(0.1, 1, 5)]


@pytest.mark.parametrize("name", ["deql-table1", "deql-table2"])
def test_the_grids_of_deql_are_those_of_the_paper(name):
    """Section 5.2: b from [0.1, 0.25, …, 2.0], λ from [10, 20, …, 50, 100, 300, 500], p from [0.1, …, 0.5, 0.8], a = 1."""
    b, lam = [0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2], [10, 20, 30, 40, 50, 100, 300, 500]
    grids = [
        part["from_paper"]
        for entry in find_experiment(name).models
        for grid in (entry.search, *entry.as_published.values())
        for part in (grid if isinstance(grid, list) else [grid or {}])
        if "from_paper" in part
    ]
    assert grids
    for grid in grids:
        assert grid["a"] == 1
        assert set(grid["b"]) <= set(b)
        for axis, values in (("p", [0.1, 0.2, 0.3, 0.4, 0.5, 0.8]), ("lam", [0, *lam])):
            assert set(grid[axis] if isinstance(grid[axis], list) else [grid[axis]]) <= set(values)
        if name == "deql-table1":
            assert (grid["b"], grid["lam"] in (0, lam)) == (b, True)


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
        (("[[model]]", CURVE.replace("rank", "l2") + "[[model]]"), "the `values` of another parameter"),
        (("[[model]]", CURVE.replace("rank", "l2") + "values = [1, -2]\n[[model]]"), "l2 of LRR"),
        (("[[model]]", CURVE.replace("rank", "l3") + "values = [1, 2]\n[[model]]"), "a parameter of LRR"),
        (("[[model]]", CURVE.replace("rank", "l2") + "values = ['a']\n[[model]]"), "the `values` of another parameter"),
        (("[[model]]", CURVE + "seeds = 2\n[[model]]"), "'seed'"),
        (("[[model]]", CURVE + "seeds = 0\n[[model]]"), "at least one seed"),
        (("[[model]]", CURVE.replace("rank", "epoch") + "[[model]]"), "epoch of LRR"),
        (("[[model]]", CURVE.replace("LRR", "IALS") + "[[model]]"), "rank of IALS"),
        (("[[model]]", CURVE.replace('"rank"', '"epoch"') + "search = {l2 = [1]}\n[[model]]"), "epoch of LRR"),
        (("[[model]]", CURVE + "search = {l3 = [1]}\n[[model]]"), "parameters of LRR"),
        (("l2 = [10, 100]", "from_paper = {b = 1}"), "EASE.from_paper (which it does not have)"),
        (("published =", "as_published = {netflix = {l2 = 5}}\npublished ="), "as_published for a model"),
        (("published =", "as_published = {movielens = {l3 = 5}}\npublished ="), "parameters of EASE"),
        (("published =", 'refine = "one l2 per factor"\npublished ='), "a refinement of LRR"),
        (("[[model]]", '[[claim]]\nsays = "s"\n[[model]]'), "a claim with a verdict"),
        (("[[model]]", '[[claim]]\nsays = "s"\nverdict = "maybe"\n[[model]]'), "holds, does not hold, cannot be tested here"),
        (("[[model]]", '[[claim]]\nsays = "s"\nbetter = "EASE"\nthan = "X"\n[[model]]'), "two models of the table"),
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
