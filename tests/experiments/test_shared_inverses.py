"""Full-rank autoencoders that share an inverse are fitted and tested together where the data asks for it."""

from dataclasses import replace

import pytest

import gramian as gr
from gramian.experiments.experiment import ModelEntry
from gramian.experiments.runner import Benchmark
from gramian.tuning import shared_fits
from small_experiments import DATA, EVENTS, table

GRID = {"dropout": [0.2, 0.5, 0.9], "l2": [5, 500]}
EDLAE = ModelEntry("EDLAE", "EDLAE", GRID, as_published={"some": {"dropout": [0.5, 0.8], "l2": 5}})
DEQL = ModelEntry("DEQL", "DEQL", {**GRID, "kept_weight": [0.5, 2]})
STRONG = replace(DATA, share_inverses=True)
WEAK = replace(DATA, split="weak", share_inverses=True)


@pytest.fixture
def inverses(monkeypatch):
    made, solve = [], shared_fits.SharedFits.solve
    monkeypatch.setattr(shared_fits.SharedFits, "solve", lambda self, *args: made.append(args) or solve(self, *args))
    return made


@pytest.mark.parametrize("data", [STRONG, WEAK], ids=["strong", "weak"])
def test_choices_and_figures_are_those_of_separate_fits(tmp_path, fits, data):
    together = Benchmark(tmp_path / "together.jsonl").run(table(EDLAE, DEQL, data=[data]))
    assert fits == []
    apart = Benchmark(tmp_path / "apart.jsonl").run(table(EDLAE, DEQL, data=[replace(data, share_inverses=False)]))
    assert len(fits) == 2
    for one, other in zip(together, apart, strict=True):
        assert one.recipe == other.recipe
        assert one.row["chosen"] == other.row["chosen"]
        assert one.fit["metrics"] == pytest.approx(other.fit["metrics"], abs=1e-6)
        assert one.fit["stderr"] == pytest.approx(other.fit["stderr"], abs=1e-6)


def test_the_inverses_of_a_strong_search_serve_the_test(tmp_path, fits, inverses):
    experiment = table(EDLAE, DEQL, data=[STRONG])
    Benchmark(tmp_path / "j.jsonl").run(experiment, as_published=True)
    assert len(inverses) == 6 + 1  # the grid's, and one that only the published grid has
    before = (tmp_path / "j.jsonl").read_text()
    cells = Benchmark(tmp_path / "j.jsonl").run(experiment, as_published=True)
    assert len(inverses) == 6 + 1
    assert (tmp_path / "j.jsonl").read_text() == before
    assert cells[0].n_test_points == 2


def test_where_search_and_test_are_trained_apart_every_tested_inverse_is_made_once(tmp_path, fits, inverses):
    cells = Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, DEQL, data=[WEAK]), as_published=True)
    tested = {(cell.recipe["params"]["dropout"], cell.recipe["params"]["l2"]) for cell in cells} | {(0.5, 5), (0.8, 5)}
    assert len(inverses) == 6 + len(tested)
    assert fits == []
    assert cells[0].best_on_test is not None


def test_a_killed_run_continues_at_the_inverse_it_was_making(tmp_path, fits, inverses, monkeypatch):
    experiment, solve = table(EDLAE, data=[STRONG]), shared_fits.SharedFits.solve

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


def test_a_model_that_cannot_be_chosen_does_not_stop_the_others(tmp_path, fits):
    weighted = replace(WEAK, events=gr.Interactions.of(EVENTS.frame().with_columns(weight=2.0), value="weight"))
    only_binary = ModelEntry("DebiasedEASE", "DebiasedEASE", {"l2": [5, 50]})
    edlae, failed = Benchmark(tmp_path / "j.jsonl").run(table(EDLAE, only_binary, data=[weighted]))
    assert edlae.fit is not None
    assert "0/1 interactions" in failed.note
