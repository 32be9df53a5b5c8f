"""Leave-one-user-out lists: for every user, the list of a model trained without that user, all from one inverse.

Let P be the inverse of A = XᵀX + diag(slope·s + l2), and x the entries of a user's row on its k items I. Without that user

    A₋ = A − E (x xᵀ + diag(δ)) Eᵀ,   δ = slope·x²,   E the columns of the identity at I.

With H = P_II, M = (diag(1/δ) − H)⁻¹, w = x + M H x and h = xᵀ H w, the inverse P₋ of A₋ gives, for a history f on I,

    z = P₋ f = P_I · v,   v = f + M H f + w (wᵀ H f)/(1 − h)
    d_i = (P₋)_ii = P_ii + p_iᵀ M p_i + (p_iᵀ w)²/(1 − h),   p_i = P_Ii

so z costs as much as scoring does. Let ε be the largest eigenvalue of diag(δ)^½ H diag(δ)^½. It is small, and M is nearly
diag(δ):

    diag(δ)  ≤  M = diag(δ) + diag(δ) H diag(δ) + ...  ≤  diag(δ) / (1 − ε).

The series gives M H x and M H f to full precision. To rank all items, d_i is computed with diag(δ) in place of M, and the
bound limits the error of each score. Only if that leaves the order of the top k uncertain, which is rare, p_iᵀ M p_i is
computed exactly for more and more candidates, until no other item can belong in the list. Without dropout δ = 0, and M is
zero.

The model scores item i by −z_i · c_i / (B_i·d_i + N), where that factor may have a lower bound. This covers every full-rank
autoencoder (`models/autoencoders.py`).
Models of the same P differ only in that factor, so that ranking with many of them costs little more than with one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from gramian.linalg.coefficients import Coefficients
from gramian.linalg.product import pack_panel
from gramian.linalg.symmetric import PANEL, Symmetric, locate_column, read_entry
from gramian.linalg.threads import BLAS
from gramian.linalg.topk import TopK, is_worse

SERIES_MAX_EPSILON = 0.3  # ε up to which the series is summed; above it converges slowly, and a system is solved instead
SERIES_TOLERANCE = 1e-12  # the series ends at a term this small relative to the first
MIRROR_TILE = 32  # rows and columns mirrored at a time: 8 kB of float64, which stays in cache


def leave_one_out_lists(
    inverse: Symmetric,
    s: np.ndarray,
    has_one_user: np.ndarray,
    families: Sequence[Coefficients],
    users: sp.csr_array,
    known: np.ndarray,
    k: int,
) -> np.ndarray:
    """Rank items for each user by models fitted without that user.

    Parameters
    ----------
    inverse
        P, of a fit on all users.
    s
        The diagonal of XᵀX.
    has_one_user
        A mask of the items that only one user has. Without that user they are related to no other item, and score exactly 0.
    families
        The models to rank with. They must have the same slope.
    users
        Rows of X.
    known
        A mask over `users.data`: the entries that make up each history. All other entries are targets.
    k
        The length of a list.

    Returns
    -------
    Columns of the top items, families × users × k.
    """
    columns = np.full((len(families), users.shape[0], k), -1, np.int32)
    pending, n_candidates = np.arange(users.shape[0]), min(k + 1, inverse.n)
    mask = sp.csr_array((known.astype(np.float32), users.indices, users.indptr), users.shape)
    while len(pending):
        is_known = mask[pending].data > 0
        lists, certain = rank_candidates(inverse, s, has_one_user, families, users[pending], is_known, k, n_candidates)
        columns[:, pending[certain]] = lists[:, certain]
        pending, n_candidates = pending[~certain], min(4 * n_candidates, inverse.n)
    return columns


def rank_candidates(
    inverse: Symmetric,
    s: np.ndarray,
    has_one_user: np.ndarray,
    families: Sequence[Coefficients],
    users: sp.csr_array,
    known: np.ndarray,
    k: int,
    n_candidates: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rank the n_candidates best by approximate score. Returns the top k, and a mask of the users whose lists are certain."""
    touched, compact = np.unique(users.indices, return_inverse=True)
    indptr, compact = users.indptr.astype(np.int64), compact.astype(np.int32)
    x, p_ii = users.data.astype(np.float64), inverse.diagonal()
    delta = families[0].slope * x * x
    stored = (inverse.buffer, inverse.n, inverse.width)
    v, w = np.empty(len(x)), np.empty(len(x))
    inflation, m_error = np.empty(users.shape[0]), np.empty(users.shape[0])
    with BLAS.limit(1):  # the kernel's threads already use all cores
        solve_users(v, w, inflation, m_error, indptr, users.indices, x, known, delta, *stored)
    hidden = sp.csr_array((x[known], users.indices[known], np.concatenate([[0], np.cumsum(known)])[indptr]), users.shape)
    candidates = [TopK(users.shape[0], n_candidates, hidden, np.ones(inverse.n, np.bool_)) for _ in families]
    bounds = [(f.floor * f.ridge, f.floor * f.slope) if f.floor else (-np.inf, 0.0) for f in families]
    constants = np.array([(f.b0, f.b1, f.c0, f.c1, f.n, *bound) for f, bound in zip(families, bounds, strict=True)])
    v_cast, w_cast, delta_cast = (array.astype(inverse.dtype) for array in (v, w, delta))
    packed = np.empty((len(touched), PANEL), inverse.dtype)
    ones, zeros = np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
    sums = np.empty((len(families), users.shape[0], PANEL), inverse.dtype)
    m_share = np.zeros((len(families), users.shape[0]))  # the largest relative effect of diag(δ) on a factor
    rows = (indptr, compact, users.indices, x, packed, v_cast, w_cast, delta_cast, inflation)
    for first in range(0, inverse.n, PANEL):
        pack_panel(packed, touched, first, *stored, ones, zeros)
        score_panel(sums, m_share, *rows, p_ii, s, has_one_user, first, constants)
        for best, panel in zip(candidates, sums, strict=True):
            best.push(panel[:, : inverse.n - first], first)
    lists, certain = np.empty((len(families), users.shape[0], k), np.int32), np.ones(users.shape[0], np.bool_)
    for best, family_constants, family_lists, share in zip(candidates, constants, lists, m_share, strict=True):
        columns, scores = best.lists()
        error = share * np.where(share > 0, m_error, 0)  # bound on the relative error of a factor
        scores[columns < 0] = 0
        margin = np.abs(scores) * np.minimum(error / np.maximum(1 - error, 1e-9), 1e9)[:, None]
        separated = scores[:, :-1] - margin[:, :-1] >= scores[:, 1:] + margin[:, 1:]
        family_lists[:] = columns[:, :k]
        sure = (error == 0) | ((error < 1) & (n_candidates > k) & (separated | (columns[:, 1:] < 0)).all(axis=1))
        unsure = np.flatnonzero(~sure)
        if n_candidates > k + 1 or n_candidates == inverse.n:
            has_all = (columns[unsure, -1] < 0) | (n_candidates == inverse.n)  # a list that is not full has every item
            users_arrays = (indptr, users.indices, x, v, w, delta, inflation, m_error)
            with BLAS.limit(1):
                kth = rescore_candidates(
                    family_lists, unsure, columns, *users_arrays, p_ii, s, has_one_user, family_constants, *stored
                )
            beats_rest = (error[unsure] < 1) & (kth >= (scores + margin)[unsure, -1])
            sure[unsure[has_all | beats_rest]] = True
        certain &= sure
    return lists, certain


@njit(inline="always")
def gather_submatrix(items, buffer, n, block):  # type: ignore[no-untyped-def]
    # H = P_II, for sorted items I
    k = len(items)
    H = np.empty((k, k))
    for a in range(k):
        start = locate_column(items[a], n, block)
        for b in range(a, k):
            H[a, b] = buffer[start + items[b]]
    for left in range(0, k, MIRROR_TILE):
        for top in range(0, left + 1, MIRROR_TILE):
            for a in range(left, min(left + MIRROR_TILE, k)):
                for b in range(top, min(top + MIRROR_TILE, a)):
                    H[a, b] = H[b, a]
    return H


@njit(inline="always")
def multiply_m(H, delta, epsilon, right):  # type: ignore[no-untyped-def]
    # M · right, by the series or by solving a system
    k = len(delta)
    total = np.empty_like(right)
    if epsilon > SERIES_MAX_EPSILON:
        system = -H
        for a in range(k):
            system[a, a] += 1 / delta[a]
        total[:] = np.linalg.solve(system, right)
        return total
    for a in range(k):
        total[a] = delta[a] * right[a]
    term, smallest = total, SERIES_TOLERANCE * np.abs(total).max()
    while np.abs(term).max() > smallest:
        term = H @ term
        for a in range(k):
            term[a] *= delta[a]
        total = total + term
    return total


@njit(inline="always")
def bound_epsilon(H, delta):  # type: ignore[no-untyped-def]
    # an upper bound of ε: the largest row sum of |diag(δ)^½ H diag(δ)^½|
    root = np.sqrt(delta)
    bound = 0.0
    for a in range(len(delta)):
        total = 0.0
        for b in range(len(delta)):
            total += abs(H[a, b]) * root[b]
        bound = max(bound, total * root[a])
    return bound


@njit(parallel=True, cache=True, nogil=True)
def solve_users(v, w, inflation, m_error, indptr, items, x, known, delta, buffer, n, block):  # type: ignore[no-untyped-def]
    # v, w, inflation = 1/(1 − h), and m_error = ε/(1 − ε): a bound on the relative error of diag(δ) as M, or infinity
    for u in prange(len(indptr) - 1):
        entries = slice(indptr[u], indptr[u + 1])
        if delta[entries].sum() == 0:  # M = 0: the two quadratic forms xᵀHx and xᵀHf are enough
            columns, row = items[entries], x[entries]
            history = row * known[entries]
            x_h_x = x_h_f = 0.0
            for a in range(len(columns)):
                start = locate_column(columns[a], n, block)
                h_x = h_f = 0.0  # of H's rows below a
                for b in range(a + 1, len(columns)):
                    h_x += buffer[start + columns[b]] * row[b]
                    h_f += buffer[start + columns[b]] * history[b]
                diagonal = buffer[start + columns[a]]
                x_h_x += row[a] * (2 * h_x + diagonal * row[a])
                x_h_f += row[a] * h_f + history[a] * (h_x + diagonal * row[a])
            m_error[u], inflation[u] = 0.0, 1 / (1 - x_h_x)
            w[entries] = row
            v[entries] = history + row * (x_h_f * inflation[u])
            continue
        H = gather_submatrix(items[entries], buffer, n, block)
        x_and_f = np.empty((len(H), 2))
        x_and_f[:, 0], x_and_f[:, 1] = x[entries], np.where(known[entries], x[entries], 0.0)
        image = H @ x_and_f
        epsilon = bound_epsilon(H, delta[entries])
        m_error[u] = epsilon / (1 - epsilon) if epsilon < 1 else np.inf
        corrected = x_and_f + multiply_m(H, delta[entries], epsilon, image)  # w, and f + M H f
        w[entries] = corrected[:, 0]
        inflation[u] = 1 / (1 - np.sum(corrected[:, 0] * image[:, 0]))
        v[entries] = corrected[:, 1] + corrected[:, 0] * (np.sum(corrected[:, 0] * image[:, 1]) * inflation[u])


@njit(inline="always")
def evaluate_factor(s, d, constants):  # type: ignore[no-untyped-def]
    # c/(B·d + N), or its lower bound
    b0, b1, c0, c1, n = constants[0], constants[1], constants[2], constants[3], constants[4]
    return max((c0 + c1 * s) / ((b0 + b1 * s) * d + n), constants[5] + constants[6] * s)


@njit(inline="always")
def evaluate_sensitivity(s, d, constants):  # type: ignore[no-untyped-def]
    # the relative change of the factor for a relative change of d; with a lower bound it is at most that
    b = (constants[0] + constants[1] * s) * d
    return abs(b / (b + constants[4]))


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def score_panel(  # type: ignore[no-untyped-def]
    sums, m_share, indptr, compact, columns, x, packed, v, w, delta, inflation, p_ii, s, has_one_user, first, constants
):
    # The scores of PANEL items with diag(δ) in place of M, for all users and families. m_share: see rank_candidates.
    width = min(PANEL, len(s) - first)
    for u in prange(len(indptr) - 1):
        z, t, q = np.zeros(PANEL, sums.dtype), np.zeros(PANEL, sums.dtype), np.zeros(PANEL, sums.dtype)  # z, pᵀw, pᵀ diag(δ) p
        has_dropout = indptr[u + 1] > indptr[u] and delta[indptr[u]] > 0
        for p in range(indptr[u], indptr[u + 1]):
            row = packed[compact[p]]
            v_p, w_p, delta_p = v[p], w[p], delta[p]
            if has_dropout:
                for c in range(PANEL):
                    z[c] += v_p * row[c]
                    t[c] += w_p * row[c]
                    q[c] += delta_p * row[c] * row[c]
            else:
                for c in range(PANEL):
                    z[c] += v_p * row[c]
                    t[c] += w_p * row[c]
        d = t  # overwritten in place
        for c in range(width):
            d[c] = p_ii[first + c] + inflation[u] * t[c] * t[c] + q[c]
        left = indptr[u] + np.searchsorted(columns[indptr[u] : indptr[u + 1]], first)
        for r in range(len(constants)):
            family = constants[r]
            for c in range(width):
                sums[r, u, c] = -z[c] * evaluate_factor(s[first + c], d[c], family)
            if has_dropout:
                for c in range(width):
                    m_share[r, u] = max(m_share[r, u], q[c] / d[c] * evaluate_sensitivity(s[first + c], d[c], family))
            for p in range(left, indptr[u + 1]):  # the user's items, whose s is smaller without the user
                c = columns[p] - first
                if c >= PANEL:
                    break
                if has_one_user[columns[p]]:
                    sums[r, u, c] = 0
                    continue
                s_without = s[columns[p]] - x[p] * x[p]
                sums[r, u, c] = -z[c] * evaluate_factor(s_without, d[c], family)
                m_share[r, u] = max(m_share[r, u], q[c] / d[c] * evaluate_sensitivity(s_without, d[c], family))


@njit(parallel=True, cache=True, nogil=True)
def rescore_candidates(  # type: ignore[no-untyped-def]
    out, users, columns, indptr, items, x, v, w, delta, inflation, m_error, p_ii, s, has_one_user, constants, buffer, n, block
):
    # Score the candidate columns of these users exactly and write the best to out[user]. Returns the lowest score written.
    kth = np.full(len(users), -np.inf)
    for at in prange(len(users)):
        u = users[at]
        first, k = indptr[u], indptr[u + 1] - indptr[u]
        n_candidates = 0
        while n_candidates < columns.shape[1] and columns[u, n_candidates] >= 0:
            n_candidates += 1
        p_i = np.empty((k, n_candidates))  # a column for each candidate
        for a in range(k):
            for c in range(n_candidates):
                p_i[a, c] = read_entry(columns[u, c], items[first + a], buffer, n, block)
        H, epsilon = gather_submatrix(items[first : first + k], buffer, n, block), m_error[u] / (1 + m_error[u])
        m_p_i = multiply_m(H, delta[first : first + k], epsilon if m_error[u] < np.inf else 1.0, p_i)
        scores = np.empty(n_candidates)
        for c in range(n_candidates):
            i = columns[u, c]
            s_without, is_unrelated = s[i], False
            z = t = 0.0
            for a in range(k):
                z += v[first + a] * p_i[a, c]
                t += w[first + a] * p_i[a, c]
                if items[first + a] == i:
                    s_without -= x[first + a] * x[first + a]
                    is_unrelated = has_one_user[i]
            d = p_ii[i] + inflation[u] * t * t + np.sum(p_i[:, c] * m_p_i[:, c])
            scores[c] = 0.0 if is_unrelated else -z * evaluate_factor(s_without, d, constants)
        for rank in range(out.shape[1]):
            best = -1
            for c in range(n_candidates):
                if columns[u, c] >= 0 and (best < 0 or is_worse(scores[best], columns[u, best], scores[c], columns[u, c])):
                    best = c
            out[u, rank] = columns[u, best] if best >= 0 else -1
            kth[at] = scores[best] if best >= 0 else -np.inf
            if best >= 0:
                columns[u, best] = -1
    return kth
