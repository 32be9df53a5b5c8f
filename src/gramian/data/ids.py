"""Ids at the edges: an index from the user's own ids to row or column numbers and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from types import NoneType
from typing import Any

import numpy as np
import polars as pl

from gramian.errors import InvalidInput


class Index:
    """Distinct ids of one type, in order; position i belongs to row or column i."""

    def __init__(self, ids: Iterable[Any]) -> None:
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        check_one_type(values, "ids")
        self.values = as_array(values)
        if len(self._positions) != len(self):
            raise InvalidInput("distinct ids", f"{len(self) - len(self._positions)} repeated", "Drop the repeats")

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {value: position for position, value in enumerate(self.values.tolist())}

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, positions: np.ndarray | slice) -> list[Any]:
        """The ids at these positions, as the user gave them."""
        ids: list[Any] = self.values[positions].tolist()
        return ids

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Index) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[Any]:
        return self[:]

    def positions(self, ids: Sequence[Any]) -> np.ndarray:
        """Where these ids stand, −1 where unknown."""
        lookup = self._positions
        try:
            return np.fromiter((lookup.get(i, -1) for i in ids), dtype=np.int64, count=len(ids))
        except TypeError as error:
            raise InvalidInput("a flat list of ids", f"{error}", "Pass ids, not lists of ids") from None

    def union(self, other: Index) -> Index:
        """This index, followed by the ids only the other has."""
        fresh = np.flatnonzero(self.positions(other.tolist()) < 0)
        return self if len(fresh) == 0 else Index(self.tolist() + other[fresh])

    def take(self, positions: np.ndarray) -> Index:
        """The ids at these distinct positions."""
        part = object.__new__(Index)  # distinct and of one type already
        part.values = self.values[positions]
        return part


def ids_of(what: str, ids: Iterable[Any]) -> list[Any]:
    """A list of ids from any iterable but a string, whose letters nobody means."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"a list of {what}", repr(ids), f"Pass [{ids!r}]")
    return ids.tolist() if isinstance(ids, np.ndarray) else list(ids)


def as_array(values: list[Any]) -> np.ndarray:
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):  # of ids beyond 64 bits
            return np.array(values, dtype=np.int64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def check_one_type(values: list[Any], column: str) -> None:
    types = set(map(type, values))
    floats = any(issubclass(kind, float) for kind in types)
    if NoneType in types or (floats and any(isinstance(v, float) and v != v for v in values)):
        raise InvalidInput(f"an id in every row of {column!r}", "a null", "Drop or fill such rows first")
    names = sorted({kind.__name__ for kind in types})
    if len(names) > 1:
        raise InvalidInput(f"ids of one type in {column!r}", " and ".join(names), "Cast the column to one type, such as str")


def factorize(column: pl.Series) -> tuple[np.ndarray, Index]:
    """Code a column of ids by integers. Ids are sorted where they have an order, so row order does not matter."""
    if column.dtype == pl.Object or column.dtype.is_nested():
        return factorize_objects(column.to_list(), column.name)
    bad = column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()
    if bad.any():
        raise InvalidInput(f"an id in every row of {column.name!r}", f"{bad.sum()} nulls", "Drop or fill such rows first")
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    distinct = column.unique().sort()
    table = pl.DataFrame({"id": distinct, "code": np.arange(len(distinct), dtype=np.int32)})
    codes = pl.DataFrame({"id": column}).join(table, on="id", how="left", maintain_order="left")["code"]
    return codes.to_numpy(), Index(distinct.to_list())


def factorize_objects(values: list[Any], column: str) -> tuple[np.ndarray, Index]:
    values = [tuple(v) if isinstance(v, list) else v for v in values]
    check_one_type(values, column)
    try:
        distinct = dict.fromkeys(values)
    except TypeError:
        raise InvalidInput(f"hashable ids in {column!r}", type(values[0]).__name__, "Use str, int or tuple ids") from None
    try:
        index = Index(sorted(distinct))
    except TypeError:
        index = Index(distinct)
    return index.positions(values).astype(np.int32), index
