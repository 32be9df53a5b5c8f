"""Autoencoders chosen by leave-one-user-out, or on validation users: each inverse serves the search and the test."""

import json
import warnings
from dataclasses import replace

import pytest

import gramian as gr
from gramian.errors import InvalidInput, SearchEdgeWarning
from gramian.experiments.experiment import ModelEntry
from gramian.experiments.runner import Benchmark
from gramian.tuning import shared_fits
from small_experiments import DATA, EVENTS, table

GRID = {"dropout": [0.2, 0.5, 0.9], "l2": [5, 500]}
EDLAE = ModelEntry("EDLAE", "EDLAE", GRID, as_published={"some": {"dropout": [0.5, 0.8], "l2": 5}})
DEQL = ModelEntry("DEQL", "DEQL", {**GRID, "kept_weight": [0.5, 2]})
LEFT_OUT = replace(DATA, leave_one_user_out=True)


@pytest.fixture
def inverses(monkeypatch):
    made, solve = [], shared_fits.SharedFits.solve
    monkeypatch.setattr(shared_fits.SharedFits, "solve", lambda self, *args: made.append(args) or solve(self, *args))
    return made


def test_the_choice_is_that_of_tune_without_one_user_each_and_the_figures_are_those_of_a_fit(tmp_path, fits):
    split = gr.split.strong(EVENTS)
    for entry, cell in zip(
        (EDLAE, DEQL), Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, DEQL, data=[LEFT_OUT])), strict=True
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchEdgeWarning)
            search = gr.tune(entry.model, split.train, entry.search, "ndcg@20")
        assert cell.recipe == search.recipe.to_json()
        assert cell.row["chosen"]["value"] == pytest.approx(search.value)
        assert cell.row["chosen"]["leave_one_user_out"] is True
        report = gr.evaluate(search.recipe.fit(split.train), split, ["ndcg@20", "recall@20"])
        assert cell.fit["metrics"] == pytest.approx(report.mean, abs=1e-6)
        assert cell.fit["stderr"] == pytest.approx(report.stderr, abs=1e-6)


def test_a_sample_of_users_is_left_out_where_the_data_asks_for_it(tmp_path, fits):
    train = gr.split.strong(EVENTS).train
    sampled = replace(LEFT_OUT, search_users=12)
    users = sampled.sample_left_out(train)
    assert len(users) == 12
    assert users == sampled.sample_left_out(train)
    assert replace(LEFT_OUT, search_users=10**6).sample_left_out(train) is LEFT_OUT.sample_left_out(train) is None
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, data=[sampled]))
    recipe = gr.EDLAE(**cell.recipe["params"])
    report = gr.leave_one_user_out(recipe, train, ["ndcg@20"], users=users)
    assert cell.row["chosen"]["value"] == pytest.approx(report["ndcg@20"])


def test_every_inverse_is_made_once(tmp_path, fits, inverses):
    experiment = table(EDLAE, DEQL, data=[LEFT_OUT])
    Benchmark(tmp_path / "j.jsonl").run(experiment, as_published=True)
    assert len(inverses) == 6 + 1  # the grid's, and one that only the published grid has
    before = (tmp_path / "j.jsonl").read_text()
    cells = Benchmark(tmp_path / "j.jsonl").run(experiment, as_published=True)
    assert len(inverses) == 6 + 1
    assert (tmp_path / "j.jsonl").read_text() == before
    assert cells[0].n_test_points == 2


def test_the_inverses_of_a_search_on_validation_users_serve_the_test(tmp_path, fits, inverses):
    shared = replace(DATA, test_with_search=True)
    together = Benchmark(tmp_path / "together.jsonl").run(table(EDLAE, DEQL, data=[shared]))
    assert len(inverses) == 6
    apart = Benchmark(tmp_path / "apart.jsonl").run(table(EDLAE, DEQL))
    for one, other in zip(together, apart, strict=True):
        assert one.recipe == other.recipe
        assert one.row["chosen"] == other.row["chosen"]
        assert one.fit["metrics"] == pytest.approx(other.fit["metrics"], abs=1e-6)


def test_a_search_on_another_training_part_cannot_serve_the_test():
    weak = replace(DATA, split="weak", test_with_search=True)
    with pytest.raises(InvalidInput, match="one training part"):
        weak.load_splits()


def test_a_killed_run_continues_at_the_inverse_it_was_making(tmp_path, fits, inverses, monkeypatch):
    experiment, solve = table(EDLAE, data=[LEFT_OUT]), shared_fits.SharedFits.solve

    def fail_at_the_fourth(self, *args):
        if len(inverses) == 3:
            raise KeyboardInterrupt
        return solve(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(shared_fits.SharedFits, "solve", fail_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            Benchmark(tmp_path / "j.jsonl").run(experiment)
    assert len(inverses) == 3
    Benchmark(tmp_path / "j.jsonl").run(experiment)
    assert len(inverses) == 6


def test_without_an_l2_a_model_is_chosen_on_validation_and_the_others_are_not_disturbed(tmp_path, fits):
    plain = ModelEntry("plain", "DEQL", {"dropout": [0.5], "kept_weight": [0.5, 2], "l2": 0.0})
    cells = Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, plain, data=[LEFT_OUT]))
    assert cells[0].row["chosen"]["leave_one_user_out"] is True
    assert "leave_one_user_out" not in cells[1].row["chosen"]


def test_other_models_are_chosen_on_validation(tmp_path, fits):
    entry = ModelEntry("ItemKNN", "ItemKNN", {"neighbours": [5, 20]})
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(entry, data=[LEFT_OUT]))
    search = gr.tune(gr.ItemKNN, gr.split.strong(EVENTS).validation, {"neighbours": [5, 20]}, "ndcg@20")
    assert cell.row["chosen"]["objective"] == search.objective
    assert "leave_one_user_out" not in cell.row["chosen"]
    assert json.loads((tmp_path / "j.search.jsonl").read_text().splitlines()[0])["objective"] == search.objective
