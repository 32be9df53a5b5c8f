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
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gramian.errors import InvalidInput, NotEnoughMemory, StartingOver
from gramian.linalg.inverse import PROBES, Sweep, column_size
from gramian.linalg.memory import held_in_memory, readable, require
from gramian.linalg.symmetric import WIDTH, Symmetric, size

FORMAT = 1  # of the file; another one is never resumed
FILE, FACTS, LOCK = "gramian-sweep.bin", "gramian-facts.json", "gramian-lock"
NEW_FACTS = FACTS + ".new"
PREPARED, SAVED, DONE = range(3)
PAGE = 4096

Layout = dict[str, tuple[tuple[int, ...], np.dtype]]


class Scratch(Sweep):
    """A sweep in a folder, which is this one's alone within a `with`. `key` says whose: only the very same fit resumes it.

    A sweep that is resumed goes on in the dtype it was begun in.
    """

    def __init__(self, folder: Path, key: str, n: int, dtype: type, width: int = WIDTH) -> None:
        self.folder, self.key = folder, f"{FORMAT} {key}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput("a folder for scratch", f"{folder}, which is or lies in a file", "Name another") from None
        self._lock = locked(folder)
        try:
            self._open(n, np.dtype(dtype), width)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, n: int, dtype: np.dtype, width: int) -> None:
        facts = self._known()
        self.begun = facts is not None
        self.dtype = np.dtype(facts["dtype"]) if facts else dtype
        self._file, self.arrays = mapped(self.folder / FILE, layout(n, self.dtype, width), new=not self.begun)
        self.matrix = Symmetric(n, self.arrays["matrix"], width)
        self.column, self.spare, self.root = self.arrays["column"], self.arrays["spare"], self.arrays["root"].T
        self.counters = self.arrays["counters"]
        self.n_steps = len(self.matrix.spans()) + 1  # every block column, and the scale
        self.step = int(self.counters[DONE]) // self.pieces
        if facts and self.complete and not facts["complete"]:  # killed before it could say so
            self._tell_complete()

    @property
    def pieces(self) -> int:
        """Of a step: every block, and the finish."""
        return len(self.matrix.spans()) + 1

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    @property
    def complete(self) -> bool:
        return self.step == self.n_steps

    def begin(self, **arrays: np.ndarray) -> None:
        """The matrix is there: from now on the folder can be resumed. The arrays are kept for the end."""
        for name, array in arrays.items():
            self.arrays[name][:] = array
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
        self.counters[DONE] = (self.step + 1) * self.pieces
        self.step += 1
        if self.complete:
            self._tell_complete()

    def _tell_complete(self) -> None:
        self._file.flush()
        self._tell(complete=True)

    def _tell(self, complete: bool) -> None:
        new = self.folder / NEW_FACTS
        with new.open("w") as file:
            json.dump({"key": self.key, "dtype": self.dtype.name, "boot": boot(), "complete": complete}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / FACTS)

    def _known(self) -> dict[str, Any] | None:
        """The facts of a sweep that can be resumed, if there is one."""
        try:
            facts: dict[str, Any] = json.loads((self.folder / FACTS).read_text())
            key, complete, booted, _ = facts["key"], facts["complete"], facts["boot"], np.dtype(facts["dtype"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            reason = f"{self.folder / FACTS} is damaged"
        else:
            if key != self.key:
                raise InvalidInput(f"the scratch folder of this fit in {self.folder}", "that of another", "Name a new folder")
            if complete or booted == boot():
                return facts
            reason = f"The machine was restarted since {self.folder} was written"
        warnings.warn(f"{reason}. Starting over.", StartingOver, stacklevel=8)
        (self.folder / FACTS).unlink()
        return None


def boot() -> str:
    """Which run of the machine this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(round(psutil.boot_time()))


def clear(folder: Path) -> None:
    """Delete the files of a sweep, and the folder if nothing else is in it."""
    for name in (FACTS, NEW_FACTS, FILE, LOCK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds other files, is in use, or is somebody's mount point
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


def file_bytes(n: int, dtype: np.dtype, width: int = WIDTH) -> int:
    """What an inverse in a file takes on the disk."""
    return sum(paged(shape, kind) for shape, kind in layout(n, dtype, width).values())


def free_for(folder: Path) -> int:
    """The bytes free for a sweep in a folder that may not exist yet, with what an earlier one takes there."""
    folder = folder.absolute()
    disk = next(place for place in (folder, *folder.parents) if place.exists())
    taken = (folder / FILE).stat().st_size if (folder / FILE).exists() else 0
    return shutil.disk_usage(disk).free + taken


def mapped(path: Path, arrays: Layout, new: bool) -> tuple[np.memmap, dict[str, np.ndarray]]:
    """A memory-mapped file and its arrays. A new one is reserved on the disk first: a full disk would kill the process."""
    total = sum(paged(shape, dtype) for shape, dtype in arrays.values())
    if new:
        path.unlink(missing_ok=True)
        try:
            reserve(path, total)
        except BaseException:
            clear(path.parent)
            raise
    elif not path.exists() or path.stat().st_size != total:
        raise InvalidInput(f"{readable(total)} in {path}", "another file", f"Delete {path.parent} and fit again")
    buffer = np.memmap(path, np.uint8, "r+", shape=(total,))
    found, at = {}, 0
    for name, (shape, dtype) in arrays.items():
        found[name] = np.ndarray(shape, dtype, buffer, at)
        at += paged(shape, dtype)
    return buffer, found


def reserve(path: Path, total: int) -> None:
    free = free_for(path.parent)
    if total > free:
        raise NotEnoughMemory(f"{readable(total)} on the disk of {path.parent}", f"{readable(free)} free", "Name another")
    if held_in_memory(path.parent):
        require(total, f"a file in {path.parent}, which is in memory", "Name a folder on a disk")
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, total)
        else:
            file.truncate(total)


def locked(folder: Path) -> Any:
    """A lock on the folder for as long as the returned file is open."""
    file = (folder / LOCK).open("w")
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where a mapped file cannot be opened twice for writing anyway

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except BlockingIOError:
        file.close()
        raise InvalidInput(f"{folder} for this process alone", "another at work in it", "Wait, or name another") from None
    return file
