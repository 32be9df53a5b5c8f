"""The leaderboard: what the page shows of a benchmark journal."""

import json
from dataclasses import replace

import pytest

from gramian.experiments import runner
from gramian.experiments.experiment import ModelEntry
from gramian.experiments.runner import Benchmark
from gramian.service.leaderboard import Leaderboard, build_tables
from small_experiments import EASE, EDLAE, POPULARITY, table


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    monkeypatch.setattr(runner, "warm_up", lambda *recipes: None)


def test_own_data_comes_first_with_what_was_measured_and_best_first(tmp_path):
    benchmark = Benchmark(tmp_path / "j.jsonl")
    published = table(replace(EASE, published={"some": (0.5, 0.25)}), ModelEntry("elsewhere", published={"some": (0.1, 0.2)}))
    not_run = replace(published, name="not run")
    benchmark.run(published)
    benchmark.run(replace(table(POPULARITY, EDLAE), name="own"))
    first, second = build_tables(benchmark, [published, not_run])
    assert (first["name"], second["name"]) == ("own", "table")
    (data,) = first["data"]
    best, other = data["rows"]
    assert (best["model"], other["model"]) == ("EDLAE", "Popularity")
    assert best["against_best"] is None
    assert other["against_best"]["difference"] < 0
    is_significant = other["against_best"]["p_value"] < 0.05
    assert (best["is_winner"], other["is_winner"]) == (is_significant, False)
    assert best["figures"]["ndcg@20"]["stderr"] > 0
    assert ("EDLAE is significantly better" in data["about"]) == is_significant
    assert [row["model"] for row in second["data"][0]["rows"]] == ["EASE", "elsewhere"]
    json.dumps([first, second], allow_nan=False)


def test_a_model_that_failed_is_listed_last_with_the_reason(tmp_path):
    benchmark = Benchmark(tmp_path / "j.jsonl")
    benchmark.run(table(ModelEntry("too large", "RegularizedPCA", {"rank": [1_000]}), POPULARITY))
    (table_json,) = build_tables(benchmark, [])
    measured, failed = table_json["data"][0]["rows"]
    assert (measured["model"], failed["model"], failed["seconds"]) == ("Popularity", "too large", None)
    assert failed["note"]
    assert not measured["is_winner"]


def test_a_journal_that_grows_is_read_again(tmp_path):
    path = tmp_path / "j.jsonl"
    Benchmark(path).run(table(POPULARITY))
    leaderboard = Leaderboard(path)
    assert leaderboard.tables() is leaderboard.tables()
    Benchmark(path).run(table(POPULARITY, EASE))
    assert len(leaderboard.tables()[0]["data"][0]["rows"]) == 2
