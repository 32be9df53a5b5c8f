"""Run many small tasks on all threads, each task on one core.

A thread takes the next task from a queue as soon as it is free. So on a machine that is shared with other processes, a thread
that gets less of its core does fewer tasks, and the others wait for one task at most. A kernel that cuts its work into equal
halves waits for the slower half instead, at every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from numba import get_num_threads, set_num_threads

from gramian.linalg.threads import BLAS

Task = TypeVar("Task")
TaskResult = TypeVar("TaskResult")
T = TypeVar("T")


class Runner(Protocol):
    """Calls `work` with every task, and returns when all are done. An error in a task ends the run and is raised."""

    def __call__(self, work: Callable[[Task], object], tasks: Iterable[Task]) -> None: ...


@contextmanager
def task_queue() -> Iterator[Runner]:
    """Start the threads, and yield what runs tasks on them.

    BLAS and Numba use one thread in each task. Tasks must spend their time without the interpreter lock.
    """
    with BLAS.limit(1):
        n_threads = get_num_threads()
        if n_threads == 1:
            yield run_in_turn
            return
        with ThreadPoolExecutor(n_threads, "gramian-task", initializer=set_num_threads, initargs=(1,)) as pool:

            def run(work: Callable[[Task], object], tasks: Iterable[Task]) -> None:
                try:
                    for _ in pool.map(work, tasks):
                        pass
                except BaseException:  # an interrupt too: do not wait for tasks that have not begun
                    pool.shutdown(cancel_futures=True)
                    raise

            yield run


def map_ahead(work: Callable[[Task], TaskResult], tasks: Iterable[Task]) -> Iterator[TaskResult]:
    """Yield the results of all tasks in order, while the threads work on the next ones.

    Up to one task more than there are threads is done before its result is asked for. Until the last result, Numba uses one
    thread in the caller too, since the others are at work.
    """
    n_threads = get_num_threads()
    with BLAS.limit(1):
        if n_threads == 1:
            yield from map(work, tasks)
            return
        set_num_threads(1)
        try:
            with ThreadPoolExecutor(n_threads, "gramian-ahead", initializer=set_num_threads, initargs=(1,)) as pool:
                pending: deque[Future[TaskResult]] = deque()
                for task in tasks:
                    pending.append(pool.submit(work, task))
                    if len(pending) > n_threads:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
        finally:
            set_num_threads(n_threads)


def pop_or_create(spare: deque[T], create: Callable[[], T]) -> T:
    """Return an object that no task uses any more, or create one. Tasks append theirs to `spare` at their end."""
    try:
        return spare.pop()
    except IndexError:
        return create()


def run_in_turn(work: Callable[[Task], object], tasks: Iterable[Task]) -> None:
    """Call `work` with one task after the other."""
    for task in tasks:
        work(task)
