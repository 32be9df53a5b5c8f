"""Whether arrays are finite, checked in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

FINITE_BLOCK = 1 << 16  # elements that are checked at a time: 256 kB of float32


def find_non_finite(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Return the name of a floating-point array that has a NaN or an infinite element; None if there is none."""
    return next((name for name, array in arrays.items() if not is_all_finite(array)), None)


def is_all_finite(array: np.ndarray) -> bool:
    """Whether no element is infinite or NaN. Needs no memory in proportion to the array."""
    if array.dtype.kind != "f":
        return True
    flat = array.reshape(-1, order="A")
    return all(bool(np.isfinite(flat[start : start + FINITE_BLOCK]).all()) for start in range(0, flat.size, FINITE_BLOCK))
