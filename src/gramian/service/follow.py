"""Follow a file or folder of JSON lines, and append its events to the log of a model.

A line is {"user": ..., "item": ..., "weight": ...}; weight may be left out. How far each file was read is in the same record of
the log as its events, so every line is learned exactly once, also after a kill. A file is known by its name without
its folder. One that became shorter is read from its start, as after a rotation.
"""

from __future__ import annotations

import threading
from pathlib import Path

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from gramian.errors import GramianError, MissingFile
from gramian.io.event_log import Event
from gramian.service import SERVICE_LOG
from gramian.service.live_updates import LiveModel
from gramian.service.schemas import MAX_EVENTS, SentEvent

FOLLOW_SECONDS = 0.2  # between two looks at the files
READ_BYTES = 1 << 20  # read at once; a longer line is skipped
SUFFIX = ".jsonl"  # of the files in a followed folder


class EventFollower:
    """A thread that follows a file or folder.

    Parameters
    ----------
    path
        A file, or a folder whose .jsonl files are followed in the order of their names.
    live
        The model that learns the events.
    """

    def __init__(self, path: Path, live: LiveModel) -> None:
        if not path.exists():
            raise MissingFile(f"a file or folder of events at {path}", "nothing there", "Check the path")
        self.path, self.live, self.is_stopped = path, live, threading.Event()
        self.thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def start(self) -> None:
        """Start to follow."""
        self.thread.start()

    def stop(self) -> None:
        """Stop following."""
        self.is_stopped.set()
        if self.thread.is_alive():
            self.thread.join()

    def _run(self) -> None:
        while not self.is_stopped.wait(FOLLOW_SECONDS):
            try:
                self.read_new()
            except Exception:
                SERVICE_LOG.exception("following %s failed; trying again", self.path.name)

    def read_new(self) -> None:
        """Append the complete lines that were written since the last call."""
        files = sorted(self.path.glob(f"*{SUFFIX}")) if self.path.is_dir() else [self.path]
        for file in files:
            while not self.is_stopped.is_set() and self._read_chunk(file):
                pass

    def _read_chunk(self, file: Path) -> bool:
        """Append the next lines of a file; return whether there may be more."""
        start = self.live.log.positions.get(file.name, 0)
        with open(file, "rb") as opened:
            if opened.seek(0, 2) < start:
                start = 0
            opened.seek(start)
            chunk = opened.read(READ_BYTES)
        end = chunk.rfind(b"\n") + 1
        if end == 0 and len(chunk) < READ_BYTES:
            return False  # no complete line
        lines = chunk[: end or READ_BYTES].splitlines(keepends=True)[:MAX_EVENTS]
        events = [event for event in map(self._parse_line, lines) if event is not None]
        try:
            self.live.append_followed(events, (file.name, start + sum(map(len, lines))))
        except HTTPException:  # too many events are waiting
            return False
        return True

    def _parse_line(self, line: bytes) -> Event | None:
        """Return the event of a line; None if it is no event, which is counted and logged without its content."""
        try:
            event = SentEvent.model_validate_json(line)
            return self.live.parse_event((event.user, event.item, event.weight))
        except (ValidationError, GramianError) as error:
            if line.strip():
                self.live.metrics.skipped_lines.inc()
                SERVICE_LOG.warning("a followed line is no event of %s (%s)", self.live.name, type(error).__name__)
            return None
