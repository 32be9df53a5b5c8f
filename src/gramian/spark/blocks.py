"""Blocks: the unit of work on a cluster. A block holds some users, each with all of its items, as one sparse matrix.

A block is one row of a DataFrame with its arrays as bytes. Blocks are built once, when the events are read; everything else
maps over them with the functions that work on one machine. The user in row r of the whole matrix is in block r % n_blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
from numba import config
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException

from gramian import errors
from gramian.data.numbers import require_weights
from gramian.errors import InvalidInput
from gramian.linalg.sparse import csr_from_sorted, row_of_entry

BLOCK_ARRAYS = ("rows", "users", "indptr", "columns", "values", "times")
BLOCK_SCHEMA = ", ".join(["block int", *(f"{name} binary" for name in BLOCK_ARRAYS)])
ARROW_BLOCK_SCHEMA = pa.schema([("block", pa.int32()), *((name, pa.binary()) for name in BLOCK_ARRAYS)])
TASK_ERROR = re.compile(r"gramian\.errors\.(\w+): expected (.+); got (.*)\. ([A-Z].*)\.")  # in the traceback of a task


class Block(NamedTuple):
    """Some users with their ids and histories.

    Parameters
    ----------
    number
        The number of the block.
    user_rows
        The row of each user in the whole matrix, in ascending order.
    user_ids
        The id of each user.
    matrix
        The users' histories, in the columns of all items.
    times
        One per stored entry, where the events have times.
    """

    number: int
    user_rows: np.ndarray
    user_ids: pa.Array
    matrix: sp.csr_array
    times: np.ndarray | None

    def keep(self, mask: np.ndarray) -> Block:
        """Return the same users with only the entries where the mask is true."""
        x = self.matrix
        matrix = csr_from_sorted(row_of_entry(x)[mask], x.indices[mask], x.data[mask], x.shape)
        return self._replace(matrix=matrix, times=None if self.times is None else self.times[mask])

    def take(self, positions: np.ndarray) -> Block:
        """Return the users at these positions of the block, given in ascending order."""
        times = None if self.times is None else self.times[np.isin(row_of_entry(self.matrix), positions)]
        user_ids = self.user_ids.take(pa.array(positions))
        return Block(self.number, self.user_rows[positions], user_ids, self.matrix[positions], times)

    def encode(self) -> pa.RecordBatch:
        """Return the block as one row of a DataFrame. Values that are all 1 take no space."""
        x = self.matrix
        with pa.BufferOutputStream() as sink:
            batch = pa.record_batch([self.user_ids], names=["user"])
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            user_ids = sink.getvalue().to_pybytes()
        values = b"" if (x.data == 1).all() else x.data.tobytes()
        arrays = [self.user_rows.tobytes(), user_ids, x.indptr.astype(np.int64).tobytes(), x.indices.tobytes(), values]
        arrays.append(b"" if self.times is None else self.times.tobytes())
        return pa.record_batch([[self.number], *([array] for array in arrays)], schema=ARROW_BLOCK_SCHEMA)


class BlockFormat(NamedTuple):
    """What all blocks of a data set share, and what decoding them needs.

    Parameters
    ----------
    n_items
        The number of columns.
    user_type
        The Spark type of the user ids.
    time_dtype
        The NumPy type of the times; None where the events have no times.
    """

    n_items: int
    user_type: str
    time_dtype: str | None

    def decode(self, row: Any) -> Block:
        """Return the block that `Block.encode` wrote, from a Spark row or a dictionary."""
        arrays = {name: np.frombuffer(row[name], np.uint8) for name in BLOCK_ARRAYS}
        with pa.ipc.open_stream(row["users"]) as stream:
            user_ids = stream.read_all().column(0).combine_chunks()
        indptr, columns = arrays["indptr"].view(np.int64), arrays["columns"].view(np.int32)
        values = arrays["values"].view(np.float32) if len(arrays["values"]) else np.ones(len(columns), np.float32)
        shape = (len(indptr) - 1, self.n_items)
        matrix = sp.csr_array((values, columns, indptr.astype(np.int32 if len(columns) < 2**31 else np.int64)), shape)
        times = arrays["times"].view(self.time_dtype) if self.time_dtype else None
        return Block(int(row["block"]), arrays["rows"].view(np.int64), user_ids, matrix, times)


def pack_events(batches: Iterable[pa.RecordBatch], block_format: BlockFormat, id_type: pa.DataType) -> Iterator[pa.RecordBatch]:
    """Build the blocks of one partition.

    A row is either an event (block, row, column, value, time) or, once for each user, an id (block, row, user).
    """
    tables = [pl.DataFrame(batch) for batch in batches if batch.num_rows]
    if not tables:
        return
    table = pl.concat(tables)
    merge = [pl.col(name).sum() if name == "value" else pl.col(name).max() for name in table.columns[3:-1]]
    for (number,), rows_of_block in table.partition_by("block", as_dict=True).items():
        users = rows_of_block.filter(pl.col("column").is_null()).sort("row")
        events = rows_of_block.filter(pl.col("column").is_not_null())
        events = events.group_by("row", "column").agg(merge).sort("row", "column")
        user_rows = users["row"].to_numpy()
        if users["row"].n_unique() < len(user_rows):
            do = "Persist the table while it is being read"
            raise InvalidInput("the same events each time the table is read", "other events", do)
        values = require_weights(events["value"]).to_numpy() if "value" in events.columns else np.ones(len(events))
        positions = np.searchsorted(user_rows, events["row"].to_numpy())
        shape = (len(user_rows), block_format.n_items)
        matrix = csr_from_sorted(positions, events["column"].to_numpy(), values, shape)
        times = events["time"].to_numpy().view(block_format.time_dtype) if block_format.time_dtype else None
        yield Block(int(number), user_rows, pa.array(users["user"].to_list(), id_type), matrix, times).encode()


def concatenate_blocks(blocks: Iterable[Block]) -> tuple[list[Any], sp.csr_array, np.ndarray | None]:
    """Return all users of these blocks in the order of their rows: ids, matrix and times."""
    blocks = list(blocks)
    order = np.argsort(np.concatenate([block.user_rows for block in blocks]))
    ids = [user for block in blocks for user in block.user_ids.to_pylist()]
    unordered = sp.csr_array(sp.vstack([block.matrix for block in blocks], format="csr"))
    times = None
    if blocks[0].times is not None:
        entries = sp.csr_array((np.arange(unordered.nnz), unordered.indices, unordered.indptr), unordered.shape)
        times = np.concatenate([block.times for block in blocks])[entries[order].data]
    x = unordered[order]
    return [ids[position] for position in order], csr_from_sorted(row_of_entry(x), x.indices, x.data, x.shape), times


def task_cores() -> int:
    """Return the number of cores of this task (`spark.task.cpus`)."""
    task, n_threads = TaskContext.get(), config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    return 1 if task is None else min(task.cpus(), n_threads)


def add_tuples(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the elementwise sum of two tuples."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


@contextmanager
def reraise_task_errors() -> Iterator[None]:
    """Unwrap errors of this library that a task raised from Spark's error, which holds only their traceback as text."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        task_error = TASK_ERROR.search(str(error))
        if task_error is None:
            raise
        raise getattr(errors, task_error[1])(*task_error.groups()[1:]) from None
