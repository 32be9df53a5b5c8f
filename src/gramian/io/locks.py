"""Locks between processes on an open file or folder. They end with the process that holds them, even by SIGKILL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock_descriptor(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file or folder until it is closed, and return whether this process has the lock.

    Parameters
    ----------
    descriptor
        The file descriptor.
    wait
        Wait for another process that has the lock. Otherwise return False.

    Returns
    -------
    bool
        False also where the system or the file system has no locks.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on Windows

        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Keep other processes that call this for the same folder waiting until the block ends, where the system has such locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open a folder
        yield
        return
    try:
        lock_descriptor(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)
