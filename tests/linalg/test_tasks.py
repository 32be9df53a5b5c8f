"""Tasks run once each, on all threads, with one thread for BLAS and Numba; errors reach the caller."""

import threading

import numpy as np
import pytest
from numba import get_num_threads
from threadpoolctl import threadpool_info

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.errors import Inaccurate
from gramian.linalg import inverse
from gramian.linalg.inverse import invert
from gramian.linalg.symmetric import Symmetric, stored_size
from gramian.linalg.tasks import map_ahead, task_queue
from gramian.linalg.threads import limit_threads


def random_matrix(n: int, width: int, dtype: type = np.float32) -> Symmetric:
    root = np.random.default_rng(0).standard_normal((n, n)).astype(dtype)
    dense = root @ root.T + 10 * np.eye(n, dtype=dtype)
    matrix = Symmetric(n, np.empty(stored_size(n, width), dtype), width)
    for first, last, block in matrix.blocks():
        block[:] = dense[first:, first:last]
    return matrix


def test_every_task_runs_once_with_one_thread_for_its_kernels(two_threads):
    done, meet, seen = [], threading.Barrier(2, timeout=30), set()

    def work(task: int) -> None:
        if task < 2:
            meet.wait()  # passes only if two threads are at work
        seen.add((get_num_threads(), *(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")))
        done.append(task)

    with task_queue() as run:
        run(work, range(50))
        run(done.append, [50])
    assert sorted(done) == list(range(51))
    assert {number for numbers in seen for number in numbers} == {1}
    assert get_num_threads() == 2


def test_an_error_ends_the_run_and_is_raised(two_threads):
    done = []

    def work(task: int) -> None:
        if task == 3:
            raise KeyError(task)
        done.append(task)

    with pytest.raises(KeyError), task_queue() as run:
        run(work, range(100_000))
    assert len(done) < 99_999


def test_one_thread_runs_in_the_calling_thread(two_threads):
    callers = set()
    with limit_threads(1), task_queue() as run:
        run(lambda _: callers.add(threading.current_thread()), range(5))
    assert callers == {threading.current_thread()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_inverse_has_the_same_bits_on_any_number_of_threads_and_is_an_inverse(two_threads, dtype, monkeypatch):
    monkeypatch.setattr(inverse, "SWEEP_ROWS", 100)  # which divides neither the size nor the width of a block
    source = random_matrix(333, 128, dtype)
    one, two = source.copy(), source.copy()
    with limit_threads(1):
        invert(one)
    invert(two)
    assert np.array_equal(one.buffer, two.buffer)
    assert np.allclose(
        one.dense(), np.linalg.inv(source.dense().astype(np.float64)), atol=1e-4 if dtype == np.float32 else 1e-12
    )


def test_a_matrix_that_is_not_positive_definite_is_refused_by_its_item(two_threads):
    matrix = random_matrix(333, 128)
    matrix.block(128, 256)[7, 9] = matrix.block(128, 256)[9, 7] = 1e4
    with pytest.raises(Inaccurate, match=r"at item 13[57]"):
        invert(matrix)


def test_results_of_work_ahead_come_in_order_and_the_caller_keeps_one_thread(two_threads):
    seen = []
    for result in map_ahead(lambda task: task * task, range(20)):
        seen.append(result)
        assert get_num_threads() == 1
    assert seen == [task * task for task in range(20)]
    assert get_num_threads() == 2


def test_work_ahead_that_is_given_up_or_fails_gives_the_threads_back(two_threads):
    results = map_ahead(lambda task: task, range(100))
    next(results)
    results.close()
    assert get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda task: 1 // task, range(3)))
    assert get_num_threads() == 2


def test_lists_do_not_depend_on_the_number_of_threads(two_threads):
    events = clustered(300, 200, 4_000)
    for recipe in (gr.EASE(l2=20), gr.IALS(rank=8, n_epochs=2)):
        model = recipe.fit(events)
        two = model.top_k(events.matrix, 20)
        with limit_threads(1):
            one = model.top_k(events.matrix, 20)
        assert np.array_equal(one[0], two[0])
