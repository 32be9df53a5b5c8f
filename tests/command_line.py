"""The command line in this process, for tests."""

import contextlib
import io
import sys
import warnings
from dataclasses import dataclass

import pytest

from gramian import progress
from gramian.cli.main import run


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


def gramian(*words: object, width: int = 140) -> Run:
    """Run the command line's entry point in this process, which saves the seconds of importing the library.

    Lines about long work are off: how long a test takes depends on the machine.
    """
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
    ):
        patch.setattr(sys, "argv", ["gramian", *map(str, words)])
        patch.setenv("COLUMNS", str(width))
        patch.setattr(progress, "LINE_SECONDS", float("inf"))
        patch.setattr(progress.DISPLAY, "writes_lines", False)
        patch.delenv("GRAMIAN_DATA", raising=False)
        with pytest.raises(SystemExit) as stop:
            run()
    return Run(stop.value.code or 0, stdout.getvalue(), stderr.getvalue())


def ok(*words: object, width: int = 140) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = gramian(*words, width=width)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("read ")] == []  # what was read is told there
    return done.stdout
