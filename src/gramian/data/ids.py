"""Indexes between the ids of users or items and row or column numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import repeat
from types import NoneType
from typing import Any

import numpy as np
import polars as pl

from gramian.errors import InvalidInput


class Index:
    """Distinct ids of one type, in the order of their rows or columns.

    Parameters
    ----------
    ids
        Hashable ids, all of one type and none repeated.
    """

    def __init__(self, ids: Iterable[Any]) -> None:
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        require_one_type(values, "ids")
        self.values = ids_to_array(values)
        if len(self._positions) != len(self):
            raise InvalidInput("distinct ids", f"{len(self) - len(self._positions)} repeated", "Drop the repeats")

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {value: position for position, value in enumerate(self.values.tolist())}

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, positions: np.ndarray | slice) -> list[Any]:
        """Return the ids at these positions in their original type."""
        ids: list[Any] = self.values[positions].tolist()
        return ids

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Index) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[Any]:
        """Return all ids in order."""
        return self[:]

    def positions(self, ids: Sequence[Any]) -> np.ndarray:
        """Return the positions of these ids, −1 where unknown."""
        lookup = self._positions
        try:
            return np.fromiter(map(lookup.get, ids, repeat(-1)), dtype=np.int64, count=len(ids))
        except TypeError as error:
            raise InvalidInput("a flat list of ids", f"{error}", "Pass ids, not lists of ids") from None

    def union(self, other: Index) -> Index:
        """Return this index followed by the ids that only the other has."""
        added = np.flatnonzero(self.positions(other.tolist()) < 0)
        return self if len(added) == 0 else Index(self.tolist() + other[added])

    def take(self, positions: np.ndarray) -> Index:
        """Return the ids at these distinct positions as an index."""
        subset = object.__new__(Index)  # already distinct and of one type
        subset.values = self.values[positions]
        return subset


def as_id_list(name: str, ids: Iterable[Any]) -> list[Any]:
    """Return a list of ids from any iterable except a string, whose characters are never meant as ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"a list of {name}", repr(ids), f"Pass [{ids!r}]")
    return ids.tolist() if isinstance(ids, np.ndarray) else list(ids)


def ids_to_array(values: list[Any]) -> np.ndarray:
    """Return int64 ids as such and all other ids as objects."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):  # of ids beyond 64 bits
            return np.array(values, dtype=np.int64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def require_one_type(values: list[Any], column: str) -> None:
    """Refuse null ids and ids of several types."""
    types = set(map(type, values))
    has_floats = any(issubclass(type_, float) for type_ in types)
    if NoneType in types or (has_floats and any(isinstance(v, float) and v != v for v in values)):
        raise InvalidInput(f"an id in every row of {column!r}", "a null", "Pass skip_nulls=True to drop such rows")
    names = sorted({type_.__name__ for type_ in types})
    if len(names) > 1:
        raise InvalidInput(f"ids of one type in {column!r}", " and ".join(names), "Cast the column to one type, such as str")


def is_missing(column: pl.Series) -> pl.Series:
    """Return a mask of the nulls and NaNs of a column."""
    if column.dtype == pl.Object:
        return pl.Series(
            [value is None or (isinstance(value, float) and value != value) for value in column.to_list()], dtype=pl.Boolean
        )
    return column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()


def factorize(column: pl.Series) -> tuple[np.ndarray, Index]:
    """Return integer codes for a column of ids, and the index of distinct ids.

    Ids are sorted where they have an order, so the order of the rows does not matter.
    """
    if column.dtype == pl.Object or column.dtype.is_nested():
        return factorize_objects(column.to_list(), column.name)
    if missing := int(is_missing(column).sum()):
        do = "Pass skip_nulls=True to drop such rows"
        raise InvalidInput(f"an id in every row of {column.name!r}", f"{missing:,} nulls", do)
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    distinct = column.unique().sort()
    table = pl.DataFrame({"id": distinct, "code": np.arange(len(distinct), dtype=np.int32)})
    codes = pl.DataFrame({"id": column}).join(table, on="id", how="left", maintain_order="left")["code"]
    return codes.to_numpy(), Index(distinct.to_list())


def factorize_objects(values: list[Any], column: str) -> tuple[np.ndarray, Index]:
    """Factorize ids that are Python objects, such as tuples."""
    values = [tuple(v) if isinstance(v, list) else v for v in values]
    require_one_type(values, column)
    try:
        distinct = dict.fromkeys(values)
    except TypeError:
        raise InvalidInput(f"hashable ids in {column!r}", type(values[0]).__name__, "Use str, int or tuple ids") from None
    try:
        index = Index(sorted(distinct))
    except TypeError:
        index = Index(distinct)
    return index.positions(values).astype(np.int32), index
