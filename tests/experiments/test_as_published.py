"""Figures selected on test, as published ones were: a column of their own, which never touches what is chosen on validation."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import gramian as gr
from command_line import gramian
from gramian.data.split import Split
from gramian.experiments.experiment import EventsData, ModelEntry, SplitPair
from gramian.experiments.markdown import JournalTables
from gramian.experiments.report import AS_PUBLISHED, write_report
from gramian.experiments.runner import Benchmark
from gramian.tuning import shared_fits
from small_experiments import DATA, EVENTS, table

ROOT = Path(__file__).parents[2]
GRID = {"dropout": [0.2, 0.5, 0.9], "l2": [5, 500]}
TEST_GRID = {"dropout": [0.3, 0.8], "l2": [20, 2000]}
PAPER_GRID = {"from_paper": {"a": 1, "b": [0.5, 2], "p": 0.8, "lam": [1, 10]}}
EDLAE = ModelEntry("EDLAE", "EDLAE", GRID, {"some": (0.5, 0.25)}, as_published={"some": TEST_GRID})
DEQL = ModelEntry(
    "DEQL", "DEQL", {**GRID, "kept_weight": [0.5, 2]}, {"some": (0.5, 0.25)}, as_published={"some": [TEST_GRID, PAPER_GRID]}
)


@dataclass(frozen=True)
class PairData(EventsData):
    """Splits that are passed as they are."""

    pair: SplitPair | None = None

    def _load_and_split(self):
        return self.pair


def rows_of(path, *kinds):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    volatile = {"time", "seconds", "peak_bytes", "revision"}
    return [{key: row[key] for key in row if key not in volatile} for row in rows if row["kind"] in kinds]


def test_what_is_chosen_on_validation_is_the_same_with_the_column_and_without(tmp_path, fits):
    experiment = table(EDLAE, DEQL)
    Benchmark(tmp_path / "honest.jsonl").run(experiment)
    Benchmark(tmp_path / "both.jsonl").run(experiment, as_published=True)
    Benchmark(tmp_path / "first.jsonl").run(replace(experiment, models=(EDLAE,)), as_published=True)
    Benchmark(tmp_path / "first.jsonl").run(experiment)  # with points of the test split in the journal already
    honest = rows_of(tmp_path / "honest.jsonl", "cell", "fit")
    assert rows_of(tmp_path / "both.jsonl", "cell", "fit") == honest
    assert rows_of(tmp_path / "first.jsonl", "cell", "fit") == honest
    assert not rows_of(tmp_path / "honest.jsonl", "point", "as_published")  # only where it is asked for
    split = gr.split.strong(EVENTS)
    for name in ("honest", "both", "first"):
        searched = {json.loads(line)["objective"] for line in (tmp_path / f"{name}.search.jsonl").read_text().splitlines()}
        assert searched == {gr.tune(gr.EASE, split.validation, {"l2": [1]}, "ndcg@20").objective}


def test_the_test_part_has_no_influence_on_what_is_chosen(tmp_path, fits):
    """Invariance: any other test targets give the same choices, and other points selected on test."""
    split = gr.split.strong(EVENTS)
    few = np.arange(0, split.target.n_users, 3)
    tests = [
        Split(split.train, split.fold_in, split.target),
        Split(split.train, split.target, split.fold_in),  # other histories and targets
        Split(split.train, split.fold_in.take(few), split.target.take(few)),
    ]
    chosen, selected = set(), set()
    for number, test in enumerate(tests):
        data = PairData("some", pair=SplitPair(split.validation, test))
        for cell in Benchmark(tmp_path / f"{number}.jsonl").run(table(EDLAE, DEQL, data=[data]), as_published=True):
            chosen.add((cell.model, json.dumps(cell.row["recipe"]), cell.row["chosen"]["value"]))
            selected.add((cell.model, cell.best_on_test["metrics"]["ndcg@20"]))
    assert len(chosen) == 2
    assert len(selected) == 2 * len(tests)


def test_the_point_selected_on_test_is_the_best_of_its_grid(tmp_path, fits):
    cells = Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, DEQL), as_published=True)
    split = gr.split.strong(EVENTS)
    for entry, cell in zip((EDLAE, DEQL), cells, strict=True):
        points = entry.test_points("some")
        reports = [gr.evaluate(point.fit(split.train), split, ["ndcg@20", "recall@20"]) for point in points]
        best = int(np.argmax([report["ndcg@20"] for report in reports]))
        assert cell.n_test_points == len(points)
        assert cell.best_on_test["recipe"] == points[best].to_json()
        assert cell.best_on_test["metrics"] == pytest.approx(reports[best].mean, abs=1e-6)
        assert cell.best_on_test["stderr"] == pytest.approx(reports[best].stderr, abs=1e-6)
        assert cell.recipe == cell.fit["recipe"]  # ours is still what validation chose
    before = (tmp_path / "j.jsonl").read_text()
    Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, DEQL), as_published=True)
    assert (tmp_path / "j.jsonl").read_text() == before


def test_one_inverse_serves_all_models_and_kept_weights_of_a_point(tmp_path, fits, monkeypatch):
    inverses, solve = [], shared_fits.SharedFits.solve
    entries = [replace(EDLAE, name=name, recipe=name, search={"dropout": 0.5, "l2": 5}) for name in ("EDLAE", "DLAE")]
    many = {**TEST_GRID, "kept_weight": [0.1, 0.5, 1, 2]}
    entries.append(ModelEntry("DEQL", "DEQL", {"dropout": 0.5, "l2": 5, "kept_weight": 1}, as_published={"some": many}))
    bench = Benchmark(tmp_path / "j.jsonl")
    bench.run(table(*entries))
    monkeypatch.setattr(shared_fits.SharedFits, "solve", lambda self, *args: inverses.append(args) or solve(self, *args))
    bench.run(table(*entries), as_published=True)
    assert len(inverses) == 4
    assert len(rows_of(tmp_path / "j.jsonl", "point")) == 4 * (2 + 3)  # EDLAE, DLAE (kept_weight 1) and three more


def test_the_column_is_labelled_wherever_it_is_shown(tmp_path, fits):
    path, experiment = tmp_path / "j.jsonl", table(EDLAE, DEQL)
    Benchmark(path).run(experiment)
    assert AS_PUBLISHED not in write_report(Benchmark(path), [experiment], tmp_path / "out").read_text()
    edlae, _ = Benchmark(path).run(experiment, as_published=True)
    best = edlae.best_on_test["metrics"]["ndcg@20"]
    page = write_report(Benchmark(path), [experiment], tmp_path / "out").read_text()
    assert page.count(f'<th scope="col">{AS_PUBLISHED}</th>') == 2  # of both metrics
    assert f'<td class="comparison">{best:.4f}</td>' in page
    assert "Selected on test among 4: dropout=" in page
    text = JournalTables(Benchmark(path), [experiment]).published("table", "some", ["EDLAE"])
    assert f"| {AS_PUBLISHED} |" in text.splitlines()[0]
    assert f"{best:.4f} |" in text
    assert "selected on test" in AS_PUBLISHED
    assert "comparison only" in AS_PUBLISHED


def test_the_documents_say_what_the_column_is():
    for name in ("benchmark.md", "results.md"):
        assert "selected on test, for comparison only" in (ROOT / "docs" / name).read_text()


FILE = """
title = "t"
metrics = {"ndcg@20" = "ndcg@20"}
[data.movielens]
split = "strong"
min_value = 4
k_core = 20
[[model]]
name = "EASE"
recipe = "EASE"
search = {l2 = [100, 300]}
published = {movielens = [0.5]}
as_published = {movielens = {l2 = [200, 400]}}
"""


def test_the_command_shows_the_column_only_when_asked(tmp_path):
    (tmp_path / "mine.toml").write_text(FILE)
    words = ["benchmark", tmp_path / "mine.toml", "--journal", tmp_path / "j.jsonl"]
    assert "selected on test" not in gramian(*words).stdout
    shown = gramian(*words, "--as-published")
    assert shown.returncode == 0, shown.stderr
    assert "selected on test" in shown.stdout
    assert "for comparison only" in shown.stdout
    (cell,) = json.loads(gramian(*words, "--json").stdout)["cells"]
    assert cell["selected_on_test"]["points"] == 2
    assert cell["selected_on_test"]["recipe"]["params"]["l2"] in (200, 400)
    assert cell["recipe"]["params"]["l2"] in (100, 300)
    assert cell["figures"]["ndcg@20"]["selected on test"] > 0
    failed = gramian("benchmark", "--data", "movielens", "--as-published", "--journal", tmp_path / "k.jsonl")
    assert "no --as-published with own data" in failed.stderr


def test_points_of_another_split_are_not_shown(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    Benchmark(path).run(table(EDLAE), as_published=True)
    (cell,) = Benchmark(path).run(table(EDLAE, data=[replace(DATA, options={"seed": 5})]))
    assert cell.best_on_test is None
