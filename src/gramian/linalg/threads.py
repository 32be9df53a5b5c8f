"""Cores: how many this process may use, and one number of threads for Numba and BLAS alike."""

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
def threads(n: int | None) -> Iterator[None]:
    """Work on n threads. None: as many as there are, but no more than a container's share of the machine."""
    most: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    before = get_num_threads()
    if n is None and before <= cores():
        yield
        return
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= most):
        raise InvalidInput(f"n_threads from 1 to {most}", repr(n), "Leave it out to use every core")
    n = cores() if n is None else int(n)
    set_num_threads(n)  # of this thread alone
    with BLAS.limited(n):
        try:
            yield
        finally:
            set_num_threads(before)


class Blas:
    """The number of BLAS threads, which is one for the whole process: whoever leaves last puts it back as it was."""

    def __init__(self) -> None:
        self.lock, self.inside, self.n = Lock(), 0, 0
        self.before: Any = None  # the limit that knows how it was

    @contextmanager
    def limited(self, n: int) -> Iterator[None]:
        with self.lock:
            limit = controller().limit(limits=n, user_api="blas")
            self.before = self.before or limit
            self.inside += 1
            outer, self.n = self.n, n
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0 and self.before:
                    self.before.restore_original_limits()
                    self.before, self.n = None, 0
                else:
                    controller().limit(limits=outer, user_api="blas")
                    self.n = outer


BLAS = Blas()


@cache
def controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def cores() -> int:
    """Cores this process may use: those it is bound to, and in a container no more than its share."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = (CGROUP / "cpu.max").read_text().split()
        return min(found, max(1, int(share) // int(period))) if share != "max" else found
    except (OSError, ValueError):
        return found
