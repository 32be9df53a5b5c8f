"""A progress bar with the time left, on a terminal only, and only for work longer than a second."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

T = TypeVar("T")
PATIENCE = 1.0  # seconds of silence before a bar appears


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how much of the total was done since its last call."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=total)
    started = time.monotonic()

    def advance(done: int) -> None:
        progress.update(task, advance=done)
        if time.monotonic() - started > PATIENCE:
            progress.start()

    try:
        yield advance
    finally:
        progress.stop()


def track(steps: Sequence[T], what: str) -> Iterator[T]:
    """Yield steps of about equal cost one by one, under a progress bar."""
    with bar(what, len(steps)) as advance:
        for step in steps:
            yield step
            advance(1)


def duration(seconds: float) -> str:
    """Seconds in words, as in '7 min 30 s'."""
    if seconds < 0.01:
        return "under 0.01 s"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
