"""Cores: how many this process may use, and one number of threads for Numba and BLAS alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from numba import config, get_num_threads, set_num_threads
from threadpoolctl import ThreadpoolController

from gramian.errors import InvalidInput
from gramian.linalg.memory import CGROUP


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Work on n threads. None: as many as there are, but no more than a container's share of the machine."""
    most: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if n is None:
        n = min(get_num_threads(), cores())
    elif isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
        raise InvalidInput(f"n_threads from 1 to {most}", repr(n), "Leave it out to use every core")
    before = get_num_threads()
    if n == before == most:  # nothing to change, and BLAS has its own threads by the same count
        yield
        return
    set_num_threads(n)
    try:
        with blas().limit(limits=n, user_api="blas"):
            yield
    finally:
        set_num_threads(before)


@cache
def blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def cores() -> int:
    """Cores this process may use: those it is bound to, and in a container no more than its share."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = (CGROUP / "cpu.max").read_text().split()
        return min(found, max(1, int(share) // int(period))) if share != "max" else found
    except OSError:
        return found
