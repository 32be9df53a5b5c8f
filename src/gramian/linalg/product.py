"""Matrix products for scoring: sparse histories × weights, by panels of columns, without an array of users × items.

`inverse_panels` multiplies by W = A · diag(factor) + diag(diagonal) for a half-stored symmetric A. For each panel of 64
columns it packs the rows of W that the histories touch into one table (256 bytes a row in float32), which stays in cache, and
sums each user's packed rows in 64 accumulators. Threads work on different panels, ahead of the panel that is asked for; for a
few users, as in a single request, they do so in one launch. `visit_inverse_panels` hands the scores over while they are in the
thread's cache, so that no thread waits for another to rank them.

`row_panels` does the same for the rows of a full A, which takes twice the memory and needs no packing. `dense_panels`
multiplies factors by factors through BLAS. `multiply_sparse` and `multiply_by_sparse` are sparse × dense and sparse × sparse on
all threads.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import scipy.sparse as sp
from numba import get_num_threads, njit, prange

from gramian.linalg.sparse import compact_columns
from gramian.linalg.symmetric import FULL_WIDTH, PANEL, Symmetric, locate_column
from gramian.linalg.tasks import map_ahead, pop_or_create, task_queue
from gramian.linalg.updated import UpdatedSymmetric

FEW_USERS = 32  # up to this many, all scores of all users at once take less memory than one panel of a large batch
USER_RANGE = 1024  # users multiplied and ranked in one go: their scores of a panel take 256 KB in float32
DENSE_PANEL = 512  # columns of a panel multiplied by BLAS
SHORT_STRIP = 256  # columns of a row summed at a time; the sums stay in cache
LONG_STRIP = 2048  # the same for many users: shorter strips were up to twice as slow, see benchmarks/README.md


def inverse_panels(
    histories: sp.csr_array, matrix: Symmetric, factor: np.ndarray, diagonal: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, histories · W[:, first : first + width]). A later panel overwrites the memory of this one."""
    if isinstance(matrix, UpdatedSymmetric):
        yield from updated_panels(histories, matrix, factor, diagonal)
        return
    if matrix.is_full:
        yield from row_panels(histories, matrix.rows, factor, diagonal)
        return
    touched, compact = compact_columns(histories)
    indptr = histories.indptr.astype(np.int64)
    weights = (matrix.buffer, matrix.n, matrix.width, factor, diagonal)
    if histories.shape[0] <= FEW_USERS:
        scores = np.empty((histories.shape[0], matrix.n), matrix.dtype)
        multiply_few(scores, indptr, compact, histories.data, touched, *weights)
        yield 0, scores
        return
    shapes = (len(touched), PANEL), (histories.shape[0], PANEL)
    spare: deque[tuple[np.ndarray, ...]] = deque()  # tables and sums that no thread and no caller uses

    def multiply(first: int) -> tuple[int, tuple[np.ndarray, ...]]:
        packed, sums = arrays = pop_or_create(spare, lambda: tuple(np.empty(shape, matrix.dtype) for shape in shapes))
        pack_panel(packed, touched, first, *weights)
        multiply_packed(sums, indptr, compact, histories.data, packed)
        return first, arrays

    for first, arrays in map_ahead(multiply, range(0, matrix.n, PANEL)):
        yield first, arrays[1][:, : matrix.n - first]
        spare.append(arrays)


def visit_inverse_panels(
    histories: sp.csr_array,
    matrix: Symmetric,
    factor: np.ndarray,
    diagonal: np.ndarray,
    visit: Callable[[np.ndarray, int, int], object],
) -> None:
    """Call visit(scores, first column, first user) with the panels of `inverse_panels`, each cut into ranges of users.

    Threads call it at the same time, but never for the same users. A later panel overwrites the memory of this one.
    """
    n_users, n_threads = histories.shape[0], get_num_threads()
    touched, compact = compact_columns(histories)
    indptr = histories.indptr.astype(np.int64)
    size = max(1, min(USER_RANGE, -(-n_users // (2 * n_threads))))
    starts = range(0, n_users, size)
    locks = [Lock() for _ in starts]
    shapes = (len(touched), PANEL), (size, PANEL)
    spare: deque[tuple[np.ndarray, ...]] = deque()  # tables and sums that no thread uses

    def work(first: int) -> None:
        packed, sums = arrays = pop_or_create(spare, lambda: tuple(np.empty(shape, matrix.dtype) for shape in shapes))
        pack_panel(packed, touched, first, matrix.buffer, matrix.n, matrix.width, factor, diagonal)
        offset = first // PANEL * len(starts) // n_threads  # threads begin far apart, and seldom meet at a lock
        for number in range(offset, offset + len(starts)):
            place = number % len(starts)
            start = starts[place]
            scores = sums[: n_users - start]
            multiply_packed(scores, indptr[start : start + size + 1], compact, histories.data, packed)
            with locks[place]:
                visit(scores[:, : matrix.n - first], first, start)
        spare.append(arrays)

    with task_queue() as run:
        run(work, range(0, matrix.n, PANEL))


def expand(matrix: Symmetric, n_threads: int = 1) -> Symmetric:
    """Return a matrix with both halves stored, so that single histories are scored many times faster.

    It uses one thread by default, and none of Numba's, so that other kernels may run beside it.
    """
    if matrix.is_full:
        return matrix
    n, full = matrix.n, Symmetric.empty(matrix.n, matrix.dtype.type, FULL_WIDTH)
    as_it_is = np.ones(n, matrix.dtype), np.zeros(n, matrix.dtype)
    size = -(-n // (PANEL * n_threads)) * PANEL
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [
            pool.submit(expand_rows_kernel, full.rows, first, min(first + size, n), matrix.buffer, n, matrix.width, *as_it_is)
            for first in range(0, n, size)
        ]
    for job in jobs:
        job.result()
    for first, last, block in matrix.blocks():  # both triangles of a diagonal block are stored, and may differ by rounding
        full.rows[first:last, first:last] = block[: last - first].T
    return full


def row_panels(
    histories: sp.csr_array, rows: np.ndarray, factor: np.ndarray, diagonal: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, histories · W[:, first : first + width]) for W = rows · diag(factor) + diag(diagonal).

    The next panel overwrites the memory of the last.
    """
    n_users, n = histories.shape[0], rows.shape[1]
    width = n if n_users <= FEW_USERS else LONG_STRIP
    panel = np.empty((n_users, min(width, n)), rows.dtype)
    for first in range(0, n, width):
        if n - first < panel.shape[1]:  # not a view: the kernel would be compiled once more, for panels with gaps
            panel = np.empty((n_users, n - first), rows.dtype)
        entries = histories.indptr, histories.indices, histories.data
        multiply_rows_kernel(panel, *entries, rows, first, factor, diagonal)
        yield first, panel


def updated_panels(
    histories: sp.csr_array, matrix: UpdatedSymmetric, factor: np.ndarray, diagonal: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the panels of a full matrix with low-rank updates, whose right factor is multiplied like further rows of it."""
    panels = row_panels(histories, matrix.base.rows, factor, diagonal)
    if matrix.rank == 0:
        yield from panels
        return
    n_users, rank, index = histories.shape[0], matrix.rank, histories.indices.dtype
    encoded = -multiply_sparse(histories, matrix.left)
    indptr, indices = np.arange(n_users + 1, dtype=index) * rank, np.tile(np.arange(rank, dtype=index), n_users)
    corrections = sp.csr_array((encoded.ravel(), indices, indptr), (n_users, rank))
    further = row_panels(corrections, matrix.right, factor, np.zeros_like(diagonal))
    for (first, panel), (_, correction) in zip(panels, further, strict=True):
        panel += correction
        yield first, panel


def dense_panels(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, left · right[first : first + width]ᵀ). The next panel overwrites the memory of the last."""
    n, spare = len(right), deque[np.ndarray]()

    def multiply(first: int) -> tuple[int, np.ndarray]:
        panel = pop_or_create(spare, lambda: np.empty((len(left), DENSE_PANEL), left.dtype))
        columns = right[first : first + DENSE_PANEL]
        panel = panel if len(columns) == DENSE_PANEL else np.empty((len(left), len(columns)), left.dtype)  # without gaps
        return first, np.matmul(left, columns.T, out=panel)

    for first, panel in map_ahead(multiply, range(0, n, DENSE_PANEL)):
        yield first, panel
        if panel.shape[1] == DENSE_PANEL:
            spare.append(panel)


def multiply_sparse(left: sp.csr_array, right: np.ndarray) -> np.ndarray:
    """left · right, sparse by dense."""
    data, right = left.data.astype(right.dtype, copy=False), np.ascontiguousarray(right)
    out = np.zeros((left.shape[0], right.shape[1]), right.dtype)
    multiply_sparse_kernel(out, left.indptr, left.indices, data, right)
    return out


def multiply_by_sparse(left: sp.csr_array, right: sp.csr_array) -> np.ndarray:
    """left · right, sparse by sparse, as a dense array. The time is that of the products that are not 0, and to clear it."""
    out = np.empty((left.shape[0], right.shape[1]), right.dtype)
    data = left.data.astype(right.dtype, copy=False)
    multiply_by_sparse_kernel(out, left.indptr, left.indices, data, right.indptr, right.indices, right.data)
    return out


@njit(inline="always")
def pack_row(row, k, first, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    # row = W[k, first : first + PANEL]. The panel lies in one block column, since PANEL divides the width of a block.
    top = first // block * block
    width = min(PANEL, n - first)
    if k >= top:  # stored in the panel's block, one entry in each of its columns
        at, stride = locate_column(first, n, block) + k, n - top
        for c in range(width):
            row[c] = buffer[at + c * stride] * factor[first + c]
    else:  # stored in the block of k, where the panel is a contiguous part of column k
        at = locate_column(k, n, block) + first
        for c in range(width):
            row[c] = buffer[at + c] * factor[first + c]
    if first <= k < first + width:
        row[k - first] += diagonal[k]


@njit(inline="always")
def accumulate_rows(total, indices, data, packed, start, stop):  # type: ignore[no-untyped-def]
    for p in range(start, stop):
        row = packed[indices[p]]
        weight = data[p]
        for c in range(PANEL):
            total[c] += weight * row[c]


@njit(cache=True, nogil=True)
def pack_panel(packed, touched, first, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    for t in range(len(touched)):
        pack_row(packed[t], touched[t], first, buffer, n, block, factor, diagonal)


@njit(cache=True, nogil=True)
def expand_rows_kernel(rows, start, stop, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    # in square tiles, so that every cache line of a column is read once for all rows of a tile
    for top in range(start, stop, PANEL):
        for first in range(0, n, PANEL):
            for r in range(top, min(stop, top + PANEL)):
                pack_row(rows[r, first : first + PANEL], r, first, buffer, n, block, factor, diagonal)


@njit(cache=True, nogil=True, fastmath={"contract"})
def multiply_packed(sums, indptr, indices, data, packed):  # type: ignore[no-untyped-def]
    for u in range(len(indptr) - 1):
        total = np.zeros(PANEL, sums.dtype)
        accumulate_rows(total, indices, data, packed, indptr[u], indptr[u + 1])
        for c in range(PANEL):
            sums[u, c] = total[c]


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def multiply_few(scores, indptr, indices, data, touched, buffer, n, block, factor, diagonal):  # type: ignore[no-untyped-def]
    for panel in prange((n + PANEL - 1) // PANEL):
        first = panel * PANEL
        packed = np.empty((len(touched), PANEL), scores.dtype)
        for t in range(len(touched)):
            pack_row(packed[t], touched[t], first, buffer, n, block, factor, diagonal)
        for u in range(len(indptr) - 1):
            total = np.zeros(PANEL, scores.dtype)
            accumulate_rows(total, indices, data, packed, indptr[u], indptr[u + 1])
            for c in range(min(PANEL, n - first)):
                scores[u, first + c] = total[c]


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def multiply_rows_kernel(sums, indptr, indices, data, rows, first, factor, diagonal):  # type: ignore[no-untyped-def]
    # All users of one strip before the next strip, so that its part of the rows stays in cache. Eight rows at a time, whose
    # cache misses then overlap.
    n_users, width = sums.shape
    strip = LONG_STRIP if n_users > FEW_USERS else SHORT_STRIP
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
        for i in range(size):
            sums[u, left + i] = total[i] * factor[at + i]
        for q in range(indptr[u], stop):
            if at <= indices[q] < at + size:
                sums[u, indices[q] - first] += data[q] * diagonal[indices[q]]


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def multiply_sparse_kernel(out, indptr, indices, data, right):  # type: ignore[no-untyped-def]
    width = out.shape[1]
    for row in prange(len(indptr) - 1):
        for left in range(0, width, SHORT_STRIP):
            total = out[row, left : min(left + SHORT_STRIP, width)]
            for p in range(indptr[row], indptr[row + 1]):
                strip = right[indices[p], left : min(left + SHORT_STRIP, width)]
                weight = data[p]
                for c in range(len(total)):
                    total[c] += weight * strip[c]


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def multiply_by_sparse_kernel(out, indptr, indices, data, right_ptr, right_indices, right_data):  # type: ignore[no-untyped-def]
    for row in prange(len(indptr) - 1):
        total = out[row]
        total[:] = 0
        for p in range(indptr[row], indptr[row + 1]):
            k, weight = indices[p], data[p]
            for q in range(right_ptr[k], right_ptr[k + 1]):
                total[right_indices[q]] += weight * right_data[q]
