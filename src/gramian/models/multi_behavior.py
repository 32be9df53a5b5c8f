"""Predict one kind of events from all kinds: purchases from views, carts and purchases.

With K kinds, the kind to predict last, X = [X_1 | … | X_K] (users × K·items), the weights W = [W_1; …; W_K] (K·items × items)
solve

    min ‖Y − Σ_k X_k W_k‖² + l2·‖W_K‖² + other_l2·Σ_{k<K} ‖W_k‖²,   diag(W_k) = 0 for every kind k in C

with the target Y = X_K. Let A = XᵀX + diag(Λ) be the penalised block Gram and P = A⁻¹. For item i, let t be its column of the
last kind and J the columns of item i whose weights must be 0, t among them. Since X_K's column is X·e_t, the minimiser without
constraints is P·XᵀX·e_t = e_t − Λ_t·P·e_t. A multiplier for each constraint adds a combination of the columns P_·J that makes
the entries J zero, which leaves

    w_i = e_t − P_·J c_i,   c_i = (P_JJ)⁻¹ e_t

So the model is one inverse and K numbers for each item, and scores are x_K − Σ_k c_k ∘ (x·P)_k. With one kind this is EASE;
with C = {K}, EASE on all columns.

**Items that nobody bought** have the target 0, so that their scores are 0. Where they must be recommended too, the other kinds
may be part of the target, Y = X_K + other_target·Σ_{k<K} X_k. With v = (other_target, …, other_target, 1) over the columns of
item i, the minimiser is w_i = v − P·d, where d_k = Λ_k·v_k outside J, and d_J makes the entries J of w_i zero:
P_JJ d_J = v_J − P_J· d outside J. With other_target 0 this is the c above.

**Which diagonals are 0.** If lists leave out all that a user has touched, an item that is recommended was not viewed, so its
view cannot predict it. `zero_diagonal_of="all"` forbids that in training too. With "target" a view may predict the purchase of
the same item, for lists that show what was viewed (`exclude_seen=False`).

**Users or columns.** With fewer users than columns, P = Λ⁻¹ − Λ⁻¹Xᵀ M XΛ⁻¹ with M = (I + XΛ⁻¹Xᵀ)⁻¹ (Woodbury) is cheaper: one
inverse of users × users, and a model that is M and the sparse X. Otherwise P itself is computed, half of which is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from gramian.core.histories import history_weights
from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.core.scorer import Panels, SavedScorer, Scorer, SupportsExplanations, require_capability
from gramian.data.interactions import Interactions
from gramian.data.kinds import MAX_KINDS, expand_kinds, has_kind
from gramian.errors import Inaccurate, InvalidInput
from gramian.io.damage import require_content
from gramian.io.sparse import load_csr, save_csr
from gramian.linalg.gram import write_gram
from gramian.linalg.inverse import INACCURATE_REMEDY, column_size, invert, pivot_size
from gramian.linalg.memory import require_memory
from gramian.linalg.product import multiply_sparse
from gramian.linalg.sparse import row_of_entry, scale_columns
from gramian.linalg.symmetric import BLOCK_WIDTH, DTYPES, Symmetric, stored_size
from gramian.models.scorers import SymmetricWeights

DUAL_PANEL = 1_024  # columns scored at a time by `DualWeights`
DUAL_USERS = 4_096  # histories scored at a time by `DualWeights`: each takes a number for every training user
PENALTIES = (10, 30, 100, 300, 1000, 3000)


@configurable
class MultiBehaviorEASE(Recipe):
    """EASE that predicts one kind of events from all kinds; the weights between kinds are learned.

    min ‖Y − Σ_k X_k W_k‖² + l2·‖W_K‖² + other_l2·Σ_{k<K} ‖W_k‖²  without self-weights, Y = X_K + other_target·Σ_{k<K} X_k. With
    one kind it is EASE. An item that has no event of the last kind gets the score 0 unless other_target is above 0.
    """

    takes_kinds = True

    l2: float = param(
        200.0, "L2 penalty on the weights of the kind to predict; usually 10 to 3,000", at_least=1e-6, tries=PENALTIES
    )
    other_l2: float = param(
        200.0, "L2 penalty on the weights of the other kinds; usually 10 to 3,000", at_least=1e-6, tries=PENALTIES
    )
    zero_diagonal_of: str = param(
        "all", "which kinds of an item must not predict the item itself", choices=("all", "target"), tries=("all", "target")
    )
    other_target: float = param(
        0.0, "weight of the other kinds in what is predicted; usually 0 to 1", at_least=0, tries=(0, 0.1, 0.3, 1)
    )

    def fit_scorer(self, events: Interactions, dtype: type) -> KindWeights:
        do = "Keep fewer items (events.k_core), or fewer kinds"
        require_memory(self.fit_bytes(events, dtype), f"fitting {events.n_items:,} items in {np.dtype(dtype)}", do)
        n_kinds = len(events.kinds or ("",))
        x = events.matrix if events.kinds is None else expand_kinds(events.matrix, n_kinds)
        is_last = np.tile(np.arange(n_kinds) == n_kinds - 1, events.n_items)
        penalty, target = np.where(is_last, self.l2, self.other_l2), np.where(is_last, 1, self.other_target)
        inner: DualWeights | SymmetricWeights
        if x.shape[0] < x.shape[1]:
            dual = DualInverse.of(x, penalty, dtype)
            inner = DualWeights(dual, -self.solve_constraints(dual.item_blocks(n_kinds)), target)
        else:
            matrix = Symmetric.empty(x.shape[1], dtype)
            write_gram(matrix, x)
            matrix.change_diagonal(lambda diagonal, first, last: diagonal + penalty[first:last])
            invert(matrix)
            inner = SymmetricWeights(matrix, -self.solve_constraints(item_blocks(matrix, n_kinds)), target)
        return KindWeights(inner, events.kinds)

    def solve_constraints(self, blocks: np.ndarray) -> np.ndarray:
        """Return d for every column from the blocks of P at the columns of each item, items × kinds × kinds."""
        target = np.full(blocks.shape[1], self.other_target)
        target[-1] = 1
        if self.zero_diagonal_of == "target":
            d = np.tile(self.other_l2 * target, (len(blocks), 1))
            d[:, -1] = (1 - np.einsum("ik,ik->i", blocks[:, -1, :-1], d[:, :-1])) / blocks[:, -1, -1]
            return d.ravel()
        try:
            return np.linalg.solve(blocks, target[:, None]).ravel()
        except np.linalg.LinAlgError:
            raise Inaccurate("positive definite blocks of the inverse", "a singular one", INACCURATE_REMEDY) from None

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n, m = events.n_items * len(events.kinds or ("",)), events.n_users
        if m < n:  # the kernel of the users, its inverse in float64 and in `dtype`, and a panel of M·X
            return (3 * 8 + np.dtype(dtype).itemsize) * m * m + 8 * m * DUAL_PANEL + 48 * n
        numbers = stored_size(n) + column_size(n, BLOCK_WIDTH) + pivot_size(n, BLOCK_WIDTH)
        return numbers * np.dtype(dtype).itemsize + 16 * events.n_interactions


def item_blocks(matrix: Symmetric, n_kinds: int) -> np.ndarray:
    """Return the blocks P_JJ of interleaved columns in float64: items × kinds × kinds."""
    blocks = np.empty((matrix.n // n_kinds, n_kinds, n_kinds))
    for first, last, block in matrix.blocks():
        columns = np.arange(first, last)
        for below in range(n_kinds):
            own = columns[columns % n_kinds + below < n_kinds]
            item, kind, values = own // n_kinds, own % n_kinds, block[own - first + below, own - first]
            blocks[item, kind + below, kind] = blocks[item, kind, kind + below] = values
    return blocks


@dataclass(frozen=True)
class DualInverse:
    """P = Λ⁻¹ − Λ⁻¹Xᵀ M XΛ⁻¹ with M = (I + XΛ⁻¹Xᵀ)⁻¹: the inverse of XᵀX + diag(Λ) by one of users × users.

    Parameters
    ----------
    x
        X·Λ⁻¹, users × columns.
    core
        M.
    ridge
        1/Λ of every column.
    """

    x: sp.csr_array
    core: np.ndarray
    ridge: np.ndarray

    @staticmethod
    def of(x: sp.csr_array, penalty: np.ndarray, dtype: type) -> DualInverse:
        """Invert XᵀX + diag(penalty). The small inverse is computed in float64."""
        exact = x.astype(np.float64)
        kernel = (scale_columns(exact, 1 / penalty) @ exact.T).toarray()
        kernel[np.diag_indices(len(kernel))] += 1
        if not np.isfinite(kernel).all():
            raise Inaccurate("finite sums of squared weights", "an overflow", "Rescale the weights of the interactions")
        try:
            factor = cho_factor(kernel.T, lower=True, overwrite_a=True)  # symmetric: the transpose has LAPACK's order
            core = cho_solve(factor, np.eye(len(kernel)).T, overwrite_b=True)
        except LinAlgError:
            raise Inaccurate("a positive definite matrix", "a pivot not above 0", INACCURATE_REMEDY) from None
        return DualInverse(scale_columns(exact, 1 / penalty).astype(dtype), core.astype(dtype), (1 / penalty).astype(dtype))

    def item_blocks(self, n_kinds: int) -> np.ndarray:
        """Return the blocks P_JJ of interleaved columns in float64: items × kinds × kinds."""
        n_items = len(self.ridge) // n_kinds
        blocks = np.zeros((n_items, n_kinds, n_kinds))
        step, by_column = max(1, DUAL_PANEL // n_kinds), sp.csr_array(self.x.T.tocsr().astype(np.float64))
        core = self.core.astype(np.float64)
        for first in range(0, n_items, step):
            columns = by_column[first * n_kinds : (first + step) * n_kinds]
            products = (columns @ core).reshape(-1, n_kinds, len(core))  # items × kinds × users
            entry, row = columns.data, row_of_entry(columns)
            np.subtract.at(
                blocks, (first + row // n_kinds, row % n_kinds), entry[:, None] * products[row // n_kinds, :, columns.indices]
            )
        diagonal = np.arange(n_kinds)
        blocks[:, diagonal, diagonal] += self.ridge.astype(np.float64).reshape(n_items, n_kinds)
        return blocks


class DualWeights(Scorer):
    """W = P · diag(scale) + diag(diagonal) for a `DualInverse` P.

    Parameters
    ----------
    inverse
        P.
    scale, diagonal
        One number each per column.
    """

    name = "dual-weights"

    def __init__(self, inverse: DualInverse, scale: np.ndarray, diagonal: np.ndarray) -> None:
        dtype = inverse.core.dtype
        self.inverse, self.scale, self.diagonal = inverse, scale.astype(dtype), diagonal.astype(dtype)
        self.by_column = sp.csr_array(inverse.x.T.tocsr())

    @property
    def n_items(self) -> int:
        return len(self.scale)

    @property
    def users_per_block(self) -> int:
        return DUAL_USERS

    def panels(self, histories: sp.csr_array) -> Panels:
        p = self.inverse
        similarities = np.ascontiguousarray(((histories.astype(p.core.dtype) @ p.x.T).toarray() @ p.core).T)  # M·XΛ⁻¹·hᵀ
        by_column = histories.tocsc()
        for first in range(0, self.n_items, DUAL_PANEL):
            columns = slice(first, first + DUAL_PANEL)
            own = by_column[:, columns].toarray().astype(p.core.dtype)
            panel = own * p.ridge[columns] - multiply_sparse(self.by_column[columns], similarities).T
            yield first, panel * self.scale[columns] + own * self.diagonal[columns]

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        p = self.inverse
        column = self.by_column[[item]].toarray()[0].astype(np.float64) @ p.core.astype(np.float64)
        row = -(self.by_column[history] @ column) + (history == item) * float(p.ridge[item])
        return np.asarray(values * (row * self.scale[item] + (history == item) * self.diagonal[item]))

    def save(self) -> SavedScorer:
        arrays = {"core": self.inverse.core, "ridge": self.inverse.ridge, "scale": self.scale, "diagonal": self.diagonal}
        return {}, save_csr(self.inverse.x) | arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> DualWeights:
        core, by_column = arrays["core"], [arrays[name] for name in ("ridge", "scale", "diagonal")]
        n = len(by_column[0])
        x = load_csr(arrays, n)
        require_content(core.ndim == 2 and core.shape == (x.shape[0], x.shape[0]), "a row of the core for every user")
        require_content(all(array.shape == (n,) for array in by_column), "three numbers for every column")
        is_one_dtype = {core.dtype, x.dtype, *(array.dtype for array in by_column)} in ({DTYPES[0]}, {DTYPES[1]})
        require_content(is_one_dtype, "numbers of one precision")
        return DualWeights(DualInverse(x, core, by_column[0]), *by_column[1:])


class KindWeights(Scorer):
    """Scores of one kind of events from histories of several kinds, whose values are bit sets.

    Parameters
    ----------
    inner
        A scorer of K columns for each item, in the order of the items. The sum of an item's columns is its score.
    kinds
        The names of the kinds; None for one kind, whose values are weights.
    """

    name = "kind-weights"

    def __init__(self, inner: Scorer, kinds: tuple[str, ...] | None) -> None:
        self.inner, self.kinds = inner, kinds

    @property
    def n_kinds(self) -> int:
        """The number of kinds."""
        return len(self.kinds or ("",))

    @property
    def n_items(self) -> int:
        return self.inner.n_items // self.n_kinds

    @property
    def users_per_block(self) -> int:
        return self.inner.users_per_block

    def expand(self, histories: sp.csr_array) -> sp.csr_array:
        """Return histories in the columns of the inner scorer."""
        return histories if self.kinds is None else expand_kinds(histories, self.n_kinds)

    def panels(self, histories: sp.csr_array) -> Panels:
        item, rest = 0, None
        for _, panel in self.inner.panels(self.expand(histories)):
            joined = panel if rest is None or not rest.shape[1] else np.concatenate([rest, panel], axis=1)
            n_items = joined.shape[1] // self.n_kinds
            rest = joined[:, n_items * self.n_kinds :].copy()
            if n_items:
                yield item, joined[:, : n_items * self.n_kinds].reshape(len(joined), n_items, self.n_kinds).sum(axis=2)
            item += n_items

    def similar(self, item: int) -> np.ndarray:
        """Return the score of every item for a history of this one, of the kind to predict."""
        value = np.array([2.0 ** (self.n_kinds - 1)], np.float32)
        history = sp.csr_array((value, np.array([item], np.int32), np.array([0, 1], np.int32)), (1, self.n_items))
        return np.concatenate([panel[0] for _, panel in self.panels(history)])

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return self.contributions_by_kind(history, values, item).sum(axis=1)

    def contributions_by_kind(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        """Return what each kind of event of each history column adds to the score of an item: columns × kinds."""
        explainer, k = require_capability(self.inner, SupportsExplanations, self.name), self.n_kinds
        row = sp.csr_array((values, history, np.array([0, len(history)])), (1, self.n_items))
        columns = self.expand(row)
        parts = sum(explainer.contributions(columns.indices, columns.data, item * k + kind) for kind in range(k))
        by_kind = np.zeros((len(history), k))
        by_kind[np.searchsorted(history, columns.indices // k), columns.indices % k] = parts
        return by_kind

    def encode_events(self, events: Interactions) -> Interactions:
        if events.kinds == self.kinds:
            return events
        if events.kinds is None and self.kinds is not None and events.is_binary:  # all of the kind to predict
            matrix = events.matrix * np.float32(2 ** (self.n_kinds - 1))
            return replace(events, matrix=sp.csr_array(matrix), kinds=self.kinds)
        do = "Read them with the same kinds, in the same order"
        raise InvalidInput(f"histories with the kinds {self.kinds}", f"{events.kinds}", do)

    def encode_history(self, history: Any, items: list[Any]) -> Iterable[float]:
        if self.kinds is None:
            return history_weights(history, items)
        if not isinstance(history, Mapping):
            return repeat(2.0 ** (self.n_kinds - 1), len(items))
        return [float(sum(2**k for k in self._parse_kinds(kinds))) for kinds in history.values()]

    def _parse_kinds(self, kinds: Any) -> set[int]:
        known = self.kinds or ()
        names = [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, Iterable) else []
        if not names or not set(names) <= set(known):
            do = f"Pass {{item: {known[-1]!r}}}, say, or a list of kinds for an item"
            raise InvalidInput(f"kinds of events among {', '.join(known)} for each item of a history", repr(kinds), do)
        return {known.index(name) for name in names}

    def decode_values(self, values: np.ndarray) -> list[Any]:
        """Return the kinds of events that values of a history stand for; weights as they are where there is one kind."""
        if self.kinds is None:
            return values.tolist()
        occurs = np.stack([has_kind(values, k) for k in range(self.n_kinds)], axis=1)
        return [tuple(kind for kind, is_set in zip(self.kinds, row, strict=True) if is_set) for row in occurs]

    def save(self) -> SavedScorer:
        facts, arrays = self.inner.save()
        return {"scorer": self.inner.name, "facts": facts, "kinds": None if self.kinds is None else list(self.kinds)}, arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> KindWeights:
        kinds = facts["kinds"]
        is_list = isinstance(kinds, list) and 0 < len(kinds) <= MAX_KINDS and all(isinstance(kind, str) for kind in kinds)
        require_content(kinds is None or is_list, "the names of the kinds")
        forms: dict[Any, type[Scorer]] = {form.name: form for form in (DualWeights, SymmetricWeights)}
        require_content(facts["scorer"] in forms, "the weights of the kinds")
        inner = forms[facts["scorer"]].load(facts["facts"], arrays)
        require_content(inner.n_items % len(kinds or ("",)) == 0, "a column of every kind for each item")
        return KindWeights(inner, None if kinds is None else tuple(kinds))
