"""Lists by many models that share one matrix and differ in a factor per item: the product is done once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gramian.linalg.product import panels
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.topk import Best, ranked

BLOCK = 8_192  # users at a time


def family_lists(
    histories: sp.csr_array, matrix: Symmetric, factors: Sequence[np.ndarray], popularity: np.ndarray, k: int
) -> list[np.ndarray]:
    """For each factor the top k columns by −(histories · A) · factor, without what is in the histories.

    An empty history is given the most popular columns.
    """
    k = min(k, matrix.n)
    anything = np.ones(matrix.n, np.bool_)
    found = [np.empty((histories.shape[0], k), np.int32) for _ in factors]
    minus, zero = np.full(matrix.n, -1, matrix.dtype), np.zeros(matrix.n, matrix.dtype)
    for start in range(0, histories.shape[0], BLOCK):
        part = histories[start : start + BLOCK]
        bests = [Best(part.shape[0], k, part, anything) for _ in factors]
        for first, panel in panels(part, matrix, minus, zero):
            for best, factor in zip(bests, factors, strict=True):
                best.push(panel * factor[first : first + panel.shape[1]], first)
        for columns, best in zip(found, bests, strict=True):
            columns[start : start + BLOCK] = best.lists()[0]
    empty = np.flatnonzero(np.diff(histories.indptr) == 0)
    for columns in found if len(empty) else ():
        columns[empty] = ranked(popularity, k, anything)[0]
    return found
