"""Seconds and peak memory of a piece of work."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import psutil


class Measured:
    """`with Measured() as cost: ...` then cost.seconds and cost.peak_bytes, the most memory over that at the start."""

    def __enter__(self) -> Measured:
        self._process = psutil.Process()
        self._before = self._highest = self._process.memory_info().rss
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self._started = time.perf_counter()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self._highest = max(self._highest, self._process.memory_info().rss)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._started
        self._done.set()
        self._watcher.join()
        self.peak_bytes = max(0, self._highest - self._before)
