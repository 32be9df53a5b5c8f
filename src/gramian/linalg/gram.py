"""The Gram matrix S = XᵀX: the one statistic that every closed form needs. Graph filters take that of a normalised X."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import get_num_threads, njit, prange
from scipy.linalg import get_blas_funcs

from gramian.linalg.symmetric import Symmetric, block_start

CHUNKS_PER_THREAD = 16


def write_gram(matrix: Symmetric, x: sp.csr_array) -> None:
    """Overwrite a matrix with S = XᵀX."""
    GramKernel(x, matrix.width).write(matrix.buffer, 0, matrix.n)


def add_outer_product(matrix: Symmetric, thin: np.ndarray) -> None:
    """Add V·Vᵀ for an n × d array V, in the dtype of the matrix: n²·d operations on its stored half."""
    if thin.shape[1] == 0:
        return
    (gemm,) = get_blas_funcs(("gemm",), dtype=matrix.dtype)
    thin = np.ascontiguousarray(thin, matrix.dtype)
    for first, last, block in matrix.blocks():
        gemm(1, thin[first:].T, thin[first:last].T, beta=1, c=block, trans_a=1, overwrite_c=1)


class GramKernel:
    """A sparse X by rows and by columns, from which any block columns of the stored half of XᵀX are summed."""

    def __init__(self, x: sp.csr_array, width: int) -> None:
        by_column = x.tocsc()
        self.n, self.width, self.row_ptr = x.shape[1], width, x.indptr.astype(np.int64)
        self.rows = (self.row_ptr, x.indices, x.data)
        self.columns = (by_column.indptr.astype(np.int64), by_column.indices, by_column.data)
        self.costs = column_costs(self.row_ptr, x.indices, self.n)

    def write(self, buffer: np.ndarray, first: int, last: int) -> None:
        """Write the block columns of the columns [first, last) into a buffer, from its first element on."""
        chunks = first + equal_chunks(self.costs[first:last], CHUNKS_PER_THREAD * get_num_threads())
        begin = block_start(first, self.n, self.width)
        accumulate(buffer, begin, self.n, self.width, *self.rows, *self.columns, chunks)


def equal_chunks(cost: np.ndarray, n_chunks: int) -> np.ndarray:
    """Boundaries that cut the columns into runs of about equal cost."""
    total = np.cumsum(cost + 1)
    return np.unique(np.concatenate([[0], np.searchsorted(total, total[-1] * np.arange(1, n_chunks) / n_chunks), [len(cost)]]))


@njit(cache=True)
def column_costs(indptr, indices, n):  # type: ignore[no-untyped-def]
    cost = np.zeros(n, np.int64)
    for u in range(len(indptr) - 1):
        for p in range(indptr[u], indptr[u + 1]):
            cost[indices[p]] += indptr[u + 1] - p
    return cost


@njit(parallel=True, cache=True, nogil=True)
def accumulate(buffer, begin, n, width, indptr, indices, data, column_ptr, column_rows, column_data, chunks):  # type: ignore[no-untyped-def]
    # Column j of the lower half is the sum of x_uj · x_u[j:] over the users u of item j. It gathers in a buffer that
    # stays in cache, and is written once, to one run of memory. `buffer` holds the stored half from its element `begin` on.
    for chunk in prange(len(chunks) - 1):
        column = np.zeros(n, np.float64)  # float32 would stall at 2²⁴ users
        for j in range(chunks[chunk], chunks[chunk + 1]):
            for q in range(column_ptr[j], column_ptr[j + 1]):
                u = column_rows[q]
                weight = np.float64(column_data[q])
                for p in range(indptr[u + 1] - 1, indptr[u] - 1, -1):
                    i = indices[p]
                    if i < j:
                        break
                    column[i] += weight * data[p]
            first = j // width * width
            start = block_start(first, n, width) - begin + (j - first) * (n - first) - first
            for i in range(j, n):
                buffer[start + i] = column[i]
                column[i] = 0
    # above the diagonal, within the diagonal blocks, by symmetry
    for block in prange(chunks[0] // width, (chunks[-1] + width - 1) // width):
        first = block * width
        start = block_start(first, n, width) - begin
        for j in range(first, min(first + width, n)):
            for i in range(first, j):
                buffer[start + (j - first) * (n - first) + i - first] = buffer[start + (i - first) * (n - first) + j - first]
