"""Half of an epoch of alternating least squares: with the factors f of all columns fixed, those of every row are solved for.

The factors p of a row with the columns j, values v_j, are where

    shared · pᵀGp  +  Σ_j w_j (f_j·p)²  +  ridge · ‖p‖²  −  2 p·(Σ_j t_j f_j + rest · g)

is least: G and g are of all columns and common to all rows; shared, ridge and rest are the row's own; w_j and t_j are a factor
of the row times a factor of the column times v_j. In the basis of G's eigenvectors G is diagonal. There

    `alone`      all w are 0: the system is diagonal, and its solution is a product and a division;
    `exact`      Cholesky, of the K × K system, or for a row of fewer than K columns of one of its own size (Woodbury);
    `gradient`   conjugate gradients from where the row was, divided by the system's diagonal, which is near to it;
    `blocks`     exact in a few factors at a time, the others held fixed (Rendle et al. 2021, iALS++).

Rows are dealt out by length, the longest first, so that all threads end together, and each is summed in the same order on
any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numba import get_num_threads, njit, prange
from scipy.linalg import eigh

from gramian.linalg.prefetch import look_ahead

SHARED, OWN, PULL, REST, RIDGE = range(5)  # a row's numbers
PARTS = 8  # for each thread
FAST = {"contract", "reassoc", "nsz", "arcp"}


@dataclass(frozen=True)
class Rows:
    """The rows to be solved for: a sparse matrix, five numbers for each row, and the two factors (w, t) of each column."""

    x: sp.csr_array
    by_row: np.ndarray
    by_column: np.ndarray

    @cached_property
    def order(self) -> np.ndarray:
        return np.argsort(-np.diff(self.x.indptr), kind="stable")

    @property
    def longest(self) -> int:
        return int(np.diff(self.x.indptr).max(initial=0))

    @property
    def alone(self) -> bool:
        return not (self.by_row[:, OWN].any() and self.by_column[:, 0].any())


@dataclass(frozen=True)
class Fixed:
    """The factors of the columns, and G and g, in the basis in which G is diagonal."""

    factors: np.ndarray
    spectrum: np.ndarray
    total: np.ndarray

    @staticmethod
    def of(factors: np.ndarray, gram: np.ndarray, total: np.ndarray) -> tuple[Fixed, np.ndarray]:
        """The factors turned, and the basis by which others are to be."""
        kind = factors.dtype
        spectrum, vectors = eigh(gram.astype(np.float64))
        basis = vectors.astype(kind)
        return Fixed(factors @ basis, spectrum.astype(kind), (total @ vectors).astype(kind)), basis


def alone(rows: Rows, fixed: Fixed, out: np.ndarray) -> np.ndarray:
    return run(solve_alone, rows, fixed, out, 0)


def exact(rows: Rows, fixed: Fixed, out: np.ndarray) -> np.ndarray:
    return run(solve_exactly, rows, fixed, out, rows.longest)


def gradient(rows: Rows, fixed: Fixed, out: np.ndarray, steps: int) -> np.ndarray:
    return run(solve_by_gradient, rows, fixed, out, steps)


def blocks(rows: Rows, fixed: Fixed, out: np.ndarray, size: int) -> np.ndarray:
    return run(solve_by_blocks, rows, fixed, out, size)


def run(kernel, rows: Rows, fixed: Fixed, out: np.ndarray, how: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Solve into `out`, which holds where to start. The least value of each row's problem; NaN where there is no least."""
    x, kind = rows.x, fixed.factors.dtype
    values = np.empty(x.shape[0])
    numbers = (rows.by_row.astype(kind, copy=False), rows.by_column.astype(kind, copy=False))
    found = (fixed.factors, fixed.spectrum, fixed.total)
    data = x.data.astype(kind, copy=False)
    kernel(out, values, rows.order, PARTS * get_num_threads(), x.indptr, x.indices, data, *found, *numbers, how)
    return values


@njit(inline="always")
def dot(a, b):  # type: ignore[no-untyped-def]
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(parallel=True, cache=True, fastmath=FAST)
def solve_alone(out, values, order, n_parts, indptr, indices, data, fixed, spectrum, total, by_row, by_column, how):  # type: ignore[no-untyped-def]
    width = fixed.shape[1]
    for part in prange(n_parts):
        right = np.empty(width, fixed.dtype)
        for at in range(part, len(order), n_parts):
            row = order[at]
            mine, stop = by_row[row], indptr[row + 1]
            for k in range(width):
                right[k] = mine[REST] * total[k]
            for p in range(indptr[row], stop):
                look_ahead(fixed, indices, p, stop)
                f, pull = fixed[indices[p]], mine[PULL] * by_column[indices[p], 1] * data[p]
                for k in range(width):
                    right[k] += pull * f[k]
            value = 0.0
            for k in range(width):
                diagonal = mine[SHARED] * spectrum[k] + mine[RIDGE]
                solved = right[k] / diagonal if diagonal > 0 else np.nan
                out[row, k] = solved
                value -= solved * right[k]
            values[row] = value


@njit(parallel=True, cache=True, fastmath=FAST)
def solve_by_gradient(out, values, order, n_parts, indptr, indices, data, fixed, spectrum, total, by_row, by_column, steps):  # type: ignore[no-untyped-def]
    width = fixed.shape[1]
    smallest = 1e-14 if fixed.itemsize == 4 else 1e-30  # what is left of a residual's square, when the rest is rounding
    for part in prange(n_parts):
        diagonal, scale, rest = np.empty(width, fixed.dtype), np.empty(width, fixed.dtype), np.empty(width, fixed.dtype)
        image, step = np.empty(width, fixed.dtype), np.empty(width, fixed.dtype)
        for at in range(part, len(order), n_parts):
            row = order[at]
            mine, start, stop, found = by_row[row], indptr[row], indptr[row + 1], out[row]
            value = 0.0  # −p·(right + residual) at the start, less what each step gains
            for k in range(width):
                diagonal[k] = mine[SHARED] * spectrum[k] + mine[RIDGE]
                scale[k], rest[k] = diagonal[k], mine[REST] * total[k] - diagonal[k] * found[k]
                value -= mine[REST] * total[k] * found[k]
            for p in range(start, stop):
                look_ahead(fixed, indices, p, stop)
                c = indices[p]
                f, weight, pull = fixed[c], mine[OWN] * by_column[c, 0] * data[p], mine[PULL] * by_column[c, 1] * data[p]
                score = dot(f, found)
                gap = pull - weight * score
                value -= pull * score
                for k in range(width):
                    scale[k] += weight * f[k] * f[k]
                    rest[k] += gap * f[k]
            before = fixed.dtype.type(0)
            for k in range(width):
                value -= rest[k] * found[k]
                scale[k] = 1 / scale[k]
                step[k] = rest[k] * scale[k]
                before += rest[k] * step[k]
            enough, bounded = before * smallest, before >= 0
            for _ in range(steps):
                if not before > enough:
                    break
                for k in range(width):
                    image[k] = diagonal[k] * step[k]
                for p in range(start, stop):
                    look_ahead(fixed, indices, p, stop)
                    c = indices[p]
                    f = fixed[c]
                    along = mine[OWN] * by_column[c, 0] * data[p] * dot(f, step)
                    for k in range(width):
                        image[k] += along * f[k]
                curvature = dot(step, image)
                if not curvature > 0:
                    bounded = False
                    break
                far = before / curvature
                value -= far * before
                after = fixed.dtype.type(0)
                for k in range(width):
                    found[k] += far * step[k]
                    rest[k] -= far * image[k]
                    after += rest[k] * rest[k] * scale[k]
                for k in range(width):
                    step[k] = rest[k] * scale[k] + after / before * step[k]
                before = after
            values[row] = value if bounded else np.nan


@njit(inline="always")
def add(line, u, c):  # type: ignore[no-untyped-def]
    for k in range(len(line)):
        line[k] += c * u[k]


@njit(inline="always")
def add_four(line, u0, u1, u2, u3, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    # four at once, for the line is loaded and stored for each pass
    for k in range(len(line)):
        line[k] += c0 * u0[k] + c1 * u1[k] + c2 * u2[k] + c3 * u3[k]


@njit(cache=True, fastmath=FAST)
def add_outer(a, u0, u1, u2, u3, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    # the upper half of a += c0 u0 u0ᵀ + … + c3 u3 u3ᵀ
    n = len(u0)
    for i in range(n):
        add_four(a[i, i:n], u0[i:], u1[i:], u2[i:], u3[i:], c0 * u0[i], c1 * u1[i], c2 * u2[i], c3 * u3[i])


@njit(cache=True, fastmath=FAST)
def solve_in_place(a, right, n):  # type: ignore[no-untyped-def]
    # a[:n, :n] p = right[:n], by a = UᵀU in a's upper half; whether a is positive definite
    for first in range(0, n, 4):
        last = min(first + 4, n)
        for j in range(first, last):
            pivot = a[j, j]
            if not pivot > 0:
                return False
            root = np.sqrt(pivot)
            line = a[j, j:n]
            for k in range(len(line)):
                line[k] /= root
            for i in range(j + 1, last):
                add(a[i, i:n], a[j, i:n], -a[j, i])
        if last == first + 4:
            u0, u1, u2, u3 = a[first], a[first + 1], a[first + 2], a[first + 3]
            for i in range(last, n):
                add_four(a[i, i:n], u0[i:n], u1[i:n], u2[i:n], u3[i:n], -u0[i], -u1[i], -u2[i], -u3[i])
    for j in range(n):
        right[j] /= a[j, j]
        add(right[j + 1 : n], a[j, j + 1 : n], -right[j])
    for j in range(n - 1, -1, -1):
        right[j] = (right[j] - dot(a[j, j + 1 : n], right[j + 1 : n])) / a[j, j]
    return True


@njit(cache=True, fastmath=FAST)
def solve_short(found, right, diagonal, a, h, small, fixed, columns, weights, pulls):  # type: ignore[no-untyped-def]
    # of n < K columns, with D = dMat(diagonal), r = right and h_j = √w_j D^-½ f_j, all w_j > 0:
    # p = D^-½ (Hᵀ (I + HHᵀ)⁻¹ (t/√w − H D^-½ r) + D^-½ r)
    n, width = len(columns), len(found)
    for k in range(width):
        diagonal[k] = 1 / np.sqrt(diagonal[k])
        found[k] = diagonal[k] * right[k]
    for j in range(n):
        f, mine, root = fixed[columns[j]], h[j], np.sqrt(weights[j])
        for k in range(width):
            mine[k] = root * diagonal[k] * f[k]
        small[j] = pulls[j] / root - dot(mine, found)
        for i in range(j):
            a[i, j] = dot(h[i], mine)
        a[j, j] = 1 + dot(mine, mine)
    definite = solve_in_place(a, small, n)
    for j in range(n):
        add(found, h[j], small[j])
    for k in range(width):
        found[k] *= diagonal[k]
    value = dot(found, right)
    for j in range(n):
        value += pulls[j] * dot(fixed[columns[j]], found)
    return -value if definite else np.nan


@njit(cache=True, fastmath=FAST)
def solve_long(found, right, diagonal, a, fixed, columns, weights, pulls):  # type: ignore[no-untyped-def]
    n, width = len(columns), len(found)
    a[:] = 0
    for k in range(width):
        a[k, k] = diagonal[k]
    for j in range(n):
        look_ahead(fixed, columns, j, n)
        add(right, fixed[columns[j]], pulls[j])
        if j % 4 == 3:
            u0, u1, u2, u3 = fixed[columns[j - 3]], fixed[columns[j - 2]], fixed[columns[j - 1]], fixed[columns[j]]
            add_outer(a, u0, u1, u2, u3, weights[j - 3], weights[j - 2], weights[j - 1], weights[j])
    for j in range(n - n % 4, n):
        u, none = fixed[columns[j]], weights.dtype.type(0)
        add_outer(a, u, u, u, u, weights[j], none, none, none)
    found[:] = right
    definite = solve_in_place(a, found, width)
    return -dot(found, right) if definite else np.nan


@njit(parallel=True, cache=True, fastmath=FAST)
def solve_exactly(out, values, order, n_parts, indptr, indices, data, fixed, spectrum, total, by_row, by_column, longest):  # type: ignore[no-untyped-def]
    width = fixed.shape[1]
    for part in prange(n_parts):
        a, right, diagonal = np.empty((width, width), fixed.dtype), np.empty(width, fixed.dtype), np.empty(width, fixed.dtype)
        small, h = np.empty(width, fixed.dtype), np.empty((width, width), fixed.dtype)
        weights, pulls = np.empty(longest, fixed.dtype), np.empty(longest, fixed.dtype)
        for at in range(part, len(order), n_parts):
            row = order[at]
            mine, columns, of = by_row[row], indices[indptr[row] : indptr[row + 1]], data[indptr[row] : indptr[row + 1]]
            n = len(columns)
            short = n < width
            for k in range(width):
                diagonal[k] = mine[SHARED] * spectrum[k] + mine[RIDGE]
                right[k] = mine[REST] * total[k]
                short = short and diagonal[k] > 0
            for j in range(n):
                weights[j] = mine[OWN] * by_column[columns[j], 0] * of[j]
                pulls[j] = mine[PULL] * by_column[columns[j], 1] * of[j]
                short = short and weights[j] > 0
            if short:
                values[row] = solve_short(out[row], right, diagonal, a, h, small, fixed, columns, weights[:n], pulls[:n])
            else:
                values[row] = solve_long(out[row], right, diagonal, a, fixed, columns, weights[:n], pulls[:n])


@njit(parallel=True, cache=True, fastmath=FAST)
def solve_by_blocks(out, values, order, n_parts, indptr, indices, data, fixed, spectrum, total, by_row, by_column, size):  # type: ignore[no-untyped-def]
    width = fixed.shape[1]
    zero = fixed.dtype.type(0)
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    for part in prange(n_parts):
        a, right = np.empty((size, size), fixed.dtype), np.empty(size, fixed.dtype)
        scores, weights = np.empty(longest, fixed.dtype), np.empty(4, fixed.dtype)
        for at in range(part, len(order), n_parts):
            row = order[at]
            mine, start, stop, found = by_row[row], indptr[row], indptr[row + 1], out[row]
            for p in range(start, stop):
                look_ahead(fixed, indices, p, stop)
                scores[p - start] = dot(fixed[indices[p]], found)
            bounded = True
            for left in range(0, width, size):
                n = min(size, width - left)
                block = slice(left, left + n)
                a[:] = 0
                for k in range(n):
                    a[k, k] = mine[SHARED] * spectrum[left + k] + mine[RIDGE]
                    right[k] = mine[REST] * total[left + k] - a[k, k] * found[left + k]
                for p in range(start, stop, 4):
                    for q in range(4):
                        weights[q] = zero
                        if p + q < stop:
                            look_ahead(fixed, indices, p + q, stop)
                            c = indices[p + q]
                            weights[q] = mine[OWN] * by_column[c, 0] * data[p + q]
                            pull = mine[PULL] * by_column[c, 1] * data[p + q] - weights[q] * scores[p + q - start]
                            f = fixed[c, block]
                            for k in range(n):
                                right[k] += pull * f[k]
                    last = stop - 1
                    u0, u1 = fixed[indices[p], block], fixed[indices[min(p + 1, last)], block]
                    u2, u3 = fixed[indices[min(p + 2, last)], block], fixed[indices[min(p + 3, last)], block]
                    add_outer(a, u0, u1, u2, u3, weights[0], weights[1], weights[2], weights[3])
                bounded = bounded and solve_in_place(a, right, n)
                for k in range(n):
                    found[left + k] += right[k]
                for p in range(start, stop):
                    scores[p - start] += dot(fixed[indices[p], block], right[:n])
            value = 0.0
            for k in range(width):
                value += (mine[SHARED] * spectrum[k] + mine[RIDGE]) * found[k] * found[k] - 2 * mine[REST] * total[k] * found[k]
            for p in range(start, stop):
                c, score = indices[p], scores[p - start]
                weight, pull = mine[OWN] * by_column[c, 0] * data[p], mine[PULL] * by_column[c, 1] * data[p]
                value += (weight * score - 2 * pull) * score
            values[row] = value if bounded else np.nan
