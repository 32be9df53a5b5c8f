"""Running an experiment: each cell is chosen on the validation split and tested once, and nothing is done twice."""

import json
from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from gramian.evaluation.comparison import correct_p_values
from gramian.experiments import runner
from gramian.experiments.experiment import Curve, EventsData, ModelEntry, find_experiment
from gramian.experiments.report import write_report
from gramian.experiments.runner import Benchmark, fit_key
from gramian.gradient import MF, FactorModel
from gramian.tuning import objective, shared_fits
from small_experiments import DATA, DEQL, EASE, EDLAE, EVENTS, METRICS, POPULARITY, table


def test_a_cell_is_chosen_on_the_validation_split_and_tested_once(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    (cell,) = bench.run(table(EDLAE))
    split = gr.split.strong(EVENTS)
    best = gr.tune(gr.EDLAE, split.validation, EDLAE.search, "ndcg@20")
    expected = gr.evaluate(best.recipe.fit(split.train), split, ["ndcg@20", "recall@20"])
    assert cell.fit["recipe"] == best.recipe.to_json()
    assert cell.fit["metrics"] == pytest.approx(expected.mean)
    assert cell.fit["stderr"] == pytest.approx(expected.stderr)
    assert cell.row["chosen"]["value"] == best.value
    assert cell.row["chosen"]["points"] == 4
    assert cell.measured_figure("ndcg@20") == cell.fit["metrics"]["ndcg@20"]
    assert cell.measured_figure("minutes") == cell.fit["seconds"] / 60
    assert cell.measured_figure("GB") == cell.fit["peak_bytes"] / 1e9
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


def test_a_refit_makes_up_for_missing_metrics_of_each_user(tmp_path, fits):
    path, elsewhere = tmp_path / "j.jsonl", tmp_path / "elsewhere" / "j.jsonl"
    first = Benchmark(path).run(table(EDLAE, POPULARITY))
    elsewhere.parent.mkdir()
    rows = [line for line in path.read_text().splitlines(keepends=True) if '"kind": "comparison"' not in line]
    elsewhere.write_text("".join(rows))
    Benchmark(elsewhere).run(table(EDLAE, POPULARITY))
    assert not Benchmark(elsewhere).comparisons
    again = Benchmark(elsewhere).run(table(EDLAE, POPULARITY), refit=True)
    assert len(fits) == 4
    assert [cell.fit["metrics"] for cell in again] == [pytest.approx(cell.fit["metrics"]) for cell in first]
    assert list(Benchmark(elsewhere).comparisons) == list(Benchmark(path).comparisons) != []
    Benchmark(elsewhere).run(table(EDLAE, POPULARITY), refit=True)
    assert len(fits) == 4


def test_one_model_under_two_names_is_fitted_once(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    edlae, deql = bench.run(table(EDLAE, DEQL))
    assert edlae.fit is deql.fit
    assert edlae.recipe["name"] == "EDLAE"
    assert deql.recipe["name"] == "DEQL"
    assert len(fits) == 1
    split = gr.split.strong(EVENTS)
    assert fit_key(split, gr.DEQL(0.2, 1, 5)) == fit_key(split, gr.DLAE(0.2, 5)) != fit_key(split, gr.DLAE(0.2, 50))


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
def test_models_that_share_an_inverse_are_searched_with_one(tmp_path, fits, monkeypatch):
    inverses, solve = [], shared_fits.SharedFits.solve
    monkeypatch.setattr(shared_fits.SharedFits, "solve", lambda self, *args: inverses.append(args) or solve(self, *args))
    monkeypatch.setattr(objective, "FIRST_BLOCK", 8)  # drop hopeless points early
    grid = {"dropout": [0.2, 0.5, 0.9], "l2": [5, 5000]}
    entries = [ModelEntry(name, name, grid) for name in ("EDLAE", "DLAE")]
    entries.append(ModelEntry("DEQL", "DEQL", grid | {"kept_weight": [0.5, 3]}))
    cells = Benchmark(tmp_path / "j.jsonl").run(table(*entries))
    assert len(inverses) == 6
    for entry, cell in zip(entries, cells, strict=True):
        best = gr.tune(entry.model, gr.split.strong(EVENTS).validation, entry.search, "ndcg@20")
        assert cell.row["chosen"]["value"] == pytest.approx(best.value)


def test_a_killed_benchmark_continues_where_it_was(tmp_path, fits, monkeypatch):
    path = tmp_path / "j.jsonl"
    entries = (EDLAE, ModelEntry("EASE", "EASE", {"l2": [5, 50]}))
    fit_and_test = Benchmark.fit_and_test

    def killed(self, recipe, *rest, **options):
        if isinstance(recipe, gr.EASE):
            raise KeyboardInterrupt
        return fit_and_test(self, recipe, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Benchmark, "fit_and_test", killed)
        bench = Benchmark(path)
        with pytest.raises(KeyboardInterrupt):
            bench.run(table(*entries))
    with open(path, "a") as file:
        file.write('{"kind": "fi')  # torn
    cells = Benchmark(path).run(table(*entries))
    assert [cell.fit is not None for cell in cells] == [True, True]
    assert len(fits) == 2


def test_a_model_that_cannot_be_fitted_is_recorded_and_tried_again(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    entries = (ModelEntry("RegularizedPCA", "RegularizedPCA", {"rank": 8, "l2": 1e6}), EDLAE)
    lines = []
    cells = Benchmark(path, lines.append).run(table(*entries))
    assert "leave a factor" in cells[0].note
    assert any("RegularizedPCA failed" in line for line in lines)
    assert cells[1].fit is not None
    assert "leave a factor" in write_report(Benchmark(path), [], tmp_path / "out").read_text()
    better = (replace(entries[0], search={"rank": 8, "l2": 0.1}), EDLAE)
    assert Benchmark(path).run(table(*better))[0].fit is not None


def test_missing_data_is_named_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAMIAN_DATA", raising=False)
    experiment = find_experiment("rgx-table3").select(["ml-10m"], ["RG2", "BPR"])
    lines = []
    cells = Benchmark(tmp_path / "j.jsonl", lines.append).run(experiment)
    assert [cell.model for cell in cells] == ["BPR", "RG2"]
    for cell in cells:
        assert cell.published["ndcg@10"] > 0
        assert cell.measured_figure("ndcg@10") is None
        assert cell.note == "data missing"
        assert "files.grouplens.org" in cell.missing
        assert "GRAMIAN_DATA" in cell.missing
    assert lines == []
    cells = Benchmark(tmp_path / "j.jsonl").cells_of(find_experiment("deql-table2").select(["gowalla"], ["PinSage"]))
    assert [cell.note for cell in cells] == ["published only"]
    assert not (tmp_path / "j.jsonl").exists()


def test_figures_of_the_validation_split_are_measured_there(tmp_path, fits):
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(EASE, on="validation"))
    split = gr.split.strong(EVENTS).validation
    assert cell.measured_figure("ndcg@20") == pytest.approx(gr.evaluate(gr.EASE(5).fit(split.train), split)["ndcg@20"])


def test_a_row_from_another_program_says_by_what_it_was_measured(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    Benchmark(path).run(table(EASE))
    path.write_text(path.read_text().replace('"kind": "fit", ', '"kind": "fit", "by": "hand", '))
    notes = [Benchmark(path).cells_of(table(entry))[0].note for entry in (EASE, replace(EASE, search={"l2": 50}))]
    assert notes == ["measured by hand", "with other parameters than the table asks for; measured by hand"]


def test_parameters_of_a_data_set_replace_those_of_the_search(tmp_path, fits):
    entry = ModelEntry("EASE", "EASE", {"l2": [5, 50]}, params={"some": {"l2": 7}})
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(entry))
    assert cell.fit["recipe"]["params"] == {"l2": 7.0}
    assert cell.row["chosen"] is None


def test_cells_of_an_earlier_split_are_dropped_and_its_fits_kept(tmp_path, fits):
    path, other_split = tmp_path / "j.jsonl", replace(DATA, options={"seed": 5})
    entries = (EASE, POPULARITY)
    Benchmark(path).run(table(*entries))
    (popularity,) = Benchmark(path).run(table(POPULARITY, data=[other_split]))
    cells = Benchmark(path).cells_of(table(*entries, data=[other_split]))
    assert [cell.fit is None for cell in cells] == [True, False]
    assert cells[1].fit == popularity.fit
    write_report(Benchmark(path), [], tmp_path / "out")
    Benchmark(path).run(table(*entries))
    assert len(fits) == 3


def test_another_metric_keeps_those_that_were_measured(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    for name in ("recall@5", "mrr@10", "recall@5"):
        (cell,) = Benchmark(path).run(table(EASE, metrics={name: name}))
        assert cell.measured_figure(name) is not None
    assert len(fits) == 2
    assert set(cell.fit["activity"]) == {"ndcg@20", "recall@5", "mrr@10"}


def test_the_rank_of_a_model_is_recorded(tmp_path, fits):
    low_rank = ModelEntry("LRR", "LRR", {"rank": 5, "l2": 3})
    cells = Benchmark(tmp_path / "j.jsonl").run(table(low_rank, EASE, metrics={"rank": "rank"}))
    assert [cell.measured_figure("rank") for cell in cells] == [5, None]


def test_a_resumed_training_says_that_its_cost_is_a_part(tmp_path, fits):
    path, split = tmp_path / "j.jsonl", DATA.load_splits().test
    recipe = gr.IALS(rank=4, n_epochs=3)
    entry = ModelEntry("IALS", "IALS", recipe.to_json()["params"] | {"solver": str(recipe.solver)})
    next(recipe.epochs(split.train, scratch=tmp_path / "j.scratch" / fit_key(split, recipe)))  # killed after one epoch
    (cell,) = Benchmark(path).run(table(entry))
    assert cell.fit["resumed"] is True
    assert cell.duration.startswith("≥ ")
    assert not (tmp_path / "j.scratch").exists()
    whole = gr.evaluate(recipe.fit(split.train), split)
    assert cell.measured_figure("ndcg@20") == pytest.approx(whole["ndcg@20"])


def test_a_finished_fit_clears_its_own_scratch_and_nothing_else(tmp_path, fits):
    split, recipe = DATA.load_splits().test, gr.IALS(rank=4, n_epochs=2)
    scratch = tmp_path / "j.scratch"
    next(recipe.epochs(split.train, scratch=scratch / fit_key(split, recipe)))
    next(gr.IALS(rank=5, n_epochs=2).epochs(split.train, scratch=scratch / "another-fit"))  # of another process, say
    (scratch / "letter.txt").write_text("dear")
    Benchmark(tmp_path / "j.jsonl").fit_and_test(recipe, DATA, split, ["ndcg@20"])
    assert sorted(path.name for path in scratch.iterdir()) == ["another-fit", "letter.txt"]
    assert (scratch / "another-fit" / "gramian-epoch-odd").is_dir()


@pytest.mark.parametrize(
    ("recipe", "saves"), [(FactorModel(backbone=MF(rank=4), n_epochs=2), True), (gr.IALS(rank=4, n_epochs=2), False)]
)
def test_only_a_training_by_gradients_saves_checkpoints(tmp_path, fits, monkeypatch, recipe, saves):
    folders, fit = [], type(recipe).fit
    monkeypatch.setattr(
        type(recipe), "fit", lambda self, events, scratch=None: folders.append(scratch) or fit(self, events, scratch=scratch)
    )
    split = DATA.load_splits().test
    Benchmark(tmp_path / "j.jsonl").fit_and_test(recipe, DATA, split, ["ndcg@20"])
    assert folders == [tmp_path / "j.scratch" / fit_key(split, recipe) if saves else None]
    assert not (tmp_path / "j.scratch").exists()


def test_only_what_is_measured_is_warmed_up(tmp_path, monkeypatch):
    warmed_up = []
    monkeypatch.setattr(runner, "warm_up", lambda *recipes: warmed_up.extend(recipes))
    Benchmark(tmp_path / "j.jsonl").run(table(POPULARITY))
    assert warmed_up == [gr.Popularity()]


def test_one_impossible_model_does_not_stop_the_others(tmp_path, fits):
    weights = gr.Interactions.of(EVENTS.frame().with_columns(weight=2.0), value="weight")
    data = EventsData("weights", "strong", {}, events=weights)
    entries = [ModelEntry(name, name, {"l2": [5, 50]}) for name in ("EASE", "DebiasedEASE")]
    cells = Benchmark(tmp_path / "j.jsonl").run(table(*entries, data=[data]))
    assert cells[0].fit is not None
    assert "0/1 interactions" in cells[1].note


def test_models_are_compared_with_the_best_user_by_user(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    cells = bench.run(table(EDLAE, POPULARITY, EASE))
    comparisons = Benchmark(tmp_path / "j.jsonl").compare_with_best(cells, "ndcg@20")
    split = gr.split.strong(EVENTS)
    reports = {cell.model: gr.evaluate(recipe_of(cell).fit(split.train), split) for cell in cells}
    best = max(reports, key=lambda model: reports[model]["ndcg@20"])
    assert set(comparisons) == set(reports) - {best}
    paired = correct_p_values({model: reports[model].compare(reports[best], "ndcg@20") for model in comparisons})
    for model, comparison in comparisons.items():
        expected = paired[model]
        assert (comparison.difference, comparison.stderr, comparison.p_value) == pytest.approx(
            (expected.difference, expected.stderr, expected.p_value)
        )
    elsewhere = tmp_path / "elsewhere.jsonl"  # where the metrics of each user are gone
    elsewhere.write_bytes((tmp_path / "j.jsonl").read_bytes())
    assert Benchmark(elsewhere).compare_with_best(cells, "ndcg@20") == comparisons
    rows = [line for line in elsewhere.read_text().splitlines(keepends=True) if '"kind": "comparison"' not in line]
    elsewhere.write_text("".join(rows))
    assert Benchmark(elsewhere).compare_with_best(cells, "ndcg@20") == {}


def recipe_of(cell):
    return gr.MODELS[cell.fit["recipe"]["name"]](**cell.fit["recipe"]["params"])


def test_curves_along_a_parameter_and_over_seeds(tmp_path):
    params = {"backbone": "mf(rank=4, cosine=True)", "loss": "ccl(n_negatives=3, debiased=debias())", "n_epochs": 2}
    curves = (
        Curve("some", "positives", "FactorModel", params, values=(1, 4)),
        Curve("some", "unobserved_weight", "IALS", {"rank": 4, "n_epochs": 2}, values=(0.1, 1), seeds=3, name="three"),
        Curve("some", "epoch", "IALS", {"rank": 4, "n_epochs": 6}, seeds=2, patience=1),
        Curve("some", "l2", "IALS", {"rank": 4, "n_epochs": 6}, values=(0.1,), patience=1),
    )
    path = tmp_path / "j.jsonl"
    for _ in range(2):  # the second run has nothing to do
        bench = Benchmark(path)
        bench.run(table(curves=curves))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["along"] for row in rows] == [curve.along for curve in curves]
    split = gr.split.strong(EVENTS).validation
    for point in rows[0]["points"]:
        recipe = curves[0].build_recipe()
        debias = replace(recipe.loss.debiased, positives=point["at"])
        recipe = replace(recipe, loss=replace(recipe.loss, debiased=debias))
        assert point["value"] == pytest.approx(gr.evaluate(recipe.fit(split.train), split, ["ndcg@20"])["ndcg@20"])
    assert (rows[1]["name"], rows[1]["seeds"]) == ("three", 3)
    for point in rows[1]["points"]:
        recipes = [gr.IALS(rank=4, n_epochs=2, unobserved_weight=point["at"], seed=seed) for seed in range(3)]
        values = [gr.evaluate(recipe.fit(split.train), split, ["ndcg@20"])["ndcg@20"] for recipe in recipes]
        assert point["values"] == pytest.approx(values)
        assert point["value"] == pytest.approx(np.mean(values))
        assert point["deviation"] == pytest.approx(np.std(values, ddof=1))
    paths = [gr.epoch_path(gr.IALS(rank=4, n_epochs=6, seed=seed), split, ["ndcg@20"], patience=1) for seed in range(2)]
    n_epochs = min(len(path.reports) for path in paths)
    assert [point["at"] for point in rows[2]["points"]] == list(range(1, n_epochs + 1))
    best = gr.epoch_path(gr.IALS(rank=4, n_epochs=6, l2=0.1), split, ["ndcg@20"], patience=1)
    value = max(report["ndcg@20"] for report in best.reports.values())
    assert rows[3]["points"][0]["value"] == pytest.approx(value, rel=1e-6)


def test_curves_are_those_of_the_library(tmp_path):
    curves = (
        Curve("some", "epoch", "IALS", {"rank": 4, "n_epochs": 3}),
        Curve("some", "rank", "LRR", {"l2": 5}, ranks=(2, 8)),
    )
    path = tmp_path / "j.jsonl"
    for _ in range(2):  # the second run has nothing to do
        Benchmark(path).run(table(curves=curves))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["along"] for row in rows] == ["epoch", "rank"]
    split = gr.split.strong(EVENTS).validation
    epochs = gr.epoch_path(gr.IALS(rank=4, n_epochs=3), split, ["ndcg@20"], patience=9)
    assert [p["value"] for p in rows[0]["points"]] == pytest.approx([r["ndcg@20"] for r in epochs.reports.values()], rel=1e-6)
    seconds = [p["seconds"] for p in rows[0]["points"]]
    assert seconds == sorted(seconds)
    ranks = gr.rank_path(gr.LRR(l2=5), [2, 8], split, ["ndcg@20"])
    assert [p["value"] for p in rows[1]["points"]] == pytest.approx([r["ndcg@20"] for r in ranks.reports.values()], rel=1e-6)
