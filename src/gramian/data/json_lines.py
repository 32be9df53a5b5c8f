"""Read JSON lines, and refuse ids that Polars would merge."""

from __future__ import annotations

import io
from glob import escape
from pathlib import Path

import polars as pl

from gramian.data.sources import Source
from gramian.data.tables import Columns
from gramian.data.text_format import decode_chunks
from gramian.errors import InvalidInput

EXACT_FLOATS = 2**53  # beyond it, two integers may be the same float
OTHER_TYPES = {pl.Float64(): "numbers", pl.Boolean(): "true or false"}  # Polars reads them as text if text stands beside them


def scan_json_lines(sources: list[Source], encoding: str | None) -> pl.LazyFrame:
    """Scan JSON lines; the type of a column is that of all its rows."""
    return pl.scan_ndjson(_as_polars_sources(sources, encoding), infer_schema_length=None)  # type: ignore[arg-type]


def count_json_lines(sources: list[Source], encoding: str | None) -> int:
    """Count the lines that are not blank."""
    is_blank = pl.col("line").str.strip_chars().eq("")
    inputs = _as_polars_sources(sources, encoding)
    return int(pl.scan_lines(inputs, name="line").filter(~is_blank).select(pl.len()).collect().item())  # type: ignore[arg-type]


def refuse_merged_ids(sources: list[Source], encoding: str | None, schema: pl.Schema, columns: Columns) -> None:
    """Refuse an id column that Polars reads as one type although its values are of several, such as 1 and "1"."""
    for name in (columns.user, columns.item):
        if schema[name] == pl.String:
            for dtype, words in OTHER_TYPES.items():
                if _scan_as(sources, encoding, name, dtype).select(pl.col(name).count()).collect().item():
                    raise InvalidInput(f"ids of one type in {name!r}", f"text and {words}", "Write them all as text")
        if schema[name] == pl.Float64:
            largest = _scan_as(sources, encoding, name, pl.Float64()).select(pl.col(name).abs().max()).collect().item()
            if largest is not None and largest >= EXACT_FLOATS:
                do = "Write ids as text or as integers only"
                raise InvalidInput(f"ids that a float can tell apart in {name!r}", f"{largest:.0f} among floats", do)


def _scan_as(sources: list[Source], encoding: str | None, name: str, dtype: pl.DataType) -> pl.LazyFrame:
    """Scan one column as this type; values of other types are null."""
    inputs = _as_polars_sources(sources, encoding)
    return pl.scan_ndjson(inputs, schema={name: dtype}, ignore_errors=True)  # type: ignore[arg-type]


def _as_polars_sources(sources: list[Source], encoding: str | None) -> list[str] | list[Path] | list[io.BytesIO]:
    """Return what Polars scans: paths and addresses as they are, and bytes in memory if they must be decoded."""
    if encoding is None and not any(source.content is not None or _has_mark(source) for source in sources):
        return [source.name if source.is_remote else escape(source.name) for source in sources]
    return [io.BytesIO(b"".join(decode_chunks(source, encoding)[0])) for source in sources]


def _has_mark(source: Source) -> bool:
    """Whether a local file begins with a byte order mark."""
    return not source.is_remote and next(source.chunks(), b"")[:2] in (b"\xef\xbb", b"\xff\xfe", b"\xfe\xff")
