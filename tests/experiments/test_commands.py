"""`gramian benchmark` and `gramian report` as a person meets them."""

import json
import re
from pathlib import Path

import pytest

import gramian as gr
from command_line import gramian, ok
from gramian.experiments.experiment import papers
from small_experiments import EVENTS


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    EVENTS.frame().write_csv(path)
    return path


def test_models_are_compared_on_own_data(ratings, tmp_path):
    words = ["benchmark", "--data", ratings, "--models", "ease,popularity", "--models", "edlae", "--metric", "ndcg@20"]
    words += ["--journal", tmp_path / "own.jsonl"]
    done = gramian(*words)
    assert done.returncode == 0, done.stderr
    assert "searching EASE, 6 points" in done.stderr
    assert re.search(r"Popularity +0\.\d{4} ±0\.\d{4} +0\.\d{4} ±0\.\d{4} +\d", done.stdout)
    assert "behind in" in done.stdout
    assert "gramian report" in done.stdout
    cells = {cell["model"]: cell for cell in json.loads(ok(*words, "--json"))["cells"]}
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
    tables = {row["table"]: row for row in json.loads(ok("benchmark", "--json"))["tables"]}
    assert set(tables) == set(papers())
    assert "GRAMIAN_DATA" in tables["deql-table2"]["data"]["gowalla"]


def test_a_table_without_its_data_shows_what_was_published(tmp_path):
    words = ["benchmark", "regularization-landscape-tables5-7", "--models", "DLAE(dropout=0.1,l2=800),DLAE(dropout=0.3,l2=900)"]
    done = gramian(*words, "--journal", tmp_path / "j.jsonl")
    assert done.returncode == 0, done.stderr
    assert "DLAE(dropout=0.3,l2=900)" in done.stdout
    assert "ml-20m is not here" in done.stdout
    assert "DLAE(dropout=0.1,l2=800), DLAE(dropout=0.3,l2=900): data missing" in done.stdout
    assert "Kept in" not in done.stdout


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
        (["--data", "movielens", "--metric", "ncdg@20"], "ncdg"),
        (["movielens", "--journal", "/nowhere/at/all.jsonl"], "a folder that exists"),
        (["movielens", "--journal", "/"], "a file for the journal"),
    ],
)
def test_a_benchmark_that_makes_no_sense_is_one_line(words, mentioning, tmp_path):
    failed = gramian("benchmark", "--journal", tmp_path / "j.jsonl", *words)
    assert failed.returncode == 2
    assert mentioning in failed.stderr
    assert len([line for line in failed.stderr.splitlines() if not line.startswith("read ")]) == 1


def test_a_report_without_a_journal_is_one_line(tmp_path):
    failed = gramian("report", "--journal", tmp_path / "nothing.jsonl")
    assert failed.returncode == 2
    assert "gramian benchmark" in failed.stderr
