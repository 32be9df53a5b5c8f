"""Columns of numbers, and text that is the text of numbers."""

from __future__ import annotations

import numpy as np
import polars as pl

from gramian.errors import InvalidInput

DECIMAL_COMMA = r"^[+-]?\d+(,\d+)?$"
THOUSANDS_OR_DECIMAL = r"^[+-]?[1-9]\d{0,2},\d{3}$"  # 1,500 is 1500 to some and 1.5 to others


def infer_type(column: pl.Series) -> pl.Series:
    """Return Python objects as the polars type that fits them, where one does."""
    if column.dtype != pl.Object:
        return column
    try:
        return pl.Series(column.name, column.to_list())
    except (TypeError, pl.exceptions.PolarsError):
        return column


def parse_integers(column: pl.Series) -> pl.Series:
    """Return integers where every value is the text of one, else the column as it is."""
    numbers = column.cast(pl.Int64, strict=False)
    return numbers if numbers.cast(pl.String).eq_missing(column).all() else column


def parse_floats(column: pl.Series) -> pl.Series:
    """Return numbers where every value is the text of one, else the column as it is."""
    if column.dtype != pl.String:
        return column
    numbers = column.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == column.null_count() else column


def parse_decimal_commas(column: pl.Series) -> pl.Series:
    """Return numbers where every value is written like 4,5; refuse a column that may have thousands instead, as in 1,500."""
    if column.dtype != pl.String or not column.str.contains(DECIMAL_COMMA).all():
        return column
    with_comma = column.filter(column.str.contains(",", literal=True))
    if with_comma.len() and with_comma.str.contains(THOUSANDS_OR_DECIMAL).all():
        got = f"{with_comma[0]!r}, which is {with_comma[0].replace(',', '')} or {with_comma[0].replace(',', '.')}"
        raise InvalidInput(
            f"numbers of one reading in {column.name!r}", got, "Write them with a point and without thousands marks"
        )
    return column.str.replace(",", ".", literal=True).cast(pl.Float64)


def require_finite_numbers(column: pl.Series, rows: pl.Series | None = None) -> pl.Series:
    """Return the column if every value in it is a finite number; `rows` are the row numbers that an error names."""
    column = infer_type(column)
    if not column.dtype.is_numeric():
        got = f"{column.dtype}"
        if column.dtype == pl.String:
            invalid = column.cast(pl.Float64, strict=False).is_null() & column.is_not_null()
            got = f"{column.filter(invalid)[0]!r}{_in_row(invalid, rows)}" if invalid.any() else "text"
        raise InvalidInput(f"numbers in {column.name!r}", got, "Name a numeric column")
    invalid = column.is_null() | ~column.cast(pl.Float64).is_finite().fill_null(False)
    if invalid.any():
        first = column.filter(invalid)[0]
        do = "Pass skip_nulls=True to drop such rows" if first is None else "Drop or fill such rows first"
        got = f"{column.null_count():,} nulls" if first is None else f"{first}{_in_row(invalid, rows)}"
        raise InvalidInput(f"finite numbers in {column.name!r}", got, do)
    return column


def require_weights(column: pl.Series, rows: pl.Series | None = None, signed: bool = False) -> pl.Series:
    """Return the column as float64 if every value in it is a positive weight that float32 can hold, or a negative one."""
    column = require_finite_numbers(column, rows).cast(pl.Float64)
    tiny, huge = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    sizes = column.abs() if signed else column
    invalid = (sizes < tiny) | (sizes > huge)
    if invalid.any():
        got = f"{column.filter(invalid)[0]}{_in_row(invalid, rows)}"
        if signed:
            raise InvalidInput(f"weights between −3e38 and 3e38 and not 0 in {column.name!r}", got, "Rescale or drop them")
        do = f"Rescale them, use min_value=({column.name!r}, threshold), or pass signed=True if negative values are dislikes"
        raise InvalidInput(f"weights above 0 and below 3e38 in {column.name!r}", got, do)
    return column


def _in_row(mask: pl.Series, rows: pl.Series | None) -> str:
    return "" if rows is None else f" in row {rows.filter(mask)[0]}"
