"""Sparse matrices in the form the kernels expect: CSR, float32 values, sorted columns, 32-bit indices where they suffice."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit


def csr_from_sorted(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Build a CSR matrix from entries that are sorted by row and column, with 32-bit indices where they suffice."""
    index = np.int32 if len(rows) < 2**31 else np.int64
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))]).astype(index)
    return sp.csr_array((values.astype(np.float32), columns.astype(index), indptr), shape=shape)


def pad_shape(x: sp.csr_array, shape: tuple[int, int]) -> sp.csr_array:
    """Return X with empty rows and columns appended up to a shape."""
    indptr = np.concatenate([x.indptr, np.full(shape[0] - x.shape[0], x.indptr[-1], x.indptr.dtype)])
    return sp.csr_array((x.data, x.indices, indptr), shape)


def compact_columns(x: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns that have entries, in order, and for each entry the place of its column among them."""
    has_entries = np.zeros(x.shape[1], np.bool_)
    has_entries[x.indices] = True
    places = np.cumsum(has_entries, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(has_entries).astype(x.indices.dtype), places[x.indices]


def row_of_entry(x: sp.csr_array) -> np.ndarray:
    """Return the row of every stored entry."""
    return np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))


def rank_within_rows(x: sp.csr_array, key: np.ndarray) -> np.ndarray:
    """Return the rank of every entry among those of its row when these are ordered by key, counted from 0."""
    rows = row_of_entry(x)
    order = np.lexsort((key, rows))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - x.indptr[rows]
    return rank


def absolute_values(x: sp.csr_array) -> sp.csr_array:
    """Return |X|, which is X itself if no value is below 0."""
    return x if not (x.data < 0).any() else sp.csr_array((np.abs(x.data), x.indices, x.indptr), x.shape)


def row_sums(x: sp.csr_array, axis: int = 1) -> np.ndarray:
    """Return the sum of each row in float64, or of each column with `axis=0`."""
    return np.asarray(x.sum(axis=axis, dtype=np.float64))


def scale_rows(x: sp.csr_array, by: np.ndarray, dtype: type) -> sp.csr_array:
    """Return diag(by) · X, with the indices of X itself."""
    data: np.ndarray = np.repeat(by.astype(dtype), np.diff(x.indptr))
    data *= x.data
    return sp.csr_array((data, x.indices, x.indptr), x.shape)


def scale_columns(x: sp.csr_array, by: np.ndarray) -> sp.csr_array:
    """Return X · diag(by), with the indices of X itself."""
    return sp.csr_array((x.data * by[x.indices], x.indices, x.indptr), x.shape)


def normalise_rows(x: sp.csr_array, power: float, dtype: type) -> sp.csr_array:
    """Return diag(u)^-power · X, with u the sums of the rows."""
    return scale_rows(x, np.maximum(row_sums(x), 1e-30) ** -power, dtype)


def unit_rows(x: sp.csr_array) -> sp.csr_array:
    """Return X with rows of length 1, so that their inner products are cosines; an empty row stays empty."""
    squares = np.bincount(row_of_entry(x), x.data.astype(np.float64) ** 2, x.shape[0])
    return scale_rows(x, 1 / np.sqrt(np.maximum(squares, 1e-30)), np.float64)


def mean_shares(x: sp.csr_array, shares: sp.csr_array) -> sp.csr_array:
    """Return the weighted mean of the shares in each row of X, whose rows sum to 1; an empty row where there is nothing.

    Only positive weights count. With histories X and the shares of items in tags, these are the shares of tags in histories.
    """
    positive = sp.csr_array((np.maximum(x.data, 0), x.indices, x.indptr), x.shape)
    total = sp.csr_array(positive @ shares)
    total.eliminate_zeros()
    return normalise_rows(total.sorted_indices(), 1, np.float64)


@njit(cache=True, nogil=True)
def count_columns(columns, n):  # type: ignore[no-untyped-def]
    # np.bincount would copy the columns as 64-bit integers
    counts = np.zeros(n, np.int64)
    for column in columns:
        counts[column] += 1
    return counts


def squared_column_norms(x: sp.csr_array) -> np.ndarray:
    """Return the diagonal of XᵀX in float64."""
    total = np.zeros(x.shape[1])
    add_squares(total, x.indices, x.data)
    return total


@njit(cache=True, nogil=True)
def add_squares(total, columns, values):  # type: ignore[no-untyped-def]
    for entry in range(len(columns)):
        value = np.float64(values[entry])
        total[columns[entry]] += value * value


def stack_rows(x: sp.csr_array, rows: np.ndarray) -> sp.csr_array:
    """Return X with further, dense rows below it."""
    return sp.csr_array(sp.vstack([x, sp.csr_array(rows.astype(np.float32))], format="csr"))
