"""Sparse histories × a half-stored symmetric matrix, a panel of columns at a time.

For a panel of 64 columns the matrix rows that the histories touch are packed side by side (256 bytes each, a table that
stays in cache), and every user's sum runs over packed rows with its 64 sums in registers. Only the rows some history needs
are packed, so a single user costs a single user's rows.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.linalg.symmetric import PANEL, Symmetric


def panels(histories: sp.csr_array, matrix: Symmetric) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, histories · A[:, first : first + width]); the panel's memory is used again for the next one."""
    touched, compact = np.unique(histories.indices, return_inverse=True)
    packed = np.empty((len(touched), PANEL), matrix.dtype)
    sums = np.empty((histories.shape[0], PANEL), matrix.dtype)
    indptr, compact = histories.indptr.astype(np.int64), compact.astype(np.int32)
    for first in range(0, matrix.n, PANEL):
        width = min(PANEL, matrix.n - first)
        pack(packed, matrix.buffer, matrix.n, matrix.width, touched, first, width)
        multiply(sums, indptr, compact, histories.data, packed)
        yield first, sums[:, :width]


@njit(parallel=True, cache=True)
def pack(packed, buffer, n, block, touched, first, width):  # type: ignore[no-untyped-def]
    # The panel lies in one block column, since the block's width is a multiple of the panel's.
    b = first // block
    top = b * block
    start = top * n - block * block * (b * (b - 1) // 2)
    for t in prange(len(touched)):
        k = touched[t]
        if k >= top:  # stored in the panel's own block, one entry in each of its columns
            for c in range(width):
                packed[t, c] = buffer[start + (first + c - top) * (n - top) + k - top]
        else:  # stored in the block of k, where the panel is a run of column k
            kb = k // block
            ktop = kb * block
            at = ktop * n - block * block * (kb * (kb - 1) // 2) + (k - ktop) * (n - ktop) + first - ktop
            for c in range(width):
                packed[t, c] = buffer[at + c]


@njit(parallel=True, cache=True, fastmath={"contract"})
def multiply(sums, indptr, indices, data, packed):  # type: ignore[no-untyped-def]
    for u in prange(len(indptr) - 1):
        total = np.zeros(64, sums.dtype)
        for p in range(indptr[u], indptr[u + 1]):
            row = packed[indices[p]]
            weight = data[p]
            for c in range(64):
                total[c] += weight * row[c]
        for c in range(64):
            sums[u, c] = total[c]
