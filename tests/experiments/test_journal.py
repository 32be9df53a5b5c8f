"""The journal of a benchmark: what its rows have, and files that are not journals."""

import re
from pathlib import Path

import pytest

import gramian as gr
from gramian.experiments.experiment import Experiment, papers
from gramian.experiments.runner import Benchmark
from gramian.io.journal import Journal
from gramian.tuning.search_journal import SearchJournal

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_rows_say_how_they_were_made(tmp_path):
    journal = Journal(tmp_path / "j.jsonl", "kind")
    row = journal.add({"kind": "x", "title": "Amélie"})
    assert row["versions"]["gramian"] == gr.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", row["time"])
    assert row["machine"].endswith("threads")
    assert Journal(tmp_path / "j.jsonl", "kind").rows == [row]


def test_a_torn_line_is_removed_when_the_next_row_is_added(tmp_path):
    path = tmp_path / "j.jsonl"
    Journal(path, "kind").add({"kind": "a"})
    with path.open("a") as file:
        file.write('{"kind": "tor')
    torn = path.read_bytes()
    journal = Journal(path, "kind")
    assert path.read_bytes() == torn  # reading changes nothing
    journal.add({"kind": "b"})
    assert [row["kind"] for row in Journal(path, "kind").rows] == ["a", "b"]


@pytest.mark.parametrize("row", ['{"kind": "fit"}', '{"kind": "cell", "table": "t"}', '{"kind": "other"}'])
def test_rows_of_another_format_are_named(tmp_path, refused, row):
    path = tmp_path / "j.jsonl"
    path.write_text(row + "\n")
    with refused(gr.errors.DamagedFile, "line 1"):
        Benchmark(path)


@pytest.mark.parametrize("content", ['{"other": 1}\n', "no json\n", "[1]\n", '{"other": 1}'])
def test_a_file_of_another_kind_is_not_a_journal(tmp_path, refused, content):
    path = tmp_path / "j.jsonl"
    path.write_text(content)
    with refused(gr.errors.DamagedFile, "line 1"):
        Benchmark(path)
    assert path.read_text() == content


def test_the_recorded_results_of_the_papers_are_readable():
    benchmark = Benchmark(RESULTS / "papers.jsonl")
    tables = [Experiment.read(path) for path in papers().values()]
    filled = [cell for table in tables for cell in benchmark.cells_of(table) if cell.fit is not None]
    assert len(filled) == len(benchmark.cells) > 0
    assert all(cell.recipe["params"] is not None and cell.duration for cell in filled)
    objectives = {cell.row["chosen"]["objective"] for cell in filled if cell.row["chosen"]}
    assert all(SearchJournal(benchmark.search_path, objective, "").outcomes for objective in objectives)
