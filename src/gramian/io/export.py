"""Lists and vectors written to files for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gramian.data.catalog import Catalog
from gramian.data.tables import to_series
from gramian.errors import NotSupported
from gramian.io.atomic import atomic_file
from gramian.io.parquet import require_parquet_path
from gramian.io.table_file import require_table_path, write_table

Blocks = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]  # rows of users, their columns and scores, best first


def write_lists(path: str | Path, users: Sequence[Any], catalog: Catalog, blocks: Blocks) -> None:
    """Stream ranked lists to a .parquet, .csv or .jsonl file: user, rank, item, title where known, score."""
    file = require_table_path(path)
    user_ids, item_ids = to_series("user", list(users)), to_series("item", catalog.ids.tolist())
    _require_parquet_ids(user_ids, "Use recommend and write the lists")
    _require_parquet_ids(item_ids, "Use recommend and write the lists")
    titles = None if catalog.titles is None else pl.Series("title", catalog.titles)

    def tables() -> Iterator[pl.DataFrame]:
        for rows, columns, scores in blocks:
            row, rank = np.nonzero(columns >= 0)
            item = columns[row, rank]
            named = [item_ids.gather(item)] if titles is None else [item_ids.gather(item), titles.gather(item)]
            yield pl.DataFrame(
                [
                    user_ids.gather(rows[row]),
                    pl.Series("rank", (rank + 1).astype(np.int32)),
                    *named,
                    pl.Series("score", scores[row, rank].astype(np.float32)),
                ]
            )

    write_table(file, tables())


def write_factors(
    path: str | Path,
    key: str,
    ids: Sequence[Any],
    vectors: dict[str, np.ndarray],
    titles: Sequence[str] | None = None,
) -> None:
    """Write vectors to .parquet, with their ids in a column named `key`, or to .npy in the order of the ids."""
    file = Path(path)
    if file.suffix == ".npy":
        with atomic_file(file) as temporary, open(temporary, "wb") as out:
            arrays = list(vectors.values())
            np.save(out, np.stack(arrays) if len(arrays) > 1 else arrays[0], allow_pickle=False)
        return
    require_parquet_path(path)
    id_column = to_series(key, list(ids))
    _require_parquet_ids(id_column, "Write .npy")
    title_columns = [] if titles is None else [pl.Series("title", titles)]
    columns = [pl.Series(name, v.astype(np.float32), pl.Array(pl.Float32, v.shape[1])) for name, v in vectors.items()]
    with atomic_file(file) as temporary:
        pl.DataFrame([id_column, *title_columns, *columns]).write_parquet(temporary)


def _require_parquet_ids(ids: pl.Series, do: str) -> None:
    if ids.dtype == pl.Object:
        raise NotSupported("ids that parquet can hold (numbers, text, times)", "others", do)
