"""Alternating least squares for weighted squared losses: with the item vectors fixed, each user's vector is a small linear
system, and the other way round.

An epoch solves for all users, then for all items. Both half steps are linalg/row_solvers.py: a user's row with the coefficients
of the loss, an item's row with the same coefficients read by column. A half step rotates all vectors to the basis in which the
matrix that rows share is diagonal, which changes no score.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gramian.core.epochs import EpochRecipe, TrainingState
from gramian.core.params import configurable, param
from gramian.core.updates import RowChange
from gramian.data.interactions import Interactions
from gramian.linalg.row_solvers import (
    EXTRA_TARGET,
    EXTRA_WEIGHT,
    RIDGE,
    UNOBSERVED_TARGET,
    UNOBSERVED_WEIGHT,
    FixedSide,
    RowProblems,
    solve_cholesky,
    solve_shared,
)
from gramian.linalg.sparse import absolute_values, row_sums
from gramian.models.factors import Factors, RowLoss, SizePolynomial, require_solved
from gramian.models.parameters import epochs_param, rank_param, seed_param
from gramian.models.solvers import SOLVERS, ConjugateGradient, Solver

USERS_PER_CHUNK = 4_096
REFRESH_SAMPLE = 256  # items without new events that are solved for, to see whether all should be
REFRESH_TOLERANCE = 0.05  # relative movement of the sample beyond which all items are solved for


def solver_param() -> Any:
    """Declare the solver of the rows."""
    return param(ConjugateGradient(), "how each row is solved", choices=SOLVERS)


class UserSums(NamedTuple):
    """Sums over users that the penalties on items depend on."""

    n_users: int
    by_item: np.ndarray  # Xᵀ1
    by_size: np.ndarray  # XᵀX1: each user counts by size

    @staticmethod
    def of(x: sp.csr_array) -> UserSums:
        """Sum over the rows of X."""
        return UserSums(x.shape[0], row_sums(x, axis=0), np.asarray(x.T @ row_sums(x), np.float64))


class AlternatingRecipe(EpochRecipe):
    """A weighted squared loss, minimised alternately in users and items."""

    l2: float
    solver: Solver

    @abstractmethod
    def row_loss(self, n_items: int) -> RowLoss:
        """Return the loss of a user's row."""

    @abstractmethod
    def item_ridges(self, sums: UserSums) -> np.ndarray:
        """Return the penalty on each item's vector."""

    def user_gram(self, items: np.ndarray) -> np.ndarray:
        """Return the matrix G that all users share in their half step."""
        return items.T @ items

    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        users, items = state.users, state.items
        del state
        dtype = items.dtype
        x, loss = events.matrix, self.row_loss(events.n_items)
        weights = absolute_values(x)
        sizes = row_sums(weights)
        exact_coefficients = loss.row_coefficients(sizes)
        coefficients = exact_coefficients.astype(dtype)
        user_rows = RowProblems(x, coefficients, np.ones((events.n_items, 2), dtype))
        item_rows = self.all_item_problems(x, coefficients)
        liked = (sizes + row_sums(x)) / 2  # dislikes have the target 0, so that they cost nothing there
        loss_at_zero = float(loss.loss_at_zero.at(liked[liked > 0]).sum())
        while True:
            fixed, basis = FixedSide.of(items, self.user_gram(items), items.sum(axis=0, dtype=np.float64))
            items, users = fixed.factors, self.half_step(user_rows, fixed, users, basis)[0]
            fixed, basis = fix_users(users, coefficients)
            users, (items, values) = fixed.factors, self.half_step(item_rows, fixed, items, basis)
            penalty = float(exact_coefficients[:, RIDGE] @ np.einsum("uk,uk->u", users, users, dtype=np.float64))
            yield TrainingState.of(users, items, float(values.sum()) + penalty + loss_at_zero)

    def all_item_problems(self, x: sp.csr_array, coefficients: np.ndarray) -> RowProblems:
        """Return the problems of all items, from X and the coefficients of the users' rows."""
        by_item, dtype = self.item_coefficients(UserSums.of(absolute_values(x)), coefficients.dtype), coefficients.dtype
        by_user = np.ascontiguousarray(coefficients[:, [EXTRA_WEIGHT, EXTRA_TARGET]], dtype)
        return RowProblems(sp.csr_array(x.T.tocsr()), by_item, by_user)

    def refine(self, scorer: Factors, after: Interactions, change: RowChange) -> Factors:
        """Solve exactly for all users, then for the items of the changed rows, or for all items where others would move too.

        Whether they would is tested on a sample of the other items.
        """
        self.require_binary(after.has_unit_weights)
        x, n_known = after.matrix, scorer.n_items
        old = scorer.fixed.factors
        items = np.concatenate([old, np.zeros((after.n_items - n_known, old.shape[1]), old.dtype)])
        start = self.scorer_of_items(items)
        users, items = start.user_vectors(x), start.fixed.factors
        coefficients = start.loss.row_coefficients(row_sums(absolute_values(x))).astype(items.dtype)
        fixed, basis = fix_users(users, coefficients)
        problems, items = self.all_item_problems(x, coefficients), items @ basis
        columns = np.unique(change.rows.indices)
        others = np.setdiff1d(np.arange(n_known), columns)
        sample = np.random.default_rng(self.seed).permutation(others)[:REFRESH_SAMPLE]
        moved = items.copy()
        solve_items(problems, fixed, moved, np.concatenate([columns, sample]))
        movement = float(np.linalg.norm(moved[sample] - items[sample]))
        if movement > REFRESH_TOLERANCE * float(np.linalg.norm(items[sample])):
            solve_items(problems, fixed, moved, np.setdiff1d(others, sample))
        return self.scorer_of_items(moved)

    def item_coefficients(self, sums: UserSums, dtype: np.dtype) -> np.ndarray:
        """Return the five coefficients of each item's row."""
        coefficients = np.ones((len(sums.by_item), 5), dtype)
        coefficients[:, RIDGE] = self.item_ridges(sums)
        coefficients[coefficients[:, RIDGE] + sums.by_item == 0, RIDGE] = 1  # without weight and penalty: the vector 0
        return coefficients

    def half_step(
        self, rows: RowProblems, fixed: FixedSide, start: np.ndarray, basis: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve the rows from their previous vectors; return them in the new basis, and the value of each row's objective."""
        vectors = np.empty_like(start) if rows.is_shared else start @ basis
        values = solve_shared(rows, fixed, vectors) if rows.is_shared else self.solver.solve(rows, fixed, vectors)
        require_solved(values, f"Raise l2, to {type(self).l2:g}, say")
        return vectors, values

    def to_scorer(self, events: Interactions, state: TrainingState) -> Factors:
        return self.scorer_of_items(state.items)

    def scorer_of_items(self, items: np.ndarray) -> Factors:
        """Return the scorer of item vectors."""
        return Factors.of(items, self.user_gram(items), self.row_loss(len(items)))


def fix_users(users: np.ndarray, coefficients: np.ndarray) -> tuple[FixedSide, np.ndarray]:
    """Return the user vectors as the fixed side of the items' half step, and the basis they were rotated to."""
    gram, total = weighted_gram(users, coefficients[:, UNOBSERVED_WEIGHT]), coefficients[:, UNOBSERVED_TARGET] @ users
    return FixedSide.of(users, gram, total)


def solve_items(problems: RowProblems, fixed: FixedSide, items: np.ndarray, columns: np.ndarray) -> None:
    """Solve exactly for the vectors of some items, in place."""
    rows = RowProblems(problems.x[columns], problems.by_row[columns], problems.by_column)
    vectors = items[columns]
    require_solved((solve_shared if rows.is_shared else solve_cholesky)(rows, fixed, vectors))
    items[columns] = vectors


def weighted_gram(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ_u weight_u · vector_u vector_uᵀ, some users at a time."""
    total = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), USERS_PER_CHUNK):
        chunk = vectors[start : start + USERS_PER_CHUNK]
        total += chunk.T @ (weights[start : start + USERS_PER_CHUNK, None] * chunk)
    return total


@configurable
class WRMF(AlternatingRecipe):
    """Weighted regularized matrix factorization   (Hu et al. 2008, Pan et al. 2008).

    min Σ_ui c_ui (x_ui − p_u·q_i)² + l2 (‖P‖² + ‖Q‖²),  c = 1 + positive_weight·x

    A dislike weighs as much as a positive, and its target is 0.
    """

    needs_binary = True
    takes_dislikes = True

    rank: int = rank_param()
    positive_weight: float = param(
        4.0, "additional weight of a positive; usually 1 to 40", at_least=0, tries=(0.5, 1, 2, 4, 8, 16, 32)
    )
    l2: float = param(30.0, "L2 penalty on the vectors; usually 1 to 300", at_least=0, tries=(1, 3, 10, 30, 100, 300))
    n_epochs: int = epochs_param()
    solver: Solver = solver_param()
    seed: int = seed_param()

    def row_loss(self, n_items: int) -> RowLoss:
        weight = SizePolynomial(constant=1 + self.positive_weight)
        return RowLoss(
            unobserved_weight=SizePolynomial(constant=1),
            extra_weight=SizePolynomial(constant=self.positive_weight),
            extra_target=weight,
            unobserved_target=SizePolynomial(),
            loss_at_zero=SizePolynomial(linear=weight.constant),
            l2=self.l2,
            ridge=SizePolynomial(constant=1),
        )

    def item_ridges(self, sums: UserSums) -> np.ndarray:
        return np.full(len(sums.by_item), self.l2)


def unobserved_weight_param(below: float = float("inf")) -> Any:
    """Declare the weight of all pairs in iALS."""
    about = "weight of every (user, item) pair, touched or not; usually 0.01 to 1"
    tries = tuple(value for value in (0.01, 0.03, 0.1, 0.3, 1) if value < below)
    return param(0.3, about, at_least=1e-9, below=below, tries=tries)


def als_l2_param() -> Any:
    """Declare the L2 penalty of iALS."""
    return param(0.01, "L2 penalty on the vectors; usually 0.001 to 0.1", at_least=0, tries=(0.001, 0.003, 0.01, 0.03))


def l2_exponent_param() -> Any:
    """Declare how the penalty of iALS grows with frequency."""
    return param(1.0, "the penalty of a user or item grows with its frequency to this power; usually 0 to 1", at_least=0)


def ials_row_loss(n_items: int, unobserved_weight: float, l2: float, l2_exponent: float) -> RowLoss:
    """Return the loss of a user's row under iALS."""
    return RowLoss(
        unobserved_weight=SizePolynomial(constant=unobserved_weight),
        extra_weight=SizePolynomial(constant=1),
        extra_target=SizePolynomial(constant=1),
        unobserved_target=SizePolynomial(),
        loss_at_zero=SizePolynomial(linear=1),
        l2=l2,
        ridge=SizePolynomial(constant=unobserved_weight * n_items, linear=1),
        exponent=l2_exponent,
    )


def ials_item_ridges(sums: UserSums, unobserved_weight: float, l2: float, l2_exponent: float) -> np.ndarray:
    """Return the penalty on each item's vector under iALS."""
    return np.asarray(l2 * (sums.by_item + unobserved_weight * sums.n_users) ** l2_exponent)


@configurable
class IALS(AlternatingRecipe):
    """Implicit alternating least squares with frequency-scaled penalties   (Rendle et al. 2022).

    min Σ_pos (1 − p_u·q_i)² + α Σ_ui (p_u·q_i)² + l2 (Σ_u (|I_u| + αn)^ν ‖p_u‖² + Σ_i (|U_i| + αm)^ν ‖q_i‖²)

    with α = unobserved_weight and ν = l2_exponent. Weighted interactions weigh the first sum. A dislike is one of its
    terms, with the target 0 instead of 1.
    """

    takes_dislikes = True

    rank: int = rank_param()
    unobserved_weight: float = unobserved_weight_param()
    l2: float = als_l2_param()
    l2_exponent: float = l2_exponent_param()
    n_epochs: int = epochs_param()
    solver: Solver = solver_param()
    seed: int = seed_param()

    def row_loss(self, n_items: int) -> RowLoss:
        return ials_row_loss(n_items, self.unobserved_weight, self.l2, self.l2_exponent)

    def item_ridges(self, sums: UserSums) -> np.ndarray:
        return ials_item_ridges(sums, self.unobserved_weight, self.l2, self.l2_exponent)


@configurable
class DebiasedIALS(AlternatingRecipe):
    """iALS that treats some unobserved items as hidden positives   (Jin and Li 2023).

    min Σ_pos c_u ((1 − p_u·q_i)² − α (p_u·q_i)²) + α Σ_ui (p_u·q_i)² + the penalties of IALS

    with α = unobserved_weight and c_u = 1 + hidden_share + hidden_items/|I_u|. `hidden_share` alone is the paper's constant c;
    `hidden_items` is its K, by which c_u depends on the user.
    """

    rank: int = rank_param()
    unobserved_weight: float = unobserved_weight_param(below=1)
    l2: float = als_l2_param()
    l2_exponent: float = l2_exponent_param()
    n_epochs: int = epochs_param()
    solver: Solver = solver_param()
    seed: int = seed_param()
    hidden_share: float = param(0.0, "hidden positives for each item a user touched", at_least=0, tries=(0, 0.5))
    hidden_items: float = param(10.0, "hidden positives of every user", at_least=0, tries=(0, 10, 30))

    def row_loss(self, n_items: int) -> RowLoss:
        biased, a = ials_row_loss(n_items, self.unobserved_weight, self.l2, self.l2_exponent), self.unobserved_weight
        constant, inverse = 1 + self.hidden_share, self.hidden_items
        return RowLoss(
            unobserved_weight=biased.unobserved_weight,
            extra_weight=SizePolynomial(inverse=(1 - a) * inverse, constant=(1 - a) * constant),
            extra_target=SizePolynomial(inverse=inverse, constant=constant),
            unobserved_target=SizePolynomial(),
            loss_at_zero=SizePolynomial(constant=inverse, linear=constant),
            l2=self.l2,
            ridge=biased.ridge,
            exponent=biased.exponent,
        )

    def item_ridges(self, sums: UserSums) -> np.ndarray:
        return ials_item_ridges(sums, self.unobserved_weight, self.l2, self.l2_exponent)
