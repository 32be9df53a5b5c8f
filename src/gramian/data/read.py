"""Read event files: csv, tsv, parquet, json lines; a file, a glob or a folder, by lazy scan."""

from __future__ import annotations

from collections.abc import Callable
from glob import escape, glob, has_magic
from pathlib import Path

import polars as pl

from gramian.data.interactions import Interactions, from_columns
from gramian.data.tables import Columns
from gramian.errors import InvalidInput, MissingFile


def read(
    path: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    min_value: tuple[str, float] | None = None,
    time: str | None = None,
    title: str | None = None,
    tags: str | None = None,
) -> Interactions:
    """Interactions from files of events; the columns are as in `Interactions.of`.

    In text files an id column of plain integers gives integer ids, any other column gives its text unchanged.
    """
    paths = files(path)
    suffix = kind(paths[0])
    try:
        scan = FORMATS[suffix](paths)
        columns = Columns.of(scan.collect_schema().names(), user, item, value, min_value, time, title, tags)
        if suffix == ".jsonl":
            _refuse_mixed_ids(paths, scan, columns)
        frame = _wanted(scan, columns).collect()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidInput(f"a readable {suffix} file at {path}", reason, "Repair or drop the broken lines") from None
    table = {name: frame[name] for name in frame.columns}
    return from_columns(_typed(table, columns) if suffix in TEXT else table, columns)


def files(path: str | Path) -> list[Path]:
    """The data files behind a path, a glob or a folder, all of one format; hidden files and folders are left out."""
    if not isinstance(path, str | Path) or not str(path):
        raise InvalidInput("a path", repr(path), "Pass a file, a glob or a folder")
    root = Path(path)
    if root.is_dir():
        inside = sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file())
        found = [root / p for p in inside if not any(part.startswith((".", "_")) for part in p.parts)]
    elif root.exists():
        found = [root]
    else:
        found = sorted(Path(p) for p in glob(str(path), recursive=True) if Path(p).is_file()) if has_magic(str(path)) else []
    if not found:
        raise MissingFile(f"a file at {path}", "nothing there", "Check the path; a folder or a glob works too")
    kinds = sorted({kind(p) for p in found})
    if len(kinds) > 1:
        raise InvalidInput(f"files of one format in {path}", " and ".join(kinds), "Name one with a glob such as '*.csv'")
    return found


def kind(path: Path) -> str:
    """The format, by the file's ending."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]
    last = suffixes[-1] if suffixes else ""
    name = {".pq": ".parquet", ".ndjson": ".jsonl", ".tab": ".tsv"}.get(last, last)
    if name not in FORMATS:
        raise InvalidInput(f"one of {', '.join(FORMATS)}", path.name, "Rename or convert the file")
    return name


# Text is read as text and typed afterwards, as a whole: '007' must not become 7, nor may a word or a fraction
# far down a file fail a column that began with integers.
FORMATS: dict[str, Callable[[list[Path]], pl.LazyFrame]] = {
    ".csv": lambda paths: pl.scan_csv(paths, infer_schema=False, glob=False),
    ".tsv": lambda paths: pl.scan_csv(paths, infer_schema=False, glob=False, separator="\t"),
    ".parquet": lambda paths: pl.scan_parquet(paths, glob=False),
    ".jsonl": lambda paths: pl.scan_ndjson([escape(str(p)) for p in paths], infer_schema_length=None),
}
TEXT = (".csv", ".tsv")


def _refuse_mixed_ids(paths: list[Path], scan: pl.LazyFrame, columns: Columns) -> None:
    """Polars reads a JSON column of numbers and words as words, which would make one id of 1 and "1"."""
    for name in (columns.user, columns.item):
        if scan.collect_schema()[name] == pl.String:
            exact = [escape(str(path)) for path in paths]
            as_numbers = pl.scan_ndjson(exact, schema_overrides={name: pl.Float64}, ignore_errors=True)
            if as_numbers.select(pl.col(name).count()).collect().item():
                raise InvalidInput(f"ids of one type in {name!r}", "numbers and words", "Write them all as text")


def _wanted(scan: pl.LazyFrame, columns: Columns) -> pl.LazyFrame:
    """Only the named columns, and only the rows at or above the threshold; a value that is no number stays, to be reported."""
    events = scan.select(list(dict.fromkeys(columns.needed)))
    events = events.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
    if columns.value is None or columns.threshold is None:
        return events
    value = pl.col(columns.value)
    if events.collect_schema()[columns.value] == pl.String:
        value = value.cast(pl.Float64, strict=False)
    elif not events.collect_schema()[columns.value].is_numeric():
        return events
    return events.filter((value >= columns.threshold) | value.is_null() | ~value.is_finite())


def _typed(table: dict[str, pl.Series], columns: Columns) -> dict[str, pl.Series]:
    typed = {name: _integers(table[name]) for name in (columns.user, columns.item)}
    if columns.value is not None:
        typed[columns.value] = _floats(table[columns.value])
    if columns.time is not None:
        whole = _integers(table[columns.time])
        typed[columns.time] = _floats(whole) if whole.dtype == pl.String else whole
    return table | typed


def _integers(column: pl.Series) -> pl.Series:
    """Integers where all of the text is the text of integers."""
    numbers = column.cast(pl.Int64, strict=False)
    return numbers if numbers.cast(pl.String).eq_missing(column).all() else column


def _floats(column: pl.Series) -> pl.Series:
    """Numbers where all of the text is numbers."""
    numbers = column.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == column.null_count() else column
