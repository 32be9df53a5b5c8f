"""The event log: durable, exactly once, and without a trace of what was compacted."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from gramian.errors import DamagedFile, InvalidInput
from gramian.io import event_log
from gramian.io.event_log import EventLog


def numbers(log, after=0):
    return [record.number for record in log.read(after)]


def fill(path, n=4):
    log = EventLog(path)
    for i in range(n):
        log.append(events=[(f"user {i}", i, 1.0), ("é\n", "\x00", 2.5)], key=f"key {i}")
    return log


def test_what_was_appended_is_read_again(tmp_path):
    log = fill(tmp_path / "log")
    log.append(forget=["user 1"])
    for reader in (log, EventLog(tmp_path / "log")):
        assert numbers(reader) == [1, 2, 3, 4, 5]
        assert numbers(reader, after=3) == [4, 5]
        assert reader.read(0)[2].events == [("user 2", 2, 1.0), ("é\n", "\x00", 2.5)]
        assert reader.read(4)[0].forget == ["user 1"]


def test_a_key_is_appended_once(tmp_path):
    path = tmp_path / "log"
    log = fill(path)
    assert log.append(events=[("other", 1, 1.0)], key="key 2") == (3, False)
    assert EventLog(path).append(events=[("other", 1, 1.0)], key="key 0") == (1, False)
    log.compact(4)
    assert log.append(events=[("other", 1, 1.0)], key="key 3") == (4, False)
    assert EventLog(path).append(events=[("other", 1, 1.0)], key="key 4") == (5, True)


def test_a_kill_at_any_byte_loses_only_what_was_not_acknowledged(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of thousands of appends
    fill(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for size in range(ends[0], len(content) + 1):
        path = tmp_path / "torn"
        path.write_bytes(content[:size])
        n_whole = sum(end <= size for end in ends) - 1
        log = EventLog(path)
        assert numbers(log) == list(range(1, n_whole + 1))
        for i in range(4):  # a client repeats what was not acknowledged, and more
            log.append(events=[(f"user {i}", i, 1.0), ("é\n", "\x00", 2.5)], key=f"key {i}")
        assert [record.events for record in EventLog(path).read(0)] == [
            record.events for record in EventLog(tmp_path / "whole").read(0)
        ]


@pytest.mark.parametrize("garbage", [b"\x00" * 300, b"0123456789abcdef {}\n", b"\n"])
def test_garbage_at_the_end_is_dropped(tmp_path, garbage):
    fill(tmp_path / "log")
    with open(tmp_path / "log", "ab") as file:
        file.write(garbage)
    log = EventLog(tmp_path / "log")
    assert numbers(log) == [1, 2, 3, 4]
    log.append(forget=["x"])
    assert numbers(EventLog(tmp_path / "log")) == [1, 2, 3, 4, 5]


def test_damage_to_what_was_acknowledged_is_an_error(tmp_path):
    fill(tmp_path / "log")
    content = bytearray((tmp_path / "log").read_bytes())
    middle = content.index(b"user 1")
    content[middle] ^= 1
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(DamagedFile, match="damaged record after 1"):
        EventLog(tmp_path / "log")


@pytest.mark.parametrize(
    "record",
    [{"n": 7}, {"n": 5, "t": 0, "events": [[1, 2]]}, {"format": 1, "n": 0, "keys": [], "positions": {}}, {"n": "5", "t": 0}],
    ids=str,
)
def test_a_line_that_is_no_next_record_is_an_error(tmp_path, record):
    fill(tmp_path / "log")
    with open(tmp_path / "log", "ab") as file:
        file.write(event_log.encode_line(record))
    with pytest.raises(DamagedFile, match="something else after record 4"):
        EventLog(tmp_path / "log")


def test_another_file_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes").write_text("my notes\nof today\n")
    with pytest.raises(DamagedFile):
        EventLog(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "my notes\nof today\n"


def test_compaction_leaves_no_byte_of_what_was_learned(tmp_path):
    log, reader = fill(tmp_path / "log"), EventLog(tmp_path / "log")
    log.append(forget=["user 1"])
    log.append(events=[("later", 1, 1.0)], position=("events.jsonl", 77))
    log.compact(5)
    assert b"user" not in (tmp_path / "log").read_bytes()
    assert os.listdir(tmp_path) == ["log"]
    for open_log in (log, reader, EventLog(tmp_path / "log", start=5)):
        assert numbers(open_log, after=5) == [6]
        assert open_log.last == 6
        assert open_log.positions == {"events.jsonl": 77}
    log.compact(6)
    assert log.append(forget=["x"]) == (7, True)
    assert numbers(reader, after=6) == [7]


def test_the_log_of_another_model_is_refused(tmp_path):
    fill(tmp_path / "log")
    with pytest.raises(InvalidInput, match="at least 9 records"):
        EventLog(tmp_path / "log", start=9)
    with pytest.raises(InvalidInput, match="up to 4"):
        EventLog(tmp_path / "log").compact(9)
    assert EventLog(tmp_path / "new", start=9).append(forget=["x"]) == (10, True)


def test_a_record_has_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "MAX_RECORD_BYTES", 200)
    log = EventLog(tmp_path / "log")
    with pytest.raises(InvalidInput, match="at most 200 bytes"):
        log.append(forget=["x" * 300])
    assert log.append(forget=["x"]) == (1, True)


WRITER = """
import sys
from gramian.io.event_log import EventLog
log = EventLog(sys.argv[1])
for i in range(10_000):
    key = f"{sys.argv[2]} {i}"
    number, is_new = log.append(events=[[key, i, 1.0]], key=key)
    print(key, flush=True)
    if i % 7 == 6 and sys.argv[2] == "compact":
        log.compact(0)
"""


def test_killed_writers_lose_nothing_that_they_acknowledged(tmp_path):
    rng, acknowledged = random.Random(0), set()
    for turn in range(4):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, tmp_path / "log", f"{turn} {name}"], stdout=subprocess.PIPE, text=True
            )
            for name in ("one", "compact")
        ]
        for writer in writers:
            acknowledged.add(writer.stdout.readline().strip())
        time.sleep(0.3 * rng.random())
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            acknowledged |= {line.strip() for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")}
            writer.wait()
            writer.stdout.close()
    found = [record.events[0][0] for record in EventLog(tmp_path / "log").read(0)]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
