"""The half-stored matrix, the Gram kernel and the in-place inverse, each against dense NumPy."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import memory
from gramian.linalg.inverse import invert
from gramian.linalg.symmetric import Symmetric, stored_size


def positive_definite(n: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).random((2 * n, n))
    return x.T @ x + np.eye(n)


def stored(dense: np.ndarray, width: int, dtype: type = np.float64) -> Symmetric:
    half = Symmetric.empty(len(dense), dtype, width)
    for first, last, block in half.blocks():
        block[:] = dense[first:, first:last]
    return half


SHAPES = [(1, 4), (4, 4), (5, 4), (37, 8), (64, 16), (50, 512)]


@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_half_storage_gives_back_the_whole_matrix(n, width):
    dense = positive_definite(n)
    half = stored(dense, width)
    thin = np.random.default_rng(1).random((n, 3))
    assert half.buffer.size == stored_size(n, width) <= n * (n + width)
    np.testing.assert_array_equal(half.dense(), dense)
    np.testing.assert_array_equal(half.diagonal(), dense.diagonal())
    np.testing.assert_allclose(half @ thin, dense @ thin)
    for i in {0, n // 2, n - 1}:
        np.testing.assert_array_equal(half.row(i), dense[i])
    half.scale(thin[:, 0])
    np.testing.assert_allclose(half.dense(), dense * thin[:, :1] * thin[:, 0])


def test_half_storage_is_half():
    assert stored_size(20_000) * 4 < 1.03 * 2 * 20_000**2


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-3), (np.float64, 1e-9)])
@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_inverse_in_place(n, width, dtype, rtol):
    dense = positive_definite(n)
    half = stored(dense, width, dtype)
    buffer = half.buffer
    invert(half)
    assert half.buffer is buffer
    expected = np.linalg.inv(dense)
    np.testing.assert_allclose(half.dense(), expected, rtol=rtol, atol=rtol * abs(expected).max())


def test_inverse_is_symmetric_and_scales_inversely():
    dense = positive_definite(40)
    by = np.random.default_rng(2).lognormal(sigma=4, size=40)  # diagonal entries over many orders of magnitude
    half = stored(dense * by * by[:, None], 16, np.float32)
    invert(half)
    np.testing.assert_allclose(half.dense() * by * by[:, None], np.linalg.inv(dense), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_a_matrix_that_is_not_positive_definite_is_refused(lowest):
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    dense = rotation * np.concatenate([[lowest], np.ones(19)]) @ rotation.T
    with pytest.raises(gr.errors.Inaccurate, match="expected"):
        invert(stored(dense, 8))


def test_a_poor_float32_inverse_is_refused_and_float64_is_not():
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 60)))[0]
    dense = rotation * np.geomspace(1e-7, 1, 60) @ rotation.T
    with pytest.raises(gr.errors.Inaccurate):
        invert(stored(dense, 16, np.float32))
    invert(stored(dense, 16, np.float64))


@pytest.mark.parametrize("n_items", [7, 700])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gram_is_x_transposed_x(n_items, dtype):
    events = clustered(400, n_items, 5_000)
    gram = gr.Gram.of(events, dtype)
    np.testing.assert_array_equal(gram.matrix.dense(), (events.matrix.T @ events.matrix).toarray())


def test_gram_of_weights():
    x = np.random.default_rng(0).random((30, 600)) * (np.random.default_rng(1).random((30, 600)) < 0.1)
    np.testing.assert_allclose(gr.Gram.of(gr.Interactions.of(x)).matrix.dense(), x.T @ x, rtol=1e-5, atol=1e-6)


def test_grams_of_shards_add_up():
    events = clustered(200, 90, 2_000)
    whole, first, second = (gr.Gram.of(events.take(rows)) for rows in (np.arange(200), np.arange(80), np.arange(80, 200)))
    total = first + second
    np.testing.assert_array_equal(total.matrix.buffer, whole.matrix.buffer)
    assert total.n_users == whole.n_users == 200
    assert first.n_users == 80, "adding must not change a term"
    first += second
    np.testing.assert_array_equal(first.matrix.buffer, whole.matrix.buffer)


def test_grams_of_different_items_do_not_add_up():
    with pytest.raises(gr.errors.InvalidInput, match="same items"):
        gr.Gram.of(clustered(50, 20, 300)) + gr.Gram.of(clustered(50, 21, 300))


def test_gram_is_saved_and_reused(tmp_path):
    events = clustered(100, 60, 900)
    gram = gr.Gram.of(events)
    gram.save(tmp_path / "gram")
    again = gr.Gram.load(tmp_path / "gram")
    np.testing.assert_array_equal(again.matrix.buffer, gram.matrix.buffer)
    before = gram.matrix.buffer.copy()
    fitted = gr.EASE().fit_gram(again).weights()
    np.testing.assert_array_equal(fitted, gr.EASE().fit(events).weights())
    gr.EASE().fit_gram(gram)
    np.testing.assert_array_equal(gram.matrix.buffer, before)  # the Gram survives a fit


def test_what_cannot_fit_is_refused_with_the_numbers(monkeypatch):
    events = clustered(3_000, 3_000, 9_000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000_000)
    with pytest.raises(gr.errors.NotEnoughMemory, match=r"32\.5 MB .* 10 MB free.*k_core"):
        gr.EASE().fit(events)


def test_available_memory_is_real():
    assert 10**7 < memory.available_bytes() < 10**14
    assert memory.format_bytes(1_500) == "1.5 kB"
    assert memory.format_bytes(2.2e9) == "2.2 GB"
