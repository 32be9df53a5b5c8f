"""Streaming tables into parquet files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from gramian.errors import InvalidInput
from gramian.io.atomic import atomic_file


def write_parquet(path: Path, tables: Iterator[pl.DataFrame]) -> None:
    """Stream at least one table of one schema into a parquet file that appears only when it is complete."""
    first = next(tables)

    def source(columns: Any, predicate: Any, n_rows: Any, batch_size: Any) -> Iterator[pl.DataFrame]:
        yield from chain([first], tables)

    try:
        with atomic_file(path) as temporary:
            register_io_source(source, schema=first.schema).sink_parquet(temporary)
    except pl.exceptions.ComputeError as error:  # such as a full disk
        raise OSError(f"{path} could not be written: {error}") from None
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            time.sleep(0)  # Polars reports Ctrl-C before Python does: wait for Python's own interrupt here
        raise


def require_parquet_path(path: str | Path) -> Path:
    """Return the path if a parquet file can be written there."""
    file = Path(path)
    if file.suffix != ".parquet" or os.path.isdir(file) or not os.path.isdir(file.absolute().parent):
        raise InvalidInput("a name ending in .parquet in an existing folder", repr(str(path)), "Choose another name")
    return file
