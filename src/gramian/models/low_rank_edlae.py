"""Low-rank EDLAE by iteration: W = U Vᵀ that minimises EDLAE's own loss, with the diagonal of U Vᵀ taken out,

    L(U, V) = ‖X − X·M‖² + ‖Λ^½ M‖²,    M = U Vᵀ − diag(UVᵀ).

With S = XᵀX, C = S + diag(Λ), c = diag(C), s = diag(S), G = C U, K = UᵀG and d_i = u_i·v_i,

    L = Σ_i [ s_i − 2 v_i·(g_i − c_i u_i) + v_iᵀ K v_i − 2 d_i (g_i·v_i) + c_i d_i² ].

`ADMMEDLAE` introduces β = diag(UVᵀ) as a constraint with multipliers γ. With Ω = Λ + ω and R = S diag(1 + β) + Ω diag(β − γ),

    Vᵀ = (Uᵀ (C + Ω) U)⁻¹ Uᵀ R,    U = A⁻¹ R V (VᵀV)⁻¹,    β = (diag(S U Vᵀ) − s + Ω (d + γ)) / (s + ω),    γ ← γ + d − β.

`SteckUpdates` and `PrintedUpdates` differ in A, in their start, their order and the bound on β.

`ALSEDLAE` alternates on L itself. For a fixed U the best v_i solves a system that is a rank-two change of K. By Woodbury's
identity, with a = u·K⁻¹u, b = u·K⁻¹g and e = g·K⁻¹g of each item,

    v = ((1 − b)·K⁻¹g − (c − e)·K⁻¹u) / ((1 − b)² + a·(c − e)),    and then    L = Σ_i [ s_i − v_i·(g_i − c_i u_i) ].

For a fixed V, L is quadratic in U. A few conjugate gradient steps lower it, preconditioned by U ↦ C⁻¹ U (VᵀV)⁻¹.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gramian.core.gram import Gram
from gramian.core.params import Configurable, configurable, param
from gramian.core.recipe import GramRecipe, require_rank
from gramian.data.interactions import Interactions
from gramian.errors import Diverged
from gramian.linalg.eigen import top_eigenpairs
from gramian.linalg.inverse import SymmetricOperator
from gramian.linalg.symmetric import Symmetric, stored_size
from gramian.models.autoencoders import EDLAE
from gramian.models.low_rank import LowRankEDLAE, fit_full_rank
from gramian.models.parameters import dropout_param, l2_param, rank_param, seed_param
from gramian.models.scorers import LowRankWeights
from gramian.models.spectral import GramSource, gram_diagonal, gram_operator
from gramian.progress import track

DIVERGED_SHARE = 1.5  # a loss above this multiple of the lowest one: the rounds diverge
Round = tuple[np.ndarray, np.ndarray, float]  # U, V and the loss


def row_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the inner product of each row of a with that of b, as a column in float64."""
    return np.einsum("ik,ik->i", a, b, dtype=np.float64)[:, None]


def small_inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert a small positive semidefinite matrix in float64, leaving out directions that are rounding error."""
    rounding = 10 * float(np.finfo(matrix.dtype).eps)
    return np.linalg.pinv(matrix.astype(np.float64), rcond=rounding, hermitian=True).astype(matrix.dtype)


def inverse_of_gram(v: np.ndarray) -> np.ndarray:
    """Return (VᵀV)⁻¹, summed in float64: its smallest directions count, and float32 sums would lose them."""
    exact = v.astype(np.float64)
    return np.linalg.pinv(exact.T @ exact, rcond=1e-12, hermitian=True).astype(v.dtype)


@dataclass(frozen=True)
class EDLAEProblem:
    """S as an operator, its diagonal s and the penalty Λ, as columns."""

    gram: SymmetricOperator
    s: np.ndarray
    penalty: np.ndarray

    @staticmethod
    def of(source: GramSource, recipe: EDLAE, dtype: type) -> EDLAEProblem:
        """Make the problem of interactions or a Gram."""
        s = gram_diagonal(source)
        penalty = recipe.coefficients.penalty(s)
        return EDLAEProblem(gram_operator(source, dtype), s.astype(dtype)[:, None], penalty.astype(dtype)[:, None])

    @property
    def dtype(self) -> np.dtype:
        """The precision of the arrays."""
        return self.s.dtype

    def loss(self, u: np.ndarray, v: np.ndarray, gram_u: np.ndarray) -> float:
        """Return L, with gram_u = S U."""
        d, gv, c = row_products(u, v), row_products(gram_u, v), self.s.astype(np.float64) + self.penalty
        gv += self.penalty * d  # G = S U + ΛU
        inner = u.T @ (gram_u + self.penalty * u)
        linear = gv - c * d
        return float((self.s - 2 * linear + row_products(v @ inner, v) - 2 * d * gv + c * d * d).sum(dtype=np.float64))


@dataclass(frozen=True)
class ADMMProblem(EDLAEProblem):
    """The problem with the constraint β = diag(UVᵀ), and the penalty Ω = Λ + ω on its violation."""

    omega: float

    @property
    def constraint_penalty(self) -> np.ndarray:
        """Ω."""
        return self.penalty + self.dtype.type(self.omega)

    def solve_u(self, inverse: Symmetric, v: np.ndarray, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """Return A⁻¹ R V (VᵀV)⁻¹."""
        right = self.gram @ ((1 + beta) * v) + self.constraint_penalty * (beta - gamma) * v
        return inverse @ (right @ inverse_of_gram(v))

    def solve_v(self, u: np.ndarray, gram_u: np.ndarray, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """Return Rᵀ U (Uᵀ (C + Ω) U)⁻¹."""
        inner = u.T @ (gram_u + (self.penalty + self.constraint_penalty) * u)
        return ((1 + beta) * gram_u + self.constraint_penalty * (beta - gamma) * u) @ small_inverse(inner)

    def multipliers(
        self, u: np.ndarray, v: np.ndarray, gram_u: np.ndarray, gamma: np.ndarray, lowest: float = -np.inf
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return β, at least `lowest`, and γ."""
        d, explained = row_products(u, v), row_products(gram_u, v)
        beta = np.maximum((explained - self.s + self.constraint_penalty * (d + gamma)) / (self.s + self.omega), lowest)
        return beta.astype(self.dtype), (gamma + d - beta).astype(self.dtype)


class ADMMUpdates(Configurable, ABC):
    """The order and the details of the updates of ADMM."""

    @abstractmethod
    def rounds(self, problem: ADMMProblem, recipe: ADMMEDLAE, source: GramSource) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield U, V, β and S U after each round, without end."""


@configurable
class SteckUpdates(ADMMUpdates):
    """The updates of Steck's public code (2020): A = S + Λ, β at least 0, V before U, from a random U."""

    def rounds(self, problem: ADMMProblem, recipe: ADMMEDLAE, source: GramSource) -> Iterator[tuple[np.ndarray, ...]]:
        inverse = fit_full_rank(recipe.full_rank, source, problem.dtype.type).inverse
        rng = np.random.default_rng(recipe.seed)
        u = rng.standard_normal((source.n_items, recipe.rank), np.float32).astype(problem.dtype)
        gram_u = problem.gram @ u
        beta = gamma = np.zeros_like(problem.s)
        while True:
            v = problem.solve_v(u, gram_u, beta, gamma)
            u = problem.solve_u(inverse, v, beta, gamma)
            gram_u = problem.gram @ u
            beta, gamma = problem.multipliers(u, v, gram_u, gamma, lowest=0)
            yield u, v, beta, gram_u


@configurable
class PrintedUpdates(ADMMUpdates):
    """The updates as printed by Jin and Li (2023, Eq. 35): A = S + Λ + Ω, β unbounded, U before V, from the eigenvectors of S.

    They diverge on most real data.
    """

    def rounds(self, problem: ADMMProblem, recipe: ADMMEDLAE, source: GramSource) -> Iterator[tuple[np.ndarray, ...]]:
        p = recipe.dropout
        doubled = EDLAE(2 * p / (1 + p), 2 * recipe.l2 + recipe.omega)  # whose penalty is Λ + Ω
        inverse = fit_full_rank(doubled, source, problem.dtype.type).inverse
        v = top_eigenpairs(problem.gram, recipe.rank).vectors
        beta = gamma = np.zeros_like(problem.s)
        while True:
            u = problem.solve_u(inverse, v, beta, gamma)
            gram_u = problem.gram @ u
            v = problem.solve_v(u, gram_u, beta, gamma)
            beta, gamma = problem.multipliers(u, v, gram_u, gamma)
            yield u, v, beta, gram_u


class IterativeEDLAE(GramRecipe):
    """Low-rank EDLAE by rounds of updates."""

    remedy: ClassVar[str]  # what to do if it diverges
    n_copies: ClassVar[int] = 12  # arrays of the size of U in memory at once

    rank: int
    dropout: float
    l2: float
    n_epochs: int

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        return False

    @property
    def full_rank(self) -> EDLAE:
        """The recipe of full rank."""
        return EDLAE(self.dropout, self.l2)

    @abstractmethod
    def rounds(self, source: GramSource, dtype: type) -> Iterator[Round]:
        """Yield U, V and the loss after each round, without end."""

    def solve(self, gram: Gram, overwrite: bool) -> LowRankWeights:
        return self._iterate(gram, gram.matrix.dtype.type)

    def fit_scorer(self, events: Interactions, dtype: type) -> LowRankWeights:
        return self._iterate(events, dtype)

    def _iterate(self, source: GramSource, dtype: type) -> LowRankWeights:
        """Return the round with the lowest loss; stop where the loss rises far above it."""
        require_rank(self.rank, min(source.n_users, source.n_items), source)
        rounds, lowest, best = self.rounds(source, dtype), np.inf, None
        with np.errstate(over="ignore", invalid="ignore"):  # the loss tells
            for _ in track(range(self.n_epochs), "alternating"):
                u, v, loss = next(rounds)
                if loss < lowest:
                    lowest, best = loss, (u, v)
                elif not loss <= DIVERGED_SHARE * lowest:
                    break
        nothing = float(gram_diagonal(source).sum())
        if best is None or lowest > nothing:
            raise Diverged(f"a loss of {self} below {nothing:.4g}, that of predicting nothing", f"{lowest:.4g}", self.remedy)
        return LowRankWeights(*best)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n, itemsize = events.n_items, np.dtype(dtype).itemsize
        rounds = stored_size(n) * itemsize + self.n_copies * n * self.rank * itemsize
        return max(self.full_rank.fit_bytes(events, dtype), rounds)


@configurable
class ADMMEDLAE(IterativeEDLAE):
    """Low-rank EDLAE by ADMM   (Steck 2020).

    min ‖X − X(UVᵀ − diag(β))‖² + ‖Λ^½(UVᵀ − diag(β))‖²  with  β = diag(UVᵀ)

    After a few rounds it is near the optimum of its loss, and later it diverges: the round with the lowest loss is returned.
    `ALSEDLAE` reaches a lower loss. Steck's settings are dropout 0.33, l2 400 and 5 rounds for MovieLens 20M, 0.15, 500 and 10
    for Netflix, and 0.1, 10 and 20 for the Million Song Dataset.
    """

    remedy = "Choose SteckUpdates(), or change omega or l2"

    rank: int = rank_param()
    dropout: float = dropout_param()
    l2: float = l2_param()
    omega: float = param(
        500.0, "ADMM penalty on violations of the constraint β = diag(UVᵀ); usually 100 to 1,000", at_least=1e-9
    )
    n_epochs: int = param(5, "rounds of updates; usually 5 to 20", at_least=1)
    updates: ADMMUpdates = param(SteckUpdates(), "which updates", choices=(SteckUpdates, PrintedUpdates))
    seed: int = seed_param()

    def rounds(self, source: GramSource, dtype: type) -> Iterator[Round]:
        base = EDLAEProblem.of(source, self.full_rank, dtype)
        problem = ADMMProblem(base.gram, base.s, base.penalty, self.omega)
        for u, v, _, gram_u in self.updates.rounds(problem, self, source):
            yield u, v, problem.loss(u, v, gram_u)


@configurable
class ALSEDLAE(IterativeEDLAE):
    """Low-rank EDLAE at a stationary point of its own loss, by alternating least squares from `LowRankEDLAE`.

    min ‖X − X·M‖² + ‖Λ^½ M‖²  with  M = UVᵀ − diag(UVᵀ)  and  Λ = dropout/(1 − dropout)·s + l2. The loss falls in every round.
    """

    rank: int = rank_param()
    dropout: float = dropout_param()
    l2: float = l2_param()
    n_epochs: int = param(10, "rounds of updates; usually 5 to 30", at_least=1)
    steps: int = param(3, "conjugate gradient steps for U in each round", at_least=1)

    remedy = "Raise l2"
    n_copies = 16

    @property
    def start(self) -> LowRankEDLAE:
        """The recipe whose weights it starts from."""
        return LowRankEDLAE(self.rank, self.dropout, self.l2)

    def rounds(self, source: GramSource, dtype: type) -> Iterator[Round]:
        problem = EDLAEProblem.of(source, self.full_rank, dtype)
        c = problem.s + problem.penalty
        weights = fit_full_rank(self.full_rank, source, dtype)
        truncated = self.start.project(weights, source, self.rank)
        u: np.ndarray = (truncated.encoder * (1 - self.dropout)).astype(dtype)  # EDLAE's weights without the factor 1/q
        while True:
            gram_u = problem.gram @ u
            v = solve_decoder(u, gram_u + problem.penalty * u, c)
            yield u, v, problem.loss(u, v, gram_u)
            u = improve_encoder(problem, weights.inverse, u, v, gram_u, self.steps)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return max(super().fit_bytes(events, dtype), self.start.fit_bytes(events, dtype))


def solve_decoder(u: np.ndarray, g: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the V that minimises L for a fixed U, with g = C U."""
    inverse = small_inverse(u.T @ g)  # K⁻¹
    ku, kg = u @ inverse, g @ inverse
    rounding = 10 * float(np.finfo(u.dtype).eps)
    one_minus_b = np.maximum(1 - row_products(u, kg), 0)
    c_minus_e = np.maximum(c - row_products(g, kg), rounding * c)  # 0 at full rank: then v = −K⁻¹u/a
    denominator = one_minus_b**2 + row_products(u, ku) * c_minus_e
    scale = np.divide(1, denominator, out=np.zeros_like(denominator), where=denominator > 0)
    return (one_minus_b * scale).astype(u.dtype) * kg - (c_minus_e * scale).astype(u.dtype) * ku


def improve_encoder(
    problem: EDLAEProblem, inverse: Symmetric, u: np.ndarray, v: np.ndarray, gram_u: np.ndarray, steps: int
) -> np.ndarray:
    """Lower L in U for a fixed V, by conjugate gradient steps.

    Half the gradient is off(C·off(UVᵀ) − S)·V, where off(·) sets the diagonal to 0.
    """
    inner = v.T @ v
    decoder = inverse_of_gram(v)
    c = problem.s + problem.penalty

    def multiply(a: np.ndarray, gram_a: np.ndarray) -> np.ndarray:
        """Return off(C·off(aVᵀ))·V, with gram_a = S a."""
        d = row_products(a, v).astype(a.dtype)
        ca, dv = gram_a + problem.penalty * a, d * v
        diagonal = row_products(ca, v).astype(a.dtype) - c * d
        return ca @ inner - (problem.gram @ dv + problem.penalty * dv) - diagonal * v

    residual = problem.gram @ v - problem.s * v - multiply(u, gram_u)
    direction = inverse @ (residual @ decoder)
    before = row_products(residual, direction).sum()
    for _ in range(steps):
        image = multiply(direction, problem.gram @ direction)
        curvature = row_products(direction, image).sum()
        if not (before > 0 and curvature > 0):
            break
        step = u.dtype.type(before / curvature)
        u, residual = u + step * direction, residual - step * image
        preconditioned = inverse @ (residual @ decoder)
        after = row_products(residual, preconditioned).sum()
        direction, before = preconditioned + u.dtype.type(after / before) * direction, after
    return u
