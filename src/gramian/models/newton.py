"""RG² by Gauss-Newton steps in the vectors of users and items at once   (paper 002, appendix D).

Vectors of users p and of items q are one array z. The loss is a square of what is linear in the data, so only its gradient
needs the interactions; conjugate gradients work on dense matrices alone. Along a step the loss is a polynomial of degree
four, and is taken to its least.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gramian.data.interactions import Interactions
from gramian.linalg.gram import sizes
from gramian.linalg.product import times
from gramian.models.factors import Factors, require_finite
from gramian.models.iterative import Iterative, State, epochs_setting, seed_setting
from gramian.models.low_rank import rank_setting
from gramian.models.recipe import setting
from gramian.models.rg import loss, penalty_setting


class Squares:
    """The loss Σ_x |I_x| ‖t_x − Q p_x‖² with its penalties, less what it is at 0."""

    def __init__(self, events: Interactions, l2: float, dtype: np.dtype) -> None:
        self.x, self.x_t = events.matrix, sp.csr_array(events.matrix.T.tocsr())
        self.m, self.n, self.l2 = events.n_users, events.n_items, l2
        self.s = sizes(self.x).astype(dtype)[:, None]
        of_items = np.full((self.n, 1), self.s.sum(dtype=np.float64))
        self.ridge = (l2 * np.concatenate([self.n * self.s, of_items])).astype(dtype)

    def pulled(self, z: np.ndarray) -> np.ndarray:
        """dMat(|I|)·T·q and its transpose times p, with |I|·T = N·X − |I|1ᵀ."""
        p, q = z[: self.m], z[self.m :]
        of_users = self.n * times(self.x, q) - self.s * q.sum(axis=0)
        return np.concatenate([of_users, self.n * times(self.x_t, p) - (self.s * p).sum(axis=0)])

    def value(self, z: np.ndarray, pulled: np.ndarray) -> float:
        p, q = z[: self.m], z[self.m :]
        scores = np.vdot(q.T @ q, p.T @ (self.s * p))
        return float(scores) - 2 * inner(p, pulled[: self.m]) + inner(z, self.ridge * z)

    def curved(self, z: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The Gauss-Newton matrix times d = (a, b): what the scores a·qᵀ + p·bᵀ do to both sides."""
        (p, q), (a, b) = (z[: self.m], z[self.m :]), (d[: self.m], d[self.m :])
        weighed = self.s * p
        of_users = self.s * (a @ (q.T @ q) + p @ (b.T @ q))
        return np.concatenate([of_users, b @ (p.T @ weighed) + q @ (a.T @ weighed)]) + self.ridge * d

    def flat(self, z: np.ndarray, d: np.ndarray) -> np.ndarray:
        """d, divided by the two diagonal blocks of that matrix."""
        p, q = z[: self.m], z[self.m :]
        eye = np.eye(z.shape[1])
        of_users, of_items = q.T @ q + self.l2 * self.n * eye, p.T @ (self.s * p) + float(self.ridge[-1, 0]) * eye
        over = np.linalg.solve(of_users, d[: self.m].T).T / np.maximum(self.s, 1)
        return np.concatenate([over, np.linalg.solve(of_items, d[self.m :].T).T]).astype(z.dtype)

    def towards(self, z: np.ndarray, pulled: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Down the hill, and a Gauss-Newton step by a few conjugate gradients."""
        p, q = z[: self.m], z[self.m :]
        scores = np.concatenate([self.s * (p @ (q.T @ q)), q @ (p.T @ (self.s * p))])
        down = pulled - scores - self.ridge * z
        rest, found = down, np.zeros_like(z)
        step = self.flat(z, rest)
        before = inner(rest, step)
        for _ in range(steps):
            moved = self.curved(z, step)
            curvature = inner(step, moved)
            if not (before > 0 and curvature > 0):
                break
            found, rest = found + before / curvature * step, rest - before / curvature * moved
            ahead = self.flat(z, rest)
            after = inner(rest, ahead)
            step, before = ahead + after / before * step, after
        return down, found

    def least_along(self, z: np.ndarray, d: np.ndarray, down: np.ndarray) -> float:
        """Where along d = (a, b) the loss is least: scores are o + t·(aqᵀ + pbᵀ) + t²·abᵀ."""
        (p, q), (a, b) = (z[: self.m], z[self.m :]), (d[: self.m], d[self.m :])
        qq, qb, bb = q.T @ q, q.T @ b, b.T @ b
        pp, pa, aa = p.T @ (self.s * p), p.T @ (self.s * a), a.T @ (self.s * a)
        first = np.vdot(aa, qq) + 2 * np.vdot(pa.T, qb) + np.vdot(pp, bb)  # ‖aqᵀ + pbᵀ‖², rows weighed
        crossed = np.vdot(pa, qb) - inner(a, self.pulled(d)[: self.m])  # ⟨o − T, abᵀ⟩
        square = first + 2 * crossed + inner(d, self.ridge * d)
        cube, fourth = 2 * (np.vdot(aa, qb) + np.vdot(pa, bb)), np.vdot(aa, bb)
        loss_along = np.array([fourth, cube, square, -2 * inner(down, d), 0], np.float64)
        require_finite(loss_along)
        at = np.roots(np.polyder(loss_along))
        real = np.append(at[np.isreal(at)].real, 0)  # 0 where there is nothing left to gain
        return float(real[np.argmin(np.polyval(loss_along, real))])


def inner(one: np.ndarray, other: np.ndarray, size: int = 1024) -> float:
    """Σ_ij one_ij · other_ij, its parts summed in double precision."""
    return sum(float(np.vdot(one[at : at + size], other[at : at + size])) for at in range(0, len(one), size))


@dataclass(frozen=True)
class RG2NewtonCG(Iterative):
    """RG² by Newton steps, each by a few conjugate gradients; it converges to RG2."""

    rank: int = rank_setting()
    l2: float = penalty_setting()
    n_epochs: int = epochs_setting()
    steps: int = setting(3, "conjugate gradient steps of each Newton step", at_least=1)
    seed: int = seed_setting()

    needs_binary = True

    def first(self, events: Interactions, dtype: type) -> State:
        """Both at random: at 0 the gradient would be 0."""
        begin = super().first(events, dtype)
        rng = np.random.default_rng([self.seed, 1])
        users = rng.standard_normal(begin.users.shape, np.float32).astype(dtype) * dtype(0.1 / np.sqrt(self.rank))
        return State.of(users, begin.items)

    def improved(self, events: Interactions, state: State) -> Generator[State, float | None, None]:
        squares = Squares(events, self.l2, state.items.dtype)
        base = float(loss(events.n_items, self.l2).base.at(squares.s[squares.s > 0].astype(np.float64)).sum())
        z = np.concatenate([state.users, state.items])
        del state
        pulled = squares.pulled(z)
        while True:
            down, step = squares.towards(z, pulled, self.steps)
            z = z + squares.least_along(z, step, down) * step
            del down, step
            pulled = squares.pulled(z)
            value = squares.value(z, pulled) + base
            require_finite(np.array([value]))
            yield State.of(z[: squares.m], z[squares.m :], value)

    def fitted(self, events: Interactions, state: State) -> Factors:
        return Factors.of(state.items, state.items.T @ state.items, loss(events.n_items, self.l2))

    def copies(self) -> int:
        return 15  # where it is, what pulls, down, rest, found, step, moved, ahead, and what is between

    def passes(self) -> float:
        return 2 + self.steps * self.rank / 32
