"""Progress: nothing for short work, nested bars on a terminal, lines elsewhere for the command line."""

import io
import sys

import pytest
from rich.console import Console

from gramian import progress
from gramian.progress import DISPLAY, progress_bar, track


@pytest.fixture
def long_work(monkeypatch):
    """All work counts as long."""
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)


def do_nested_work():
    for _ in track(range(2), "tuning"):
        with progress_bar("inverting", 4) as advance:
            advance(1)
            advance(3)


def test_short_work_is_silent(capfd, monkeypatch):
    monkeypatch.setattr(DISPLAY, "writes_lines", True)
    do_nested_work()
    assert capfd.readouterr() == ("", "")
    assert DISPLAY.under_way == []


def test_the_command_line_writes_lines_where_there_is_no_terminal(long_work, capsys, monkeypatch):
    do_nested_work()
    assert capsys.readouterr().err == "", "a program that uses the library did not ask for lines"
    monkeypatch.setattr(DISPLAY, "writes_lines", True)
    do_nested_work()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "tuning 0%, inverting 25%"
    assert any(line.startswith("tuning 50%; ") and line.endswith(" left") for line in lines)
    assert not any("tuning 100%" in line for line in lines)


def test_bars_within_bars_share_one_display(long_work, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "STDERR", Console(file=terminal, force_terminal=True, width=80, _environ={"TERM": "xterm"}))
    for _ in track(range(2), "tuning"):
        with progress_bar("inverting", 4) as advance:
            advance(1)
            assert [task.description for task in DISPLAY._bars.tasks] == ["tuning", "inverting"]
            progress.print_line("a note")
        assert [task.description for task in DISPLAY._bars.tasks] == ["tuning"]
    assert DISPLAY._bars is None
    assert "a note\n" in terminal.getvalue().replace("\x1b[2K", "")


def test_work_that_fails_leaves_no_bar(long_work):
    with pytest.raises(ZeroDivisionError):
        list(map(lambda step: 1 / step, track([1, 0], "dividing")))
    assert DISPLAY.under_way == []
