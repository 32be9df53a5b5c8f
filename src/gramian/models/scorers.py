"""Scorers that several models share, and weighted sums of scorers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.ranking import mix_panels
from gramian.core.registry import SCORERS
from gramian.core.scorer import (
    USERS_PER_BLOCK,
    Panels,
    SavedScorer,
    Scorer,
    SupportsExplanations,
    SupportsSimilarity,
    SupportsWeights,
    VisitPanel,
    align_panels,
    require_capability,
)
from gramian.io.damage import require_content
from gramian.io.sparse import load_csr, save_csr
from gramian.linalg.memory import require_memory
from gramian.linalg.product import (
    FEW_USERS,
    dense_panels,
    expand,
    inverse_panels,
    multiply_by_sparse,
    multiply_sparse,
    visit_inverse_panels,
)
from gramian.linalg.reranking import compare_symmetric, compare_vectors
from gramian.linalg.sparse import scale_columns
from gramian.linalg.symmetric import PANEL, Symmetric
from gramian.linalg.updated import UpdatedSymmetric
from gramian.validation import is_number

SPARSE_SCORES = 1 << 24  # scores of sparse weights that are in memory at once: 64 MB


class SymmetricWeights(Scorer):
    """W = M · diag(scale) + diag(diagonal) for a symmetric M, half of which is stored: W itself is never formed.

    Parameters
    ----------
    matrix
        M.
    scale, diagonal
        One number each per item.
    """

    name = "symmetric-weights"

    def __init__(self, matrix: Symmetric, scale: np.ndarray, diagonal: np.ndarray) -> None:
        self.matrix = matrix
        self.scale, self.diagonal = scale.astype(matrix.dtype), diagonal.astype(matrix.dtype)

    @property
    def n_items(self) -> int:
        return self.matrix.n

    def panels(self, histories: sp.csr_array) -> Panels:
        return inverse_panels(histories, self.matrix, self.scale, self.diagonal)

    def visit_panels(self, histories: sp.csr_array, visit: VisitPanel) -> None:
        if isinstance(self.matrix, UpdatedSymmetric) or self.matrix.is_full or histories.shape[0] <= FEW_USERS:
            super().visit_panels(histories, visit)
        else:
            visit_inverse_panels(histories, self.matrix, self.scale, self.diagonal, visit)

    def similar(self, item: int) -> np.ndarray:
        """Return M_ij / √(M_ii M_jj), the cosine of two items where M is a Gram matrix."""
        return normalised_row(self.matrix, item)

    def similarities(self, lists: np.ndarray) -> np.ndarray:
        return compare_normalised(self.matrix, lists)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        row = self.matrix.row(item).astype(np.float64)[history]
        return values * (row * self.scale[item] + (history == item) * self.diagonal[item])

    def weights(self) -> np.ndarray:
        weights = self.matrix.dense()
        weights *= self.scale
        weights[np.diag_indices(len(weights))] += self.diagonal
        return weights

    def save(self) -> SavedScorer:
        arrays = {"matrix": self.matrix.buffer, "scale": self.scale, "diagonal": self.diagonal}
        return {"n": self.matrix.n, "width": self.matrix.width}, arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> SymmetricWeights:
        return SymmetricWeights(*_load_symmetric(facts, arrays["matrix"], arrays["scale"], arrays["diagonal"]))


class InverseWeights(Scorer):
    """W = −P · diag(factor) + diag(diagonal) for an inverse P: the form of every full-rank linear autoencoder.

    Parameters
    ----------
    inverse
        P, half of which is stored, or all of it, perhaps with updates.
    factor, diagonal
        One number each per item.
    """

    name = "item-weights"

    def __init__(self, inverse: Symmetric, factor: np.ndarray, diagonal: np.ndarray) -> None:
        self.inverse = inverse
        self.measured: tuple[sp.csr_array, float] | None = None  # interactions, and the residual of P for them
        self.factor, self.diagonal = factor.astype(inverse.dtype), diagonal.astype(inverse.dtype)

    @property
    def n_items(self) -> int:
        return self.inverse.n

    @property
    def full_bytes(self) -> int:
        """The memory that the full P takes."""
        return self.n_items**2 * self.inverse.dtype.itemsize

    def expand(self, n_threads: int = 1) -> InverseWeights:
        """Return the same weights with the full P in memory: twice the bytes, and many times faster for a few users."""
        full = self.inverse if isinstance(self.inverse, UpdatedSymmetric) else expand(self.inverse, n_threads)
        return InverseWeights(full, self.factor, self.diagonal)

    def with_inverse(self, inverse: Symmetric) -> InverseWeights:
        """Return the same weights with P in another form."""
        weights = InverseWeights(inverse, self.factor, self.diagonal)
        weights.measured = self.measured
        return weights

    def compact(self) -> InverseWeights:
        """Return the same weights with half of P, which is what is saved."""
        return InverseWeights(self.inverse.halved(), self.factor, self.diagonal)

    @property
    def symmetric(self) -> SymmetricWeights:
        """The same weights as a scorer of the symmetric matrix P."""
        return SymmetricWeights(self.inverse, -self.factor, self.diagonal)

    def panels(self, histories: sp.csr_array) -> Panels:
        return self.symmetric.panels(histories)

    def visit_panels(self, histories: sp.csr_array, visit: VisitPanel) -> None:
        self.symmetric.visit_panels(histories, visit)

    def similar(self, item: int) -> np.ndarray:
        """Return −P_ij / √(P_ii P_jj), the partial correlation: how two items go together when all others are held fixed."""
        return -normalised_row(self.inverse, item)

    def similarities(self, lists: np.ndarray) -> np.ndarray:
        return -compare_normalised(self.inverse, lists)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return self.symmetric.contributions(history, values, item)

    def weights(self) -> np.ndarray:
        return self.symmetric.weights()

    def save(self) -> SavedScorer:
        stored, arrays = self.inverse, {"factor": self.factor, "diagonal": self.diagonal}
        if isinstance(self.inverse, UpdatedSymmetric):
            stored, arrays = self.inverse.base, arrays | {"left": self.inverse.left, "right": self.inverse.right}
        return {"n": stored.n, "width": stored.width}, {"inverse": stored.buffer} | arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> InverseWeights:
        base, *scales = _load_symmetric(facts, arrays["inverse"], arrays["factor"], arrays["diagonal"])
        if "left" not in arrays:
            return InverseWeights(base, *scales)
        left, right = arrays["left"], arrays["right"]
        require_content(left.ndim == 2 and left.shape == right.T.shape == (base.n, len(right)), "two factors of one rank")
        require_content(base.is_full and left.dtype == right.dtype == base.dtype, "factors beside a full matrix, of its type")
        return InverseWeights(UpdatedSymmetric(base, left, right), *scales)


def normalised_row(matrix: Symmetric, item: int) -> np.ndarray:
    """Return M_ij / √(M_ii M_jj) for all j; 0 where a diagonal entry is 0."""
    scale = correlation_scale(matrix)
    return matrix.row(item) * scale * scale[item]


def compare_normalised(matrix: Symmetric, lists: np.ndarray) -> np.ndarray:
    """Return M_ij / √(M_ii M_jj) for all pairs of columns in each list."""
    scale = correlation_scale(matrix)
    base = matrix.base if isinstance(matrix, UpdatedSymmetric) else matrix
    compared = np.asarray(compare_symmetric(lists, base.buffer, base.n, base.width, scale))
    if isinstance(matrix, UpdatedSymmetric):
        for pairs, columns in zip(compared, lists, strict=True):
            pairs -= (matrix.left[columns] * scale[columns, None]) @ (matrix.right[:, columns] * scale[columns])
    return compared


def correlation_scale(matrix: Symmetric) -> np.ndarray:
    """Return 1 / √|M_ii|; 0 where the diagonal entry is 0."""
    diagonal = matrix.diagonal()
    return np.divide(1, np.sqrt(np.abs(diagonal)), out=np.zeros(len(diagonal)), where=diagonal != 0)


def _load_symmetric(
    facts: dict[str, Any], buffer: np.ndarray, scale: np.ndarray, diagonal: np.ndarray
) -> tuple[Symmetric, np.ndarray, np.ndarray]:
    matrix = Symmetric.from_buffer(facts["n"], buffer, facts["width"])
    require_content({scale.shape, diagonal.shape} == {(matrix.n,)}, "a factor and a diagonal entry for every item")
    require_content(scale.dtype == diagonal.dtype == matrix.dtype, "factors and diagonal in the matrix' precision")
    return matrix, scale, diagonal


class LowRankWeights(Scorer):
    """W = encoder · decoderᵀ, two thin arrays: a history is encoded, and every item is scored in `rank` operations.

    Parameters
    ----------
    encoder, decoder
        Arrays of items × rank.
    """

    name = "low-rank"

    def __init__(self, encoder: np.ndarray, decoder: np.ndarray) -> None:
        self.encoder, self.decoder = (np.ascontiguousarray(array, np.float32) for array in (encoder, decoder))

    @property
    def n_items(self) -> int:
        return len(self.decoder)

    def panels(self, histories: sp.csr_array) -> Panels:
        return dense_panels(self.user_vectors(histories), self.decoder)

    def similar(self, item: int) -> np.ndarray:
        """Return the cosine between the decoder rows of items."""
        return cosine_similarities(self.decoder, item)

    def similarities(self, lists: np.ndarray) -> np.ndarray:
        return compare_vectors(lists, self.decoder)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return values * (self.encoder[history].astype(np.float64) @ self.decoder[item])

    def weights(self) -> np.ndarray:
        n = self.n_items
        require_memory(4 * n * n, f"dense {n:,} × {n:,} weights", "Use factors()")
        return self.encoder @ self.decoder.T

    def factors(self) -> dict[str, np.ndarray]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    def user_vectors(self, histories: sp.csr_array) -> np.ndarray:
        return multiply_sparse(histories, self.encoder)

    def save(self) -> SavedScorer:
        return {}, {"encoder": self.encoder, "decoder": self.decoder}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> LowRankWeights:
        encoder, decoder = arrays["encoder"], arrays["decoder"]
        require_content(encoder.ndim == 2 and encoder.shape == decoder.shape, "an encoder and a decoder of one shape")
        require_content(encoder.dtype == decoder.dtype == np.float32, "an encoder and a decoder in float32")
        return LowRankWeights(encoder, decoder)


def cosine_similarities(vectors: np.ndarray, row: int) -> np.ndarray:
    """Return the cosine of one vector with every vector; 0 with vectors of length 0."""
    length = np.sqrt(np.einsum("ik,ik->i", vectors, vectors))
    length[length == 0] = 1
    return vectors @ (vectors[row] / length[row]) / length


class SparseWeights(Scorer):
    """A sparse W.

    Parameters
    ----------
    matrix
        Items × items.
    """

    name = "sparse-weights"

    def __init__(self, matrix: sp.csr_array) -> None:
        self.matrix = matrix.astype(np.float32)
        self.by_column = self.matrix.tocsc()

    @property
    def n_items(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def users_per_block(self) -> int:
        return min(USERS_PER_BLOCK, max(1, SPARSE_SCORES // self.n_items))

    def panels(self, histories: sp.csr_array) -> Panels:
        yield 0, multiply_by_sparse(histories, self.matrix)

    def similar(self, item: int) -> np.ndarray:
        """Return the sum of both weights between two items, W_ij + W_ji."""
        return self.matrix[[item]].toarray()[0] + self.by_column[:, [item]].toarray()[:, 0]

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return values * self.by_column[:, [item]].toarray()[history, 0].astype(np.float64)

    def weights(self) -> np.ndarray:
        n = self.n_items
        require_memory(4 * n * n, f"dense {n:,} × {n:,} weights", "Use model.scorer.matrix")
        return self.matrix.toarray()

    def save(self) -> SavedScorer:
        return {}, save_csr(self.matrix)

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> SparseWeights:
        matrix = load_csr(arrays, len(arrays["indptr"]) - 1)
        require_content(matrix.dtype == np.float32, "weights in float32")
        return SparseWeights(matrix)


class GlobalScores(Scorer):
    """One score per item, the same for every user.

    Parameters
    ----------
    values
        The scores.
    """

    name = "same-for-all"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values.astype(np.float32)

    @property
    def n_items(self) -> int:
        return len(self.values)

    def panels(self, histories: sp.csr_array) -> Panels:
        for first in range(0, len(self.values), PANEL):
            yield first, np.tile(self.values[first : first + PANEL], (histories.shape[0], 1))

    def save(self) -> SavedScorer:
        return {}, {"values": self.values}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> GlobalScores:
        values = arrays["values"]
        require_content(values.ndim == 1 and values.dtype == np.float32, "one value for every item")
        return GlobalScores(values)


class ScorerSum(Scorer):
    """A weighted sum of scorers: scores = Σ weight · scores of each, optionally rescaled per item.

    With a history x, scorers W_k and weights w_k the scores are x · diag(history_scale) · (Σ_k w_k W_k) · diag(item_scale).

    Parameters
    ----------
    scorers
        Scorers of the same items.
    weights
        One number for each scorer.
    item_scale
        One factor per item, applied to the sum; 1 if left out.
    history_scale
        One factor per item, applied to the histories; 1 if left out.
    """

    name = "sum"

    def __init__(
        self,
        scorers: Sequence[Scorer],
        weights: Sequence[float],
        item_scale: np.ndarray | None = None,
        history_scale: np.ndarray | None = None,
    ) -> None:
        self.scorers, self.weights_of_scorers = list(scorers), [float(weight) for weight in weights]
        ones = np.ones(scorers[0].n_items, np.float32)
        self.item_scale = ones if item_scale is None else item_scale.astype(np.float32)
        self.history_scale = ones if history_scale is None else history_scale.astype(np.float32)

    @property
    def n_items(self) -> int:
        return self.scorers[0].n_items

    @property
    def capabilities(self) -> frozenset[type]:
        """The capabilities of a sum that all of its scorers have."""
        return super().capabilities & frozenset.intersection(*(scorer.capabilities for scorer in self.scorers))

    @property
    def users_per_block(self) -> int:
        return min(scorer.users_per_block for scorer in self.scorers)

    def panels(self, histories: sp.csr_array) -> Panels:
        scaled = scale_columns(histories, self.history_scale)
        for first, panels in align_panels([scorer.panels(scaled) for scorer in self.scorers]):
            total = mix_panels(panels, np.array(self.weights_of_scorers))
            yield first, total * self.item_scale[first : first + total.shape[1]]

    def similar(self, item: int) -> np.ndarray:
        """Return the weighted mean of the scorers' similarities."""
        similarities = [require_capability(scorer, SupportsSimilarity, scorer.name).similar(item) for scorer in self.scorers]
        return np.average(similarities, axis=0, weights=np.abs(self.weights_of_scorers))

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        pairs, scaled = zip(self.weights_of_scorers, self.scorers, strict=True), values * self.history_scale[history]
        parts = [
            weight * require_capability(scorer, SupportsExplanations, scorer.name).contributions(history, scaled, item)
            for weight, scorer in pairs
        ]
        return np.sum(parts, axis=0) * float(self.item_scale[item])

    def weights(self) -> np.ndarray:
        pairs = zip(self.weights_of_scorers, self.scorers, strict=True)
        weights = [weight * require_capability(scorer, SupportsWeights, scorer.name).weights() for weight, scorer in pairs]
        return np.sum(weights, axis=0) * self.item_scale * self.history_scale[:, None]

    def save(self) -> SavedScorer:
        saved = [scorer.save() for scorer in self.scorers]
        facts = [{"scorer": s.name, "facts": facts} for s, (facts, _) in zip(self.scorers, saved, strict=True)]
        arrays = {f"{number}.{name}": array for number, (_, by_name) in enumerate(saved) for name, array in by_name.items()}
        return {"scorers": facts, "weights": self.weights_of_scorers}, arrays | {
            "item_scale": self.item_scale,
            "history_scale": self.history_scale,
        }

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> ScorerSum:
        saved, weights, item_scale = facts["scorers"], facts["weights"], arrays["item_scale"]
        history_scale = arrays.get("history_scale", np.ones_like(item_scale))
        require_content(
            bool(saved) and len(saved) == len(weights) and all(map(is_number, weights)), "a weight for every scorer"
        )
        scorers = []
        for number, entry in enumerate(saved):
            prefix = f"{number}."
            scorer_arrays = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            scorers.append(SCORERS.find(entry["scorer"]).load(entry["facts"], scorer_arrays))
        require_content({scorer.n_items for scorer in scorers} == {len(item_scale)}, "scorers of the same items")
        is_typed = item_scale.dtype == history_scale.dtype == np.float32
        require_content(is_typed and item_scale.shape == history_scale.shape, "two scales for every item")
        return ScorerSum(scorers, weights, item_scale, history_scale)
