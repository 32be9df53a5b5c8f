"""The rank of one item after small changes of a history, for scores that are sums over the history.

Each change adds a row of numbers to the scores of all items. A competitor is an item that may be listed; the one whose column
is added to the history, or removed from it, may stop being one or become one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gramian.linalg.topk import is_worse


@njit(cache=True)
def count_better(scores, item, is_competitor):  # type: ignore[no-untyped-def]
    # how many competitors are listed before the item
    better = 0
    for j in range(len(scores)):
        if is_competitor[j] and j != item and is_worse(scores[item], item, scores[j], j):
            better += 1
    return better


@njit(cache=True)
def count_until(scores, first, second, item, competitors, skip_first, skip_second, limit):  # type: ignore[no-untyped-def]
    # how many competitors, in the order of their scores before the change, are better; stops at the limit
    better, value = 0, scores[item] + first[item] + second[item]
    for at in range(len(competitors)):
        j = competitors[at]
        if j != item and j != skip_first and j != skip_second:  # noqa: PLR1714  (a tuple is slow here)
            better += is_worse(value, item, scores[j] + first[j] + second[j], j)
            if better >= limit:
                break
    return better


@njit(cache=True)
def count_after_one(scores, rows, columns, item, competitors, stays):  # type: ignore[no-untyped-def]
    # the number of better competitors after each change alone; `stays` says whether the changed column is a competitor then
    counts = np.empty(len(rows), np.int64)
    nothing = np.zeros(len(scores), rows.dtype)
    for c in range(len(rows)):
        counts[c] = count_until(scores, rows[c], nothing, item, competitors, columns[c], -1, len(scores))
        value = scores[item] + rows[c, item]
        counts[c] += stays[c] and is_worse(value, item, scores[columns[c]] + rows[c, columns[c]], columns[c])
    return counts


@njit(cache=True)
def count_after_two(scores, rows, columns, item, competitors, stays, k):  # type: ignore[no-untyped-def]
    # for each change the best one after it to combine it with, and the number of better competitors; k if none is below k
    partners, counts = np.full(len(rows), -1, np.int64), np.full(len(rows), k, np.int64)
    for c in range(len(rows)):
        for d in range(c + 1, len(rows)):
            better = count_until(scores, rows[c], rows[d], item, competitors, columns[c], columns[d], counts[c])
            value = scores[item] + rows[c, item] + rows[d, item]
            for changed in range(2):
                at = d if changed else c
                j = columns[at]
                better += stays[at] and is_worse(value, item, scores[j] + rows[c, j] + rows[d, j], j)
            if better < counts[c]:
                partners[c], counts[c] = d, better
    return partners, counts
