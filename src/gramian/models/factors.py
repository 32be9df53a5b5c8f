"""Factor models: every item has a vector, and a user's vector is solved for from the user's history (fold-in)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gramian.core.scorer import Panels, SavedScorer, Scorer
from gramian.errors import Inaccurate
from gramian.io.damage import require_content
from gramian.linalg.product import dense_panels
from gramian.linalg.reranking import compare_vectors
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
from gramian.models.scorers import cosine_similarities
from gramian.validation import is_number

LARGEST_COEFFICIENT = 3e38  # of a saved loss: rows are solved in float32
LARGEST_EXPONENT = 10  # of a saved loss; the literature has 0 to 1
SAVED_NAMES = {  # field of RowLoss → its name in model folders, which is that of version 0.1
    "unobserved_weight": "shared",
    "extra_weight": "own",
    "extra_target": "pull",
    "unobserved_target": "rest",
    "loss_at_zero": "base",
}


class SizePolynomial(NamedTuple):
    """A function of a user's size s: inverse/s + constant + linear·s + square·s²."""

    inverse: float = 0.0
    constant: float = 0.0
    linear: float = 0.0
    square: float = 0.0

    def at(self, s: np.ndarray) -> np.ndarray:
        """Evaluate at sizes above 0."""
        return self.inverse / s + self.constant + self.linear * s + self.square * s**2


@dataclass(frozen=True)
class RowLoss:
    """A weighted squared loss, as functions of a user's size s: the number of items touched, or the sum of their weights.

    Positives have weight w⁺ and target t⁺, all other items weight w⁰ and target t⁰, as in linalg/row_solvers.py.

    Parameters
    ----------
    unobserved_weight
        w⁰, the weight of every item.
    extra_weight
        w⁺ − w⁰, the additional weight of a positive.
    extra_target
        w⁺t⁺ − w⁰t⁰, the additional target of a positive, times its weight.
    unobserved_target
        w⁰t⁰, the target of every item, times its weight.
    loss_at_zero
        The loss of a model whose scores are all 0.
    l2, ridge, exponent
        The penalty on the user's vector is l2 · ridge(s)^exponent.
    binary
        Whether the weights in a history count as 1.
    """

    unobserved_weight: SizePolynomial
    extra_weight: SizePolynomial
    extra_target: SizePolynomial
    unobserved_target: SizePolynomial
    loss_at_zero: SizePolynomial
    l2: float
    ridge: SizePolynomial
    exponent: float = 1.0
    binary: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether all rows share one system, because positives have no additional weight."""
        return self.extra_weight == SizePolynomial()

    def row_coefficients(self, sizes: np.ndarray) -> np.ndarray:
        """Return the five coefficients of each user's row. A user without interactions has no influence, and the vector 0."""
        coefficients = np.zeros((len(sizes), 5))
        coefficients[:, RIDGE] = 1
        s = sizes[sizes > 0].astype(np.float64)
        columns = {
            UNOBSERVED_WEIGHT: self.unobserved_weight.at(s),
            EXTRA_WEIGHT: self.extra_weight.at(s),
            EXTRA_TARGET: self.extra_target.at(s),
            UNOBSERVED_TARGET: self.unobserved_target.at(s),
        }
        columns[RIDGE] = self.l2 * self.ridge.at(s) ** self.exponent
        for column, values in columns.items():
            coefficients[sizes > 0, column] = values
        return coefficients

    def to_json(self) -> dict[str, Any]:
        """Return the coefficients under the names that model folders have."""
        return {SAVED_NAMES.get(name, name): value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(facts: dict[str, Any]) -> RowLoss:
        """Restore a loss from a model folder, after checking it."""
        types = {SAVED_NAMES.get(f.name, f.name): f.type for f in fields(RowLoss)}
        require_content(set(facts) == set(types), "the coefficients of a loss")
        polynomials = {name: value for name, value in facts.items() if types[name] == "SizePolynomial"}
        is_four = all(isinstance(value, list) and len(value) == 4 for value in polynomials.values())
        require_content(is_four, "four coefficients for each polynomial of a loss")
        numbers = [number for value in polynomials.values() for number in value] + [facts["l2"], facts["exponent"]]
        is_moderate = all(is_number(number) and abs(number) < LARGEST_COEFFICIENT for number in numbers)
        require_content(is_moderate and abs(facts["exponent"]) <= LARGEST_EXPONENT, "finite coefficients of a loss")
        require_content(isinstance(facts["binary"], bool), "whether a loss is for 0/1 interactions")
        saved = facts | {name: SizePolynomial(*value) for name, value in polynomials.items()}
        return RowLoss(**{f.name: saved[SAVED_NAMES.get(f.name, f.name)] for f in fields(RowLoss)})


class Factors(Scorer):
    """A vector for each item, and the loss by which a user's vector is solved for: the same row solve as in training.

    Parameters
    ----------
    fixed
        The item vectors, in the basis in which their Gram matrix is diagonal.
    loss
        The loss of a user's row.
    """

    name = "factors"

    def __init__(self, fixed: FixedSide, loss: RowLoss) -> None:
        self.fixed, self.loss = fixed, loss

    @staticmethod
    def of(items: np.ndarray, gram: np.ndarray, loss: RowLoss) -> Factors:
        """Make a scorer of item vectors and the matrix that all users share."""
        return Factors(FixedSide.of(items, gram, items.sum(axis=0, dtype=np.float64))[0], loss)

    @property
    def n_items(self) -> int:
        return len(self.fixed.factors)

    def user_vectors(self, histories: sp.csr_array) -> np.ndarray:
        if self.loss.binary:
            ones = np.ones(histories.nnz, np.float32)
            histories = sp.csr_array((ones, histories.indices, histories.indptr), histories.shape)
        coefficients = self.loss.row_coefficients(row_sums(absolute_values(histories)))
        vectors, values = solve_histories(histories, coefficients, self.fixed)
        if not np.isfinite(values).all():  # very large weights, or a system that float32 cannot solve
            fixed = FixedSide(*(array.astype(np.float64) for array in asdict(self.fixed).values()))
            vectors, values = solve_histories(histories, coefficients, fixed)
            require_solved(values)
        return vectors.astype(self.fixed.factors.dtype, copy=False)

    def panels(self, histories: sp.csr_array) -> Panels:
        return dense_panels(self.user_vectors(histories), self.fixed.factors)

    def similar(self, item: int) -> np.ndarray:
        """Return the cosine between the vectors of items."""
        return cosine_similarities(self.fixed.factors, item)

    def similarities(self, lists: np.ndarray) -> np.ndarray:
        return compare_vectors(lists, self.fixed.factors)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        """score = q·A⁻¹(Σ_j v_j (extra_target q_j + unobserved_target/s · g)), A the row's system: a sum over the history."""
        if len(history) == 0:
            return np.zeros(0)
        values = np.ones_like(values) if self.loss.binary else values
        q, vectors = self.fixed.factors[item].astype(np.float64), self.fixed.factors[history].astype(np.float64)
        weights, values = np.abs(values), np.maximum(values, 0)  # a dislike has the target 0
        size = weights.sum(dtype=np.float64)
        (row,) = self.loss.row_coefficients(np.array([size]))
        system = np.diag(row[UNOBSERVED_WEIGHT] * self.fixed.spectrum.astype(np.float64) + row[RIDGE])
        system += row[EXTRA_WEIGHT] * (vectors.T * weights) @ vectors
        solution = np.linalg.lstsq(system, q)[0]
        return values * (
            row[EXTRA_TARGET] * (vectors @ solution) + row[UNOBSERVED_TARGET] / size * (self.fixed.total @ solution)
        )

    def factors(self) -> dict[str, np.ndarray]:
        return {"vector": self.fixed.factors}

    def save(self) -> SavedScorer:
        return {"rule": self.loss.to_json()}, asdict(self.fixed)

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Factors:
        fixed = FixedSide(**arrays)
        is_matching = fixed.factors.ndim == 2 and fixed.spectrum.shape == fixed.total.shape == (fixed.factors.shape[1],)
        require_content(bool(is_matching), "a vector for every item, and a spectrum of its length")
        dtypes = {array.dtype for array in arrays.values()}
        is_one_dtype = len(dtypes) == 1 and dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}
        require_content(is_one_dtype, "vectors of one precision")
        return Factors(fixed, RowLoss.from_json(facts["rule"]))


def solve_histories(histories: sp.csr_array, coefficients: np.ndarray, fixed: FixedSide) -> tuple[np.ndarray, np.ndarray]:
    """Solve for the vectors of histories exactly. Returns them and the value of each row's objective."""
    dtype = fixed.factors.dtype
    with np.errstate(over="ignore"):
        rows = RowProblems(histories, coefficients.astype(dtype), np.ones((len(fixed.factors), 2), dtype))
    vectors = np.zeros((histories.shape[0], fixed.factors.shape[1]), dtype)
    values = (solve_shared if rows.is_shared else solve_cholesky)(rows, fixed, vectors)
    return vectors, values


def require_solved(values: np.ndarray, do: str = "Fit with a higher l2") -> None:
    """Refuse rows without a solution: their values are NaN where a system is not positive definite, infinite on overflow."""
    failed = np.flatnonzero(~np.isfinite(values))
    if len(failed):
        raise Inaccurate(
            "a positive definite system for every row",
            f"none for {len(failed):,} of {len(values):,}",
            f"{do}, or fit with dtype='float64'",
        )
