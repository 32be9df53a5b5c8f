"""Models made of one truncated decomposition, which serves every smaller rank and every way to shrink it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from gramian.core.gram import Gram
from gramian.core.recipe import Counts, GramRecipe, Recipe, require_rank
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.linalg.eigen import ImplicitGram, TopEigenpairs, eigenpairs_bytes, top_eigenpairs
from gramian.linalg.inverse import SymmetricOperator
from gramian.linalg.sparse import squared_column_norms

GramSource = Interactions | Gram  # X itself, or its Gram matrix where only that is known


class SpectralRecipe(GramRecipe):
    """A low-rank model from one decomposition."""

    rank: int

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        return False

    @property
    @abstractmethod
    def decomposition(self) -> Hashable:
        """A key: recipes with the same one share a decomposition."""

    @abstractmethod
    def decompose(self, source: GramSource, rank: int, dtype: type) -> Any:
        """Compute the decomposition up to this rank."""

    @abstractmethod
    def truncate_to_scorer(self, decomposition: Any) -> Scorer:
        """Return the scorer from a decomposition of its rank or more."""

    def highest_rank(self, counts: Counts) -> int:
        """Return the highest rank that the data can have."""
        return min(counts.n_users, counts.n_items)

    @property
    def full_rank(self) -> Recipe | None:
        """The recipe without the constraint on the rank, if there is one."""
        return None

    def lossless_rank(self, counts: Counts) -> int:
        """Return the rank from which on the model is that of `full_rank`."""
        return self.highest_rank(counts)

    def canonical_on(self, counts: Counts) -> Recipe:
        recipe = self.canonical()
        if not isinstance(recipe, SpectralRecipe) or recipe.full_rank is None or recipe.rank < recipe.lossless_rank(counts):
            return recipe
        return recipe.full_rank.canonical()

    def solve(self, gram: Gram, overwrite: bool) -> Scorer:
        return self.truncate_to_scorer(decompose_shared([self], gram, gram.matrix.dtype.type))

    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        return self.truncate_to_scorer(decompose_shared([self], events, dtype))

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return 8 * events.n_interactions + eigenpairs_bytes(events.n_items, self.rank, np.dtype(dtype).itemsize)


def decompose_shared(recipes: Sequence[SpectralRecipe], source: GramSource, dtype: type) -> Any:
    """Compute the decomposition that recipes share, up to the highest of their ranks."""
    rank = max(recipe.rank for recipe in recipes)
    require_rank(rank, recipes[0].highest_rank(source), source)
    return recipes[0].decompose(source, rank, dtype)


def gram_operator(source: GramSource, dtype: type) -> SymmetricOperator:
    """Return S as a linear operator: implicit through X, or the stored Gram."""
    return source.matrix if isinstance(source, Gram) else ImplicitGram(source.matrix, dtype)


def gram_diagonal(source: GramSource) -> np.ndarray:
    """Return the diagonal of S."""
    return source.matrix.diagonal() if isinstance(source, Gram) else squared_column_norms(source.matrix)


def right_singular_vectors(source: GramSource, rank: int, dtype: type) -> TopEigenpairs:
    """Return the top right singular vectors of X and the squares of its singular values."""
    return top_eigenpairs(gram_operator(source, dtype), rank)
