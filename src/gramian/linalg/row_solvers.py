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
and NaN if it has no minimum because the system is not positive definite. The iterative solvers start from `out`. Every
thread takes the next row when it has finished one, longest first, so that all finish together even if other processes slow
some of them down. The sums of a row do not depend on the number of threads.
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
from gramian.linalg.register_tiles import TILE_ROWS, add_rows, add_squares, dot_rows, prefetch_rows, take_next
from gramian.linalg.small_systems import (
    CHUNK,
    FASTMATH,
    PADDING,
    add_outer_products,
    dot_product,
    padded_size,
    padded_stride,
    set_identity,
    solve_long_row,
    solve_positive_definite,
    solve_short_row,
)

UNOBSERVED_WEIGHT, EXTRA_WEIGHT, EXTRA_TARGET, UNOBSERVED_TARGET, RIDGE = range(5)  # the columns of a row's coefficients
COLUMN_WEIGHT, COLUMN_TARGET = range(2)  # the columns of a column's coefficients


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
    return dispatch_kernel(cholesky_kernel, rows, fixed, out, 0)


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
    work = (rows.order, np.zeros(1, np.int64), get_num_threads())
    kernel(out, values, *work, *matrix, pad_columns(fixed.factors), fixed.spectrum, fixed.total, *coefficients, option)
    return values


def pad_columns(factors: np.ndarray) -> np.ndarray:
    """Fill the rows up to whole vectors with 0, and add a row, so that a vector that begins in a row ends in the table."""
    n, width = factors.shape
    if width % PADDING == 0:
        return np.ascontiguousarray(factors)
    padded = np.zeros((n + 1, padded_size(width)), factors.dtype)
    padded[:n, :width] = factors
    return padded


@njit(inline="always")
def positive_part(value):  # type: ignore[no-untyped-def]
    return value if value > 0 else value - value  # in the type of the value


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def shared_kernel(  # type: ignore[no-untyped-def]
    out, values, order, counter, n_workers, indptr, indices, data, factors, spectrum, total, by_row, by_column, unused
):
    width = out.shape[1]
    for _ in prange(n_workers):
        right = np.empty(width, factors.dtype)
        at = take_next(counter)
        while at < len(order):
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
            at = take_next(counter)


@njit(inline="always")
def set_weights(places, weights, targets, coefficient, columns, data, by_column):  # type: ignore[no-untyped-def]
    # A row's columns with w_j and t_j. Then places to the end of the last tile, with 0, and of another, which is prefetched.
    n = len(columns)
    for j in range(n):
        places[j] = columns[j]
        weights[j] = coefficient[EXTRA_WEIGHT] * by_column[columns[j], COLUMN_WEIGHT] * abs(data[j])
        targets[j] = coefficient[EXTRA_TARGET] * by_column[columns[j], COLUMN_TARGET] * positive_part(data[j])
    places[n : n + 2 * TILE_ROWS] = 0
    weights[n : n + TILE_ROWS] = 0
    targets[n : n + TILE_ROWS] = 0


@njit(inline="always")
def set_shared(diagonal, right, coefficient, spectrum, total):  # type: ignore[no-untyped-def]
    # the part of a row's system that does not depend on its columns
    for k in range(len(diagonal)):
        diagonal[k] = coefficient[UNOBSERVED_WEIGHT] * spectrum[k] + coefficient[RIDGE]
        right[k] = coefficient[UNOBSERVED_TARGET] * total[k]


@njit(inline="always")
def is_positive(values):  # type: ignore[no-untyped-def]
    return len(values) == 0 or values.min() > 0


@njit(inline="always")
def longest_row(indptr):  # type: ignore[no-untyped-def]
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def improve_row(solution, factors, places, n, weights, targets, diagonal, right, steps, vectors, scores):  # type: ignore[no-untyped-def]
    # Conjugate gradients from `solution`, in place. Returns the value of the objective.
    width, dtype, table, stride = len(solution), solution.dtype, factors.reshape(-1), factors.shape[1]
    rounding = (
        1e-14 if solution.itemsize == 4 else 1e-30
    )  # a reduction of the squared residual that leaves rounding errors only
    underflow = 1e-30 if solution.itemsize == 4 else 1e-200  # a residual this small is 0: its products would underflow
    preconditioner, residual, image, direction = vectors[0], vectors[1], vectors[2], vectors[3]
    value = 0.0  # −p·(right side + residual) at the start, minus the decrease of each step
    for k in range(width):
        preconditioner[k] = diagonal[k]
        residual[k] = right[k] - diagonal[k] * solution[k]
        direction[k] = solution[k]
        value -= right[k] * solution[k]
    for j in range(0, n, TILE_ROWS):
        prefetch_rows(table, 0, stride, places, j + TILE_ROWS, stride)
        dot_rows(scores, 0, table, 0, stride, places, j, direction, stride)
        for q in range(TILE_ROWS):
            value -= targets[j + q] * scores[q]
            scores[q] = targets[j + q] - weights[j + q] * scores[q]
        add_rows(residual, table, 0, stride, places, j, scores, 0, stride)
        add_squares(preconditioner, table, 0, stride, places, j, weights, j, stride)
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
        for j in range(0, n, TILE_ROWS):
            prefetch_rows(table, 0, stride, places, j + TILE_ROWS, stride)
            dot_rows(scores, 0, table, 0, stride, places, j, direction, stride)
            for q in range(TILE_ROWS):
                scores[q] *= weights[j + q]
            add_rows(image, table, 0, stride, places, j, scores, 0, stride)
        curvature = dot_product(direction[:width], image[:width])
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
    return value if has_minimum else np.nan


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def conjugate_gradient_kernel(  # type: ignore[no-untyped-def]
    out, values, order, counter, n_workers, indptr, indices, data, factors, spectrum, total, by_row, by_column, steps
):
    width, dtype, longest = out.shape[1], factors.dtype, longest_row(indptr) + 2 * TILE_ROWS
    for _ in prange(n_workers):
        places, weights, targets = np.empty(longest, indices.dtype), np.empty(longest, dtype), np.empty(longest, dtype)
        diagonal, right, scores = np.empty(width, dtype), np.empty(width, dtype), np.empty(TILE_ROWS, dtype)
        vectors = np.zeros((4, padded_size(width)), dtype)
        at = take_next(counter)
        while at < len(order):
            row = order[at]
            entries, p = slice(indptr[row], indptr[row + 1]), out[row]
            n = indptr[row + 1] - indptr[row]
            set_weights(places, weights, targets, by_row[row], indices[entries], data[entries], by_column)
            set_shared(diagonal, right, by_row[row], spectrum, total)
            values[row] = improve_row(p, factors, places, n, weights, targets, diagonal, right, steps, vectors, scores)
            at = take_next(counter)


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def cholesky_kernel(  # type: ignore[no-untyped-def]
    out, values, order, counter, n_workers, indptr, indices, data, factors, spectrum, total, by_row, by_column, unused
):
    width, dtype, longest = out.shape[1], factors.dtype, longest_row(indptr) + 2 * TILE_ROWS
    size, stride = padded_size(width), padded_stride(width)
    for _ in prange(n_workers):
        places, weights, targets = np.empty(longest, indices.dtype), np.empty(longest, dtype), np.empty(longest, dtype)
        right, diagonal, triangle = np.empty(width, dtype), np.empty(width, dtype), np.empty((TILE_ROWS, TILE_ROWS), dtype)
        small, image, numbers = np.empty(size, dtype), np.empty(size, dtype), np.arange(size)
        a, h, transposed = np.empty(size * stride, dtype), np.zeros(size * stride, dtype), np.empty(size * stride, dtype)
        u, v = np.empty(CHUNK * stride, dtype), np.empty(CHUNK * stride, dtype)
        at = take_next(counter)
        while at < len(order):
            row = order[at]
            entries, p = slice(indptr[row], indptr[row + 1]), out[row]
            n = indptr[row + 1] - indptr[row]
            set_weights(places, weights, targets, by_row[row], indices[entries], data[entries], by_column)
            set_shared(diagonal, right, by_row[row], spectrum, total)
            if n <= width and is_positive(weights[:n]) and is_positive(diagonal):
                values[row] = solve_short_row(
                    p, right, diagonal, a, h, transposed, small, image, numbers, triangle, factors, places, n, weights, targets
                )
            else:
                values[row] = solve_long_row(p, right, diagonal, a, u, v, small, triangle, factors, places, n, weights, targets)
            at = take_next(counter)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def improve_blocks(  # type: ignore[no-untyped-def]
    solution, factors, places, n, weights, targets, diagonal, right, size, vectors, scores, a, u, v, triangle
):
    # Solve for `size` factors at a time, in place. Returns the value of the objective.
    width, table, stride = len(solution), factors.reshape(-1), factors.shape[1]
    whole, sums, has_minimum = vectors[0], np.empty(TILE_ROWS, solution.dtype), True
    whole[:width] = solution
    for j in range(0, n, TILE_ROWS):
        prefetch_rows(table, 0, stride, places, j + TILE_ROWS, stride)
        dot_rows(scores, j, table, 0, stride, places, j, whole, stride)
    for left in range(0, width, size):
        n_block = min(size, width - left)
        padded, a_stride = padded_size(n_block), padded_stride(n_block)
        step = vectors[1, :padded]  # the gradient, and then the step
        step[:] = 0
        for j in range(0, n, TILE_ROWS):
            for q in range(TILE_ROWS):
                sums[q] = targets[j + q] - weights[j + q] * scores[j + q]
            add_rows(step, table, left, stride, places, j, sums, 0, padded)
        set_identity(a, a_stride, n_block)
        for k in range(n_block):
            a[k * a_stride + k] = diagonal[left + k]
            step[k] += right[left + k] - diagonal[left + k] * solution[left + k]
        add_outer_products(a, factors, places, n, weights, left, n_block, u, v)
        has_minimum = has_minimum and solve_positive_definite(a, a_stride, step, n_block, triangle)
        step[n_block:] = 0
        for k in range(n_block):
            solution[left + k] += step[k]
        for j in range(0, n, TILE_ROWS):
            dot_rows(sums, 0, table, left, stride, places, j, step, padded)
            for q in range(TILE_ROWS):
                scores[j + q] += sums[q]
    value = 0.0
    for k in range(width):
        value += (diagonal[k] * solution[k] - 2 * right[k]) * solution[k]
    for j in range(n):
        value += (weights[j] * scores[j] - 2 * targets[j]) * scores[j]
    return value if has_minimum else np.nan


@njit(parallel=True, cache=True, nogil=True, fastmath=FASTMATH)
def subspace_kernel(  # type: ignore[no-untyped-def]
    out, values, order, counter, n_workers, indptr, indices, data, factors, spectrum, total, by_row, by_column, size
):
    width, dtype, longest = out.shape[1], factors.dtype, longest_row(indptr) + 2 * TILE_ROWS
    stride = padded_stride(size)
    for _ in prange(n_workers):
        places, weights, targets = np.empty(longest, indices.dtype), np.empty(longest, dtype), np.empty(longest, dtype)
        diagonal, right, scores = np.empty(width, dtype), np.empty(width, dtype), np.empty(longest, dtype)
        vectors, triangle = np.zeros((2, padded_size(width)), dtype), np.empty((TILE_ROWS, TILE_ROWS), dtype)
        a, u, v = np.empty(padded_size(size) * stride, dtype), np.empty(CHUNK * stride, dtype), np.empty(CHUNK * stride, dtype)
        at = take_next(counter)
        while at < len(order):
            row = order[at]
            entries, p = slice(indptr[row], indptr[row + 1]), out[row]
            n = indptr[row + 1] - indptr[row]
            set_weights(places, weights, targets, by_row[row], indices[entries], data[entries], by_column)
            set_shared(diagonal, right, by_row[row], spectrum, total)
            values[row] = improve_blocks(
                p, factors, places, n, weights, targets, diagonal, right, size, vectors, scores, a, u, v, triangle
            )
            at = take_next(counter)
