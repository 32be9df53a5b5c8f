"""Seconds and peak resident memory of a job."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def seconds(job: Callable[[], object]) -> float:
    """Return the seconds that a job takes."""
    gc.collect()
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def wall_and_cpu_seconds(job: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that a job takes, and its CPU seconds, which other processes on the machine change little."""
    started, cpu_started = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - started, time.process_time() - cpu_started


def resident_bytes(line: str) -> int:
    """Return VmRSS or VmHWM (the peak) of this process in bytes, on Linux."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(line + ":")[1].split()[0])


def peak_bytes(job: Callable[[], T]) -> tuple[T, int]:
    """Return the result of a job, and its peak resident memory above the level before it."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_bytes("VmRSS")
    return job(), resident_bytes("VmHWM") - before
