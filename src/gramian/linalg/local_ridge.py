"""Ridge regressions of every item on a few other items, each solved by itself, without an n × n matrix.

For the support N of item i the weights are (S_NN + diag(penalty_N))⁻¹ S_Ni, with S = XᵀX. The entries of S that one item needs
are summed over the users that two items of N share, without reading the rest of their histories, and the system is solved by
Cholesky. A thread needs |N|² numbers, one for every user, and three for every interaction with the items of N.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import scipy.sparse as sp
from numba import njit

from gramian.errors import Inaccurate
from gramian.linalg.inverse import INACCURATE_REMEDY
from gramian.linalg.tasks import pop_or_create, task_queue
from gramian.progress import progress_bar

ITEMS_PER_TASK = 32


def solve_local_ridges(x: sp.csr_array, supports: sp.csr_array, penalty: np.ndarray, dtype: type) -> np.ndarray:
    """Solve the regression of every item on its support, and return the weights.

    Parameters
    ----------
    x
        Users × items.
    supports
        Row i has an entry for each item of the support of item i, in order; i is not among them.
    penalty
        What is added to the diagonal of S, for each item.
    dtype
        In which the systems are solved.

    Returns
    -------
    The weights in the order of the entries of `supports`.
    """
    n, by_column = x.shape[1], x.tocsc()
    columns = by_column.indptr, by_column.indices, by_column.data
    weights, penalty = np.empty(supports.nnz, dtype), penalty.astype(dtype)
    is_indefinite = np.zeros(n, np.bool_)
    spare: deque[np.ndarray] = deque()  # one number for every user, which no thread uses
    with progress_bar("solving", n) as advance, task_queue() as run:

        def solve(first: int) -> None:
            last = min(first + ITEMS_PER_TASK, n)
            newest = pop_or_create(spare, lambda: np.full(x.shape[0], -1, by_column.indptr.dtype))
            solve_item_range(weights, is_indefinite, first, last, supports.indptr, supports.indices, *columns, newest, penalty)
            spare.append(newest)
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
def solve_item_range(weights, is_indefinite, first, last, support_ptr, supports, item_ptr, users, data, newest, penalty):  # type: ignore[no-untyped-def]  # fmt: skip
    # The entries of the items N are linked by user: `newest` has the last one of each user, −1 if there is none, and
    # `previous` the one before each. So an entry of an item meets those of the items before it that the same user has.
    previous, place = np.empty(0, newest.dtype), np.empty(0, np.int32)  # place: of the item in the system
    values = np.empty(0, weights.dtype)
    for item in range(first, last):
        support = supports[support_ptr[item] : support_ptr[item + 1]]
        m, n_entries, n_linked = len(support), 0, 0
        system = np.zeros((m + 1, m + 1), weights.dtype)  # S_NN + diag(penalty_N), and S_iN as the last row; the lower half
        for k in support:
            n_entries += item_ptr[k + 1] - item_ptr[k]
        if n_entries > len(previous):
            previous, place = np.empty(2 * n_entries, newest.dtype), np.empty(2 * n_entries, np.int32)
            values = np.empty(2 * n_entries, weights.dtype)
        for t in range(m + 1):
            row, k = system[t], support[t] if t < m else item
            for q in range(item_ptr[k], item_ptr[k + 1]):
                user, value = users[q], weights.dtype.type(data[q])
                entry = newest[user]
                while entry >= 0:
                    row[place[entry]] += value * values[entry]
                    entry = previous[entry]
                if t < m:
                    row[t] += value * value
                    previous[n_linked], place[n_linked], values[n_linked] = newest[user], t, value
                    newest[user] = n_linked
                    n_linked += 1
        for t in range(m):
            system[t, t] += penalty[support[t]]
            for q in range(item_ptr[support[t]], item_ptr[support[t] + 1]):
                newest[users[q]] = -1
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
