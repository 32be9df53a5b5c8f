"""Updates of an inverse, stored half or full, against dense NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramian.linalg.product import expand
from gramian.linalg.symmetric import BLOCK_WIDTH, FULL_WIDTH, Symmetric
from gramian.linalg.woodbury import pad_inverse, update_inverse

SHAPES = [(1, 64), (50, 512), (150, 64), (600, BLOCK_WIDTH), (600, FULL_WIDTH)]


def store(dense, width):
    matrix = Symmetric.empty(len(dense), np.float64, width)
    for first, last, block in matrix.blocks():
        block[:] = dense[first:, first:last]
    return matrix


def draw(n, seed=0):
    x = np.random.default_rng(seed).random((2 * n, n))
    return x.T @ x + n * np.eye(n)


@pytest.mark.parametrize("n_rows", [1, 5])
@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_an_update_is_the_inverse_of_the_sum(n, width, n_rows):
    rng, a = np.random.default_rng(1), draw(n)
    rows = sp.csr_array(rng.random((n_rows, n)) * (rng.random((n_rows, n)) < 0.5))
    core = np.diag(np.where(np.arange(n_rows) % 2, -0.1, 1.0))
    matrix = store(np.linalg.inv(a), width)
    update_inverse(matrix, rows, core)
    dense = rows.toarray()
    np.testing.assert_allclose(matrix.dense(), np.linalg.inv(a + dense.T @ core @ dense), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("n_new", [0, 1, 70])
@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_padding_appends_a_diagonal(n, width, n_new):
    dense, diagonal = draw(n), np.arange(1.0, n_new + 1)
    matrix = store(dense, width)
    padded = pad_inverse(matrix, diagonal)
    expected = np.zeros((n + n_new, n + n_new))
    expected[:n, :n] = dense
    expected[np.arange(n, n + n_new), np.arange(n, n + n_new)] = diagonal
    np.testing.assert_array_equal(padded.dense(), expected)
    assert padded.width == width
    assert not np.shares_memory(padded.buffer, matrix.buffer)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_full_matrix_has_the_rows_and_is_halved_to_what_it_was(n_threads):
    dense = draw(600)
    half = store(dense, BLOCK_WIDTH)
    full = expand(half, n_threads)
    assert full.is_full
    assert not half.is_full
    np.testing.assert_array_equal(full.rows, dense)
    np.testing.assert_array_equal(full.row(599), dense[599])
    np.testing.assert_array_equal(full.halved().buffer, half.buffer)
    thin = np.random.default_rng(0).random((600, 3))
    np.testing.assert_allclose(full @ thin, dense @ thin)
    assert expand(full) is full
    assert half.halved() is half
