"""The lists a user would get from a model trained without that user, for every user, from one inverse.

Let P be the inverse of A = XᵀX + dMat(slope·s + l2), and x the entries of a user's row on its k items I. Without that user

    A₋ = A − E (x xᵀ + dMat(δ)) Eᵀ,   δ = slope·x²,   E the columns of the identity at I.

With H = P_II, M = (dMat(1/δ) − H)⁻¹, w = x + M H x and h = xᵀ H w, the inverse P₋ of A₋ gives, for a history f on I,

    z = P₋ f = P_I · v,   v = f + M H f + w (wᵀ H f)/(1 − h)
    d_i = (P₋)_ii = P_ii + p_iᵀ M p_i + (p_iᵀ w)²/(1 − h),   p_i = P_Ii

so z costs what scoring costs. M is dMat(δ) up to a small ε, the largest eigenvalue of dMat(δ)^½ H dMat(δ)^½:

    dMat(δ)  ≤  M = dMat(δ) + dMat(δ) H dMat(δ) + ...  ≤  dMat(δ) / (1 − ε).

The series gives M H x and M H f to the last digit. All items are ranked with dMat(δ) in the place of M, and the bound says how
far each score may be off. Where that leaves the order of the best in doubt, which is rare, the term is worked out in full for
more of them, until it is certain that no other item belongs in the list. Without dropout M is zero.

The model scores item i by −z_i · c_i / (B_i·d_i + N), which is every full-rank autoencoder's factor (`models/autoencoders.py`).
Models of one P differ in that factor only, so that many cost little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.linalg.product import pack
from gramian.linalg.symmetric import PANEL, Symmetric, block_start
from gramian.linalg.threads import BLAS
from gramian.linalg.topk import Best, worse

SMALL = 0.3  # ε up to which the series is summed; above it a system is solved
TILE = 32  # rows and columns mirrored at once
ENOUGH = 1e-12  # the term, relative to the first, at which the series ends


@dataclass(frozen=True)
class Family:
    """The factor c/(B·d + N) of item i as a function of its s: B = b0 + b1·s, c = c0 + c1·s."""

    slope: float
    b0: float
    b1: float
    c0: float
    c1: float
    n: float


def lists_without_self(
    inverse: Symmetric,
    s: np.ndarray,
    alone: np.ndarray,
    families: Sequence[Family],
    users: sp.csr_array,
    known: np.ndarray,
    k: int,
) -> np.ndarray:
    """The top k columns for each user's known entries (a mask over users.data), by models fitted without that user.

    `alone` says which items a single user has: without that user they are related to nothing, and score exactly 0.
    Families of one slope share all but the last step: families × users × k.
    """
    columns = np.full((len(families), users.shape[0], k), -1, np.int32)
    todo, n_best = np.arange(users.shape[0]), min(k + 1, inverse.n)
    mask = sp.csr_array((known.astype(np.float32), users.indices, users.indptr), users.shape)
    while len(todo):
        found, certain = certified(inverse, s, alone, families, users[todo], mask[todo].data > 0, k, n_best)
        columns[:, todo[certain]] = found[:, certain]
        todo, n_best = todo[~certain], min(4 * n_best, inverse.n)
    return columns


def certified(
    inverse: Symmetric,
    s: np.ndarray,
    alone: np.ndarray,
    families: Sequence[Family],
    users: sp.csr_array,
    known: np.ndarray,
    k: int,
    n_best: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The top k, by the best n_best, and whether they are certain."""
    touched, compact = np.unique(users.indices, return_inverse=True)
    indptr, compact = users.indptr.astype(np.int64), compact.astype(np.int32)
    x, p_ii = users.data.astype(np.float64), inverse.diagonal()
    delta = families[0].slope * x * x
    stored = (inverse.buffer, inverse.n, inverse.width)
    v, w = np.empty(len(x)), np.empty(len(x))
    rest, off = np.empty(users.shape[0]), np.empty(users.shape[0])
    with BLAS.limited(1):  # the users share the cores already
        solve(v, w, rest, off, indptr, users.indices, x, known, delta, *stored)
    hidden = sp.csr_array((x[known], users.indices[known], np.concatenate([[0], np.cumsum(known)])[indptr]), users.shape)
    bests = [Best(users.shape[0], n_best, hidden, np.ones(inverse.n, np.bool_)) for _ in families]
    constants = np.array([(f.b0, f.b1, f.c0, f.c1, f.n) for f in families])
    v_, w_, delta_ = (part.astype(inverse.dtype) for part in (v, w, delta))
    packed = np.empty((len(touched), PANEL), inverse.dtype)
    one, zero = np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
    sums = np.empty((len(families), users.shape[0], PANEL), inverse.dtype)
    error = np.zeros((len(families), users.shape[0]))
    for first in range(0, inverse.n, PANEL):
        pack(packed, touched, first, *stored, one, zero)
        score(sums, error, indptr, compact, users.indices, x, packed, v_, w_, delta_, rest, p_ii, s, alone, first, constants)
        for best, panel in zip(bests, sums, strict=True):
            best.push(panel[:, : inverse.n - first], first)
    out, certain = np.empty((len(families), users.shape[0], k), np.int32), np.ones(users.shape[0], np.bool_)
    for best, own, found, share in zip(bests, constants, out, error, strict=True):
        columns, scores = best.lists()
        wrong = share * np.where(share > 0, off, 0)  # how far, relatively, a factor may be off
        scores[columns < 0] = 0
        margin = np.abs(scores) * np.minimum(wrong / np.maximum(1 - wrong, 1e-9), 1e9)[:, None]
        apart = scores[:, :-1] - margin[:, :-1] >= scores[:, 1:] + margin[:, 1:]
        found[:] = columns[:, :k]
        sure = (wrong == 0) | ((wrong < 1) & (n_best > k) & (apart | (columns[:, 1:] < 0)).all(axis=1))
        doubt = np.flatnonzero(~sure)
        if n_best > k + 1 or n_best == inverse.n:
            has_all = (columns[doubt, -1] < 0) | (n_best == inverse.n)  # a list that is not full has every item there is
            with BLAS.limited(1):
                least = settle(
                    found, doubt, columns, indptr, users.indices, x, v, w, delta, rest, off, p_ii, s, alone, own, *stored
                )
            beaten = (wrong[doubt] < 1) & (least >= (scores + margin)[doubt, -1])
            sure[doubt[has_all | beaten]] = True
        certain &= sure
    return out, certain


@njit(inline="always")
def column_start(column, n, block):  # type: ignore[no-untyped-def]
    # where row 0 of a stored column would be; only the rows from the diagonal down are there
    top = column // block * block
    return block_start(top, n, block) + (column - top) * (n - top) - top


@njit(inline="always")
def own_block(items, buffer, n, block):  # type: ignore[no-untyped-def]
    # H: the rows and columns of a user's items, which are in order
    k = len(items)
    H = np.empty((k, k))
    for a in range(k):
        start = column_start(items[a], n, block)
        for b in range(a, k):
            H[a, b] = buffer[start + items[b]]
    for left in range(0, k, TILE):
        for top in range(0, left + 1, TILE):
            for a in range(left, min(left + TILE, k)):
                for b in range(top, min(top + TILE, a)):
                    H[a, b] = H[b, a]
    return H


@njit(inline="always")
def times_m(H, delta, epsilon, right):  # type: ignore[no-untyped-def]
    # M · right, by its series or by solving
    k = len(delta)
    total = np.empty_like(right)
    if epsilon > SMALL:
        system = -H
        for a in range(k):
            system[a, a] += 1 / delta[a]
        total[:] = np.linalg.solve(system, right)
        return total
    for a in range(k):
        total[a] = delta[a] * right[a]
    term, enough = total, ENOUGH * np.abs(total).max()
    while np.abs(term).max() > enough:
        term = H @ term
        for a in range(k):
            term[a] *= delta[a]
        total = total + term
    return total


@njit(inline="always")
def largest_share(H, delta):  # type: ignore[no-untyped-def]
    # at least ε: the largest row sum of |dMat(δ)^½ H dMat(δ)^½|
    root = np.sqrt(delta)
    found = 0.0
    for a in range(len(delta)):
        total = 0.0
        for b in range(len(delta)):
            total += abs(H[a, b]) * root[b]
        found = max(found, total * root[a])
    return found


@njit(parallel=True, cache=True)
def solve(v, w, rest, off, indptr, items, x, known, delta, buffer, n, block):  # type: ignore[no-untyped-def]
    # v, w and rest = 1/(1 − h); `off` is ε/(1 − ε), infinite where the bound is of no use
    for u in prange(len(indptr) - 1):
        part = slice(indptr[u], indptr[u + 1])
        if delta[part].sum() == 0:  # M = 0: two quadratic forms will do
            own, row = items[part], x[part]
            history = row * known[part]
            xx = xf = 0.0
            for a in range(len(own)):
                start = column_start(own[a], n, block)
                to_x = to_f = 0.0
                for b in range(a + 1, len(own)):
                    to_x += buffer[start + own[b]] * row[b]
                    to_f += buffer[start + own[b]] * history[b]
                diagonal = buffer[start + own[a]]
                xx += row[a] * (2 * to_x + diagonal * row[a])
                xf += row[a] * to_f + history[a] * (to_x + diagonal * row[a])
            off[u], rest[u] = 0.0, 1 / (1 - xx)
            w[part] = row
            v[part] = history + row * (xf * rest[u])
            continue
        H = own_block(items[part], buffer, n, block)
        both = np.empty((len(H), 2))
        both[:, 0], both[:, 1] = x[part], np.where(known[part], x[part], 0.0)
        image = H @ both
        epsilon = largest_share(H, delta[part])
        off[u] = epsilon / (1 - epsilon) if epsilon < 1 else np.inf
        corrected = both + times_m(H, delta[part], epsilon, image)
        w[part] = corrected[:, 0]
        rest[u] = 1 / (1 - np.sum(corrected[:, 0] * image[:, 0]))
        v[part] = corrected[:, 1] + corrected[:, 0] * (np.sum(corrected[:, 0] * image[:, 1]) * rest[u])


@njit(inline="always")
def factor(s, d, constants):  # type: ignore[no-untyped-def]
    b0, b1, c0, c1, n = constants[0], constants[1], constants[2], constants[3], constants[4]
    return (c0 + c1 * s) / ((b0 + b1 * s) * d + n)


@njit(inline="always")
def spread(s, d, constants):  # type: ignore[no-untyped-def]
    # how much, relatively, the factor moves with a relative move of d
    b = (constants[0] + constants[1] * s) * d
    return abs(b / (b + constants[4]))


@njit(parallel=True, cache=True, fastmath={"contract"})
def score(sums, error, indptr, compact, columns, x, packed, v, w, delta, rest, p_ii, s, alone, first, constants):  # type: ignore[no-untyped-def]
    width = min(PANEL, len(s) - first)
    for u in prange(len(indptr) - 1):
        z, t, q = np.zeros(PANEL, sums.dtype), np.zeros(PANEL, sums.dtype), np.zeros(PANEL, sums.dtype)
        dropped = indptr[u + 1] > indptr[u] and delta[indptr[u]] > 0
        for p in range(indptr[u], indptr[u + 1]):
            row = packed[compact[p]]
            vp, wp, dp = v[p], w[p], delta[p]
            if dropped:
                for c in range(PANEL):
                    z[c] += vp * row[c]
                    t[c] += wp * row[c]
                    q[c] += dp * row[c] * row[c]
            else:
                for c in range(PANEL):
                    z[c] += vp * row[c]
                    t[c] += wp * row[c]
        d = t  # (P₋)_ii, of which a part of about q comes from M
        for c in range(width):
            d[c] = p_ii[first + c] + rest[u] * t[c] * t[c] + q[c]
        left = indptr[u] + np.searchsorted(columns[indptr[u] : indptr[u + 1]], first)
        for r in range(len(constants)):
            own = constants[r]
            for c in range(width):
                sums[r, u, c] = -z[c] * factor(s[first + c], d[c], own)
            if dropped:
                for c in range(width):
                    error[r, u] = max(error[r, u], q[c] / d[c] * spread(s[first + c], d[c], own))
            for p in range(left, indptr[u + 1]):  # of the user's own items s is smaller without the user
                c = columns[p] - first
                if c >= PANEL:
                    break
                if alone[columns[p]]:
                    sums[r, u, c] = 0
                    continue
                less = s[columns[p]] - x[p] * x[p]
                sums[r, u, c] = -z[c] * factor(less, d[c], own)
                error[r, u] = max(error[r, u], q[c] / d[c] * spread(less, d[c], own))


@njit(inline="always")
def entry(i, j, buffer, n, block):  # type: ignore[no-untyped-def]
    return buffer[column_start(min(i, j), n, block) + max(i, j)]


@njit(parallel=True, cache=True)
def settle(out, users, columns, indptr, items, x, v, w, delta, rest, off, p_ii, s, alone, constants, buffer, n, block):  # type: ignore[no-untyped-def]
    # the exact scores of these users' best columns, the top of them in order, and the least score among these
    wanted = out.shape[1]
    least = np.full(len(users), -np.inf)
    for at in prange(len(users)):
        u = users[at]
        first, k = indptr[u], indptr[u + 1] - indptr[u]
        n_best = 0
        while n_best < columns.shape[1] and columns[u, n_best] >= 0:
            n_best += 1
        near = np.empty((k, n_best))
        for a in range(k):
            for c in range(n_best):
                near[a, c] = entry(columns[u, c], items[first + a], buffer, n, block)
        H, epsilon = own_block(items[first : first + k], buffer, n, block), off[u] / (1 + off[u])
        image = times_m(H, delta[first : first + k], epsilon if off[u] < np.inf else 1.0, near)
        scores = np.empty(n_best)
        for c in range(n_best):
            i = columns[u, c]
            count, nobody = s[i], False
            z = t = 0.0
            for a in range(k):
                z += v[first + a] * near[a, c]
                t += w[first + a] * near[a, c]
                if items[first + a] == i:
                    count -= x[first + a] * x[first + a]
                    nobody = alone[i]
            d = p_ii[i] + rest[u] * t * t + np.sum(near[:, c] * image[:, c])
            scores[c] = 0.0 if nobody else -z * factor(count, d, constants)
        for place in range(wanted):
            best = -1
            for c in range(n_best):
                if columns[u, c] >= 0 and (best < 0 or worse(scores[best], columns[u, best], scores[c], columns[u, c])):
                    best = c
            out[u, place] = columns[u, best] if best >= 0 else -1
            least[at] = scores[best] if best >= 0 else -np.inf
            if best >= 0:
                columns[u, best] = -1
    return least
