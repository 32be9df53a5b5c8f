"""SVD-AE: the linear autoencoder from the truncated pseudo-inverse of the normalised interactions   (Hong et al. 2024).

With R̃ = diag(u)^-½ X diag(s)^-½ ≈ U diag(σ) Vᵀ, its top `rank` singular values and vectors, W minimises ‖X − R̃W‖ on the top
singular vectors, and a history x is normalised as a row of R̃ is:

    W = V diag(1/σ) Uᵀ X = V diag(1/σ²) VᵀR̃ᵀ X,      scores |x|^-½ · x · diag(s)^-½ · W.

The factor |x|^-½ of a user changes no list and is left out. No n × n matrix is formed.
"""

from __future__ import annotations

import numpy as np

from gramian.core.params import configurable
from gramian.core.recipe import Recipe, require_rank
from gramian.data.interactions import Interactions
from gramian.linalg.eigen import ImplicitGram, eigenpairs_bytes, top_eigenpairs
from gramian.linalg.memory import require_memory
from gramian.models.graph_filter import SYMMETRIC, normalise
from gramian.models.parameters import rank_param
from gramian.models.scorers import LowRankWeights


@configurable
class SVDAE(Recipe):
    """Linear autoencoder from a truncated pseudo-inverse of the normalised interactions   (Hong et al. 2024)."""

    needs_binary = True  # degrees are counts

    rank: int = rank_param()

    def fit_scorer(self, events: Interactions, dtype: type) -> LowRankWeights:
        self.require_binary(events.is_binary)
        require_rank(self.rank, min(events.n_users, events.n_items), events)
        require_memory(self.fit_bytes(events, dtype), f"{self.rank:,} eigenvectors", "Choose a lower rank")
        normalised = normalise(events, SYMMETRIC, dtype)
        top = top_eigenpairs(ImplicitGram(normalised, dtype), self.rank)
        noise = 10 * np.finfo(dtype).eps * top.values[0]  # σ² below it is rounding error
        inverse = np.where(top.values > noise, 1 / np.maximum(top.values, noise), 0).astype(top.vectors.dtype)
        user_vectors = normalised @ (top.vectors * inverse)
        decoder = events.matrix.T @ user_vectors
        del user_vectors
        return LowRankWeights(top.vectors / np.sqrt(np.maximum(events.popularity, 1)).astype(dtype)[:, None], decoder)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        itemsize = np.dtype(dtype).itemsize
        vectors = (events.n_users + 3 * events.n_items) * self.rank * itemsize  # of users; of items, twice, and the decoder
        return itemsize * events.n_interactions + max(eigenpairs_bytes(events.n_items, self.rank, itemsize), vectors)
