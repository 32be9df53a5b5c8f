"""Read csv and tsv text: detect what is certain, refuse what is not, and lose no row.

A file is read in blocks of whole records. `csv_records` counts the records of each block and checks their form; Polars then
parses the columns that are needed, and must return as many rows. Blocks with a stray quote, as in `3" reel`, which Polars
misreads, go through Python's csv module.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from gramian.data import csv_records
from gramian.data.csv_records import Records, scan_records
from gramian.data.numbers import parse_decimal_commas, parse_floats, parse_integers
from gramian.data.sources import Source
from gramian.data.tables import Columns
from gramian.data.text_format import SEPARATORS, TextFormat, decode_chunks, find_header, find_separator
from gramian.errors import InvalidInput

PROBLEMS = {
    csv_records.NULL_BYTE: ("text", "a null byte", "Pass encoding='utf-16' if that is its encoding, or repair the file"),
    csv_records.LONE_RETURN: ("lines that end in a line feed", "a lone carriage return", "Convert the line ends"),
    csv_records.TEXT_AFTER_QUOTE: (
        "a separator or a line end after a closing quote",
        "other text",
        'Write a quote within a quoted field as "", as RFC 4180 says',
    ),
    csv_records.SWALLOWED_ROWS: (
        "a closing quote in the same row",
        "a quoted field that holds whole rows",
        'Close the quote, or put a field that begins with a quote into quotes, as in """Heroes"""',
    ),
}
ROW = "\0row"  # the column of row numbers: no header has this name, because null bytes are refused


@dataclass
class TextTable:
    """The needed columns of text files, filled file by file.

    Parameters
    ----------
    form
        How the files are written.
    choose
        Returns the roles of the columns, from the names of all columns.
    names, columns
        The names of all columns, and the roles of those that are needed.
    frames
        The needed columns of each block, and the row numbers: counted from 1 over all files, without headers and blank lines.
    n_rows, n_below, n_headers
        As in `ReadSummary`.
    notes
        What was detected.
    """

    form: TextFormat
    choose: Callable[[list[str]], Columns]
    names: list[str] = field(default_factory=list)
    columns: Columns | None = None
    frames: list[pl.DataFrame] = field(default_factory=list)
    n_rows: int = 0
    n_below: int = 0
    n_headers: int = 0
    notes: list[str] = field(default_factory=list)

    def add_file(self, source: Source) -> None:
        """Read a file and add its events."""
        chunks, encoding = decode_chunks(source, self.form.encoding)
        if encoding not in ("utf-8", "utf-8-sig") and self.form.encoding is None:
            self._note(f"encoded in {encoding.upper()}")
        head = next(chunks, b"")
        separator, skipped_lines, head = find_separator(source, head, self.form)
        if self.form.separator is None and separator != ("\t" if source.format == ".tsv" else ","):
            self._note(f"separated by {SEPARATORS.get(separator, repr(separator))}")
        names, header_lines, head = find_header(source, head, separator, self.form.columns)
        if self.columns is None:
            self.names, self.columns = names, self.choose(names)
        elif names != self.names:
            expected = f"columns {', '.join(self.names)} in every file"
            raise InvalidInput(
                expected, f"{', '.join(names)} in {source.name}", "Read files of one kind, or rename the columns"
            )
        for block, records, line in split_records(
            source, head, chunks, separator, len(names), 1 + skipped_lines + header_lines
        ):
            frame = parse_block(source, block, records, line, separator, len(names), self._positions())
            self._add_events(frame, records, separator)

    def series(self) -> dict[str, pl.Series]:
        """Return the needed columns, and the row numbers under `ROW`; integers where all of a column's text is integers."""
        return {name: _join([frame[name] for frame in self.frames]) for name in [ROW, *self._positions()]}

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def roles(self) -> Columns:
        """The roles of the columns, known from the first file on."""
        assert self.columns is not None
        return self.columns

    def _positions(self) -> dict[str, int]:
        """The positions of the needed columns."""
        return {name: self.names.index(name) for name in self.roles.needed}

    def _add_events(self, frame: pl.DataFrame, records: Records, separator: str) -> None:
        """Drop empty records, repeated headers and rows below the threshold, and give ids and values their types."""
        columns = self.roles
        is_filled = np.ones(len(frame), np.bool_)
        is_filled[records.empty] = False
        frame = frame.filter(is_filled)
        is_header = ((frame[columns.user] == columns.user) & (frame[columns.item] == columns.item)).fill_null(False)
        first = self.n_rows + self.n_headers + 1
        frame = frame.with_columns(pl.int_range(first, first + len(frame), dtype=pl.UInt32).alias(ROW)).filter(~is_header)
        self.n_rows, self.n_headers = self.n_rows + len(frame), self.n_headers + int(is_header.sum())
        typed = [parse_integers(frame[name]) for name in dict.fromkeys((columns.user, columns.item, columns.time)) if name]
        frame = frame.with_columns(typed)
        if columns.value is not None:
            values = parse_floats(frame[columns.value])
            values = parse_decimal_commas(values) if separator != "," else values
            if columns.threshold is not None and values.dtype.is_numeric():  # what is not a number stays, to be reported
                is_kept = columns.keeps(values) | values.is_null() | ~values.is_finite()
                self.n_below += len(frame) - int(is_kept.sum())
                frame, values = frame.filter(is_kept), values.filter(is_kept)
            if columns.value not in (columns.user, columns.item) and frame[columns.value].dtype == pl.String:
                frame = frame.with_columns(values)
        self.frames.append(frame)


def read_text_table(sources: list[Source], form: TextFormat, choose: Callable[[list[str]], Columns]) -> TextTable:
    """Read text files that have the same columns."""
    table = TextTable(form, choose)
    for source in sources:
        table.add_file(source)
    if not table.frames:
        raise InvalidInput("at least one row", f"none in {sources[0].name}", "Check the file")
    return table


def split_records(
    source: Source, text: bytes, chunks: Iterator[bytes], separator: str, n_fields: int, line: int
) -> Iterator[tuple[bytes, Records, int]]:
    """Yield blocks of whole records with what is known of them and the number of their first line."""
    is_end = False
    while not is_end or text:
        chunk = next(chunks, b"")
        is_end = not chunk
        text += chunk if chunk or not text or text.endswith(b"\n") else b"\n"
        records = scan_records(text, separator, n_fields)
        if records.problem:
            raise describe_problem(source, records, line, n_fields)
        if is_end and records.end < len(text):
            got = f"one that stays open on line {line + records.open_quote_line}"
            raise InvalidInput(f"quotes that are closed in {source.name}", got, "Close it, or repair the line")
        if records.count:
            yield text[: records.end], records, line
        text, line = text[records.end :], line + records.n_lines
        enough = 2 * len(text) if records.count == 0 else 0  # a long record is not scanned again and again
        while not is_end and len(text) < enough:
            chunk = next(chunks, b"")
            text, is_end = text + chunk, not chunk


def describe_problem(source: Source, records: Records, line: int, n_fields: int) -> InvalidInput:
    """Return the error for the first record that is not as it should be."""
    where = f"on line {line + records.problem_line} of {source.name}"
    if records.problem in PROBLEMS:
        expected, got, do = PROBLEMS[records.problem]
        return InvalidInput(expected, f"{got} {where}", do)
    do = "Repair the line: a separator within a field needs quotes around the field"
    return InvalidInput(f"{n_fields} fields on every line", f"{records.n_found} {where}", do)


def parse_block(
    source: Source, block: bytes, records: Records, line: int, separator: str, n_fields: int, positions: dict[str, int]
) -> pl.DataFrame:
    """Return the columns at these positions as text, a row for each record; empty fields are nulls."""
    try:
        if records.has_stray_quotes:
            rows = list(csv.reader(io.StringIO(block.decode(), newline=""), delimiter=separator))
            texts = {name: [row[k] if row else None for row in rows] for name, k in positions.items()}
            frame = pl.DataFrame(texts, schema=dict.fromkeys(texts, pl.String))
        else:
            header = separator.join(f"c{k}" for k in range(n_fields)) + "\n"
            frame = pl.read_csv(
                header.encode() + block,
                columns=[f"c{k}" for k in sorted(set(positions.values()))],
                separator=separator,
                infer_schema=False,
                truncate_ragged_lines=records.has_extra_fields,  # the scan has made sure that these are empty
            ).select(pl.col(f"c{k}").alias(name) for name, k in positions.items())
    except (UnicodeDecodeError, pl.exceptions.ComputeError, csv.Error) as error:
        raise _locate_decoding_error(source, block, line) or InvalidInput(
            f"csv text in {source.name}", str(error).splitlines()[0], f"Repair the lines from {line} on"
        ) from None
    if len(frame) != records.count:
        got = f"{len(frame)} in the lines from {line} on"
        raise InvalidInput(f"{records.count} rows of {source.name}", got, "Repair the quotes there")
    return frame.with_columns(pl.when(pl.col(name) != "").then(pl.col(name)) for name in positions)


def _locate_decoding_error(source: Source, block: bytes, line: int) -> InvalidInput | None:
    """Return the error for the first byte that is not UTF-8; None if there is none."""
    try:
        block.decode()
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        sample = block[max(start, error.start - 12) : error.start + 12].decode("latin-1").splitlines()[0]
        line += block.count(b"\n", 0, error.start)
        got = f"byte 0x{block[error.start]:02x} on line {line}, {sample!r} in Latin-1"
        do = "Pass encoding='latin-1' if that is right, or 'cp1252', say"
        return InvalidInput(f"UTF-8 in {source.name}", got, do)
    return None


def _join(blocks: list[pl.Series]) -> pl.Series:
    """Concatenate the blocks of a column: as text, where one of them is text."""
    dtypes = {block.dtype for block in blocks}
    return pl.concat(blocks if len(dtypes) == 1 else [block.cast(pl.String) for block in blocks])
