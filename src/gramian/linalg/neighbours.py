"""The nearest neighbours of every item: the k largest entries in each row of a scaled Gram matrix, without the matrix itself.

    W_ij = S_ij·a_i·b_j / (1 + shrinkage·a_i·b_j),   S = XᵀX,   W_ii = 0

Each row is summed over the users of its item into one array of n numbers, so that the memory is that of the result.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.linalg.sparse import csr_from_sorted


def nearest_neighbours(x: sp.csr_array, a: np.ndarray, b: np.ndarray, shrinkage: float, k: int) -> sp.csr_array:
    """Return W with the k largest entries of each row, of those above 0. Of equal ones the lower columns are kept."""
    n, by_column = x.shape[1], x.tocsc()
    k = min(k, n)
    columns, values = np.full((n, k), n, np.int32), np.zeros((n, k), np.float32)
    select_neighbours(
        columns, values, x.indptr, x.indices, x.data, by_column.indptr, by_column.indices, by_column.data, a, b, shrinkage
    )
    is_neighbour = columns < n
    return csr_from_sorted(np.nonzero(is_neighbour)[0], columns[is_neighbour], values[is_neighbour], (n, n))


@njit(parallel=True, cache=True, nogil=True)
def select_neighbours(columns, values, indptr, indices, data, item_ptr, users, item_data, a, b, shrinkage):  # type: ignore[no-untyped-def]
    n = len(columns)
    n_chunks = min(n, 256)
    for chunk in prange(n_chunks):
        total, touched, weights = np.zeros(n), np.empty(n, np.int32), np.empty(n)
        is_touched = np.zeros(n, np.bool_)  # a total of 0 does not tell: products of tiny weights underflow
        for item in range(chunk, n, n_chunks):
            n_touched = 0
            for q in range(item_ptr[item], item_ptr[item + 1]):
                user, weight = users[q], np.float64(item_data[q])
                for p in range(indptr[user], indptr[user + 1]):
                    j = indices[p]
                    if not is_touched[j]:
                        is_touched[j] = True
                        touched[n_touched] = j
                        n_touched += 1
                    total[j] += weight * data[p]
            n_kept = 0
            for t in range(n_touched):
                j = touched[t]
                scale = a[item] * b[j]
                weight = total[j] * scale / (1 + shrinkage * scale)
                total[j], is_touched[j] = 0, False
                if j != item and weight > 0:
                    touched[n_kept], weights[n_kept] = j, weight
                    n_kept += 1
            write_largest(columns[item], values[item], touched[:n_kept], weights[:n_kept])


@njit(cache=True)
def write_largest(columns, values, candidates, weights):  # type: ignore[no-untyped-def]
    # the largest weights, in the order of their columns
    k = min(len(columns), len(weights))
    if k == 0:
        return
    order = np.argsort(candidates)
    threshold = np.partition(weights, len(weights) - k)[len(weights) - k]
    n_equal = k - (weights > threshold).sum()
    place = 0
    for t in order:
        if weights[t] > threshold or (weights[t] == threshold and n_equal > 0):
            n_equal -= weights[t] == threshold
            columns[place], values[place] = candidates[t], weights[t]
            place += 1
