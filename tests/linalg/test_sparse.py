"""Sums over the entries of a sparse matrix, against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramian.linalg.inverse import add_gram_product
from gramian.linalg.sparse import count_columns, squared_column_norms


@pytest.fixture(params=[np.int32, np.int64])
def weighted(request):
    x = sp.random_array((70, 40), density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    x.indices, x.indptr = x.indices.astype(request.param), x.indptr.astype(request.param)
    return x


def test_squared_norms_are_summed_in_float64(weighted):
    dense = weighted.toarray().astype(np.float64)
    np.testing.assert_allclose(squared_column_norms(weighted), (dense**2).sum(axis=0), rtol=1e-14)
    weighted.data[:] = 3e19  # whose square is beyond float32
    assert np.isfinite(squared_column_norms(weighted)).all()


def test_columns_are_counted(weighted):
    counts = count_columns(weighted.indices, 45)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, np.bincount(weighted.indices, minlength=45))
    assert count_columns(weighted.indices[:0], 3).tolist() == [0, 0, 0]


def test_the_gram_product_has_the_precision_of_its_result(weighted):
    dense, right = weighted.toarray().astype(np.float64), np.random.default_rng(1).normal(size=(40, 3))
    total = np.ones((40, 3))
    add_gram_product(total, weighted.indptr, weighted.indices, weighted.data, right)
    np.testing.assert_allclose(total, 1 + dense.T @ (dense @ right), rtol=1e-13)
