"""Numba and BLAS run on the threads that are asked for, and results do not depend on their number."""

import numpy as np
import pytest
from numba import config, get_num_threads
from threadpoolctl import threadpool_info, threadpool_limits

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import threads

EVENTS = clustered(200, 150, 3_000)
RECIPE = gr.EDLAE(dropout=0.3, l2=10)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_hold_for_numba_and_blas_and_are_given_back(two_threads):
    before = get_num_threads(), blas_threads()
    with threads.limit_threads(1):
        assert (get_num_threads(), blas_threads()) == (1, {1})
    assert (get_num_threads(), blas_threads()) == before
    with pytest.raises(KeyError), threads.limit_threads(1):
        raise KeyError
    assert (get_num_threads(), blas_threads()) == before


def test_overlapping_work_gives_the_threads_back(two_threads):
    before = blas_threads()
    one, other = threads.BLAS.limit(1), threads.BLAS.limit(1)
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert blas_threads() == before


def test_inner_work_gives_the_outer_its_threads_back(two_threads):
    most = max(blas_threads())
    with threads.BLAS.limit(1):
        with threads.BLAS.limit(most):
            assert blas_threads() == {most}
        assert blas_threads() == {1}


def test_asking_for_all_threads_is_heard(two_threads):
    with threadpool_limits(1), threads.limit_threads(config.NUMBA_NUM_THREADS):
        assert blas_threads() == {config.NUMBA_NUM_THREADS}


def test_a_container_gets_no_more_threads_than_its_share(two_threads, monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "CGROUP", tmp_path)
    all_cores = threads.available_cores.__wrapped__()
    for limit, expected in (("150000 100000", 1), ("50000 100000", 1), ("max 100000", all_cores), ("odd", all_cores)):
        (tmp_path / "cpu.max").write_text(limit)
        assert threads.available_cores.__wrapped__() == expected
    monkeypatch.setattr(threads, "available_cores", lambda: 1)
    with threads.limit_threads(None):
        assert (get_num_threads(), blas_threads()) == (1, {1})


@pytest.mark.parametrize("n_threads", [0, -1, 10_000, 1.5, True, "two"])
def test_a_senseless_number_of_threads_is_refused(n_threads):
    with pytest.raises(gr.errors.InvalidInput, match="n_threads from 1 to"):
        RECIPE.fit(EVENTS, n_threads=n_threads)


def test_results_do_not_depend_on_the_threads():
    events = clustered(800, 1_200, 20_000)
    split = gr.split.strong(events)
    assert np.array_equal(gr.Gram.of(events, n_threads=1).matrix.buffer, gr.Gram.of(events, n_threads=2).matrix.buffer)
    one, two = (RECIPE.fit(split.train, n_threads=n) for n in (1, 2))
    np.testing.assert_allclose(one.weights(), two.weights(), atol=1e-6)
    assert one.recommend(split.train.users[:50], n_threads=1) == one.recommend(split.train.users[:50], n_threads=2)
    assert one.recommend_for([[3, 4]], n_threads=1) == one.recommend_for([[3, 4]], n_threads=2)
    assert gr.evaluate(one, split, n_threads=1).mean == gr.evaluate(one, split, n_threads=2).mean
