"""The nearest neighbours of every item: the k largest entries in each row of a scaled Gram matrix, without the matrix itself.

    W_ij = S_ij·a_i·b_j / (1 + shrinkage·a_i·b_j),   S = XᵀX,   W_ii = 0

Each row is summed over the users of its item into one array of n numbers, so that the memory is that of the result.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit

from gramian.linalg.sparse import csr_from_sorted
from gramian.linalg.tasks import task_queue
from gramian.progress import progress_bar

N_TASKS = 256  # each of which clears a row of n numbers first


def nearest_neighbours(x: sp.csr_array, a: np.ndarray, b: np.ndarray, shrinkage: float, k: int) -> sp.csr_array:
    """Return W with the k largest entries of each row, of those above 0. Of equal ones the lower columns are kept."""
    n, by_column = x.shape[1], x.tocsc()
    k = min(k, n)
    columns, values = np.full((n, k), n, np.int32), np.zeros((n, k), np.float32)
    arrays = x.indptr, x.indices, x.data, by_column.indptr, by_column.indices, by_column.data
    with progress_bar("finding neighbours", n) as advance, task_queue() as run:

        def select(first: int) -> None:
            select_neighbours(columns, values, first, N_TASKS, *arrays, a, b, shrinkage)
            advance(len(range(first, n, N_TASKS)))

        run(select, range(min(n, N_TASKS)))
    is_neighbour = columns < n
    return csr_from_sorted(np.nonzero(is_neighbour)[0], columns[is_neighbour], values[is_neighbour], (n, n))


@njit(cache=True, nogil=True)
def select_neighbours(columns, values, first, step, indptr, indices, data, item_ptr, users, item_data, a, b, shrinkage):  # type: ignore[no-untyped-def]  # fmt: skip
    n = len(columns)
    total, touched = np.zeros(n), np.empty(n, np.int32)
    nearest, weights = np.empty(columns.shape[1], np.int32), np.empty(columns.shape[1])
    is_touched = np.zeros(n, np.bool_)  # a total of 0 does not tell: products of tiny weights underflow
    for item in range(first, n, step):
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
                n_kept = insert_neighbour(nearest, weights, n_kept, j, weight)
        order = np.argsort(nearest[:n_kept])
        columns[item, :n_kept], values[item, :n_kept] = nearest[order], weights[order]


@njit(inline="always")
def insert_neighbour(nearest, weights, n_kept, column, weight):  # type: ignore[no-untyped-def]
    # into a list with the largest weight first, of equal ones the lower column, which may push out the last
    at = n_kept
    while at > 0 and (weight > weights[at - 1] or (weight == weights[at - 1] and column < nearest[at - 1])):
        if at < len(nearest):
            nearest[at], weights[at] = nearest[at - 1], weights[at - 1]
        at -= 1
    if at == len(nearest):
        return n_kept
    nearest[at], weights[at] = column, weight
    return min(n_kept + 1, len(nearest))
