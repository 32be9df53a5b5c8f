"""Sparse regressions of every item on all others, from the Gram matrix alone.

For each item i, over w with w_i = 0:

    min ½ wᵀ S w − S_i · w + ½ l2·‖w‖² + l1·|w|₁

by coordinate descent on the few coordinates that matter. A round solves for a small active set; one product with S then gives
what every other item still has in common with the residual, and those that have more than l1 join. When none has, to a
thousandth of l1 and a millionth of the items' sizes, the optimality conditions hold for all items: w is the solution, not an
approximation by nearest neighbours.
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.data.interactions import csr
from gramian.errors import PrecisionWarning
from gramian.linalg.leave_out import entry
from gramian.linalg.product import panels
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.topk import Best
from gramian.progress import bar

ITEMS = 2_048  # solved at once
FIRST, MOST = 64, 512  # coordinates that may join in a round
MORE, JOIN = 1.001, 1e-6  # a coordinate joins that is pulled by more than MORE·l1 and JOIN·(the sizes of both items)
STILL = 1e-5  # change of a coordinate, relative to the item's size, at which a set is solved
SWEEPS = 5_000  # over a set, at most


def regressions(gram: Symmetric, l1: float, l2: float, non_negative: bool) -> sp.csr_array:
    """W, with item i's coefficients in column i."""
    n = gram.n
    own = gram.diagonal()
    parts = []
    with bar("regressing", n) as advance:
        for start in range(0, n, ITEMS):
            items = np.arange(start, min(start + ITEMS, n))
            parts.append(solved(gram, own, items, l1, l2, non_negative))
            advance(len(items))
    return sp.csr_array(sp.vstack(parts).T.tocsr())


def solved(gram: Symmetric, own: np.ndarray, items: np.ndarray, l1: float, l2: float, non_negative: bool) -> sp.csr_array:
    """The coefficients of these items, a row for each."""
    n, kind = gram.n, gram.dtype
    size_of = np.sqrt(own + l2)
    scale = np.divide(1, size_of, out=np.zeros(n), where=size_of > 0).astype(kind)  # an item nobody has promises nothing
    zero, everything = np.zeros(n, kind), np.ones(n, np.bool_)
    members = items[:, None].astype(np.int32)  # of each active set; the item itself comes first, and stays 0
    values = np.zeros(members.shape, kind)
    todo, size = np.arange(len(items)), min(FIRST, n)
    while len(todo):
        row, at = np.nonzero(members[todo] >= 0)
        columns = members[todo][row, at]
        target = np.where(at == 0, 1, -values[todo][row, at]).astype(kind)
        hidden = csr(row, columns, np.ones(len(row)), (len(todo), n))
        hidden.sort_indices()
        best = Best(len(todo), size, hidden, everything)
        for first, panel in panels(csr(row, columns, target, (len(todo), n)), gram, scale, zero):
            promise = panel if non_negative else np.abs(panel)
            best.push(promise - kind.type(MORE * l1) * scale[first : first + panel.shape[1]], first)
        found, scores = best.lists()
        joins = scores > JOIN * np.sqrt(own[items[todo]])[:, None]
        todo, new = todo[joins[:, 0]], np.where(joins, found, -1)[joins[:, 0]]
        wider = np.full((len(items), new.shape[1]), -1, np.int32)
        wider[todo] = new
        members, values = np.hstack([members, wider]), np.hstack([values, np.zeros(wider.shape, kind)])
        if not descend(members, values, todo, own, l1, l2, non_negative, gram.buffer, n, gram.width):
            problem = f"A regression did not settle in {SWEEPS:,} sweeps, for an l2 of {l2:g}. Raise it."
            warnings.warn(problem, PrecisionWarning, stacklevel=2)
        size = min(2 * size, MOST, n)
    row, at = np.nonzero(values)
    return csr(row, members[row, at], values[row, at], (len(items), n))


@njit(parallel=True, cache=True)
def descend(members, values, todo, own, l1, l2, non_negative, buffer, n, block):  # type: ignore[no-untyped-def]
    # coordinate descent on the active set of each item, from where its weights are; whether all settled
    settled = np.ones(len(todo), np.bool_)
    for t in prange(len(todo)):
        item = members[todo[t], 0]
        places = np.flatnonzero(members[todo[t], 1:] >= 0) + 1
        k = len(places)
        A, gradient, w = np.empty((k, k)), np.empty(k), np.empty(k)
        for a in range(k):
            one = members[todo[t], places[a]]
            w[a] = values[todo[t], places[a]]
            gradient[a] = entry(item, one, buffer, n, block)
            for b in range(a, k):
                A[a, b] = A[b, a] = entry(one, members[todo[t], places[b]], buffer, n, block)
        for a in range(k):
            if w[a] != 0:
                gradient -= A[a] * w[a]
        still = STILL * np.sqrt(own[item])
        whole = True
        for sweep in range(SWEEPS):
            moved = 0.0
            for a in range(k):
                if w[a] == 0 and not whole:
                    continue
                pull = gradient[a] + A[a, a] * w[a]
                new = 0.0
                if pull > l1:
                    new = (pull - l1) / (A[a, a] + l2)
                elif pull < -l1 and not non_negative:
                    new = (pull + l1) / (A[a, a] + l2)
                if new != w[a]:
                    moved = max(moved, abs(new - w[a]) * np.sqrt(A[a, a] + l2))
                    gradient -= A[a] * (new - w[a])
                    w[a] = new
            if moved < still:
                if whole:
                    break
                whole = True  # those at 0 have their turn
            else:
                whole = False
            settled[t] = sweep < SWEEPS - 1
        for a in range(k):
            values[todo[t], places[a]] = w[a]
    return settled.all()
