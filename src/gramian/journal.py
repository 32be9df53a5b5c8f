"""A journal: one JSON object to a line, on the disk as soon as it is added, never overwritten.

Every row says when, by which code, with which versions and on how many threads it was made.
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
from typing import Any

from numba import get_num_threads

from gramian.errors import DamagedFile, InvalidInput

PACKAGES = ("gramian", "numpy", "scipy", "numba", "polars")


class Journal:
    """The rows of a file, and of this process. Without a path they are only kept in memory.

    `first` is the key with which every row begins, by which a line that a crash has torn is told from a file of another kind.
    """

    def __init__(self, path: str | Path | None, first: str) -> None:
        self.path = None if path is None else Path(path)
        self.first = first
        self.rows: list[dict[str, Any]] = []
        self._torn: tuple[int, int] | None = None  # where the whole lines end, and the file
        if self.path is None:
            return
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise InvalidInput("a file for the journal, in a folder that exists", str(path), "Choose another path")
        if self.path.exists():
            self._read(self.path)

    def add(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Append a row, with what it was made by."""
        assert next(iter(row)) == self.first
        whole = {**row, **provenance()}
        self.rows.append(whole)
        if self.path is not None:
            if self._torn is not None and self.path.stat().st_size == self._torn[1]:  # and nobody else has written since
                os.truncate(self.path, self._torn[0])
            self._torn = None
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(whole, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        return whole

    def _read(self, path: Path) -> None:
        text = path.read_bytes()
        whole, tail = text[: text.rfind(b"\n") + 1], text[text.rfind(b"\n") + 1 :]
        start = f'{{"{self.first}": '.encode()
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                row[self.first]
            except (ValueError, KeyError, TypeError):
                raise damaged(path, number, line) from None
            self.rows.append(row)
        if tail and not start.startswith(tail[: len(start)]):
            raise damaged(path, whole.count(b"\n") + 1, tail)
        if tail:  # a line torn by a crash, or one that is being written: it goes when the next is added
            self._torn = len(whole), len(text)


def damaged(path: Path, number: int, line: bytes) -> DamagedFile:
    got = line[:60].decode(errors="replace")
    return DamagedFile(f"a result in line {number} of {path}", got, "Delete that line, or name another file")


def provenance() -> dict[str, Any]:
    """When, by which code, with which versions and on how many threads."""
    made = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "revision": revision(), "versions": versions()}
    return made | {"machine": f"{platform.machine()}, {get_num_threads()} threads"}


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    with suppress(PackageNotFoundError):
        found["torch"] = version("torch")
    return found


@cache
def revision() -> str:
    """The git revision of this code where it is a checkout, else its version."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=False)
        if tracked.returncode == 0:
            done = subprocess.run([*git, "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
            return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return version("gramian")
