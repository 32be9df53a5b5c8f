"""Turbo-CF: a polynomial of the item graph with an elementwise power, without any decomposition   (Park et al. 2024).

With R̃ = diag(u)^-a X diag(s)^-(1 − a), a = user_power, and P = R̃ᵀR̃ with every entry raised to `power`, the scores of x are

    order 1    x·P                                a linear filter
    order 2    x·(2P − P²)
    order 3    x·(P + 0.01·(−P³ + 10P² − 29P))    close to an ideal low-pass filter

An elementwise power needs the matrix P itself. At power 1 the filter is a product with the sparse R̃, for catalogs of any size.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from gramian.core.gram import Gram, GramPowers
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.linalg.symmetric import stored_size
from gramian.models.graph_filter import filter_bytes, filter_scorer, normalised_gram, prefers_dense

FILTERS = {1: (0, 1), 2: (0, 2, -1), 3: (0, 0.71, 0.1, -0.01)}  # powers of P


@configurable
class TurboCF(GramRecipe):
    """Graph filter: a polynomial of the item graph, whose weights are raised to a power   (Park et al. 2024)."""

    needs_binary = True  # degrees are counts

    user_power: float = param(
        0.6, "power of a user's degree that rows are divided by; items take the rest to 1", at_least=0, at_most=1,
        tries=(0.4, 0.5, 0.6, 0.7),
    )  # fmt: skip
    power: float = param(1.0, "power of every weight between two items; usually 0.7 to 1.4", at_least=0.01, tries=(0.7, 1, 1.4))
    order: int = param(1, "the filter: linear, quadratic or cubic", at_least=1, below=4, tries=(1, 2, 3))

    @property
    def gram_powers(self) -> GramPowers:
        return GramPowers(self.user_power, 1 - self.user_power)

    @property
    def transfer(self) -> Chebyshev:
        """The polynomial."""
        return Polynomial(FILTERS[self.order]).convert(domain=(0, 1), kind=Chebyshev)

    def solve(self, gram: Gram, overwrite: bool) -> Scorer:
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        if self.power != 1:
            np.power(matrix.buffer, matrix.dtype.type(self.power), out=matrix.buffer)
        return filter_scorer(matrix, self.transfer)

    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        if self.needs_dense_gram(events, dtype):
            return super().fit_scorer(events, dtype)
        self.require_binary(events.is_binary)
        return filter_scorer(normalised_gram(events, self.gram_powers, dtype), self.transfer)

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        return self.power != 1 or prefers_dense(events)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        if not self.needs_dense_gram(events, dtype):
            return filter_bytes(events, dtype, self.order)
        second = stored_size(events.n_items) if self.order > 1 else 0
        return (stored_size(events.n_items) + second) * np.dtype(dtype).itemsize + 8 * events.n_interactions
