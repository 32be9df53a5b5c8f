"""Fit many recipes on the same interactions, doing only once what they share: the Gram, an inverse, a product.

Recipes whose penalty Λ = slope·s + ridge agrees, such as DEQL at any kept_weight, share an inverse and the product with it:
they are one family. Families of one slope may share an eigendecomposition, where there are many ridges and few users. Models of
low rank share a decomposition, whatever their rank and how they shrink it. Recipes trained in epochs share a training, however
long.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate, InvalidInput
from gramian.linalg.gram import Gram
from gramian.linalg.inverse import TOLERANCE, drift
from gramian.linalg.memory import available
from gramian.linalg.product import dense_panels, panels, times
from gramian.linalg.spectral import Spectrum, pays, spectrum_bytes
from gramian.linalg.symmetric import Symmetric
from gramian.models.autoencoders import LinearAutoencoder, squares
from gramian.models.iterative import Iterative
from gramian.models.low_rank import Truncated, decomposed, require_rank
from gramian.models.recipe import ClosedForm, Recipe, precise
from gramian.recommender import Scorer


@dataclass(frozen=True)
class Family:
    """Fitted recipes whose scores differ by a factor per item only."""

    recipes: list[Recipe]
    panels: Callable[[sp.csr_array], Iterator[tuple[int, np.ndarray]]]  # the scores before the factors
    factors: np.ndarray  # recipes × items
    inverse: Symmetric | None = None

    def only(self, members: Sequence[int]) -> Family:
        return replace(self, recipes=[self.recipes[m] for m in members], factors=self.factors[list(members)])


class Fits:
    """The families of canonical recipes on the same interactions, when `n_users` will be scored by each."""

    def __init__(self, train: Interactions, dtype: type, n_users: float) -> None:
        self.train, self.dtype, self.n_users = train, dtype, n_users
        self.kept: Gram | None = None
        self.squares = squares(train)

    def families(self, recipes: Sequence[Recipe]) -> Iterator[Family]:
        slopes: dict[float, dict[float, list[LinearAutoencoder]]] = {}
        decompositions: dict[Hashable, list[Truncated]] = {}
        trainings: dict[Recipe, dict[int, Iterative]] = {}
        for recipe in recipes:
            if isinstance(recipe, LinearAutoencoder):
                slopes.setdefault(recipe.slope, {}).setdefault(recipe.ridge, []).append(recipe)
            elif isinstance(recipe, Truncated):
                decompositions.setdefault(recipe.decomposition, []).append(recipe)
            elif isinstance(recipe, Iterative):
                trainings.setdefault(replace(recipe, n_epochs=1), {})[recipe.n_epochs] = recipe  # type: ignore[call-arg]
            else:
                yield from self.alone(recipe, lambda recipe=recipe: self.scorer(recipe))  # type: ignore[misc]
        for stops in trainings.values():
            yield from self.along(stops)
        for sharing in decompositions.values():
            possible = [member for member in sharing if member.rank <= member.highest(self.train)]
            found = decomposed(possible, self.train, self.dtype) if possible else None
            for member in sharing:
                yield from self.alone(member, lambda member=member, found=found: self.truncated(member, found))  # type: ignore[misc]
        for ridges in slopes.values():
            spectrum = self.spectrum(ridges)
            for members in ridges.values():
                if spectrum is None:
                    yield from self.by_inverse(members)
                else:
                    yield self.by_spectrum(members, spectrum)

    def alone(self, recipe: Recipe, fit: Callable[[], Scorer]) -> Iterator[Family]:
        """A family of one, or of none where the recipe makes no sense for these interactions."""
        try:
            scorer = fit()
        except InvalidInput as error:
            warnings.warn(f"{recipe} is left out: {error}", stacklevel=2)
            return
        yield Family([recipe], scorer.panels, np.ones((1, self.train.n_items), np.float32))

    def along(self, stops: dict[int, Iterative]) -> Iterator[Family]:
        """Recipes that differ in their number of epochs only: one training. None where they make no sense here."""
        longest = stops[max(stops)]
        try:
            for epoch in longest.epochs(self.train, dtype=self.dtype):
                if epoch.number in stops:
                    yield from self.alone(stops[epoch.number], lambda scorer=epoch.model.scorer: scorer)  # type: ignore[misc]
        except (InvalidInput, Inaccurate) as error:
            warnings.warn(f"{longest} is left out: {error}", stacklevel=2)

    def scorer(self, recipe: Recipe) -> Scorer:
        if isinstance(recipe, ClosedForm):
            return precise(lambda dtype: self.fitted(recipe, dtype), self.dtype)
        return recipe.scorer(self.train, self.dtype)

    def truncated(self, member: Truncated, found: Any) -> Scorer:
        require_rank(member.rank, member.highest(self.train), self.train)
        return member.truncated(found)

    def by_inverse(self, members: Sequence[LinearAutoencoder]) -> Iterator[Family]:
        """The family, or none where the inverse does not exist."""
        try:
            inverse = precise(lambda dtype: self.fitted(members[0], dtype), self.dtype).inverse
        except Inaccurate as error:
            warnings.warn(f"{members[0]} and its like are left out: {error}", stacklevel=2)
            return
        minus, zero = -np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)
        factors = self.factors(members, inverse.diagonal()).astype(inverse.dtype)
        yield Family(list(members), lambda histories: panels(histories, inverse, minus, zero), factors, inverse)

    def by_spectrum(self, members: Sequence[LinearAutoencoder], spectrum: Spectrum) -> Family:
        inverse = spectrum.inverse(members[0].ridge)
        factors = self.factors(members, inverse.diagonal()).astype(inverse.dtype)

        def scores(histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
            return dense_panels(times(histories, spectrum.vectors) * -inverse.shrunk, spectrum.vectors)

        return Family(list(members), scores, factors)

    def factors(self, members: Sequence[LinearAutoencoder], p_ii: np.ndarray) -> np.ndarray:
        return np.array([member.scaling(p_ii, self.squares)[0] for member in members])

    def fitted(self, recipe: ClosedForm, dtype: type) -> Any:
        """A fit from the Gram, which is kept for the next one where both fit into memory."""
        if self.kept is None or self.kept.matrix.dtype != dtype:
            self.kept = None
            gram = Gram.of(self.train, dtype)
            if recipe.fit_bytes(self.train, dtype) > available():
                return recipe.fit_gram(gram, overwrite=True)
            self.kept = gram
        return recipe.fit_gram(self.kept)

    def spectrum(self, ridges: dict[float, list[LinearAutoencoder]]) -> Spectrum | None:
        """The decomposition that serves all ridges of a slope, where it pays, fits into memory and is precise enough."""
        n, itemsize = self.train.n_items, np.dtype(self.dtype).itemsize
        least = ridges[min(ridges)][0]
        penalty = least.penalty(self.squares)
        definite = (self.squares + penalty).min() > 0
        if not (definite and pays(len(ridges), self.n_users, n) and spectrum_bytes(n, itemsize) < available()):
            return None
        matrix = Gram.of(self.train, self.dtype).matrix
        matrix.change_diagonal(lambda diagonal, first, last: diagonal + least.slope * self.squares[first:last])
        spectrum = Spectrum.of(matrix)
        error = drift(spectrum.inverse(least.ridge), self.train.matrix, self.squares, penalty)
        return spectrum if error < TOLERANCE[matrix.dtype] else None
