"""A matrix that is inverted in a memory-mapped file. A run that was killed goes on where it was, to the same bits.

What a process wrote to a mapped file outlives it, even after kill −9. So the file holds the matrix, the sweep's working
space, and three counters that are set after each piece of work. Blocks change in place, so before a block changes it is
copied aside; a run that finds a block half changed puts the copy back first. Only the machine going down may lose pages
in any order: a run from before the last boot starts over, unless it was complete, for then all was flushed to the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gramian.errors import InvalidInput, NotEnoughMemory, StartingOver
from gramian.linalg.inverse import PROBES, Sweep, column_size
from gramian.linalg.memory import readable
from gramian.linalg.symmetric import WIDTH, Symmetric, size

PREPARED, SAVED, DONE = range(3)
PAGE = 4096
SAME_BOOT = 60.0  # seconds by which a machine's own idea of when it was started may drift

Layout = dict[str, tuple[tuple[int, ...], np.dtype]]


class Scratch(Sweep):
    """A sweep in a folder, which is this one's alone within a `with`. `key` says whose: only the very same fit resumes it."""

    def __init__(self, folder: str | Path, key: str, n: int, dtype: type, width: int = WIDTH) -> None:
        self.folder, self.key = Path(folder), key
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = locked(self.folder)
        try:
            self._open(n, np.dtype(dtype), width)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, n: int, dtype: np.dtype, width: int) -> None:
        facts = self._known()
        self._file, arrays = mapped(self.folder / "sweep.bin", layout(n, dtype, width), new=facts is None)
        self.matrix = Symmetric(n, arrays["matrix"], width)
        self.column, self.spare, self.root = arrays["column"], arrays["spare"], arrays["root"].T
        self.counters, self.kept = arrays["counters"], arrays
        self.pieces = len(self.matrix.spans()) + 1  # of a step: every block, and the finish
        self.begun = facts is not None
        self.step = int(self.counters[DONE]) // self.pieces

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    @property
    def complete(self) -> bool:
        return self.step == self.pieces

    def begin(self, **arrays: np.ndarray) -> None:
        """The matrix is there: from now on the folder can be resumed. The arrays are kept for its end."""
        for name, array in arrays.items():
            self.kept[name][:] = array
        self._tell(complete=False)
        self.begun = True

    def must_prepare(self) -> bool:
        return bool(self.counters[PREPARED] <= self.step)

    def prepared(self) -> None:
        self.counters[PREPARED] = self.step + 1

    def blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        for piece, (first, last, block) in enumerate(self.matrix.blocks(), self.step * self.pieces):
            if piece < self.counters[DONE]:
                continue
            old = self.spare[: block.size].reshape(block.T.shape).T
            if self.counters[SAVED] == piece + 1:
                block[:] = old
            else:
                old[:] = block
                self.counters[SAVED] = piece + 1
            yield first, last, block
            self.counters[DONE] = piece + 1

    def finished(self) -> None:
        self.step += 1
        self.counters[DONE] = self.step * self.pieces
        if self.complete:
            self._file.flush()
            self._tell(complete=True)

    def _known(self) -> dict[str, Any] | None:
        """The facts of a sweep that can be resumed, if there is one."""
        path = self.folder / "facts.json"
        if not path.exists():
            return None
        facts: dict[str, Any] = json.loads(path.read_text())
        if facts["key"] != self.key:
            raise InvalidInput(f"the scratch folder of this very fit in {self.folder}", "that of another", "Name a new folder")
        if facts["complete"] or abs(facts["boot"] - psutil.boot_time()) < SAME_BOOT:
            return facts
        warnings.warn(f"The machine was restarted since {self.folder} was written. Starting over.", StartingOver, stacklevel=5)
        path.unlink()
        return None

    def _tell(self, complete: bool) -> None:
        facts = {"key": self.key, "boot": psutil.boot_time(), "complete": complete}
        new = self.folder / "facts.new"
        new.write_text(json.dumps(facts))
        new.replace(self.folder / "facts.json")


def clear(folder: Path) -> None:
    """Delete the files of a sweep, and the folder if nothing else is in it."""
    for name in ("facts.json", "sweep.bin", "lock"):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def layout(n: int, dtype: np.dtype, width: int) -> Layout:
    """The arrays of the file: the state of the sweep, what `begin` keeps, the working space and the matrix."""
    column, root = column_size(n, width), min(n, width)
    return {
        "counters": ((3,), np.dtype(np.int64)),
        "s": ((n,), np.dtype(np.float64)),
        "by": ((n,), dtype),
        "image": ((n, PROBES), dtype),
        "root": ((root, root), dtype),
        "column": ((column,), dtype),
        "spare": ((column,), dtype),
        "matrix": ((size(n, width),), dtype),
    }


def paged(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """The bytes of an array, rounded up to whole pages."""
    return -(-prod(shape) * dtype.itemsize // PAGE) * PAGE


def scratch_bytes(n: int, dtype: np.dtype, width: int = WIDTH) -> int:
    """What an inverse in a file takes on the disk."""
    return sum(paged(shape, kind) for shape, kind in layout(n, dtype, width).values())


def mapped(path: Path, arrays: Layout, new: bool) -> tuple[np.memmap, dict[str, np.ndarray]]:
    """A memory-mapped file and its arrays. A new one is reserved on the disk first: a full disk would kill the process."""
    total = sum(paged(shape, dtype) for shape, dtype in arrays.values())
    if new:
        path.unlink(missing_ok=True)
        free = shutil.disk_usage(path.parent).free
        if total > free:
            raise NotEnoughMemory(f"{readable(total)} on the disk of {path.parent}", f"{readable(free)} free", "Name another")
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, total)
            else:
                file.truncate(total)
    elif not path.exists() or path.stat().st_size != total:
        raise InvalidInput(f"{readable(total)} in {path}", "another file", f"Delete {path.parent} and fit again")
    buffer = np.memmap(path, np.uint8, "r+", shape=(total,))
    found, at = {}, 0
    for name, (shape, dtype) in arrays.items():
        found[name] = np.ndarray(shape, dtype, buffer, at)
        at += paged(shape, dtype)
    return buffer, found


def locked(folder: Path) -> Any:
    """A lock on the folder for as long as the returned file is open."""
    file = (folder / "lock").open("w")
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where a mapped file cannot be opened twice for writing anyway

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError:
        file.close()
        raise InvalidInput(f"{folder} for this process alone", "another at work in it", "Wait, or name another") from None
    return file
