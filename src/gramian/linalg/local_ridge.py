"""Ridge regressions of every item on a few other items, each solved by itself, without an n × n matrix.

For the support N of item i the weights are (S_NN + diag(penalty_N))⁻¹ S_Ni, with S = XᵀX. The entries of S that one item needs
are counted from the histories of the users of N, and the system is solved by Cholesky, in |N|² numbers of memory per thread.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit

from gramian.errors import Inaccurate
from gramian.linalg.inverse import INACCURATE_REMEDY
from gramian.linalg.tasks import task_queue
from gramian.progress import progress_bar

ITEMS_PER_TASK = 32


def solve_local_ridges(x: sp.csr_array, supports: sp.csr_array, penalty: np.ndarray, dtype: type) -> np.ndarray:
    """Solve the regression of every item on its support, and return the weights.

    Parameters
    ----------
    x
        Users × items.
    supports
        Row i has an entry for each item of the support of item i, which does not include i.
    penalty
        What is added to the diagonal of S, for each item.
    dtype
        In which the systems are solved.

    Returns
    -------
    The weights in the order of the entries of `supports`.
    """
    n, by_column = x.shape[1], x.tocsc()
    rows = x.indptr, x.indices, x.data.astype(dtype)
    columns = by_column.indptr, by_column.indices, by_column.data.astype(dtype)
    weights, penalty = np.empty(supports.nnz, dtype), penalty.astype(dtype)
    is_indefinite = np.zeros(n, np.bool_)
    with progress_bar("solving", n) as advance, task_queue() as run:

        def solve(first: int) -> None:
            last = min(first + ITEMS_PER_TASK, n)
            solve_item_range(weights, is_indefinite, first, last, supports.indptr, supports.indices, *rows, *columns, penalty)
            advance(last - first)

        run(solve, range(0, n, ITEMS_PER_TASK))
    if is_indefinite.any():
        item = f"a pivot not above 0 for item {int(is_indefinite.argmax())}"
        raise Inaccurate("positive definite systems", item, INACCURATE_REMEDY)
    return weights


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def dot_start(a, b, size):  # type: ignore[no-untyped-def]
    total = a.dtype.type(0)
    for c in range(size):
        total += a[c] * b[c]
    return total


@njit(cache=True, nogil=True)
def solve_item_range(weights, is_indefinite, first, last, support_ptr, supports, indptr, indices, data, item_ptr, users, item_data, penalty):  # type: ignore[no-untyped-def]  # fmt: skip  # noqa: E501
    place = np.full(len(penalty), -1, np.int32)  # of an item in the system, −1 if it is not part of it
    for item in range(first, last):
        support = supports[support_ptr[item] : support_ptr[item + 1]]
        m = len(support)
        system = np.zeros((m + 1, m + 1), weights.dtype)  # S_NN + diag(penalty_N), and S_iN as the last row; the lower half
        for t in range(m):
            place[support[t]] = t
        for t in range(m + 1):
            k = support[t] if t < m else item
            row = system[t]
            for q in range(item_ptr[k], item_ptr[k + 1]):
                user, weight = users[q], item_data[q]
                for p in range(indptr[user], indptr[user + 1]):
                    c = place[indices[p]]
                    if 0 <= c <= t:
                        row[c] += weight * data[p]
        for t in range(m):
            place[support[t]] = -1
            system[t, t] += penalty[support[t]]
        for t in range(m + 1):  # Cholesky, row by row; the last row becomes the solution of L·y = S_Ni
            row = system[t]
            for c in range(min(t, m)):
                row[c] = (row[c] - dot_start(row, system[c], c)) / system[c, c]
            if t < m:
                pivot = row[t] - dot_start(row, row, t)
                if not pivot > 0:
                    is_indefinite[item] = True
                    pivot = weights.dtype.type(1)
                row[t] = np.sqrt(pivot)
        solution = system[m]
        for t in range(m - 1, -1, -1):  # Lᵀ·w = y
            row = system[t]
            solution[t] /= row[t]
            for c in range(t):
                solution[c] -= row[c] * solution[t]
        weights[support_ptr[item] : support_ptr[item + 1]] = solution[:m]
