"""Polynomials of a symmetric operator Q, in the Chebyshev basis.

A filter is p(Q) = Σ_k c_k T_k(2Q − I), with T_k the Chebyshev polynomials. In this basis the coefficients of a polynomial that
is bounded on [0, 1], where the eigenvalues of a normalised Gram matrix are, stay small; in powers of Q they grow so fast that
float32 loses its digits at degree 8. Clenshaw's recurrence applies p(Q) to a block of vectors with one product for each degree.
"""

from __future__ import annotations

import numpy as np

from gramian.linalg.inverse import SymmetricOperator
from gramian.linalg.symmetric import Symmetric


def apply_polynomial(operator: SymmetricOperator, coefficients: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Return p(Q) · block, for a block of few columns."""
    c = coefficients.astype(block.dtype)
    last, before = c[-1] * block, np.zeros_like(block)
    for degree in range(len(c) - 2, -1, -1):
        current = operator @ last
        current *= 4 if degree else 2
        current -= 2 * last if degree else last
        current -= before
        current += c[degree] * block
        last, before = current, last
    return last


def dense_polynomial(matrix: Symmetric, coefficients: np.ndarray) -> Symmetric:
    """Return p(Q) as a matrix, one block column at a time."""
    result = Symmetric.empty(matrix.n, matrix.dtype.type, matrix.width)
    for first, last, block in result.blocks():
        identity = np.zeros((matrix.n, last - first), matrix.dtype)
        identity[np.arange(first, last), np.arange(last - first)] = 1
        block[:] = apply_polynomial(matrix, coefficients, identity)[first:]
    return result
