"""Read event files: csv, tsv, parquet, json lines; a file, a glob or a folder, by lazy scan."""

from __future__ import annotations

from collections.abc import Callable
from glob import glob, has_magic
from pathlib import Path

import polars as pl

from gramian.data.ids import INTEGER
from gramian.data.interactions import Columns, Interactions, from_columns
from gramian.errors import InvalidInput, MissingFile

Scan = Callable[[list[Path], list[str]], pl.LazyFrame]


def read(
    path: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    min_value: tuple[str, float] | None = None,
    time: str | None = None,
    title: str | None = None,
) -> Interactions:
    """Interactions from files of events; the columns are as in `Interactions.of`.

    In text files an id column of plain integers gives integer ids, any other column gives its text unchanged.
    """
    paths = files(path)
    scan = FORMATS[kind(paths[0])]
    try:
        names = scan(paths, []).collect_schema().names()
        columns = Columns.of(names, user, item, value, min_value, time, title)
        events = scan(paths, [columns.user, columns.item]).select(list(dict.fromkeys(columns.needed)))
        if columns.value is not None and columns.threshold is not None and events.collect_schema()[columns.value].is_numeric():
            rating = pl.col(columns.value)  # null, NaN and infinite values pass here, to be reported below
            events = events.filter((rating >= columns.threshold) | rating.is_null() | ~rating.is_finite())
        frame = events.collect()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidInput(f"a readable {kind(paths[0])} file at {path}", reason, "Repair or drop the broken lines") from None
    table = {name: frame[name] for name in frame.columns}
    if scan in (FORMATS[".csv"], FORMATS[".tsv"]):
        table |= {name: _as_integers(frame[name]) for name in (columns.user, columns.item)}
    return from_columns(table, columns)


def files(path: str | Path) -> list[Path]:
    """The data files behind a path, a glob or a folder, all of one format."""
    if has_magic(str(path)):
        found = sorted(Path(p) for p in glob(str(path), recursive=True) if Path(p).is_file())
    elif Path(path).is_dir():
        inside = sorted(p for p in Path(path).rglob("*") if p.is_file())
        found = [p for p in inside if not p.name.startswith((".", "_"))]
    else:
        found = [Path(path)] if Path(path).exists() else []
    if not found:
        raise MissingFile(f"a file at {path}", "nothing there", "Check the path; a folder or a glob works too")
    kinds = sorted({kind(p) for p in found})
    if len(kinds) > 1:
        raise InvalidInput(f"files of one format in {path}", " and ".join(kinds), "Name one with a glob such as '*.csv'")
    return found


def kind(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]
    name = {".pq": ".parquet", ".ndjson": ".jsonl", ".tab": ".tsv"}.get(suffixes[-1], suffixes[-1]) if suffixes else ""
    if name not in FORMATS:
        raise InvalidInput(f"one of {', '.join(FORMATS)}", path.name, "Rename or convert the file")
    return name


def _text(separator: str) -> Scan:
    # ids as text: '007' must not become 7, and a word far down must not fail a column guessed to be integers
    def scan(paths: list[Path], ids: list[str]) -> pl.LazyFrame:
        return pl.scan_csv(
            paths, separator=separator, schema_overrides=dict.fromkeys(ids, pl.String), infer_schema_length=10_000
        )

    return scan


FORMATS: dict[str, Scan] = {
    ".csv": _text(","),
    ".tsv": _text("\t"),
    ".parquet": lambda paths, ids: pl.scan_parquet(paths),
    ".jsonl": lambda paths, ids: pl.scan_ndjson(paths, infer_schema_length=10_000),
}


def _as_integers(column: pl.Series) -> pl.Series:
    return column.cast(pl.Int64) if column.null_count() == 0 and column.str.contains(INTEGER).all() else column
