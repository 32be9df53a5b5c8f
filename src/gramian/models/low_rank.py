"""Low rank and nuclear norm (paper 001): models of two thin factors, W = encoder · decoderᵀ.

Those that keep the singular vectors of X = UΣVᵀ shrink what each of them carries, W = V dMat(f) Vᵀ:

    LRR              f = σ² / (σ² + l2)
    RegularizedPCA   f = (1 − l2/σ)₊
    WLAE             f = (1 − l2/σ²)₊
    VLAE             f = (1 − λ/σ)₊,  λ = scale/σ
    DropoutMF        f = (1 − μ/σ)₊,  μ = (1 − keep)/(keep + (1 − keep)·d) · Σ_{i≤d} σ_i,  d the last with σ_d > μ
    NuclearNormMF    f = (1 − μ/σ)₊,  μ = (l2·power/2)·T^(power−1),  T + d·μ = Σ_{i≤d} σ_i

so that a training user's fold-in x·W is that user's row of the fitted matrix. Those that truncate a full-rank autoencoder
W* = dMat(c) − P dMat(t) (`autoencoders.py`; C = P⁻¹ = S + dMat(Λ)) project it, W = W* Q Qᵀ, on the top eigenvectors Q of

    W*ᵀ C W*    what W* puts out (the best approximation under the model's own loss), or of
    W*ᵀ W*      the weights themselves (the truncated SVD).

Neither is ever formed: C is multiplied through the sparse X, and P is the one matrix there is. Where only the Gram is known, as
when it was summed on a cluster, it takes the place of X.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.gram import Gram
from gramian.linalg.inverse import Operator
from gramian.linalg.spectral import GramOf, Top, top, top_bytes
from gramian.models.autoencoders import DLAE, EDLAE, LinearAutoencoder, dropout_setting, l2_setting, squares
from gramian.models.recipe import OfGram, Recipe, setting
from gramian.models.scorers import ItemWeights, LowRank
from gramian.progress import track
from gramian.recommender import Scorer

Known = Interactions | Gram  # what is known of X: all of it, or its Gram
RANKS = (32, 64, 128, 256, 512)
START = 64  # singular values looked at first, where the rank is induced


def rank_setting() -> Any:
    return setting(128, "number of factors", at_least=1, tries=RANKS)


class Truncated(OfGram):
    """A model of two thin factors from one decomposition, which serves every smaller rank."""

    rank: int

    @property
    @abstractmethod
    def decomposition(self) -> Hashable:
        """Recipes with the same one share a decomposition."""

    @abstractmethod
    def decompose(self, events: Known, rank: int, dtype: type) -> Any:
        """The decomposition, to this rank."""

    @abstractmethod
    def truncated(self, found: Any) -> Scorer:
        """The model, from a decomposition to its rank or more."""

    def highest(self, events: Known) -> int:
        """The highest rank there is."""
        return min(events.n_users, events.n_items)

    def from_gram(self, gram: Gram, overwrite: bool) -> Scorer:
        return self.truncated(decomposed([self], gram, gram.matrix.dtype.type))

    def scorer(self, events: Interactions, dtype: type) -> Scorer:
        return self.truncated(decomposed([self], events, dtype))

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return 8 * events.n_interactions + top_bytes(events.n_items, self.rank, np.dtype(dtype).itemsize)


def decomposed(recipes: Sequence[Truncated], events: Known, dtype: type) -> Any:
    """The decomposition that recipes share, to the highest rank of them."""
    rank = max(recipe.rank for recipe in recipes)
    require_rank(rank, recipes[0].highest(events), events)
    return recipes[0].decompose(events, rank, dtype)


def require_rank(rank: int, highest: int, events: Known) -> None:
    if rank > highest:
        got = f"rank={rank:,} for {events.n_users:,} users and {events.n_items:,} items"
        do = f"Choose rank={highest:,} or less" if highest else "There is nothing to factor"
        raise InvalidInput(f"a rank of at most {highest:,}", got, do)


def operator(events: Known, dtype: type) -> Operator:
    """S, to be multiplied by: through the sparse X, or where it is there already, as it is."""
    return events.matrix if isinstance(events, Gram) else GramOf(events.matrix, dtype)


def singular(events: Known, rank: int, dtype: type) -> Top:
    """The top right singular vectors of X, and the squares of its singular values."""
    return top(operator(events, dtype), rank)


def full_rank(recipe: LinearAutoencoder, events: Known, dtype: type) -> ItemWeights:
    """A full-rank autoencoder; a Gram stays as it is."""
    return recipe.from_gram(events, False) if isinstance(events, Gram) else recipe.scorer(events, dtype)


def kept(sigma: np.ndarray, f: np.ndarray, vectors: np.ndarray, name: str) -> LowRank:
    """V dMat(f) Vᵀ, without the factors that are shrunk to nothing."""
    alive = np.flatnonzero(f > 0)
    if len(alive) == 0:
        got = f"all shrunk to 0 (the largest singular value is {sigma[0]:.4g})"
        raise InvalidInput(f"{name} to leave a factor", got, "Change it")
    v = vectors[:, alive]
    return LowRank(v * f[alive].astype(v.dtype), v)


class Shrinking(Truncated):
    """Keeps the singular vectors of X, and shrinks what each carries."""

    shrinks_by = "l2"

    @property
    def decomposition(self) -> Hashable:
        return "singular vectors"

    def decompose(self, events: Known, rank: int, dtype: type) -> Top:
        return singular(events, rank, dtype)

    def truncated(self, found: Top) -> LowRank:
        sigma = np.sqrt(found.values[: self.rank].astype(np.float64))
        with np.errstate(invalid="ignore", divide="ignore"):  # a factor of singular value 0 carries nothing
            f = np.where(sigma > 0, self.shrunk(sigma), 0)
        return kept(sigma, f, found.vectors[:, : self.rank], f"{self.shrinks_by} of {type(self).__name__}")

    @abstractmethod
    def shrunk(self, sigma: np.ndarray) -> np.ndarray:
        """f, for singular values in falling order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = getattr(self, self.shrinks_by)
        if isinstance(weights, tuple) and len(weights) != self.rank:
            wanted = f"one {self.shrinks_by} for each of the {self.rank} factors"
            raise InvalidInput(wanted, f"{len(weights)}", "Pass as many as the rank, or a single number")


@dataclass(frozen=True)
class LRR(Shrinking):
    """min ‖X − XW‖² + l2·‖W‖²  with  rank W ≤ rank   (Jin et al. 2021). One l2 for each factor is possible, largest σ first."""

    rank: int = rank_setting()
    l2: float | tuple[float, ...] = l2_setting(per_factor=True)

    def shrunk(self, sigma: np.ndarray) -> np.ndarray:
        return sigma**2 / (sigma**2 + np.asarray(self.l2))


@dataclass(frozen=True)
class RegularizedPCA(Shrinking):
    """min ‖X − PQ‖² + l2·(‖P‖² + ‖Q‖²)   (Zheng et al. 2018): every singular value is lowered by l2."""

    rank: int = rank_setting()
    l2: float = setting(10.0, "how much every singular value is lowered", at_least=0, tries=(0, 3, 10, 20, 40, 80))

    def shrunk(self, sigma: np.ndarray) -> np.ndarray:
        return lowered(sigma, self.l2)


@dataclass(frozen=True)
class WLAE(Shrinking):
    """min ‖X − X·A·B‖² + l2·(‖A‖² + ‖B‖²)   (Bao et al. 2020). Of one l2 for each factor, the largest σ gets the smallest."""

    rank: int = rank_setting()
    l2: float | tuple[float, ...] = l2_setting(per_factor=True)

    def shrunk(self, sigma: np.ndarray) -> np.ndarray:
        return lowered(sigma**2, np.sort(self.l2, axis=None))


@dataclass(frozen=True)
class VLAE(Shrinking):
    """min ‖X − PQ‖² + ‖Λ^½Q‖² + ‖PΛ^½‖²   (paper 001): the weighted nuclear norm, with weights λ_i = scale/σ_i.

    `scale` may be the weights themselves, one for each factor: in whatever order, the largest σ gets the smallest.
    """

    shrinks_by = "scale"

    rank: int = rank_setting()
    scale: float | tuple[float, ...] = setting(
        100.0, "C of the weights C/σ on the singular values", at_least=0, per_factor=True, tries=(10, 100, 1000, 10000)
    )

    def shrunk(self, sigma: np.ndarray) -> np.ndarray:
        return lowered(sigma, np.sort(self.scale) if isinstance(self.scale, tuple) else self.scale / sigma)


def lowered(sigma: np.ndarray, by: Any) -> np.ndarray:
    """(σ − by)₊ / σ."""
    return np.maximum(1 - by / sigma, 0)


class Induced(OfGram):
    """Lowers all singular values by one number μ that depends on them, and so chooses its own rank."""

    @abstractmethod
    def threshold(self, sums: np.ndarray, d: np.ndarray) -> np.ndarray:
        """μ for each number d of singular values kept, from the sums of the d largest."""

    def from_gram(self, gram: Gram, overwrite: bool) -> LowRank:
        return self.scorer(gram, gram.matrix.dtype.type)

    def scorer(self, events: Known, dtype: type) -> LowRank:
        most = min(events.n_users, events.n_items)
        rank = min(START, most)
        while True:
            found = singular(events, rank, dtype)
            sigma = np.sqrt(found.values.astype(np.float64))
            d = np.arange(1, rank + 1)
            mu = self.threshold(np.cumsum(sigma), d)
            above = np.flatnonzero(sigma > mu)
            last = int(above[-1]) if len(above) else 0
            if last + 1 < rank or rank == most:
                f = np.where(d <= last + 1, lowered(sigma, mu[last]), 0)
                return kept(sigma, f, found.vectors, f"the settings of {self}")
            rank = min(4 * rank, most)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return 8 * events.n_interactions + top_bytes(events.n_items, START, np.dtype(dtype).itemsize)


@dataclass(frozen=True)
class DropoutMF(Induced):
    """Matrix factorization whose factors are dropped out, each kept with probability `keep`   (Cavazza et al. 2018)."""

    keep: float = setting(0.9, "probability that a factor is kept", at_least=1e-9, below=1, tries=(0.5, 0.7, 0.9, 0.95, 0.99))

    def threshold(self, sums: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (1 - self.keep) / (self.keep + (1 - self.keep) * d) * sums

    def canonical(self) -> Recipe:
        return NuclearNormMF((1 - self.keep) / self.keep, 2)


@dataclass(frozen=True)
class NuclearNormMF(Induced):
    """min ‖X − Y‖² + l2·‖Y‖_*^power   (paper 001, Lemma 2). Whatever the power, all singular values are lowered alike."""

    l2: float = setting(20.0, "penalty on the nuclear norm", at_least=0, tries=(5, 10, 20, 40, 80))
    power: float = setting(1.0, "power of the nuclear norm", at_least=1)

    def threshold(self, sums: np.ndarray, d: np.ndarray) -> np.ndarray:
        """T + d·μ(T) = sum has one root, between 0 and the sum; by bisection."""
        low, high = np.zeros(len(d)), sums.copy()
        for _ in range(200):
            middle = (low + high) / 2
            above = middle + d * self.slope(middle) > sums
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return self.slope((low + high) / 2)

    def slope(self, total: np.ndarray) -> np.ndarray:
        """Half the derivative of the penalty by the nuclear norm."""
        with np.errstate(over="ignore"):  # infinite is large enough
            return self.l2 * self.power / 2 * total ** (self.power - 1)


class Output:
    """W*ᵀ C W* = dMat(c) S W* + dMat(cΛ − t) W*, for W* = dMat(c) − P dMat(t) and C = P⁻¹ = S + dMat(Λ).

    Expanded further, it would lose its digits: for a large Λ all terms are large, and their sum is not.
    """

    def __init__(self, weights: ItemWeights, gram: Operator, penalty: np.ndarray) -> None:
        self.weights, self.n, self.dtype = weights, weights.n_items, weights.inverse.dtype
        rest = weights.diagonal.astype(np.float64) * penalty - weights.factor
        self.gram, self.rest = gram, rest.astype(self.dtype)[:, None]

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        image = encoded(self.weights, right)
        return self.weights.diagonal[:, None] * (self.gram @ image) + self.rest * image


class Squared:
    """W*ᵀ W*."""

    def __init__(self, weights: ItemWeights) -> None:
        self.weights, self.n, self.dtype = weights, weights.n_items, weights.inverse.dtype

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        c, t = self.weights.diagonal[:, None], self.weights.factor[:, None]
        image = encoded(self.weights, right)
        return c * image - t * (self.weights.inverse @ image)


def encoded(weights: ItemWeights, right: np.ndarray) -> np.ndarray:
    """W* · right."""
    return weights.diagonal[:, None] * right - weights.inverse @ (weights.factor[:, None] * right)


class Projecting(Truncated):
    """Projects a full-rank autoencoder on its most important directions."""

    truncate = "output"

    @property
    @abstractmethod
    def full(self) -> LinearAutoencoder:
        """The recipe that is truncated."""

    @property
    def decomposition(self) -> Hashable:
        return self.full, self.truncate

    def decompose(self, events: Known, rank: int, dtype: type) -> LowRank:
        weights = full_rank(self.full, events, dtype)
        penalty = self.full.safe_penalty(squares(events))
        gram = operator(events, weights.inverse.dtype.type)
        q = top(Output(weights, gram, penalty) if self.truncate == "output" else Squared(weights), rank).vectors
        return LowRank(encoded(weights, q), q)

    def truncated(self, found: LowRank) -> LowRank:
        return LowRank(found.encoder[:, : self.rank], found.decoder[:, : self.rank])

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return self.full.fit_bytes(events, dtype) + top_bytes(events.n_items, self.rank, np.dtype(dtype).itemsize)

    def fit_seconds(self, events: Interactions, dtype: type) -> float:
        return 2 * self.full.fit_seconds(events, dtype)


@dataclass(frozen=True)
class LowRankDLAE(Projecting):
    """DLAE's own loss with  rank W ≤ rank   (paper 001, case 10). Low-rank DEQL with a = b is this, divided by 1 − dropout."""

    rank: int = rank_setting()
    dropout: float = dropout_setting()
    l2: float = l2_setting()

    @property
    def full(self) -> LinearAutoencoder:
        return DLAE(self.dropout, self.l2)


@dataclass(frozen=True)
class LowRankEDLAE(Projecting):
    """EDLAE truncated: what it puts out ("output", case 11 of paper 001) or its weights ("weights", case 12)."""

    rank: int = rank_setting()
    dropout: float = dropout_setting()
    l2: float = l2_setting()
    truncate: str = setting("output", "what to truncate: output or weights", choices=("output", "weights"))

    @property
    def full(self) -> LinearAutoencoder:
        return EDLAE(self.dropout, self.l2)


@dataclass(frozen=True)
class ADMMEDLAE(OfGram):
    """min ‖X − X(UVᵀ − dMat(β))‖² + ‖Λ^½(UVᵀ − dMat(β))‖²  with  β = diag UVᵀ, by the printed updates   (paper 004, Eq. 35).

    They close the constraint, but penalise all of UVᵀ and not what is left without its diagonal, so that they end near the
    optimum and not at it; LowRankEDLAE is usually nearer.
    """

    rank: int = rank_setting()
    dropout: float = dropout_setting()
    l2: float = l2_setting()
    omega: float = setting(100.0, "how hard the constraint is pulled closed", at_least=1e-9)
    n_epochs: int = setting(20, "rounds of updates", at_least=1)

    def from_gram(self, gram: Gram, overwrite: bool) -> LowRank:
        return self.scorer(gram, gram.matrix.dtype.type)

    def scorer(self, events: Known, dtype: type) -> LowRank:
        require_rank(self.rank, min(events.n_users, events.n_items), events)
        u, v, _ = list(self.epochs(events, dtype))[-1]
        return LowRank(u, v)

    def epochs(self, events: Known, dtype: type) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """U, V and β after each round."""
        s = squares(events)
        penalty = EDLAE(self.dropout, self.l2).safe_penalty(s)
        stiffness = penalty + self.omega  # Ω
        p = self.dropout
        inverse = full_rank(EDLAE(2 * p / (1 + p), 2 * self.l2 + self.omega), events, dtype).inverse  # (S + Λ + Ω)⁻¹
        gram = operator(events, inverse.dtype.type)
        s, penalty, stiffness = (part.astype(inverse.dtype)[:, None] for part in (s, penalty, stiffness))
        v = top(gram, self.rank).vectors
        beta = gamma = np.zeros((events.n_items, 1), inverse.dtype)
        for _ in track(range(self.n_epochs), "alternating"):
            # with R = S dMat(1 + β) + Ω dMat(β − γ):  U = (S + Λ + Ω)⁻¹ R V (VᵀV)⁻¹,  Vᵀ = (Uᵀ(S + Λ + Ω)U)⁻¹ Uᵀ R
            wanted = gram @ ((1 + beta) * v) + stiffness * (beta - gamma) * v
            u = inverse @ np.linalg.solve(v.T @ v, wanted.T).T
            own = gram @ u
            inner = u.T @ (own + (penalty + stiffness) * u)
            v = np.linalg.solve(inner, ((1 + beta) * own + stiffness * (beta - gamma) * u).T).T
            diagonal = np.einsum("ik,ik->i", u, v)[:, None]
            explained = np.einsum("ik,ik->i", own, v)[:, None]
            beta = (explained - s + stiffness * (diagonal + gamma)) / (s + self.omega)
            gamma = gamma + diagonal - beta
            yield u, v, beta[:, 0]
