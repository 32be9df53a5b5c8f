"""Top-k lists from panels of scores: masking, selection and tie-breaking, without an array of users × items.

A scorer computes one panel of scores (users × a few columns) at a time, and `TopK` keeps each user's best columns so far.
Lists are ordered by score. Ties are broken by a fixed pseudo-random order of the columns (`hash_column`). Lists are therefore
deterministic, and a model that cannot tell items apart gains nothing from the order of ids, which often follows popularity.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

RUN_LENGTH = 64  # scores dismissed at a time by their maximum; see benchmarks/README.md
HIDDEN_SCORE = np.float32(-3.4028235e38)  # the lowest finite float32: −inf · 0 is NaN, which find_largest_scaled cannot handle


class TopK:
    """The best k columns of every user, over all panels pushed so far: a min-heap per user, with the worst on top.

    `hidden` holds the columns that each user must not get, such as their history, sorted within rows. `allowed` is a mask of
    the columns that any user may get.
    """

    def __init__(self, n_users: int, k: int, hidden: sp.csr_array | None, allowed: np.ndarray) -> None:
        self.scores = np.full((n_users, k), -np.inf)
        self.columns = np.full((n_users, k), -1, np.int32)
        self.indptr = np.zeros(n_users + 1, np.int64) if hidden is None else hidden.indptr.astype(np.int64)
        self.indices = np.zeros(0, np.int32) if hidden is None else hidden.indices
        self.allowed = allowed

    def push(self, panel: np.ndarray, first: int) -> None:
        """Add the scores of the columns first, first + 1, ... The panel may be overwritten."""
        push_panel(self.scores, self.columns, np.ascontiguousarray(panel), first, self.indptr, self.indices, self.allowed)

    def push_range(self, panel: np.ndarray, first: int, start: int) -> None:
        """Add such scores for the users start, start + 1, ... alone, on this thread. Others may push for other users."""
        users = slice(start, start + len(panel))
        heaps, indptr = (self.scores[users], self.columns[users]), self.indptr[start : start + len(panel) + 1]
        push_user_range(*heaps, np.ascontiguousarray(panel), first, indptr, self.indices, self.allowed)

    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Sort the heaps into columns and scores, best first. A list shorter than k ends in column −1 and score −inf.

        Call it once, after the last panel.
        """
        sort_heaps(self.scores, self.columns)
        return self.columns, self.scores


class ScaledTopK:
    """The best k columns of every user for several models whose scores differ only by a factor per column.

    `factors` is models × columns. `hidden` holds the columns that each user must not get. The lists are kept sorted, which for
    k = 20 took 0.6 of the time of heaps (benchmarks/README.md).
    """

    def __init__(self, n_users: int, k: int, hidden: sp.csr_array, factors: np.ndarray) -> None:
        self.factors = factors
        self.scores = np.full((n_users, len(factors), k), -np.inf)
        self.columns = np.full((n_users, len(factors), k), -1, np.int32)
        self.indptr, self.indices = hidden.indptr.astype(np.int64), hidden.indices

    def push(self, panel: np.ndarray, first: int) -> None:
        """Add the unscaled scores of the columns first, first + 1, ... The panel may be overwritten."""
        factors = np.ascontiguousarray(self.factors[:, first : first + panel.shape[1]])
        push_scaled_panel(self.scores, self.columns, np.ascontiguousarray(panel), factors, first, self.indptr, self.indices)

    def lists(self) -> np.ndarray:
        """Users × models × k columns, best first. A list shorter than k ends in −1."""
        return self.columns


def rank_values(values: np.ndarray, k: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rank the columns by one value each: the best k columns and their values, as the lists of a single user (1 × k)."""
    best = TopK(1, k, None, allowed)
    best.push(values[None].astype(np.float32), 0)
    return best.lists()


@njit(inline="always")
def hash_column(column):  # type: ignore[no-untyped-def]
    # lowbias32 by C. Wellons: a bijection of 32-bit integers, so that no two columns tie
    x = np.uint32(column)
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return x ^ (x >> np.uint32(16))


@njit(inline="always")
def is_worse(score, column, than_score, than_column):  # type: ignore[no-untyped-def]
    if score != than_score:
        return score < than_score
    if column < 0 or than_column < 0:  # an empty place is worse than any column
        return column < than_column
    return hash_column(column) > hash_column(than_column)


@njit(inline="always")
def sift_down(scores, columns, size):  # type: ignore[no-untyped-def]
    # restore the heap after its root was replaced
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            return
        if child + 1 < size and is_worse(scores[child + 1], columns[child + 1], scores[child], columns[child]):
            child += 1
        if not is_worse(scores[child], columns[child], scores[parent], columns[parent]):
            return
        scores[parent], scores[child] = scores[child], scores[parent]
        columns[parent], columns[child] = columns[child], columns[parent]
        parent = child


@njit(fastmath={"nnan", "nsz", "reassoc"}, cache=True)
def find_largest(row, start, stop):  # type: ignore[no-untyped-def]
    largest = row[start]
    for c in range(start + 1, stop):
        largest = max(largest, row[c])
    return largest


@njit(fastmath={"nnan", "nsz", "reassoc"}, cache=True)
def find_largest_scaled(row, factor, start, stop):  # type: ignore[no-untyped-def]
    largest = row[start] * factor[start]
    for c in range(start + 1, stop):
        largest = max(largest, row[c] * factor[c])
    return largest


@njit(inline="always")
def hide_columns(row, first, hidden):  # type: ignore[no-untyped-def]
    for p in range(np.searchsorted(hidden, first), len(hidden)):
        if hidden[p] >= first + len(row):
            break
        row[hidden[p] - first] = HIDDEN_SCORE


@njit(inline="always")
def push_heap(scores, columns, score, column):  # type: ignore[no-untyped-def]
    # replace the root, which is the worst of the heap, if the new column is better
    if is_worse(scores[0], columns[0], score, column):
        scores[0] = score
        columns[0] = column
        sift_down(scores, columns, len(scores))


@njit(inline="always")
def insert_sorted(scores, columns, score, column):  # type: ignore[no-untyped-def]
    # into a list sorted best first, whose last entry is dropped
    at = len(scores) - 1
    while at > 0 and is_worse(scores[at - 1], columns[at - 1], score, column):
        scores[at], columns[at] = scores[at - 1], columns[at - 1]
        at -= 1
    scores[at], columns[at] = score, column


@njit(inline="always")
def push_row(scores, columns, row, first, hidden, allowed):  # type: ignore[no-untyped-def]
    # Nearly all scores are below the worst one in the heap, so they are dismissed in runs, by the maximum of each run.
    hide_columns(row, first, hidden)
    for left in range(0, len(row), RUN_LENGTH):
        right = min(left + RUN_LENGTH, len(row))
        if find_largest(row, left, right) < scores[0]:
            continue
        for c in range(left, right):
            if row[c] >= scores[0] and row[c] > HIDDEN_SCORE and allowed[first + c]:
                push_heap(scores, columns, row[c], first + c)


@njit(parallel=True, cache=True, nogil=True)
def push_panel(scores, columns, panel, first, indptr, indices, allowed):  # type: ignore[no-untyped-def]
    for u in prange(panel.shape[0]):
        push_row(scores[u], columns[u], panel[u], first, indices[indptr[u] : indptr[u + 1]], allowed)


@njit(cache=True, nogil=True)
def push_user_range(scores, columns, panel, first, indptr, indices, allowed):  # type: ignore[no-untyped-def]
    for u in range(panel.shape[0]):
        push_row(scores[u], columns[u], panel[u], first, indices[indptr[u] : indptr[u + 1]], allowed)


@njit(parallel=True, cache=True, nogil=True)
def push_scaled_panel(scores, columns, panel, factors, first, indptr, indices):  # type: ignore[no-untyped-def]
    for u in prange(panel.shape[0]):
        row = panel[u]
        hide_columns(row, first, indices[indptr[u] : indptr[u + 1]])
        last = scores.shape[2] - 1
        for model in range(len(factors)):
            for left in range(0, len(row), RUN_LENGTH):
                right = min(left + RUN_LENGTH, len(row))
                worst = scores[u, model, last]
                if find_largest_scaled(row, factors[model], left, right) < worst:
                    continue
                for c in range(left, right):
                    score = row[c] * factors[model, c]
                    if score >= worst and row[c] > HIDDEN_SCORE and is_worse(worst, columns[u, model, last], score, first + c):
                        insert_sorted(scores[u, model], columns[u, model], score, first + c)
                        worst = scores[u, model, last]


@njit(parallel=True, cache=True, nogil=True)
def sort_heaps(scores, columns):  # type: ignore[no-untyped-def]
    # heapsort: the worst of each heap moves to its end
    for u in prange(scores.shape[0]):
        for size in range(scores.shape[1] - 1, 0, -1):
            scores[u, 0], scores[u, size] = scores[u, size], scores[u, 0]
            columns[u, 0], columns[u, size] = columns[u, size], columns[u, 0]
            sift_down(scores[u], columns[u], size)
