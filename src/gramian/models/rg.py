"""Squared losses that approximate softmax: RG² and RG×   (Pu et al. 2024, Pu et al. 2025).

With N items and |I_x| of them touched by user x, the target is t = N/|I_x| − 1 where x touched and −1 elsewhere, the whole row
weighs |I_x|, and vectors are penalised by l2 times the weight of their row or column:

    Σ_x |I_x| ‖t_x − Q p_x‖²  +  l2 · (Σ_x N|I_x| ‖p_x‖² + D ‖Q‖²)        with D interactions.

Rows and penalties have the same weights, so that the optimum is the soft-thresholded SVD of
T' = N · diag(|I_x|^-½) · X · (I − 11ᵀ/N), X row-normalised and centred, with the threshold l2·√(N·D): this is RG2. The other
recipes alternate, with weights that may differ.

With the penalty l2·‖PQᵀ‖² (Pu et al. 2025, A.6) the square is completed row by row: a row weighs |I_x| + l2 and its target is
t·|I_x|/(|I_x| + l2). So the optimum is a truncated SVD, of N · diag((|I_x| + l2)^-½) · X · (I − 11ᵀ/N): RG2(penalty="product").

The authors' public code minimises another loss than their papers print: a positive has the additional weight α and the target 1
in it, and β scales the weight of all items. In the authors' units, with λ = l2,

    Σ_x [Σ_y |I_x|/(2N) · ((1 − β) o_xy² + 2 o_xy)  +  Σ_{y touched} (α o_xy² − (1 + 2α) o_xy)]
        +  l2 · (Σ_x (½|I_x| + αN) ‖p_x‖² + Σ_y (D/(2N) + αM) ‖q_y‖²)        with M users.

Times 2N this is the loss above with `positive_weight` α and `interaction` β (form="public"). In the code's half step of items
the targets −1 have the wrong sign; here they have the right one.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from gramian.core.gram import Gram, GramPowers
from gramian.core.params import configurable, param
from gramian.core.recipe import Counts
from gramian.core.updates import RowChange
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput, RefitWarning
from gramian.linalg.eigen import ImplicitGram, TopEigenpairs, refine_eigenpairs, top_eigenpairs
from gramian.linalg.inverse import SymmetricOperator
from gramian.linalg.sparse import normalise_rows, row_sums, scale_rows
from gramian.models.als import AlternatingRecipe, UserSums, solver_param
from gramian.models.factors import Factors, RowLoss, SizePolynomial
from gramian.models.parameters import epochs_param, rank_param, seed_param
from gramian.models.solvers import Solver
from gramian.models.spectral import GramSource, SpectralRecipe

MAX_REFINEMENT_SHARE = 0.25  # of the items: vectors of a refinement's first basis, beyond which a new decomposition is cheaper


def rg_l2_param() -> Any:
    """Declare the L2 penalty of RG²."""
    about = "L2 penalty on the vectors, times the weight of their row; usually 0.03 to 0.5"
    return param(0.3, about, at_least=0, tries=(0.03, 0.1, 0.2, 0.3, 0.5))


def negative_weight_param() -> Any:
    """Declare the weight of unobserved items."""
    return param(1.0, "weight of an unobserved item relative to a touched one", at_least=0, tries=(0.3, 1))


def rg_positive_weight_param() -> Any:
    """Declare the additional weight of a positive."""
    about = "additional weight of a positive, with the target 1: α of the authors' code, usually 0.01 to 0.1"
    return param(0.0, about, at_least=0)


def rg_loss(
    n_items: int, l2: float, negative_weight: float = 1.0, interaction: float = 0.0, positive_weight: float = 0.0
) -> RowLoss:
    """Return the loss of a user's row: weight s on a user's s positives and negative_weight·s elsewhere.

    A positive weighs 2n·positive_weight more, with the target 1. `interaction`·s times every squared score is subtracted.
    """
    n, a, extra = n_items, negative_weight, 2 * n_items * positive_weight
    return RowLoss(
        unobserved_weight=SizePolynomial(linear=a - interaction),
        extra_weight=SizePolynomial(constant=extra, linear=1 - a),
        extra_target=SizePolynomial(constant=n + extra, linear=-(1 - a)),
        unobserved_target=SizePolynomial(linear=-a),
        loss_at_zero=SizePolynomial(constant=n**2, linear=(a - 2) * n + extra, square=1 - a),
        binary=True,
        l2=l2,
        ridge=SizePolynomial(constant=extra * n, linear=a * n, square=1 - a),
    )


def rg_item_ridges(sums: UserSums, l2: float, negative_weight: float, positive_weight: float) -> np.ndarray:
    """Return the penalty on each item's vector: l2 times the weight of its column, the additional one for every user."""
    extra = 2 * len(sums.by_item) * positive_weight * sums.n_users
    return np.asarray(l2 * ((1 - negative_weight) * sums.by_size + negative_weight * sums.by_item.sum() + extra))


class CentredOperator:
    """C · A · C, with C = I − 11ᵀ/n, which subtracts the mean."""

    def __init__(self, operator: SymmetricOperator) -> None:
        self.operator, self.n, self.dtype = operator, operator.n, operator.dtype

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        image = self.operator @ (right - right.mean(axis=0))
        return image - image.mean(axis=0)


@configurable
class RG2(SpectralRecipe):
    """RG² at its global optimum, in closed form: no epochs, no seed   (Pu et al. 2024).

    penalty="product" is on ‖PQᵀ‖² in place of the vectors (Pu et al. 2025, A.6); its l2 compares with the size of a history.
    """

    gram_powers = GramPowers(user_power=0.5)

    rank: int = rank_param()
    l2: float = rg_l2_param()
    penalty: str = param("vectors", "what the penalty is on: the vectors, or the product PQᵀ", choices=("vectors", "product"))

    @property
    def decomposition(self) -> Hashable:
        return "RG2" if self.penalty == "vectors" else ("RG2", self.l2)

    def decompose(self, source: GramSource, rank: int, dtype: type) -> tuple[TopEigenpairs, float]:
        """Return the top eigenpairs of the row-normalised, centred Gram, and the weight of all interactions."""
        if self.penalty == "product":
            if isinstance(source, Gram):
                raise InvalidInput("interactions for RG2 with penalty='product'", "a Gram matrix", "Pass the interactions")
            scaled = scale_rows(source.matrix, 1 / np.sqrt(np.maximum(row_sums(source.matrix) + self.l2, 1e-30)), dtype)
            return top_eigenpairs(CentredOperator(ImplicitGram(scaled, dtype)), rank), float(row_sums(source.matrix).sum())
        if isinstance(source, Gram):
            weight = (source.matrix @ np.ones((source.n_items, 1))).sum()  # the sum of the Gram
            return top_eigenpairs(CentredOperator(source.matrix), rank), float(weight)
        gram = ImplicitGram(normalise_rows(source.matrix, 0.5, dtype), dtype)
        return top_eigenpairs(CentredOperator(gram), rank), float(row_sums(source.matrix).sum())

    def highest_rank(self, counts: Counts) -> int:
        return super().highest_rank(counts) - 1  # centring removes one

    def refine(self, scorer: Factors, after: Interactions, change: RowChange) -> Factors:
        """Compute the eigenpairs from the old ones and the changed rows, with the residuals that a fit allows."""
        old, n = scorer.fixed.factors, after.n_items
        dtype, weight = old.dtype.type, float(row_sums(after.matrix).sum())
        if self.penalty == "vectors" and change.rows.shape[0] + old.shape[1] <= MAX_REFINEMENT_SHARE * n:
            start = np.zeros((n, old.shape[1] + change.rows.shape[0]), dtype)
            start[: len(old), : old.shape[1]] = old
            start[:, old.shape[1] :] = normalise_rows(change.rows, 0.5, dtype).toarray().T
            start -= start.mean(axis=0)
            operator = CentredOperator(ImplicitGram(normalise_rows(after.matrix, 0.5, dtype), dtype))
            floor = self.l2**2 * weight / n  # eigenvalues up to this give no factor: σ = n·√value is below the threshold
            pairs = refine_eigenpairs(operator, start, self.rank, floor)
            if pairs is not None:
                return self.truncate_to_scorer((pairs, weight))
        warnings.warn("The update changes many eigenpairs. Fitting again.", RefitWarning, stacklevel=4)
        return self.fit_scorer(after, dtype)  # type: ignore[return-value]

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return super().fit_bytes(events, dtype) + np.dtype(dtype).itemsize * events.n_interactions  # normalised values

    def truncate_to_scorer(self, decomposition: tuple[TopEigenpairs, float]) -> Factors:
        """Q = V · diag((σ − l2·√(ND))^½) · (N/D)^¼, for the factors whose σ is above the threshold."""
        spectrum, weight = decomposition
        n = len(spectrum.vectors)
        if self.penalty == "product":
            items = np.ascontiguousarray(spectrum.vectors[:, : self.rank])
            loss = replace(rg_loss(n, 0.0), unobserved_weight=SizePolynomial(constant=self.l2, linear=1), binary=False)
            return Factors.of(items, items.T @ items, loss)
        sigma = n * np.sqrt(spectrum.values[: self.rank].astype(np.float64))
        shrunk = sigma - self.l2 * np.sqrt(n * weight)
        noise = 3 * np.sqrt(np.finfo(spectrum.values.dtype).eps) * n  # below it a σ is rounding error: σ² is what was computed
        positive = np.flatnonzero((shrunk > 0) & (sigma > noise))
        if len(positive) == 0:
            largest = sigma[0] / np.sqrt(n * weight)
            do = f"Lower it below {largest:.3g}" if sigma[0] > noise else "Check the data: all users touched the same items"
            raise InvalidInput("l2 of RG2 that leaves a factor", f"{self.l2:g}", do)
        items = spectrum.vectors[:, positive] * (np.sqrt(shrunk[positive]) * (n / weight) ** 0.25)
        items = items.astype(spectrum.vectors.dtype)
        return Factors.of(items, items.T @ items, replace(rg_loss(n, self.l2), binary=False))


@configurable
class RG2ALS(AlternatingRecipe):
    """RG² by alternating least squares, with `negative_weight` times the weight on unobserved items   (Pu et al. 2024).

    At 1 all rows share one small system, so that an epoch is two sparse products, and it converges to RG2. With
    `positive_weight` it is the loss of the authors' code, whose α and λ are `positive_weight` and `l2`.
    """

    needs_binary = True

    rank: int = rank_param()
    l2: float = rg_l2_param()
    negative_weight: float = negative_weight_param()
    n_epochs: int = epochs_param()
    solver: Solver = solver_param()
    seed: int = seed_param()
    positive_weight: float = rg_positive_weight_param()

    @classmethod
    def sampled(cls, n_negatives: int, n_items: int, **params: Any) -> RG2ALS:
        """Return the recipe with the weights of sampled softmax with so many negatives   (Pu et al. 2025, Eq. 19)."""
        return cls(negative_weight=(n_negatives + 1) / n_items, **params)

    def row_loss(self, n_items: int) -> RowLoss:
        return rg_loss(n_items, self.l2, self.negative_weight, positive_weight=self.positive_weight)

    def item_ridges(self, sums: UserSums) -> np.ndarray:
        return rg_item_ridges(sums, self.l2, self.negative_weight, self.positive_weight)


@configurable
class RGX(AlternatingRecipe):
    """RG×: RG² minus `interaction` · |I_x|/N · (Σ_y o_xy)², the term of softmax's expansion that couples scores.

    form="printed" is the papers' update (Pu et al. 2025, Eq. 38 and 39), which subtracts Σ_y o_xy² instead; form="exact" is the
    term itself, whose optimum is that of RG2 (all targets of a user sum to 0, and so do the scores). form="public" is the
    update of the authors' code, RGX(form="public", positive_weight=α, interaction=β, l2=λ), with β a fraction of all weights.
    """

    needs_binary = True

    rank: int = rank_param()
    l2: float = rg_l2_param()
    negative_weight: float = negative_weight_param()
    interaction: float = param(
        1.0, 'how much of the coupling term is subtracted; at most 1 with form="public"', at_least=0, tries=(0, 1, 100, 1000)
    )
    n_epochs: int = epochs_param()
    form: str = param("printed", "which coupling term is subtracted", choices=("printed", "exact", "public"))
    solver: Solver = solver_param()
    seed: int = seed_param()
    positive_weight: float = rg_positive_weight_param()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form == "exact" and self.negative_weight != 1:
            raise InvalidInput("negative_weight=1 with form='exact'", f"{self.negative_weight:g}", "Or choose form='printed'")
        if self.form == "exact" and self.interaction > 1:  # (Σ_y o_y)² can reach N·Σ_y o_y²: the loss would be unbounded
            raise InvalidInput("interaction of at most 1 with form='exact'", f"{self.interaction:g}", "Choose 1, say")
        if self.form == "public" and self.interaction > 1:
            raise InvalidInput("interaction of at most 1 with form='public'", f"{self.interaction:g}", "Choose 0.5, say")

    @classmethod
    def sampled(cls, n_negatives: int, n_items: int, **params: Any) -> RGX:
        """Return the recipe with the weights of sampled softmax with so many negatives   (Pu et al. 2025, Eq. 32)."""
        weight = (n_negatives + 1) / n_items
        return cls(negative_weight=weight, interaction=weight, **params)

    def row_loss(self, n_items: int) -> RowLoss:
        fractions = {"printed": self.interaction / n_items, "exact": 0, "public": self.interaction * self.negative_weight}
        return rg_loss(n_items, self.l2, self.negative_weight, fractions[self.form], self.positive_weight)

    def item_ridges(self, sums: UserSums) -> np.ndarray:
        return rg_item_ridges(sums, self.l2, self.negative_weight, self.positive_weight)

    def user_gram(self, items: np.ndarray) -> np.ndarray:
        gram = super().user_gram(items)
        if self.form != "exact":
            return gram
        total = items.sum(axis=0)
        return gram - self.interaction / len(items) * np.outer(total, total)

    def require_trainable(self, counts: Counts, is_binary: bool) -> None:
        super().require_trainable(counts, is_binary)
        limit = counts.n_items * self.negative_weight
        if self.form == "printed" and self.interaction > limit:
            expected = "interaction of RGX at which every system is positive definite"
            got = f"{self.interaction:g} for {counts.n_items:,} items and negative_weight={self.negative_weight:g}"
            raise InvalidInput(expected, got, f"Choose at most {limit:g}")
