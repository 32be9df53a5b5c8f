"""Columns of polars, pandas and arrow tables as polars series, and the role that each column has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import polars as pl

from gramian.data.kinds import KindColumn
from gramian.data.weights import require_weighting
from gramian.errors import InvalidInput
from gramian.validation import is_number

USER_NAMES = ("user_id", "user", "userId", "uid")  # tried in this order when no column is named
ITEM_NAMES = ("item_id", "item", "itemId", "iid")
V = TypeVar("V", pl.Series, pl.Expr)
NATIVE_TYPE_NAMES = {"str", "int", "float", "bool", "bytes", "date", "datetime"}  # Python types that polars returns unchanged


@dataclass(frozen=True)
class Columns:
    """The role of each column of an event table, and how its values are read.

    Parameters
    ----------
    user, item, value, time, title, tags
        Names of columns.
    threshold
        Rows whose value is below it are dropped; the others count 1 each.
    time_format
        How times are written, as in `datetime.strptime`.
    weight
        How the counts of a user and an item become a weight.
    skip_nulls
        Whether rows without a user, item, value or time are dropped instead of refused.
    tag_separator
        What stands between the tags of a text.
    others
        Names of further columns to read.
    kind
        The column of kinds of events, and the kinds.
    half_life
        In which time the weight of an interaction halves.
    signed
        Whether values below 0 are accepted, as dislikes.
    max_dislike
        Rows whose value is at most this are dislikes, beside those of at least `threshold`.
    """

    user: str
    item: str
    value: str | None
    threshold: float | None
    time: str | None
    title: str | None
    tags: str | None = None
    time_format: str | None = None
    weight: str | None = None
    skip_nulls: bool = False
    tag_separator: str = "|"
    others: tuple[str, ...] = ()
    kind: KindColumn | None = None
    half_life: Any = None
    signed: bool = False
    max_dislike: float | None = None

    @staticmethod
    def of(
        names: Sequence[str],
        user: str | None,
        item: str | None,
        value: str | None,
        min_value: tuple[str, float] | float | None,
        time: str | None,
        title: str | None,
        tags: str | None = None,
        kind: KindColumn | None = None,
    ) -> Columns:
        """Check the column names that were passed against those of the table, and fill in the usual names of ids."""
        threshold = None
        if min_value is not None:
            if value is not None:
                raise InvalidInput("value or min_value", "both", "Keep values as weights, or threshold them")
            if not (isinstance(min_value, tuple) and len(min_value) == 2 and is_number(min_value[1])):
                raise InvalidInput("min_value=(column, number)", repr(min_value), 'Pass min_value=("rating", 4)')
            value, threshold = min_value
        columns = Columns(
            user or guess_name(names, USER_NAMES),
            item or guess_name(names, ITEM_NAMES),
            value,
            threshold,
            time,
            title,
            tags,
            kind=kind,
        )
        for name in columns.needed:
            if names.count(name) != 1:
                got = f"columns {', '.join(names)}" if name not in names else f"{names.count(name)} of that name"
                do = "Name yours: user=..., item=..."
                if any(re.fullmatch(r"[-+.\d]+", n) for n in names):  # the first event
                    do += ". If there is no header line, name all columns: columns=['user', 'item', ...]"
                raise InvalidInput(f"a column named {name!r}", got, do)
        return columns

    def with_options(self, time_format: str | None, weight: str | None, skip_nulls: bool, tag_separator: str) -> Columns:
        """Return the same columns with these ways of reading their values."""
        if weight is not None:
            require_weighting(weight)
        if time_format is not None and self.time is None:
            raise InvalidInput("time=... with time_format", "no column of times", "Name the column: time=...")
        if not isinstance(tag_separator, str) or not tag_separator:
            raise InvalidInput("a tag_separator such as '|'", repr(tag_separator), "Pass the text between two tags")
        return replace(self, time_format=time_format, weight=weight, skip_nulls=skip_nulls, tag_separator=tag_separator)

    def with_signals(self, half_life: Any, signed: bool, max_dislike: float | None) -> Columns:
        """Return the same columns with decay by time and with dislikes."""
        if half_life is not None and self.time is None:
            raise InvalidInput("time=... with half_life", "no column of times", "Name the column: time=...")
        threshold = -inf if self.threshold is None else self.threshold
        if max_dislike is not None and not (is_number(max_dislike) and max_dislike < threshold):
            got = f"max_dislike={max_dislike!r} and " + ("no min_value" if self.threshold is None else f"{threshold:g}")
            do = "Pass min_value=('rating', 4), max_dislike=2, say"
            raise InvalidInput("max_dislike as a number below that of min_value", got, do)
        if signed and (self.value is None or self.threshold is not None):
            raise InvalidInput("value=... with signed", "no column of values", "Name the column: value=...")
        if self.kind is not None and self.kind.weights is None:
            has_value = self.value is not None and self.threshold is None
            for name, argument in (("value", has_value), ("weight", self.weight), ("half_life", half_life)):
                if argument:
                    do = "Leave it out, or pass weights={'view': 0.2, 'buy': 1} to add the kinds up"
                    raise InvalidInput("kinds that are kept apart as sets, without weights", f"{name}={argument!r}", do)
        if self.kind is not None and (signed or max_dislike is not None):
            raise InvalidInput("kinds or dislikes", "both", "Make the dislikes a kind of their own, or leave kind out")
        return replace(self, half_life=half_life, signed=signed, max_dislike=max_dislike)

    @property
    def is_signed(self) -> bool:
        """Whether values may be below 0."""
        return self.signed or self.max_dislike is not None

    def keeps(self, value: V) -> V:
        """Return whether values, a column or an expression, are at or above the threshold, or are dislikes."""
        is_liked = value >= self.threshold
        return is_liked if self.max_dislike is None else is_liked | (value <= self.max_dislike)

    @property
    def needed(self) -> list[str]:
        """The names of all columns that have a role."""
        kind = None if self.kind is None else self.kind.name
        names = (self.user, self.item, self.value, self.time, self.title, self.tags, kind, *self.others)
        return [name for name in names if name is not None]

    @property
    def distinct(self) -> list[str]:
        """The same names, each of them once."""
        return list(dict.fromkeys(self.needed))

    @property
    def required(self) -> list[str]:
        """The names of the columns that must have a value in every row."""
        kind = None if self.kind is None else self.kind.name
        return [name for name in (self.user, self.item, self.value, self.time, kind) if name is not None]


def guess_name(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the first usual name that a table has, exactly or as in "User ID"; the most usual one if it has none."""
    exact = [name for name in usual if name in names]
    simplified = {simplify_name(name) for name in usual}
    alike = [name for name in names if simplify_name(name) in simplified]
    return (exact or alike or list(usual))[0]


def simplify_name(name: str) -> str:
    """Return a column's name in lower case without spaces, underscores and hyphens."""
    return name.lower().replace(" ", "").replace("_", "").replace("-", "")


def as_table(data: Any) -> Any:
    """Return a table; an arrow stream, such as a RecordBatchReader or a DuckDB relation, is read to its end."""
    if hasattr(data, "read_all"):  # an arrow RecordBatchReader
        return data.read_all()
    if isinstance(data, pl.DataFrame | pl.LazyFrame) or hasattr(data, "iloc") or hasattr(data, "column_names"):
        return data
    is_stream = hasattr(data, "__arrow_c_stream__") and (hasattr(data, "columns") or hasattr(data, "schema"))
    return pl.DataFrame(data) if is_stream else data


def column_names(table: Any) -> list[str]:
    """Return the column names of a table."""
    if isinstance(table, pl.LazyFrame):
        return table.collect_schema().names()
    names = getattr(table, "column_names", None)  # arrow
    names = getattr(table, "columns", None) if names is None else names  # polars, pandas
    if names is None:
        expected = "a polars, pandas or arrow table, or a scipy or numpy matrix"
        raise InvalidInput(expected, type(table).__name__, "Convert it first")
    return [str(name) for name in names]


def select_columns(table: Any, needed: Sequence[str]) -> dict[str, pl.Series]:
    """Return these columns of a table. Python objects that polars would convert stay objects."""
    if isinstance(table, pl.LazyFrame):
        table = table.select(list(dict.fromkeys(needed))).collect()
    if isinstance(table, pl.DataFrame):
        return {name: table[name] for name in needed}
    if hasattr(table, "column_names"):
        return {name: _from_arrow(table.select([name]), name) for name in needed}
    names = column_names(table)
    return {name: _from_pandas(table.iloc[:, names.index(name)], name) for name in needed}


def _from_arrow(table: Any, name: str) -> pl.Series:
    if hasattr(table.schema.types[0], "extension_name"):  # such as UUID, which polars would read as bytes
        return to_series(name, table.column(0).to_pylist())
    return pl.DataFrame(table).to_series()


def _from_pandas(column: Any, name: str) -> pl.Series:
    array = column.to_numpy()
    if array.dtype.kind in "biufM" and not column.isna().any():
        return pl.Series(name, array)
    return to_series(name, column.astype(object).where(column.notna(), None).tolist())


def to_series(name: str, values: list[Any]) -> pl.Series:
    """Return Python values as a series that returns the same values."""
    types = {type(value).__name__ for value in values if value is not None}
    exceeds_int64 = types == {"int"} and not all(v is None or -(2**63) <= v < 2**63 for v in values)
    return pl.Series(name, values, dtype=pl.Object if len(types) > 1 or types - NATIVE_TYPE_NAMES or exceeds_int64 else None)
