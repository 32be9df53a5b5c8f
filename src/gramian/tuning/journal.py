"""A search's journal: a JSON line for each point as soon as it is judged, from which an interrupted search goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gramian.errors import DamagedFile, InvalidInput

START = b'{"judge": "'  # of every line


@dataclass(frozen=True)
class Outcome:
    """What a point reached, on how many users: fewer than all, where it was hopeless by then."""

    value: float
    stderr: float
    n_users: int
    lost_to: str | None = None  # the point that was surely better


class Journal:
    """Outcomes by key. Without a path they are only kept in memory."""

    def __init__(self, path: str | Path | None, judge: str) -> None:
        self.path = None if path is None else Path(path)
        self.judge = judge  # who judged: outcomes of other data, splits and metrics may be in the same file
        self.outcomes: dict[str, Outcome] = {}
        if self.path is None:
            return
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise InvalidInput("a file for the journal, in a folder that exists", str(path), "Choose another path")
        if self.path.exists():
            self._read(self.path)

    def add(self, key: str, recipe: Mapping[str, Any], outcome: Outcome) -> None:
        self.outcomes[key] = outcome
        if self.path is None:
            return
        row = {"judge": self.judge, "key": key, "recipe": recipe, "value": outcome.value, "stderr": outcome.stderr}
        with open(self.path, "a") as file:
            file.write(json.dumps(row | {"n_users": outcome.n_users, "lost_to": outcome.lost_to}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        text = path.read_bytes()
        whole, tail = text[: text.rfind(b"\n") + 1], text[text.rfind(b"\n") + 1 :]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                outcome = Outcome(float(row["value"]), float(row["stderr"]), int(row["n_users"]), row["lost_to"])
                if row["judge"] == self.judge:
                    self.outcomes[str(row["key"])] = outcome
            except (ValueError, KeyError, TypeError):
                raise damaged(path, number, line) from None
        if tail and not START.startswith(tail[: len(START)]):
            raise damaged(path, whole.count(b"\n") + 1, tail)
        if tail:  # a line torn by a crash
            os.truncate(path, len(whole))


def damaged(path: Path, number: int, line: bytes) -> DamagedFile:
    got = line[:60].decode(errors="replace")
    return DamagedFile(f"a result in line {number} of {path}", got, "Delete that line, or name another file")
