"""Histories × weights, a panel of columns at a time, so that nothing of the size users × items is ever made.

`panels` multiplies by W = A · dMat(factor) + dMat(diagonal) with A symmetric and half stored. For a panel of 64 columns the
rows of W that the histories touch are packed side by side (256 bytes each, a table that stays in cache), and every
user's sum runs over packed rows with its 64 sums at hand. Many users share the threads among themselves; a few users,
as when one person asks, share out the panels instead, in a single launch.

`row_panels` multiplies by a W that is there as a whole, row by row: twice the memory, and no packing. `dense_panels` multiplies
factors by factors through BLAS, and `times` a sparse by a dense matrix with all threads.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numba import get_num_threads, njit, prange

from gramian.linalg.symmetric import PANEL, Symmetric, block_start

FEW = 32  # users for whom all scores at once are less than a panel of many
DENSE_PANEL = 512
STRIP = 256  # columns of a dense row summed at once, which stay in cache
LONG = 2048  # columns of rows far apart summed at once: a run that is worth the way


def panels(
    histories: sp.csr_array, matrix: Symmetric, factor: np.ndarray, diagonal: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, histories · W[:, first : first + width]); the panel's memory is used again for the next one."""
    touched, compact = np.unique(histories.indices, return_inverse=True)
    indptr, compact = histories.indptr.astype(np.int64), compact.astype(np.int32)
    stored = (matrix.buffer, matrix.n, matrix.width, factor, diagonal)
    if histories.shape[0] <= FEW:
        scores = np.empty((histories.shape[0], matrix.n), matrix.dtype)
        multiply_few(scores, indptr, compact, histories.data, touched, *stored)
        yield 0, scores
        return
    packed = np.empty((len(touched), PANEL), matrix.dtype)
    sums = np.empty((histories.shape[0], PANEL), matrix.dtype)
    for first in range(0, matrix.n, PANEL):
        pack(packed, touched, first, *stored)
        multiply(sums, indptr, compact, histories.data, packed)
        yield first, sums[:, : matrix.n - first]


def unfold(rows: np.ndarray, first: int, matrix: Symmetric, factor: np.ndarray, diagonal: np.ndarray) -> None:
    """Write some rows of W, the first of which is number `first`."""
    unfold_rows(rows, first, matrix.buffer, matrix.n, matrix.width, factor, diagonal)


def row_panels(histories: sp.csr_array, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, histories · rows[:, first : first + width]); the panel's memory is used again for the next one."""
    n_users, n = histories.shape[0], rows.shape[1]
    width = n if n_users <= FEW else LONG
    sums = np.empty((n_users, min(width, n)), rows.dtype)
    for first in range(0, n, width):
        part = sums if first + width <= n else np.empty((n_users, n - first), rows.dtype)
        sum_rows(part, histories.indptr, histories.indices, histories.data, rows, first)
        yield first, part


def dense_panels(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, left · right[first : first + width]ᵀ); the panel's memory is used again for the next one."""
    n = len(right)
    scores = np.empty((len(left), min(n, DENSE_PANEL)), left.dtype)
    for first in range(0, n, DENSE_PANEL):
        part = scores if first + DENSE_PANEL <= n else np.empty((len(left), n - first), left.dtype)
        yield first, np.matmul(left, right[first : first + DENSE_PANEL].T, out=part)


def times(left: sp.csr_array, right: np.ndarray) -> np.ndarray:
    """left · right, sparse by dense."""
    out = np.zeros((left.shape[0], right.shape[1]), right.dtype)
    multiply_dense(out, left.indptr, left.indices, left.data.astype(right.dtype, copy=False), np.ascontiguousarray(right))
    return out


def gram_times(x: sp.csr_array, right: np.ndarray) -> np.ndarray:
    """xᵀ · x · right in one pass over the rows of x: what a row gathers it hands on while it is still in cache."""
    data = x.data.astype(right.dtype, copy=False)
    ends = np.searchsorted(x.indptr, np.linspace(0, x.nnz, get_num_threads() + 1)[1:-1])
    bounds = np.concatenate([[0], ends, [x.shape[0]]])
    out = np.zeros((len(bounds) - 1, *right.shape), right.dtype)
    multiply_twice(out, bounds, x.indptr, x.indices, data, np.ascontiguousarray(right))
    return out.sum(axis=0)


@njit(inline="always")
def pack_row(row, k, first, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    # W[k, first : first + PANEL]. The panel lies in one block column, since the block's width is a multiple of the panel's.
    top = first // block * block
    width = min(PANEL, n - first)
    if k >= top:  # stored in the panel's own block, one entry in each of its columns
        at, stride = block_start(top, n, block) + (first - top) * (n - top) + k - top, n - top
        for c in range(width):
            row[c] = buffer[at + c * stride] * factor[first + c]
    else:  # stored in the block of k, where the panel is a run of column k
        ktop = k // block * block
        at = block_start(ktop, n, block) + (k - ktop) * (n - ktop) + first - ktop
        for c in range(width):
            row[c] = buffer[at + c] * factor[first + c]
    if first <= k < first + width:
        row[k - first] += diagonal[k]


@njit(inline="always")
def add_rows(total, indices, data, packed, start, stop):  # type: ignore[no-untyped-def]
    for p in range(start, stop):
        row = packed[indices[p]]
        weight = data[p]
        for c in range(PANEL):
            total[c] += weight * row[c]


@njit(parallel=True, cache=True)
def pack(packed, touched, first, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    for t in prange(len(touched)):
        pack_row(packed[t], touched[t], first, buffer, n, block, factor, diagonal)


@njit(parallel=True, cache=True, nogil=True)
def unfold_rows(rows, start, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    # in square tiles, so that what lies in one line of a column's memory is taken at once
    for group in prange((len(rows) + PANEL - 1) // PANEL):
        for first in range(0, n, PANEL):
            for r in range(group * PANEL, min(len(rows), (group + 1) * PANEL)):
                pack_row(rows[r, first : first + PANEL], start + r, first, buffer, n, block, factor, diagonal)


@njit(parallel=True, cache=True, fastmath={"contract"})
def multiply(sums, indptr, indices, data, packed):  # type: ignore[no-untyped-def]
    for u in prange(len(indptr) - 1):
        total = np.zeros(PANEL, sums.dtype)
        add_rows(total, indices, data, packed, indptr[u], indptr[u + 1])
        for c in range(PANEL):
            sums[u, c] = total[c]


@njit(parallel=True, cache=True, fastmath={"contract"})
def multiply_few(scores, indptr, indices, data, touched, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    for panel in prange((n + PANEL - 1) // PANEL):
        first = panel * PANEL
        packed = np.empty((len(touched), PANEL), scores.dtype)
        for t in range(len(touched)):
            pack_row(packed[t], touched[t], first, buffer, n, block, factor, diagonal)
        for u in range(len(indptr) - 1):
            total = np.zeros(PANEL, scores.dtype)
            add_rows(total, indices, data, packed, indptr[u], indptr[u + 1])
            for c in range(min(PANEL, n - first)):
                scores[u, first + c] = total[c]


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def sum_rows(sums, indptr, indices, data, rows, first):  # type: ignore[no-untyped-def]
    # A strip of all users after another, so that rows' parts stay in cache; eight rows at a time, which wait together.
    n_users, width = sums.shape
    strip = LONG if n_users > FEW else STRIP
    for job in prange(n_users * ((width + strip - 1) // strip)):
        u, left = job % n_users, job // n_users * strip
        size = min(strip, width - left)
        total, at = np.zeros(size, sums.dtype), first + left
        p, stop = indptr[u], indptr[u + 1]
        while p + 8 <= stop:
            a, b = rows[indices[p], at : at + size], rows[indices[p + 1], at : at + size]
            c, d = rows[indices[p + 2], at : at + size], rows[indices[p + 3], at : at + size]
            e, f = rows[indices[p + 4], at : at + size], rows[indices[p + 5], at : at + size]
            g, h = rows[indices[p + 6], at : at + size], rows[indices[p + 7], at : at + size]
            for i in range(size):
                total[i] += data[p] * a[i] + data[p + 1] * b[i] + data[p + 2] * c[i] + data[p + 3] * d[i]
                total[i] += data[p + 4] * e[i] + data[p + 5] * f[i] + data[p + 6] * g[i] + data[p + 7] * h[i]
            p += 8
        while p < stop:
            a = rows[indices[p], at : at + size]
            for i in range(size):
                total[i] += data[p] * a[i]
            p += 1
        sums[u, left : left + size] = total


@njit(parallel=True, cache=True, fastmath={"contract"})
def multiply_dense(out, indptr, indices, data, right):  # type: ignore[no-untyped-def]
    width = out.shape[1]
    for row in prange(len(indptr) - 1):
        for left in range(0, width, STRIP):
            total = out[row, left : min(left + STRIP, width)]
            for p in range(indptr[row], indptr[row + 1]):
                other = right[indices[p], left : min(left + STRIP, width)]
                weight = data[p]
                for c in range(len(total)):
                    total[c] += weight * other[c]


@njit(parallel=True, cache=True, fastmath={"contract"})
def multiply_twice(out, bounds, indptr, indices, data, right):  # type: ignore[no-untyped-def]
    width = right.shape[1]
    for part in prange(len(bounds) - 1):
        total = np.empty(width, right.dtype)
        for row in range(bounds[part], bounds[part + 1]):
            total[:] = 0
            for p in range(indptr[row], indptr[row + 1]):
                other, weight = right[indices[p]], data[p]
                for c in range(width):
                    total[c] += weight * other[c]
            for p in range(indptr[row], indptr[row + 1]):
                mine, weight = out[part, indices[p]], data[p]
                for c in range(width):
                    mine[c] += weight * total[c]
