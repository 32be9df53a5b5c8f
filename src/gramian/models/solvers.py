"""How the rows of a half step of alternating least squares are solved: three small classes, for any of the weighted losses."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from gramian.core.params import Configurable, configurable, param
from gramian.linalg.row_solvers import (
    FixedSide,
    RowProblems,
    solve_cholesky,
    solve_conjugate_gradient,
    solve_subspaces,
)


class Solver(Configurable, ABC):
    """Solves all rows of a half step, in place."""

    @abstractmethod
    def solve(self, rows: RowProblems, fixed: FixedSide, out: np.ndarray) -> np.ndarray:
        """Solve from the vectors in `out`. Return the value of each row's objective, NaN where it has no minimum."""


@configurable
class Cholesky(Solver):
    """Solve every row exactly: rank³ operations each, or fewer for a row shorter than the rank."""

    def solve(self, rows: RowProblems, fixed: FixedSide, out: np.ndarray) -> np.ndarray:
        return solve_cholesky(rows, fixed, out)


@configurable
class ConjugateGradient(Solver):
    """Take a few conjugate gradient steps from the row's previous vector. Two are usually as good as exact, and much faster."""

    steps: int = param(2, "conjugate gradient steps for each row", at_least=1)

    def solve(self, rows: RowProblems, fixed: FixedSide, out: np.ndarray) -> np.ndarray:
        return solve_conjugate_gradient(rows, fixed, out, self.steps)


@configurable
class Subspace(Solver):
    """Solve exactly for `size` factors at a time, the others held fixed (iALS++, Rendle et al. 2021): for a large rank."""

    size: int = param(32, "factors solved for at a time", at_least=1)

    def solve(self, rows: RowProblems, fixed: FixedSide, out: np.ndarray) -> np.ndarray:
        return solve_subspaces(rows, fixed, out, min(self.size, out.shape[1]))


SOLVERS = (ConjugateGradient, Cholesky, Subspace)
