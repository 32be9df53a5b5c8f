"""Factor models: every item has a vector, and anyone's vector is solved for from what they touched."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from gramian import store
from gramian.data.tables import is_number
from gramian.errors import Inaccurate, NotSupported
from gramian.linalg.gram import sizes
from gramian.linalg.product import dense_panels
from gramian.linalg.rows import OWN, PULL, REST, RIDGE, SHARED, Fixed, Rows, alone, exact
from gramian.models.scorers import cosines


class Terms(NamedTuple):
    """inverse/s + constant + linear·s + square·s²."""

    inverse: float = 0.0
    constant: float = 0.0
    linear: float = 0.0
    square: float = 0.0

    def at(self, s: np.ndarray) -> np.ndarray:
        return self.inverse / s + self.constant + self.linear * s + self.square * s**2


@dataclass(frozen=True)
class Rule:
    """A weighted squared loss, by what a user of size s (the number of items touched, or their weight) brings to a row's solve.

    For a positive of weight w⁺ and target t⁺, and all others of w⁰ and t⁰, linalg/rows.py has shared = w⁰, own = w⁺ − w⁰,
    pull = w⁺t⁺ − w⁰t⁰ and rest = w⁰t⁰; the penalty on the user's vector is l2 · (ridge at s)^exponent. `base` is the loss of a
    model that says 0 to everything.
    """

    shared: Terms
    own: Terms
    pull: Terms
    rest: Terms
    base: Terms
    l2: float
    ridge: Terms
    exponent: float = 1.0
    binary: bool = False  # whether weights in a history count as 1

    def numbers(self, sizes: np.ndarray) -> np.ndarray:
        """Five for each user. Who touched nothing has no say, and the vector 0."""
        found = np.zeros((len(sizes), 5))
        found[:, RIDGE] = 1
        s = sizes[sizes > 0].astype(np.float64)
        columns = {SHARED: self.shared.at(s), OWN: self.own.at(s), PULL: self.pull.at(s), REST: self.rest.at(s)}
        columns[RIDGE] = self.l2 * self.ridge.at(s) ** self.exponent
        for column, values in columns.items():
            found[sizes > 0, column] = values
        return found

    @staticmethod
    def from_json(facts: dict[str, Any]) -> Rule:
        kinds = {f.name: f.type for f in fields(Rule)}
        store.require(set(facts) == set(kinds), "the numbers of a loss")
        terms = [part for name, part in facts.items() if kinds[name] == "Terms"]
        store.require(all(isinstance(part, list) and len(part) == 4 for part in terms), "four numbers for each term of a loss")
        numbers = [number for part in terms for number in part] + [facts["l2"], facts["exponent"]]
        store.require(all(is_number(number) and np.isfinite(number) for number in numbers), "finite numbers in a loss")
        store.require(isinstance(facts["binary"], bool), "whether a loss is for 0/1")
        parts: dict[str, Any] = {name: Terms(*part) if kinds[name] == "Terms" else part for name, part in facts.items()}
        return Rule(**parts)


class Factors:
    """A vector for each item, and the rule by which a user's vector is solved for: the very row solve of training."""

    name: ClassVar[str] = "factors"

    def __init__(self, fixed: Fixed, rule: Rule) -> None:
        self.fixed, self.rule = fixed, rule

    @staticmethod
    def of(items: np.ndarray, gram: np.ndarray, rule: Rule) -> Factors:
        return Factors(Fixed.of(items, gram, items.sum(axis=0, dtype=np.float64))[0], rule)

    @property
    def n_items(self) -> int:
        return len(self.fixed.factors)

    def users(self, histories: sp.csr_array) -> np.ndarray:
        """The vectors of users with these histories."""
        kind = self.fixed.factors.dtype
        if self.rule.binary:
            histories = sp.csr_array((np.ones(histories.nnz, kind), histories.indices, histories.indptr), histories.shape)
        numbers = self.rule.numbers(sizes(histories)).astype(kind)
        rows = Rows(histories, numbers, np.ones((self.n_items, 2), kind))
        found = np.zeros((histories.shape[0], self.fixed.factors.shape[1]), kind)
        values = alone(rows, self.fixed, found) if rows.alone else exact(rows, self.fixed, found)
        require_finite(values)
        return found

    def panels(self, histories: sp.csr_array) -> Any:
        return dense_panels(self.users(histories), self.fixed.factors)

    def similar(self, item: int) -> np.ndarray:
        """The cosine between the vectors of items."""
        return cosines(self.fixed.factors, item)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        """score = q·A⁻¹(Σ_j v_j (pull q_j + rest/s · g)), with A the system of this history's row: a sum over the history."""
        if len(history) == 0:
            return np.zeros(0)
        values = np.ones_like(values) if self.rule.binary else values
        q, seen = self.fixed.factors[item].astype(np.float64), self.fixed.factors[history].astype(np.float64)
        size = values.sum(dtype=np.float64)
        (mine,) = self.rule.numbers(np.array([size]))
        system = np.diag(mine[SHARED] * self.fixed.spectrum.astype(np.float64) + mine[RIDGE])
        system += mine[OWN] * (seen.T * values) @ seen
        solved = np.linalg.lstsq(system, q)[0]
        return values * (mine[PULL] * (seen @ solved) + mine[REST] / size * (self.fixed.total @ solved))

    def weights(self) -> np.ndarray:
        raise NotSupported("an item-item model", "a factor model", "Use factors()")

    def factors(self) -> dict[str, np.ndarray]:
        return {"vector": self.fixed.factors}

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"rule": asdict(self.rule)}, asdict(self.fixed)

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Factors:
        fixed = Fixed(**arrays)
        sound = fixed.factors.ndim == 2 and fixed.spectrum.shape == fixed.total.shape == (fixed.factors.shape[1],)
        store.require(bool(sound), "a vector for every item, and a spectrum of its length")
        kinds = {part.dtype for part in arrays.values()}
        store.require(len(kinds) == 1 and kinds <= {np.dtype(np.float32), np.dtype(np.float64)}, "vectors of one precision")
        store.require(all(bool(np.isfinite(part).all()) for part in arrays.values()), "finite vectors")
        return Factors(fixed, Rule.from_json(facts["rule"]))


def require_finite(values: np.ndarray, do: str = "Fit with a higher l2") -> None:
    """Values of solved rows are NaN where a system is not positive definite, and infinite where the numbers overflow."""
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken):
        raise Inaccurate(
            "a positive definite system for every row",
            f"none for {len(broken):,} of {len(values):,}",
            f"{do}, or fit with dtype='float64'",
        )
