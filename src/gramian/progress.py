"""A progress bar with the time left, on a terminal only, and only for work longer than a second."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

T = TypeVar("T")
PATIENCE = 1.0  # seconds of silence before a bar appears


def track(steps: Sequence[T], what: str) -> Iterator[T]:
    """Yield the steps one by one; steps should cost about the same, so that the time left is right."""
    if len(steps) < 2 or not sys.stderr.isatty():
        yield from steps
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=len(steps), visible=False)
        started = time.monotonic()
        for step in steps:
            yield step
            bar.update(task, advance=1, visible=time.monotonic() - started > PATIENCE)
