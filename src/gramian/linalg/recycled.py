"""Memory that is used again: large arrays that replace each other, without new pages.

The system clears every page at its first write. For a large matrix that takes several times as long as filling it, and a model
that is updated often needs such a matrix for each version. Here the memory of an array becomes spare when nothing refers to the
array any more, and the next array takes it. So two versions, one that is served and one that is being made, share two pieces
of memory for good.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np

from gramian.linalg.memory import require_memory

GROWTH = 1.05  # of new memory beyond what was asked for, since a model gets new items
MAX_SPARE = 1  # pieces of memory that are kept for the next array


def map_private(n_bytes: int) -> mmap.mmap:
    """Return new memory of this process, in huge pages where the system has them, as NumPy asks for."""
    memory = mmap.mmap(-1, n_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class RecycledMemory:
    """Memory for arrays of about the same size, one after the other.

    Parameters
    ----------
    create
        Returns new memory of at least so many bytes, as a buffer.
    """

    def __init__(self, create: Callable[[int], Any] = map_private) -> None:
        self.create = create
        self.spare: list[Any] = []

    def allocate(self, n_bytes: int, what: str, do: str) -> np.ndarray:
        """Return uninitialised bytes, in spare memory if it is large enough. `what` and `do` are as in `require_memory`."""
        memory = self.take()
        if memory is None or len(memory) < n_bytes:
            memory = None  # frees it
            require_memory(n_bytes, what, do)
            memory = self.create(int(n_bytes * GROWTH))
        whole = np.frombuffer(memory, np.uint8)
        weakref.finalize(whole, self.recycle, memory)  # every view refers to it
        return whole[:n_bytes]

    def recycle(self, memory: Any) -> None:
        """Keep memory that no array uses any more, or free it."""
        if len(self.spare) < MAX_SPARE:
            self.spare.append(memory)

    def take(self) -> Any:
        """Return spare memory, which is then the caller's; None if there is none. Threads may do so at the same time."""
        try:
            return self.spare.pop()
        except IndexError:
            return None

    def clear(self) -> bool:
        """Overwrite spare memory by zeros, so that nothing of the last array is left; return whether there was any."""
        memory = self.take()  # so that no other thread writes to it meanwhile
        if memory is not None:
            np.frombuffer(memory, np.uint8)[:] = 0
            self.recycle(memory)
        return memory is not None


def find_root(array: np.ndarray) -> np.ndarray:
    """Return the array that an array is a view of, directly or through other views."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


MEMORY: ContextVar[RecycledMemory | None] = ContextVar("MEMORY", default=None)


@contextmanager
def allocate_from(memory: RecycledMemory) -> Iterator[None]:
    """Let the matrices that are made in the block be in recycled memory."""
    token = MEMORY.set(memory)
    try:
        yield
    finally:
        MEMORY.reset(token)


def allocate(n: int, dtype: np.dtype, what: str, do: str) -> np.ndarray:
    """Return n uninitialised numbers. Raises `NotEnoughMemory` before allocating if they do not fit."""
    n_bytes, memory = n * dtype.itemsize, MEMORY.get()
    if memory is not None:
        return memory.allocate(n_bytes, what, do).view(dtype)
    require_memory(n_bytes, what, do)
    return np.empty(n, dtype)
