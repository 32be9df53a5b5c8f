"""Tables of any kind, polars, pandas or arrow, become polars columns; each column is checked for its role."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from gramian.errors import InvalidInput
from gramian.store import appearing

USER_NAMES = ("user_id", "user", "userId", "uid")  # tried in this order when no column is named
ITEM_NAMES = ("item_id", "item", "itemId", "iid")
NATIVE = {"str", "int", "float", "bool", "bytes", "date", "datetime"}  # Python types that polars gives back as they went in


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what."""

    user: str
    item: str
    value: str | None
    threshold: float | None
    time: str | None
    title: str | None
    tags: str | None = None

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
    ) -> Columns:
        threshold = None
        if min_value is not None:
            if value is not None:
                raise InvalidInput("value or min_value", "both", "Keep values as weights, or threshold them")
            if not (isinstance(min_value, tuple) and len(min_value) == 2 and is_number(min_value[1])):
                raise InvalidInput("min_value=(column, number)", repr(min_value), 'Pass min_value=("rating", 4)')
            value, threshold = min_value
        found = Columns(
            user or next((n for n in USER_NAMES if n in names), USER_NAMES[0]),
            item or next((n for n in ITEM_NAMES if n in names), ITEM_NAMES[0]),
            value,
            threshold,
            time,
            title,
            tags,
        )
        for name in found.needed:
            if names.count(name) != 1:
                got = f"columns {', '.join(names)}" if name not in names else f"{names.count(name)} of that name"
                raise InvalidInput(f"a column named {name!r}", got, "Name yours: user=..., item=...")
        return found

    @property
    def needed(self) -> list[str]:
        every = (self.user, self.item, self.value, self.time, self.title, self.tags)
        return [name for name in every if name is not None]


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that a float can hold."""
    try:
        return isinstance(value, int | float | np.number) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False


def names_of(table: Any) -> list[str]:
    """The column names of a table."""
    if isinstance(table, pl.LazyFrame):
        return table.collect_schema().names()
    names = getattr(table, "column_names", None)  # arrow
    names = getattr(table, "columns", None) if names is None else names  # polars, pandas
    if names is None:
        kinds = "a polars, pandas or arrow table, or a scipy or numpy matrix"
        raise InvalidInput(kinds, type(table).__name__, "Convert it first")
    return [str(name) for name in names]


def columns_of(table: Any, needed: Sequence[str]) -> dict[str, pl.Series]:
    """These columns of a table. Python objects that polars would change stay objects."""
    if isinstance(table, pl.LazyFrame):
        table = table.select(list(dict.fromkeys(needed))).collect()
    if isinstance(table, pl.DataFrame):
        return {name: table[name] for name in needed}
    if hasattr(table, "column_names"):
        return {name: from_arrow(table.select([name]), name) for name in needed}
    names = names_of(table)
    return {name: from_pandas(table.iloc[:, names.index(name)], name) for name in needed}


def from_arrow(table: Any, name: str) -> pl.Series:
    if hasattr(table.schema.types[0], "extension_name"):  # such as UUID, which polars would read as bytes
        return series(name, table.column(0).to_pylist())
    return pl.DataFrame(table).to_series()


def from_pandas(column: Any, name: str) -> pl.Series:
    array = column.to_numpy()
    if array.dtype.kind in "biufM" and not column.isna().any():
        return pl.Series(name, array)
    return series(name, column.astype(object).where(column.notna(), None).tolist())


def series(name: str, values: list[Any]) -> pl.Series:
    """Python values as a column that gives the same values back."""
    kinds = {type(value).__name__ for value in values if value is not None}
    big = kinds == {"int"} and not all(v is None or -(2**63) <= v < 2**63 for v in values)
    return pl.Series(name, values, dtype=pl.Object if len(kinds) > 1 or kinds - NATIVE or big else None)


def write_parquet(path: str | Path, tables: Iterator[pl.DataFrame]) -> None:
    """Stream tables of one schema, at least one, into a parquet file that appears only when it is whole."""
    first = next(tables)

    def source(columns: Any, predicate: Any, n_rows: Any, batch: Any) -> Iterator[pl.DataFrame]:
        yield from chain([first], tables)

    whole = Path(path)
    try:
        with appearing(whole) as part:
            register_io_source(source, schema=first.schema).sink_parquet(part)
    except pl.exceptions.ComputeError as error:  # a full disk, say
        raise OSError(f"{whole} could not be written: {error}") from None
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            time.sleep(0)  # polars has told of Ctrl-C before Python did: let Python's own come, or it comes below
        raise


def parquet_path(path: str | Path) -> Path:
    """Where a parquet file can be written."""
    found = Path(path)
    if found.suffix != ".parquet" or found.is_dir() or not found.absolute().parent.is_dir():
        raise InvalidInput("a name ending in .parquet in a folder that is there", repr(str(path)), "Choose another name")
    return found


def numbers(column: pl.Series) -> pl.Series:
    """The column, if every value in it is a finite number."""
    column = _inferred(column)
    if not column.dtype.is_numeric():
        raise InvalidInput(f"numbers in {column.name!r}", f"{column.dtype}", "Name a numeric column")
    bad = column.is_null() | ~column.cast(pl.Float64).is_finite().fill_null(False)
    if bad.any():
        raise InvalidInput(f"finite numbers in {column.name!r}", f"{column.filter(bad)[0]}", "Drop or fill such rows first")
    return column


def weights(column: pl.Series) -> pl.Series:
    """The column, if every value in it is a weight that float32 can hold."""
    column = numbers(column).cast(pl.Float64)
    tiny, huge = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    bad = (column < tiny) | (column > huge)
    if bad.any():
        do = f"Rescale them, or use min_value=({column.name!r}, threshold)"
        raise InvalidInput(f"weights above 0 and below 3e38 in {column.name!r}", f"{column.filter(bad)[0]}", do)
    return column


def times(column: pl.Series) -> pl.Series:
    """Times as integers, floats or datetimes in microseconds (UTC where they have a zone): anything with an order."""
    column, do = _inferred(column), "Drop or fill such rows first"
    if column.null_count():
        raise InvalidInput(f"a time in every row of {column.name!r}", f"{column.null_count()} nulls", do)
    if column.dtype == pl.String:
        try:
            column = column.str.to_datetime(time_unit="us")
        except pl.exceptions.PolarsError:
            raise InvalidInput(f"times in {column.name!r}", repr(column[0]), "Write them as numbers or ISO dates") from None
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.cast(pl.Datetime("us")) if column.dtype in (pl.Date, pl.Datetime) else numbers(column)


def _inferred(column: pl.Series) -> pl.Series:
    """Python objects as the polars type they fit, where they fit one."""
    if column.dtype != pl.Object:
        return column
    try:
        return pl.Series(column.name, column.to_list())
    except (TypeError, pl.exceptions.PolarsError):
        return column
