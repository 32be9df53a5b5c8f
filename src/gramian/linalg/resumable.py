"""A matrix inverse in a memory-mapped file. A run that was killed resumes where it stopped and gives the same bits.

What a process has written to a mapped file survives it, even after kill −9. The file therefore holds the matrix, the
workspace of the sweep, and three counters that are set after each piece of work. Blocks are updated in place, so each block
is backed up before it changes, and a resumed run restores a block that was left half updated. Only a crash of the machine can
lose pages, in any order: a run from before the last boot starts over, unless it was complete, because then everything was
flushed to the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gramian.errors import InvalidInput, NotEnoughMemory, RestartWarning
from gramian.linalg.inverse import N_PROBES, Sweep, Tile, column_size, cut_tiles
from gramian.linalg.memory import format_bytes, is_memory_backed, require_memory
from gramian.linalg.symmetric import BLOCK_WIDTH, Symmetric, stored_size
from gramian.linalg.tasks import Runner

SCRATCH_FORMAT = 1  # version of the file layout; a file of another version is never resumed
SWEEP_FILE, STATUS_FILE, LOCK_FILE = "gramian-sweep.bin", "gramian-facts.json", "gramian-lock"
NEW_STATUS_FILE = STATUS_FILE + ".new"
PREPARED, SAVED, DONE = range(3)  # counters: steps prepared, pieces backed up, pieces done
PAGE_BYTES = 4096  # arrays of the file start at multiples of this, the usual size of a page of memory

FileLayout = dict[str, tuple[tuple[int, ...], np.dtype]]


class ResumableSweep(Sweep):
    """A sweep in a folder, which is locked until the `with` block ends.

    `key` identifies the fit: a folder with another key is refused. A resumed sweep keeps the dtype it was begun with.
    """

    def __init__(self, folder: Path, key: str, n: int, dtype: type, width: int = BLOCK_WIDTH) -> None:
        self.folder, self.key = folder, f"{SCRATCH_FORMAT} {key}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput("a folder for scratch", f"{folder}, which is or lies in a file", "Name another") from None
        self._lock = lock_folder(folder)
        try:
            self._open(n, np.dtype(dtype), width)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, n: int, dtype: np.dtype, width: int) -> None:
        status = self._read_status()
        self.has_begun = status is not None
        self.dtype = np.dtype(status["dtype"]) if status else dtype
        self._file, self.arrays = map_file(self.folder / SWEEP_FILE, plan_layout(n, self.dtype, width), new=not self.has_begun)
        self.matrix = Symmetric(n, self.arrays["matrix"], width)
        self.column, self.workspace = self.arrays["column"], self.arrays["workspace"]
        self.inverse_factor = self.arrays["inverse_factor"].T
        self.counters = self.arrays["counters"]
        self.n_steps = len(self.matrix.spans()) + 1  # one for each block column, and one for the scale
        self.step = int(self.counters[DONE]) // self.pieces_per_step
        if status and self.is_complete and not status["complete"]:  # killed between its last step and the status
            self._mark_complete()

    @property
    def pieces_per_step(self) -> int:
        """One for each block, and one for the end of the step."""
        return len(self.matrix.spans()) + 1

    def __enter__(self) -> ResumableSweep:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    @property
    def is_complete(self) -> bool:
        return self.step == self.n_steps

    def begin(self, **arrays: np.ndarray) -> None:
        """Declare the matrix complete: from now on the sweep can be resumed. Stores `s`, `scale` and `image` for later runs."""
        for name, array in arrays.items():
            self.arrays[name][:] = array
        self._write_status(complete=False)
        self.has_begun = True

    def must_prepare(self) -> bool:
        return bool(self.counters[PREPARED] <= self.step)

    def mark_prepared(self) -> None:
        self.counters[PREPARED] = self.step + 1

    def update_blocks(self, update: Callable[[Tile], None], run: Runner) -> None:
        for piece, (first, last, block) in enumerate(self.matrix.blocks(), self.step * self.pieces_per_step):
            if piece < self.counters[DONE]:
                continue
            backup = self.workspace[: block.size].reshape(block.T.shape).T
            if self.counters[SAVED] == piece + 1:
                block[:] = backup
            else:
                backup[:] = block
                self.counters[SAVED] = piece + 1
            run(update, cut_tiles(first, last, block))
            self.counters[DONE] = piece + 1

    def mark_finished(self) -> None:
        self.counters[DONE] = (self.step + 1) * self.pieces_per_step
        self.step += 1
        if self.is_complete:
            self._mark_complete()

    def _mark_complete(self) -> None:
        self._file.flush()
        self._write_status(complete=True)

    def _write_status(self, complete: bool) -> None:
        """Replace the status file atomically."""
        new = self.folder / NEW_STATUS_FILE
        with new.open("w") as file:
            json.dump({"key": self.key, "dtype": self.dtype.name, "boot": read_boot_id(), "complete": complete}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / STATUS_FILE)

    def _read_status(self) -> dict[str, Any] | None:
        """Read the status of a sweep that can be resumed, or None if the folder has none."""
        try:
            status: dict[str, Any] = json.loads((self.folder / STATUS_FILE).read_text())
            key, complete, boot_id, _ = status["key"], status["complete"], status["boot"], np.dtype(status["dtype"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            reason = f"{self.folder / STATUS_FILE} is damaged"
        else:
            if key != self.key:
                raise InvalidInput(f"the scratch folder of this fit in {self.folder}", "that of another", "Name a new folder")
            if complete or boot_id == read_boot_id():
                return status
            reason = f"The machine was restarted since {self.folder} was written"
        warnings.warn(f"{reason}. Starting over.", RestartWarning, stacklevel=8)
        (self.folder / STATUS_FILE).unlink()
        return None


def read_boot_id() -> str:
    """Read what changes whenever the machine boots: Linux's boot id, elsewhere the boot time."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(round(psutil.boot_time()))


def clear_scratch(folder: Path) -> None:
    """Delete the files of a sweep, and the folder if nothing else is in it."""
    for name in (STATUS_FILE, NEW_STATUS_FILE, SWEEP_FILE, LOCK_FILE):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # the folder holds other files, is in use, or is a mount point
        folder.rmdir()


def plan_layout(n: int, dtype: np.dtype, width: int) -> FileLayout:
    """List the arrays of the file in order: the state of the sweep, what `begin` stores, the workspace and the matrix."""
    column, factor = column_size(n, width), min(n, width)
    return {
        "counters": ((3,), np.dtype(np.int64)),
        "s": ((n,), np.dtype(np.float64)),
        "scale": ((n,), dtype),  # to a unit diagonal
        "image": ((n, N_PROBES), dtype),
        "inverse_factor": ((factor, factor), dtype),
        "column": ((column,), dtype),
        "workspace": ((column,), dtype),
        "matrix": ((stored_size(n, width),), dtype),
    }


def count_page_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """The bytes of an array, rounded up to whole pages."""
    return -(-prod(shape) * dtype.itemsize // PAGE_BYTES) * PAGE_BYTES


def scratch_file_bytes(n: int, dtype: np.dtype, width: int = BLOCK_WIDTH) -> int:
    """The size of the file for the inverse of an n × n matrix."""
    return sum(count_page_bytes(*array) for array in plan_layout(n, dtype, width).values())


def free_disk_bytes(folder: Path) -> int:
    """The bytes available to a sweep in a folder that may not exist yet. An earlier sweep there counts as free."""
    folder = folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    reusable = (folder / SWEEP_FILE).stat().st_size if (folder / SWEEP_FILE).exists() else 0
    return shutil.disk_usage(existing).free + reusable


def map_file(path: Path, layout: FileLayout, new: bool) -> tuple[np.memmap, dict[str, np.ndarray]]:
    """Map a file into memory. Returns the mapping and its arrays.

    A new file is reserved on the disk first, because a disk that fills up later would kill the process.
    """
    total = sum(count_page_bytes(*array) for array in layout.values())
    if new:
        path.unlink(missing_ok=True)
        try:
            reserve_file(path, total)
        except BaseException:
            clear_scratch(path.parent)
            raise
    elif not path.exists() or path.stat().st_size != total:
        raise InvalidInput(f"{format_bytes(total)} in {path}", "another file", f"Delete {path.parent} and fit again")
    buffer = np.memmap(path, np.uint8, "r+", shape=(total,))
    arrays, offset = {}, 0
    for name, (shape, dtype) in layout.items():
        arrays[name] = np.ndarray(shape, dtype, buffer, offset)
        offset += count_page_bytes(shape, dtype)
    return buffer, arrays


def reserve_file(path: Path, total: int) -> None:
    """Create a file of `total` bytes. Raises `NotEnoughMemory` if the disk, or the memory behind it, is too small."""
    folder, free = path.parent, free_disk_bytes(path.parent)
    if total > free:
        raise NotEnoughMemory(f"{format_bytes(total)} on the disk of {folder}", f"{format_bytes(free)} free", "Name another")
    if is_memory_backed(folder):
        require_memory(total, f"a file in {folder}, which is in memory", "Name a folder on a disk")
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, total)
        else:
            file.truncate(total)


def lock_folder(folder: Path) -> Any:
    """Lock the folder against other processes for as long as the returned file is open."""
    file = (folder / LOCK_FILE).open("w")
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where a mapped file cannot be opened twice for writing anyway

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except BlockingIOError:
        file.close()
        raise InvalidInput("a folder for this process alone", f"{folder}, which is in use", "Wait, or name another") from None
    return file
