"""Read events from files (csv, tsv, parquet, json lines), standard input, addresses and databases."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from gramian.data.catalog import Catalog
from gramian.data.features import Features
from gramian.data.ids import factorize
from gramian.data.interactions import Interactions, interactions_from_columns
from gramian.data.json_lines import count_json_lines, refuse_merged_ids, scan_json_lines
from gramian.data.kinds import parse_kind_column
from gramian.data.sources import TEXT_FORMATS, Source, find_sources
from gramian.data.sql import read_query
from gramian.data.summary import ReadSummary
from gramian.data.tables import ITEM_NAMES, Columns, guess_name
from gramian.data.text_files import ROW, read_text_table
from gramian.data.text_format import TextFormat
from gramian.errors import GramianError, InvalidInput

T = TypeVar("T")


def read(
    source: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    min_value: tuple[str, float] | None = None,
    time: str | None = None,
    title: str | None = None,
    tags: str | None = None,
    time_format: str | None = None,
    weight: str | None = None,
    kind: str | None = None,
    kinds: Iterable[Any] | None = None,
    weights: Mapping[Any, float] | None = None,
    half_life: Any = None,
    signed: bool = False,
    max_dislike: float | None = None,
    skip_nulls: bool = False,
    tag_separator: str = "|",
    separator: str | None = None,
    encoding: str | None = None,
    columns: Sequence[str] | None = None,
    connection: Any = None,
) -> Interactions:
    """Read interactions from a source of events, one event per row.

    Parameters
    ----------
    source
        A csv, tsv, parquet or json lines file, a glob of such files, or a folder. Text files may be compressed (.gz, .zst).
        An address that Polars fetches (https://, s3:// and others). "-" for standard input. With `connection`, an SQL query.
    user, item, value, min_value, time, title, tags, time_format, weight, skip_nulls, tag_separator
        As in `Interactions.of`.
    kind, kinds, weights, half_life, signed, max_dislike
        As in `Interactions.of`.
    separator
        The character between the fields of text files. Commas, semicolons, tabs and pipes are detected where they are certain.
    encoding
        The encoding of text files, such as "latin-1". UTF-8, and UTF-16 and UTF-32 with a byte order mark, are detected.
    columns
        The names of all columns, for text files without a header line.
    connection
        Where the SQL query runs: "duckdb:///events.duckdb", an address of SQLAlchemy such as "postgresql://user@host/name",
        or an open connection of DuckDB, ADBC or SQLAlchemy.

    Returns
    -------
    Interactions
        In text files an id column of plain integers gives integer ids; any other column gives its text unchanged.
        `read_summary` says what was read and what was dropped.
    """

    def choose(names: list[str]) -> Columns:
        chosen = Columns.of(names, user, item, value, min_value, time, title, tags, kind_column)
        chosen = chosen.with_options(time_format, weight, skip_nulls, tag_separator)
        return chosen.with_signals(half_life, signed, max_dislike)

    kind_column = parse_kind_column(kind, kinds, weights)

    return read_table(source, choose, separator, encoding, columns, connection).to_interactions()


@dataclass(frozen=True)
class EventTable:
    """The columns of a source of events that have a role, as they were read.

    Parameters
    ----------
    series
        Column name → its values.
    columns
        The roles.
    rows
        The row numbers that errors name; None to count from 1.
    summary
        What was read and dropped so far.
    """

    series: dict[str, pl.Series]
    columns: Columns
    rows: pl.Series | None = None
    summary: ReadSummary | None = None

    def to_interactions(self) -> Interactions:
        """Return the interactions."""
        return interactions_from_columns(self.series, self.columns, self.rows, self.summary)


def read_table(
    source: str | Path,
    choose: Callable[[list[str]], Columns],
    separator: str | None = None,
    encoding: str | None = None,
    columns: Sequence[str] | None = None,
    connection: Any = None,
) -> EventTable:
    """Read the columns of a source of events that `choose` gives a role; the other parameters are those of `read`."""
    form = TextFormat(separator, encoding, None if columns is None else tuple(columns))
    if connection is not None:
        refuse_text_options("a connection", form)
        frame = read_query(str(source), connection)
        return EventTable(frame.to_dict(), choose(frame.columns))
    sources = find_sources(source, separator)
    suffix = sources[0].format
    if suffix in TEXT_FORMATS:
        return translate_read_errors(source, suffix, lambda: read_text(sources, form, choose))
    refuse_text_options(f"{suffix} files", form if suffix == ".parquet" else TextFormat(separator, None, form.columns))
    return translate_read_errors(source, suffix, lambda: read_typed(sources, form.encoding, choose))


def read_text(sources: list[Source], form: TextFormat, choose: Callable[[list[str]], Columns]) -> EventTable:
    """Read csv and tsv files."""
    table = read_text_table(sources, form, choose)
    values = table.series()
    summary = ReadSummary(table.n_rows, n_below=table.n_below, n_headers=table.n_headers, notes=tuple(table.notes))
    return EventTable(values, table.roles, values.pop(ROW), summary)


def read_typed(sources: list[Source], encoding: str | None, choose: Callable[[list[str]], Columns]) -> EventTable:
    """Read parquet and JSON lines, whose columns have types."""
    if sources[0].format == ".parquet":
        scan = scan_parquet(sources)
        n_rows = int(scan.select(pl.len()).collect().item())
        columns = choose(scan.collect_schema().names())
    else:
        scan, n_rows = scan_json_lines(sources, encoding), count_json_lines(sources, encoding)
        columns = choose(scan.collect_schema().names())
        refuse_merged_ids(sources, encoding, scan.collect_schema(), columns)
    numbered = scan.select(columns.distinct).with_row_index(ROW, offset=1)
    is_kept = keeps_value(columns, scan.collect_schema())
    if sources[0].format == ".parquet":
        frame = numbered.filter(is_kept).collect()
    else:
        frame = numbered.collect()
        if len(frame) != n_rows:
            raise InvalidInput(
                f"a row for each of the {n_rows:,} lines", f"{len(frame):,} rows", "Write one object on each line"
            )
        frame = frame.filter(is_kept)
    summary = ReadSummary(n_rows, n_below=n_rows - len(frame))
    return EventTable(frame.drop(ROW).to_dict(), columns, frame[ROW], summary)


def scan_parquet(sources: list[Source]) -> pl.LazyFrame:
    """Scan parquet files, addresses or bytes."""
    if sources[0].content is not None:
        return pl.scan_parquet(sources[0].content)
    return pl.scan_parquet([source.name for source in sources], glob=False)


def keeps_value(columns: Columns, schema: pl.Schema) -> pl.Expr:
    """Return whether a row is at or above the threshold; what is not a number is kept, to be reported."""
    if columns.value is None or columns.threshold is None or not schema[columns.value].is_numeric():
        return pl.lit(True)
    value = pl.col(columns.value).cast(pl.Float64)
    return columns.keeps(value) | value.is_null() | ~value.is_finite()


def refuse_text_options(context: str, form: TextFormat) -> None:
    """Refuse options of text files where they would be ignored."""
    for name in ("separator", "encoding", "columns"):
        if getattr(form, name) is not None:
            raise InvalidInput(f"no {name} with {context}", f"{name}={getattr(form, name)!r}", "Leave it out")


def translate_read_errors(source: str | Path, suffix: str, job: Callable[[], T]) -> T:
    """Run a job; errors of Polars and of the file system, and panics of Polars, become `InvalidInput`."""
    try:
        return job()
    except GramianError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, EOFError, UnicodeError, zlib.error) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    raise InvalidInput(f"a readable {suffix} file at {source}", reason, "Repair the file, or write it again")


def read_items(
    source: str | Path,
    item: str | None = None,
    title: str | None = None,
    tags: str | None = None,
    tag_separator: str = "|",
    encoding: str | None = None,
) -> Catalog:
    """Read a table with one item per row: its id, its title, and its tags if a column of tags is named.

    Parameters
    ----------
    source
        A file, glob, folder or address, as in `read`.
    item, title, tags
        Names of columns. Left out, common names of item ids are tried, and `title`.
    tag_separator, encoding
        As in `read`.

    Returns
    -------
    Catalog
    """

    def choose(names: list[str]) -> Columns:
        ids = item or guess_name(names, ITEM_NAMES)
        titles = title or (None if tags and "title" not in names else "title")
        for name in (ids, titles, tags):
            if name is not None and names.count(name) != 1:
                do = "Name the columns with item=..., title=... and tags=..."
                raise InvalidInput(f"a column named {name!r} in {source}", f"columns {', '.join(names)}", do)
        return Columns(user=ids, item=ids, value=None, threshold=None, time=None, title=titles, tags=tags)

    values, columns = read_item_columns(source, choose, encoding)
    codes, index = factorize(values[columns.item])
    catalog, rows = Catalog(index), index[codes]
    if columns.title:
        pairs = zip(rows, values[columns.title].to_list(), strict=True)
        catalog = catalog.with_titles({item_id: text for item_id, text in pairs if text is not None})
    if columns.tags:
        pairs = zip(rows, values[columns.tags].to_list(), strict=True)
        catalog = catalog.with_tags({item_id: words for item_id, words in pairs if words is not None}, tag_separator)
    return catalog


def read_item_columns(
    source: str | Path, choose: Callable[[list[str]], Columns], encoding: str | None
) -> tuple[dict[str, pl.Series], Columns]:
    """Read columns of a table of items, and return them with their roles."""
    sources = find_sources(source)

    def read_columns() -> tuple[dict[str, pl.Series], Columns]:
        if sources[0].format in TEXT_FORMATS:
            table = read_text_table(sources, TextFormat(encoding=encoding), choose)
            return table.series(), table.roles
        scan = scan_parquet(sources) if sources[0].format == ".parquet" else scan_json_lines(sources, encoding)
        columns = choose(scan.collect_schema().names())
        return scan.select(columns.distinct).collect().to_dict(), columns

    return translate_read_errors(source, sources[0].format, read_columns)


def read_features(
    source: str | Path,
    item: str | None = None,
    *,
    tags: Sequence[str] = (),
    numbers: Sequence[str] = (),
    text: Sequence[str] = (),
    vectors: Sequence[str] = (),
    tag_separator: str = "|",
    encoding: str | None = None,
) -> Features:
    """Read features of items from a table with one item per row.

    Parameters
    ----------
    source
        A file, glob, folder or address, as in `read`.
    item
        The column of item ids. Left out, common names are tried.
    tags, numbers, text, vectors, tag_separator
        Names of columns, as in `Features.of`.
    encoding
        As in `read`.

    Returns
    -------
    Features
    """

    def choose(names: list[str]) -> Columns:
        ids, others = item or guess_name(names, ITEM_NAMES), (*tags, *numbers, *text, *vectors)
        for name in (ids, *others):
            if names.count(name) != 1:
                do = "Name the columns of item ids and features"
                raise InvalidInput(f"a column named {name!r} in {source}", f"columns {', '.join(names)}", do)
        return Columns(user=ids, item=ids, value=None, threshold=None, time=None, title=None, others=others)

    values, columns = read_item_columns(source, choose, encoding)
    values.pop(ROW, None)
    return Features.of(
        pl.DataFrame(values),
        item=columns.item,
        tags=tags,
        numbers=numbers,
        text=text,
        vectors=vectors,
        tag_separator=tag_separator,
    )
