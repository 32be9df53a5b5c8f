"""A journal: one JSON object per line, flushed to the disk when it is added, never overwritten. Writers lock the file.

Every row records when, by which revision, with which versions and on how many threads it was made.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from numba import get_num_threads

from gramian.errors import DamagedFile, InvalidInput
from gramian.io.locks import lock_descriptor
from gramian.io.temporary import resolve_destination

TAIL_BYTES = 1 << 16  # read at a time, from the end of a file, to find its last line
PACKAGES = ("gramian", "numpy", "scipy", "numba", "polars")


class Journal:
    """The rows of a file and those added by this process.

    Parameters
    ----------
    path
        The file; None to keep the rows in memory only.
    first_key
        The key with which every row begins. It distinguishes a line that a crash cut off from a file of another kind.
    """

    def __init__(self, path: str | Path | None, first_key: str) -> None:
        self.path = None if path is None else Path(path)
        self.first_key = first_key
        self.rows: list[dict[str, Any]] = []
        if self.path is None:
            return
        destination = resolve_destination(self.path)
        if destination.is_dir() or not destination.parent.is_dir():
            raise InvalidInput("a file for the journal, in a folder that exists", str(path), "Choose another path")
        if self.path.exists():
            self._read(self.path)

    def add(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Append a row with its provenance, and return both. Rows of several processes are never interleaved."""
        assert next(iter(row)) == self.first_key
        complete = {**row, **provenance()}
        line = json.dumps(complete, ensure_ascii=False).encode() + b"\n"
        self.rows.append(complete)
        if self.path is not None:
            with open(self.path, "ab+") as file:
                lock_descriptor(file.fileno(), wait=True)
                self._delete_incomplete_line(self.path, file)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        return complete

    def _read(self, path: Path) -> None:
        *lines, tail = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                row[self.first_key]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise damaged_line(path, number, line) from None
            self.rows.append(row)
        if not self._is_start_of_row(tail):
            raise damaged_line(path, len(lines) + 1, tail)

    def _is_start_of_row(self, tail: bytes) -> bool:
        """Whether the text after the last newline is empty or a row that a crash cut off, or that is being written."""
        start = f'{{"{self.first_key}": '.encode()
        return start.startswith(tail[: len(start)])

    def _delete_incomplete_line(self, path: Path, file: BinaryIO) -> None:
        """Delete a row that a crash cut off. Under the lock, no other process is writing it."""
        end = file.seek(0, os.SEEK_END)
        tail = b""
        while end and b"\n" not in tail:
            end = max(0, end - TAIL_BYTES)
            file.seek(end)
            tail = file.read()
        incomplete = tail.rpartition(b"\n")[2]
        if not self._is_start_of_row(incomplete):
            raise damaged_line(path, 1 + path.read_bytes().count(b"\n"), incomplete)
        if incomplete:
            file.truncate(file.seek(0, os.SEEK_END) - len(incomplete))


def damaged_line(path: Path, number: int, line: bytes) -> DamagedFile:
    """Return the error for a line that is not a row of a journal. It names the file without its folder: a service shows it."""
    got = line[:60].decode(errors="replace")
    return DamagedFile(f"a result in line {number} of {path.name}", got, "Delete that line, or name another file")


def provenance() -> dict[str, Any]:
    """Return the time, revision, versions and number of threads of this process."""
    facts = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "revision": revision(), "versions": versions()}
    return facts | {"machine": f"{platform.machine()}, {get_num_threads()} threads"}


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and the packages that results depend on."""
    by_package = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    with suppress(PackageNotFoundError):
        by_package["torch"] = version("torch")
    return by_package


@cache
def revision() -> str:
    """Return the git revision of this code in a checkout, else its version."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=False)
        if tracked.returncode == 0:
            done = subprocess.run([*git, "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
            return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return version("gramian")
