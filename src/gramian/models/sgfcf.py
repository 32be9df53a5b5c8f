"""SGFCF: a sharper spectral filter with a generalised normalisation, mixed with a cubic term   (Peng et al. 2024).

With R̃ = diag(u + offset)^-ε X diag(s + offset)^-ε, ε = power, and its top `rank` singular values σ and right vectors V,
a history x becomes z = x·diag(s + offset)^-ε, and has the scores

    a / Σ_j a_j + high_pass · b / Σ_j b_j,      a = z · V diag(σ^(2·sharpness − 1)) Vᵀ,      b = z · R̃ᵀR̃.

The paper states it for training users, with a the rows of U diag(σ^(2·sharpness)) Vᵀ and b those of R̃R̃ᵀR̃. Since
U = R̃·V·diag(1/σ), both are the formulas above up to a factor for each user, which the division by the sum removes.
This is the model without individual filters, which give each user a sharpness of their own (the paper's IGF).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.gram import GramPowers
from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe, require_rank
from gramian.core.registry import SCORERS
from gramian.core.scorer import Panels, SavedScorer, Scorer, SupportsExplanations, SupportsSimilarity, require_capability
from gramian.data.interactions import Interactions
from gramian.io.damage import require_content
from gramian.linalg.eigen import eigenpairs_bytes, top_eigenpairs
from gramian.linalg.memory import require_memory
from gramian.models.graph_filter import LINEAR, PolynomialFilter, normalise, scoring_bytes
from gramian.models.parameters import eigenvectors_param
from gramian.models.scorers import LowRankWeights, ScorerSum

SMALLEST_TOTAL = 1e-12  # of a user's scores: below it they are rounding errors, and count as 0


class ShareOfTotal(Scorer):
    """The scores of another scorer, divided by their sum over all items: x·W / (x·W·1).

    Parameters
    ----------
    scorer
        A scorer whose scores are linear in the history.
    totals
        W·1, one number per item.
    """

    name = "share-of-total"

    def __init__(self, scorer: Scorer, totals: np.ndarray) -> None:
        self.scorer, self.totals = scorer, totals.astype(np.float64)

    @property
    def n_items(self) -> int:
        return self.scorer.n_items

    @property
    def scorers(self) -> list[Scorer]:
        """The scorer that it divides, as those of a sum."""
        return [self.scorer]

    @property
    def users_per_block(self) -> int:
        return self.scorer.users_per_block

    @property
    def capabilities(self) -> frozenset[type]:
        """The capabilities that its scorer has too."""
        return super().capabilities & self.scorer.capabilities

    def panels(self, histories: sp.csr_array) -> Panels:
        factor = divide(1, histories @ self.totals)
        for first, panel in self.scorer.panels(histories):
            yield first, panel * factor[:, None].astype(panel.dtype)

    def similar(self, item: int) -> np.ndarray:
        return require_capability(self.scorer, SupportsSimilarity, self.name).similar(item)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        parts = require_capability(self.scorer, SupportsExplanations, self.name).contributions(history, values, item)
        return parts * divide(1, values @ self.totals[history])

    def save(self) -> SavedScorer:
        facts, arrays = self.scorer.save()
        return {"scorer": self.scorer.name, "facts": facts}, {f"0.{name}": a for name, a in arrays.items()} | {
            "totals": self.totals
        }

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> ShareOfTotal:
        scorer_arrays = {name.removeprefix("0."): array for name, array in arrays.items() if name.startswith("0.")}
        scorer, totals = SCORERS.find(facts["scorer"]).load(facts["facts"], scorer_arrays), arrays["totals"]
        require_content(totals.shape == (scorer.n_items,) and totals.dtype == np.float64, "a total for every item")
        return ShareOfTotal(scorer, totals)


def divide(numerator: Any, total: Any) -> Any:
    """Return numerator / total, or 0 where the total is a rounding error."""
    is_total = np.abs(total) > SMALLEST_TOTAL
    return np.where(is_total, numerator / np.where(is_total, total, 1), 0)


@configurable
class SGFCF(Recipe):
    """Graph filter: powers of the singular values plus a cubic term, each a share of its total   (Peng et al. 2024)."""

    needs_binary = True  # degrees are counts

    rank: int = eigenvectors_param()
    sharpness: float = param(1.0, "power of the singular values; usually 0.5 to 5", at_least=0.5, tries=(0.75, 1, 1.5, 2, 3))
    high_pass: float = param(0.5, "weight of the cubic term", at_least=0, tries=(0, 0.1, 0.5, 1.5), free=True)
    power: float = param(0.5, "power of the degrees that X is divided by", at_least=0, below=1, tries=(0.3, 0.4, 0.5))
    offset: float = param(0.0, "number added to the degrees", at_least=0, tries=(0, 5, 20))

    def fit_scorer(self, events: Interactions, dtype: type) -> ScorerSum:
        self.require_binary(events.is_binary)
        require_rank(self.rank, min(events.n_users, events.n_items), events)
        require_memory(self.fit_bytes(events, dtype), f"{self.rank:,} eigenvectors", "Choose a lower rank")
        cubic = PolynomialFilter(normalise(events, GramPowers(self.power, self.power), dtype, self.offset), LINEAR.coef)
        top = top_eigenpairs(cubic.operator, self.rank)
        sigma = np.sqrt(np.maximum(top.values, 0)).astype(np.float64)
        shrunk = divide(sigma ** (2 * self.sharpness), sigma) / sigma[0] ** (2 * self.sharpness - 1)
        spectral = LowRankWeights(top.vectors * shrunk, top.vectors)
        ones = np.ones((events.n_items, 1))
        terms = [
            ShareOfTotal(spectral, spectral.encoder.astype(np.float64) @ spectral.decoder.sum(axis=0, dtype=np.float64)),
            ShareOfTotal(cubic, (cubic.operator @ ones)[:, 0]),
        ]
        degrees = np.maximum(events.popularity + self.offset, 1.0)
        return self.weigh_terms(ScorerSum(terms, [1, 1], history_scale=degrees**-self.power))

    def weigh_terms(self, fitted: ScorerSum) -> ScorerSum:
        """Return the model from a fit with any `high_pass`."""
        return ScorerSum(fitted.scorers, [1, self.high_pass], history_scale=fitted.history_scale)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n, itemsize = events.n_items, np.dtype(dtype).itemsize
        return itemsize * events.n_interactions + max(eigenpairs_bytes(n, self.rank, itemsize), scoring_bytes(n, itemsize))
