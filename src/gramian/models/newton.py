"""RG² by Gauss-Newton steps in the vectors of users and items at once   (Pu et al. 2024, appendix D).

User vectors p and item vectors q are one array z. The data enter the loss linearly, so only its gradient needs the
interactions; conjugate gradients work on dense matrices alone. Along a step the loss is a polynomial of degree four, which is
minimised exactly.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import scipy.sparse as sp

from gramian.core.epochs import EpochRecipe, TrainingState
from gramian.core.params import configurable, param
from gramian.core.recipe import Counts
from gramian.data.interactions import Interactions
from gramian.linalg.product import multiply_sparse
from gramian.linalg.sparse import row_sums
from gramian.models.factors import Factors, require_solved
from gramian.models.parameters import epochs_param, rank_param, seed_param
from gramian.models.rg import rg_l2_param, rg_loss


class RG2Objective:
    """Σ_x |I_x| ‖t_x − Q p_x‖² with its penalties, minus its value at 0."""

    def __init__(self, events: Interactions, l2: float, dtype: np.dtype) -> None:
        self.x, self.x_t = events.matrix, sp.csr_array(events.matrix.T.tocsr())
        self.m, self.n, self.l2 = events.n_users, events.n_items, l2
        self.s = row_sums(self.x).astype(dtype)[:, None]
        item_weights = np.full((self.n, 1), self.s.sum(dtype=np.float64))
        self.ridge = (l2 * np.concatenate([self.n * self.s, item_weights])).astype(dtype)

    def data_gradient(self, z: np.ndarray) -> np.ndarray:
        """Return diag(|I|)·T·q and its transpose times p, with |I|·T = N·X − |I|1ᵀ."""
        p, q = z[: self.m], z[self.m :]
        by_user = self.n * multiply_sparse(self.x, q) - self.s * q.sum(axis=0)
        return np.concatenate([by_user, self.n * multiply_sparse(self.x_t, p) - (self.s * p).sum(axis=0)])

    def value(self, z: np.ndarray, data_gradient: np.ndarray) -> float:
        """Return the objective."""
        p, q = z[: self.m], z[self.m :]
        scores = np.vdot(q.T @ q, p.T @ (self.s * p))
        return float(scores) - 2 * inner_product(p, data_gradient[: self.m]) + inner_product(z, self.ridge * z)

    def multiply_curvature(self, z: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return the Gauss-Newton matrix times d = (a, b): the effect of the scores a·qᵀ + p·bᵀ on both sides."""
        (p, q), (a, b) = (z[: self.m], z[self.m :]), (d[: self.m], d[self.m :])
        weighted = self.s * p
        by_user = self.s * (a @ (q.T @ q) + p @ (b.T @ q))
        return np.concatenate([by_user, b @ (p.T @ weighted) + q @ (a.T @ weighted)]) + self.ridge * d

    def precondition(self, z: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Solve with the two diagonal blocks of the Gauss-Newton matrix, for users and for items."""
        p, q = z[: self.m], z[self.m :]
        eye = np.eye(z.shape[1])
        user_block, item_block = q.T @ q + self.l2 * self.n * eye, p.T @ (self.s * p) + float(self.ridge[-1, 0]) * eye
        by_user = np.linalg.solve(user_block, d[: self.m].T).T / np.maximum(self.s, 1)
        return np.concatenate([by_user, np.linalg.solve(item_block, d[self.m :].T).T]).astype(z.dtype)

    def newton_direction(self, z: np.ndarray, data_gradient: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return half the negative gradient, and a Gauss-Newton step by a few conjugate gradient steps."""
        p, q = z[: self.m], z[self.m :]
        scores = np.concatenate([self.s * (p @ (q.T @ q)), q @ (p.T @ (self.s * p))])
        descent = data_gradient - scores - self.ridge * z
        residual, solution = descent, np.zeros_like(z)
        direction = self.precondition(z, residual)
        before = inner_product(residual, direction)
        for _ in range(steps):
            image = self.multiply_curvature(z, direction)
            curvature = inner_product(direction, image)
            if not (before > 0 and curvature > 0):
                break
            solution, residual = solution + before / curvature * direction, residual - before / curvature * image
            preconditioned = self.precondition(z, residual)
            after = inner_product(residual, preconditioned)
            direction, before = preconditioned + after / before * direction, after
        return descent, solution

    def step_length(self, z: np.ndarray, d: np.ndarray, descent: np.ndarray) -> float:
        """Return the t that minimises the objective along d = (a, b): scores are o + t·(aqᵀ + pbᵀ) + t²·abᵀ."""
        (p, q), (a, b) = (z[: self.m], z[self.m :]), (d[: self.m], d[self.m :])
        qq, qb, bb = q.T @ q, q.T @ b, b.T @ b
        pp, pa, aa = p.T @ (self.s * p), p.T @ (self.s * a), a.T @ (self.s * a)
        linear = np.vdot(aa, qq) + 2 * np.vdot(pa.T, qb) + np.vdot(pp, bb)  # ‖aqᵀ + pbᵀ‖², rows weighted
        crossed = np.vdot(pa, qb) - inner_product(a, self.data_gradient(d)[: self.m])  # ⟨o − T, abᵀ⟩
        square = linear + 2 * crossed + inner_product(d, self.ridge * d)
        cube, fourth = 2 * (np.vdot(aa, qb) + np.vdot(pa, bb)), np.vdot(aa, bb)
        polynomial = np.array([fourth, cube, square, -2 * inner_product(descent, d), 0], np.float64)
        require_solved(polynomial)
        roots = np.roots(np.polyder(polynomial))
        candidates = np.append(roots[np.isreal(roots)].real, 0)  # 0 where nothing is left to gain
        return float(candidates[np.argmin(np.polyval(polynomial, candidates))])


def inner_product(a: np.ndarray, b: np.ndarray, size: int = 1024) -> float:
    """Return Σ_ij a_ij · b_ij, with the sums of chunks of rows added in double precision."""
    return sum(float(np.vdot(a[at : at + size], b[at : at + size])) for at in range(0, len(a), size))


@configurable
class RG2NewtonCG(EpochRecipe):
    """RG² by Newton steps, each by a few conjugate gradients; it converges to RG2   (Pu et al. 2024, appendix D)."""

    needs_binary = True

    rank: int = rank_param()
    l2: float = rg_l2_param()
    n_epochs: int = epochs_param()
    steps: int = param(3, "conjugate gradient steps for each Newton step", at_least=1)
    seed: int = seed_param()

    def initial_state(self, counts: Counts, dtype: type) -> TrainingState:
        """Users and items at random: at 0 the gradient would be 0."""
        rng = np.random.default_rng([self.seed, 1])
        users = rng.standard_normal((counts.n_users, self.rank), np.float32).astype(dtype) * dtype(0.1 / np.sqrt(self.rank))
        return TrainingState.of(users, self.initial_items(counts.n_items, dtype))

    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        objective = RG2Objective(events, self.l2, state.items.dtype)
        sizes = objective.s[objective.s > 0].astype(np.float64)
        loss_at_zero = float(rg_loss(events.n_items, self.l2).loss_at_zero.at(sizes).sum())
        z = np.concatenate([state.users, state.items])
        del state
        data_gradient = objective.data_gradient(z)
        while True:
            descent, direction = objective.newton_direction(z, data_gradient, self.steps)
            z = z + objective.step_length(z, direction, descent) * direction
            del descent, direction
            data_gradient = objective.data_gradient(z)
            value = objective.value(z, data_gradient) + loss_at_zero
            require_solved(np.array([value]))
            yield TrainingState.of(z[: objective.m], z[objective.m :], value)

    def to_scorer(self, events: Interactions, state: TrainingState) -> Factors:
        return Factors.of(state.items, state.items.T @ state.items, rg_loss(events.n_items, self.l2))

    def n_copies(self) -> int:
        return 16  # z, two gradients, the vectors of conjugate gradients and intermediate products
