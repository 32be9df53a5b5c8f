"""Elastic-net regressions of every item on all other items, from the Gram matrix S alone.

For each item i, over w with w_i = 0:

    min ½ wᵀ S w − S_i · w + ½ l2·‖w‖² + l1·|w|₁

The solver is coordinate descent on an active set. A round solves for the coordinates in the set. One product with S then
gives the gradient of every other coordinate. Those whose gradient exceeds l1 violate the optimality conditions and join the
set. Rounds end when no coordinate violates the conditions, to a thousandth of l1 and a millionth of the items' norms. The
conditions then hold for all items, so w is the exact solution and not an approximation by nearest neighbours.
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.errors import PrecisionWarning
from gramian.linalg.product import inverse_panels
from gramian.linalg.sparse import csr_from_sorted
from gramian.linalg.symmetric import Symmetric, read_entry
from gramian.linalg.topk import TopK
from gramian.progress import progress_bar

TARGETS_PER_BATCH = 512  # items regressed at a time, which bounds the memory of active sets and panels
FIRST_ROUND_JOINS = 64  # coordinates that may join an active set in the first round; doubled each round ...
MAX_ROUND_JOINS = 512  # ... up to this many
VIOLATION_MARGIN = 1.001  # a coordinate joins if its gradient exceeds this multiple of l1 by more than ...
VIOLATION_TOLERANCE = 1e-6  # ... this multiple of ‖x_i‖ · √(‖x_j‖² + l2)
CHANGE_TOLERANCE = 1e-5  # converged: no coordinate changes in a sweep by more than this multiple of ‖x_i‖ / √(‖x_j‖² + l2)
MAX_SWEEPS = 5_000  # of coordinate descent over one active set


def elastic_net(gram: Symmetric, l1: float, l2: float, non_negative: bool) -> sp.csr_array:
    """Solve the regressions of all items. Returns W, with the coefficients of item i's regression in column i."""
    n = gram.n
    diagonal = gram.diagonal()
    batches = []
    with progress_bar("regressing", n) as advance:
        for start in range(0, n, TARGETS_PER_BATCH):
            items = np.arange(start, min(start + TARGETS_PER_BATCH, n))
            batches.append(solve_batch(gram, diagonal, items, l1, l2, non_negative))
            advance(len(items))
    return sp.csr_array(sp.vstack(batches).T.tocsr())


def solve_batch(
    gram: Symmetric, diagonal: np.ndarray, items: np.ndarray, l1: float, l2: float, non_negative: bool
) -> sp.csr_array:
    """Solve the regressions of these items. Returns their coefficients, a row for each item."""
    n, dtype = gram.n, gram.dtype
    norms = np.sqrt(diagonal + l2)
    scale = np.divide(1, norms, out=np.zeros(n), where=norms > 0).astype(dtype)  # 0 keeps items without interactions out
    zeros, all_allowed = np.zeros(n, dtype), np.ones(n, np.bool_)
    members = items[:, None].astype(np.int32)  # of each active set, −1 where empty; the item itself comes first and stays 0
    values = np.zeros(members.shape, dtype)
    active, n_joins = np.arange(len(items)), min(FIRST_ROUND_JOINS, n)  # regressions that are not yet solved
    while len(active):
        row, slot = np.nonzero(members[active] >= 0)
        columns = members[active][row, slot]
        residual = np.where(slot == 0, 1, -values[active][row, slot]).astype(dtype)  # e_i − w: S times it is −gradient
        hidden = csr_from_sorted(row, columns, np.ones(len(row)), (len(active), n))
        hidden.sort_indices()
        violations = TopK(len(active), n_joins, hidden, all_allowed)
        for first, panel in inverse_panels(csr_from_sorted(row, columns, residual, (len(active), n)), gram, scale, zeros):
            size = panel if non_negative else np.abs(panel)
            violations.push(size - dtype.type(VIOLATION_MARGIN * l1) * scale[first : first + panel.shape[1]], first)
        candidates, excess = violations.lists()
        joins = excess > VIOLATION_TOLERANCE * np.sqrt(diagonal[items[active]])[:, None]
        active, joining = active[joins[:, 0]], np.where(joins, candidates, -1)[joins[:, 0]]
        added = np.full((len(items), joining.shape[1]), -1, np.int32)
        added[active] = joining
        members, values = np.hstack([members, added]), np.hstack([values, np.zeros(added.shape, dtype)])
        if not descend_coordinates(members, values, active, diagonal, l1, l2, non_negative, gram.buffer, n, gram.width):
            problem = f"A regression did not converge in {MAX_SWEEPS:,} sweeps, for an l2 of {l2:g}. Raise it."
            warnings.warn(problem, PrecisionWarning, stacklevel=2)
        n_joins = min(2 * n_joins, MAX_ROUND_JOINS, n)
    row, slot = np.nonzero(values)
    return csr_from_sorted(row, members[row, slot], values[row, slot], (len(items), n))


@njit(parallel=True, cache=True, nogil=True)
def descend_coordinates(members, values, active, diagonal, l1, l2, non_negative, buffer, n, block):  # type: ignore[no-untyped-def]
    # Coordinate descent on the active set of each regression, from its current coefficients. Returns whether all converged.
    converged = np.ones(len(active), np.bool_)
    for t in prange(len(active)):
        item = members[active[t], 0]
        slots = np.flatnonzero(members[active[t], 1:] >= 0) + 1
        k = len(slots)
        A, gradient, w = np.empty((k, k)), np.empty(k), np.empty(k)  # of S, in the active set; S_i − S w
        for a in range(k):
            column = members[active[t], slots[a]]
            w[a] = values[active[t], slots[a]]
            gradient[a] = read_entry(item, column, buffer, n, block)
            for b in range(a, k):
                A[a, b] = A[b, a] = read_entry(column, members[active[t], slots[b]], buffer, n, block)
        for a in range(k):
            if w[a] != 0:
                gradient -= A[a] * w[a]
        tolerance = CHANGE_TOLERANCE * np.sqrt(diagonal[item])
        full_sweep = True  # else over the nonzero coordinates only
        for sweep in range(MAX_SWEEPS):
            change = 0.0
            for a in range(k):
                if w[a] == 0 and not full_sweep:
                    continue
                correlation = gradient[a] + A[a, a] * w[a]  # with the residual, if this coordinate were 0
                new = 0.0
                if correlation > l1:
                    new = (correlation - l1) / (A[a, a] + l2)
                elif correlation < -l1 and not non_negative:
                    new = (correlation + l1) / (A[a, a] + l2)
                if new != w[a]:
                    change = max(change, abs(new - w[a]) * np.sqrt(A[a, a] + l2))
                    gradient -= A[a] * (new - w[a])
                    w[a] = new
            if change < tolerance:
                if full_sweep:
                    break
                full_sweep = True  # the nonzero coordinates have converged: try those at 0 again
            else:
                full_sweep = False
            converged[t] = sweep < MAX_SWEEPS - 1
        for a in range(k):
            values[active[t], slots[a]] = w[a]
    return converged.all()
