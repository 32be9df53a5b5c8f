"""The values of learned arrays before the first epoch."""

from __future__ import annotations

import numpy as np

VECTOR_TABLES = ("users", "items", "inputs")  # tables with a vector of each user or item; the others are weights and biases


def initialize(rng: np.random.Generator, shape: tuple[int, ...], scale: float | None, dtype: type) -> np.ndarray:
    """Normal numbers with this standard deviation, or by Glorot's rule: variance 2/(rows + columns), and 0 for biases."""
    if len(shape) == 1:
        return np.zeros(shape, dtype)
    scale = np.sqrt(2 / sum(shape)) if scale is None else scale
    return (rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(dtype)
