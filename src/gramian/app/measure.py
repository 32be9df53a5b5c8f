"""Seconds and peak memory of a piece of work."""

from __future__ import annotations

import time
import tracemalloc
from types import TracebackType


class Measured:
    """`with Measured() as cost: ...` then cost.seconds and cost.peak_bytes, the most that new arrays held at once."""

    def __enter__(self) -> Measured:
        tracemalloc.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._started
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
