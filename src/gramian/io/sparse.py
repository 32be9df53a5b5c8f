"""Sparse matrices in saved folders."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.io.damage import require_content
from gramian.linalg.symmetric import DTYPES


def save_csr(matrix: sp.csr_array) -> dict[str, np.ndarray]:
    """Return the arrays of a sparse matrix, with the types that `load_csr` expects."""
    indptr, indices = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False)
    return {"indptr": indptr, "indices": indices, "data": matrix.data}


def load_csr(arrays: dict[str, np.ndarray], n_columns: int) -> sp.csr_array:
    """Return a sparse matrix from the arrays of a file that is not trusted."""
    indptr, indices, data = arrays["indptr"], arrays["indices"], arrays["data"]
    is_flat = all(array.ndim == 1 for array in (indptr, indices, data)) and len(indptr) >= 1
    is_typed = indptr.dtype == np.int64 and indices.dtype == np.int32 and data.dtype in DTYPES
    require_content(bool(is_flat and is_typed), "rows of floating-point numbers")
    has_all_rows = indptr[0] == 0 and indptr[-1] == len(indices) == len(data) and (np.diff(indptr) >= 0).all()
    require_content(bool(has_all_rows), "rows that follow each other")
    require_content(len(indices) == 0 or (indices.min() >= 0 and indices.max() < n_columns), "columns of known items")
    return sp.csr_array((data, indices, indptr), (len(indptr) - 1, n_columns))
