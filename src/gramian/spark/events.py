"""Events of a cluster as interactions: ids numbered where they are, users never gathered in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from gramian.data.ids import Index, factorize
from gramian.data.interactions import Interactions
from gramian.data.split import hashed
from gramian.data.tables import Columns, is_number
from gramian.errors import InvalidInput, NotSupported
from gramian.linalg.memory import require
from gramian.models.recipe import Elsewhere, Recipe
from gramian.recommender import Recommender
from gramian.spark.blocks import SCHEMA, Block, Shape, added, packing, retold

IDS = (T.IntegralType, T.StringType)
LARGEST = 20_000_000  # events of a block
TINY, HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class SparkInteractions(Elsewhere):
    """A users × items matrix on a cluster: users in blocks, items here."""

    blocks: DataFrame
    shape: Shape
    catalog: Interactions  # of no users: the items, their titles and tags, and how many users touched each
    n_users: int
    n_interactions: int
    is_binary: bool
    digest: str  # of all entries, in whatever blocks they are

    def __repr__(self) -> str:
        kind = "" if self.is_binary else ", weighted"
        return f"SparkInteractions({self.n_users:,} users × {self.n_items:,} items, {self.n_interactions:,} interactions{kind})"

    @property
    def n_items(self) -> int:
        return self.shape.n_items

    @property
    def items(self) -> Index:
        return self.catalog.items

    @property
    def popularity(self) -> np.ndarray:
        """How many users touched each item."""
        return self.catalog.popularity

    def with_titles(self, titles: Mapping[Any, str]) -> SparkInteractions:
        return replace(self, catalog=self.catalog.with_titles(titles))

    def with_tags(self, tags: Mapping[Any, str | Iterable[str] | None]) -> SparkInteractions:
        return replace(self, catalog=self.catalog.with_tags(tags))

    def named_like(self, *others: Interactions) -> SparkInteractions:
        """The same with the titles and tags that others have for these items; the last who has one says it."""
        return replace(self, catalog=self.catalog.named_like(*others))

    def frame(self) -> DataFrame:
        """The events as a table again: user_id, item_id, value, and time where known."""
        user, item = self.shape.users, arrow_ids(self.items)
        time = {None: "", "float64": ", time double", "int64": ", time bigint", "datetime64[us]": ", time timestamp"}
        schema = f"user_id {user}, item_id {spark_type(item.type)}, value float{time[self.shape.times]}"

        def flat(block: Block) -> Iterable[pa.RecordBatch]:
            rows = pa.array(block.events.rows)
            columns = [block.users.take(rows), item.take(pa.array(block.matrix.indices)), pa.array(block.matrix.data)]
            names = ["user_id", "item_id", "value"]
            if block.times is not None:
                dated = block.times.dtype.kind == "M"
                columns.append(pa.array(block.times, pa.timestamp("us", "UTC") if dated else None))
                names.append("time")
            yield pa.record_batch(columns, names=names)

        return self.shape.each(self.blocks, flat, schema)

    def mapped(self, function: Callable[[Block], Block]) -> SparkInteractions:
        """Interactions whose blocks are made of these, block by block."""
        blocks = self.shape.each(self.blocks, lambda block: [function(block).packed()], SCHEMA)
        return counted(blocks, self.shape, self.catalog)

    def k_core(self, users: int, items: int | None = None) -> SparkInteractions:
        """The largest part in which every user has at least `users` items and every item at least `items` users.

        Each round is one pass over the blocks, which is told which items are left and counts their users who are.
        """
        floor_users, floor_items = users, users if items is None else items
        if not (is_number(floor_users) and is_number(floor_items) and min(floor_users, floor_items) >= 0):
            raise InvalidInput("k of at least 0", f"{floor_users!r}, {floor_items!r}", "Pass k_core(5), say")
        blocks, left = self.shape.rdd(self.blocks), np.ones(self.n_items, np.bool_)
        while True:
            counts = blocks.map(partial(touches, left=left, floor=floor_users)).treeReduce(np.add)
            still = left & (counts >= floor_items)
            if (still == left).all():
                break
            left = still
        if not counts.any():
            raise InvalidInput(f"a ({floor_users}, {floor_items})-core", "nothing left", "Ask for a smaller k")
        part = self.mapped(lambda block: core(block, left, floor_users))
        value, time = None if self.is_binary else "value", "time" if self.shape.times else None
        found = interactions(part.frame(), user="user_id", item="item_id", value=value, time=time)
        part.unpersist()
        return found.named_like(self.catalog)

    def local(self) -> Interactions:
        """All of it on this machine."""
        require(20 * self.n_interactions + 200 * self.n_users, f"{self} on this machine", "Leave them on the cluster")
        rows = self.blocks.toLocalIterator(prefetchPartitions=True)
        ids, matrix, times = self.shape.gathered(self.shape.unpacked(row) for row in rows)
        return replace(self.catalog, matrix=matrix, users=Index(ids), times=times, touched=None)

    def unpersist(self) -> None:
        """Let the cluster's memory go. What is asked for again is read again."""
        self.blocks.unpersist()

    def fitted(self, recipe: Recipe, dtype: type, scratch: str | Path | None, n_threads: int | None) -> Recommender:
        from gramian.spark.fitting import fit  # noqa: PLC0415  (which fits on what this file makes)

        return fit(recipe, self, dtype=dtype, scratch=scratch, n_threads=n_threads)


def core(block: Block, left: np.ndarray, floor: int) -> Block:
    """A block's users who have enough of the items that are left, with these items."""
    kept = block.keep(left[block.matrix.indices])
    return kept.take(np.flatnonzero(np.diff(kept.matrix.indptr) >= max(floor, 1)))


def touches(block: Block, left: np.ndarray, floor: int) -> np.ndarray:
    """How many of those users touch each item."""
    return np.bincount(core(block, left, floor).matrix.indices, minlength=len(left))


def interactions(
    frame: DataFrame,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    min_value: tuple[str, float] | None = None,
    time: str | None = None,
    title: str | None = None,
) -> SparkInteractions:
    """Interactions from a DataFrame of events; the columns are as in `Interactions.of`.

    Users and items are numbered as on one machine, in the order of their ids, so that what follows from a seed is the same
    there and here. Users are sorted and counted on the cluster; only the ids of items come to the driver. The blocks are kept
    in the cluster's memory, or on its disks.
    """
    if not isinstance(frame, DataFrame):
        raise InvalidInput("a Spark DataFrame", type(frame).__name__, "Use gr.Interactions.of(...) for what is here")
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported("a DataFrame of a classic Spark session", "one of Spark Connect", "Start the session on the cluster")
    columns = Columns.of(frame.columns, user, item, value, min_value, time, title)
    for name in columns.needed:
        alike = [other for other in frame.columns if other.lower() == name.lower()]
        if len(alike) > 1:
            raise InvalidInput("column names that differ in more than their case", ", ".join(alike), "Rename one of them")
    require_ids(frame, columns.user)
    require_ids(frame, columns.item)
    parts = [column(columns.user).alias("user"), column(columns.item).alias("item")]
    if columns.value is not None:
        require_type(frame, columns.value, (T.NumericType,), "numbers")
        parts.append(column(columns.value).cast("double").alias("value"))
    kind = None
    if columns.time is not None:
        moment, kind = moments(frame, columns.time)
        parts.append(moment.alias("time"))
    if columns.title is not None:
        parts.append(column(columns.title).cast("string").alias("title"))
    events = frame.select(parts)
    n_events = require_sound(events, columns)
    if columns.threshold is not None:
        events = events.filter(F.col("value") >= columns.threshold).drop("value")
    items, titles = gathered_items(events, columns)
    catalog = Interactions(sp.csr_array((0, len(items)), dtype=np.float32), Index(()), items, titles=titles)
    shape = Shape(len(items), frame.schema[columns.user].dataType.simpleString(), kind)
    n_blocks = max(frame.sparkSession.sparkContext.defaultParallelism, -(-n_events // LARGEST))
    blocks = in_blocks(events.drop("title"), items, shape, n_blocks)
    return counted(blocks, shape, catalog)


def require_type(frame: DataFrame, name: str, kinds: tuple[type, ...], what: str) -> None:
    found = frame.schema[name].dataType
    if not isinstance(found, kinds):
        raise InvalidInput(f"{what} in {name!r}", found.simpleString(), "Cast the column first")


def require_ids(frame: DataFrame, name: str) -> None:
    require_type(frame, name, IDS, "ids that are whole numbers or text")


def moments(frame: DataFrame, name: str) -> tuple[Column, str]:
    """A column of times as numbers, and their NumPy type here."""
    found, at = frame.schema[name].dataType, column(name)
    if isinstance(found, T.TimestampNTZType):  # a wall clock, read as UTC, as on one machine
        return F.timestamp_diff("MICROSECOND", F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"), at), "datetime64[us]"
    if isinstance(found, T.TimestampType):
        return F.unix_micros(at), "datetime64[us]"
    if isinstance(found, T.DateType):
        return F.unix_date(at).cast("bigint") * 86_400_000_000, "datetime64[us]"
    require_type(frame, name, (T.NumericType,), "numbers, dates or times")
    return (at.cast("bigint"), "int64") if isinstance(found, T.IntegralType) else (at.cast("double"), "float64")


def require_sound(events: DataFrame, columns: Columns) -> int:
    """The number of events, after one look at all of them for what has no place in interactions."""
    checks: dict[str, Column] = {name: F.col(name).isNull() for name in ("user", "item", "time") if name in events.columns}
    if columns.time is not None and dict(events.dtypes)["time"] == "double":
        checks["time"] = ~is_finite(F.col("time"))
    if columns.value is not None:
        value = F.col("value")
        finite = is_finite(value)
        checks["value"] = ~finite if columns.threshold is not None else ~(finite & value.between(TINY, HUGE))
    found = events.agg(F.count(F.lit(1)).alias("n"), *(F.count_if(bad).alias(name) for name, bad in checks.items())).first()
    assert found is not None
    if not found["n"]:
        raise InvalidInput("at least one event", "none", "Check the table")
    for name in checks:
        if not found[name]:
            continue
        named, do = getattr(columns, name), "Drop or fill such rows first"
        if name == "value":
            wanted = "finite numbers" if columns.threshold is not None else "weights above 0 and below 3e38"
            raise InvalidInput(f"{wanted} in {named!r}", f"{found[name]:,} others", do)
        what = "a time" if name == "time" else "an id"
        raise InvalidInput(f"{what} in every row of {named!r}", f"{found[name]:,} without", do)
    return int(found["n"])


def is_finite(number: Column) -> Column:
    return number.isNotNull() & ~F.isnan(number) & (F.abs(number) < float("inf"))


def gathered_items(events: DataFrame, columns: Columns) -> tuple[Index, list[str] | None]:
    """The ids of all items, in order, and their titles."""
    named = events.groupBy("item").agg(F.max("title").alias("title")) if columns.title else events.select("item").distinct()
    table = pl.DataFrame(named.toArrow())
    if len(table) == 0:
        raise InvalidInput("at least one interaction", "none", "Check the table, the column names and min_value")
    codes, items = factorize(table["item"])
    if columns.title is None:
        return items, None
    titles = table["title"].gather(np.argsort(codes)).to_list()
    return items, [str(item if title is None else title) for item, title in zip(items.tolist(), titles, strict=True)]


def in_blocks(events: DataFrame, items: Index, shape: Shape, n_blocks: int) -> DataFrame:
    """Numbered events, with all events of a user in one block."""
    spark, ids = events.sparkSession, to_arrow_type(events.schema["user"].dataType)
    numbers = pa.table({"item": arrow_ids(items), "column": pa.array(np.arange(len(items), dtype=np.int32))})
    known = numbered(events.select("user").distinct(), "user", n_blocks)
    known = known.withColumn("block", (F.col("row") % n_blocks).cast("int"))
    own = [name for name in ("value", "time") if name in events.columns]
    touched = (
        events.join(F.broadcast(spark.createDataFrame(numbers)), "item")
        .join(known, "user")
        .select("block", "row", "column", *own, F.lit(None).cast(events.schema["user"].dataType).alias("user"))
    )
    empty = [F.lit(None).cast(touched.schema[name].dataType).alias(name) for name in ("column", *own)]
    everything = touched.unionByName(known.select("block", "row", *empty, "user"))
    return everything.repartitionById(n_blocks, F.col("block")).mapInArrow(packing(shape, ids), SCHEMA)


def numbered(ids: DataFrame, name: str, n_parts: int) -> DataFrame:
    """Distinct ids with their places in the order of all, in `row`, which follow from the ids alone.

    They are sorted on the cluster by ranges, of which only the last id and the size come to the driver.
    """
    ranges = ids.repartitionByRange(n_parts, name).groupBy(F.spark_partition_id().alias("part"))
    found = sorted(ranges.agg(F.count(name).alias("n"), F.max(name).alias("last")).collect(), key=lambda row: row["part"])
    starts = np.concatenate([[0], np.cumsum([row["n"] for row in found])]).tolist()
    lasts = [F.lit(row["last"]) for row in found[:-1]]
    part = F.size(F.filter(F.array(*lasts), lambda last: last < F.col(name))) if lasts else F.lit(0)
    within = F.row_number().over(Window.partitionBy("part").orderBy(name)) - 1
    start = F.array(*(F.lit(start) for start in starts))[F.col("part")]
    return ids.withColumn("part", part).select(name, (start + within).cast("bigint").alias("row"))


def counted(blocks: DataFrame, shape: Shape, catalog: Interactions) -> SparkInteractions:
    """Interactions of these blocks, which are kept, and counted in one pass."""
    kept = blocks.persist(StorageLevel.MEMORY_AND_DISK)

    def count(block: Block) -> tuple[int, int, int, np.ndarray, np.ndarray]:
        x = block.matrix
        entries = hashed(0, block.rows[block.events.rows], x.indices + 1) * (x.data.view(np.uint32) | np.uint64(1))
        touched = np.bincount(x.indices, minlength=shape.n_items)
        return x.shape[0], x.nnz, int((x.data != 1).sum()), touched, entries.sum(dtype=np.uint64, keepdims=True)

    try:
        with retold():
            n_users, n_interactions, weighted, touched, digest = shape.rdd(kept).map(count).treeReduce(added)
        if n_interactions == 0:
            raise InvalidInput("at least one interaction", "none", "Check the table, the column names and min_value")
    except Exception:
        kept.unpersist()
        raise
    found = replace(catalog, touched=touched)
    return SparkInteractions(kept, shape, found, n_users, n_interactions, not weighted, f"{digest[0]:016x}")


def column(name: str) -> Column:
    """A column by a name that may have anything in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def arrow_ids(items: Index) -> pa.Array:
    return pa.array(items.tolist())


def spark_type(found: pa.DataType) -> str:
    """An Arrow type of ids as Spark names it."""
    return from_arrow_type(found).simpleString()
