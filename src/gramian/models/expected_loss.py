"""DEQL in general: a quadratic loss of its own for every item, for small catalogs   (the DEQL paper, 2026).

Item i has a distribution of inputs X̃ and targets y, and its column w of W minimises (Definition 3.1)

    E‖y − X̃w‖² = wᵀHw − 2wᵀv + constant,    H = E[X̃ᵀX̃],  v = E[X̃ᵀy],    so that    w = H⁻¹v   (Eq. 8).

Every item needs a system of its own, O(n⁴) for n items: `DecoupledAutoencoder`. Where all items share H = Σxx, W may be of low
rank (Theorem B.1). With the columns v in Σxy, [·]_k the truncated SVD, and Σxx = LLᵀ, `LowRankRegression` is

    W = L⁻ᵀ [L⁻¹Σxy]_k.

EDLAE's loss is the case where entries are hidden with probability p and item i weighs a where it is hidden and b where it is
kept. Its H is positive definite for all a, b > 0 and 0 < p < 1 if every item has an interaction: with m = min(a, b), q = 1 − p,

    wᵀHw = E‖diag(a or b)·X̃w‖² ≥ m²·E‖X̃w‖² = m²·(q²‖Xw‖² + qp·Σ s_k w_k²) > 0.

Theorem 3.3 of the paper has the condition a ≥ b, which is not needed. `DEQL` solves all these systems with one inverse.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, LinAlgWarning, cholesky, solve, solve_triangular, svd

from gramian.core.recipe import Recipe, require_rank
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.memory import require_memory
from gramian.models.scorers import LowRankWeights, SparseWeights
from gramian.progress import track

ARRAYS_PER_FIT = 6  # n × n arrays of float64 in memory at once, those that a subclass makes included


class SecondMomentRecipe(Recipe):
    """A recipe of dense second moments, which only a small catalog has room for."""

    def require_small(self, events: Interactions, dtype: type) -> None:
        """Refuse weights where they make no sense, and a catalog whose second moments would not fit into memory."""
        self.require_binary(events.is_binary)
        require_memory(
            self.fit_bytes(events, dtype),
            f"second moments of {events.n_items:,} items",
            "Keep fewer items (events.k_core, --k-core), or choose DEQL, which needs half of one matrix",
        )

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return ARRAYS_PER_FIT * 8 * events.n_items**2


class DecoupledAutoencoder(SecondMomentRecipe):
    """Base of linear autoencoders in which every item has a quadratic loss of its own   (the DEQL paper, 2026, Eq. 8).

    Subclass it, declare the parameters, and yield the systems. A fit takes O(n⁴) operations for n items.
    """

    @abstractmethod
    def systems(self, events: Interactions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield H = E[X̃ᵀX̃] (items × items) and v = E[X̃ᵀy] for each item, in the order of the columns.

        An L2 penalty is added to the diagonal of H. A weight whose row and column of H and entry of v are 0 is set to 0, so
        that zeros in row, column and entry i force the diagonal of W to 0.
        """

    def fit_scorer(self, events: Interactions, dtype: type) -> SparseWeights:
        self.require_small(events, dtype)
        n = events.n_items
        columns, systems = np.zeros((n, n), np.float32), self.systems(events)
        for item in track(range(n), "solving"):
            h, v = require_moments(next(systems, None), ((n, n), (n,)), f"a system for each of the {n:,} items")
            with refuse_indefinite(f"H of column {item:,}"):
                columns[item] = solve(with_unit_diagonal(h), v, assume_a="pos", overwrite_a=True)
        return SparseWeights(sp.csr_array(columns.T))


class LowRankRegression(SecondMomentRecipe):
    """Base of linear autoencoders of low rank in which all items share Σxx   (the DEQL paper, 2026, Theorem B.1).

    Subclass it, declare the parameters, `rank` among them, and return the moments.
    """

    rank: int

    @abstractmethod
    def moments(self, events: Interactions) -> tuple[np.ndarray, np.ndarray]:
        """Return Σxx = E[X̃ᵀX̃] and Σxy = E[X̃ᵀY], both items × items. An L2 penalty is added to the diagonal of Σxx."""

    def fit_scorer(self, events: Interactions, dtype: type) -> LowRankWeights:
        self.require_small(events, dtype)
        n = events.n_items
        require_rank(self.rank, n, events)
        xx, xy = require_moments(self.moments(events), ((n, n), (n, n)), f"two arrays of {n:,} × {n:,}")
        with refuse_indefinite("Σxx"):
            lower = cholesky(with_unit_diagonal(xx), lower=True, overwrite_a=True)
        u, sigma, vt = svd(solve_triangular(lower, xy, lower=True), full_matrices=False, overwrite_a=True)
        encoder = solve_triangular(lower, u[:, : self.rank] * sigma[: self.rank], lower=True, trans=1)
        return LowRankWeights(encoder, vt[: self.rank].T)


def require_moments(
    arrays: tuple[np.ndarray, ...] | None, shapes: tuple[tuple[int, ...], ...], expected: str
) -> tuple[np.ndarray, ...]:
    """Return finite arrays of these shapes, or refuse what a subclass returned."""
    if arrays is None:
        raise InvalidInput(expected, "fewer", "Yield one for every column of events.matrix")
    converted = tuple(np.asarray(array, np.float64) for array in arrays)
    got = tuple(array.shape for array in converted)
    if got != shapes or not all(np.isfinite(array).all() for array in converted):
        raise InvalidInput(f"finite arrays of the shapes {shapes}", f"{got}", "Return E[X̃ᵀX̃] and E[X̃ᵀY]")
    return converted


def with_unit_diagonal(h: np.ndarray) -> np.ndarray:
    """Return a copy with 1 where the diagonal is 0: such a row of a positive semidefinite matrix is 0, and so is its weight."""
    copy = h.copy()
    diagonal = np.diagonal(copy)
    copy[np.diag_indices(len(copy))] = np.where(diagonal == 0, 1, diagonal)
    return copy


@contextmanager
def refuse_indefinite(name: str) -> Iterator[None]:
    """Turn the failure of a Cholesky decomposition into `InvalidInput`: a fit in float64 would fail again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", LinAlgWarning)
            yield
    except (LinAlgError, LinAlgWarning):
        do = "Add an l2 to its diagonal"
        raise InvalidInput(f"{name} to be positive definite", "a singular or indefinite matrix", do) from None
