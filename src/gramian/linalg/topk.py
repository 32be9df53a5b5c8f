"""Scores to lists: mask, top-k and ties, in panels of a few columns, so that nothing grows with users × items.

A scorer fills one panel of scores (users × a few columns) at a time; `Best` keeps each user's best so far. The order is by
score, and equal scores follow a fixed pseudo-random order of the columns (`tie_rank`): the same list every time, and no gain
for a model that cannot tell items apart, even where item ids are sorted by popularity.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

RUN = 64
LOWEST = np.float32(-3.4028235e38)  # of a hidden item: finite, so that the largest of a run may be found by fast instructions


class Best:
    """The best k columns of every user seen so far: a min-heap per user, worst on top.

    `hidden` holds the columns each user must not get (what they have seen), `allowed` the columns anybody may get.
    """

    def __init__(self, n_users: int, k: int, hidden: sp.csr_array | None, allowed: np.ndarray) -> None:
        self.scores = np.full((n_users, k), -np.inf)
        self.columns = np.full((n_users, k), -1, np.int32)
        self.indptr = np.zeros(n_users + 1, np.int64) if hidden is None else hidden.indptr.astype(np.int64)
        self.indices = np.zeros(0, np.int32) if hidden is None else hidden.indices
        self.allowed = allowed

    def push(self, panel: np.ndarray, first: int) -> None:
        """Take in the scores of the columns first, first + 1, ... The panel may be overwritten."""
        push(self.scores, self.columns, np.ascontiguousarray(panel), first, self.indptr, self.indices, self.allowed)

    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns and scores, best first; a list shorter than k ends in column −1 and score −inf."""
        order_lists(self.scores, self.columns)
        return self.columns, self.scores


class BestOfMany:
    """The best k columns of every user for each of several models whose scores differ by a factor per column only.

    `factors` is models × columns. What a user has seen is never in a list. The lists are short and kept in order, which for
    20 items took 0.6 of a heap's time.
    """

    def __init__(self, n_users: int, k: int, hidden: sp.csr_array, factors: np.ndarray) -> None:
        self.factors = factors
        self.scores = np.full((n_users, len(factors), k), -np.inf)
        self.columns = np.full((n_users, len(factors), k), -1, np.int32)
        self.indptr, self.indices = hidden.indptr.astype(np.int64), hidden.indices

    def push(self, panel: np.ndarray, first: int) -> None:
        """Take in the scores of the columns first, first + 1, ..., before their factors. The panel may be overwritten."""
        factors = np.ascontiguousarray(self.factors[:, first : first + panel.shape[1]])
        push_scaled(self.scores, self.columns, np.ascontiguousarray(panel), factors, first, self.indptr, self.indices)

    def lists(self) -> np.ndarray:
        """Users × models × k columns, best first; a list shorter than k ends in −1."""
        return self.columns


def ranked(values: np.ndarray, k: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The k best of one score for each column, as lists of a single user."""
    best = Best(1, k, None, allowed)
    best.push(values[None].astype(np.float32), 0)
    return best.lists()


@njit(inline="always")
def tie_rank(column):  # type: ignore[no-untyped-def]
    # a bijection of 32-bit integers that looks random
    x = np.uint32(column)
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return x ^ (x >> np.uint32(16))


@njit(inline="always")
def worse(score, column, than_score, than_column):  # type: ignore[no-untyped-def]
    if score != than_score:
        return score < than_score
    if column < 0 or than_column < 0:
        return column < than_column
    return tie_rank(column) > tie_rank(than_column)


@njit(inline="always")
def sink(scores, columns, size):  # type: ignore[no-untyped-def]
    # restore the heap after its top was replaced
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and worse(scores[child + 1], columns[child + 1], scores[child], columns[child]):
            child += 1
        if not worse(scores[child], columns[child], scores[at], columns[at]):
            return
        scores[at], scores[child] = scores[child], scores[at]
        columns[at], columns[child] = columns[child], columns[at]
        at = child


@njit(fastmath={"nnan", "nsz", "reassoc"}, cache=True)
def largest(row, start, stop):  # type: ignore[no-untyped-def]
    found = row[start]
    for c in range(start + 1, stop):
        found = max(found, row[c])
    return found


@njit(fastmath={"nnan", "nsz", "reassoc"}, cache=True)
def largest_scaled(row, factor, start, stop):  # type: ignore[no-untyped-def]
    found = row[start] * factor[start]
    for c in range(start + 1, stop):
        found = max(found, row[c] * factor[c])
    return found


@njit(inline="always")
def hide(row, first, hidden):  # type: ignore[no-untyped-def]
    for p in range(np.searchsorted(hidden, first), len(hidden)):
        if hidden[p] >= first + len(row):
            break
        row[hidden[p] - first] = LOWEST


@njit(inline="always")
def offer(scores, columns, score, column):  # type: ignore[no-untyped-def]
    if worse(scores[0], columns[0], score, column):
        scores[0] = score
        columns[0] = column
        sink(scores, columns, len(scores))


@njit(inline="always")
def insert(scores, columns, score, column):  # type: ignore[no-untyped-def]
    # into a list in order, best first, whose worst falls out
    at = len(scores) - 1
    while at > 0 and worse(scores[at - 1], columns[at - 1], score, column):
        scores[at], columns[at] = scores[at - 1], columns[at - 1]
        at -= 1
    scores[at], columns[at] = score, column


@njit(parallel=True, cache=True, nogil=True)
def push(scores, columns, panel, first, indptr, indices, allowed):  # type: ignore[no-untyped-def]
    # Nearly all scores are below the worst one kept, so they are dismissed a run at a time, by the largest of each run.
    for u in prange(panel.shape[0]):
        row = panel[u]
        hide(row, first, indices[indptr[u] : indptr[u + 1]])
        for left in range(0, len(row), RUN):
            right = min(left + RUN, len(row))
            if largest(row, left, right) < scores[u, 0]:
                continue
            for c in range(left, right):
                if row[c] >= scores[u, 0] and row[c] > LOWEST and allowed[first + c]:
                    offer(scores[u], columns[u], row[c], first + c)


@njit(parallel=True, cache=True)
def push_scaled(scores, columns, panel, factors, first, indptr, indices):  # type: ignore[no-untyped-def]
    for u in prange(panel.shape[0]):
        row = panel[u]
        hide(row, first, indices[indptr[u] : indptr[u + 1]])
        last = scores.shape[2] - 1
        for r in range(len(factors)):
            for left in range(0, len(row), RUN):
                right = min(left + RUN, len(row))
                least = scores[u, r, last]
                if largest_scaled(row, factors[r], left, right) < least:
                    continue
                for c in range(left, right):
                    score = row[c] * factors[r, c]
                    if score >= least and row[c] > LOWEST and worse(least, columns[u, r, last], score, first + c):
                        insert(scores[u, r], columns[u, r], score, first + c)
                        least = scores[u, r, last]


@njit(parallel=True, cache=True)
def order_lists(scores, columns):  # type: ignore[no-untyped-def]
    for u in prange(scores.shape[0]):
        for size in range(scores.shape[1] - 1, 0, -1):
            scores[u, 0], scores[u, size] = scores[u, size], scores[u, 0]
            columns[u, 0], columns[u, size] = columns[u, size], columns[u, 0]
            sink(scores[u], columns[u], size)
