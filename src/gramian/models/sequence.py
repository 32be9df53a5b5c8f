"""Sequence-aware linear models: what follows a history is regressed on the history, in closed form.

A user's items in the order of time, 1, …, L, give L − 1 pairs of a source row (the items up to t, with weights that fall with
their distance from t) and a target row (what follows t). With S and T all source and target rows,

    min ‖T − SB‖² + l2·‖B‖²,   B = (SᵀS + l2·I)⁻¹ SᵀT

**SLIST** (Choi et al. 2021) counts distance in positions and takes all later items as targets. For items at p ≤ q, and
γ = exp(−1/decay), a source row at t has γ^(t−p) and a target row γ^(q−t−1), and it adds the regression of each history on
itself, ‖X − XB‖², with a share α:

    B = (α·XᵀX + (1 − α)·SᵀS + l2·I)⁻¹ (α·XᵀX + (1 − α)·SᵀT)

**TALE** (Park et al. 2025b) takes the next item as the only target, and weighs sources by the time that passed until then:
w(Δ) = floor + (1 − floor)·exp(−Δ/time_scale).

**No source row is formed.** Weights that fall exponentially factor: for p ≤ q the sum over all rows t of a user is

    Σ_t w(t, p)·w(t, q),   w(t, p) = w(t, q)·w(q, p) for the exponential part,

so that suffix sums over t make (SᵀS)_pq a product. SᵀS and SᵀT cost L² per user, as XᵀX does, and not L³.

**At prediction** an item counts exp(−(steps back from the last)/recency), in both papers and here.

Differences from the papers: a user is one session; the timeliness of sessions is what `events.decayed(...)` does to
interactions; SLIST's source rows are not normalised; TALE's floor is added instead of a maximum, which the factoring needs; its
normalisation by recent popularity is left out (the authors' code does without it, too). Items of equal times are ordered by
their columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from gramian.core.histories import history_weights
from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.core.scorer import Panels, SavedScorer, Scorer
from gramian.data.decay import to_days
from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate
from gramian.io.damage import require_content
from gramian.linalg.inverse import INACCURATE_REMEDY
from gramian.linalg.memory import require_memory
from gramian.linalg.product import row_panels
from gramian.linalg.sparse import rank_within_rows
from gramian.models.parameters import l2_param
from gramian.validation import is_number

ITEMS_PER_BLOCK = 512  # rows of XᵀX added at a time


class SequenceRecipe(Recipe):
    """A regression of what follows on what came before."""

    needs_times = True
    l2: float
    recency: float

    @abstractmethod
    def add_moments(self, gram: np.ndarray, cross: np.ndarray, events: Interactions, order: np.ndarray) -> None:
        """Add SᵀS and SᵀT to dense matrices. `order` has the entries of each user in the order of time."""

    def fit_scorer(self, events: Interactions, dtype: type) -> SequenceWeights:
        n, do = events.n_items, "Keep fewer items (events.k_core)"
        require_memory(self.fit_bytes(events, dtype), f"fitting {n:,} items, by dense matrices in float64", do)
        gram, cross = np.zeros((n, n)), np.zeros((n, n))
        self.add_moments(gram, cross, events, np.lexsort((order_times(events), events.rows)))
        gram[np.diag_indices(n)] += self.l2
        if not (np.isfinite(gram).all() and np.isfinite(cross).all()):
            raise Inaccurate("finite sums of weights", "an overflow", "Rescale the weights of the interactions")
        try:
            factor = cho_factor(gram.T, lower=True, overwrite_a=True, check_finite=False)  # symmetric: LAPACK's order
        except LinAlgError:
            raise Inaccurate("a positive definite matrix", "a pivot not above 0", INACCURATE_REMEDY) from None
        return SequenceWeights(cho_solve(factor, cross, overwrite_b=True, check_finite=False).astype(dtype), self.recency)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return (3 * 8 + np.dtype(dtype).itemsize) * events.n_items**2 + 40 * events.n_interactions


def recency_param() -> Any:
    """Declare how fast the items of a history lose weight at prediction."""
    about = (
        "steps back by which an item's weight at prediction falls to 1/e; usually 1 to 10 in sessions, 100 in long histories"
    )
    return param(100.0, about, at_least=1e-3, tries=(1, 3, 10, 30, 100, 1000))


@configurable
class SLIST(SequenceRecipe):
    """Session-aware linear model of similarity and transition   (Choi et al. 2021).

    min α·‖X − XB‖² + (1 − α)·‖T − SB‖² + l2·‖B‖², with the rows of S the items so far and those of T all later items
    """

    similarity_share: float = param(
        0.5, "share α of the regression of each history on itself", at_least=0, at_most=1, tries=(0, 0.2, 0.5, 0.8)
    )
    decay: float = param(
        5.0, "steps by which weights in source and target rows fall to 1/e; usually 1 to 30", at_least=1e-3,
        tries=(1, 3, 10, 30),
    )  # fmt: skip
    recency: float = recency_param()
    l2: float = l2_param()

    def add_moments(self, gram: np.ndarray, cross: np.ndarray, events: Interactions, order: np.ndarray) -> None:
        x, steps = events.matrix, np.arange(events.n_interactions, dtype=np.float64)
        add_sequences(gram, cross, x.indptr, x.indices[order], x.data[order], steps, self.decay, 0.0, True)
        gram *= 1 - self.similarity_share
        cross *= 1 - self.similarity_share
        if self.similarity_share:
            by_item = sp.csr_array(x.T.astype(np.float64).tocsr())
            for first in range(0, len(gram), ITEMS_PER_BLOCK):
                rows = slice(first, first + ITEMS_PER_BLOCK)
                similarities = self.similarity_share * (by_item[rows] @ x).toarray()
                gram[rows] += similarities
                cross[rows] += similarities


@configurable
class TALE(SequenceRecipe):
    """Temporal linear model of the next item, with weights by the time that passed   (Park et al. 2025b).

    min ‖T − SB‖² + l2·‖B‖², with the rows of S the items so far, weighted by age, and those of T the next item
    """

    time_scale: float = param(
        30.0, "days after which the weight of a source falls to 1/e, towards its floor; or in the unit of numeric times",
        at_least=1e-6, tries=(0.1, 1, 10, 100, 1000),
    )  # fmt: skip
    floor: float = param(0.3, "least weight of a source, however old", at_least=0, below=1, tries=(0, 0.1, 0.3, 0.6))
    recency: float = recency_param()
    l2: float = l2_param()

    def add_moments(self, gram: np.ndarray, cross: np.ndarray, events: Interactions, order: np.ndarray) -> None:
        x, days = events.matrix, to_days(np.asarray(events.times)[order])
        add_sequences(gram, cross, x.indptr, x.indices[order], x.data[order], days, self.time_scale, self.floor, False)


def order_times(events: Interactions) -> np.ndarray:
    """Return the place of each entry's time among all times, equal for equal times."""
    return np.unique(np.asarray(events.times), return_inverse=True)[1].reshape(-1)


@njit(cache=True)
def add_sequences(gram, cross, indptr, items, values, clock, scale, floor, takes_all_later):  # type: ignore[no-untyped-def]
    # Entries are in the order of time within each user; clock says when. A source row at target t has, for each item p < t, the
    # weight values[p] · (floor + (1 − floor) · e(t, p)), e(t, p) = exp(−(clock of the row − clock[p]) / scale). The clock of a
    # row is that of its target, or, where all later items are targets, that of its last source.
    for user in range(len(indptr) - 1):
        start, stop = indptr[user], indptr[user + 1]
        ones, once, twice = 0.0, 0.0, 0.0  # sums over the rows after q of 1, e(t, q) and e(t, q)²
        for q in range(stop - 1, start - 1, -1):
            if q < stop - 1:  # the row whose target is q + 1 begins to hold q
                passed = np.exp(-(clock[q + 1] - clock[q]) / scale)
                ones += 1
                if takes_all_later:
                    once, twice = 1 + passed * once, 1 + passed * passed * twice
                else:
                    once, twice = passed * (1 + once), passed * passed * (1 + twice)
            for p in range(start, q + 1):
                passed = np.exp(-(clock[q] - clock[p]) / scale)
                mixed = floor * floor * ones + floor * (1 - floor) * (1 + passed) * once + (1 - floor) ** 2 * passed * twice
                product = values[p] * values[q]
                gram[items[p], items[q]] += product * mixed
                if p < q:
                    gram[items[q], items[p]] += product * mixed
                    if takes_all_later:  # q − p rows lie between them, each with e(last, p) · e(q, first)
                        reach = (q - p) * np.exp(-(clock[q] - clock[p] - 1) / scale)
                        cross[items[p], items[q]] += product * reach
                    else:
                        cross[items[p], items[q]] += product * (floor + (1 - floor) * passed)


class SequenceWeights(Scorer):
    """A dense W for histories in the order of time, whose items count less the further back they are.

    Parameters
    ----------
    rows
        W.
    recency
        An item counts exp(−(steps back from the last) / recency).
    """

    name = "sequence-weights"

    def __init__(self, rows: np.ndarray, recency: float) -> None:
        self.rows, self.recency = np.ascontiguousarray(rows), float(recency)

    @property
    def n_items(self) -> int:
        return len(self.rows)

    def panels(self, histories: sp.csr_array) -> Panels:
        n, dtype = self.n_items, self.rows.dtype
        return row_panels(histories, self.rows, np.ones(n, dtype), np.zeros(n, dtype))

    def similar(self, item: int) -> np.ndarray:
        """Return W_ij, how much this item speaks for each other item to follow."""
        return self.rows[item]

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return values * self.rows[history, item].astype(np.float64)

    def weights(self) -> np.ndarray:
        return self.rows

    def encode_events(self, events: Interactions) -> Interactions:
        """Return interactions whose values are multiplied by their recency; without times they stay as they are."""
        if events.times is None:
            return events
        steps_back = rank_within_rows(events.matrix, -order_times(events))
        data = (events.matrix.data * self.weigh_steps(steps_back)).astype(np.float32)
        matrix = sp.csr_array((data, events.matrix.indices, events.matrix.indptr), events.matrix.shape)
        return replace(events, matrix=matrix)

    def encode_history(self, history: Any, items: list[Any]) -> Iterable[float]:
        if isinstance(history, Mapping):
            return history_weights(history, items)
        return self.weigh_steps(np.arange(len(items))[::-1]).tolist()

    def weigh_steps(self, steps_back: np.ndarray) -> np.ndarray:
        """Return the weight of items that are this many steps back."""
        return np.maximum(np.exp(-steps_back / self.recency), np.finfo(np.float32).tiny)

    def decode_values(self, values: np.ndarray) -> list[Any]:
        """Return the weights as they are."""
        return values.tolist()

    def save(self) -> SavedScorer:
        return {"recency": self.recency}, {"rows": self.rows}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> SequenceWeights:
        rows = arrays["rows"]
        require_content(rows.ndim == 2 and rows.shape[0] == rows.shape[1], "a weight for every pair of items")
        require_content(rows.dtype in (np.float32, np.float64), "weights in float32 or float64")
        require_content(is_number(facts["recency"]) and facts["recency"] > 0, "a recency above 0")
        return SequenceWeights(rows, facts["recency"])
