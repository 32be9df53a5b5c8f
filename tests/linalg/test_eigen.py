"""Eigenpairs by Lanczos and by LAPACK, against dense NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import eigen as spectral
from gramian.linalg.eigen import ImplicitGram, top_eigenpairs

# the spectral engine


def operator(n=300, decay=0.97, seed=0):
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return (q * decay ** np.arange(n)) @ q.T


class Dense:
    def __init__(self, matrix):
        self.matrix, self.n, self.dtype, self.products = matrix, len(matrix), matrix.dtype, 0

    def __matmul__(self, right):
        self.products += right.shape[1]
        return self.matrix @ right


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 20, 40])
def test_lanczos_and_lapack_agree(k, dtype, monkeypatch):
    matrix = operator().astype(dtype)
    expected = top_eigenpairs(Dense(matrix), k)
    monkeypatch.setattr(spectral, "LAPACK_MAX_SIZE", 10)
    some = Dense(matrix)
    found = top_eigenpairs(some, k)
    assert some.products < 300  # not the dense way
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4)
    residuals = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    assert (residuals <= 2 * spectral.RESIDUAL_TOLERANCE * found.values).all()
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-4)
    again = top_eigenpairs(Dense(matrix), k)
    np.testing.assert_array_equal(again.vectors, found.vectors)  # a fixed seed


def test_a_space_that_does_not_suffice_is_left_to_lapack(monkeypatch):
    monkeypatch.setattr(spectral, "LAPACK_MAX_SIZE", 10)
    monkeypatch.setattr(spectral, "RESIDUAL_TOLERANCE", 0.0)
    matrix = operator(decay=0.999)
    np.testing.assert_allclose(top_eigenpairs(Dense(matrix), 5).values, np.linalg.eigvalsh(matrix)[::-1][:5])


@pytest.mark.parametrize("k", [3, 10])
def test_a_basis_that_is_full_is_restarted_where_lapack_would_be_too_large(k, monkeypatch):
    monkeypatch.setattr(spectral, "decompose_by_lapack", None)  # must not be needed
    monkeypatch.setattr(spectral, "LAPACK_MAX_SIZE", 10)
    monkeypatch.setattr(spectral, "RESTART_SIZE", 10)
    matrix = operator(500, decay=0.999)
    some = Dense(matrix)
    found = top_eigenpairs(some, k)
    assert some.products > 6 * k + 16 * spectral.lanczos_width(k)  # more than a basis holds
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(matrix)[::-1][:k], rtol=1e-4)
    residuals = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    assert (residuals <= 2 * spectral.RESIDUAL_TOLERANCE * found.values).all()
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-6)


def test_an_operator_of_low_rank_gives_zeros_for_the_rest(monkeypatch):
    monkeypatch.setattr(spectral, "LAPACK_MAX_SIZE", 10)
    a = np.random.default_rng(0).standard_normal((400, 7))
    found = top_eigenpairs(Dense(a @ a.T), 20)
    np.testing.assert_allclose(found.values[:7], np.linalg.svd(a)[1] ** 2, rtol=1e-6)
    assert (found.values[7:] < 1e-6 * found.values[0]).all()
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(20), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_lanczos_stays_orthogonal_in_float32_where_one_item_outweighs_all(seed, monkeypatch):
    monkeypatch.setattr(spectral, "decompose_by_lapack", None)  # must not be needed
    monkeypatch.setattr(spectral, "decompose_by_rows", None)
    monkeypatch.setattr(spectral, "LAPACK_MAX_SIZE", 10)
    rng = np.random.default_rng(seed)
    x = (rng.random((150, 2_000)) < 0.02).astype(np.float32)
    x = np.vstack([x, x])  # every user twice: the rank is 150 at most
    x[:, 0] = 100
    found = top_eigenpairs(ImplicitGram(sp.csr_array(x), np.float32), 60)
    values = np.linalg.svd(x.astype(np.float64), compute_uv=False)[:60] ** 2
    np.testing.assert_allclose(found.values, values, rtol=2e-3, atol=1e-5 * values[0])
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(60), atol=1e-4)


def test_the_gram_of_sparse_interactions_is_never_formed():
    x = (np.random.default_rng(0).random((80, 24)) < 0.3).astype(float)
    np.testing.assert_allclose(ImplicitGram(sp.csr_array(x), np.float64) @ np.eye(24), x.T @ x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 30, 50])
def test_few_rows_give_the_eigenpairs_of_the_columns(k, dtype, monkeypatch):
    x = (np.random.default_rng(0).random((50, 300)) < 0.1).astype(dtype)
    x[25:] = x[:25]  # every user twice: the rank is 25 at most
    expected = top_eigenpairs(Dense(x.T @ x), k)
    monkeypatch.setattr(spectral, "decompose_by_lapack", None)  # must not be needed
    found = top_eigenpairs(ImplicitGram(sp.csr_array(x), dtype), k)
    assert found.vectors.dtype == found.values.dtype == dtype
    np.testing.assert_allclose(found.values, expected.values, atol=1e-5 * expected.values[0])
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-5)
    residuals = np.linalg.norm(x.T @ (x @ found.vectors) - found.vectors * found.values, axis=0)
    assert (residuals < 1e-5 * found.values[0]).all()


def test_few_rows_that_overflow_are_refused():
    x = np.full((3, 10), 1e25, np.float32)
    with pytest.raises(gr.errors.Inaccurate, match="overflow"):
        top_eigenpairs(ImplicitGram(sp.csr_array(x), np.float32), 2)


def test_a_large_matrix_is_decomposed_by_lanczos(monkeypatch):
    monkeypatch.setattr(spectral, "decompose_by_lapack", None)  # must not be needed
    events = clustered(4_000, 2_000, 60_000)
    model = gr.RegularizedPCA(rank=32, l2=1).fit(events)
    sigma = np.linalg.svd(events.matrix.toarray(), compute_uv=False)[:32]
    np.testing.assert_allclose(np.linalg.norm(model.factors()[0], axis=0), 1 - 1 / sigma, rtol=1e-4)


def test_no_more_eigenpairs_than_items():
    with pytest.raises(gr.errors.InvalidInput, match="a rank between 1 and the 3 items"):
        top_eigenpairs(Dense(np.eye(3)), 4)
