"""Graph filters: polynomials of the normalised Gram matrix, applied to histories, plus a low-pass term of its eigenvectors.

With user degrees u, item degrees s, R̃ = diag(u)^-½ X diag(s)^-½ and Q = R̃ᵀR̃, whose eigenvalues are between 0 and 1, a filter
scores a history x by x·p(Q) for a polynomial p. Products with Q are products with the sparse R̃ and its transpose, so that no
n × n matrix is needed, however large the catalog is. Where Q is a dense matrix anyway, p(Q) is computed once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.polynomial import Chebyshev

from gramian.core.fit_check import CHECKED_USERS
from gramian.core.gram import Gram, GramPowers
from gramian.core.scorer import Panels, SavedScorer, Scorer
from gramian.data.interactions import Interactions
from gramian.io.damage import require_content
from gramian.io.sparse import load_csr, save_csr
from gramian.linalg.eigen import ImplicitGram, TopEigenpairs, eigenpairs_bytes, top_eigenpairs
from gramian.linalg.memory import require_memory
from gramian.linalg.polynomial import apply_polynomial, dense_polynomial
from gramian.linalg.sparse import row_sums, scale_columns, scale_rows, squared_column_norms
from gramian.linalg.symmetric import Symmetric, stored_size
from gramian.models.scorers import LowRankWeights, ScorerSum, SymmetricWeights
from gramian.models.spectral import GramSource, SpectralRecipe

MAX_SCORES = 2**25  # users × items whose scores are in memory at once: 128 MB in float32
MAX_BLOCK = 2**22  # items × users that are filtered together: 16 MB in float32 for each array
BLOCK_USERS = 64  # users that are filtered together, or fewer: 256 bytes of a row in float32
FILTER_ARRAYS = 7  # of that size: three of the recurrence, a temporary one, and the product with its part of each thread
DENSE_ENTRIES = 10  # n²/interactions up to which p(Q) is a dense matrix: where degree 8 breaks even (benchmarks/filters.py)
MAX_DEGREE = 1_000  # of a saved filter

SYMMETRIC = GramPowers(user_power=0.5, item_power=0.5)
LINEAR = Chebyshev([0.5, 0.5], domain=(0, 1))  # p(q) = q


class PolynomialFilter(Scorer):
    """W = p(R̃ᵀR̃) for a sparse R̃: histories are multiplied by R̃ᵀ and R̃ once for each degree of p.

    Parameters
    ----------
    normalised
        R̃, users × items.
    coefficients
        Of p, in the Chebyshev polynomials of 2Q − I.
    """

    name = "polynomial-filter"

    def __init__(self, normalised: sp.csr_array, coefficients: np.ndarray) -> None:
        self.operator, self.coefficients = ImplicitGram(normalised, normalised.dtype.type), coefficients.astype(np.float64)

    @property
    def n_items(self) -> int:
        return self.operator.n

    @property
    def users_per_block(self) -> int:
        return max(16, MAX_SCORES // self.n_items)

    def panels(self, histories: sp.csr_array) -> Panels:
        scores = np.empty(histories.shape, self.operator.dtype)
        width = block_users(self.n_items)
        for start in range(0, len(scores), width):
            block = np.ascontiguousarray(histories[start : start + width].toarray().T, self.operator.dtype)
            scores[start : start + width] = apply_polynomial(self.operator, self.coefficients, block).T
        yield 0, scores

    def similar(self, item: int) -> np.ndarray:
        """Return the cosine between the columns of R̃: how much the users of two items overlap."""
        lengths = np.sqrt(np.maximum(squared_column_norms(self.operator.x), np.finfo(np.float32).tiny))
        unit = np.zeros((self.n_items, 1), self.operator.dtype)
        unit[item] = 1
        return np.asarray((self.operator @ unit)[:, 0] / lengths / lengths[item])

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        unit = np.zeros((self.n_items, 1))
        unit[item] = 1
        return np.asarray(values * apply_polynomial(self.operator, self.coefficients, unit)[history, 0])

    def weights(self) -> np.ndarray:
        n = self.n_items
        require_memory(8 * n * n, f"dense {n:,} × {n:,} weights", "Use recommend")
        return apply_polynomial(self.operator, self.coefficients, np.eye(n, dtype=self.operator.dtype))

    def save(self) -> SavedScorer:
        return {"n_items": self.n_items}, save_csr(self.operator.x) | {"coefficients": self.coefficients}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> PolynomialFilter:
        n_items, coefficients = facts["n_items"], arrays["coefficients"]
        require_content(type(n_items) is int and n_items >= 1, "a number of items")
        is_polynomial = coefficients.ndim == 1 and 2 <= len(coefficients) <= MAX_DEGREE + 1
        require_content(is_polynomial and coefficients.dtype == np.float64, "the coefficients of a polynomial")
        return PolynomialFilter(load_csr(arrays, n_items), coefficients)


def block_users(n_items: int) -> int:
    """Return how many users are filtered together."""
    return min(BLOCK_USERS, max(8, MAX_BLOCK // n_items))


def scoring_bytes(n_items: int, itemsize: int) -> int:
    """Return the peak memory of filtering the few histories with which a fit is checked."""
    n_users = min(CHECKED_USERS, max(16, MAX_SCORES // n_items))
    return n_items * (n_users + FILTER_ARRAYS * block_users(n_items)) * itemsize


@dataclass
class FilterBasis:
    """What graph filters share: Q as an operator, the root of the item degrees, and the top eigenpairs of Q.

    It keeps its last scorers, so that recipes of a search that differ only in weights share them and the products with them.
    """

    operator: Symmetric | ImplicitGram
    root: np.ndarray
    eigenpairs: TopEigenpairs
    last: dict[str, tuple[Hashable, Scorer]] = field(default_factory=dict)

    def filter(self, transfer: Chebyshev) -> Scorer:
        """Return the scorer of W = p(Q)."""
        return self.reuse("filter", tuple(transfer.coef), lambda: filter_scorer(self.operator, transfer))

    def low_pass(self, rank: int, power: float = 0.5, sharpening: Chebyshev | None = None) -> Scorer:
        """Return the scorer of W = diag(s)^-power · V Vᵀ · diag(s)^power · p(Q), with V the top eigenvectors."""
        v, scale = self.eigenpairs.vectors[:, :rank], self.root[:, None] ** (2 * power)
        coefficients = np.ones(1) if sharpening is None else sharpening.coef

        def compute() -> Scorer:
            decoder = apply_polynomial(self.operator, coefficients, (v * scale).astype(v.dtype))
            return LowRankWeights(v / scale, decoder)

        return self.reuse("low-pass", (rank, power, *coefficients), compute)

    def reuse(self, term: str, key: Hashable, compute: Callable[[], Scorer]) -> Scorer:
        """Return the cached scorer of a term ("filter" or "low-pass") if it was computed for this key, or else compute it."""
        if term not in self.last or self.last[term][0] != key:
            self.last.pop(term, None)  # frees its memory before the next one is computed
            self.last[term] = key, compute()
        return self.last[term][1]


def filter_scorer(operator: Symmetric | ImplicitGram, transfer: Chebyshev) -> Scorer:
    """Return the scorer of W = p(Q), for a polynomial on [0, 1]: dense where Q is, and else as products with R̃."""
    c = transfer.coef
    if isinstance(operator, ImplicitGram):
        return PolynomialFilter(operator.x, c)
    ones = np.ones(operator.n)
    if len(c) == 2:  # c₀ + c₁(2Q − I), without a second matrix
        return SymmetricWeights(operator, 2 * c[1] * ones, (c[0] - c[1]) * ones)
    return SymmetricWeights(dense_polynomial(operator, c), ones, 0 * ones)


def prefers_dense(events: Interactions) -> bool:
    """Whether p(Q) as a dense matrix is faster than products with the sparse R̃, for as many histories as there are items."""
    return events.n_items**2 <= DENSE_ENTRIES * events.n_interactions


def normalise(events: Interactions, powers: GramPowers, dtype: type, offset: float = 0.0) -> sp.csr_array:
    """Return R̃ = diag(u + offset)^-user_power · X · diag(s + offset)^-item_power."""
    users, items = (np.maximum(degrees + offset, 1.0) for degrees in (row_sums(events.matrix), events.popularity))
    rows = scale_rows(events.matrix, users**-powers.user_power, dtype)
    return scale_columns(rows, (items**-powers.item_power).astype(dtype))


def normalised_gram(source: GramSource, powers: GramPowers, dtype: type) -> Symmetric | ImplicitGram:
    """Return the normalised Gram as a linear operator: stored where it is known or small, or implicit through R̃."""
    if isinstance(source, Gram):
        return source.matrix
    if prefers_dense(source):
        return Gram.of(source, dtype, **powers._asdict()).matrix
    return ImplicitGram(normalise(source, powers, dtype), dtype)


def filter_bytes(events: Interactions, dtype: type, degree: int, rank: int = 0) -> int:
    """Return the peak memory of a filter with a low-pass term of some rank, beside the interactions."""
    n, itemsize = events.n_items, np.dtype(dtype).itemsize
    eigenpairs = eigenpairs_bytes(n, rank, itemsize) if rank else 0
    if prefers_dense(events):
        return stored_size(n) * itemsize * (1 if degree == 1 else 2) + 8 * events.n_interactions + eigenpairs
    return itemsize * events.n_interactions + max(eigenpairs, scoring_bytes(n, itemsize))


class FilterRecipe(SpectralRecipe):
    """A polynomial of the normalised Gram plus a low-pass term: all of them share one decomposition."""

    gram_powers = SYMMETRIC
    needs_binary = True  # degrees are counts

    @property
    @abstractmethod
    def transfer(self) -> Chebyshev:
        """The polynomial, of eigenvalues in [0, 1]."""

    @property
    def decomposition(self) -> Hashable:
        return "normalised Gram"

    def decompose(self, source: GramSource, rank: int, dtype: type) -> FilterBasis:
        """Return Q and its top eigenpairs."""
        self.require_binary(source.is_binary)
        operator = normalised_gram(source, self.gram_powers, dtype)
        root = np.sqrt(np.maximum(source.catalog.popularity, 1)).astype(dtype)
        return FilterBasis(operator, root, top_eigenpairs(operator, rank))

    @abstractmethod
    def truncate_to_scorer(self, decomposition: FilterBasis) -> ScorerSum:
        """Return the filter with its low-pass term."""

    def solve(self, gram: Gram, overwrite: bool) -> Scorer:
        is_shared = not overwrite and self.transfer.degree() == 1  # the scorer of a linear filter holds Q itself
        matrix = gram.matrix.copy() if is_shared else gram.matrix
        return super().solve(Gram(matrix, gram.catalog, gram.n_users, gram.is_binary, gram.powers), overwrite)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return filter_bytes(events, dtype, self.transfer.degree(), self.rank)
