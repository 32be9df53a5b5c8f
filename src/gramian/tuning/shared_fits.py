"""Fit many recipes on the same interactions, doing only once what they share: the Gram, an inverse, a product.

Full-rank autoencoders whose penalty Λ = slope·s + ridge agrees, such as DEQL at any kept_weight, share an inverse and the
product with it. Those of one slope may share an eigendecomposition, where there are many ridges and few users. Low-rank models
share a decomposition, whatever their rank and shrinkage. L3AE shares an inverse and both products for all values of
prior_weight, AddEASE for all values of feature_share. Recipes that differ only in n_epochs share a training. Sums of
the same scorers with other weights, such as blends and graph filters at any low_pass, share the products with each scorer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.epochs import EpochRecipe
from gramian.core.gram import Gram
from gramian.core.ranking import rank_scaled
from gramian.core.recipe import GramRecipe, Recipe, require_rank, retry_in_float64
from gramian.core.scorer import USERS_PER_BLOCK, Panels, Scorer
from gramian.data.catalog import Catalog
from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate, InvalidInput
from gramian.linalg.eigen import Spectrum, is_decomposition_cheaper, spectrum_bytes
from gramian.linalg.inverse import TOLERANCE, inverse_residual
from gramian.linalg.memory import available_bytes
from gramian.linalg.product import dense_panels, inverse_panels, multiply_sparse
from gramian.linalg.sparse import scale_columns, squared_column_norms
from gramian.linalg.symmetric import Symmetric
from gramian.models.add_ease import AddEASE
from gramian.models.blend import Blend, measure_spread
from gramian.models.dan import DAN
from gramian.models.full_rank import LinearAutoencoder
from gramian.models.l3ae import L3AE
from gramian.models.scorers import InverseWeights, ScorerSum
from gramian.models.sgfcf import SGFCF
from gramian.models.spectral import SpectralRecipe, decompose_shared

Ridges = dict[float, list[LinearAutoencoder]]


@dataclass(frozen=True)
class SharedFit:
    """Fitted recipes whose scores are weighted sums of the same terms, times a scale per item.

    Parameters
    ----------
    recipes
        The recipes.
    terms
        The scores they share, each as a scorer's `panels`.
    mix
        The weights of the terms, recipes × terms.
    scales
        Recipes × items.
    inverse
        The inverse they share, if they do.
    users_per_block
        How many users are scored at once.
    encoder
        The scorer whose values the histories must have, if they are not the plain weights.
    """

    recipes: list[Recipe]
    terms: Sequence[Callable[[sp.csr_array], Panels]]
    mix: np.ndarray
    scales: np.ndarray
    inverse: Symmetric | None = None
    users_per_block: int = USERS_PER_BLOCK
    encoder: Scorer | None = None

    def subset(self, members: Sequence[int]) -> SharedFit:
        """Return the fit with some of the recipes."""
        rows = list(members)
        return replace(self, recipes=[self.recipes[m] for m in rows], mix=self.mix[rows], scales=self.scales[rows])

    def rank(self, histories: sp.csr_array, catalog: Catalog, k: int) -> np.ndarray:
        """Return the lists of all histories under each recipe: recipes × users × k columns."""
        starts = range(0, histories.shape[0], self.users_per_block)
        blocks = (histories[start : start + self.users_per_block] for start in starts)
        lists = [rank_scaled(self.terms, self.mix, self.scales, catalog, block, k) for block in blocks]
        return np.concatenate(lists).swapaxes(0, 1)


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
        normalised: dict[DAN, list[DAN]] = {}
        blends: dict[tuple[Recipe, Recipe], list[Blend]] = {}
        filters: dict[Recipe, list[SGFCF]] = {}
        with_features: dict[Recipe, list[AddEASE | L3AE]] = {}
        for recipe in recipes:
            if isinstance(recipe, LinearAutoencoder):
                slope, ridge = recipe.coefficients.slope, recipe.coefficients.ridge
                autoencoders.setdefault(slope, {}).setdefault(ridge, []).append(recipe)
            elif isinstance(recipe, SpectralRecipe):
                spectral.setdefault(recipe.decomposition, []).append(recipe)
            elif isinstance(recipe, EpochRecipe):
                key = replace(recipe, n_epochs=1)  # type: ignore[type-var]
                trainings.setdefault(key, {})[recipe.n_epochs] = recipe
            elif isinstance(recipe, DAN):
                normalised.setdefault(replace(recipe, item_power=0, max_diagonal=0), []).append(recipe)
            elif isinstance(recipe, Blend):
                blends.setdefault((recipe.first, recipe.second), []).append(recipe)
            elif isinstance(recipe, SGFCF):
                filters.setdefault(without_free_params(recipe), []).append(recipe)
            elif isinstance(recipe, AddEASE | L3AE):
                with_features.setdefault(without_free_params(recipe), []).append(recipe)
            else:
                yield from self.fit_one(recipe, lambda recipe=recipe: self.fit_scorer(recipe))  # type: ignore[misc]
        for same_inverse in normalised.values():
            yield from self.fit_normalised(same_inverse)
        for same_members in blends.values():
            yield from self.fit_blends(same_members)
        for same_filters in filters.values():
            yield from self.fit_filters(same_filters)
        for same_terms in with_features.values():
            yield from self.fit_feature_terms(same_terms)
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
        for shared in share_products([(recipe, scorer)]):
            yield replace(shared, encoder=scorer)

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

        by_products: dict[Recipe, list[SpectralRecipe]] = {}
        for recipe in members:
            by_products.setdefault(without_free_params(recipe), []).append(recipe)
        for same_products in by_products.values():
            pairs = []
            for recipe in same_products:
                try:
                    pairs.append((recipe, truncate(recipe)))
                except (InvalidInput, Inaccurate) as error:
                    warnings.warn(f"{recipe} is left out: {error}", stacklevel=2)
            yield from share_products(pairs)

    def fit_normalised(self, members: Sequence[DAN]) -> Iterator[SharedFit]:
        """Invert once for recipes that differ in item_power and max_diagonal, and multiply once for each item_power."""
        try:
            scorer = self.fit_scorer(members[0])
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{members[0]} and recipes with the same inverse are left out: {error}", stacklevel=2)
            return
        inverse = scorer.scorers[0].inverse  # type: ignore[attr-defined]
        minus_one, zero = -np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
        by_power: dict[float, list[DAN]] = {}
        for recipe in members:
            by_power.setdefault(recipe.item_power, []).append(recipe)
        for same_power in by_power.values():
            sums = [recipe.scorer_from_inverse(inverse, self.train.popularity) for recipe in same_power]
            scales = np.array([total.item_scale * total.scorers[0].factor for total in sums])  # type: ignore[attr-defined]

            def panels(histories: sp.csr_array, scale: np.ndarray = sums[0].history_scale) -> Panels:
                return inverse_panels(scale_columns(histories, scale), inverse, minus_one, zero)

            yield SharedFit(list(same_power), [panels], np.ones((len(sums), 1)), scales)

    def fit_blends(self, members: Sequence[Blend]) -> Iterator[SharedFit]:
        """Fit both models once for blends of the same two, or warn where one makes no sense for these interactions."""
        try:
            scorers = [self.fit_scorer(model) for model in (members[0].first, members[0].second)]
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{members[0]} and blends of the same models are left out: {error}", stacklevel=2)
            return
        spreads = [measure_spread(scorer, self.train) for scorer in scorers]
        yield from share_products([(recipe, recipe.blend_scorers(scorers, spreads)) for recipe in members])

    def fit_filters(self, members: Sequence[SGFCF]) -> Iterator[SharedFit]:
        """Fit once for filters that differ only in high_pass, or warn where they make no sense for these interactions."""
        try:
            fitted = self.fit_scorer(members[0])
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{members[0]} and filters of the same terms are left out: {error}", stacklevel=2)
            return
        assert isinstance(fitted, ScorerSum)
        yield from share_products([(recipe, recipe.weigh_terms(fitted)) for recipe in members])

    def fit_feature_terms(self, members: Sequence[AddEASE | L3AE]) -> Iterator[SharedFit]:
        """Fit the models of interactions and of features once for all weights of the two, or warn where they make no sense."""
        try:
            terms = retry_in_float64(lambda dtype: self.solve(members[0], dtype, type(members[0]).solve_terms), self.dtype)
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{members[0]} and recipes with the same terms are left out: {error}", stacklevel=2)
            return
        yield from share_products([(recipe, ScorerSum(terms, recipe.term_weights)) for recipe in members])

    def fit_scorer(self, recipe: Recipe) -> Scorer:
        """Fit a recipe that shares at most the Gram."""
        if isinstance(recipe, GramRecipe) and recipe.needs_dense_gram(self.train, self.dtype):
            return retry_in_float64(lambda dtype: self.solve(recipe, dtype), self.dtype)
        return retry_in_float64(lambda dtype: recipe.fit_scorer(self.train, dtype), self.dtype)

    def fit_by_inverse(self, members: Sequence[LinearAutoencoder]) -> Iterator[SharedFit]:
        """Invert once for recipes of one penalty, or warn where the inverse does not exist."""
        try:
            scorer = self.fit_scorer(members[0])
        except Inaccurate as error:
            warnings.warn(f"{members[0]} and recipes with the same inverse are left out: {error}", stacklevel=2)
            return
        assert isinstance(scorer, InverseWeights)
        inverse = scorer.inverse
        minus_one, zero = -np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
        scales = self.scales(members, inverse.diagonal()).astype(inverse.dtype)
        panels = partial(inverse_panels, matrix=inverse, factor=minus_one, diagonal=zero)
        yield SharedFit(list(members), [panels], np.ones((len(scales), 1)), scales, inverse)

    def fit_by_spectrum(self, members: Sequence[LinearAutoencoder], spectrum: Spectrum) -> SharedFit:
        """Use an eigendecomposition in place of the inverse."""
        inverse = spectrum.inverse(members[0].coefficients.ridge)
        scales = self.scales(members, inverse.diagonal()).astype(inverse.dtype)

        def panels(histories: sp.csr_array) -> Panels:
            return dense_panels(multiply_sparse(histories, spectrum.vectors) * -inverse.shrunk, spectrum.vectors)

        return SharedFit(list(members), [panels], np.ones((len(scales), 1)), scales)

    def scales(self, members: Sequence[LinearAutoencoder], p_ii: np.ndarray) -> np.ndarray:
        """Return the scale of each recipe and item."""
        return np.array([member.coefficients.scale(p_ii, self.squared_norms) for member in members])

    def solve(self, recipe: GramRecipe, dtype: type, solve: Callable[..., Any] = GramRecipe.solve_gram) -> Any:
        """Solve from the Gram, which is kept for the next recipe where memory allows."""
        if self.gram is None or self.gram.matrix.dtype != dtype or self.gram.powers != recipe.gram_powers:
            self.gram = None
            gram = Gram.of(self.train, dtype, **recipe.gram_powers._asdict())
            if recipe.fit_bytes(self.train, dtype) > available_bytes():
                return solve(recipe, gram, overwrite=True)
            self.gram = gram
        return solve(recipe, self.gram, overwrite=False)

    def shared_spectrum(self, ridges: Ridges) -> Spectrum | None:
        """Return the eigendecomposition that serves all ridges of a slope, if it is cheaper, fits and is accurate enough."""
        n, itemsize = self.train.n_items, np.dtype(self.dtype).itemsize
        recipe = ridges[min(ridges)][0]
        least = recipe.coefficients
        diagonal = (1 + least.slope) * self.squared_norms
        is_definite = (diagonal + least.ridge).min() > 0
        inverts_items = recipe.needs_dense_gram(self.train, self.dtype)
        is_cheaper = inverts_items and is_decomposition_cheaper(len(ridges), self.n_users, n)
        if not (is_definite and is_cheaper and spectrum_bytes(n, itemsize) < available_bytes()):
            return None
        matrix = Gram.of(self.train, self.dtype).matrix
        matrix.change_diagonal(lambda old, first, last: old + least.slope * self.squared_norms[first:last])
        spectrum = Spectrum.of(matrix)
        inverse, penalty = spectrum.inverse(least.ridge), least.penalty(self.squared_norms)
        residual = inverse_residual(inverse, self.train.matrix, self.squared_norms, penalty)
        return spectrum if residual < TOLERANCE[matrix.dtype] else None


def without_free_params(recipe: Recipe) -> Recipe:
    """Return the recipe with the defaults of its free parameters, the same for recipes that differ in nothing else."""
    defaults = {f.name: f.default for f in recipe.param_fields() if f.metadata["free"]}
    return replace(recipe, **defaults)  # type: ignore[type-var]


def share_products(fits: Sequence[tuple[Recipe, Scorer]]) -> Iterator[SharedFit]:
    """Yield fits together whose scores are sums of the same scorers, so that the products with each are computed once."""
    groups: dict[Hashable, list[tuple[Recipe, ScorerSum]]] = {}
    for recipe, scorer in fits:
        total = scorer if isinstance(scorer, ScorerSum) else ScorerSum([scorer], [1])
        key = (*map(id, total.scorers), total.history_scale.tobytes())
        groups.setdefault(key, []).append((recipe, total))
    for group in groups.values():
        recipes, sums = [recipe for recipe, _ in group], [total for _, total in group]
        scale = sums[0].history_scale
        terms = [partial(scaled_panels, term, scale) for term in sums[0].scorers]
        mix, scales = np.array([t.weights_of_scorers for t in sums]), np.array([t.item_scale for t in sums])
        yield SharedFit(recipes, terms, mix, scales, users_per_block=sums[0].users_per_block)


def scaled_panels(scorer: Scorer, scale: np.ndarray, histories: sp.csr_array) -> Panels:
    """Return the scores of histories whose items are scaled."""
    return scorer.panels(scale_columns(histories, scale))
