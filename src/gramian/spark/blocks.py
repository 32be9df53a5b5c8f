"""Blocks: some users of a cluster's interactions, each with all of its items, as one sparse matrix.

A block is a row of a DataFrame, its arrays as bytes: it is written once, when events are read, and everything else maps over
blocks with the functions that work on one machine. User number r is in block r % n_blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
from numba import config
from py4j.protocol import Py4JJavaError
from pyspark import RDD, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from gramian import errors
from gramian.data.ids import Index
from gramian.data.interactions import Interactions, csr
from gramian.data.tables import weights
from gramian.errors import InvalidInput
from gramian.linalg.threads import threads

SCHEMA = "block int, rows binary, users binary, indptr binary, columns binary, values binary, times binary"
ARROW = pa.schema(
    [("block", pa.int32())] + [(name, pa.binary()) for name in ("rows", "users", "indptr", "columns", "values", "times")]
)


TOLD = re.compile(r"gramian\.errors\.(\w+): expected (.+); got (.*)\. ([A-Z].*)\.")


class Block(NamedTuple):
    """Users with their numbers, ids and histories."""

    number: int
    rows: np.ndarray  # the number of each user among all
    users: pa.Array  # their ids
    matrix: sp.csr_array
    times: np.ndarray | None

    @property
    def events(self) -> Interactions:
        """The same for functions that ask for no ids."""
        return Interactions(self.matrix, NOBODY, NOBODY, self.times)

    def keep(self, entries: np.ndarray) -> Block:
        """The same users with only the entries where the mask is true."""
        kept = self.events.keep(entries)
        return self._replace(matrix=kept.matrix, times=kept.times)

    def take(self, some: np.ndarray) -> Block:
        """The users at these places."""
        entries = np.isin(self.events.rows, some)
        times = None if self.times is None else self.times[entries]
        return Block(self.number, self.rows[some], self.users.take(pa.array(some)), self.matrix[some], times)

    def packed(self) -> pa.RecordBatch:
        x = self.matrix
        with pa.BufferOutputStream() as sink:
            batch = pa.record_batch([self.users], names=["user"])
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            users = sink.getvalue().to_pybytes()
        values = b"" if (x.data == 1).all() else x.data.tobytes()
        parts = [self.rows.tobytes(), users, x.indptr.astype(np.int64).tobytes(), x.indices.tobytes(), values]
        parts.append(b"" if self.times is None else self.times.tobytes())
        return pa.record_batch([[self.number], *([part] for part in parts)], schema=ARROW)


NOBODY = Index(())


class Shape(NamedTuple):
    """What is the same for all blocks."""

    n_items: int
    users: str  # the type of their ids, as Spark names it
    times: str | None  # their NumPy type

    def unpacked(self, row: Any) -> Block:
        """A block from its row, in Arrow or not."""
        parts = {name: np.frombuffer(row[name], np.uint8) for name in ARROW.names[1:]}
        with pa.ipc.open_stream(row["users"]) as stream:
            users = stream.read_all().column(0).combine_chunks()
        indptr, columns = parts["indptr"].view(np.int64), parts["columns"].view(np.int32)
        values = parts["values"].view(np.float32) if len(parts["values"]) else np.ones(len(columns), np.float32)
        shape = (len(indptr) - 1, self.n_items)
        matrix = sp.csr_array((values, columns, indptr.astype(np.int32 if len(columns) < 2**31 else np.int64)), shape)
        times = parts["times"].view(self.times) if self.times else None
        return Block(int(row["block"]), parts["rows"].view(np.int64), users, matrix, times)

    def each(self, blocks: DataFrame, function: Callable[[Block], Iterable[pa.RecordBatch]], schema: str) -> DataFrame:
        """What a function makes of every block, in Arrow."""

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with threads(cpus()):
                for batch in batches:
                    for row in batch.to_pylist():
                        yield from function(self.unpacked(row))

        return blocks.mapInArrow(run, schema)

    def rdd(self, blocks: DataFrame) -> RDD[Block]:
        """Blocks as objects, for what is summed over them or keeps vectors beside them."""
        return blocks.rdd.map(self.unpacked)

    def gathered(self, blocks: Iterable[Block]) -> tuple[list[Any], sp.csr_array, np.ndarray | None]:
        """All users of these blocks in the order of their numbers: ids, matrix, times."""
        parts = list(blocks)
        order = np.argsort(np.concatenate([part.rows for part in parts]))
        ids = [user for part in parts for user in part.users.to_pylist()]
        together = sp.csr_array(sp.vstack([part.matrix for part in parts], format="csr"))
        times = None
        if self.times:
            stored = sp.csr_array((np.arange(together.nnz), together.indices, together.indptr), together.shape)
            times = np.concatenate([part.times for part in parts])[stored[order].data]
        matrix = together[order]
        entries = np.repeat(np.arange(len(order)), np.diff(matrix.indptr))
        return [ids[at] for at in order], csr(entries, matrix.indices, matrix.data, matrix.shape), times


def cpus() -> int:
    """Cores of a task, as the cluster deals them out."""
    task, most = TaskContext.get(), config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    return 1 if task is None else min(task.cpus(), most)


def added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sums of blocks, part by part."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


@contextmanager
def retold() -> Iterator[None]:
    """An error of ours that was raised in a task is raised here in its own words."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        told = TOLD.search(str(error))
        if told is None:
            raise
        raise getattr(errors, told[1])(*told.groups()[1:]) from None


def packing(shape: Shape, ids: pa.DataType) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes blocks of numbered events: (block, row, column, value, time), and once for each user (block, row, user)."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [pl.DataFrame(batch) for batch in batches if batch.num_rows]
        if not parts:
            return
        table = pl.concat(parts)
        merge = [pl.col(name).sum() if name == "value" else pl.col(name).max() for name in table.columns[3:-1]]
        for (number,), some in table.partition_by("block", as_dict=True).items():
            known = some.filter(pl.col("column").is_null()).sort("row")
            events = some.filter(pl.col("column").is_not_null())
            events = events.group_by("row", "column").agg(merge).sort("row", "column")
            rows = known["row"].to_numpy()
            if known["row"].n_unique() < len(rows):
                raise InvalidInput("the same events at every look", "others", "Persist the table while it is being read")
            values = weights(events["value"]).to_numpy() if "value" in events.columns else np.ones(len(events))
            at = np.searchsorted(rows, events["row"].to_numpy())
            matrix = csr(at, events["column"].to_numpy(), values, (len(rows), shape.n_items))
            times = events["time"].to_numpy().view(shape.times) if shape.times else None
            users = pa.array(known["user"].to_list(), ids)
            yield Block(int(number), rows, users, matrix, times).packed()

    return pack
