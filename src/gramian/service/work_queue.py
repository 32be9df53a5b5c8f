"""Threads that do the work of requests, each with a bounded queue: what does not fit is refused with a 503, not delayed."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from numba import config, set_num_threads
from starlette.exceptions import HTTPException

R = TypeVar("R")
MAX_WAIT = 10.0  # seconds in a queue, after which a request is refused
RETRY_AFTER = {"retry-after": "1"}  # seconds; a full queue of single requests takes less


class WorkQueue:
    """One thread and the requests that wait for it, first come, first served.

    Parameters
    ----------
    name
        The name of the thread.
    max_pending
        How many requests may wait, be worked on or be sent. Further ones get a 503 with Retry-After.
    n_threads
        How many threads the kernels use; all if left out.
    """

    def __init__(self, name: str, max_pending: int, n_threads: int | None = None) -> None:
        self.name, self.max_pending, self.n_pending = name, max_pending, 0
        max_threads: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        self.executor = ThreadPoolExecutor(1, name, set_num_threads, (n_threads or max_threads,))
        self.is_empty = threading.Event()
        self.is_empty.set()

    def enter(self) -> None:
        """Take a place in the queue, or raise the 503."""
        if self.n_pending >= self.max_pending:
            raise HTTPException(503, f"{self.max_pending} {self.name} requests are waiting. Try again later.", RETRY_AFTER)
        self.n_pending += 1
        self.is_empty.clear()

    def leave(self) -> None:
        """Give the place back."""
        self.n_pending -= 1
        if self.n_pending == 0:
            self.is_empty.set()

    async def run(self, work: Callable[[], R]) -> R:
        """Do the work in the thread and return its result. Work that has not begun can be cancelled: it leaves the queue."""
        self.enter()
        try:
            return await self.run_in_place(work)
        finally:
            self.leave()

    async def run_in_place(self, work: Callable[[], R]) -> R:
        """Do the work of a request that has already entered."""
        future = self.executor.submit(work)
        timer = asyncio.get_running_loop().call_later(MAX_WAIT, future.cancel)  # has no effect on work that has begun
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise HTTPException(503, f"This request waited for {MAX_WAIT:g} s. Try again later.", RETRY_AFTER) from None
        finally:
            timer.cancel()

    def close(self) -> None:
        """Drop what waits, and end the thread after the work that has begun."""
        self.executor.shutdown(cancel_futures=True)
