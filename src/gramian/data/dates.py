"""Times of events: numbers, dates and date-times, and unambiguous text.

Text is parsed only if it is unambiguous: ISO 8601 and other dates with the year first, dates with the month as an
English word, and numbers of seconds or milliseconds since 1970. Times with `Z` or `+02:00` are converted to UTC; times without
a zone are taken as UTC. In `08/05/2011` the order of day and month is ambiguous: another row of the column, such as
`13/05/2011`, or `time_format` must decide it.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl

from gramian.data.numbers import infer_type, parse_floats, parse_integers, require_finite_numbers
from gramian.errors import InvalidInput
from gramian.validation import is_number

CLOCK = (
    r"(?:[T, ]+(?<hour>\d{1,2}):(?<minute>\d{2})(?::(?<second>\d{2})(?:[.,](?<fraction>\d{1,9}))?)?"
    r"\s*(?<half>[AaPp][Mm])?\s*(?<zone>Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH_NAME = (
    r"(?<month>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))"
)
WEEKDAY = r"(?:(?i:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"
YEAR_FIRST = r"(?<year>\d{4})[-/.](?<month>\d{1,2})[-/.](?<day>\d{1,2})"
DAY_FIRST = rf"{WEEKDAY}(?<day>\d{{1,2}})[-/. ]{MONTH_NAME}\.?[-/, ]+(?<year>\d{{4}})"
MONTH_NAME_FIRST = rf"{WEEKDAY}{MONTH_NAME}\.?[-/ ](?<day>\d{{1,2}}),?[-/ ]+(?<year>\d{{4}})"
NUMBERS_ONLY = r"(?<first>\d{1,2})(?<mark>[-/.])(?<next>\d{1,2})[-/.](?<year>\d{4})"  # day and month in either order
SECONDS, MILLISECONDS = (300_000_000, 4_102_444_800), (300_000_000_000, 4_102_444_800_000)  # epochs from 1979 to 2100


def parse_times(column: pl.Series, time_format: str | None = None, rows: pl.Series | None = None) -> pl.Series:
    """Return times as integers, floats or datetimes in microseconds, in UTC.

    Parameters
    ----------
    column
        Numbers, dates, date-times or text.
    time_format
        How the text is written, as in `datetime.strptime`: "%d/%m/%Y".
    rows
        The row numbers that an error message names; 1, 2, ... by default.
    """
    column = infer_type(column)
    rows = pl.int_range(1, len(column) + 1, dtype=pl.UInt32, eager=True) if rows is None else rows
    if column.null_count():
        do = "Pass skip_nulls=True to drop such rows"
        raise InvalidInput(f"a time in every row of {column.name!r}", f"{column.null_count()} nulls", do)
    if time_format is not None and (column.dtype == pl.String or column.dtype.is_integer()):
        column = parse_with_format(column.cast(pl.String), time_format, rows)
    elif column.dtype == pl.String:
        column = parse_text_times(column, rows)
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if column.dtype in (pl.Date, pl.Datetime):
        return column.cast(pl.Datetime("us"))
    return _unify_epochs(require_finite_numbers(column, rows))


def parse_with_format(column: pl.Series, time_format: str, rows: pl.Series) -> pl.Series:
    """Parse text by a format of `strptime`; a format without a time of day gives midnight."""
    has_clock = any(directive in time_format for directive in ("%H", "%I", "%T", "%R", "%X", "%c", "%s"))
    text, pattern = (column, time_format) if has_clock else (column + " 00:00", time_format + " %H:%M")
    try:
        times = text.str.to_datetime(pattern, time_unit="us", strict=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        do = "Pass the format of datetime.strptime, such as time_format='%d/%m/%Y'"
        raise InvalidInput("a time_format such as '%d/%m/%Y'", f"{time_format!r}: {reason}", do) from None
    _require_parsed(column, times, rows, f"times written as {time_format}", "Pass the time_format that fits every row")
    return times


def parse_text_times(column: pl.Series, rows: pl.Series) -> pl.Series:
    """Parse text that has one reading only; numbers stay numbers unless dates stand beside them."""
    numbers = parse_floats(parse_integers(column))
    if numbers.dtype != pl.String:
        return numbers
    text = column.str.strip_chars()
    times = np.full(len(text), "NaT", "datetime64[us]")
    for pattern in (YEAR_FIRST, DAY_FIRST, MONTH_NAME_FIRST):
        matches = text.str.contains(f"^{pattern}{CLOCK}$")
        if matches.any():
            times[matches.to_numpy()] = _assemble(text.filter(matches).str.extract_groups(f"^{pattern}{CLOCK}$"))
    matches = text.str.contains(f"^{NUMBERS_ONLY}{CLOCK}$")
    if matches.any():
        times[matches.to_numpy()] = _order_day_and_month(text.filter(matches), rows.filter(matches))
    epochs = text.cast(pl.Float64, strict=False)
    matches = _is_between(epochs, SECONDS) | _is_between(epochs, MILLISECONDS)
    times[matches.to_numpy()] = _epoch_to_datetime(epochs.filter(matches)).to_numpy()
    parsed = pl.Series(column.name, times)
    do = "Write them as ISO dates (2011-05-08T10:30:00Z) or as numbers, or pass time_format='%d/%m/%Y', say"
    _require_parsed(column, parsed, rows, "dates or numbers", do)
    return parsed


def parse_cutoff(cutoff: Any, times: np.ndarray) -> Any:
    """Return a cutoff time in the type of the times."""
    try:
        if times.dtype.kind != "M" and is_number(cutoff):
            return cutoff
        if times.dtype.kind == "M" and not is_number(cutoff):
            is_aware = isinstance(cutoff, dt.datetime) and cutoff.tzinfo is not None
            return np.datetime64(cutoff.astimezone(dt.UTC).replace(tzinfo=None) if is_aware else cutoff).astype(times.dtype)
    except (TypeError, ValueError):
        pass
    raise InvalidInput(f"a time comparable with {times.dtype}", repr(cutoff), "Pass it in the type of the times")


def _assemble(groups: pl.Series) -> np.ndarray:
    """Return datetimes in UTC from text fields; NaT where the calendar or the clock has no such time."""
    fields = groups.struct.unnest()
    month, half, zone = pl.col("month"), pl.col("half").str.to_lowercase(), pl.col("zone")
    names = {name: str(number) for number, name in enumerate(MONTHS, 1)}
    hour = pl.col("hour").fill_null("0").cast(pl.Int32)
    is_valid_hour = half.is_null() | hour.is_between(1, 12)
    hour = pl.when(half.is_null()).then(hour).otherwise(hour % 12 + 12 * (half == "pm").cast(pl.Int32))
    digits = zone.str.replace_all(":", "")
    hours, minutes = digits.str.slice(1, 2), digits.str.slice(3, 2)
    is_offset = zone.str.contains(r"^[+-]").fill_null(False)
    offset = 60 * hours.cast(pl.Int32, strict=False) + minutes.cast(pl.Int32, strict=False).fill_null(0)
    sign = pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)
    written = pl.format(
        "{}-{}-{}T{}:{}:{}.{}",
        pl.col("year"),
        month.str.to_lowercase().str.head(3).replace(names).str.zfill(2),
        pl.col("day").str.zfill(2),
        hour.cast(pl.String).str.zfill(2),
        pl.col("minute").fill_null("00"),
        pl.col("second").fill_null("00"),
        pl.col("fraction").fill_null("0").str.pad_end(6, "0").str.head(6),
    )
    local = written.str.to_datetime("%Y-%m-%dT%H:%M:%S%.6f", time_unit="us", strict=False)
    shift = pl.duration(minutes=pl.when(is_offset).then(sign * offset).otherwise(0))
    in_utc = fields.select(pl.when(is_valid_hour).then(local - shift).alias("time"))["time"]
    return in_utc.to_numpy()


def _order_day_and_month(text: pl.Series, rows: pl.Series) -> np.ndarray:
    """Parse dates such as 13/05/2011 in the order that all rows allow; refuse them if both orders or none fit."""
    groups = text.str.extract_groups(f"^{NUMBERS_ONLY}{CLOCK}$").struct.unnest()
    first, following = groups["first"].cast(pl.Int32), groups["next"].cast(pl.Int32)
    only_day_first, only_month_first = first > 12, following > 12
    if only_day_first.any() and only_month_first.any():
        examples = [f"{text.filter(mask)[0]!r} in row {rows.filter(mask)[0]}" for mask in (only_day_first, only_month_first)]
        do = "Write all of them in one order, best as ISO dates"
        raise InvalidInput(f"dates of one order of day and month in {text.name!r}", " and ".join(examples), do)
    differs = first != following
    if differs.any() and not only_day_first.any() and not only_month_first.any():
        _refuse_ambiguous(text, rows, groups, differs)
    day, month = ("next", "first") if only_month_first.any() else ("first", "next")
    return _assemble(groups.rename({day: "day", month: "month"}).to_struct("groups"))


def _refuse_ambiguous(text: pl.Series, rows: pl.Series, groups: pl.DataFrame, differs: pl.Series) -> None:
    example, row = text.filter(differs)[0], rows.filter(differs)[0]
    fields = groups.filter(differs).row(0, named=True)
    first, following, year = int(fields["first"]), int(fields["next"]), int(fields["year"])
    readings = [f"{dt.date(year, m, d):%B} {d}" for d, m in ((first, following), (following, first))]
    clock = "" if fields["hour"] is None else " %H:%M" if fields["half"] is None else " %I:%M"
    clock += (":%S" if fields["second"] else "") + (" %p" if fields["half"] else "")
    formats = [f"'{fields['mark'].join(order)}{clock}'" for order in (("%d", "%m", "%Y"), ("%m", "%d", "%Y"))]
    raise InvalidInput(
        f"dates in {text.name!r} whose order of day and month is certain",
        f"{example!r} in row {row}, which is {readings[0]} or {readings[1]}, {year}",
        f"Pass time_format={formats[0]} or time_format={formats[1]}",
    )


def _unify_epochs(column: pl.Series) -> pl.Series:
    """Return datetimes if seconds and milliseconds since 1970 are mixed; other numbers are returned as they are."""
    seconds, milliseconds = _is_between(column, SECONDS), _is_between(column, MILLISECONDS)
    is_mixed = seconds.any() and milliseconds.any() and (seconds | milliseconds).all()
    return _epoch_to_datetime(column.cast(pl.Float64)) if is_mixed else column


def _epoch_to_datetime(numbers: pl.Series) -> pl.Series:
    """Return datetimes from float seconds and milliseconds since 1970."""
    microseconds = pl.when(_is_between(numbers, SECONDS)).then(numbers * 1e6).otherwise(numbers * 1e3)
    return pl.select(microseconds.round().cast(pl.Int64).cast(pl.Datetime("us")).alias(numbers.name)).to_series()


def _is_between(numbers: pl.Series, limits: tuple[int, int]) -> pl.Series:
    return numbers.cast(pl.Float64).is_between(*limits).fill_null(False)


def _require_parsed(column: pl.Series, times: pl.Series, rows: pl.Series, expected: str, do: str) -> None:
    failed = times.is_null()
    if failed.any():
        got = f"{column.filter(failed)[0]!r} in row {rows.filter(failed)[0]}"
        raise InvalidInput(f"{expected} in {column.name!r}", got, do)
