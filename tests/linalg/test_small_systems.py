"""Normal equations, Cholesky factors and rows of ALS in register tiles, against dense NumPy; products by XᵀX in strips."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramian.linalg.gram_product import apply_gram
from gramian.linalg.register_tiles import TILE_ROWS
from gramian.linalg.row_solvers import (
    FixedSide,
    RowProblems,
    pad_columns,
    solve_cholesky,
    solve_conjugate_gradient,
    solve_subspaces,
)
from gramian.linalg.small_systems import (
    CHUNK,
    add_outer_products,
    padded_size,
    padded_stride,
    set_identity,
    solve_positive_definite,
)

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def padded_matrix(matrix):
    n, stride = len(matrix), padded_stride(len(matrix))
    a = np.full(padded_size(n) * stride, np.nan, matrix.dtype)
    set_identity(a, stride, n)
    a.reshape(-1, stride)[:n, :n] = matrix
    return a, stride


@DTYPES
@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 23, 64])
def test_a_positive_definite_system_is_solved_whatever_its_size(n, dtype):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((2 * n, n))
    matrix, right = (x.T @ x + np.eye(n)).astype(dtype), rng.standard_normal(n)
    a, stride = padded_matrix(matrix)
    solution = np.zeros(padded_size(n), dtype)
    solution[:n] = right
    assert solve_positive_definite(a, stride, solution, n, np.empty((TILE_ROWS, TILE_ROWS), dtype))
    expected = np.linalg.solve(matrix.astype(np.float64), right)
    np.testing.assert_allclose(solution[:n], expected, rtol=2e4 * np.finfo(dtype).eps, atol=2e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("at", [0, 9, 20])
def test_a_system_with_a_negative_pivot_is_refused(at):
    matrix = np.eye(21)
    matrix[at, at] = -1
    a, stride = padded_matrix(matrix)
    assert not solve_positive_definite(a, stride, np.ones(32), 21, np.empty((TILE_ROWS, TILE_ROWS)))


@DTYPES
@pytest.mark.parametrize(("left", "width"), [(0, 5), (0, 21), (4, 12), (16, 5)])
def test_outer_products_are_those_of_the_listed_rows(left, width, dtype):
    rng, n = np.random.default_rng(0), 2 * CHUNK + 3
    factors = rng.standard_normal((50, 21)).astype(dtype)
    columns, weights = rng.integers(0, 50, n + 2 * TILE_ROWS).astype(np.int32), rng.standard_normal(n).astype(dtype)
    stride = padded_stride(width)
    a, u, v = (np.zeros(size * stride, dtype) for size in (padded_size(width), CHUNK, CHUNK))
    add_outer_products(a, pad_columns(factors), columns, n, weights, left, width, u, v)
    f = factors[columns[:n], left : left + width].astype(np.float64)
    expected = np.triu((f.T * weights) @ f)
    np.testing.assert_allclose(
        np.triu(a.reshape(-1, stride)[:width, :width]), expected, atol=1e-4 if dtype == np.float32 else 1e-12
    )


@DTYPES
@pytest.mark.parametrize(("rank", "size"), [(1, 1), (5, 2), (16, 8), (37, 12), (64, 32)])
def test_every_solver_ends_at_the_solution_of_the_dense_system(rank, size, dtype):
    rng = np.random.default_rng(rank)
    x = sp.csr_array((rng.random((40, 90)) < np.linspace(0, 1, 40)[:, None]).astype(dtype))
    fixed, _ = FixedSide.of(factors := rng.standard_normal((90, rank)).astype(dtype), factors.T @ factors, factors.sum(axis=0))
    by_row, by_column = np.full((40, 5), 0.5, dtype), (0.1 + rng.random((90, 2))).astype(dtype)
    f, expected, values = fixed.factors.astype(np.float64), np.empty((40, rank)), np.empty(40)
    for row in range(40):
        columns = x.indices[x.indptr[row] : x.indptr[row + 1]]
        system = np.diag(0.5 * fixed.spectrum + 0.5) + 0.5 * (f[columns].T * by_column[columns, 0]) @ f[columns]
        right = 0.5 * fixed.total + 0.5 * f[columns].T @ by_column[columns, 1]
        expected[row] = np.linalg.solve(system, right)
        values[row] = -right @ expected[row]
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == np.float32 else {"rtol": 1e-8, "atol": 1e-8}
    problems = RowProblems(x, by_row, by_column)
    for solve, times in (
        (lambda out: solve_cholesky(problems, fixed, out), 1),
        (lambda out: solve_conjugate_gradient(problems, fixed, out, 4 * rank), 1),
        (lambda out: solve_subspaces(problems, fixed, out, size), 300),
    ):
        out = np.zeros((40, rank), dtype)
        for _ in range(times):
            found = solve(out)
        np.testing.assert_allclose(out, expected, **tolerance)
        np.testing.assert_allclose(found, values, **tolerance)


@DTYPES
@pytest.mark.parametrize("width", [1, 8, 13, 32, 45])
def test_a_product_by_the_gram_is_that_of_the_dense_matrix(width, dtype):
    rng = np.random.default_rng(width)
    x = rng.standard_normal((70, 30)) * (rng.random((70, 30)) < 0.3)
    right = rng.standard_normal((30, width)).astype(dtype)
    found = apply_gram(sp.csr_array(x.astype(dtype)), right)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, x.T @ (x @ right), atol=1e-4 if dtype == np.float32 else 1e-12)
