"""Hashes of integers that are the same on every machine: the randomness of splits and of history keys."""

from __future__ import annotations

import numpy as np

from gramian.validation import require_whole_number


def hash_pairs(seed: int, rows: np.ndarray, columns: np.ndarray | int) -> np.ndarray:
    """Return a well-mixed 64-bit hash of each (seed, row, column): the finalizer of splitmix64."""
    start = np.uint64(require_whole_number("seed", seed, minimum=0) * 0x2545F4914F6CDD1D % 2**64)
    x = np.atleast_1d(rows).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x ^= np.atleast_1d(columns).astype(np.uint64) * np.uint64(0xD1342543DE82EF95) + start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
