"""Several kinds of events, such as views, carts and purchases, over the same users and items.

The simple way adds them up: X = Σ_k w_k X_k with a weight for each kind. The exact way keeps them apart: the value of a user
and an item is then the set of the kinds that occurred, written as a bit set. With the kinds (view, cart, buy) the value of a
view and a purchase is 2⁰ + 2² = 5. Rows can be taken, split, saved and joined like those of any interactions; a model of
several kinds expands them to X = [X_1 | … | X_K].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian.errors import InvalidInput
from gramian.validation import is_number

MAX_KINDS = 16  # float32 holds bit sets of up to 24 bits exactly


@dataclass(frozen=True)
class KindColumn:
    """The column of kinds of an event table.

    Parameters
    ----------
    name
        The column.
    kinds
        The kinds that it has, the one to predict last.
    weights
        A weight for each kind, to add them up; None to keep them apart.
    """

    name: str
    kinds: tuple[str, ...]
    weights: tuple[float, ...] | None = None

    def codes(self, column: pl.Series, rows: pl.Series) -> pl.Series:
        """Return the position of each row's kind, or raise `InvalidInput` for an unknown kind or one that never occurs."""
        names = column.cast(pl.String)
        codes = names.replace_strict({kind: k for k, kind in enumerate(self.kinds)}, default=None, return_dtype=pl.Int32)
        unknown, listed = codes.is_null(), ", ".join(self.kinds)
        if unknown.any():
            got = f"{names.filter(unknown)[0]!r} in row {rows.filter(unknown)[0]}"
            do = "Name it in kinds or weights; a weight of 0 drops a kind"
            do = "Pass skip_nulls=True to drop such rows" if names.filter(unknown)[0] is None else do
            raise InvalidInput(f"one of the kinds {listed} in every row of {self.name!r}", got, do)
        absent = set(range(len(self.kinds))) - set(codes.unique().to_list())
        if absent:
            got = f"none of {', '.join(self.kinds[k] for k in sorted(absent))}"
            raise InvalidInput(f"events of each of the kinds {listed} in {self.name!r}", got, "Leave out what never occurs")
        return codes

    def counts(self, codes: pl.Series) -> pl.Series:
        """Return whether each row counts: its kind has no weight of 0."""
        return codes.is_in([k for k in range(len(self.kinds)) if self.weights is None or self.weights[k] > 0])

    def merge(self, events: pl.DataFrame, merge: Sequence[pl.Expr]) -> pl.DataFrame:
        """Merge the events of a user and an item: to the weighted sum of the kinds' values, or to the set of the kinds.

        Within a kind, events are merged as those of any interactions are.
        """
        pair, time = ["row", "column"], [pl.col("time").max()] if "time" in events.columns else []
        if self.weights is None:
            bits = pl.lit(1, pl.Int64) * 2 ** pl.col("kind").unique().cast(pl.Int64)
            return events.group_by(pair).agg(bits.sum().cast(pl.Float64).alias("value"), *time)
        by_kind = events.group_by(*pair, "kind").agg(merge)
        value = pl.col("value") if "value" in by_kind.columns else pl.lit(1.0)
        weight = pl.col("kind").replace_strict(dict(enumerate(self.weights)), return_dtype=pl.Float64)
        return by_kind.group_by(pair).agg((value * weight).sum().alias("value"), *time)


def parse_kind_column(kind: str | None, kinds: Iterable[Any] | None, weights: Mapping[Any, float] | None) -> KindColumn | None:
    """Return the column of kinds with its kinds and their weights; None if no column is named."""
    if kind is None:
        if kinds is not None or weights is not None:
            given = "kinds" if kinds is not None else "weights"
            raise InvalidInput(f"kind=... with {given}", "no column of kinds", "Name the column: kind='event_type', say")
        return None
    if (kinds is None) == (weights is None):
        got = "neither" if kinds is None else "both"
        do = "Pass weights={'view': 0.2, 'buy': 1} to add kinds up, or kinds=['view', 'buy'] to keep them apart"
        raise InvalidInput("kinds or weights with kind", got, do)
    if weights is not None:
        if not isinstance(weights, Mapping) or not weights:
            do = "Pass weights={'view': 0.2, 'buy': 1}, say"
            raise InvalidInput("weights as a mapping from kind to weight", repr(weights), do)
        parse_kind_weights(weights, tuple(map(str, weights)))
        return KindColumn(kind, parse_kind_names(weights), tuple(map(float, weights.values())))
    return KindColumn(kind, parse_kind_names(kinds or ()))


def parse_kind_names(kinds: Iterable[Any]) -> tuple[str, ...]:
    """Return distinct names of kinds, or raise `InvalidInput`."""
    names = () if isinstance(kinds, str) else tuple(map(str, kinds))
    if not names or len(set(names)) < len(names) or len(names) > MAX_KINDS:
        expected = f"a list of 1 to {MAX_KINDS} different kinds, the one to predict last"
        raise InvalidInput(expected, repr(kinds), "Pass kinds=['view', 'cart', 'buy'], say")
    return names


def parse_kind_weights(weights: Mapping[Any, float], kinds: tuple[str, ...]) -> tuple[float, ...]:
    """Return the weight of each kind, or raise `InvalidInput` for unknown kinds and for weights that are none."""
    named = {str(kind): weight for kind, weight in weights.items()}
    unknown = sorted(set(named) - set(kinds))
    if unknown or set(named) != set(kinds):
        got = f"the unknown kind {unknown[0]!r}" if unknown else f"none for {sorted(set(kinds) - set(named))[0]!r}"
        raise InvalidInput(f"a weight for each of the kinds {', '.join(kinds)}", got, "Pass 0 for a kind that does not count")
    is_valid = all(is_number(weight) and weight >= 0 for weight in named.values()) and any(named.values())
    if not is_valid:
        raise InvalidInput("weights of kinds of at least 0, one of them above 0", repr(dict(weights)), "Correct them")
    return tuple(float(named[kind]) for kind in kinds)


def has_kind(data: np.ndarray, k: int) -> np.ndarray:
    """Return whether each bit set contains kind number k."""
    return (data.astype(np.int64) >> k) & 1 == 1


def is_target(data: np.ndarray, kinds: tuple[str, ...] | None) -> np.ndarray:
    """Return whether each value is something to predict: no dislike and, of several kinds, the last one."""
    return data > 0 if kinds is None else has_kind(data, len(kinds) - 1)


def expand_kinds(x: sp.csr_array, n_kinds: int) -> sp.csr_array:
    """Return the 0/1 matrix [X_1 | … | X_K] of a matrix of bit sets, interleaved: column item · K + kind."""
    bits = (x.data.astype(np.int64)[:, None] >> np.arange(n_kinds)) & 1 == 1
    per_entry = bits.sum(axis=1)
    indptr = np.concatenate([[0], np.cumsum(per_entry)])[x.indptr].astype(x.indptr.dtype)
    columns = (x.indices.astype(np.int64)[:, None] * n_kinds + np.arange(n_kinds))[bits].astype(x.indices.dtype)
    return sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), (x.shape[0], x.shape[1] * n_kinds))
