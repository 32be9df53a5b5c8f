"""What this machine does in a second, measured when first asked for."""

import time
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.linalg import get_blas_funcs

from gramian.data.interactions import Interactions
from gramian.data.synthetic import clustered
from gramian.linalg.gram import column_costs, fill
from gramian.linalg.product import times
from gramian.linalg.symmetric import WIDTH, Symmetric

HEIGHT = 4096
ROUNDS = 3


@cache
def inverse_rate(dtype: np.dtype, n_threads: int) -> float:
    """Operations a second, on the threads that are set, in the matrix product that a sweep consists of."""
    (gemm,) = get_blas_funcs(("gemm",), dtype=dtype)
    tall, square, out = (np.ones(shape, dtype, "F") for shape in ((WIDTH, HEIGHT), (WIDTH, WIDTH), (HEIGHT, WIDTH)))
    best = min(seconds(lambda: gemm(-1, tall, square, beta=1, c=out, trans_a=1, overwrite_c=1)) for _ in range(ROUNDS))
    return 2 * HEIGHT * WIDTH * WIDTH / best


@cache
def gram_rate(n_threads: int) -> float:
    """Products of two interactions summed a second, on the threads that are set."""
    events = clustered(5_000, 2_000, 200_000)
    matrix = Symmetric.empty(events.n_items)
    best = min(seconds(lambda: fill(matrix, events.matrix)) for _ in range(ROUNDS))
    return products(events) / best


@cache
def gather_rate(n_threads: int) -> float:
    """Numbers gathered by interactions and summed a second, on the threads that are set."""
    x, right = clustered(20_000, 5_000, 400_000).matrix, np.ones((5_000, 64), np.float32)
    best = min(seconds(lambda: times(x, right)) for _ in range(ROUNDS))
    return x.nnz * right.shape[1] / best


def products(events: Interactions) -> int:
    """How many products of two interactions make up one half of the Gram matrix."""
    return int(column_costs(events.matrix.indptr.astype(np.int64), events.matrix.indices, events.n_items).sum())


def seconds(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started
