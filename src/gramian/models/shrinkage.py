"""Models that keep the singular vectors of X = UΣVᵀ and shrink each singular value: W = V diag(f) Vᵀ.

    LRR              f = σ² / (σ² + l2)
    RegularizedPCA   f = (1 − l2/σ)₊
    WLAE             f = (1 − l2/σ²)₊
    VLAE             f = (1 − λ/σ)₊,  λ = scale/σ
    DropoutMF        f = (1 − μ/σ)₊,  μ = (1 − keep)/(keep + (1 − keep)·d) · Σ_{i≤d} σ_i,  d the last index with σ_d > μ
    NuclearNormMF    f = (1 − μ/σ)₊,  μ = (l2·power/2)·T^(power−1),  T + d·μ = Σ_{i≤d} σ_i

A training user's fold-in x·W is that user's row of the fitted matrix. The models and their relations are those of the
regularization-landscape paper (2022). Its Lemma 2 prints μ = l2·T^(power−1). That lacks the factor power/2, and is right for
power 2 only: the loss Σ(σ − y)² + l2·T^power, T = Σy, has the derivative −2(σ − y) + l2·power·T^(power−1), which is 0 at
σ − y = μ as above. For X = diag(1, 2, ..., 10), l2 = 4 and power = 1 the printed μ = 4 gives the loss 210 and μ = 2 the loss
181, the minimum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, TypeGuard

import numpy as np

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe, Recipe, require_rank
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.eigen import TopEigenpairs, eigenpairs_bytes
from gramian.linalg.memory import require_memory
from gramian.models.autoencoders import DLAE
from gramian.models.parameters import l2_param, rank_param
from gramian.models.scorers import LowRankWeights
from gramian.models.spectral import GramSource, SpectralRecipe, right_singular_vectors

FIRST_RANK = 64  # singular values computed first where the model chooses its own rank


def soft_threshold(sigma: np.ndarray, threshold: Any) -> np.ndarray:
    """Return (σ − threshold)₊ / σ; 0 where σ is 0, because such a factor carries nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sigma > 0, np.maximum(1 - threshold / sigma, 0), 0)


def threshold_from_l2(sigma: np.ndarray, l2: Any) -> np.ndarray:
    """Return the λ with (σ − λ)/σ = σ²/(σ² + l2); 0 where σ is 0   (landscape paper, 2022, Proposition 1)."""
    l2 = np.broadcast_to(l2, sigma.shape)
    return np.divide(sigma * l2, sigma**2 + l2, out=np.zeros_like(sigma), where=sigma > 0)


def is_constant(weights: float | tuple[float, ...]) -> TypeGuard[tuple[float, ...]]:
    """Whether weights are one for each factor, and all the same."""
    return isinstance(weights, tuple) and len(set(weights)) == 1


def shrunk_weights(sigma: np.ndarray, f: np.ndarray, vectors: np.ndarray, name: str) -> LowRankWeights:
    """Return V diag(f) Vᵀ without the factors that are shrunk to 0."""
    nonzero = np.flatnonzero(f > 0)
    if len(nonzero) == 0:
        got = f"all shrunk to 0 (the largest singular value is {sigma[0]:.4g})"
        raise InvalidInput(f"{name} to leave a factor", got, "Change it")
    v = vectors[:, nonzero]
    return LowRankWeights(v * f[nonzero].astype(v.dtype), v)


class SingularShrinkage(SpectralRecipe):
    """Keeps the top singular vectors of X and shrinks their singular values."""

    shrinkage_param = "l2"  # the parameter that sets how much

    @abstractmethod
    def shrink(self, sigma: np.ndarray) -> np.ndarray:
        """Return f for singular values in descending order."""

    @property
    def decomposition(self) -> Hashable:
        return "singular vectors"

    def decompose(self, source: GramSource, rank: int, dtype: type) -> TopEigenpairs:
        return right_singular_vectors(source, rank, dtype)

    def truncate_to_scorer(self, decomposition: TopEigenpairs) -> LowRankWeights:
        sigma = np.sqrt(decomposition.values[: self.rank].astype(np.float64))
        with np.errstate(invalid="ignore", divide="ignore"):  # a factor of singular value 0 carries nothing
            f = np.where(sigma > 0, self.shrink(sigma), 0)
        name = f"{self.shrinkage_param} of {type(self).__name__}"
        return shrunk_weights(sigma, f, decomposition.vectors[:, : self.rank], name)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = getattr(self, self.shrinkage_param)
        if isinstance(weights, tuple) and len(weights) != self.rank:
            expected = f"one {self.shrinkage_param} for each of the {self.rank} factors"
            raise InvalidInput(expected, f"{len(weights)}", "Pass as many as the rank, or a single number")


@configurable
class LRR(SingularShrinkage):
    """Low-rank ridge regression   (Jin et al. 2021).

    min ‖X − XW‖² + l2·‖W‖²  with  rank(W) ≤ rank. One l2 for each factor is possible, largest singular value first.
    """

    rank: int = rank_param()
    l2: float | tuple[float, ...] = l2_param(one_per="factor")

    def shrink(self, sigma: np.ndarray) -> np.ndarray:
        return sigma**2 / (sigma**2 + np.asarray(self.l2))

    @property
    def full_rank(self) -> Recipe | None:
        return None if isinstance(self.l2, tuple) else DLAE(0, self.l2)

    def canonical(self) -> Recipe:
        return LRR(self.rank, self.l2[0]) if is_constant(self.l2) else self


@configurable
class RegularizedPCA(SingularShrinkage):
    """PCA with a soft threshold: every singular value is lowered by l2   (Zheng et al. 2018).

    min ‖X − PQ‖² + l2·(‖P‖² + ‖Q‖²)
    """

    rank: int = rank_param()
    l2: float = param(10.0, "how much every singular value is lowered", at_least=0, tries=(0, 3, 10, 20, 40, 80))

    def shrink(self, sigma: np.ndarray) -> np.ndarray:
        return soft_threshold(sigma, self.l2)

    @property
    def full_rank(self) -> Recipe:
        return NuclearNormMF(2 * self.l2, 1)


@configurable
class WLAE(SingularShrinkage):
    """Linear autoencoder with penalised encoder and decoder   (Bao et al. 2020).

    min ‖X − X·A·B‖² + l2·(‖A‖² + ‖B‖²). With one l2 for each factor, in any order, the smallest
    goes to the largest singular value.
    """

    rank: int = rank_param()
    l2: float | tuple[float, ...] = l2_param(one_per="factor")

    def shrink(self, sigma: np.ndarray) -> np.ndarray:
        return soft_threshold(sigma**2, np.sort(self.l2, axis=None))

    def canonical(self) -> Recipe:
        if is_constant(self.l2):
            return WLAE(self.rank, self.l2[0])
        return WLAE(self.rank, tuple(sorted(self.l2))) if isinstance(self.l2, tuple) else self


@configurable
class VLAE(SingularShrinkage):
    """Factorization under a weighted nuclear norm with weights λ_i = scale/σ_i   (landscape paper, 2022).

    min ‖X − PQ‖² + ‖Λ^½Q‖² + ‖PΛ^½‖². `scale` may be the weights themselves, one for each factor: in any order, the smallest
    goes to the largest singular value.
    """

    shrinkage_param = "scale"

    rank: int = rank_param()
    scale: float | tuple[float, ...] = param(
        100.0, "C of the weights C/σ on the singular values", at_least=0, one_per="factor", tries=(10, 100, 1000, 10000)
    )

    def shrink(self, sigma: np.ndarray) -> np.ndarray:
        return soft_threshold(sigma, np.sort(self.scale) if isinstance(self.scale, tuple) else self.scale / sigma)

    def canonical(self) -> Recipe:
        if is_constant(self.scale):
            return RegularizedPCA(self.rank, self.scale[0])
        return VLAE(self.rank, tuple(sorted(self.scale))) if isinstance(self.scale, tuple) else WLAE(self.rank, self.scale)

    @staticmethod
    def from_lrr(recipe: LRR, events: GramSource) -> VLAE:
        """Return the VLAE with the weights of an LRR: "sorted" in Table 3 of the landscape paper.

        Both shrink a singular value alike at λ = σ·l2/(σ² + l2) (Proposition 1). VLAE gives the smallest λ to the largest σ,
        so that the models are the same only where the λ ascend already.

        Parameters
        ----------
        recipe
            The LRR, with one l2 or one for each factor.
        events
            The interactions, or their Gram matrix, whose singular values relate the two.
        """
        require_rank(recipe.rank, recipe.highest_rank(events), events)
        sigma = np.sqrt(right_singular_vectors(events, recipe.rank, np.float32).values.astype(np.float64))
        return VLAE(recipe.rank, tuple(threshold_from_l2(sigma, recipe.l2).tolist()))


class InducedRank(GramRecipe):
    """Lowers all singular values by one number μ that depends on them, and so chooses its own rank."""

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        return False

    @abstractmethod
    def threshold(self, sums: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return μ for each number d of singular values kept, from the sums of the d largest."""

    def solve(self, gram: Gram, overwrite: bool) -> LowRankWeights:
        return self._shrink(gram, gram.matrix.dtype.type)

    def fit_scorer(self, events: Interactions, dtype: type) -> LowRankWeights:
        return self._shrink(events, dtype)

    def _shrink(self, source: GramSource, dtype: type) -> LowRankWeights:
        highest = min(source.n_users, source.n_items)
        rank = min(FIRST_RANK, highest)
        while True:
            spectrum = right_singular_vectors(source, rank, dtype)
            sigma = np.sqrt(spectrum.values.astype(np.float64))
            d = np.arange(1, rank + 1)
            mu = self.threshold(np.cumsum(sigma), d)
            above = np.flatnonzero(sigma > mu)
            last = int(above[-1]) if len(above) else 0
            if last + 1 < rank or rank == highest:
                f = np.where(d <= last + 1, soft_threshold(sigma, mu[last]), 0)
                return shrunk_weights(sigma, f, spectrum.vectors, f"the parameters of {self}")
            rank = min(4 * rank, highest)
            n_bytes = eigenpairs_bytes(source.n_items, rank, np.dtype(dtype).itemsize)
            require_memory(n_bytes, f"up to {rank:,} factors of {self}", "Change its parameters, so that it keeps fewer")

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The memory for up to `FIRST_RANK` factors. Where the model keeps more, the fit checks the memory again."""
        return 8 * events.n_interactions + eigenpairs_bytes(events.n_items, FIRST_RANK, np.dtype(dtype).itemsize)


@configurable
class DropoutMF(InducedRank):
    """Matrix factorization with dropout of factors, each kept with probability `keep`   (Cavazza et al. 2018)."""

    keep: float = param(0.9, "probability that a factor is kept", at_least=1e-9, below=1, tries=(0.5, 0.7, 0.9, 0.95, 0.99))

    def threshold(self, sums: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (1 - self.keep) / (self.keep + (1 - self.keep) * d) * sums

    def canonical(self) -> Recipe:
        return NuclearNormMF((1 - self.keep) / self.keep, 2)


@configurable
class NuclearNormMF(InducedRank):
    """Factorization under a power of the nuclear norm   (landscape paper, 2022, Lemma 2).

    min ‖X − Y‖² + l2·‖Y‖_*^power: all singular values are lowered by the same amount.
    """

    l2: float = param(20.0, "penalty on the nuclear norm", at_least=0, tries=(5, 10, 20, 40, 80))
    power: float = param(1.0, "power of the nuclear norm", at_least=1)

    def threshold(self, sums: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Solve T + d·μ(T) = sum by bisection: it has one root, between 0 and the sum."""
        low, high = np.zeros(len(d)), sums.copy()
        for _ in range(200):
            middle = (low + high) / 2
            above = middle + d * self.half_derivative(middle) > sums
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return self.half_derivative((low + high) / 2)

    def half_derivative(self, nuclear_norm: np.ndarray) -> np.ndarray:
        """Return half the derivative of the penalty with respect to the nuclear norm."""
        with np.errstate(over="ignore"):  # infinity is large enough
            return self.l2 * self.power / 2 * nuclear_norm ** (self.power - 1)
