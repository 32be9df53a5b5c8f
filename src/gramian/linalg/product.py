"""Sparse histories × a half-stored symmetric matrix, a panel of columns at a time.

For a panel of 64 columns the matrix rows that the histories touch are packed side by side (256 bytes each, a table that
stays in cache), and every user's sum runs over packed rows with its 64 sums at hand. Only the rows some history needs
are packed, so a single user costs a single user's rows.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.linalg.symmetric import PANEL, Symmetric, block_start


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
    top = first // block * block
    start = block_start(top, n, block)
    for t in prange(len(touched)):
        k = touched[t]
        if k >= top:  # stored in the panel's own block, one entry in each of its columns
            for c in range(width):
                packed[t, c] = buffer[start + (first + c - top) * (n - top) + k - top]
        else:  # stored in the block of k, where the panel is a run of column k
            ktop = k // block * block
            at = block_start(ktop, n, block) + (k - ktop) * (n - ktop) + first - ktop
            for c in range(width):
                packed[t, c] = buffer[at + c]


@njit(parallel=True, cache=True, fastmath={"contract"})
def multiply(sums, indptr, indices, data, packed):  # type: ignore[no-untyped-def]
    for u in prange(len(indptr) - 1):
        total = np.zeros(PANEL, sums.dtype)
        for p in range(indptr[u], indptr[u + 1]):
            row = packed[indices[p]]
            weight = data[p]
            for c in range(PANEL):
                total[c] += weight * row[c]
        for c in range(PANEL):
            sums[u, c] = total[c]
