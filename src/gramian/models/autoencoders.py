"""Full-rank linear autoencoders: W that rebuilds X from X·W. One positive definite inverse gives them all.

With S = XᵀX and a penalty Λ per item, let P = (S + dMat(Λ))⁻¹ and Z_ki = −P_ki / P_ii off the diagonal, 0 on it. Each model is

    W = Z · dMat(f) + dMat(y)

and they differ in the penalty Λ, in the factor f and in the diagonal y:

    EASE           Λ = l2                         f = 1            y = 0
    DLAE           Λ = (p/q)·s + l2               f = Λ·P_ii       y = 1 − f
    EDLAE          Λ = (p/q)·s + l2               f = 1/q          y = 0
    DEQL           Λ = (p/q)·s + l2               f = 1/q − ρ·y    y as below
    DebiasedEASE   Λ = l2/(1 − α)                 f = 1/(1 − α)    y = 0

where p is the dropout, q = 1 − p and s = diag(S). The formulas hold for weighted X too.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.interactions import Interactions, csr
from gramian.data.tables import is_number
from gramian.errors import Inaccurate, InvalidInput, PrecisionWarning
from gramian.linalg.gram import Gram, fill
from gramian.linalg.inverse import TOLERANCE, begin, check, drift, invert, pivot_size, run
from gramian.linalg.leave_out import Family
from gramian.linalg.scratch import Scratch, clear, file_bytes
from gramian.linalg.symmetric import WIDTH, Symmetric
from gramian.linalg.update import grown, update
from gramian.models.recipe import ClosedForm, Recipe, precise, setting
from gramian.models.scorers import ItemWeights
from gramian.progress import track
from gramian.recommender import Scorer

PART = 2**20  # interactions at once
BATCH = 512  # rows of an update at once
KEPT_WEIGHTS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3)
REFIT = 0.5  # an update by more rows than this share of the items costs more than a new inverse


def l2_setting(per_factor: bool = False) -> Any:
    about, tries = "L2 penalty on the weights", (10, 30, 100, 300, 1000, 3000)
    return setting(200.0, about, at_least=0, tries=tries, per_factor=per_factor)


def dropout_setting() -> Any:
    about = "share of the interactions hidden in training"
    return setting(0.3, about, at_least=0, below=1, tries=(0, 0.15, 0.3, 0.45, 0.6, 0.75))


class LinearAutoencoder(ClosedForm):
    """One inverse, then a factor f and a diagonal y per item."""

    l2: float

    @property
    def slope(self) -> float:
        return 0.0

    @property
    def ridge(self) -> float:
        return self.l2

    def penalty(self, s: np.ndarray) -> np.ndarray:
        """Λ = slope·s + ridge, what is added to the diagonal s of the Gram matrix."""
        return self.slope * s + self.ridge

    @abstractmethod
    def columns(self, s: np.ndarray, penalty: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f and y, from s, Λ and g = 1/P_ii (what the other items leave unexplained of S_ii + Λ_i)."""

    def from_gram(self, gram: Gram, overwrite: bool) -> ItemWeights:
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        s = self.penalise(matrix)
        invert(matrix)
        return self.from_inverse(matrix, s)

    def scorer_in(self, scratch: Path, events: Interactions, dtype: type) -> Scorer:
        self.require_binary(events.is_binary)
        penalty = sha256(self.safe_penalty(squares(events)).tobytes()).hexdigest()
        key = f"{events.fingerprint} {penalty} {np.dtype(dtype)}"  # what the inverse depends on

        def fit(dtype: type) -> ItemWeights:
            with Scratch(scratch, key, events.n_items, dtype) as sweep:
                try:
                    if not sweep.begun:
                        fill(sweep.matrix, events.matrix)
                        s = self.penalise(sweep.matrix)
                        by, image = begin(sweep.matrix)
                        sweep.begin(s=s, by=by, image=image)
                    if not sweep.complete:
                        run(sweep, sweep.arrays["by"])
                    check(sweep.matrix, sweep.arrays["by"], sweep.arrays["image"])
                except Inaccurate:
                    clear(scratch)
                    raise
                return self.from_inverse(sweep.matrix, sweep.arrays["s"])

        return precise(fit, dtype)

    def updated(self, scorer: ItemWeights, after: Interactions, change: Interactions, sign: int) -> Scorer:
        self.require_binary(after.is_binary)
        s = squares(after)
        before = s - sign * squares(change)
        batches = list(changes(change.matrix, self.slope))
        unpenalised = min((s + self.penalty(s)).min(), (before + self.penalty(before)).min()) <= 0
        if unpenalised or sum(len(core) for _, core in batches) > REFIT * after.n_items:
            return self.scorer(after, scorer.inverse.dtype.type)
        inverse = grown(scorer.inverse, 1 / self.penalty(np.zeros(after.n_items - scorer.inverse.n)))
        for rows, core in track(batches, "updating"):
            update(inverse, rows, core, sign)
        error = drift(inverse, after.matrix, s, self.penalty(s))
        if error < TOLERANCE[inverse.dtype]:
            return self.from_inverse(inverse, s)
        warnings.warn(f"The updated inverse has residuals of {error:.2g}. Fitting again.", PrecisionWarning, stacklevel=4)
        return self.scorer(after, inverse.dtype.type)

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        n, kind = events.n_items, np.dtype(dtype)
        return 8 * events.n_interactions + pivot_size(n, WIDTH) * kind.itemsize, file_bytes(n, kind)

    def penalise(self, matrix: Symmetric) -> np.ndarray:
        """Turn S into S + dMat(Λ), and give the diagonal s of S."""
        s = matrix.diagonal()
        penalty = self.safe_penalty(s)
        matrix.change_diagonal(lambda diagonal, first, last: diagonal + penalty[first:last])
        return s

    def from_inverse(self, inverse: Symmetric, s: np.ndarray) -> ItemWeights:
        """The weights from P and the diagonal s of the Gram matrix. Recipes of the same penalty share one P."""
        return ItemWeights(inverse, *self.scaling(inverse.diagonal(), s))

    def scaling(self, p_ii: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The factor and the diagonal of W = −P · dMat(factor) + dMat(diagonal)."""
        f, y = self.columns(s, self.safe_penalty(s), 1 / p_ii)
        return f / p_ii, f + y

    def safe_penalty(self, s: np.ndarray) -> np.ndarray:
        penalty = self.penalty(s)
        penalty[s + penalty == 0] = 1  # an item nobody touched, without l2: related to nothing, so any penalty will do
        return penalty


def squares(events: Interactions | Gram) -> np.ndarray:
    """The diagonal of the Gram matrix; of interactions, summed in parts so that no copy of them is made."""
    if isinstance(events, Gram):
        return events.matrix.diagonal()
    total = np.zeros(events.n_items)
    for start in range(0, events.n_interactions, PART):
        part = slice(start, start + PART)
        total += np.bincount(events.matrix.indices[part], events.matrix.data[part].astype(np.float64) ** 2, events.n_items)
    return total


def changes(users: sp.csr_array, slope: float) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """What users add to S + dMat(slope · s), as Bᵀ C B in batches of few rows: (B, C).

    Where the penalty does not follow s, B is the users themselves; else it picks the items they touched.
    """
    start = 0
    while start < users.shape[0]:
        stop = min(start + BATCH, users.shape[0])
        while slope and stop > start + 1 and len(np.unique(users[start:stop].indices)) > BATCH:
            stop = start + (stop - start) // 2
        part, start = users[start:stop], stop
        if not slope:
            yield part, np.eye(part.shape[0])
            continue
        items = np.unique(part.indices)
        own = part[:, items].toarray().astype(np.float64)
        core = own.T @ own
        core[np.diag_indices(len(items))] *= 1 + slope
        yield csr(np.arange(len(items)), items, np.ones(len(items)), (len(items), users.shape[1])), core


@dataclass(frozen=True)
class EASE(LinearAutoencoder):
    """min ‖X − XW‖² + l2·‖W‖²  with  diag W = 0   (Steck 2019)."""

    l2: float = l2_setting()

    def columns(self, s: np.ndarray, penalty: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(s)), np.zeros(len(s))


class Denoising(LinearAutoencoder):
    """Autoencoders that rebuild X from an X of which a share `dropout` was hidden, in expectation over what is hidden."""

    dropout: float

    @property
    def slope(self) -> float:
        return self.dropout / (1 - self.dropout)


@dataclass(frozen=True)
class DLAE(Denoising):
    """min E‖X − X̃W‖² + l2·‖W‖², where X̃ is X/q with a share p of its entries hidden   (Steck 2020)."""

    dropout: float = dropout_setting()
    l2: float = l2_setting()

    def columns(self, s: np.ndarray, penalty: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f = penalty / g
        return f, 1 - f


@dataclass(frozen=True)
class EDLAE(Denoising):
    """DLAE where only the hidden interactions are to be rebuilt: the diagonal of W is 0   (Steck 2020)."""

    dropout: float = dropout_setting()
    l2: float = l2_setting()

    def columns(self, s: np.ndarray, penalty: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(s), 1 / (1 - self.dropout)), np.zeros(len(s))

    def canonical(self) -> Recipe:
        return EASE(self.l2) if self.dropout == 0 else self


@dataclass(frozen=True)
class DEQL(Denoising):
    """Hidden interactions count 1, kept ones kept_weight²: EDLAE at 0, DLAE at 1 (up to a factor), and beyond   (paper 000).

    l2 is on the same scale as in EDLAE and DLAE; `from_paper` takes the paper's own parameters. With
    c = p + q·b² and ρ = b²/c for kept_weight b:

        y = ρ·(g − Λ) / (ρ·s + q·l2 − q·ρ²·(s + Λ − g)),   f = 1/q − ρ·y,

    so all kept_weights share one inverse. With zero_diagonal the model is EDLAE for every kept_weight.
    """

    dropout: float = dropout_setting()
    kept_weight: float = setting(
        0.5, "weight of the interactions that were not hidden", at_least=0, tries=KEPT_WEIGHTS, free=True
    )
    l2: float = l2_setting()
    zero_diagonal: bool = setting(False, "force the diagonal of the weights to 0", free=True)

    @staticmethod
    def from_paper(a: float, b: float, p: float, lam: float, zero_diagonal: bool = False) -> DEQL:
        """The recipe for the paper's emphasis a on hidden and b on kept interactions, dropout p and penalty λ."""
        DEQL(dropout=p, kept_weight=b, l2=lam)  # checks their ranges
        if not (is_number(a) and a > 0):
            raise InvalidInput("a above 0", repr(a), "Pass a=1; only b/a and λ/a² matter")
        c = p * a * a + (1 - p) * b * b
        if not 0 < c < inf:
            raise InvalidInput("p·a² + (1 − p)·b² above 0 and finite", f"{c}", "Choose p or b above 0, and ordinary a and b")
        return DEQL(dropout=p, l2=lam / ((1 - p) ** 2 * c), kept_weight=b / a, zero_diagonal=zero_diagonal)

    def canonical(self) -> Recipe:
        if self.zero_diagonal or self.kept_weight == 0:
            return EDLAE(self.dropout, self.l2).canonical()
        return DLAE(self.dropout, self.l2) if self.kept_weight == 1 or self.dropout == 0 else self

    def columns(self, s: np.ndarray, penalty: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, q, b = self.dropout, 1 - self.dropout, self.kept_weight
        y = np.zeros(len(s))
        if b == 0 or self.zero_diagonal:
            return np.full(len(s), 1 / q), y
        rho = 1 / (p / b / b + q)
        below = rho * s + q * self.l2 - q * rho**2 * (s + penalty - g)
        np.divide(rho * (g - penalty), below, out=y, where=s > 0)
        return 1 / q - rho * y, y


@dataclass(frozen=True)
class DebiasedEASE(LinearAutoencoder):
    """min ‖X − XW‖² − alpha·‖XW‖² + l2·‖W‖²  with  diag W = 0   (paper 004).

    Unseen is not disliked. The same model as EASE with another l2.
    """

    needs_binary = True  # the loss it debiases is one of positives and unlabelled items

    alpha: float = setting(0.1, "share of the unseen assumed to be liked", at_least=0, below=1, tries=(0, 0.1, 0.3, 0.5))
    l2: float = l2_setting()

    @property
    def ridge(self) -> float:
        return self.l2 / (1 - self.alpha)

    def columns(self, s: np.ndarray, penalty: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(s), 1 / (1 - self.alpha)), np.zeros(len(s))

    def canonical(self) -> Recipe:
        return EASE(self.ridge)


def family(recipe: LinearAutoencoder) -> Family:
    """A canonical recipe's factor f/P_ii as c/(B·P_ii + N), with B and c linear in s: DEQL's own formula, rearranged."""
    p = getattr(recipe, "dropout", 0.0)
    q, b = 1 - p, 1.0 if isinstance(recipe, DLAE) else getattr(recipe, "kept_weight", 0.0)
    slope, l2 = recipe.slope, recipe.l2
    if b == 0:
        return Family(slope, b0=1.0, b1=0.0, c0=1 / q, c1=0.0, n=0.0)
    rho = 1 / (p / b / b + q)
    b0, b1 = q * (1 - rho**2) * l2, rho * (1 - rho)
    return Family(slope, b0, b1, c0=b0 / q + rho**2 * l2, c1=b1 / q + rho**2 * slope, n=q * rho**2)
