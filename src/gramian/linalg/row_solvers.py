"""One half step of alternating least squares: with the factors f of all columns fixed, solve for the factors of every row.

The factors p of a row with the columns j and values v_j minimise

    unobserved_weight · pᵀGp  +  Σ_j w_j (f_j·p)²  +  ridge · ‖p‖²  −  2 p·(Σ_j t_j f_j + unobserved_target · g).

G and g are sums over all columns and are the same for all rows. For a loss with weight w⁺ and target t⁺ on a row's columns,
and w⁰ and t⁰ on all others, G = FᵀF, g = Fᵀ1, and the coefficients of a row are

    unobserved_weight = w⁰,   extra_weight = w⁺ − w⁰,   unobserved_target = w⁰t⁰,   extra_target = w⁺t⁺ − w⁰t⁰

with w_j = extra_weight · (column weight) · |v_j| and t_j = extra_target · (column target) · max(v_j, 0): a value below 0 is a
dislike, whose target is 0. All rows are solved in the basis of G's eigenvectors, in which G is diagonal:

    `solve_shared`               all w are 0: the system is diagonal, and its solution is a product and a division;
    `solve_cholesky`             exact, by a K × K system, or for a row of fewer than K columns by one of that size (Woodbury);
    `solve_conjugate_gradient`   a few steps from the current factors, preconditioned by the diagonal of the system;
    `solve_subspaces`            exact in a few factors at a time, with the others fixed (iALS++, Rendle et al. 2021).

Each solver writes into `out` and returns the value that each row's objective has there: its minimum if the solver is exact,
and NaN if it has no minimum because the system is not positive definite. The iterative solvers start from `out`. Rows are
dealt to the threads by length, longest first, so that all threads finish together. The sums of a row do not depend on the
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numba import get_num_threads, njit, prange
from scipy.linalg import eigh

from gramian.errors import Inaccurate
from gramian.linalg.prefetch import prefetch_ahead

UNOBSERVED_WEIGHT, EXTRA_WEIGHT, EXTRA_TARGET, UNOBSERVED_TARGET, RIDGE = range(5)  # the columns of a row's coefficients
COLUMN_WEIGHT, COLUMN_TARGET = range(2)  # the columns of a column's coefficients
GROUPS_PER_THREAD = 8  # of rows; more than one, so that a thread that finishes early takes another group
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}  # not nnan: NaN marks systems that are not positive definite


@dataclass(frozen=True)
class RowProblems:
    """The problems of all rows: a sparse matrix, five coefficients for each row, and two for each column.

    The columns of `by_row` are UNOBSERVED_WEIGHT, EXTRA_WEIGHT, EXTRA_TARGET, UNOBSERVED_TARGET and RIDGE. Those of `by_column`
    are COLUMN_WEIGHT and COLUMN_TARGET.
    """

    x: sp.csr_array
    by_row: np.ndarray
    by_column: np.ndarray

    @cached_property
    def order(self) -> np.ndarray:
        """The rows, longest first."""
        return np.argsort(-np.diff(self.x.indptr), kind="stable")

    @property
    def longest(self) -> int:
        """The largest number of entries in a row."""
        return int(np.diff(self.x.indptr).max(initial=0))

    @property
    def is_shared(self) -> bool:
        """Whether all w_j are 0, so that the systems of all rows are diagonal and `solve_shared` is exact."""
        return not (self.by_row[:, EXTRA_WEIGHT].any() and self.by_column[:, COLUMN_WEIGHT].any())


@dataclass(frozen=True)
class FixedSide:
    """The factors of the columns, the eigenvalues of G and the vector g, all in the basis of G's eigenvectors."""

    factors: np.ndarray
    spectrum: np.ndarray
    total: np.ndarray

    @staticmethod
    def of(factors: np.ndarray, gram: np.ndarray, total: np.ndarray) -> tuple[FixedSide, np.ndarray]:
        """Rotate the factors and g = `total` into the eigenbasis of G = `gram`. Returns them and the basis, to rotate rows."""
        dtype = factors.dtype
        if not np.isfinite(gram).all():
            do = "Raise l2, rescale the weights of the interactions, or fit with dtype='float64'"
            raise Inaccurate("finite factors", "an overflow", do)
        spectrum, vectors = eigh(gram.astype(np.float64))
        basis = vectors.astype(dtype)
        return FixedSide(factors @ basis, spectrum.astype(dtype), (total @ vectors).astype(dtype)), basis


def solve_shared(rows: RowProblems, fixed: FixedSide, out: np.ndarray) -> np.ndarray:
    """Solve rows that have diagonal systems (`RowProblems.is_shared`)."""
    return dispatch_kernel(shared_kernel, rows, fixed, out, 0)


def solve_cholesky(rows: RowProblems, fixed: FixedSide, out: np.ndarray) -> np.ndarray:
    """Solve every row exactly."""
    return dispatch_kernel(cholesky_kernel, rows, fixed, out, rows.longest)


def solve_conjugate_gradient(rows: RowProblems, fixed: FixedSide, out: np.ndarray, steps: int) -> np.ndarray:
    """Improve every row by a number of conjugate-gradient steps."""
    return dispatch_kernel(conjugate_gradient_kernel, rows, fixed, out, steps)


def solve_subspaces(rows: RowProblems, fixed: FixedSide, out: np.ndarray, size: int) -> np.ndarray:
    """Improve every row by one exact solve for each `size` factors in turn."""
    return dispatch_kernel(subspace_kernel, rows, fixed, out, size)


def dispatch_kernel(kernel, rows: RowProblems, fixed: FixedSide, out: np.ndarray, option: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Run a kernel on all rows in one dtype, with `option` as its last argument. Returns the value of each row's objective."""
    x, dtype = rows.x, fixed.factors.dtype
    if not fixed.total.any():  # the vector of a row without entries is exactly 0: iterations would only approach it
        out[np.diff(x.indptr) == 0] = 0
    values = np.empty(x.shape[0])
    matrix = (x.indptr, x.indices, x.data.astype(dtype, copy=False))
    coefficients = (rows.by_row.astype(dtype, copy=False), rows.by_column.astype(dtype, copy=False))
    n_groups = GROUPS_PER_THREAD * get_num_threads()
    kernel(out, values, rows.order, n_groups, *matrix, fixed.factors, fixed.spectrum, fixed.total, *coefficients, option)
    return values


@njit(inline="always")
def positive_part(value):  # type: ignore[no-untyped-def]
    return value if value > 0 else value - value  # in the type of the value


@njit(inline="always")
def dot_product(a, b):  # type: ignore[no-untyped-def]
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def shared_kernel(out, values, order, n_groups, indptr, indices, data, factors, spectrum, total, by_row, by_column, unused):  # type: ignore[no-untyped-def]
    width = factors.shape[1]
    for group in prange(n_groups):
        right = np.empty(width, factors.dtype)
        for at in range(group, len(order), n_groups):
            row = order[at]
            coefficient, stop = by_row[row], indptr[row + 1]
            for k in range(width):
                right[k] = coefficient[UNOBSERVED_TARGET] * total[k]
            for p in range(indptr[row], stop):
                prefetch_ahead(factors, indices, p, stop)
                f, target = factors[indices[p]], coefficient[EXTRA_TARGET] * by_column[indices[p], COLUMN_TARGET] * data[p]
                for k in range(width):
                    right[k] += target * f[k]
            value = 0.0
            for k in range(width):
                diagonal = coefficient[UNOBSERVED_WEIGHT] * spectrum[k] + coefficient[RIDGE]
                solution = right[k] / diagonal if diagonal > 0 else np.nan
                out[row, k] = solution
                value -= solution * right[k]
            values[row] = value


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def conjugate_gradient_kernel(  # type: ignore[no-untyped-def]
    out, values, order, n_groups, indptr, indices, data, factors, spectrum, total, by_row, by_column, steps
):
    width, dtype = factors.shape[1], factors.dtype
    rounding = 1e-14 if factors.itemsize == 4 else 1e-30  # a reduction of the squared residual that leaves rounding errors only
    underflow = 1e-30 if factors.itemsize == 4 else 1e-200  # a residual this small is 0: its products would underflow
    for group in prange(n_groups):
        diagonal, preconditioner, residual = np.empty(width, dtype), np.empty(width, dtype), np.empty(width, dtype)
        image, direction = np.empty(width, dtype), np.empty(width, dtype)
        for at in range(group, len(order), n_groups):
            row = order[at]
            coefficient, start, stop, solution = by_row[row], indptr[row], indptr[row + 1], out[row]
            value = 0.0  # −p·(right side + residual) at the start, minus the decrease of each step
            for k in range(width):
                diagonal[k] = coefficient[UNOBSERVED_WEIGHT] * spectrum[k] + coefficient[RIDGE]
                preconditioner[k] = diagonal[k]
                residual[k] = coefficient[UNOBSERVED_TARGET] * total[k] - diagonal[k] * solution[k]
                value -= coefficient[UNOBSERVED_TARGET] * total[k] * solution[k]
            for p in range(start, stop):
                prefetch_ahead(factors, indices, p, stop)
                c = indices[p]
                f = factors[c]
                weight = coefficient[EXTRA_WEIGHT] * by_column[c, COLUMN_WEIGHT] * abs(data[p])
                target = coefficient[EXTRA_TARGET] * by_column[c, COLUMN_TARGET] * positive_part(data[p])
                score = dot_product(f, solution)
                error = target - weight * score
                value -= target * score
                for k in range(width):
                    preconditioner[k] += weight * f[k] * f[k]
                    residual[k] += error * f[k]
            norm = dtype.type(0)  # the squared norm of the residual, preconditioned
            for k in range(width):
                value -= residual[k] * solution[k]
                preconditioner[k] = 1 / preconditioner[k]
                direction[k] = residual[k] * preconditioner[k]
                norm += residual[k] * direction[k]
            smallest, has_minimum = max(norm * rounding, underflow), norm >= 0
            for _ in range(steps):
                if not norm > smallest:
                    break
                for k in range(width):
                    image[k] = diagonal[k] * direction[k]
                for p in range(start, stop):
                    prefetch_ahead(factors, indices, p, stop)
                    c = indices[p]
                    f = factors[c]
                    along = coefficient[EXTRA_WEIGHT] * by_column[c, COLUMN_WEIGHT] * abs(data[p]) * dot_product(f, direction)
                    for k in range(width):
                        image[k] += along * f[k]
                curvature = dot_product(direction, image)
                if not curvature > 0:
                    has_minimum = False
                    break
                step = norm / curvature
                value -= step * norm
                new_norm = dtype.type(0)
                for k in range(width):
                    solution[k] += step * direction[k]
                    residual[k] -= step * image[k]
                    new_norm += residual[k] * residual[k] * preconditioner[k]
                for k in range(width):
                    direction[k] = residual[k] * preconditioner[k] + new_norm / norm * direction[k]
                norm = new_norm
            values[row] = value if has_minimum else np.nan


@njit(inline="always")
def add_scaled(line, u, c):  # type: ignore[no-untyped-def]
    for k in range(len(line)):
        line[k] += c * u[k]


@njit(inline="always")
def add_four_scaled(line, u0, u1, u2, u3, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    # four vectors in one pass, which loads and stores the line once
    for k in range(len(line)):
        line[k] += c0 * u0[k] + c1 * u1[k] + c2 * u2[k] + c3 * u3[k]


@njit(cache=True, fastmath=FASTMATH)
def add_outer(a, u0, u1, u2, u3, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    # the upper half of a += c0 u0 u0ᵀ + … + c3 u3 u3ᵀ
    n = len(u0)
    for i in range(n):
        add_four_scaled(a[i, i:n], u0[i:], u1[i:], u2[i:], u3[i:], c0 * u0[i], c1 * u1[i], c2 * u2[i], c3 * u3[i])


@njit(cache=True, fastmath=FASTMATH)
def solve_positive_definite(a, right, n):  # type: ignore[no-untyped-def]
    # Solve a[:n, :n] p = right[:n] in place, by a = UᵀU in the upper half of a. Returns whether a is positive definite.
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
                add_scaled(a[i, i:n], a[j, i:n], -a[j, i])
        if last == first + 4:
            u0, u1, u2, u3 = a[first], a[first + 1], a[first + 2], a[first + 3]
            for i in range(last, n):
                add_four_scaled(a[i, i:n], u0[i:n], u1[i:n], u2[i:n], u3[i:n], -u0[i], -u1[i], -u2[i], -u3[i])
    for j in range(n):
        right[j] /= a[j, j]
        add_scaled(right[j + 1 : n], a[j, j + 1 : n], -right[j])
    for j in range(n - 1, -1, -1):
        right[j] = (right[j] - dot_product(a[j, j + 1 : n], right[j + 1 : n])) / a[j, j]
    return True


@njit(cache=True, fastmath=FASTMATH)
def solve_short_row(solution, right, diagonal, a, h, small, factors, columns, weights, targets):  # type: ignore[no-untyped-def]
    # For n < K columns, with D = diag(diagonal), r = right and h_j = √w_j D^-½ f_j, all w_j > 0:
    # p = D^-½ (Hᵀ (I + HHᵀ)⁻¹ (t/√w − H D^-½ r) + D^-½ r)
    n, width = len(columns), len(solution)
    for k in range(width):
        diagonal[k] = 1 / np.sqrt(diagonal[k])
        solution[k] = diagonal[k] * right[k]
    for j in range(n):
        f, h_j, root = factors[columns[j]], h[j], np.sqrt(weights[j])
        for k in range(width):
            h_j[k] = root * diagonal[k] * f[k]
        small[j] = targets[j] / root - dot_product(h_j, solution)
        for i in range(j):
            a[i, j] = dot_product(h[i], h_j)
        a[j, j] = 1 + dot_product(h_j, h_j)
    is_definite = solve_positive_definite(a, small, n)
    for j in range(n):
        add_scaled(solution, h[j], small[j])
    for k in range(width):
        solution[k] *= diagonal[k]
    value = dot_product(solution, right)
    for j in range(n):
        value += targets[j] * dot_product(factors[columns[j]], solution)
    return -value if is_definite else np.nan


@njit(cache=True, fastmath=FASTMATH)
def solve_long_row(solution, right, diagonal, a, factors, columns, weights, targets):  # type: ignore[no-untyped-def]
    # p = (D + Σ_j w_j f_j f_jᵀ)⁻¹ (r + Σ_j t_j f_j), with D and r as in solve_short_row
    n, width = len(columns), len(solution)
    a[:] = 0
    for k in range(width):
        a[k, k] = diagonal[k]
    for j in range(n):
        prefetch_ahead(factors, columns, j, n)
        add_scaled(right, factors[columns[j]], targets[j])
        if j % 4 == 3:
            u0, u1, u2, u3 = factors[columns[j - 3]], factors[columns[j - 2]], factors[columns[j - 1]], factors[columns[j]]
            add_outer(a, u0, u1, u2, u3, weights[j - 3], weights[j - 2], weights[j - 1], weights[j])
    for j in range(n - n % 4, n):
        u, zero = factors[columns[j]], weights.dtype.type(0)
        add_outer(a, u, u, u, u, weights[j], zero, zero, zero)
    solution[:] = right
    is_definite = solve_positive_definite(a, solution, width)
    return -dot_product(solution, right) if is_definite else np.nan


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def cholesky_kernel(  # type: ignore[no-untyped-def]
    out, values, order, n_groups, indptr, indices, data, factors, spectrum, total, by_row, by_column, longest
):
    width, dtype = factors.shape[1], factors.dtype
    for group in prange(n_groups):
        a, right, diagonal = np.empty((width, width), dtype), np.empty(width, dtype), np.empty(width, dtype)
        small, h = np.empty(width, dtype), np.empty((width, width), dtype)
        weights, targets = np.empty(longest, dtype), np.empty(longest, dtype)
        for at in range(group, len(order), n_groups):
            row = order[at]
            entries = slice(indptr[row], indptr[row + 1])
            coefficient, columns, row_data = by_row[row], indices[entries], data[entries]
            n = len(columns)
            is_short = n < width  # and all weights positive
            for k in range(width):
                diagonal[k] = coefficient[UNOBSERVED_WEIGHT] * spectrum[k] + coefficient[RIDGE]
                right[k] = coefficient[UNOBSERVED_TARGET] * total[k]
                is_short = is_short and diagonal[k] > 0
            for j in range(n):
                weights[j] = coefficient[EXTRA_WEIGHT] * by_column[columns[j], COLUMN_WEIGHT] * abs(row_data[j])
                targets[j] = coefficient[EXTRA_TARGET] * by_column[columns[j], COLUMN_TARGET] * positive_part(row_data[j])
                is_short = is_short and weights[j] > 0
            w, t, p = weights[:n], targets[:n], out[row]
            if is_short:
                values[row] = solve_short_row(p, right, diagonal, a, h, small, factors, columns, w, t)
            else:
                values[row] = solve_long_row(p, right, diagonal, a, factors, columns, w, t)


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def subspace_kernel(out, values, order, n_groups, indptr, indices, data, factors, spectrum, total, by_row, by_column, size):  # type: ignore[no-untyped-def]
    width, dtype = factors.shape[1], factors.dtype
    zero = dtype.type(0)
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    for group in prange(n_groups):
        a, right = np.empty((size, size), dtype), np.empty(size, dtype)
        scores, weights = np.empty(longest, dtype), np.empty(4, dtype)
        for at in range(group, len(order), n_groups):
            row = order[at]
            coefficient, start, stop, solution = by_row[row], indptr[row], indptr[row + 1], out[row]
            for p in range(start, stop):
                prefetch_ahead(factors, indices, p, stop)
                scores[p - start] = dot_product(factors[indices[p]], solution)
            has_minimum = True
            for left in range(0, width, size):
                n = min(size, width - left)
                block = slice(left, left + n)
                a[:] = 0
                for k in range(n):
                    a[k, k] = coefficient[UNOBSERVED_WEIGHT] * spectrum[left + k] + coefficient[RIDGE]
                    right[k] = coefficient[UNOBSERVED_TARGET] * total[left + k] - a[k, k] * solution[left + k]
                for p in range(start, stop, 4):
                    for q in range(4):
                        weights[q] = zero
                        if p + q < stop:
                            prefetch_ahead(factors, indices, p + q, stop)
                            c = indices[p + q]
                            weights[q] = coefficient[EXTRA_WEIGHT] * by_column[c, COLUMN_WEIGHT] * abs(data[p + q])
                            target = coefficient[EXTRA_TARGET] * by_column[c, COLUMN_TARGET] * positive_part(data[p + q])
                            error = target - weights[q] * scores[p + q - start]
                            f = factors[c, block]
                            for k in range(n):
                                right[k] += error * f[k]
                    last = stop - 1
                    u0, u1 = factors[indices[p], block], factors[indices[min(p + 1, last)], block]
                    u2, u3 = factors[indices[min(p + 2, last)], block], factors[indices[min(p + 3, last)], block]
                    add_outer(a, u0, u1, u2, u3, weights[0], weights[1], weights[2], weights[3])
                has_minimum = has_minimum and solve_positive_definite(a, right, n)
                for k in range(n):
                    solution[left + k] += right[k]
                for p in range(start, stop):
                    scores[p - start] += dot_product(factors[indices[p], block], right[:n])
            value = 0.0
            for k in range(width):
                diagonal = coefficient[UNOBSERVED_WEIGHT] * spectrum[k] + coefficient[RIDGE]
                value += diagonal * solution[k] * solution[k] - 2 * coefficient[UNOBSERVED_TARGET] * total[k] * solution[k]
            for p in range(start, stop):
                c, score = indices[p], scores[p - start]
                weight = coefficient[EXTRA_WEIGHT] * by_column[c, COLUMN_WEIGHT] * abs(data[p])
                target = coefficient[EXTRA_TARGET] * by_column[c, COLUMN_TARGET] * positive_part(data[p])
                value += (weight * score - 2 * target) * score
            values[row] = value if has_minimum else np.nan
