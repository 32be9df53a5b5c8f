"""The Gram matrix S = XᵀX: the one statistic that every closed form needs. RG2 needs its twin of normalised rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numba import get_num_threads, njit, prange

from gramian import store
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.symmetric import Symmetric, block_start, checked_dtype
from gramian.linalg.threads import threads

CHUNKS_PER_THREAD = 16


class Gram:
    """S = XᵀX with the ids of its items. Grams of shards add up to the Gram of all, and one Gram fits many models."""

    def __init__(self, matrix: Symmetric, items: Index, n_users: int, is_binary: bool, is_normalised: bool = False) -> None:
        self.matrix, self.items, self.n_users, self.is_binary = matrix, items, n_users, is_binary
        self.is_normalised = is_normalised

    @staticmethod
    def of(
        events: Interactions, dtype: str | type = "float32", *, normalised: bool = False, n_threads: int | None = None
    ) -> Gram:
        """Sum the outer products of all users' rows, in parallel over items; of rows divided by √|x| where `normalised`."""
        if not isinstance(events, Interactions):
            raise InvalidInput("Interactions", type(events).__name__, "Wrap it: gr.Interactions.of(...)")
        matrix = Symmetric.empty(events.n_items, checked_dtype(dtype))
        with threads(n_threads):
            fill(matrix, row_normalised(events.matrix, matrix.dtype.type) if normalised else events.matrix)
        return Gram(matrix, events.items, events.n_users, events.is_binary, normalised)

    @property
    def n_items(self) -> int:
        return self.matrix.n

    def __repr__(self) -> str:
        kind = ", row-normalised" if self.is_normalised else ""
        return f"Gram({self.n_items:,} items, {self.n_users:,} users, {self.matrix.dtype}{kind})"

    def __iadd__(self, other: Gram) -> Gram:
        """Add another shard's Gram into this one, in place."""
        if not isinstance(other, Gram):
            return NotImplemented
        if self.items != other.items:
            raise InvalidInput("Grams of the same items in the same order", "other items", "Use `events.reindex` first")
        if self.is_normalised != other.is_normalised:
            raise InvalidInput("Grams of one kind", "one that is row-normalised and one that is not", "Add those alike")
        self.matrix.buffer += other.matrix.buffer
        self.n_users += other.n_users
        self.is_binary &= other.is_binary
        return self

    def __add__(self, other: Gram) -> Gram:
        if not isinstance(other, Gram):
            return NotImplemented
        total = Gram(self.matrix.copy(), self.items, self.n_users, self.is_binary, self.is_normalised)
        total += other
        return total

    def save(self, path: str | Path) -> None:
        """Write the Gram to a folder, to be reused by `Gram.load`."""
        facts = {"n": self.n_items, "width": self.matrix.width, "n_users": self.n_users, "is_binary": self.is_binary}
        facts["is_normalised"] = self.is_normalised
        store.write(path, "gram", facts, {"gram": self.matrix.buffer}, {"items": self.items.tolist()})

    @staticmethod
    def load(path: str | Path) -> Gram:
        facts, arrays, ids = store.read(path, "gram")
        with store.damage_in(path):
            matrix = Symmetric.stored(facts["n"], arrays["gram"], facts["width"])
            items = Index(ids["items"])
            store.require(len(items) == matrix.n, "an id for every item")
            return Gram(matrix, items, int(facts["n_users"]), bool(facts["is_binary"]), bool(facts.get("is_normalised", False)))


def fill(matrix: Symmetric, x: sp.csr_array) -> None:
    """Write S = XᵀX into a matrix, whatever is in it."""
    Products(x, matrix.width).write(matrix.buffer, 0, matrix.n)


def row_normalised(x: sp.csr_array, dtype: type) -> sp.csr_array:
    """dMat(|x|^-½) · X, with |x| the sum of a row."""
    data = np.repeat((1 / np.sqrt(np.maximum(sizes(x), 1e-30))).astype(dtype), np.diff(x.indptr))
    data *= x.data
    return sp.csr_array((data, x.indices, x.indptr), x.shape)


def sizes(x: sp.csr_array, axis: int = 1) -> np.ndarray:
    """The sum of each row, or of each column."""
    return np.asarray(x.sum(axis=axis), np.float64)


class Products:
    """A sparse X by rows and by columns, from which any block columns of the stored half of XᵀX are summed."""

    def __init__(self, x: sp.csr_array, width: int) -> None:
        by_column = x.tocsc()
        self.n, self.width, self.row_ptr = x.shape[1], width, x.indptr.astype(np.int64)
        self.rows = (self.row_ptr, x.indices, x.data)
        self.columns = (by_column.indptr.astype(np.int64), by_column.indices, by_column.data)
        self.costs = column_costs(self.row_ptr, x.indices, self.n)

    def write(self, buffer: np.ndarray, first: int, last: int) -> None:
        """The block columns from column `first` up to `last`, into a buffer that begins with them."""
        chunks = first + equal_chunks(self.costs[first:last], CHUNKS_PER_THREAD * get_num_threads())
        begin = block_start(first, self.n, self.width)
        accumulate(buffer, begin, self.n, self.width, *self.rows, *self.columns, chunks)


def equal_chunks(cost: np.ndarray, n_chunks: int) -> np.ndarray:
    """Boundaries that cut the columns into runs of about equal cost."""
    total = np.cumsum(cost + 1)
    return np.unique(np.concatenate([[0], np.searchsorted(total, total[-1] * np.arange(1, n_chunks) / n_chunks), [len(cost)]]))


@njit(cache=True)
def column_costs(indptr, indices, n):  # type: ignore[no-untyped-def]
    cost = np.zeros(n, np.int64)
    for u in range(len(indptr) - 1):
        for p in range(indptr[u], indptr[u + 1]):
            cost[indices[p]] += indptr[u + 1] - p
    return cost


@njit(parallel=True, cache=True)
def accumulate(buffer, begin, n, width, indptr, indices, data, column_ptr, column_rows, column_data, chunks):  # type: ignore[no-untyped-def]
    # Column j of the lower half is the sum of x_uj · x_u[j:] over the users u of item j. It gathers in a buffer that
    # stays in cache, and is written once, to one run of memory. What is written to begins at place `begin` of the stored half.
    for chunk in prange(len(chunks) - 1):
        column = np.zeros(n, np.float64)  # float32 would stall at 2²⁴ users
        for j in range(chunks[chunk], chunks[chunk + 1]):
            for q in range(column_ptr[j], column_ptr[j + 1]):
                u = column_rows[q]
                weight = np.float64(column_data[q])
                for p in range(indptr[u + 1] - 1, indptr[u] - 1, -1):
                    i = indices[p]
                    if i < j:
                        break
                    column[i] += weight * data[p]
            first = j // width * width
            start = block_start(first, n, width) - begin + (j - first) * (n - first) - first
            for i in range(j, n):
                buffer[start + i] = column[i]
                column[i] = 0
    # above the diagonal, within the diagonal blocks, by symmetry
    for block in prange(chunks[0] // width, (chunks[-1] + width - 1) // width):
        first = block * width
        start = block_start(first, n, width) - begin
        for j in range(first, min(first + width, n)):
            for i in range(first, j):
                buffer[start + (j - first) * (n - first) + i - first] = buffer[start + (i - first) * (n - first) + j - first]
