"""Many small positive definite systems: normal equations, Cholesky factors and solutions, each in the cache of one core.

A matrix is the upper half of a flat array with `stride` elements between rows, padded to whole tiles (register_tiles.py):
factors are A = UᵀU, row by row, so that a tile of U needs the sums of products of the rows above it, as a tile of A needs those
of the rows of the data. One kernel, `add_products`, does both.
"""

import numpy as np
from numba import njit

from gramian.linalg.register_tiles import (
    TILE_ROWS,
    VECTOR_BYTES,
    add_rows,
    add_tile,
    copy_scaled,
    dot_rows,
    prefetch_rows,
    solve_tile,
    transpose_tile,
)

PADDING = 16  # elements: a multiple of TILE_ROWS and of the lanes of a vector
CHUNK = 32  # rows of the data whose products are summed at a time: 32 kB in float32 at 256 factors, which stay in cache
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}  # not nnan: NaN marks systems that are not positive definite


@njit(inline="always")
def padded_size(n):  # type: ignore[no-untyped-def]
    return (n + PADDING - 1) // PADDING * PADDING


@njit(inline="always")
def padded_stride(n):  # type: ignore[no-untyped-def]
    return padded_size(n) + PADDING  # never a power of 2: rows that far apart would compete for the same lines of the cache


@njit(inline="always")
def dot_product(a, b):  # type: ignore[no-untyped-def]
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(inline="always")
def add_four_scaled(line, u0, u1, u2, u3, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    # four vectors in one pass, which loads and stores the line once
    for k in range(len(line)):
        line[k] += c0 * u0[k] + c1 * u1[k] + c2 * u2[k] + c3 * u3[k]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def add_outer_products(a, factors, columns, n, weights, left, width, u, v):  # type: ignore[no-untyped-def]
    # The upper half of a[:width, :width] += Σ_j w_j f_j f_jᵀ, for n columns and `width` factors from `left`, with u and v as
    # working space. Here and below, the arrays of columns go on for two tiles, which are read but do not count.
    size, stride, table, table_stride = padded_size(width), padded_stride(width), factors.reshape(-1), factors.shape[1]
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        for j in range(start, stop):
            if j % TILE_ROWS == 0:
                prefetch_rows(table, left, table_stride, columns, j + TILE_ROWS, size)
            at = (j - start) * stride
            copy_scaled(v, u, at, table, columns[j] * table_stride + left, weights[j], size)
            if width % TILE_ROWS:
                for k in range(at + width, at + size):
                    u[k], v[k] = 0, 0
        add_products(a, stride, width, u, v, stride, stop - start, a.dtype.type(1))


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def add_products(a, a_stride, n, u, v, stride, count, scale):  # type: ignore[no-untyped-def]
    # the upper half of a[:n, :n] += scale · Σ_p u_p v_pᵀ, for the first `count` rows of u and v
    lanes = VECTOR_BYTES // a.itemsize
    for i in range(0, n, TILE_ROWS):
        for j in range(i // lanes * lanes, n, lanes):
            add_tile(a, i * a_stride + j, a_stride, u, i, v, j, stride, count, scale)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def set_identity(a, stride, n):  # type: ignore[no-untyped-def]
    # with its padding, in which the factor of an identity is the identity
    for i in range(padded_size(n)):
        a[i * stride : i * stride + padded_size(n)] = 0
        a[i * stride + i] = 1


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def factorise(a, stride, n, triangle):  # type: ignore[no-untyped-def]
    # a ← U with a = UᵀU, in the upper half. Returns whether a is positive definite.
    lanes, minus_one = VECTOR_BYTES // a.itemsize, a.dtype.type(-1)
    for i in range(0, n, TILE_ROWS):
        first = i // lanes * lanes
        for j in range(first, n, lanes):
            add_tile(a, i * stride + j, stride, a, i, a, j, stride, i, minus_one)
        for r in range(TILE_ROWS):
            for c in range(r, TILE_ROWS):
                triangle[r, c] = a[(i + r) * stride + i + c]
        for r in range(TILE_ROWS):
            if not triangle[r, r] > 0:
                return False
            inverse = 1 / np.sqrt(triangle[r, r])
            triangle[r, r] = inverse
            for c in range(r + 1, TILE_ROWS):
                triangle[r, c] *= -inverse
            for q in range(r + 1, TILE_ROWS):
                for c in range(q, TILE_ROWS):
                    triangle[q, c] -= triangle[r, q] * triangle[r, c]
        for j in range(first, n, lanes):
            solve_tile(a, i * stride + j, stride, triangle)
    return True


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def solve_positive_definite(a, stride, right, n, triangle):  # type: ignore[no-untyped-def]
    # Solve a[:n, :n] p = right[:n] in place, four rows at a time. Returns whether a is positive definite.
    if not factorise(a, stride, n, triangle):
        return False
    size = (n + 3) // 4 * 4
    right[n:size] = 0
    for j in range(0, size, 4):
        for r in range(4):
            total = right[j + r]
            for q in range(r):
                total -= a[(j + q) * stride + j + r] * right[j + q]
            right[j + r] = total / a[(j + r) * stride + j + r]
        u0, u1, u2, u3 = a[j * stride :], a[(j + 1) * stride :], a[(j + 2) * stride :], a[(j + 3) * stride :]
        p0, p1, p2, p3, rest = right[j], right[j + 1], right[j + 2], right[j + 3], slice(j + 4, size)
        add_four_scaled(right[rest], u0[rest], u1[rest], u2[rest], u3[rest], -p0, -p1, -p2, -p3)
    for j in range(size - 4, -1, -4):
        rest = slice(j + 4, size)
        for r in range(3, -1, -1):
            row = a[(j + r) * stride : (j + r) * stride + size]
            total = right[j + r] - dot_product(row[rest], right[rest])
            for q in range(r + 1, 4):
                total -= row[j + q] * right[j + q]
            right[j + r] = total / row[j + r]
    return True


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def solve_short_row(  # type: ignore[no-untyped-def]
    solution, right, diagonal, a, h, transposed, small, image, numbers, triangle, factors, columns, n, weights, targets
):
    # For n ≤ K columns, with D = diag(diagonal), r = right and h_j = √w_j D^-½ f_j, all w_j > 0:
    # p = D^-½ z,  z = Hᵀs + D^-½ r,  (I + HHᵀ) s = t/√w − H D^-½ r.  The scores of the columns are f_j·p = h_j·z / √w_j.
    width = len(solution)
    rows, stride, h_stride = padded_size(n), padded_stride(n), padded_stride(width)
    has_right = False
    for k in range(width):
        diagonal[k] = 1 / np.sqrt(diagonal[k])
        solution[k] = diagonal[k] * right[k]
        has_right = has_right or right[k] != 0
    for j in range(n):
        if j % TILE_ROWS == 0:
            prefetch_rows(factors.reshape(-1), 0, factors.shape[1], columns, j + TILE_ROWS, factors.shape[1])
        f, h_j, root = factors[columns[j]], h[j * h_stride : j * h_stride + width], np.sqrt(weights[j])
        for k in range(width):
            h_j[k] = root * diagonal[k] * f[k]
        targets[j] /= root
        small[j] = targets[j] - dot_product(h_j, solution) if has_right else targets[j]
    h[n * h_stride : rows * h_stride] = 0
    for j in range(0, rows, TILE_ROWS):
        for k in range(0, width, TILE_ROWS):
            transpose_tile(transposed, k * stride + j, stride, h, j * h_stride + k, h_stride)
    set_identity(a, stride, n)
    add_products(a, stride, n, transposed, transposed, stride, width, a.dtype.type(1))
    is_definite = solve_positive_definite(a, stride, small, n, triangle)
    small[n:rows] = 0
    image[:] = 0
    for j in range(0, n, TILE_ROWS):
        add_rows(image, h, 0, h_stride, numbers, j, small, j, len(image))
    for k in range(width):
        image[k] += solution[k]
        solution[k] = diagonal[k] * image[k]
    value = -dot_product(solution, right) * 1.0
    for j in range(0, n, TILE_ROWS):
        dot_rows(small, j, h, 0, h_stride, numbers, j, image, len(image))
    for j in range(n):
        value -= targets[j] * small[j]
    return value if is_definite else np.nan


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def solve_long_row(solution, right, diagonal, a, u, v, small, triangle, factors, columns, n, weights, targets):  # type: ignore[no-untyped-def]
    # p = (D + Σ_j w_j f_j f_jᵀ)⁻¹ (r + Σ_j t_j f_j), with D and r as in solve_short_row
    width = len(solution)
    size, stride = padded_size(width), padded_stride(width)
    set_identity(a, stride, width)
    for k in range(width):
        a[k * stride + k] = diagonal[k]
    add_outer_products(a, factors, columns, n, weights, 0, width, u, v)
    small[:] = 0
    for j in range(0, n, TILE_ROWS):
        add_rows(small, factors.reshape(-1), 0, factors.shape[1], columns, j, targets, j, size)
    for k in range(width):
        right[k] += small[k]
        small[k] = right[k]
    is_definite = solve_positive_definite(a, stride, small, width, triangle)
    solution[:] = small[:width]
    return -dot_product(solution, right) if is_definite else np.nan
