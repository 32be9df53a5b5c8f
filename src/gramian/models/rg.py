"""Squared losses that approximate softmax: RG² and RG×   (papers 002 and 003).

With N items and |I_x| of them touched by user x, the target is t = N/|I_x| − 1 where x touched and −1 elsewhere, the whole row
weighs |I_x|, and vectors are penalised by l2 times the weight of their row or column:

    Σ_x |I_x| ‖t_x − Q p_x‖²  +  l2 · (Σ_x N|I_x| ‖p_x‖² + D ‖Q‖²)        with D interactions.

Rows and penalties are weighed alike, so the optimum is the soft-thresholded SVD of T' = N · dMat(|I_x|^-½) · X · (I − 11ᵀ/N)
(X row-normalised and centred), with the threshold l2·√(N·D): RG2. The others alternate, with weights that may differ.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.gram import Gram, row_normalised, sizes
from gramian.linalg.inverse import Operator
from gramian.linalg.spectral import GramOf, Top, top
from gramian.models.als import Alternating, Sums, solver_setting
from gramian.models.factors import Factors, Rule, Terms
from gramian.models.iterative import epochs_setting, seed_setting
from gramian.models.low_rank import Known, Truncated, rank_setting
from gramian.models.recipe import setting
from gramian.models.solvers import Solver


def penalty_setting() -> Any:
    return setting(0.3, "penalty on the vectors, by the weight of their row", at_least=0, tries=(0.03, 0.1, 0.2, 0.3, 0.5))


def negative_setting() -> Any:
    return setting(1.0, "weight of what a user has not touched, of what is touched", at_least=0, tries=(0.3, 1))


def loss(n_items: int, l2: float, negative_weight: float = 1.0, taken: float = 0.0) -> Rule:
    """Weight s on a user's s positives, negative_weight·s elsewhere; `taken`·s times every squared score is taken off."""
    n, a = n_items, negative_weight
    return Rule(
        shared=Terms(linear=a - taken),
        own=Terms(linear=1 - a),
        pull=Terms(constant=n, linear=-(1 - a)),
        rest=Terms(linear=-a),
        base=Terms(constant=n**2, linear=(a - 2) * n, square=1 - a),
        binary=True,
        l2=l2,
        ridge=Terms(linear=a * n, square=1 - a),
    )


class Centred:
    """C · A · C, with C = I − 11ᵀ/n, which takes the mean off."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.n, self.dtype = operator, operator.n, operator.dtype

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        image = self.operator @ (right - right.mean(axis=0))
        return image - image.mean(axis=0)


@dataclass(frozen=True)
class RG2(Truncated):
    """RG² at its global optimum, in closed form: no epochs, no seed."""

    normalised = True

    rank: int = rank_setting()
    l2: float = penalty_setting()

    @property
    def decomposition(self) -> Hashable:
        return "RG2"

    def decompose(self, events: Known, rank: int, dtype: type) -> tuple[Top, float]:
        """The top of the row-normalised, centred Gram, and the weight of all interactions, which is the sum of the Gram."""
        if isinstance(events, Gram):
            weight = (events.matrix @ np.ones((events.n_items, 1))).sum()
            return top(Centred(events.matrix), rank), float(weight)
        normal = row_normalised(events.matrix, dtype)
        return top(Centred(GramOf(normal, dtype)), rank), float(sizes(events.matrix).sum())

    def highest(self, events: Known) -> int:
        """One less than of other models: a mean is taken off."""
        return super().highest(events) - 1

    def truncated(self, found: tuple[Top, float]) -> Factors:
        """Q = V · dMat((σ − l2·√(ND))^½) · (N/D)^¼, in the columns where anything is left."""
        spectrum, weight = found
        n = len(spectrum.vectors)
        sigma = n * np.sqrt(spectrum.values[: self.rank].astype(np.float64))
        left = sigma - self.l2 * np.sqrt(n * weight)
        noise = 3 * np.sqrt(np.finfo(spectrum.values.dtype).eps) * n  # of a σ whose square is rounding
        alive = np.flatnonzero((left > 0) & (sigma > noise))
        if len(alive) == 0:
            largest = sigma[0] / np.sqrt(n * weight)
            do = f"Lower it below {largest:.3g}" if sigma[0] > noise else "Look at the data: all users touched the same"
            raise InvalidInput("l2 of RG2 that leaves a factor", f"{self.l2:g}", do)
        items = spectrum.vectors[:, alive] * (np.sqrt(left[alive]) * (n / weight) ** 0.25)
        items = items.astype(spectrum.vectors.dtype)
        return Factors.of(items, items.T @ items, replace(loss(n, self.l2), binary=False))


class Weighing(Alternating):
    """RG² by alternating least squares, with a weight of its own on what is not touched."""

    needs_binary = True
    negative_weight: float

    def rule(self, n_items: int) -> Rule:
        return loss(n_items, self.l2, self.negative_weight)

    def item_ridges(self, sums: Sums) -> np.ndarray:
        a = self.negative_weight
        return self.l2 * ((1 - a) * sums.by_size + a * sums.by_item.sum())


@dataclass(frozen=True)
class RG2ALS(Weighing):
    """RG² by alternating least squares, with `negative_weight` times the weight on what is not touched.

    At 1 all rows share one small system, so that an epoch is two sparse products, and it converges to RG2.
    """

    rank: int = rank_setting()
    l2: float = penalty_setting()
    negative_weight: float = negative_setting()
    n_epochs: int = epochs_setting()
    solver: Solver = solver_setting()
    seed: int = seed_setting()

    @classmethod
    def sampled(cls, n_negatives: int, n_items: int, **settings: Any) -> RG2ALS:
        """The weights that sampled softmax with so many negatives leads to   (paper 003, Eq. 19)."""
        return cls(negative_weight=(n_negatives + 1) / n_items, **settings)


@dataclass(frozen=True)
class RGX(Weighing):
    """RG×: RG² less `interaction` · |I_x|/N · (Σ_y o_xy)², the term of softmax's expansion in which scores meet.

    form="printed" is the papers' update (paper 003, Eq. 38 and 39), which takes Σ_y o_xy² off instead; form="exact" is the term
    itself, whose optimum is that of RG2 (all targets of a user sum to 0, and so do the scores).
    """

    rank: int = rank_setting()
    l2: float = penalty_setting()
    negative_weight: float = negative_setting()
    interaction: float = setting(1.0, "how much of the interaction is taken off", at_least=0, tries=(0, 1, 100, 1000))
    n_epochs: int = epochs_setting()
    form: str = setting("printed", "the term that is taken off: printed or exact", choices=("printed", "exact"))
    solver: Solver = solver_setting()
    seed: int = seed_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form == "exact" and self.negative_weight != 1:
            raise InvalidInput("negative_weight=1 with form='exact'", f"{self.negative_weight:g}", "Or choose form='printed'")
        if self.form == "exact" and self.interaction > 1:  # (Σ_y o_y)² may be N·Σ_y o_y², and the loss would fall for ever
            raise InvalidInput("interaction of at most 1 with form='exact'", f"{self.interaction:g}", "Choose 1, say")

    @classmethod
    def sampled(cls, n_negatives: int, n_items: int, **settings: Any) -> RGX:
        """The weights and the interaction that sampled softmax with so many negatives leads to   (paper 003, Eq. 32)."""
        weight = (n_negatives + 1) / n_items
        return cls(negative_weight=weight, interaction=weight, **settings)

    def rule(self, n_items: int) -> Rule:
        printed = self.form == "printed"
        return loss(n_items, self.l2, self.negative_weight, self.interaction / n_items if printed else 0)

    def user_gram(self, items: np.ndarray) -> np.ndarray:
        gram = super().user_gram(items)
        if self.form == "printed":
            return gram
        total = items.sum(axis=0)
        return gram - self.interaction / len(items) * np.outer(total, total)

    def require_possible(self, events: Interactions) -> None:
        super().require_possible(events)
        most = events.n_items * self.negative_weight
        if self.form == "printed" and self.interaction > most:
            wanted = "interaction of RGX at which every system is positive definite"
            got = f"{self.interaction:g} for {events.n_items:,} items and negative_weight={self.negative_weight:g}"
            raise InvalidInput(wanted, got, f"Choose at most {most:g}")
