"""Low-rank autoencoders that truncate a full-rank one to two thin factors, W = encoder · decoderᵀ.

With a full-rank W* = diag(c) − P diag(t) (autoencoders.py) and C = P⁻¹ = S + diag(Λ), truncation projects W = W* Q Qᵀ on the
top eigenvectors Q of

    W*ᵀ C W*    its output (the best approximation under the model's own loss), or of
    W*ᵀ W*      the weights themselves (the truncated SVD).

Neither matrix is formed: C is applied through the sparse X, and P is the only dense matrix. Where only the Gram is known, as
when a cluster summed it, it takes the place of X.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable

import numpy as np

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import Counts
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.linalg.eigen import eigenpairs_bytes, top_eigenpairs
from gramian.linalg.inverse import SymmetricOperator
from gramian.linalg.symmetric import stored_size
from gramian.models.autoencoders import DLAE, EDLAE
from gramian.models.full_rank import LinearAutoencoder
from gramian.models.parameters import dropout_param, l2_param, rank_param
from gramian.models.scorers import InverseWeights, LowRankWeights
from gramian.models.spectral import GramSource, SpectralRecipe, gram_diagonal, gram_operator


def fit_full_rank(recipe: LinearAutoencoder, source: GramSource, dtype: type) -> InverseWeights:
    """Fit a full-rank autoencoder, leaving a Gram as it is."""
    scorer: Scorer = recipe.solve(source, False) if isinstance(source, Gram) else recipe.fit_scorer(source, dtype)
    assert isinstance(scorer, InverseWeights)
    return scorer


def apply_weights(weights: InverseWeights, right: np.ndarray) -> np.ndarray:
    """Return W* · right."""
    return weights.diagonal[:, None] * right - weights.inverse @ (weights.factor[:, None] * right)


class OutputGram:
    """W*ᵀ C W* = diag(c) S W* + diag(cΛ − t) W*, for W* = diag(c) − P diag(t) and C = P⁻¹ = S + diag(Λ), as an operator.

    It is not expanded further, because that would cancel digits: for a large Λ all terms are large, and their sum is not.
    """

    def __init__(self, weights: InverseWeights, gram: SymmetricOperator, penalty: np.ndarray) -> None:
        self.weights, self.n, self.dtype = weights, weights.n_items, weights.inverse.dtype
        remainder = weights.diagonal.astype(np.float64) * penalty - weights.factor
        self.gram, self.remainder = gram, remainder.astype(self.dtype)[:, None]

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        image = apply_weights(self.weights, right)
        return self.weights.diagonal[:, None] * (self.gram @ image) + self.remainder * image


class WeightsGram:
    """W*ᵀ W* as an operator."""

    def __init__(self, weights: InverseWeights) -> None:
        self.weights, self.n, self.dtype = weights, weights.n_items, weights.inverse.dtype

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        c, t = self.weights.diagonal[:, None], self.weights.factor[:, None]
        image = apply_weights(self.weights, right)
        return c * image - t * (self.weights.inverse @ image)


class ProjectedAutoencoder(SpectralRecipe):
    """Projects a full-rank autoencoder on its most important directions."""

    truncate = "output"

    @property
    @abstractmethod
    def full_rank(self) -> LinearAutoencoder:
        """The recipe that is truncated."""

    @property
    def decomposition(self) -> Hashable:
        return self.full_rank, self.truncate

    def decompose(self, source: GramSource, rank: int, dtype: type) -> LowRankWeights:
        return self.project(fit_full_rank(self.full_rank, source, dtype), source, rank)

    def project(self, weights: InverseWeights, source: GramSource, rank: int) -> LowRankWeights:
        """Project the weights of the full-rank model."""
        penalty = self.full_rank.coefficients.penalty(gram_diagonal(source))
        gram = gram_operator(source, weights.inverse.dtype.type)
        operator = OutputGram(weights, gram, penalty) if self.truncate == "output" else WeightsGram(weights)
        q = top_eigenpairs(operator, rank).vectors
        return LowRankWeights(apply_weights(weights, q), q)

    def truncate_to_scorer(self, decomposition: LowRankWeights) -> LowRankWeights:
        return LowRankWeights(decomposition.encoder[:, : self.rank], decomposition.decoder[:, : self.rank])

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n, itemsize = events.n_items, np.dtype(dtype).itemsize
        decomposition = stored_size(n) * itemsize + eigenpairs_bytes(n, self.rank, itemsize)
        return max(self.full_rank.fit_bytes(events, dtype), decomposition)


@configurable
class LowRankDLAE(ProjectedAutoencoder):
    """DLAE of low rank: its own loss with  rank(W) ≤ rank   (landscape paper, 2022, case 10).

    Low-rank DEQL with a = b has these weights divided by 1 − dropout.
    """

    rank: int = rank_param()
    dropout: float = dropout_param()
    l2: float = l2_param()

    @property
    def full_rank(self) -> LinearAutoencoder:
        return DLAE(self.dropout, self.l2)


@configurable
class LowRankEDLAE(ProjectedAutoencoder):
    """EDLAE truncated to low rank   (landscape paper, 2022, cases 11 and 12).

    `truncate="output"` gives the best approximation of the output X·W (case 11), "weights" that of W itself (case 12).
    """

    rank: int = rank_param()
    dropout: float = dropout_param()
    l2: float = l2_param()
    truncate: str = param("output", "what to truncate", choices=("output", "weights"))

    @property
    def full_rank(self) -> LinearAutoencoder:
        return EDLAE(self.dropout, self.l2)

    def lossless_rank(self, counts: Counts) -> int:
        return counts.n_items  # EDLAE's weights have this rank even where there are fewer users
