"""Experiments, the benchmark that runs them, its journal and its report."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.app import benchmark as running
from gramian.app import report as reports
from gramian.app.benchmark import Benchmark, key_of
from gramian.app.experiment import Curve, Data, Entry, Experiment, Given, find, most_popular, papers, parts_of
from gramian.app.report import write
from gramian.app.trial import Measured
from gramian.data.synthetic import clustered
from gramian.evaluation.breakdown import GROUPS, by_activity, by_popularity
from gramian.journal import Journal
from gramian.tuning import family, judge
from test_cli import gramian, ok

PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "published" / "published_results.csv"
EVENTS = clustered(300, 60, 6_000, n_tastes=5)
DATA = Given("some", "strong", {}, events=EVENTS)
EDLAE = Entry("EDLAE", "EDLAE", {"dropout": [0.2, 0.5], "l2": [5, 50]})
DEQL = Entry("DEQL(zero)", "DEQL", {"dropout": [0.2, 0.5], "kept_weight": [0.5, 2], "l2": [5, 50], "zero_diagonal": True})
METRICS = {"recall@20": "recall@20", "ndcg@20": "ndcg@20"}


def table(*entries, data=(DATA,), metrics=METRICS, **more):
    return Experiment("table", "A table", metrics, "ndcg@20", tuple(data), entries, **more)


@pytest.fixture
def fits(monkeypatch):
    """The recipes that were fitted, in order, compiling apart."""
    found, tested = [], running.Measured.__enter__

    def noted(self):
        found.append(self)
        return tested(self)

    monkeypatch.setattr(running.Measured, "__enter__", noted)
    monkeypatch.setattr(running, "warm_up", lambda *recipes: None)
    return found


# Experiment files


@pytest.mark.parametrize("name", papers())
def test_every_experiment_file_is_sound(name):
    found = find(name)
    assert found.title
    assert found.data
    assert found.models
    assert all(math.isnan(x) or x > 0 for entry in found.models for figures in entry.published.values() for x in figures)


def test_experiment_files_have_every_published_figure():
    if not PUBLISHED.exists():
        pytest.skip(f"the published figures are not here: no file {PUBLISHED}")
    ours = {}
    for name in papers():
        found = find(name)
        for entry in found.models:
            for data, figures in entry.published.items():
                for metric, figure in zip(found.metrics, figures, strict=True):
                    if not math.isnan(figure):
                        ours[name, data, entry.name, metric] = (figure, found.on == "validation")
    with PUBLISHED.open() as file:
        theirs = {(f"{r['paper']}-{r['table']}", r["dataset"], r["model"], r["metric"]):
                  (float(r["value"]), "validation" in r["protocol"]) for r in csv.DictReader(file)}  # fmt: skip
    assert ours == theirs


GOOD = """
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
settings = {l2 = 7}
"""


@pytest.mark.parametrize(
    ("change", "mentioning"),
    [
        (("[data.movielens]", "[data.movielens]\nsplits = 3"), "splits"),
        (("title", "titel"), "titel"),
        (("[0.5]", "[0.5, 0.6]"), "1 figures of EASE"),
        (("{movielens = [0.5]}", "{netflix = [0.5]}"), "a data set of the table"),
        (('recipe = "EASE"', 'recipe = "ESAE"'), "a model among"),
        (("l2 = [10, 100]", "l3 = [10, 100]"), "settings of EASE"),
        (("l2 = [10, 100]", "l2 = [-10]"), "l2 of EASE"),
        (('"ndcg@20"}', '"ncdg@20"}'), "ncdg@20"),
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
    path.write_text(GOOD)
    assert find(str(path)).models[0].published == {"movielens": [0.5]}
    path.write_text(GOOD.replace(*change, 1))
    with pytest.raises(gr.errors.GramianError, match=re.escape(mentioning)):
        find(str(path))


def test_files_that_are_no_experiment(tmp_path, refused):
    with refused(gr.errors.UnknownId, "a table among"):
        find("no-such-table")
    with refused(gr.errors.MissingFile, "nowhere.toml"):
        find(str(tmp_path / "nowhere.toml"))
    (tmp_path / "bad.toml").write_text("title = ")
    with refused(gr.errors.DamagedFile, "TOML in"):
        find(str(tmp_path / "bad.toml"))
    (tmp_path / "empty.toml").write_text("")
    with refused(gr.errors.DamagedFile, "an experiment in"):
        find(str(tmp_path / "empty.toml"))


# Splits in two steps


def pairs(part):
    return set(zip(np.array(part.users.tolist())[part.rows], np.array(part.items.tolist())[part.matrix.indices], strict=True))


@pytest.mark.parametrize("how", ["strong", "weak"])
def test_settings_are_chosen_without_the_test_part(how):
    parts = parts_of(EVENTS, how, {"seed": 3})
    test = pairs(parts.test.target)
    seen = pairs(parts.search.train) | pairs(parts.search.fold_in) | pairs(parts.search.target)
    assert not test & seen
    assert pairs(parts.search.train) <= pairs(parts.test.train)
    if how == "weak":  # the validation part is trained on in the end
        assert pairs(parts.search.target) <= pairs(parts.test.train)
        assert pairs(parts.test.train) | test == pairs(EVENTS)


def test_the_last_items_are_tested_and_the_ones_before_chosen_by(events):
    parts = parts_of(events, "leave-last", {})
    assert pairs(parts.search.target) <= pairs(parts.test.train)
    assert not pairs(parts.test.target) & (pairs(parts.search.train) | pairs(parts.search.target))


def test_a_split_without_a_validation_part_is_refused(refused):
    with refused(mentioning="a validation part"):
        parts_of(EVENTS, "temporal", {})
    with refused(mentioning="a validation part"):
        parts_of(EVENTS, "weak", {"validation": 0})


def test_the_most_popular_items_of_a_split():
    whole = gr.split.weak(EVENTS).validation
    part = most_popular(whole, 10)
    order = sorted(range(EVENTS.n_items), key=lambda column: (-whole.train.popularity[column], column))
    kept = {whole.train.items[column] for column in order[:10]}
    assert set(part.train.items.tolist()) == kept
    assert pairs(part.train) == {(user, item) for user, item in pairs(whole.train) if item in kept}
    users = {user for user in part.target.users.tolist()}
    assert pairs(part.target) == {(user, item) for user, item in pairs(whole.target) if item in kept and user in users}
    assert (np.diff(part.target.matrix.indptr) > 0).all()
    assert (np.diff(part.fold_in.matrix.indptr) > 0).all()


def test_a_published_split_is_searched_within_its_training_part(shared_data):
    data = replace(find("deql-table2").data[1], search_items=500)
    assert (data.name, data.split) == ("yelp2018", "published")
    parts = data.parts()
    whole = gr.split.published("yelp2018")
    assert parts.test.fingerprint == whole.fingerprint
    assert parts.search.train.n_items == 500
    for part in (parts.search.train, parts.search.fold_in, parts.search.target):
        known = part.reindex(whole.train.users, whole.train.items).matrix
        assert known.multiply(whole.train.matrix).nnz == known.nnz == part.n_interactions


def test_data_is_cleaned_as_the_file_says(refused):
    raw = gr.datasets.load("movielens", min_value=4)
    once = raw.k_core(0, 20).k_core(10, 0)
    data = Data("some", "weak", source="movielens", min_value=4, items_with=20, users_with=10)
    assert data.parts().test.fingerprint == gr.split.weak(once, validation=0).fingerprint
    core = replace(data, items_with=0, users_with=0, k_core=15)
    assert core.parts().test.fingerprint == gr.split.weak(raw.k_core(15), validation=0).fingerprint
    assert replace(core, retrain=False).parts().test.fingerprint == gr.split.weak(raw.k_core(15)).fingerprint
    counts = (once.n_users, once.n_items, once.n_interactions)
    assert replace(data, counts=counts).parts().test.fingerprint == data.parts().test.fingerprint
    with refused(mentioning="as printed, in some"):
        replace(data, counts=(1, 2, 3)).parts()


def test_links_to_oneself_are_neither_searched_nor_tested(fits, tmp_path):
    rng = np.random.default_rng(0)
    links = {(int(a), int(b)) for a, b in rng.integers(0, 40, (900, 2))} | {(a, a) for a in range(40)}
    events = gr.Interactions.of(pl.DataFrame(sorted(links), schema=["user_id", "item_id"], orient="row"))
    data = Given("links", "weak", {}, events=events, exclude_self=True)
    parts = data.parts()
    assert all(a != b for part in (parts.search, parts.test) for a, b in pairs(part.target))
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(Entry("EASE", "EASE", {"l2": 5}), data=[data]))
    expected = gr.evaluate(gr.EASE(5).fit(parts.test.train), parts.test, ["ndcg@20"], exclude_self=True)
    assert cell.ours("ndcg@20") == pytest.approx(expected["ndcg@20"])


# Breakdowns


def test_breakdowns_are_those_of_a_naive_count():
    split = gr.split.strong(EVENTS)
    model = gr.EASE(l2=20).fit(split.train)
    columns, _ = model.top_k(split.fold_in.reindex(split.target.users, split.train.items).matrix, 10)
    values = np.random.default_rng(0).random(split.target.n_users)
    sizes = np.diff(split.fold_in.matrix.indptr)
    rows = by_activity(values, split)
    assert sum(row["users"] for row in rows) == len(values)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        own = values[(sizes >= row["from"]) & (sizes <= row["to"])]
        assert row["mean"] == pytest.approx(own.mean())
        assert row["stderr"] == pytest.approx(own.std(ddof=1) / np.sqrt(len(own)))
        assert after is None or row["to"] < after["from"]
    rows, popularity = by_popularity(columns, split.train, split), split.train.popularity
    assert len(rows) == GROUPS
    assert sum(row["items"] for row in rows) == EVENTS.n_items
    share = [sum(sorted(popularity)[: sum(r["items"] for r in rows[: at + 1])]) / popularity.sum() for at in range(GROUPS)]
    np.testing.assert_allclose(share, np.arange(1, GROUPS + 1) / GROUPS, atol=0.05)
    order = np.argsort(popularity, kind="stable")
    first = 0
    for row in rows:
        own = {EVENTS.items[column] for column in order[first : first + row["items"]]}
        first += row["items"]
        targets = {(user, item) for user, item in pairs(split.target) if item in own}
        users = split.target.users.tolist()
        listed = {
            (users[u], split.train.items[c]) for u, line in enumerate(columns) for c in line if split.train.items[c] in own
        }
        assert row["targets"] == len(targets)
        assert row["found"] == pytest.approx(len(targets & listed) / max(len(targets), 1))
        assert row["listed"] == pytest.approx(len(listed) / columns.size)


def test_users_with_equally_many_items_are_one_group():
    split = gr.split.leave_last(
        gr.Interactions.of(EVENTS.frame().with_columns(time=1), time="time").k_core(2), validation=False
    )
    same = replace(split, fold_in=split.target)  # one known item each
    assert [row["users"] for row in by_activity(np.ones(split.target.n_users), same)] == [split.target.n_users]


# Running


def test_a_cell_is_chosen_on_the_validation_part_and_tested_once(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    (cell,) = bench.run(table(EDLAE))
    split = gr.split.strong(EVENTS)
    best = gr.tune(gr.EDLAE, split.validation, EDLAE.search, "ndcg@20")
    expected = gr.evaluate(best.recipe.fit(split.train), split, ["ndcg@20", "recall@20"])
    assert cell.fit["recipe"] == best.recipe.to_json()
    assert cell.fit["metrics"] == pytest.approx(expected.mean)
    assert cell.fit["stderr"] == pytest.approx(expected.stderr)
    assert cell.chosen["chosen"]["value"] == best.value
    assert cell.chosen["chosen"]["points"] == 4
    assert cell.ours("ndcg@20") == cell.fit["metrics"]["ndcg@20"]
    assert cell.ours("minutes") == cell.fit["seconds"] / 60
    assert cell.ours("GB") == cell.fit["peak_bytes"] / 1e9
    assert len(fits) == 1
    for row in bench.journal.rows:
        assert {"time", "revision", "versions", "machine"} <= set(row)


def test_nothing_is_done_twice(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    Benchmark(path).run(table(EDLAE))
    before = path.read_text()
    Benchmark(path).run(table(EDLAE))
    assert path.read_text() == before
    assert len(fits) == 1
    Benchmark(path).run(table(EDLAE, metrics=METRICS | {"mrr@20": "mrr@20"}))  # a metric that was not measured
    assert len(fits) == 2
    assert path.read_text().startswith(before)


def test_one_model_under_two_names_is_fitted_once(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    one, other = bench.run(table(EDLAE, DEQL))
    assert one.fit is other.fit
    assert one.chosen["recipe"]["name"] == "EDLAE"
    assert other.chosen["recipe"]["name"] == "DEQL"
    assert len(fits) == 1
    split = gr.split.strong(EVENTS)
    assert key_of(split, gr.DEQL(0.2, 1, 5)) == key_of(split, gr.DLAE(0.2, 5)) != key_of(split, gr.DLAE(0.2, 50))


def test_models_that_share_an_inverse_are_searched_with_one(tmp_path, fits, monkeypatch):
    inverses, fitted = [], family.Fits.fitted
    monkeypatch.setattr(family.Fits, "fitted", lambda self, *which: inverses.append(which) or fitted(self, *which))
    monkeypatch.setattr(judge, "FIRST", 8)  # look early, so that points are given up
    grid = {"dropout": [0.2, 0.5, 0.9], "l2": [5, 5000]}
    entries = [Entry(name, name, grid) for name in ("EDLAE", "DLAE")] + [
        Entry("DEQL", "DEQL", grid | {"kept_weight": [0.5, 3]})
    ]
    cells = Benchmark(tmp_path / "j.jsonl").run(table(*entries))
    assert len(inverses) == 6
    for entry, cell in zip(entries, cells, strict=True):
        best = gr.tune(entry.kind, gr.split.strong(EVENTS).validation, entry.search, "ndcg@20")
        assert cell.chosen["chosen"]["value"] == pytest.approx(best.value)


def test_a_killed_benchmark_goes_on_where_it_was(tmp_path, fits, monkeypatch):
    path = tmp_path / "j.jsonl"
    entries = (EDLAE, Entry("EASE", "EASE", {"l2": [5, 50]}))
    tested = Benchmark.tested

    def killed(self, recipe, *rest):
        if isinstance(recipe, gr.EASE):
            raise KeyboardInterrupt
        return tested(self, recipe, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Benchmark, "tested", killed)
        bench = Benchmark(path)
        with pytest.raises(KeyboardInterrupt):
            bench.run(table(*entries))
    with open(path, "a") as file:
        file.write('{"kind": "fi')  # torn
    cells = Benchmark(path).run(table(*entries))
    assert [cell.fit is not None for cell in cells] == [True, True]
    assert len(fits) == 2


def test_a_model_that_cannot_be_fitted_is_noted_and_tried_again(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    entries = (Entry("RegularizedPCA", "RegularizedPCA", {"rank": 8, "l2": 1e6}), EDLAE)
    said = []
    cells = Benchmark(path, said.append).run(table(*entries))
    assert "leave a factor" in cells[0].note
    assert any("RegularizedPCA failed" in words for words in said)
    assert cells[1].fit is not None
    assert "leave a factor" in write(Benchmark(path), [], tmp_path / "out").read_text()
    better = (replace(entries[0], search={"rank": 8, "l2": 0.1}), EDLAE)
    assert Benchmark(path).run(table(*better))[0].fit is not None


def test_data_that_is_missing_is_named_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAMIAN_DATA", raising=False)
    found = find("rgx-table3").only(["ml-10m"], ["RG2", "BPR"])
    said = []
    cells = Benchmark(tmp_path / "j.jsonl", said.append).run(found)
    assert [cell.model for cell in cells] == ["BPR", "RG2"]
    for cell in cells:
        assert cell.published["ndcg@10"] > 0
        assert cell.ours("ndcg@10") is None
        assert cell.note == "data missing"
        assert "files.grouplens.org" in cell.absent
        assert "GRAMIAN_DATA" in cell.absent
    assert said == []
    only = Benchmark(tmp_path / "j.jsonl").shown(find("deql-table2").only(["gowalla"], ["LightGCN"]))
    assert [cell.note for cell in only] == ["published only"]
    assert not (tmp_path / "j.jsonl").exists()


def test_figures_of_the_validation_part_stay_there(tmp_path, fits):
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(Entry("EASE", "EASE", {"l2": 5}), on="validation"))
    split = gr.split.strong(EVENTS).validation
    assert cell.ours("ndcg@20") == pytest.approx(gr.evaluate(gr.EASE(5).fit(split.train), split)["ndcg@20"])


def test_a_row_that_was_carried_over_says_by_what_it_was_measured(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    Benchmark(path).run(table(Entry("EASE", "EASE", {"l2": 5})))
    path.write_text(path.read_text().replace('"kind": "fit", ', '"kind": "fit", "by": "hand", '))
    asked = (Entry("EASE", "EASE", {"l2": 5}), Entry("EASE", "EASE", {"l2": 50}))
    notes = [Benchmark(path).shown(table(entry))[0].note for entry in asked]
    assert notes == ["measured by hand", "with other settings than the table asks for; measured by hand"]


def test_settings_of_a_data_set_come_first(tmp_path, fits):
    entry = Entry("EASE", "EASE", {"l2": [5, 50]}, settings={"some": {"l2": 7}})
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(entry))
    assert cell.fit["recipe"]["settings"] == {"l2": 7.0}
    assert cell.chosen["chosen"] is None


def test_cells_of_another_split_are_forgotten_and_fits_remembered(tmp_path, fits):
    path, other = tmp_path / "j.jsonl", replace(DATA, options={"seed": 5})
    entries = (Entry("EASE", "EASE", {"l2": 5}), Entry("Popularity", "Popularity"))
    Benchmark(path).run(table(*entries))
    mixed = Benchmark(path).run(table(entries[1], data=[other]))
    shown = Benchmark(path).shown(table(*entries, data=[other]))
    assert [cell.fit is None for cell in shown] == [True, False]
    assert shown[1].fit == mixed[0].fit
    write(Benchmark(path), [], tmp_path / "out")
    Benchmark(path).run(table(*entries))
    assert len(fits) == 3


def test_a_metric_more_keeps_those_that_were_measured(tmp_path, fits):
    path, entry = tmp_path / "j.jsonl", Entry("EASE", "EASE", {"l2": 5})
    for name in ("recall@5", "mrr@10", "recall@5"):
        (cell,) = Benchmark(path).run(table(entry, metrics={name: name}))
        assert cell.ours(name) is not None
    assert len(fits) == 2
    assert set(cell.fit["activity"]) == {"ndcg@20", "recall@5", "mrr@10"}


def test_the_rank_of_what_was_found(tmp_path, fits):
    cells = Benchmark(tmp_path / "j.jsonl").run(
        table(Entry("LRR", "LRR", {"rank": 5, "l2": 3}), Entry("EASE", "EASE", {"l2": 5}), metrics={"rank": "rank"})
    )
    assert [cell.ours("rank") for cell in cells] == [5, None]


def test_a_training_that_goes_on_after_a_kill_says_that_its_cost_is_a_part(tmp_path, fits):
    path, split = tmp_path / "j.jsonl", DATA.parts().test
    recipe = gr.IALS(rank=4, n_epochs=3)
    entry = Entry("IALS", "IALS", recipe.to_json()["settings"] | {"solver": str(recipe.solver)})
    next(recipe.epochs(split.train, scratch=tmp_path / "j.scratch" / key_of(split, recipe)))  # killed after one epoch
    (cell,) = Benchmark(path).run(table(entry))
    assert cell.fit["resumed"] is True
    assert cell.time.startswith("≥ ")
    assert not (tmp_path / "j.scratch").exists()
    whole = gr.evaluate(recipe.fit(split.train), split)
    assert cell.ours("ndcg@20") == pytest.approx(whole["ndcg@20"])


def test_one_impossible_model_does_not_stop_the_others(tmp_path, fits):
    weights = gr.Interactions.of(EVENTS.frame().with_columns(weight=2.0), value="weight")
    data = Given("weights", "strong", {}, events=weights)
    entries = [Entry(name, name, {"l2": [5, 50]}) for name in ("EASE", "DebiasedEASE")]
    cells = Benchmark(tmp_path / "j.jsonl").run(table(*entries, data=[data]))
    assert cells[0].fit is not None
    assert "0/1 interactions" in cells[1].note


def test_models_are_compared_in_pairs_with_the_best(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    cells = bench.run(table(EDLAE, Entry("Popularity", "Popularity"), Entry("EASE", "EASE", {"l2": 5})))
    found = Benchmark(tmp_path / "j.jsonl").against_best(cells, "ndcg@20")
    split = gr.split.strong(EVENTS)
    reports = {cell.model: gr.evaluate(recipe_of(cell).fit(split.train), split) for cell in cells}
    best = max(reports, key=lambda model: reports[model]["ndcg@20"])
    assert set(found) == set(reports) - {best}
    for model, pair in found.items():
        expected = reports[model].compare(reports[best], "ndcg@20")
        assert (pair.difference, pair.stderr, pair.p_value) == pytest.approx(
            (expected.difference, expected.stderr, expected.p_value)
        )
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes((tmp_path / "j.jsonl").read_bytes())
    assert Benchmark(elsewhere).against_best(cells, "ndcg@20") == {}


def recipe_of(cell):
    return gr.MODELS[cell.fit["recipe"]["name"]](**cell.fit["recipe"]["settings"])


def test_curves_are_those_of_the_library(tmp_path):
    curves = (
        Curve("some", "epoch", "IALS", {"rank": 4, "n_epochs": 3}),
        Curve("some", "rank", "LRR", {"l2": 5}, ranks=(2, 8)),
    )
    path = tmp_path / "j.jsonl"
    for _ in range(2):  # the second time nothing is to do
        bench = Benchmark(path)
        bench.run(table(curves=curves))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["along"] for row in rows] == ["epoch", "rank"]
    split = gr.split.strong(EVENTS).validation
    epochs = gr.epoch_path(gr.IALS(rank=4, n_epochs=3), split, ["ndcg@20"], patience=9)
    assert [p["value"] for p in rows[0]["points"]] == pytest.approx([r["ndcg@20"] for r in epochs.reports.values()], rel=1e-6)
    seconds = [p["seconds"] for p in rows[0]["points"]]
    assert seconds == sorted(seconds)
    ranks = gr.rank_path(gr.LRR(l2=5), [2, 8], split, ["ndcg@20"])
    assert [p["value"] for p in rows[1]["points"]] == pytest.approx([r["ndcg@20"] for r in ranks.reports.values()], rel=1e-6)


def test_only_some_of_a_table(refused):
    whole = find("deql-table2")
    some = whole.only(["gowalla"], ["EASE", "DLAE"])
    assert [data.name for data in some.data] == ["gowalla"]
    assert [entry.name for entry in some.models] == ["DLAE", "EASE"]
    assert whole.only([], []) == whole
    with refused(gr.errors.UnknownId, "a data set of deql-table2"):
        whole.only(["nowhere"], [])
    with refused(gr.errors.UnknownId, "a model of deql-table2"):
        whole.only([], ["ease"])


def test_the_peak_of_memory_is_that_of_the_work():
    def work():
        np.ones(40_000_000, np.uint8).sum()
        np.ones(10_000_000, np.uint8).sum()

    for _ in range(2):  # the second time the first's memory may lie about, free
        with Measured() as cost:
            work()
        assert 38e6 < cost.peak_bytes < 60e6


# The journal


def test_rows_say_what_they_were_made_by(tmp_path):
    journal = Journal(tmp_path / "j.jsonl", "kind")
    row = journal.add({"kind": "x", "title": "Amélie"})
    assert row["versions"]["gramian"] == gr.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", row["time"])
    assert row["machine"].endswith("threads")
    assert Journal(tmp_path / "j.jsonl", "kind").rows == [row]


def test_a_torn_line_goes_when_the_next_row_comes(tmp_path):
    path = tmp_path / "j.jsonl"
    Journal(path, "kind").add({"kind": "a"})
    with path.open("a") as file:
        file.write('{"kind": "tor')
    torn = path.read_bytes()
    journal = Journal(path, "kind")
    assert path.read_bytes() == torn  # who only reads changes nothing
    journal.add({"kind": "b"})
    assert [row["kind"] for row in Journal(path, "kind").rows] == ["a", "b"]


@pytest.mark.parametrize("row", ['{"kind": "fit"}', '{"kind": "cell", "table": "t"}', '{"kind": "other"}'])
def test_rows_of_another_format_are_named(tmp_path, refused, row):
    path = tmp_path / "j.jsonl"
    path.write_text(row + "\n")
    with refused(gr.errors.DamagedFile, "line 1"):
        Benchmark(path)


@pytest.mark.parametrize("content", ['{"other": 1}\n', "no json\n", "[1]\n", '{"other": 1}'])
def test_a_file_of_another_kind_is_no_journal(tmp_path, refused, content):
    path = tmp_path / "j.jsonl"
    path.write_text(content)
    with refused(gr.errors.DamagedFile, "line 1"):
        Benchmark(path)
    assert path.read_text() == content


# The report


def test_a_report_is_one_page_that_needs_nothing_and_pictures(tmp_path, fits):
    nasty = "<script>alert(1)</script> $x_2$"
    entries = [replace(EDLAE, name=nasty), Entry("EASE", "EASE", {"l2": [5, 50]}), Entry("elsewhere")]
    entries[1] = replace(entries[1], published={"some": (0.5, 0.25)})
    entries[2] = replace(entries[2], published={"some": (0.125, 0.25)})
    curves = (
        Curve("some", "epoch", "IALS", {"rank": 4, "n_epochs": 2}),
        Curve("some", "rank", "LRR", {"l2": 5}, ranks=(2, 8)),
    )
    bench = Benchmark(tmp_path / "j.jsonl")
    experiment = table(*entries, curves=curves, claims=("5 < 6 holds",))
    bench.run(experiment)
    page = write(Benchmark(tmp_path / "j.jsonl"), [experiment, find("deql-table1")], tmp_path / "out")
    text = page.read_text()
    assert page == tmp_path / "out" / "index.html"
    outside = set(re.findall(r"""(?:href|src|url)\s*[=(]\s*["']?([^"')\s>]+)""", text))
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in outside), outside
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "5 &lt; 6 holds" in text
    ours = bench.cells["table", "some", "EASE"]
    figure = bench.fits[ours["fit"]]["metrics"]["recall@20"]
    assert f"<td>0.5000</td><td>{figure:.4f}</td>" in text
    assert f"{figure / 0.5 - 1:+.1%}" in text
    assert "published only" in text
    assert "1,006 users, 896 items" in text  # what is missing is named
    drawn = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert drawn == {path.stem for path in (tmp_path / "out").glob("*.svg")}
    kinds = ["fitting", "memory", "activity", "popularity", "epochs", "ranks", "search"]
    assert drawn == {f"table-some-{kind}" for kind in kinds}
    assert text.count("<svg") == len(kinds)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_a_report_of_own_data_has_the_paired_differences(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    cells = bench.run(table(EDLAE, Entry("Popularity", "Popularity")))
    text = write(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "out").read_text()
    pair = bench.against_best(cells, "ndcg@20")["Popularity"]
    assert f"{-pair.difference:.4f} ± {pair.stderr:.4f}" in text
    assert f"{pair.p_value:.2g}" in text
    assert text.index("<td>EDLAE</td>") < text.index("<td>Popularity</td>")  # the best first


def test_heat_maps_have_each_value_in_its_place(monkeypatch):
    drawn = []
    monkeypatch.setattr(reports, "heat_map", lambda panels, *names: drawn.append(panels))
    rows = [
        {"recipe": {"name": kind, "settings": {"dropout": dropout, "l2": l2} | more}, "value": value, "lost_to": lost}
        for kind, dropout, l2, more, value, lost in (
            ("EDLAE", 0.1, 5, {}, 1.0, None),
            ("EDLAE", 0.5, 50, {}, 2.0, None),
            ("EDLAE", 0.1, 50, {}, 9.0, "given up"),
            ("DLAE", 0.5, 5, {}, 3.0, None),
            ("DEQL", 0.1, 50, {"kept_weight": 2.0}, 4.0, None),
        )
    ]
    pictures = type("Pictures", (), {"add": lambda self, name, picture, caption: name})()
    assert list(reports.heat_maps("t", rows, pictures)) == ["t-search"]
    (panels,) = drawn
    nan = np.nan
    expected = {"0": [[1, nan], [nan, 2]], "1": [[nan, nan], [3, nan]], "2": [[nan, 4], [nan, nan]]}
    assert list(panels) == [f"kept_weight {kept}" for kept in expected]
    for (down, across, values), wanted in zip(panels.values(), expected.values(), strict=True):
        assert (down, across) == ([0.1, 0.5], [5, 50])
        np.testing.assert_array_equal(values, wanted)


def test_curves_of_one_kind_are_told_apart():
    rows = [{"recipe": {"name": "LRR", "settings": {"rank": 4, "l2": l2}}} for l2 in (5, 50)]
    assert [reports.label(row, rows) for row in rows] == ["LRR, l2=5", "LRR, l2=50"]
    assert reports.label(rows[0], rows[:1]) == "LRR"


def test_a_report_that_cannot_be_written_is_refused(tmp_path, refused):
    (tmp_path / "file").write_text("x")
    with refused(mentioning="a folder for the report"):
        write(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "file")


# The command line


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    EVENTS.frame().write_csv(path)
    return path


def test_models_are_compared_on_own_data(ratings, tmp_path):
    words = ["benchmark", "--data", ratings, "--models", "ease,popularity", "--models", "edlae", "--metric", "ndcg@20"]
    words += ["--journal", tmp_path / "own.jsonl"]
    shown = gramian(*words)
    assert shown.returncode == 0, shown.stderr
    assert "searching EASE, 6 points" in shown.stderr
    assert re.search(r"Popularity +0\.\d{4} ±0\.\d{4} +0\.\d{4} ±0\.\d{4} +\d", shown.stdout)
    assert "behind in" in shown.stdout
    assert "gramian report" in shown.stdout
    found = json.loads(ok(*words, "--json"))
    cells = {cell["model"]: cell for cell in found["cells"]}
    assert set(cells) == {"EASE", "Popularity", "EDLAE"}
    split = gr.split.strong(gr.read(ratings))
    expected = gr.evaluate(gr.Popularity().fit(split.train), split)
    assert cells["Popularity"]["figures"]["ndcg@20"]["ours"] == pytest.approx(expected["ndcg@20"])
    assert cells["Popularity"]["against_best"]["difference"] < 0
    assert [model for model, cell in cells.items() if cell["against_best"] is None] == [best_of(cells, "ndcg@20")]
    page = json.loads(ok("report", "--journal", tmp_path / "own.jsonl", "--out", tmp_path / "out", "--json"))
    assert Path(page["page"]).exists()
    assert "ratings.csv--strong-split-ratings.csv-fitting.png" in page["pictures"]
    weak = gramian(
        "benchmark", "--data", ratings, "--models", "popularity", "--split", "weak", "--journal", tmp_path / "own.jsonl"
    )
    assert weak.returncode == 0
    ok("report", "--journal", tmp_path / "own.jsonl", "--out", tmp_path / "out")


def best_of(cells, metric):
    return max(cells, key=lambda model: cells[model]["figures"][metric]["ours"])


def test_a_search_on_the_most_popular_items_only(ratings, tmp_path):
    words = ["benchmark", "--data", ratings, "--models", "ease", "--search-items", 20, "--journal", tmp_path / "own.jsonl"]
    assert "6 points, 20 items" in gramian(*words).stderr


def test_tables_are_listed_with_what_is_missing():
    assert re.search(r"movielens.*\n  here: movielens", ok("benchmark"))
    found = {row["table"]: row for row in json.loads(ok("benchmark", "--json"))["tables"]}
    assert set(found) == set(papers())
    assert "GRAMIAN_DATA" in found["deql-table2"]["data"]["gowalla"]


def test_a_table_without_its_data_shows_what_was_published(tmp_path):
    words = ["benchmark", "regularization-landscape-tables5-7", "--models", "DLAE(dropout=0.1,l2=800),DLAE(dropout=0.3,l2=900)"]
    shown = gramian(*words, "--journal", tmp_path / "j.jsonl")
    assert shown.returncode == 0, shown.stderr
    assert "DLAE(dropout=0.3,l2=900)" in shown.stdout
    assert "ml-20m is not here" in shown.stdout
    assert "DLAE(dropout=0.1,l2=800), DLAE(dropout=0.3,l2=900): data missing" in shown.stdout
    assert "Kept in" not in shown.stdout


@pytest.mark.parametrize(
    ("words", "mentioning"),
    [
        (["no-such-table"], "a table among"),
        (["movielens", "--data", "netflix"], "a data set of movielens"),
        (["movielens", "--models", "ESAE"], "a model of movielens"),
        (["movielens", "--min-value", "4"], "no --min-value with a table"),
        (["movielens", "--seed", "4"], "no --seed with a table"),
        (["--models", "ease"], "add --data FILE"),
        (["--split", "weak"], "add --data FILE"),
        (["movielens", "--split", "weak"], "no --split with a table"),
        (["--data", "movielens", "--split", "leave-last", "--seed", "3"], "no --seed with --split leave-last"),
        (
            ["--data", "movielens", "--min-value", "4", "--models", "ease", "--search-items", "1"],
            "among the most popular items",
        ),
        (["--data", "movielens", "--models", "esae"], "a model among"),
        (["--data", "movielens", "--split", "temporal"], "strong, weak, leave-last"),
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--data", "movielens", "--metric", "ncdg@20"], "ncdg@20"),
        (["movielens", "--journal", "/nowhere/at/all.jsonl"], "a folder that exists"),
        (["movielens", "--journal", "/"], "a file for the journal"),
    ],
)
def test_a_benchmark_that_makes_no_sense_is_one_line(words, mentioning, tmp_path):
    failed = gramian("benchmark", "--journal", tmp_path / "j.jsonl", *words)
    assert failed.returncode == 2
    assert mentioning in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_report_without_a_journal_is_one_line(tmp_path):
    failed = gramian("report", "--journal", tmp_path / "nothing.jsonl")
    assert failed.returncode == 2
    assert "gramian benchmark" in failed.stderr
