"""How the rows of an alternating half step are solved: three small objects, for any of the weighted losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from gramian.linalg.rows import Fixed, Rows, blocks, exact, gradient
from gramian.models.recipe import Part, setting


@dataclass(frozen=True)
class Solver(Part, ABC):
    """Solves for rows, in place."""

    @abstractmethod
    def passes(self, rank: int) -> float:
        """About how much a row costs, in sums over its vectors."""

    @abstractmethod
    def solve(self, rows: Rows, fixed: Fixed, out: np.ndarray) -> np.ndarray:
        """From where `out` is. Gives the least value of each row's problem, NaN where there is none."""


@dataclass(frozen=True)
class Cholesky(Solver):
    """Every row exactly: rank³ for each, or less for a row shorter than the rank."""

    def passes(self, rank: int) -> float:
        return rank / 8

    def solve(self, rows: Rows, fixed: Fixed, out: np.ndarray) -> np.ndarray:
        return exact(rows, fixed, out)


@dataclass(frozen=True)
class ConjugateGradient(Solver):
    """A few steps from where a row was an epoch ago. Two of them are usually as good as exact, and much faster."""

    steps: int = setting(2, "steps for each row", at_least=1)

    def passes(self, rank: int) -> float:
        return 2 * (self.steps + 1)

    def solve(self, rows: Rows, fixed: Fixed, out: np.ndarray) -> np.ndarray:
        return gradient(rows, fixed, out, self.steps)


@dataclass(frozen=True)
class Subspace(Solver):
    """Exact in `size` factors after `size` factors (iALS++): for a large rank."""

    size: int = setting(32, "factors solved for at a time", at_least=1)

    def passes(self, rank: int) -> float:
        return min(self.size, rank) / 4 + 2

    def solve(self, rows: Rows, fixed: Fixed, out: np.ndarray) -> np.ndarray:
        return blocks(rows, fixed, out, min(self.size, out.shape[1]))


SOLVERS = (ConjugateGradient, Cholesky, Subspace)
