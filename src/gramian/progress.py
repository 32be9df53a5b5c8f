"""Progress of work that takes longer than a second: bars on a terminal; for the command line, a line now and then elsewhere.

Everything that is written to stderr while work is under way goes through `STDERR`. Rich can then print a line above the bars,
and a bar within a bar, such as an inversion within a search, gets a line of its own below.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

T = TypeVar("T")
SILENT_SECONDS = 1.0  # before a bar appears
LINE_SECONDS = 10.0  # between two lines where there is no terminal

STDERR = Console(stderr=True)


def print_line(text: str, style: str | None = None) -> None:
    """Print a line to stderr as it is, above the bars if there are any."""
    STDERR.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@dataclass(eq=False)
class Work:
    """Work under way: how much of it is done, when it began, and its bar if it has one."""

    label: str
    total: int
    done: int = 0
    bar: TaskID | None = None
    started: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.label} {self.done / max(1, self.total):.0%}"

    @property
    def seconds_left(self) -> float | None:
        """The time left if the rest goes on at this speed; None before anything is done."""
        return (time.monotonic() - self.started) * (self.total - self.done) / self.done if self.done else None


class ProgressDisplay:
    """Shows all work under way, outermost first.

    Nothing is drawn in the first second of a piece of work: short work, such as a request to the service, costs nothing.
    """

    def __init__(self) -> None:
        self.under_way: list[Work] = []
        self.writes_lines = False  # off a terminal; the command line switches it on
        self._bars: Progress | None = None
        self._last_line = time.monotonic()
        self._lock = RLock()  # the service works in several threads

    def show(self, work: Work) -> None:
        """Draw a bar for each piece of work, or write a line if it is time for one."""
        now = time.monotonic()
        if now - work.started < SILENT_SECONDS:
            return
        with self._lock:
            if sys.stderr.isatty() and not STDERR.is_dumb_terminal:
                self._draw_bars()
            elif self.writes_lines and now - max(self._last_line, self.under_way[0].started) >= LINE_SECONDS:
                self._last_line = now
                self._write_line()

    def _draw_bars(self) -> None:
        if self._bars is None:
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            redirects = sys.stdout.isatty()  # what is printed to a file must stay in that file
            self._bars = Progress(*columns, console=STDERR, transient=True, redirect_stdout=redirects)
            self._bars.start()
        for work in self.under_way:
            if work.bar is None:
                work.bar = self._bars.add_task(work.label, total=work.total)
            self._bars.update(work.bar, completed=work.done)

    def _write_line(self) -> None:
        outermost = self.under_way[0]
        if outermost.done < outermost.total:
            left = outermost.seconds_left
            print_line(", ".join(map(str, self.under_way)) + ("" if left is None else f"; {format_duration(left)} left"))

    def remove(self, work: Work) -> None:
        """Remove the bar of work that has ended, and all bars with the last."""
        with self._lock:
            self.under_way.remove(work)
            if self._bars is not None and work.bar is not None:
                self._bars.remove_task(work.bar)
                if not self._bars.tasks:
                    self._bars.stop()
                    self._bars = None


DISPLAY = ProgressDisplay()


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount of work done since its last call."""
    work = Work(label, total)
    DISPLAY.under_way.append(work)

    def advance(done: int) -> None:
        work.done += done
        DISPLAY.show(work)

    try:
        yield advance
    finally:
        DISPLAY.remove(work)


def track(steps: Sequence[T], label: str) -> Iterator[T]:
    """Yield steps of about equal cost, under a progress bar."""
    with progress_bar(label, len(steps)) as advance:
        for step in steps:
            yield step
            advance(1)


def format_duration(seconds: float) -> str:
    """Format seconds as in '7 min 30 s'."""
    if seconds < 0.01:
        return "under 0.01 s"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{seconds} s"
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
