"""Products along the edges of a graph, on the CPU by Numba and elsewhere by PyTorch, each with its gradients.

For a pattern of edges (r, c) with values v, two operations carry every graph encoder:

    multiply        Y_r = Σ_c v_rc X_c          gradients: X̄_c = Σ_r v_rc Ȳ_r,  v̄_rc = Ȳ_r · X_c
    edge_products   v_rc = A_r · B_c            gradients: Ā_r = Σ_c v̄_rc B_c,  B̄_c = Σ_r v̄_rc A_r

The gradients of one are made of the other. A kernel reads each vector once per edge, which is what bounds it: on gowalla it is
as fast as the memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit, prange
from torch import Tensor

TORCH_DTYPES = {"float32": torch.float32, "float64": torch.float64}
ROWS_PER_JOB = 64  # rows that a thread takes at once


class EdgePattern:
    """The edges of a graph as a sparse pattern of rows × columns, in the order of CSR."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int], device: torch.device) -> None:
        self.indptr, self.indices = np.asarray(indptr, np.int64), np.asarray(indices, np.int32)
        self.shape, self.size, self.device = shape, len(indices), device

    @staticmethod
    def of(x: sp.csr_array, device: torch.device) -> EdgePattern:
        """The pattern of a sparse matrix."""
        return EdgePattern(x.indptr, x.indices, x.shape, device)

    def to_csr(self) -> sp.csr_array:
        """The edges as a sparse matrix of ones."""
        return sp.csr_array((np.ones(self.size, np.float32), self.indices, self.indptr), self.shape)

    @cached_property
    def rows(self) -> Tensor:
        """The row of each edge."""
        return torch.from_numpy(np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))).to(self.device)

    @cached_property
    def columns(self) -> Tensor:
        """The column of each edge."""
        return torch.from_numpy(self.indices.astype(np.int64)).to(self.device)

    @cached_property
    def _transposition(self) -> tuple[EdgePattern, Tensor]:
        edges = sp.csr_array((np.arange(self.size), self.indices, self.indptr), self.shape).T.tocsr()
        return EdgePattern.of(edges, self.device), torch.from_numpy(edges.data.astype(np.int64)).to(self.device)

    @property
    def transposed(self) -> EdgePattern:
        """The same edges from columns to rows."""
        return self._transposition[0]

    def transpose_values(self, values: Tensor) -> Tensor:
        """Values of the edges in the order of `transposed`."""
        return values.index_select(0, self._transposition[1])

    def select_edges(self, is_kept: np.ndarray) -> EdgePattern:
        """The pattern of a part of the edges."""
        kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        return EdgePattern(kept_before[self.indptr], self.indices[is_kept], self.shape, self.device)

    def edges_of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The edges of these rows, one row after the other, and where each row begins."""
        sizes = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        return np.repeat(self.indptr[rows] - indptr[:-1], sizes) + np.arange(indptr[-1]), indptr


def sum_along_edges(pattern: EdgePattern, values: Tensor, vectors: Tensor, rows: Tensor | None = None) -> Tensor:
    """Y_r = Σ_c v_rc X_c of all rows, or of these, without gradients."""
    if vectors.device.type != "cpu":
        return sum_by_index(pattern, values, vectors, rows)
    numbers = np.arange(pattern.shape[0]) if rows is None else rows.numpy()
    out = torch.empty((len(numbers), vectors.shape[1]), dtype=vectors.dtype)
    arrays = (values.detach().contiguous().numpy(), vectors.detach().contiguous().numpy())
    sum_rows_kernel(out.numpy(), numbers, pattern.indptr, pattern.indices, *arrays)
    return out


def sum_by_index(pattern: EdgePattern, values: Tensor, vectors: Tensor, rows: Tensor | None = None) -> Tensor:
    """`sum_along_edges` by operations of PyTorch, for any device."""
    terms = values[:, None] * vectors.index_select(0, pattern.columns)
    out = terms.new_zeros((pattern.shape[0], vectors.shape[1])).index_add_(0, pattern.rows, terms)
    return out if rows is None else out.index_select(0, rows)


def sum_from_columns(pattern: EdgePattern, values: Tensor, columns: Tensor | None, vectors: Tensor) -> Tensor:
    """Y_r = Σ_c v_rc X_c of all rows, with vectors X of these columns alone (None: of all), without gradients."""
    if columns is None or vectors.device.type != "cpu":
        n = pattern.shape[1]
        all_vectors = vectors if columns is None else vectors.new_zeros((n, vectors.shape[1])).index_copy_(0, columns, vectors)
        return sum_along_edges(pattern, values, all_vectors)
    position = np.full(pattern.shape[1], -1, np.int32)
    position[columns.numpy()] = np.arange(len(columns))
    out = torch.empty((pattern.shape[0], vectors.shape[1]), dtype=vectors.dtype)
    arrays = (values.contiguous().numpy(), position, vectors.contiguous().numpy())
    sum_columns_kernel(out.numpy(), pattern.indptr, pattern.indices, *arrays)
    return out


def multiply_along_edges(pattern: EdgePattern, left: Tensor, right: Tensor) -> Tensor:
    """v_rc = A_r · B_c of all edges, without gradients."""
    if left.device.type != "cpu":
        return (left.index_select(0, pattern.rows) * right.index_select(0, pattern.columns)).sum(1)
    out = torch.empty(pattern.size, dtype=left.dtype)
    arrays = (left.detach().contiguous().numpy(), right.detach().contiguous().numpy())
    multiply_edges_kernel(out.numpy(), pattern.indptr, pattern.indices, *arrays)
    return out


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, pattern: EdgePattern, values: Tensor, vectors: Tensor) -> Tensor:
        context.pattern = pattern
        context.save_for_backward(values, vectors)
        return sum_along_edges(pattern, values, vectors)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        pattern, (values, vectors) = context.pattern, context.saved_tensors
        by_values = multiply_along_edges(pattern, gradient, vectors) if context.needs_input_grad[1] else None
        by_vectors = None
        if context.needs_input_grad[2]:
            by_vectors = sum_along_edges(pattern.transposed, pattern.transpose_values(values), gradient)
        return None, by_values, by_vectors


class _EdgeProducts(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, pattern: EdgePattern, left: Tensor, right: Tensor) -> Tensor:
        context.pattern = pattern
        context.save_for_backward(left, right)
        return multiply_along_edges(pattern, left, right)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        pattern, (left, right) = context.pattern, context.saved_tensors
        by_left = sum_along_edges(pattern, gradient, right)
        by_right = sum_along_edges(pattern.transposed, pattern.transpose_values(gradient), left)
        return None, by_left, by_right


def multiply(pattern: EdgePattern, values: Tensor, vectors: Tensor) -> Tensor:
    """Y_r = Σ_c v_rc X_c, with gradients by the values and the vectors."""
    result: Tensor = _Multiply.apply(pattern, values, vectors)
    return result


def edge_products(pattern: EdgePattern, left: Tensor, right: Tensor) -> Tensor:
    """v_rc = A_r · B_c, with gradients by both."""
    result: Tensor = _EdgeProducts.apply(pattern, left, right)
    return result


class InteractionGraph:
    """The bipartite graph of users and items, by its normalized adjacency matrix Â = diag(degree)^-½ · A · diag(degree)^-½."""

    def __init__(self, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        self.to_users = EdgePattern.of(x, device)  # rows are users, columns items
        self.weights = symmetric_weights(self.to_users).to(device, dtype)
        self.to_items, self.item_weights = self.to_users.transposed, self.to_users.transpose_values(self.weights)

    def weighted_edges(self) -> tuple[tuple[EdgePattern, Tensor], tuple[EdgePattern, Tensor]]:
        """The edges to users and to items, with the entries of Â."""
        return (self.to_users, self.weights), (self.to_items, self.item_weights)

    def multiply(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Â E, of the vectors E of users and items, with gradients."""
        return multiply(self.to_users, self.weights, items), multiply(self.to_items, self.item_weights, users)


def symmetric_weights(pattern: EdgePattern) -> Tensor:
    """1/√(degree of the row · degree of the column) of each edge."""
    row_degree, column_degree = np.diff(pattern.indptr), np.bincount(pattern.indices, minlength=pattern.shape[1])
    scale = np.repeat(row_degree, row_degree) * column_degree[pattern.indices].astype(np.float64)
    return torch.from_numpy(1 / np.sqrt(scale))


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def sum_rows_kernel(out, rows, indptr, indices, values, vectors):  # type: ignore[no-untyped-def]
    # four vectors at a time: a sum is read and written once for all four, and their cache misses overlap
    n, width = out.shape
    for job in prange((n + ROWS_PER_JOB - 1) // ROWS_PER_JOB):
        for i in range(job * ROWS_PER_JOB, min(n, (job + 1) * ROWS_PER_JOB)):
            total = out[i]
            for k in range(width):
                total[k] = 0
            p, stop = indptr[rows[i]], indptr[rows[i] + 1]
            while p + 4 <= stop:
                a, b = vectors[indices[p]], vectors[indices[p + 1]]
                c, d = vectors[indices[p + 2]], vectors[indices[p + 3]]
                for k in range(width):
                    total[k] += (values[p] * a[k] + values[p + 1] * b[k]) + (values[p + 2] * c[k] + values[p + 3] * d[k])
                p += 4
            while p < stop:
                a = vectors[indices[p]]
                for k in range(width):
                    total[k] += values[p] * a[k]
                p += 1


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def sum_columns_kernel(out, indptr, indices, values, position, vectors):  # type: ignore[no-untyped-def]
    n, width = out.shape
    for job in prange((n + ROWS_PER_JOB - 1) // ROWS_PER_JOB):
        for r in range(job * ROWS_PER_JOB, min(n, (job + 1) * ROWS_PER_JOB)):
            total = out[r]
            for k in range(width):
                total[k] = 0
            for p in range(indptr[r], indptr[r + 1]):
                at = position[indices[p]]
                if at >= 0:
                    a = vectors[at]
                    for k in range(width):
                        total[k] += values[p] * a[k]


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract", "reassoc"})
def multiply_edges_kernel(out, indptr, indices, left, right):  # type: ignore[no-untyped-def]
    n, width = left.shape
    for job in prange((n + ROWS_PER_JOB - 1) // ROWS_PER_JOB):
        for r in range(job * ROWS_PER_JOB, min(n, (job + 1) * ROWS_PER_JOB)):
            a = left[r]
            for p in range(indptr[r], indptr[r + 1]):
                b = right[indices[p]]
                total = a[0] * b[0]
                for k in range(1, width):
                    total += a[k] * b[k]
                out[p] = total
