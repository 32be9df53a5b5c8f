"""Fit many recipes on the same interactions, doing only once what they share: the Gram, an inverse, a product.

Full-rank autoencoders whose penalty Λ = slope·s + ridge agrees, such as DEQL at any kept_weight, share an inverse and the
product with it. Those of one slope may share an eigendecomposition, where there are many ridges and few users. Low-rank models
share a decomposition, whatever their rank and shrinkage. Recipes that differ only in n_epochs share a training.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.epochs import EpochRecipe
from gramian.core.gram import Gram
from gramian.core.recipe import GramRecipe, Recipe, require_rank, retry_in_float64
from gramian.core.scorer import Panels, Scorer
from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate, InvalidInput
from gramian.linalg.eigen import Spectrum, is_decomposition_cheaper, spectrum_bytes
from gramian.linalg.inverse import TOLERANCE, inverse_residual
from gramian.linalg.memory import available_bytes
from gramian.linalg.product import dense_panels, inverse_panels, multiply_sparse
from gramian.linalg.sparse import squared_column_norms
from gramian.linalg.symmetric import Symmetric
from gramian.models.full_rank import LinearAutoencoder
from gramian.models.scorers import InverseWeights
from gramian.models.spectral import SpectralRecipe, decompose_shared

Ridges = dict[float, list[LinearAutoencoder]]


@dataclass(frozen=True)
class SharedFit:
    """Fitted recipes whose scores differ only by a scale per item.

    Parameters
    ----------
    recipes
        The recipes.
    panels
        The scores before scaling, as a scorer's `panels`.
    scales
        Recipes × items.
    inverse
        The inverse they share, if they do.
    """

    recipes: list[Recipe]
    panels: Callable[[sp.csr_array], Panels]
    scales: np.ndarray
    inverse: Symmetric | None = None

    def subset(self, members: Sequence[int]) -> SharedFit:
        """Return the fit with some of the recipes."""
        return replace(self, recipes=[self.recipes[m] for m in members], scales=self.scales[list(members)])


class SharedFits:
    """Fits canonical recipes on the same interactions. `n_users` is how many users will be scored with each fit."""

    def __init__(self, train: Interactions, dtype: type, n_users: float) -> None:
        self.train, self.dtype, self.n_users = train, dtype, n_users
        self.gram: Gram | None = None
        self.squared_norms = squared_column_norms(train.matrix)

    def fit(self, recipes: Sequence[Recipe]) -> Iterator[SharedFit]:
        """Fit all recipes, and yield those that share a fit together."""
        autoencoders: dict[float, Ridges] = {}
        spectral: dict[Hashable, list[SpectralRecipe]] = {}
        trainings: dict[Recipe, dict[int, EpochRecipe]] = {}
        for recipe in recipes:
            if isinstance(recipe, LinearAutoencoder):
                slope, ridge = recipe.coefficients.slope, recipe.coefficients.ridge
                autoencoders.setdefault(slope, {}).setdefault(ridge, []).append(recipe)
            elif isinstance(recipe, SpectralRecipe):
                spectral.setdefault(recipe.decomposition, []).append(recipe)
            elif isinstance(recipe, EpochRecipe):
                key = replace(recipe, n_epochs=1)  # type: ignore[type-var]
                trainings.setdefault(key, {})[recipe.n_epochs] = recipe
            else:
                yield from self.fit_one(recipe, lambda recipe=recipe: self.fit_scorer(recipe))  # type: ignore[misc]
        for by_epochs in trainings.values():
            yield from self.fit_epochs(by_epochs)
        for spectral_members in spectral.values():
            yield from self.fit_spectral(spectral_members)
        for ridges in autoencoders.values():
            spectrum = self.shared_spectrum(ridges)
            for members in ridges.values():
                if spectrum is None:
                    yield from self.fit_by_inverse(members)
                else:
                    yield self.fit_by_spectrum(members, spectrum)

    def fit_one(self, recipe: Recipe, fit: Callable[[], Scorer]) -> Iterator[SharedFit]:
        """Yield a fit of one recipe, or warn where it makes no sense for these interactions."""
        try:
            scorer = fit()
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{recipe} is left out: {error}", stacklevel=2)
            return
        yield SharedFit([recipe], scorer.panels, np.ones((1, self.train.n_items), np.float32))

    def fit_epochs(self, by_epochs: dict[int, EpochRecipe]) -> Iterator[SharedFit]:
        """Train once for recipes that differ only in their number of epochs, or warn where they make no sense here."""
        longest = by_epochs[max(by_epochs)]
        try:
            for epoch in longest.epochs(self.train, dtype=self.dtype):
                if epoch.number in by_epochs:
                    scorer = epoch.model.scorer
                    yield from self.fit_one(by_epochs[epoch.number], lambda scorer=scorer: scorer)  # type: ignore[misc]
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{longest} is left out: {error}", stacklevel=2)

    def fit_spectral(self, members: Sequence[SpectralRecipe]) -> Iterator[SharedFit]:
        """Decompose once for all ranks and shrinkages."""
        possible = [recipe for recipe in members if recipe.rank <= recipe.highest_rank(self.train)]
        decomposition = (
            retry_in_float64(lambda dtype: decompose_shared(possible, self.train, dtype), self.dtype) if possible else None
        )

        def truncate(recipe: SpectralRecipe) -> Scorer:
            require_rank(recipe.rank, recipe.highest_rank(self.train), self.train)
            return recipe.truncate_to_scorer(decomposition)

        for recipe in members:
            yield from self.fit_one(recipe, lambda recipe=recipe: truncate(recipe))  # type: ignore[misc]

    def fit_scorer(self, recipe: Recipe) -> Scorer:
        """Fit a recipe that shares at most the Gram."""
        if isinstance(recipe, GramRecipe) and recipe.needs_dense_gram:
            return retry_in_float64(lambda dtype: self.solve(recipe, dtype), self.dtype)
        return retry_in_float64(lambda dtype: recipe.fit_scorer(self.train, dtype), self.dtype)

    def fit_by_inverse(self, members: Sequence[LinearAutoencoder]) -> Iterator[SharedFit]:
        """Invert once for recipes of one penalty, or warn where the inverse does not exist."""
        try:
            scorer = retry_in_float64(lambda dtype: self.solve(members[0], dtype), self.dtype)
        except Inaccurate as error:
            warnings.warn(f"{members[0]} and recipes with the same inverse are left out: {error}", stacklevel=2)
            return
        assert isinstance(scorer, InverseWeights)
        inverse = scorer.inverse
        minus_one, zero = -np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
        scales = self.scales(members, inverse.diagonal()).astype(inverse.dtype)
        yield SharedFit(list(members), lambda histories: inverse_panels(histories, inverse, minus_one, zero), scales, inverse)

    def fit_by_spectrum(self, members: Sequence[LinearAutoencoder], spectrum: Spectrum) -> SharedFit:
        """Use an eigendecomposition in place of the inverse."""
        inverse = spectrum.inverse(members[0].coefficients.ridge)
        scales = self.scales(members, inverse.diagonal()).astype(inverse.dtype)

        def panels(histories: sp.csr_array) -> Panels:
            return dense_panels(multiply_sparse(histories, spectrum.vectors) * -inverse.shrunk, spectrum.vectors)

        return SharedFit(list(members), panels, scales)

    def scales(self, members: Sequence[LinearAutoencoder], p_ii: np.ndarray) -> np.ndarray:
        """Return the scale of each recipe and item."""
        return np.array([member.coefficients.scale(p_ii, self.squared_norms) for member in members])

    def solve(self, recipe: GramRecipe, dtype: type) -> Any:
        """Solve from the Gram, which is kept for the next recipe where memory allows."""
        if self.gram is None or self.gram.matrix.dtype != dtype or self.gram.is_normalised != recipe.normalised:
            self.gram = None
            gram = Gram.of(self.train, dtype, normalised=recipe.normalised)
            if recipe.fit_bytes(self.train, dtype) > available_bytes():
                return recipe.solve_gram(gram, overwrite=True)
            self.gram = gram
        return recipe.solve_gram(self.gram, overwrite=False)

    def shared_spectrum(self, ridges: Ridges) -> Spectrum | None:
        """Return the eigendecomposition that serves all ridges of a slope, if it is cheaper, fits and is accurate enough."""
        n, itemsize = self.train.n_items, np.dtype(self.dtype).itemsize
        least = ridges[min(ridges)][0].coefficients
        diagonal = (1 + least.slope) * self.squared_norms
        is_definite = (diagonal + least.ridge).min() > 0
        is_cheaper = is_decomposition_cheaper(len(ridges), self.n_users, n)
        if not (is_definite and is_cheaper and spectrum_bytes(n, itemsize) < available_bytes()):
            return None
        matrix = Gram.of(self.train, self.dtype).matrix
        matrix.change_diagonal(lambda old, first, last: old + least.slope * self.squared_norms[first:last])
        spectrum = Spectrum.of(matrix)
        inverse, penalty = spectrum.inverse(least.ridge), least.penalty(self.squared_norms)
        residual = inverse_residual(inverse, self.train.matrix, self.squared_norms, penalty)
        return spectrum if residual < TOLERANCE[matrix.dtype] else None
