"""Neighbourhood models: similarities between items, of which each item keeps its `neighbours` largest.

With s the number of users of each item and u the number of items of each user,

    ItemKNN   cosine   W_ij = x_i·x_j / (|x_i||x_j| + shrinkage)      for the columns x_i of X
              bm25     the same without the lengths, W_ij = y_i·y_j, for the columns y_i of X weighted by BM25
    RP3beta            W_ij = s_i^-α · Σ_u x_ui u^-α x_uj · s_j^-β

RP3beta is a random walk of three steps, user → item → user → item, whose probabilities are raised to the power α, and whose
scores are divided by the popularity of the item to the power β   (Paudel et al. 2017).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.data.interactions import Interactions
from gramian.data.weights import compute_weights
from gramian.linalg.memory import require_memory
from gramian.linalg.neighbours import nearest_neighbours
from gramian.linalg.sparse import normalise_rows, squared_column_norms
from gramian.models.parameters import neighbours_param
from gramian.models.scorers import SparseWeights


class NeighbourRecipe(Recipe):
    """A model of a few similar items for each item."""

    neighbours: int

    def keep_neighbours(
        self, events: Interactions, x: sp.csr_array, a: np.ndarray, b: np.ndarray, shrinkage: float = 0.0
    ) -> SparseWeights:
        """Return the largest weights S_ij·a_i·b_j of every item, with S the Gram matrix of x."""
        self.require_fit_memory(events)
        return SparseWeights(nearest_neighbours(x, a, b, shrinkage, self.neighbours))

    def require_fit_memory(self, events: Interactions) -> None:
        """Raise `NotEnoughMemory` if the fit does not fit into memory."""
        require_memory(self.fit_bytes(events, np.float32), f"{self.neighbours:,} neighbours of each item", "Keep fewer")

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        by_row_and_column = 12 * events.n_interactions
        return by_row_and_column + 40 * events.n_items * min(self.neighbours, events.n_items)


@configurable
class ItemKNN(NeighbourRecipe):
    """Item-based nearest neighbours, by cosine or by BM25   (Deshpande and Karypis 2004)."""

    neighbours: int = neighbours_param()
    similarity: str = param("cosine", "how items are compared", choices=("cosine", "bm25"), tries=("cosine", "bm25"))
    shrinkage: float = param(
        0.0, "number added to the product of lengths in a cosine: lowers similarities of rare items", at_least=0,
        tries=(0, 10, 100),
    )  # fmt: skip

    def fit_scorer(self, events: Interactions, dtype: type) -> SparseWeights:
        x, ones = events.matrix, np.ones(events.n_items)
        if self.similarity == "bm25":
            weighted = sp.csr_array((compute_weights("bm25", x, x), x.indices, x.indptr), x.shape)
            return self.keep_neighbours(events, weighted, ones, ones)
        lengths = np.sqrt(np.maximum(squared_column_norms(x), np.finfo(np.float32).tiny))
        return self.keep_neighbours(events, x, 1 / lengths, 1 / lengths, self.shrinkage)


@configurable
class RP3beta(NeighbourRecipe):
    """Three steps of a random walk on the graph of users and items, with popular items scaled down   (Paudel et al. 2017)."""

    needs_binary = True  # degrees are counts

    neighbours: int = neighbours_param()
    alpha: float = param(1.0, "power of the probability of a step", at_least=0, tries=(0.6, 0.8, 1, 1.2))
    beta: float = param(0.6, "power of the popularity that scores are divided by", at_least=0, tries=(0.2, 0.4, 0.6, 0.8))

    def fit_scorer(self, events: Interactions, dtype: type) -> SparseWeights:
        self.require_binary(events.is_binary)
        s = np.maximum(events.popularity, 1.0)
        return self.keep_neighbours(events, normalise_rows(events.matrix, self.alpha / 2, dtype), s**-self.alpha, s**-self.beta)
