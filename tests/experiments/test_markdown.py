"""Pages made from a journal: every figure has a row, and every claim a verdict with its evidence."""

from dataclasses import replace
from pathlib import Path

import pytest

import gramian as gr
from command_line import gramian
from gramian.core.params import format_json_params
from gramian.data.synthetic import clustered
from gramian.experiments.claims import join_verdicts, judge_claims
from gramian.experiments.experiment import Claim, Curve, Experiment, ModelEntry, papers
from gramian.experiments.markdown import JournalTables, fill_template
from gramian.experiments.report import write_report
from gramian.experiments.runner import Benchmark, compares_with_published
from small_experiments import DATA, EDLAE, EVENTS, POPULARITY, table

ROOT = Path(__file__).parents[2]
MORE_EVENTS = clustered(1_500, 60, 30_000, n_tastes=5)
ROWS = {"EDLAE": replace(EDLAE, published={"some": (0.5, 0.25)}), "Popularity": POPULARITY}


def test_tables_have_the_figures_of_the_journal(tmp_path, fits):
    curves = (
        Curve("some", "rank", "LRR", search={"l2": [5, 500]}, ranks=(2, 8), name="A|B"),
        Curve("some", "epoch", "IALS", {"rank": 4, "n_epochs": 2}),
    )
    experiment = table(*ROWS.values(), curves=curves, claims=(Claim("It is so.", "holds", "{some: EDLAE, ndcg@20} is high."),))
    bench = Benchmark(tmp_path / "j.jsonl")
    edlae, popularity = bench.run(experiment)
    (tmp_path / "page.md.j2").write_text(
        '{{ published("table", "some", ["EDLAE"]) }}\n\n{{ ranking("table", "some") }}\n\n{{ curves("table", "some") }}\n\n'
        '{{ epochs("table", "some") }}\n\n{{ claims("table") }}\n'
    )
    elsewhere = tmp_path / "elsewhere"  # where the metrics of each user are gone
    elsewhere.mkdir()
    (elsewhere / "j.jsonl").write_bytes((tmp_path / "j.jsonl").read_bytes())
    page = fill_template(Benchmark(elsewhere / "j.jsonl"), [experiment], tmp_path / "page.md.j2")
    assert page == tmp_path / "page.md"
    published, ranking, by_rank, epochs, claims = page.read_text().strip().split("\n\n")
    ours = [edlae.measured_figure(metric) for metric in ("recall@20", "ndcg@20")]
    assert (
        f"| 0.5000 / 0.2500 | {ours[0]:.4f} / {ours[1]:.4f} | {ours[0] / 0.5 - 1:+.1%} / {ours[1] / 0.25 - 1:+.1%} |"
        in published
    )
    assert [line.split("|")[1].strip() for line in ranking.splitlines()[2:]] == ["EDLAE", "Popularity"]
    behind = bench.compare_with_best([edlae, popularity], "ndcg@20")["Popularity"]
    assert f"| {-behind.difference:.4f} ± {behind.stderr:.4f}, " in ranking
    assert by_rank.startswith("| rank | A\\|B |")
    values = [point["value"] for row in bench.curves.values() if "tuned" in row for point in row["points"]]
    assert [line.split("|")[2].strip() for line in by_rank.splitlines()[2:]] == [f"{value:.4f}" for value in values]
    assert "| IALS | 0." in epochs
    assert claims == f"- It is so. **Holds.** {ours[1]:.4f} is high."


def test_published_models_come_after_those_that_were_ranked(tmp_path, fits):
    other = ModelEntry("Other", published={"some": (0.5, float("nan"))})
    experiment = table(EDLAE, POPULARITY, other)
    bench = Benchmark(tmp_path / "j.jsonl")
    tables = JournalTables(bench, [experiment])
    assert "Not run yet" in tables.ranking("table", "some")
    assert "Not run yet" in tables.long_tail("table", "some")
    cells = bench.run(experiment)
    assert not compares_with_published(cells)
    ranking = tables.ranking("table", "some").splitlines()[2:]
    assert [line.split("|")[1].strip() for line in ranking] == ["EDLAE", "Popularity", "Other"]
    assert ranking[-1].split("|")[2:4] == [" 0.5000 ", "  "]
    assert ranking[-1].endswith("| published only |")
    lines = tables.long_tail("table", "some").splitlines()
    groups = cells[0].fit["popularity"]
    assert f"of items with {groups[0]['from']} to {groups[0]['to']} users" in lines[0]
    assert lines[2].split("|")[1:-1] == [" EDLAE ", *(f" {g['ndcg']:.4f} " for g in groups), f" {groups[-1]['listed']:.1%} "]
    page = write_report(bench, [experiment], tmp_path / "out").read_text()
    assert "behind the best in ndcg@20" in page
    assert "<td>0.5000</td>" in page
    assert compares_with_published(bench.cells_of(table(replace(EDLAE, published={"some": (0.5, 0.25)}))))


def test_a_tuned_curve_is_chosen_on_validation_and_tested(tmp_path):
    curve = Curve("some", "rank", "LowRankEDLAE", {"truncate": "weights"}, (2, 8), {"dropout": [0.2, 0.6], "l2": [5, 500]})
    admm = Curve("some", "rank", "ADMMEDLAE", {"n_epochs": 2}, (4,), {"l2": [5, 500]}, name="ADMM")
    bench = Benchmark(tmp_path / "j.jsonl")
    for _ in range(2):  # the second run has nothing to do
        bench.run(table(curves=(curve, admm)))
    rows = [row for row in bench.journal.rows if row["kind"] == "curve"]
    assert [(row["name"], row["tuned"]) for row in rows] == [("LowRankEDLAE", True), ("ADMM", True)]
    split = gr.split.strong(EVENTS)
    for rank, point in zip((2, 8), rows[0]["points"], strict=True):
        grid = {"rank": rank, "dropout": [0.2, 0.6], "l2": [5, 500], "truncate": "weights"}
        best = gr.tune(gr.LowRankEDLAE, split.validation, grid, "ndcg@20", extend=False)
        assert point["recipe"] == best.recipe.to_json()
        assert point["at"] == rank
        report = gr.evaluate(best.recipe.fit(split.train), split, ["ndcg@20"])
        assert point["value"] == pytest.approx(report["ndcg@20"], abs=1e-6)


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
def test_weights_per_factor_are_learned_once(tmp_path, fits):
    names = ("one l2 per factor", "one l2 per factor, sorted")
    entries = [ModelEntry(name, "LRR", {"rank": [4, 8], "l2": [5, 50]}, refine=name) for name in names]
    path = tmp_path / "j.jsonl"
    weighted, sorted_ = Benchmark(path).run(table(*entries))
    assert (weighted.recipe["name"], sorted_.recipe["name"]) == ("LRR", "VLAE")
    assert len(weighted.recipe["params"]["l2"]) == weighted.recipe["params"]["rank"]
    assert weighted.is_search_result
    before = path.read_text()
    Benchmark(path).run(table(*entries))
    assert path.read_text() == before


def test_many_numbers_of_a_parameter_are_abridged():
    recipe = {"name": "LRR", "params": {"rank": 9, "l2": [float(x) for x in range(1, 10)]}}
    assert list(format_json_params(recipe)) == ["rank=9", "l2=(9 numbers from 1 to 9)"]


def test_claims_are_judged_by_a_paired_test(tmp_path, fits):
    claims = (
        Claim("EDLAE is better.", better="EDLAE", than="Popularity"),
        Claim("Popularity is better.", better="Popularity", than="EDLAE"),
        Claim("Both names are one model.", better="EDLAE", than="the same"),
        Claim("Elsewhere.", better="EDLAE", than="not run"),
        Claim("Half known.", "holds", "{some: EDLAE, ndcg@20} and {some: not run, ndcg@20}."),
    )
    entries = (EDLAE, POPULARITY, replace(EDLAE, name="the same"), ModelEntry("not run"))
    experiment = table(*entries, claims=claims, data=[replace(DATA, events=MORE_EVENTS, options={"test_users": 500})])
    bench = Benchmark(tmp_path / "j.jsonl")
    bench.run(experiment)
    judged = judge_claims(bench, experiment)
    assert [claim.verdict for claim in judged] == [
        "holds",
        "does not hold",
        "does not hold",
        "cannot be tested here",
        "cannot be tested here",
    ]
    comparison = bench.compare_with_best(bench.cells_of(experiment), "ndcg@20")["Popularity"]
    assert f"difference {-comparison.difference:+.4f} ± {comparison.stderr:.4f}, p " in judged[0].evidence
    assert "the same model" in judged[2].evidence
    assert "no not run on some" in judged[4].evidence


@pytest.mark.parametrize(
    ("verdicts", "joined"),
    [
        ({}, "cannot be tested here"),
        ({"a": True, "b": True}, "holds"),
        ({"a": False, "b": False}, "does not hold"),
        ({"a": True, "b": False, "c": True}, "holds on a, c, not on b"),
    ],
)
def test_a_verdict_names_the_data_sets_if_they_differ(verdicts, joined):
    assert join_verdicts(verdicts) == joined


def test_a_choice_of_another_search_is_not_shown_as_ours(tmp_path, fits):
    path = tmp_path / "j.jsonl"
    Benchmark(path).run(table(*ROWS.values()))
    wider = replace(ROWS["EDLAE"], search={"dropout": [0.2, 0.5, 0.8], "l2": [5, 50]})
    experiment = table(wider, POPULARITY, claims=(Claim("c", better="EDLAE", than="Popularity"),))
    (edlae, popularity) = Benchmark(path).cells_of(experiment)
    assert (edlae.is_search_result, popularity.is_search_result) == (False, True)
    tables = JournalTables(Benchmark(path), [experiment])
    assert "not run" in tables.published("table", "some", ["EDLAE"])
    assert "EDLAE" not in tables.ranking("table", "some")
    assert "**Cannot be tested here.**" in tables.claims("table")


@pytest.mark.parametrize(
    ("name", "text", "error", "mentioning"),
    [
        ("page.md", "", gr.errors.InvalidInput, "ends in .j2"),
        ("page.md.j2", '{{ ranking("no-such-table", "x") }}', gr.errors.UnknownId, "a table among"),
        ("page.md.j2", "{{ ranking(", gr.errors.DamagedFile, "a template in"),
        ("page.md.j2", "{{ nothing }}", gr.errors.DamagedFile, "'nothing' is undefined"),
    ],
)
def test_a_template_with_a_mistake_is_refused(tmp_path, refused, name, text, error, mentioning):
    (tmp_path / name).write_text(text)
    with refused(error, mentioning):
        fill_template(Benchmark(tmp_path / "j.jsonl"), [table(POPULARITY, data=[DATA])], tmp_path / name)
    with refused(gr.errors.MissingFile, "a template at"):
        fill_template(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "nowhere.md.j2")


def test_the_results_page_is_that_of_the_journal(tmp_path):
    """`gramian report --journal benchmarks/results/papers.jsonl --template docs/results.md.j2` writes it."""
    (tmp_path / "results.md.j2").write_bytes((ROOT / "docs" / "results.md.j2").read_bytes())
    journal = ROOT / "benchmarks" / "results" / "papers.jsonl"
    done = gramian("report", "--journal", journal, "--template", tmp_path / "results.md.j2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    text = (ROOT / "docs" / "results.md").read_text()
    for name in papers():
        if "deql" in name or "landscape-ml-1m" in name:
            assert all(claim.says in text for claim in Experiment.read(papers()[name]).claims)
