"""The budget of a selection: time as in "30m", memory as in "4GB", and the clock that counts it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from numba.core.event import Listener

from gramian.errors import InvalidInput
from gramian.validation import is_number

SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
BYTES_PER_UNIT = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
CLOSING_SECONDS = 4.0  # for writing the model and the report, on an idle machine
CLOSING_PER_START = 2.0  # writing them takes about as long as twice the start of the command, on a busy machine too
MAX_CLOSING_SHARE = 0.2  # of the budget
MIN_SECONDS = 5  # below which not even the fastest models can be compared


def parse_budget(budget: str | float) -> float:
    """Return the seconds of "90", "90s", "30m", "1.5h" or "1h30m"."""
    if is_number(budget):
        seconds = float(budget)
    else:
        parts = re.findall(r"([\d.]+)\s*([a-z]*)", str(budget).strip().lower())
        try:
            is_complete = "".join(number + unit for number, unit in parts) == re.sub(r"\s", "", str(budget).lower())
            seconds = sum(float(number) * SECONDS_PER_UNIT[unit] for number, unit in parts) if is_complete else 0.0
        except (KeyError, ValueError):
            seconds = 0.0
    if not MIN_SECONDS <= seconds < float("inf"):
        raise InvalidInput(f"a budget of at least {MIN_SECONDS} seconds, such as 90s, 30m or 2h", repr(budget), "Pass 30m, say")
    return seconds


def parse_size(memory: str | float | None) -> int | None:
    """Return the bytes of "500MB" or "4GB"; None for no limit."""
    if memory is None:
        return None
    match = re.fullmatch(r"([\d.]+)\s*([a-z]*)", str(memory).strip().lower())
    try:
        n_bytes = int(float(match[1]) * BYTES_PER_UNIT[match[2]]) if match else 0
    except (KeyError, ValueError):
        n_bytes = 0
    if n_bytes < 1:
        raise InvalidInput("memory such as 500MB or 4GB", repr(memory), "Pass 4GB, say")
    return n_bytes


@dataclass
class Clock:
    """Counts the seconds of a budget.

    Parameters
    ----------
    budget
        All seconds.
    used
        Seconds that an earlier, interrupted run used, or that passed before this clock was made.
    """

    budget: float
    used: float = 0.0

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        closing = max(CLOSING_SECONDS, CLOSING_PER_START * self.used)
        self.closing = min(closing, MAX_CLOSING_SHARE * self.budget)  # seconds to leave for writing the results

    @property
    def elapsed(self) -> float:
        """Seconds used so far."""
        return self.used + time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds left; negative when the budget is exceeded."""
        return self.budget - self.elapsed


class CompileTimer(Listener):
    """Adds up the seconds in which Numba compiles. They come once on a machine, so that they predict nothing."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        """Note when the outermost compilation begins."""
        if self._depth == 0:
            self._began = time.monotonic()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Add the seconds of the outermost compilation."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.monotonic() - self._began
