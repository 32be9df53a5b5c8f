"""The lists a user would get from a model trained without that user, for every user, from one inverse.

Let P be the inverse of A = XᵀX + dMat(slope·s + l2), and x the entries of a user's row on its k items I. Without that user

    A₋ = A − E (x xᵀ + slope·dMat(x²)) Eᵀ,   E the columns of the identity at I.

With H = P_II, M = (dMat(1/(slope·x²)) − H)⁻¹, w = x + M H x and h = xᵀ H w, the inverse P₋ of A₋ gives, for a history f on I,

    z = P₋ f = P_I · v,   v = f + M H f + w (wᵀ H f)/(1 − h)
    d_i = (P₋)_ii = P_ii + p_iᵀ M p_i + (p_iᵀ w)²/(1 − h),   p_i = P_Ii

so z costs what scoring costs. The middle term of d costs k² for each item. M is nearly diagonal (and zero without dropout),
so all items are ranked with its diagonal only, which costs k, and the term is then worked out for the best of them. A bound
on what was left out, by the largest row sum of M's scaled off-diagonal part, certifies that no other item belongs in the
list; where it cannot, more items are worked out.

The model scores item i by −z_i · c_i / (B_i·d_i + N), which is every full-rank autoencoder's factor (`models/autoencoders.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.linalg.product import pack
from gramian.linalg.symmetric import PANEL, Symmetric, block_start
from gramian.linalg.threads import BLAS
from gramian.linalg.topk import Best, worse

NOBODY = 1e-9  # share of an item's s below which nobody but the user has it: related to nothing, it scores exactly 0


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
    inverse: Symmetric, s: np.ndarray, family: Family, users: sp.csr_array, known: np.ndarray, k: int
) -> np.ndarray:
    """The top k columns for each user's known entries (a mask over users.data), by the model fitted without that user."""
    columns = np.full((users.shape[0], k), -1, np.int32)
    todo, n_best = np.arange(users.shape[0]), min(2 * k + 10, inverse.n)
    mask = sp.csr_array((known.astype(np.float32), users.indices, users.indptr), users.shape)
    while len(todo):
        found, certain = certified(inverse, s, family, users[todo], mask[todo].data > 0, k, n_best)
        columns[todo[certain]] = found[certain]
        todo, n_best = todo[~certain], min(4 * n_best, inverse.n)
    return columns


def certified(
    inverse: Symmetric, s: np.ndarray, family: Family, users: sp.csr_array, known: np.ndarray, k: int, n_best: int
) -> tuple[np.ndarray, np.ndarray]:
    """The top k of the best n_best, worked out in full, and whether it is certain that no other item belongs there."""
    touched, compact = np.unique(users.indices, return_inverse=True)
    indptr, compact = users.indptr.astype(np.int64), compact.astype(np.int32)
    x = users.data.astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(np.diff(indptr) ** 2)])
    h = np.empty(starts[-1])
    packed = np.empty((len(touched), PANEL), inverse.dtype)
    one, zero = np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
    stored = (inverse.buffer, inverse.n, inverse.width, one, zero)
    for first in range(0, inverse.n, PANEL):
        pack(packed, touched, first, *stored)
        gather(h, starts, indptr, compact, users.indices, packed, first)
    v, w, m = (np.empty(len(x)) for _ in range(3))
    rest, loose = np.empty(users.shape[0]), np.empty(users.shape[0])
    with BLAS.limited(1):  # the users share the cores already
        solve(h, starts, indptr, x, known, family.slope, v, w, m, rest, loose)
    hidden = sp.csr_array((x[known], users.indices[known], np.concatenate([[0], np.cumsum(known)])[indptr]), users.shape)
    best = Best(users.shape[0], n_best, hidden, np.ones(inverse.n, np.bool_))
    p_ii = inverse.diagonal()
    constants = (family.slope, family.b0, family.b1, family.c0, family.c1, family.n)
    v_, w_, m_ = (part.astype(inverse.dtype) for part in (v, w, m))
    sums = np.empty((users.shape[0], PANEL), inverse.dtype)
    error = np.zeros(users.shape[0])
    for first in range(0, inverse.n, PANEL):
        pack(packed, touched, first, *stored)
        score(sums, error, indptr, compact, users.indices, x, packed, v_, w_, m_, rest, p_ii, s, first, constants)
        best.push(sums[:, : inverse.n - first], first)
    columns, scores = best.lists()
    has_all = (columns[:, -1] < 0) | (n_best == inverse.n)  # a list that is not full has every item there is
    last = np.where(has_all, 0, scores[:, -1])
    out, least = np.empty((users.shape[0], k), np.int32), np.empty(users.shape[0])
    settle(out, least, columns, indptr, users.indices, x, v, w, h, starts, rest, p_ii, s, constants, *stored[:3])
    off = error * loose  # how far, relatively, a factor may be off
    bound = np.where(off < 1, last + np.abs(last) * off / np.maximum(1 - off, 1e-9), np.inf)
    return out, has_all | (least >= bound)


@njit(parallel=True, cache=True)
def gather(h, starts, indptr, compact, columns, packed, first):  # type: ignore[no-untyped-def]
    # H of every user, the columns of this panel
    for u in prange(len(indptr) - 1):
        k = indptr[u + 1] - indptr[u]
        left = np.searchsorted(columns[indptr[u] : indptr[u + 1]], first)
        for b in range(left, k):
            c = columns[indptr[u] + b] - first
            if c >= PANEL:
                break
            for a in range(k):
                h[starts[u] + a * k + b] = packed[compact[indptr[u] + a], c]


@njit(parallel=True, cache=True)
def solve(h, starts, indptr, x, known, slope, v, w, m, rest, loose):  # type: ignore[no-untyped-def]
    # v, w, the diagonal m of M, rest = 1/(1 − h); M takes the place of H
    for u in prange(len(indptr) - 1):
        first, last = indptr[u], indptr[u + 1]
        k = last - first
        H = h[starts[u] : starts[u + 1]].reshape(k, k)
        own = x[first:last]
        history = np.where(known[first:last], own, 0.0)
        M = np.zeros((k, k))
        if slope > 0:
            system = -H.copy()
            for a in range(k):
                system[a, a] += 1 / (slope * own[a] * own[a])
            M = np.ascontiguousarray(np.linalg.inv(system))
        Hx, Hf = H @ own, H @ history
        wide = own + M @ Hx
        rest[u] = 1 / (1 - np.dot(wide, Hx))
        w[first:last] = wide
        v[first:last] = history + M @ Hf + wide * (np.dot(wide, Hf) * rest[u])
        loose[u] = 0.0
        for a in range(k):
            m[first + a] = M[a, a]
            total = 0.0
            for b in range(k):
                if b != a:
                    total += abs(M[a, b]) / np.sqrt(M[a, a] * M[b, b]) if slope > 0 else 0.0
            loose[u] = max(loose[u], total)
        H[:, :] = M


@njit(inline="always")
def factor(s, d, constants):  # type: ignore[no-untyped-def]
    _, b0, b1, c0, c1, n = constants
    return (c0 + c1 * s) / ((b0 + b1 * s) * d + n)


@njit(parallel=True, cache=True, fastmath={"contract"})
def score(sums, error, indptr, compact, columns, x, packed, v, w, m, rest, p_ii, s, first, constants):  # type: ignore[no-untyped-def]
    slope = constants[0]
    width = min(PANEL, len(s) - first)
    for u in prange(len(indptr) - 1):
        z, t, q = np.zeros(PANEL, sums.dtype), np.zeros(PANEL, sums.dtype), np.zeros(PANEL, sums.dtype)
        for p in range(indptr[u], indptr[u + 1]):
            row = packed[compact[p]]
            vp, wp, mp = v[p], w[p], m[p]
            if slope > 0:
                for c in range(PANEL):
                    z[c] += vp * row[c]
                    t[c] += wp * row[c]
                    q[c] += mp * row[c] * row[c]
            else:
                for c in range(PANEL):
                    z[c] += vp * row[c]
                    t[c] += wp * row[c]
        for c in range(width):
            d = p_ii[first + c] + rest[u] * t[c] * t[c] + q[c]
            sums[u, c] = -z[c] * factor(s[first + c], d, constants)
            error[u] = max(error[u], q[c] / d * spread(s[first + c], d, constants))
        left = indptr[u] + np.searchsorted(columns[indptr[u] : indptr[u + 1]], first)
        for p in range(left, indptr[u + 1]):  # of the user's own items s is smaller without the user
            c = columns[p] - first
            if c >= PANEL:
                break
            less = s[columns[p]] - x[p] * x[p]
            if less <= NOBODY * s[columns[p]]:
                sums[u, c] = 0
                continue
            d = p_ii[columns[p]] + rest[u] * t[c] * t[c] + q[c]
            sums[u, c] = -z[c] * factor(less, d, constants)
            error[u] = max(error[u], q[c] / d * spread(less, d, constants))


@njit(inline="always")
def spread(s, d, constants):  # type: ignore[no-untyped-def]
    # how much, relatively, the factor moves with a relative move of d
    _, b0, b1, _, _, n = constants
    b = (b0 + b1 * s) * d
    return abs(b / (b + n))


@njit(inline="always")
def entry(i, j, buffer, n, block):  # type: ignore[no-untyped-def]
    low, high = min(i, j), max(i, j)
    top = low // block * block
    return buffer[block_start(top, n, block) + (low - top) * (n - top) + high - top]


@njit(parallel=True, cache=True)
def settle(out, least, columns, indptr, items, x, v, w, h, starts, rest, p_ii, s, constants, buffer, n, block):  # type: ignore[no-untyped-def]
    # the exact scores of the best columns, the top of them in order, and the least score among these
    wanted = out.shape[1]
    for u in prange(len(indptr) - 1):
        first, k = indptr[u], indptr[u + 1] - indptr[u]
        M = h[starts[u] : starts[u + 1]].reshape(k, k)
        n_best = columns.shape[1]
        scores = np.full(n_best, -np.inf)
        near = np.empty(k)
        for c in range(n_best):
            i = columns[u, c]
            if i < 0:
                break
            count = s[i]
            z = t = 0.0
            for a in range(k):
                near[a] = entry(i, items[first + a], buffer, n, block)
                z += v[first + a] * near[a]
                t += w[first + a] * near[a]
                if items[first + a] == i:
                    count -= x[first + a] * x[first + a]
            d = p_ii[i] + rest[u] * t * t + np.dot(near, M @ near)
            scores[c] = -z * factor(count, d, constants) if count > NOBODY * s[i] else 0.0
        for place in range(wanted):
            best = -1
            for c in range(n_best):
                if columns[u, c] >= 0 and (best < 0 or worse(scores[best], columns[u, best], scores[c], columns[u, c])):
                    best = c
            out[u, place] = columns[u, best] if best >= 0 else -1
            least[u] = scores[best] if best >= 0 else -np.inf
            if best >= 0:
                columns[u, best] = -1
