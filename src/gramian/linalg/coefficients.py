"""The coefficients of a full-rank linear autoencoder, which scoring, tuning and leave-one-out share.

With P = (S + diag(Λ))⁻¹ and s = diag(S), each of these models scores a history x by x·W with

    W = −P · diag(scale) + diag(diagonal)

    Λ        = slope·s + ridge
    scale    = (c0 + c1·s) / d,  d = (b0 + b1·s)·P_ii + n, and at least floor·Λ where there is a floor
    diagonal = (1 − y1)·scale·P_ii + y0

so that a model is ten numbers. Models that share slope and ridge share P, and one product x·P scores them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gramian.errors import Inaccurate


@dataclass(frozen=True)
class Coefficients:
    """The ten numbers of a full-rank linear autoencoder; the defaults are those of EASE without a penalty."""

    slope: float = 0.0
    ridge: float = 0.0
    b0: float = 1.0
    b1: float = 0.0
    c0: float = 1.0
    c1: float = 0.0
    n: float = 0.0
    y0: float = 0.0
    y1: float = 0.0
    floor: float = 0.0

    def penalty(self, s: np.ndarray) -> np.ndarray:
        """Return Λ, which is added to the diagonal s of the Gram matrix.

        It is 1 where s and Λ would both be 0: such an item has no interactions, so its penalty changes no score.
        """
        penalty = self.slope * s + self.ridge
        penalty[s + penalty == 0] = 1
        return penalty

    def denominator(self, p_ii: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return d."""
        return np.asarray((self.b0 + self.b1 * s) * p_ii + self.n)

    def require_definite(self, p_ii: np.ndarray, s: np.ndarray) -> None:
        """Refuse an item whose d is not positive: the quadratic form that its column of W minimises is not definite then."""
        worst = float(self.denominator(p_ii, s).min(initial=np.inf))
        if not worst > 0:
            raise Inaccurate("a positive definite system for every item", f"a pivot of {worst:.3g}", "Raise l2")

    def scale(self, p_ii: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return the factor of each column of −P."""
        scale = (self.c0 + self.c1 * s) / self.denominator(p_ii, s)
        return np.maximum(scale, self.floor * (self.slope * s + self.ridge)) if self.floor else scale

    def diagonal(self, p_ii: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return what is added to the diagonal of W."""
        return (1 - self.y1) * self.scale(p_ii, s) * p_ii + self.y0
