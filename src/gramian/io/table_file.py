"""Streaming tables into parquet, csv or json lines, by the suffix of the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import polars as pl

from gramian.errors import InvalidInput
from gramian.io.atomic import atomic_file
from gramian.io.parquet import write_parquet

TableWriter = Callable[[pl.DataFrame, IO[bytes], bool], None]  # of a table to an open file; is it the first table?
TEXT_WRITERS: dict[str, TableWriter] = {
    ".csv": lambda table, file, is_first: table.write_csv(file, include_header=is_first),
    ".jsonl": lambda table, file, is_first: table.write_ndjson(file),
}


def write_table(path: Path, tables: Iterator[pl.DataFrame]) -> None:
    """Stream at least one table of one schema into a file that appears only when it is complete."""
    if path.suffix not in TEXT_WRITERS:
        write_parquet(path, tables)
        return
    write = TEXT_WRITERS[path.suffix]
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        for number, table in enumerate(tables):
            write(table, file, number == 0)


def require_table_path(path: str | Path) -> Path:
    """Return the path if a table can be written there."""
    file, suffixes = Path(path), (".parquet", *TEXT_WRITERS)
    if file.suffix not in suffixes or os.path.isdir(file) or not os.path.isdir(file.absolute().parent):
        expected = f"a name ending in {' or '.join(suffixes)} in an existing folder"
        raise InvalidInput(expected, repr(str(path)), "Choose another name")
    return file
