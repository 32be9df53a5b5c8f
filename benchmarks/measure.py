"""Seconds and peak resident memory of a job."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def seconds(job: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def resident(line: str) -> int:
    """VmRSS or VmHWM (the peak) of this process, in bytes; Linux."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(line + ":")[1].split()[0])


def peak_bytes(job: Callable[[], T]) -> tuple[T, int]:
    """What a job returns, and the most resident memory it took over that before."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the old peak
    before = resident("VmRSS")
    return job(), resident("VmHWM") - before
