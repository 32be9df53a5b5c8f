"""Products of gathered rows, and their gradients, against the definition."""

import numpy as np
import pytest

from gramian.linalg.gathered import gathered_gradients, gathered_products
from gramian.linalg.threads import limit_threads


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7, 5), (1, 40), (30, 1), (4, 0)])
def test_gathered_products_and_their_gradients_equal_the_definition(dtype, shape):
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((shape[0], 9)).astype(dtype), rng.standard_normal((11, 9)).astype(dtype)
    index, by_products = rng.integers(0, 11, shape), rng.standard_normal(shape).astype(dtype)
    by_products[rng.random(shape) < 0.3] = 0
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype == np.float32 else 1e-13}
    products = gathered_products(left, right, index)
    assert products.dtype == dtype
    np.testing.assert_allclose(products, np.einsum("bk,bnk->bn", left, right[index]), **tolerance)
    by_left, by_right = gathered_gradients(by_products, left, right, index)
    np.testing.assert_allclose(by_left, np.einsum("bn,bnk->bk", by_products, right[index]), **tolerance)
    expected = np.zeros_like(right)
    np.add.at(expected, index, by_products[:, :, None] * left[:, None, :])
    np.testing.assert_allclose(by_right, expected, **tolerance)


def test_gathered_gradients_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((50, 8), np.float32), rng.standard_normal((30, 8), np.float32)
    index, by_products = rng.integers(0, 30, (50, 20)), rng.standard_normal((50, 20), np.float32)
    results = []
    for n_threads in (1, 2):
        with limit_threads(n_threads):
            results.append((gathered_products(left, right, index), *gathered_gradients(by_products, left, right, index)))
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one, two)
