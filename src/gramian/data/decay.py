"""Decay of interactions with their age: a weight halves with every half-life.

With the age a of an interaction (now − its time) and a half-life h, its weight is multiplied by 2^(−a/h). An interaction at
`now` keeps its weight, one after `now` keeps it too, and an infinite half-life keeps all of them.
"""

from __future__ import annotations

import datetime as dt
import re
from math import inf
from typing import Any

import numpy as np

from gramian.data.dates import MILLISECONDS, SECONDS, parse_cutoff
from gramian.errors import InvalidInput
from gramian.validation import is_number

UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_557_600}  # in seconds; a year has 365.25 days
EXAMPLE = "Pass half_life='90d', say; units are s, min, h, d, w and y"


def compute_decay(times: np.ndarray, half_life: Any, now: Any = None) -> np.ndarray:
    """Return the factor 2^(−age / half_life) of each time, in float64; `now` is the latest time if left out."""
    duration = parse_half_life(half_life, times)
    now = times.max() if now is None else parse_cutoff(now, times)
    ages = np.maximum((now - times) / (np.timedelta64(1, "s") if times.dtype.kind == "M" else 1), 0)
    return np.asarray(np.exp2(-ages / duration))


def parse_half_life(half_life: Any, times: np.ndarray) -> float:
    """Return a half-life in seconds where the times are dates, and else in the unit of the times."""
    seconds = parse_duration(half_life)
    if seconds is None:
        if not (is_number(half_life) or (isinstance(half_life, float) and half_life == inf)) or not half_life > 0:
            raise InvalidInput("a half_life above 0, such as '90d'", repr(half_life), EXAMPLE)
        if times.dtype.kind == "M" and half_life < inf:
            raise InvalidInput("a half_life with a unit, for times that are dates", repr(half_life), EXAMPLE)
        return float(half_life)
    if not seconds > 0:
        raise InvalidInput("a half_life above 0, such as '90d'", repr(half_life), EXAMPLE)
    return seconds if times.dtype.kind == "M" else seconds * units_per_second(times, half_life)


def parse_duration(duration: Any) -> float | None:
    """Return the seconds of a timedelta or of text such as '90d'; None if it is neither."""
    if isinstance(duration, dt.timedelta):
        return duration.total_seconds()
    if isinstance(duration, np.timedelta64):
        return float(duration / np.timedelta64(1, "s"))
    match = re.fullmatch(r"\s*([-+]?[\d.]+)\s*([a-z]+)\s*", duration) if isinstance(duration, str) else None
    try:
        return float(match[1]) * UNITS[match[2]] if match else None
    except (ValueError, KeyError):
        return None


def units_per_second(times: np.ndarray, half_life: Any) -> float:
    """Return 1 if times are seconds since 1970, 1000 if they are milliseconds; refuse other numbers, of an unknown unit."""
    for (first, last), per_second in ((SECONDS, 1.0), (MILLISECONDS, 1000.0)):
        if (times >= first).all() and (times <= last).all():
            return per_second
    expected = "times that are dates, or seconds or milliseconds since 1970, with a half_life that has a unit"
    got = f"half_life={half_life!r} and times from {times.min()} to {times.max()}"
    raise InvalidInput(expected, got, "Pass half_life=30, say: a number in the unit of the times")


def to_days(times: np.ndarray) -> np.ndarray:
    """Return times in days if they are dates or seconds or milliseconds since 1970, and other numbers as they are."""
    if times.dtype.kind == "M":
        return np.asarray((times - times.min()) / np.timedelta64(1, "D"))
    for (first, last), per_second in ((SECONDS, 1.0), (MILLISECONDS, 1000.0)):
        if (times >= first).all() and (times <= last).all():
            return (times - times.min()) / (per_second * UNITS["d"])
    return times.astype(np.float64)
