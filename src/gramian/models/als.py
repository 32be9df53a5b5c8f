"""Alternating least squares for weighted squared losses: with the items' vectors fixed, every user's is a small linear system,
and the other way round.

An epoch solves for all users, then for all items. Both halves are linalg/rows.py: a user's row by the loss's `Rule`, an item's
row with the same numbers read by column. A half step turns all vectors to the basis in which what rows share is diagonal; no
score changes by that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gramian.data.interactions import Interactions
from gramian.linalg.gram import sizes
from gramian.linalg.rows import OWN, PULL, REST, RIDGE, SHARED, Fixed, Rows, alone
from gramian.models.factors import Factors, Rule, Terms, require_finite
from gramian.models.iterative import Iterative, State, epochs_setting, seed_setting
from gramian.models.low_rank import rank_setting
from gramian.models.recipe import setting
from gramian.models.solvers import SOLVERS, ConjugateGradient, Solver

SOME = 4_096  # users at a time


def solver_setting() -> Any:
    return setting(ConjugateGradient(), "how rows are solved for", choices=SOLVERS)


class Sums(NamedTuple):
    """What penalties on items ask of the users, summed over them."""

    n_users: int
    by_item: np.ndarray  # Xᵀ1
    by_size: np.ndarray  # XᵀX1: each user counts by size

    @staticmethod
    def of(x: sp.csr_array) -> Sums:
        return Sums(x.shape[0], sizes(x, axis=0), np.asarray(x.T @ sizes(x), np.float64))


class Alternating(Iterative):
    """A weighted squared loss, alternately minimised."""

    l2: float
    solver: Solver

    @abstractmethod
    def rule(self, n_items: int) -> Rule:
        """The loss, as a user brings it to a row's solve."""

    @abstractmethod
    def item_ridges(self, sums: Sums) -> np.ndarray:
        """The penalty on each item's vector."""

    def user_gram(self, items: np.ndarray) -> np.ndarray:
        """G of the users' half step."""
        return items.T @ items

    def improved(self, events: Interactions, state: State) -> Generator[State, float | None, None]:
        users, items = state.users, state.items
        del state
        kind = items.dtype
        x, rule = events.matrix, self.rule(events.n_items)
        s = sizes(x)
        of_users = rule.numbers(s)
        by_user = of_users.astype(kind)
        of_items = self.of_items(Sums.of(x), kind)
        user_rows = Rows(x, by_user, np.ones((events.n_items, 2), kind))
        item_rows = Rows(sp.csr_array(x.T.tocsr()), of_items, np.ascontiguousarray(by_user[:, [OWN, PULL]]))
        base = float(rule.base.at(s[s > 0]).sum())
        while True:
            fixed, basis = Fixed.of(items, self.user_gram(items), items.sum(axis=0, dtype=np.float64))
            items, users = fixed.factors, self.half(user_rows, fixed, users, basis)[0]
            gram, total = weighted(users, by_user[:, SHARED]), by_user[:, REST] @ users
            fixed, basis = Fixed.of(users, gram, total)
            users, (items, values) = fixed.factors, self.half(item_rows, fixed, items, basis)
            penalty = float(of_users[:, RIDGE] @ np.einsum("uk,uk->u", users, users, dtype=np.float64))
            yield State.of(users, items, float(values.sum()) + penalty + base)

    def of_items(self, sums: Sums, kind: np.dtype) -> np.ndarray:
        """The five numbers of each item's row."""
        found = np.ones((len(sums.by_item), 5), kind)
        found[:, RIDGE] = self.item_ridges(sums)
        found[found[:, RIDGE] + sums.by_item == 0, RIDGE] = 1  # no weight, no say: the vector 0
        return found

    def passes(self) -> float:
        alone = self.rule(1).own == Terms()
        return 1.0 if alone else self.solver.passes(self.rank)

    def half(self, rows: Rows, fixed: Fixed, start: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows solved for from where they were, in the new basis, and the least values of their problems."""
        found = np.empty_like(start) if rows.alone else start @ basis
        values = alone(rows, fixed, found) if rows.alone else self.solver.solve(rows, fixed, found)
        require_finite(values, f"Raise l2, to {type(self).l2:g}, say")
        return found, values

    def fitted(self, events: Interactions, state: State) -> Factors:
        return Factors.of(state.items, self.user_gram(state.items), self.rule(events.n_items))


def weighted(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ_u weight_u · vector_u vector_uᵀ, some users at a time."""
    total = np.zeros((vectors.shape[1], vectors.shape[1]))
    for at in range(0, len(vectors), SOME):
        part = vectors[at : at + SOME]
        total += part.T @ (weights[at : at + SOME, None] * part)
    return total


@dataclass(frozen=True)
class WRMF(Alternating):
    """min Σ_ui c_ui (x_ui − p_u·q_i)² + l2 (‖P‖² + ‖Q‖²),  c = 1 + positive_weight·x   (Hu et al. 2008, Pan et al. 2008)."""

    needs_binary = True

    rank: int = rank_setting()
    positive_weight: float = setting(4.0, "weight of a positive beyond 1", at_least=0, tries=(0.5, 1, 2, 4, 8, 16, 32))
    l2: float = setting(30.0, "penalty on the vectors", at_least=0, tries=(1, 3, 10, 30, 100, 300))
    n_epochs: int = epochs_setting()
    solver: Solver = solver_setting()
    seed: int = seed_setting()

    def rule(self, n_items: int) -> Rule:
        weight = Terms(constant=1 + self.positive_weight)
        return Rule(
            shared=Terms(constant=1),
            own=Terms(constant=self.positive_weight),
            pull=weight,
            rest=Terms(),
            base=Terms(linear=weight.constant),
            l2=self.l2,
            ridge=Terms(constant=1),
        )

    def item_ridges(self, sums: Sums) -> np.ndarray:
        return np.full(len(sums.by_item), self.l2)


def unobserved_setting() -> Any:
    return setting(0.3, "weight of every pair, touched or not", at_least=1e-9, tries=(0.01, 0.03, 0.1, 0.3, 1))


def ridge_setting() -> Any:
    return setting(0.01, "penalty on the vectors", at_least=0, tries=(0.001, 0.003, 0.01, 0.03))


def exponent_setting() -> Any:
    return setting(1.0, "how much more the vectors of the frequent are penalised: by frequency^l2_exponent", at_least=0)


@dataclass(frozen=True)
class IALS(Alternating):
    """min Σ_pos (1 − p_u·q_i)² + α Σ_ui (p_u·q_i)² + l2 (Σ_u (|I_u| + αn)^ν ‖p_u‖² + Σ_i (|U_i| + αm)^ν ‖q_i‖²)

    with α = unobserved_weight and ν = l2_exponent   (Rendle et al. 2022). Weights of interactions weigh the first sum.
    """

    rank: int = rank_setting()
    unobserved_weight: float = unobserved_setting()
    l2: float = ridge_setting()
    l2_exponent: float = exponent_setting()
    n_epochs: int = epochs_setting()
    solver: Solver = solver_setting()
    seed: int = seed_setting()

    def rule(self, n_items: int) -> Rule:
        one = Terms(constant=1)
        return Rule(
            shared=Terms(constant=self.unobserved_weight),
            own=one,
            pull=one,
            rest=Terms(),
            base=Terms(linear=1),
            l2=self.l2,
            ridge=Terms(constant=self.unobserved_weight * n_items, linear=1),
            exponent=self.l2_exponent,
        )

    def item_ridges(self, sums: Sums) -> np.ndarray:
        return self.l2 * (sums.by_item + self.unobserved_weight * sums.n_users) ** self.l2_exponent


@dataclass(frozen=True)
class DebiasedIALS(IALS):
    """iALS that takes some of what a user has not touched for liked   (paper 004): each positive also stands for hidden ones.

    A positive weighs c_u = 1 + hidden_share + hidden_items/|I_u|, and is taken out of the unobserved as often. `hidden_share`
    alone is the paper's constant c; `hidden_items` is its K, by which c_u depends on the user.
    """

    unobserved_weight: float = setting(
        0.3, "weight of every pair, touched or not", at_least=1e-9, below=1, tries=(0.01, 0.03, 0.1, 0.3)
    )
    hidden_share: float = setting(0.0, "hidden likes, for each item a user touched", at_least=0, tries=(0, 0.5))
    hidden_items: float = setting(10.0, "hidden likes of every user", at_least=0, tries=(0, 10, 30))

    def rule(self, n_items: int) -> Rule:
        plain, a = super().rule(n_items), self.unobserved_weight
        constant, inverse = 1 + self.hidden_share, self.hidden_items
        return Rule(
            shared=plain.shared,
            own=Terms(inverse=(1 - a) * inverse, constant=(1 - a) * constant),
            pull=Terms(inverse=inverse, constant=constant),
            rest=Terms(),
            base=Terms(constant=inverse, linear=constant),
            l2=self.l2,
            ridge=plain.ridge,
            exponent=plain.exponent,
        )
