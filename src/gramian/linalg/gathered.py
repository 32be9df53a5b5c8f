"""Products of gathered rows: scores of items that differ from row to row, without a copy of the items' vectors.

With a table `left` (a vector for each row of an index) and a table `right`,

    scores[b, n] = left[b] · right[index[b, n]]

The obvious way gathers right[index], an array of rows × items × rank, multiplies, and scatters its gradient back. These kernels
read each vector where it is. All sums are in the order of the index, so that they do not depend on the number of threads.
"""

import numpy as np
from numba import get_num_threads, njit, prange

SUMS = {"reassoc", "contract", "nsz"}  # LLVM's fast-math flags under which a sum of products is vectorised


def gathered_products(left: np.ndarray, right: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return left[b] · right[index[b, n]] for each entry of the index."""
    products = np.empty(index.shape, left.dtype)
    multiply_gathered(products, left, right, index)
    return products


def gathered_gradients(
    by_products: np.ndarray, left: np.ndarray, right: np.ndarray, index: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients by `left` and by `right`, given those by the products."""
    by_left, by_right = np.empty_like(left), np.zeros_like(right)
    sum_gathered(by_left, by_products, right, index)
    n_parts = 1
    while n_parts < get_num_threads():  # a power of 2, so that a bit mask tells which part a row belongs to
        n_parts *= 2
    scatter_products(by_right, by_products, left, index, n_parts)
    return by_left, by_right


@njit(parallel=True, cache=True, nogil=True, fastmath=SUMS)
def multiply_gathered(products: np.ndarray, left: np.ndarray, right: np.ndarray, index: np.ndarray) -> None:
    width = left.shape[1]
    for b in prange(index.shape[0]):
        for n in range(index.shape[1]):
            j = index[b, n]
            total = products.dtype.type(0)
            for k in range(width):
                total += left[b, k] * right[j, k]
            products[b, n] = total


@njit(parallel=True, cache=True, nogil=True, fastmath=SUMS)
def sum_gathered(by_left: np.ndarray, weight: np.ndarray, right: np.ndarray, index: np.ndarray) -> None:
    width = right.shape[1]
    for b in prange(index.shape[0]):
        for k in range(width):
            by_left[b, k] = 0
        for n in range(index.shape[1]):
            j, w = index[b, n], weight[b, n]
            if w != 0:  # as of negatives below a margin
                for k in range(width):
                    by_left[b, k] += w * right[j, k]


@njit(parallel=True, cache=True, nogil=True, fastmath=SUMS)
def scatter_products(by_right: np.ndarray, weight: np.ndarray, left: np.ndarray, index: np.ndarray, n_parts: int) -> None:
    """Each part reads the whole index and sums the rows whose number ends in its bits, so that no two write the same row."""
    width = left.shape[1]
    for part in prange(n_parts):
        for b in range(index.shape[0]):
            for n in range(index.shape[1]):
                j, w = index[b, n], weight[b, n]
                if j & (n_parts - 1) == part and w != 0:
                    for k in range(width):
                        by_right[j, k] += w * left[b, k]
