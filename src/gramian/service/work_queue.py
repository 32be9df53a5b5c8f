"""Threads that do the work of requests, each with a bounded queue: what does not fit is refused with a 503, not delayed.

A `MicroBatcher` hands all requests that wait for a thread to one call, once the thread is free.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from numba import config, set_num_threads
from starlette.exceptions import HTTPException

T = TypeVar("T")
R = TypeVar("R")
MAX_WAIT = 10.0  # seconds in a queue, after which a request is refused
RETRY_AFTER = {"retry-after": "1"}  # seconds; a full queue of single requests takes less
MAX_TOGETHER = 16  # requests of a micro-batch: further ones save little, and the first would wait longer


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
        return await wait_for_turn(self.executor.submit(work))

    def close(self) -> None:
        """Drop what waits, and end the thread after the work that has begun."""
        self.executor.shutdown(cancel_futures=True)


class MicroBatcher(Generic[T, R]):
    """Requests that wait for the thread of a queue and are answered in one call, as many as have arrived when it is free.

    No request waits for others to come: alone, it is answered alone.

    Parameters
    ----------
    queue
        The queue.
    answer
        Yields the number of each request and its outcome, as soon as it is there: the result, or the error to raise.
    """

    def __init__(self, queue: WorkQueue, answer: Callable[[Sequence[T]], Iterable[tuple[int, R | Exception]]]) -> None:
        self.queue, self.answer = queue, answer
        self.waiting: deque[tuple[T, Future[R]]] = deque()

    async def run(self, request: T) -> R:
        """Return the result of a request. One that is cancelled before its turn leaves the queue."""
        self.queue.enter()
        try:
            future: Future[R] = Future()
            self.waiting.append((request, future))
            self.queue.executor.submit(self._answer_waiting)  # finds nothing if an earlier call has taken the request
            return await wait_for_turn(future)
        finally:
            self.queue.leave()

    def _answer_waiting(self) -> None:
        requests: list[T] = []
        futures: dict[int, Future[R]] = {}
        while self.waiting and len(requests) < MAX_TOGETHER:
            request, future = self.waiting.popleft()
            if future.set_running_or_notify_cancel():
                futures[len(requests)] = future
                requests.append(request)
        try:
            for number, outcome in self.answer(requests) if requests else ():
                if isinstance(outcome, Exception):
                    futures.pop(number).set_exception(outcome)
                else:
                    futures.pop(number).set_result(outcome)
        except BaseException as error:  # fails the requests that have no outcome yet
            for future in futures.values():
                future.set_exception(error)

    def close(self) -> None:
        """Cancel what waits."""
        while self.waiting:
            self.waiting.popleft()[1].cancel()


async def wait_for_turn(future: Future[R]) -> R:
    """Return the result of work in a queue. Work that has waited for too long, or whose request is gone, is cancelled."""
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
