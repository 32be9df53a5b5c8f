"""How text files are written: encoding, separator and header, detected where they are certain."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from gramian.data.sources import Source
from gramian.errors import InvalidInput

HEAD_BYTES = 2**18  # what the separator and the header are looked for in
SAMPLE_ROWS = 50  # what the separator is looked for in
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
BYTE_ORDER_MARKS = {  # UTF-32 first: its mark begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class TextFormat:
    """How text files are written; None is detected.

    Parameters
    ----------
    separator
        The character between two fields.
    encoding
        A codec of Python, such as "latin-1".
    columns
        The names of the columns of files that have no header line.
    """

    separator: str | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        is_character = isinstance(self.separator, str) and len(self.separator) == 1 and self.separator.isascii()
        if self.separator is not None and (not is_character or self.separator in '"\n\r\0'):
            raise InvalidInput("one ASCII character as separator", repr(self.separator), "Pass ',' ';' '|' or a tab")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, TypeError, ValueError):
                do = "Pass 'utf-8', 'latin-1', 'cp1252' or 'utf-16', say"
                raise InvalidInput("an encoding that Python knows", repr(self.encoding), do) from None


def decode_chunks(source: Source, encoding: str | None) -> tuple[Iterator[bytes], str]:
    """Return the bytes in UTF-8 without a byte order mark, and the encoding that was passed or detected."""
    chunks = source.chunks()
    start = next(chunks, b"")
    mark = next((mark for mark in BYTE_ORDER_MARKS if start.startswith(mark)), b"")
    encoding = encoding or BYTE_ORDER_MARKS.get(mark, "utf-8")
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
        return chain([start.removeprefix(codecs.BOM_UTF8)], chunks), encoding
    if encoding == "utf-16" and mark not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        do = "Pass encoding='utf-16-le' or 'utf-16-be'"
        raise InvalidInput(f"a byte order mark at the start of {source.name}", "none", do)
    return _transcode(source, chain([start], chunks), encoding), encoding


def _transcode(source: Source, chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in chunks:
            if text := decoder.decode(chunk):
                yield text.removeprefix("\ufeff").encode()
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise InvalidInput(f"{encoding} in {source.name}", str(error), "Pass the encoding it was written in") from None


def find_separator(source: Source, head: bytes, form: TextFormat) -> tuple[str, int, bytes]:
    """Return the separator, the number of lines before the table, and the head without them.

    The separator is certain if Excel's line `sep=;` names it, or if it is the only one that gives every row of the head the
    same number of fields, more than one.
    """
    first_line = head.partition(b"\n")[0]
    if named := re.fullmatch(rb"sep=([ !#-~\t])\r?", first_line[:8]):
        return form.separator or named[1].decode(), 1, head[len(first_line) + 1 :]
    if form.separator is not None:
        return form.separator, 0, head
    sample = head[:HEAD_BYTES].lstrip(b"\r\n")
    if not sample:
        raise InvalidInput(f"a table in {source.name}", "an empty file", "Check the file")
    first_line = sample.partition(b"\n")[0].rstrip(b"\r")
    widths = {separator: _row_widths(sample, separator, is_cut=len(head) > HEAD_BYTES) for separator in SEPARATORS}
    candidates = [separator for separator, counts in widths.items() if len(counts) == 1 and counts != {1}]
    candidates = candidates or [separator for separator in SEPARATORS if separator.encode() in first_line]
    if len(candidates) != 1:
        got = f"{first_line[:60].decode('utf-8', 'replace')!r} in {source.name}"
        if not candidates:
            raise InvalidInput("at least two columns, of users and of items", got, "Pass separator='...' if there are more")
        names = " or ".join(SEPARATORS[separator] for separator in candidates)
        raise InvalidInput("one separator that fits every row", f"{got}, where {names} may be it", "Pass separator=';', say")
    return candidates[0], 0, head


def _row_widths(sample: bytes, separator: str, is_cut: bool) -> set[int]:
    """Return the numbers of fields of the first rows, blank lines and a cut last line excluded."""
    rows = csv.reader(io.StringIO(sample.decode("utf-8", "replace"), newline=""), delimiter=separator)
    try:
        widths = [len(row) for row in islice(rows, SAMPLE_ROWS) if row]
    except csv.Error:
        return set()
    return set(widths[:-1] if is_cut and len(widths) < SAMPLE_ROWS else widths)


def find_header(source: Source, head: bytes, separator: str, columns: tuple[str, ...] | None) -> tuple[list[str], int, bytes]:
    """Return the names of the columns, the number of lines of the header, and the head without the header."""
    if columns is not None:
        return list(columns), 0, head
    reader = csv.reader(io.StringIO(head[:HEAD_BYTES].decode("utf-8", "replace"), newline=""), delimiter=separator)
    try:
        names = next((row for row in reader if any(name.strip() for name in row)), [])
    except csv.Error as error:
        raise InvalidInput(f"a header line in {source.name}", str(error), "Repair the first lines") from None
    if not names:
        raise InvalidInput(f"a header line in {source.name}", "an empty file", "Check the file")
    end = 0
    for _ in range(reader.line_num):
        end = head.find(b"\n", end) + 1 or len(head)
    if b"\r" in head[:end].replace(b"\r\n", b"").rstrip(b"\r") or (end > HEAD_BYTES):
        got = f"other line ends, or a line of more than {HEAD_BYTES:,} bytes, in {source.name}"
        raise InvalidInput("a header line that ends in a line feed", got, "Convert the line ends")
    if "\0" in "".join(names):
        do = "Pass encoding='utf-16-le' or 'utf-16-be' if it is UTF-16"
        raise InvalidInput(f"text in {source.name}", "null bytes in its first line", do)
    return [name.strip() for name in names], reader.line_num, head[end:]
