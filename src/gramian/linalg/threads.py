"""Threads: how many cores this process may use, and one thread limit for both Numba and BLAS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numba import config, get_num_threads, set_num_threads
from threadpoolctl import ThreadpoolController

from gramian.errors import InvalidInput
from gramian.linalg.memory import CGROUP


@contextmanager
def limit_threads(n: int | None) -> Iterator[None]:
    """Run Numba and BLAS on n threads. None: on all that are set, but on no more than the cores this process may use."""
    max_threads: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    before = get_num_threads()
    if n is None and before <= available_cores():
        yield
        return
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= max_threads):
        raise InvalidInput(f"n_threads from 1 to {max_threads}", repr(n), "Leave it out to use every core")
    n = available_cores() if n is None else int(n)
    set_num_threads(n)  # Numba's limit belongs to the calling thread
    with BLAS.limit(n):
        try:
            yield
        finally:
            set_num_threads(before)


class BlasThreads:
    """The number of BLAS threads, which is global to the process: the last context to exit restores the original number."""

    def __init__(self) -> None:
        self.lock, self.n_active, self.n = Lock(), 0, 0
        self.original: Any = None  # the limiter of the first context, which remembers the original number

    @contextmanager
    def limit(self, n: int) -> Iterator[None]:
        """Run BLAS on n threads within a `with`, which may be nested and may overlap with others in other threads."""
        with self.lock:
            limiter = load_controller().limit(limits=n, user_api="blas")
            self.original = self.original or limiter
            self.n_active += 1
            outer, self.n = self.n, n
        try:
            yield
        finally:
            with self.lock:
                self.n_active -= 1
                if self.n_active == 0 and self.original:
                    self.original.restore_original_limits()
                    self.original, self.n = None, 0
                else:
                    load_controller().limit(limits=outer, user_api="blas")
                    self.n = outer


BLAS = BlasThreads()


@cache
def load_controller() -> ThreadpoolController:
    """Find the BLAS libraries of this process, once, because that scans every loaded library."""
    return ThreadpoolController()


@cache
def available_cores() -> int:
    """Cores this process may use: its CPU affinity, and at most its container's CPU quota."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return min(n_cores, max(1, int(quota) // int(period))) if quota != "max" else n_cores
    except (OSError, ValueError):
        return n_cores
