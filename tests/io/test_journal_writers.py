"""Several processes that write one journal, and journals that are damaged."""

import json
import subprocess
import sys
import textwrap
import threading

import pytest

import gramian as gr
from gramian.experiments.runner import Benchmark
from gramian.io.journal import Journal
from gramian.tuning.search_journal import SearchJournal

WRITE = """
import sys
from gramian.io import journal
journal.provenance = lambda: {}
writer = journal.Journal("j.jsonl", "kind")
for number in range(40):
    writer.add({"kind": sys.argv[1], "number": number, "text": sys.argv[1] * 20_000})
"""


def test_rows_of_several_processes_never_mix(tmp_path):
    code = textwrap.dedent(WRITE)
    writers = [subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    rows = Journal(tmp_path / "j.jsonl", "kind").rows
    for name in "abc":
        assert [row["number"] for row in rows if row["kind"] == name] == list(range(40))
    assert all(row["text"] == row["kind"] * 20_000 for row in rows)


def test_a_torn_line_of_another_process_is_removed_and_no_other(tmp_path):
    path = tmp_path / "j.jsonl"
    first, second = Journal(path, "kind"), Journal(path, "kind")
    first.add({"kind": "a", "text": "x" * 100_000})
    with path.open("a") as file:
        file.write('{"kind": "torn')  # after the second journal was read
    complete = path.read_bytes()[: -len('{"kind": "torn')]
    second.add({"kind": "b"})
    assert path.read_bytes().startswith(complete)  # append-only
    assert [row["kind"] for row in Journal(path, "kind").rows] == ["a", "b"]


def test_threads_that_share_a_file_wait_for_each_other(tmp_path):
    path = tmp_path / "j.jsonl"

    def write(name):
        journal = Journal(path, "kind")
        for _ in range(5):
            journal.add({"kind": name * 5_000})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(path.read_text().splitlines()) == len(Journal(path, "kind").rows) == 20


def test_text_of_another_program_is_never_cut_off(tmp_path, refused):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, "kind")
    journal.add({"kind": "a"})
    with path.open("a") as file:
        file.write("dear")
    before = path.read_bytes()
    with refused(gr.errors.DamagedFile, "line 2 of j.jsonl"):
        journal.add({"kind": "b"})
    assert path.read_bytes() == before


DAMAGED = ["no json", '{"other": 1}', '{"kind": "fit"}', "[" * 100_000]


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_journal_is_reported_without_its_folder(tmp_path, refused, line):
    path = tmp_path / "j.jsonl"
    path.write_text(line + "\n")
    for read in (Benchmark, lambda p: SearchJournal(p, "objective", "metric")):
        with pytest.raises(gr.errors.DamagedFile) as caught:
            read(path)
        assert "line 1 of j.jsonl" in str(caught.value)
        assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "none/j.jsonl"], ids=["long", "null", "no folder"])
def test_a_journal_at_a_path_that_cannot_be_is_refused(tmp_path, refused, name):
    with refused(gr.errors.InvalidInput):
        Journal(tmp_path / name, "kind").add({"kind": "a"})


def test_rows_are_json_that_others_can_read(tmp_path):
    Journal(tmp_path / "j.jsonl", "kind").add({"kind": "a", "title": "Amélie"})
    assert json.loads((tmp_path / "j.jsonl").read_text(encoding="utf-8"))["title"] == "Amélie"
