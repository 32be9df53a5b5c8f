"""An append-only log of events and deletions, from which a model is brought up to date.

Each line is a checksum and a JSON object, and one append is one line. An append returns once its line is on the disk, so what
was acknowledged survives a kill and a power loss at any moment. A kill during an append leaves a torn last line, which the
next append deletes. A damaged line that is not the last is an error, since it was acknowledged. Records are numbered without
gaps. A model folder holds the number of the last record that it has learned, and is replaced atomically, so no record is
applied twice. Several processes may append and read; they lock the file.

`compact` drops the records that a saved model has learned. The first line keeps what outlives them: the last number, the hashes
of recent idempotency keys, and how far followed files were read.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from gramian.errors import DamagedFile, InvalidInput
from gramian.io.atomic import atomic_file
from gramian.io.locks import lock_descriptor
from gramian.io.temporary import resolve_destination

LOG_FORMAT = 1
CHECKSUM_DIGITS = 16  # hexadecimal
MAX_RECORD_BYTES = 1 << 24  # of a line; a request has at most half of it
MAX_KEYS = 100_000  # idempotency keys that are remembered after compaction
Event = tuple[Any, Any, float]  # user, item, weight; ids as JSON has them


@dataclass(frozen=True)
class LogRecord:
    """One append.

    Parameters
    ----------
    number
        Its number: 1, 2, 3, ...
    time
        When it was appended, in seconds since 1970.
    events
        Events to learn.
    forget
        Users to forget.
    """

    number: int
    time: float
    events: Sequence[Event] = ()
    forget: Sequence[Any] = ()


@dataclass
class _LogState:
    """What a process knows of the file: how far it has read, and what it found."""

    version: bytes = b""  # checksum of the first line: another one after compaction
    offset: int = 0  # bytes that were read
    base: int = 0  # number of the last record that compaction dropped
    records: list[LogRecord] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)  # hash of a key → number of its record, oldest first
    positions: dict[str, int] = field(default_factory=dict)  # followed file → bytes that were read

    @property
    def last(self) -> int:
        return self.base + len(self.records)


class EventLog:
    """A log file.

    Parameters
    ----------
    path
        The file; it is made if there is none.
    start
        The number of the last record that the model has learned. A new log goes on from there, and an existing log that ends
        before is of another model.
    """

    def __init__(self, path: str | Path, start: int = 0) -> None:
        self.path = resolve_destination(path)
        self.state = _LogState()
        if not self.path.exists():
            self._write_base(_LogState(base=start))
        self.refresh()
        if self.last < start:
            expected, do = f"a log with at least {start:,} records in {self.path.name}", "Name the log of this model"
            raise InvalidInput(expected, f"{self.last:,}", do)

    @property
    def last(self) -> int:
        """The number of the last record that this process has seen."""
        return self.state.last

    @property
    def positions(self) -> Mapping[str, int]:
        """How many bytes of each followed file have been appended."""
        return self.state.positions

    def append(
        self,
        *,
        events: Sequence[Event] = (),
        forget: Sequence[Any] = (),
        key: str | None = None,
        position: tuple[str, int] | None = None,
    ) -> tuple[int, bool]:
        """Append a record, and return once it is on the disk.

        Parameters
        ----------
        events, forget
            Events to learn, and users to forget.
        key
            An idempotency key. If a record has it already, nothing is appended.
        position
            A followed file's name, and up to which byte these are its events.

        Returns
        -------
        number, is_new
            The number of the record with this content, and whether it was appended now.
        """
        digest = None if key is None else hash_key(key)
        with self._locked() as file:
            self._read_new(file)
            if digest is not None and digest in self.state.keys:
                return self.state.keys[digest], False
            file.truncate(self.state.offset)  # what a kill left of a line
            record: dict[str, Any] = {"n": self.last + 1, "t": round(time.time(), 3)}
            record |= {"key": digest} if digest else {}
            record |= {"events": list(events)} if events else {}
            record |= {"forget": list(forget)} if forget else {}
            record |= {"position": list(position)} if position else {}
            line = encode_line(record)
            if len(line) > MAX_RECORD_BYTES:
                raise InvalidInput(f"a record of at most {MAX_RECORD_BYTES:,} bytes", f"{len(line):,}", "Append several")
            file.seek(self.state.offset)
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "the record was not written", self.path.name)
            os.fsync(file.fileno())
            self._note(record, self.state)
            self.state.offset += len(line)
            return self.last, True

    def read(self, after: int) -> list[LogRecord]:
        """Return the records after a number, those of other processes included."""
        with self._locked() as file:
            self._read_new(file)
            return self.state.records[max(after - self.state.base, 0) :]

    def refresh(self) -> None:
        """Read what other processes have appended."""
        with self._locked() as file:
            self._read_new(file)

    def pending(self, after: int) -> tuple[int, float]:
        """Return the number of events and deletions after a record that this process has seen, and the seconds that the
        oldest of them has waited."""
        state = self.state  # another thread may replace it
        waiting = state.records[max(after - state.base, 0) :]
        n_events = sum(len(record.events) + len(record.forget) for record in waiting)
        return n_events, max(time.time() - waiting[0].time, 0.0) if waiting else 0.0

    def compact(self, learned: int) -> None:
        """Drop the records up to a number, which a saved model has learned. No byte of them is left in the file."""
        with self._locked() as file:
            self._read_new(file)
            state = self.state
            if learned > state.last:
                raise InvalidInput(f"a record of {self.path.name} up to {state.last:,}", f"{learned:,}", "Name its log")
            content = os.pread(file.fileno(), state.offset, 0)
            lines = content.split(b"\n")[1 + max(learned - state.base, 0) :]
            keys = dict(islice(state.keys.items(), max(len(state.keys) - MAX_KEYS, 0), None))
            self._write_base(_LogState(base=max(learned, state.base), keys=keys, positions=state.positions), b"\n".join(lines))

    def _write_base(self, state: _LogState, rest: bytes = b"") -> None:
        base = {"format": LOG_FORMAT, "n": state.base, "keys": list(state.keys.items()), "positions": state.positions}
        with atomic_file(self.path) as temporary:
            temporary.write_bytes(encode_line(base) + rest)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Yield the file, locked. It may have been compacted, and so replaced, while this process waited for the lock."""
        while True:
            with open(self.path, "rb+", buffering=0) as file:
                lock_descriptor(file.fileno(), wait=True)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    yield file
                    return

    def _read_new(self, file: BinaryIO) -> None:
        size, version = os.fstat(file.fileno()).st_size, os.pread(file.fileno(), CHECKSUM_DIGITS, 0)
        if version != self.state.version or size < self.state.offset:
            self.state = _LogState(version)
        if size == self.state.offset:
            return
        content = os.pread(file.fileno(), size - self.state.offset, self.state.offset)
        os.fsync(file.fileno())  # another process may have been killed before it did: what is read must not vanish later
        *lines, torn = content.split(b"\n")
        for at, line in enumerate(lines):
            record = decode_line(line)
            if record is None:
                if at == len(lines) - 1 and not torn:
                    return
                raise DamagedFile(f"an event log in {self.path.name}", f"a damaged record after {self.last:,}", "Restore it")
            self._note(record, self.state)
            self.state.offset += len(line) + 1

    def _note(self, record: dict[str, Any], state: _LogState) -> None:
        """Add a line to the state, after checking that it is the next."""
        try:
            if "format" in record:
                if state.offset or record["format"] != LOG_FORMAT:
                    raise ValueError
                state.base, state.keys, state.positions = record["n"], dict(record["keys"]), dict(record["positions"])
                return
            if record["n"] != state.last + 1 or state.offset == 0:
                raise ValueError
            events = [(user, item, float(weight)) for user, item, weight in record.get("events", ())]
            state.records.append(LogRecord(record["n"], float(record["t"]), events, record.get("forget", ())))
            if "key" in record:
                state.keys[record["key"]] = record["n"]
            if "position" in record:
                name, end = record["position"]
                state.positions[name] = end
        except (KeyError, TypeError, ValueError):
            got = f"something else after record {state.last:,}"
            raise DamagedFile(f"an event log in {self.path.name}", got, "Restore it") from None


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line: checksum, blank, JSON in ASCII."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii")
    return checksum_line(text) + b" " + text + b"\n"


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line; None if its checksum does not match."""
    checksum, _, text = line.partition(b" ")
    if checksum != checksum_line(text):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None


def checksum_line(text: bytes) -> bytes:
    """Return 64 bits of BLAKE2b in hexadecimal digits."""
    return blake2b(text, digest_size=CHECKSUM_DIGITS // 2).hexdigest().encode("ascii")


def hash_key(key: str) -> str:
    """Return what the log keeps of an idempotency key."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
