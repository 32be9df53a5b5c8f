"""Interactions on a cluster: ids are numbered where they are, and the users are never collected in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from gramian.core.recipe import Recipe, RemoteInteractions
from gramian.core.recommender import Recommender
from gramian.data.catalog import Catalog
from gramian.data.features import Features
from gramian.data.ids import Index, factorize
from gramian.data.interactions import Interactions
from gramian.data.tables import Columns
from gramian.errors import InvalidInput, NotSupported
from gramian.linalg.hashing import hash_pairs
from gramian.linalg.memory import require_memory
from gramian.linalg.sparse import row_of_entry
from gramian.linalg.threads import limit_threads
from gramian.spark.blocks import (
    BLOCK_SCHEMA,
    Block,
    BlockFormat,
    add_tuples,
    concatenate_blocks,
    pack_events,
    reraise_task_errors,
    task_cores,
)
from gramian.validation import is_number

ID_TYPES = (T.IntegralType, T.StringType)
EVENTS_PER_BLOCK = 20_000_000  # at most: a task that packs a block needs about 60 bytes for each
WEIGHT_RANGE = (float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max))
TIME_TYPES = {"float64": "double", "int64": "bigint", "datetime64[us]": "timestamp"}  # NumPy type → Spark type


@dataclass(frozen=True, eq=False)
class SparkInteractions(RemoteInteractions):
    """A users × items matrix on a cluster: the users in blocks on the executors, the catalog of items on the driver.

    Make them with `gr.spark.interactions`. Every recipe of the Gram matrix and of alternating least squares fits on them:
    `recipe.fit(events)`.

    Parameters
    ----------
    blocks
        One block of users per row, persisted.
    block_format
        What decoding a block needs.
    catalog
        The items, with their popularity, and their titles and tags where known.
    n_users, n_interactions
        How many users and distinct (user, item) pairs there are.
    is_binary
        Whether every interaction counts 1.
    entry_hash
        A hash of all entries, the same for any number of blocks.
    """

    blocks: DataFrame
    block_format: BlockFormat
    catalog: Catalog
    n_users: int
    n_interactions: int
    is_binary: bool
    entry_hash: str

    def __repr__(self) -> str:
        weighted = "" if self.is_binary else ", weighted"
        counts = f"{self.n_users:,} users × {self.n_items:,} items, {self.n_interactions:,} interactions"
        return f"SparkInteractions({counts}{weighted})"

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.block_format.n_items

    @property
    def items(self) -> Index:
        """Item ids in column order."""
        return self.catalog.ids

    @property
    def popularity(self) -> np.ndarray:
        """How many users touched each item."""
        return self.catalog.popularity

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the item ids and of all entries, the same for any number of blocks."""
        return sha256(f"{self.n_users} {self.entry_hash} {self.items.tolist()!r}".encode()).hexdigest()

    def with_titles(self, titles: Mapping[Any, str]) -> SparkInteractions:
        """Return the same interactions with titles from {item id: title}; an item without one is shown by its id."""
        return replace(self, catalog=self.catalog.with_titles(titles))

    def with_tags(self, tags: Mapping[Any, str | Iterable[str] | None]) -> SparkInteractions:
        """Return the same interactions with tags from {item id: tags}: lists, or text such as "Comedy|Romance"."""
        return replace(self, catalog=self.catalog.with_tags(tags))

    def with_features(self, features: Features) -> SparkInteractions:
        """Return the same interactions with features of their items, made by `gr.Features.of`."""
        return replace(self, catalog=self.catalog.with_features(features))

    def described_by(self, *catalogs: Catalog) -> SparkInteractions:
        """Return the same interactions with the titles, tags and features that catalogs have for these items; the last wins."""
        return replace(self, catalog=self.catalog.described_by(*catalogs))

    def frame(self) -> DataFrame:
        """Return the events as a DataFrame: user_id, item_id, value, and time where known."""
        item_ids, time_dtype = ids_to_arrow(self.items), self.block_format.time_dtype
        schema = f"user_id {self.block_format.user_type}, item_id {spark_type_name(item_ids.type)}, value float"
        names = ["user_id", "item_id", "value"]
        if time_dtype is not None:
            schema += f", time {TIME_TYPES[time_dtype]}"
            names.append("time")

        def flatten(block: Block) -> Iterable[pa.RecordBatch]:
            x = block.matrix
            user_ids, items_touched = block.user_ids.take(pa.array(row_of_entry(x))), item_ids.take(pa.array(x.indices))
            columns = [user_ids, items_touched, pa.array(x.data)]
            if block.times is not None:
                is_datetime = block.times.dtype.kind == "M"
                columns.append(pa.array(block.times, pa.timestamp("us", "UTC") if is_datetime else None))
            yield pa.record_batch(columns, names=names)

        return self.map_to_rows(flatten, schema)

    def rdd(self) -> RDD[Block]:
        """Return the blocks as an RDD of decoded `Block` objects."""
        return self.blocks.rdd.map(self.block_format.decode)

    def map_to_rows(self, function: Callable[[Block], Iterable[pa.RecordBatch]], schema: str) -> DataFrame:
        """Return a DataFrame of the rows that a function makes of every block."""
        decode = self.block_format.decode

        def map_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with limit_threads(task_cores()):
                for batch in batches:
                    for row in batch.to_pylist():
                        yield from function(decode(row))

        return self.blocks.mapInArrow(map_partition, schema)

    def map_blocks(self, function: Callable[[Block], Block]) -> SparkInteractions:
        """Return interactions whose blocks are a function of these blocks. They are persisted, too."""
        blocks = self.map_to_rows(lambda block: [function(block).encode()], BLOCK_SCHEMA)
        return persist_and_count(blocks, self.block_format, self.catalog)

    def k_core(self, users: int, items: int | None = None) -> SparkInteractions:
        """Return the largest part in which every user has at least `users` items and every item at least `items` users.

        `k_core(5)` sets both to 5. Dropping a user lowers the counts of items and the reverse, so the filter repeats until
        nothing changes; each round is one pass over the blocks.
        """
        min_items, min_users = users, users if items is None else items
        if not (is_number(min_items) and is_number(min_users) and min(min_items, min_users) >= 0):
            raise InvalidInput("k of at least 0", f"{min_items!r}, {min_users!r}", "Pass k_core(5), say")
        blocks, is_kept = self.rdd(), np.ones(self.n_items, np.bool_)
        while True:
            counts = blocks.map(partial(count_users_in_core, is_kept=is_kept, min_items=min_items)).treeReduce(np.add)
            still_kept = is_kept & (counts >= min_users)
            if (still_kept == is_kept).all():
                break
            is_kept = still_kept
        if not counts.any():
            raise InvalidInput(f"a ({min_items}, {min_users})-core", "nothing left", "Ask for a smaller k")
        core = self.map_blocks(lambda block: restrict_to_core(block, is_kept, min_items))
        value, time = None if self.is_binary else "value", "time" if self.block_format.time_dtype else None
        renumbered = interactions(core.frame(), user="user_id", item="item_id", value=value, time=time)
        core.unpersist()
        return renumbered.described_by(self.catalog)

    def local(self) -> Interactions:
        """Return all interactions on this machine."""
        size = 20 * self.n_interactions + 200 * self.n_users  # bytes: an entry is copied once; an id is a Python object
        require_memory(size, f"{self} on this machine", "Leave them on the cluster")
        rows = self.blocks.toLocalIterator(prefetchPartitions=True)
        ids, matrix, times = concatenate_blocks(self.block_format.decode(row) for row in rows)
        return Interactions(matrix, Index(ids), self.catalog, times)

    def unpersist(self) -> None:
        """Free the executors' memory. A later use reads the events and builds the blocks again."""
        self.blocks.unpersist()

    def fit_recipe(self, recipe: Recipe, dtype: type, scratch: str | Path | None, n_threads: int | None) -> Recommender:
        """Fit a recipe on the cluster: what `recipe.fit(events)` calls."""
        from gramian.spark.fitting import fit  # noqa: PLC0415  (fitting.py imports this module)

        return fit(recipe, self, dtype=dtype, scratch=scratch, n_threads=n_threads)


def restrict_to_core(block: Block, is_kept: np.ndarray, min_items: int) -> Block:
    """Return the users of a block who have enough of the kept items, with these items only."""
    restricted = block.keep(is_kept[block.matrix.indices])
    return restricted.take(np.flatnonzero(np.diff(restricted.matrix.indptr) >= max(min_items, 1)))


def count_users_in_core(block: Block, is_kept: np.ndarray, min_items: int) -> np.ndarray:
    """Count for each item the users of `restrict_to_core` who touched it."""
    return np.bincount(restrict_to_core(block, is_kept, min_items).matrix.indices, minlength=len(is_kept))


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
    """Make interactions from a Spark DataFrame with one event per row.

    Users and items are numbered in the order of their ids, as on one machine, so a seed gives the same split and model on both.
    Users are sorted and counted on the cluster; only the item ids come to the driver.

    Parameters
    ----------
    frame
        The events, of a classic Spark session. It is read four times: persist it if it is expensive to compute.
    user, item
        Columns of user and item ids, integers or text. Left out, common names such as `user_id` and `item_id` are tried.
    value
        Column of weights. Without it every event counts 1.
    min_value
        `("rating", 4)` keeps the events whose rating is at least 4, each counting 1.
    time
        Column of times: numbers, dates or timestamps.
    title
        Column of item titles.

    Returns
    -------
    SparkInteractions
        Blocks of users, persisted in the executors' memory or on their disks.
    """
    if not isinstance(frame, DataFrame):
        do = "Use gr.Interactions.of(...) for data on this machine"
        raise InvalidInput("a Spark DataFrame", type(frame).__name__, do)
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported("a DataFrame of a classic Spark session", "one of Spark Connect", "Start the session on the cluster")
    columns = Columns.of(frame.columns, user, item, value, min_value, time, title)
    for name in columns.needed:
        matches = [column for column in frame.columns if column.lower() == name.lower()]
        if len(matches) > 1:
            raise InvalidInput("column names that differ in more than their case", ", ".join(matches), "Rename one of them")
    for name in (columns.user, columns.item):
        require_column_type(frame, name, ID_TYPES, "ids that are whole numbers or text")
    selected = [quoted_column(columns.user).alias("user"), quoted_column(columns.item).alias("item")]
    if columns.value is not None:
        require_column_type(frame, columns.value, (T.NumericType,), "numbers")
        selected.append(quoted_column(columns.value).cast("double").alias("value"))
    time_dtype = None
    if columns.time is not None:
        times, time_dtype = parse_time_column(frame, columns.time)
        selected.append(times.alias("time"))
    if columns.title is not None:
        selected.append(quoted_column(columns.title).cast("string").alias("title"))
    events = frame.select(selected)
    n_events = count_valid_events(events, columns)
    if columns.threshold is not None:
        events = events.filter(F.col("value") >= columns.threshold).drop("value")
    catalog = collect_catalog(events)
    block_format = BlockFormat(len(catalog), frame.schema[columns.user].dataType.simpleString(), time_dtype)
    n_blocks = max(frame.sparkSession.sparkContext.defaultParallelism, -(-n_events // EVENTS_PER_BLOCK))
    return persist_and_count(build_blocks(events.drop("title"), catalog.ids, block_format, n_blocks), block_format, catalog)


def require_column_type(frame: DataFrame, name: str, types: tuple[type, ...], expected: str) -> None:
    """Refuse a column of another type."""
    column_type = frame.schema[name].dataType
    if not isinstance(column_type, types):
        raise InvalidInput(f"{expected} in {name!r}", column_type.simpleString(), "Cast the column first")


def parse_time_column(frame: DataFrame, name: str) -> tuple[Column, str]:
    """Return a column of times as numbers, and the NumPy type of these numbers."""
    column_type, column = frame.schema[name].dataType, quoted_column(name)
    if isinstance(column_type, T.TimestampNTZType):  # a wall clock, read as UTC, as on one machine
        epoch = F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'")
        return F.timestamp_diff("MICROSECOND", epoch, column), "datetime64[us]"
    if isinstance(column_type, T.TimestampType):
        return F.unix_micros(column), "datetime64[us]"
    if isinstance(column_type, T.DateType):
        return F.unix_date(column).cast("bigint") * 86_400_000_000, "datetime64[us]"
    require_column_type(frame, name, (T.NumericType,), "numbers, dates or times")
    is_integral = isinstance(column_type, T.IntegralType)
    return (column.cast("bigint"), "int64") if is_integral else (column.cast("double"), "float64")


def count_valid_events(events: DataFrame, columns: Columns) -> int:
    """Count the events, after one pass that refuses null ids, missing times and invalid weights."""
    is_invalid: dict[str, Column] = {name: F.col(name).isNull() for name in ("user", "item", "time") if name in events.columns}
    if columns.time is not None and dict(events.dtypes)["time"] == "double":
        is_invalid["time"] = ~is_finite(F.col("time"))
    if columns.value is not None:
        value = F.col("value")
        is_weight = is_finite(value) & value.between(*WEIGHT_RANGE)
        is_invalid["value"] = ~is_finite(value) if columns.threshold is not None else ~is_weight
    n_invalid = [F.count_if(condition).alias(name) for name, condition in is_invalid.items()]
    counts = events.agg(F.count(F.lit(1)).alias("n"), *n_invalid).first()
    assert counts is not None
    if not counts["n"]:
        raise InvalidInput("at least one event", "none", "Check the table")
    for role in is_invalid:
        if not counts[role]:
            continue
        name, do = getattr(columns, role), "Drop or fill such rows first"
        if role == "value":
            expected = "finite numbers" if columns.threshold is not None else "weights above 0 and below 3e38"
            raise InvalidInput(f"{expected} in {name!r}", f"{counts[role]:,} others", do)
        expected = "a time" if role == "time" else "an id"
        raise InvalidInput(f"{expected} in every row of {name!r}", f"{counts[role]:,} without", do)
    return int(counts["n"])


def is_finite(number: Column) -> Column:
    """Return whether a number is neither null nor NaN nor infinite."""
    return number.isNotNull() & ~F.isnan(number) & (F.abs(number) < float("inf"))


def collect_catalog(events: DataFrame) -> Catalog:
    """Collect the ids of all items, in order, and their titles where the events have them."""
    has_titles = "title" in events.columns
    items = events.groupBy("item").agg(F.max("title").alias("title")) if has_titles else events.select("item").distinct()
    table = pl.DataFrame(items.toArrow())
    if len(table) == 0:
        raise InvalidInput("at least one interaction", "none", "Check the table, the column names and min_value")
    catalog = Catalog(factorize(table["item"])[1])
    return catalog.with_titles(dict(zip(table["item"], table["title"], strict=True))) if has_titles else catalog


def build_blocks(events: DataFrame, items: Index, block_format: BlockFormat, n_blocks: int) -> DataFrame:
    """Replace ids by numbers and shuffle the events into blocks, all events of a user into one.

    The user ids travel once, in rows of their own.
    """
    user_type = events.schema["user"].dataType
    id_type = to_arrow_type(user_type)
    item_columns = pa.table({"item": ids_to_arrow(items), "column": pa.array(np.arange(len(items), dtype=np.int32))})
    users = number_ids(events.select("user").distinct(), "user", n_blocks)
    users = users.withColumn("block", (F.col("row") % n_blocks).cast("int"))
    extra = [name for name in ("value", "time") if name in events.columns]
    entries = (
        events.join(F.broadcast(events.sparkSession.createDataFrame(item_columns)), "item")
        .join(users, "user")
        .select("block", "row", "column", *extra, F.lit(None).cast(user_type).alias("user"))
    )
    empty = [F.lit(None).cast(entries.schema[name].dataType).alias(name) for name in ("column", *extra)]
    rows = entries.unionByName(users.select("block", "row", *empty, "user")).repartitionById(n_blocks, F.col("block"))
    return rows.mapInArrow(lambda batches: pack_events(batches, block_format, id_type), BLOCK_SCHEMA)


def number_ids(ids: DataFrame, name: str, n_ranges: int) -> DataFrame:
    """Add to distinct ids their position in the order of all ids, as `row`.

    The ids are sorted on the cluster by ranges; only the last id and the size of each range come to the driver. Spark samples
    the ranges, differently each time, but a position depends on the ids alone.
    """
    ranges = ids.repartitionByRange(n_ranges, name).groupBy(F.spark_partition_id().alias("range"))
    summaries = ranges.agg(F.count(name).alias("n"), F.max(name).alias("last")).collect()
    summaries.sort(key=lambda summary: summary["range"])
    starts = np.concatenate([[0], np.cumsum([summary["n"] for summary in summaries])]).tolist()
    last_ids = [F.lit(summary["last"]) for summary in summaries[:-1]]
    range_number = F.size(F.filter(F.array(*last_ids), lambda last: last < F.col(name))) if last_ids else F.lit(0)
    position = F.row_number().over(Window.partitionBy("range").orderBy(name)) - 1
    start = F.array(*(F.lit(start) for start in starts))[F.col("range")]
    return ids.withColumn("range", range_number).select(name, (start + position).cast("bigint").alias("row"))


def persist_and_count(blocks: DataFrame, block_format: BlockFormat, catalog: Catalog) -> SparkInteractions:
    """Persist blocks, and count their users, entries and popularity in one pass."""
    blocks = blocks.persist(StorageLevel.MEMORY_AND_DISK)

    def count(row: Any) -> tuple[int, int, int, np.ndarray, np.ndarray]:
        block = block_format.decode(row)
        x = block.matrix
        pairs = hash_pairs(0, block.user_rows[row_of_entry(x)], x.indices + 1)
        entry_hashes = pairs * (x.data.view(np.uint32) | np.uint64(1))
        popularity = np.bincount(x.indices, minlength=block_format.n_items)
        return x.shape[0], x.nnz, int((x.data != 1).sum()), popularity, entry_hashes.sum(dtype=np.uint64, keepdims=True)

    try:
        with reraise_task_errors():
            n_users, n_interactions, n_weighted, popularity, entry_hash = blocks.rdd.map(count).treeReduce(add_tuples)
        if n_interactions == 0:
            raise InvalidInput("at least one interaction", "none", "Check the table, the column names and min_value")
    except Exception:
        blocks.unpersist()
        raise
    catalog, is_binary = catalog.with_popularity(popularity), not n_weighted
    return SparkInteractions(blocks, block_format, catalog, n_users, n_interactions, is_binary, f"{entry_hash[0]:016x}")


def quoted_column(name: str) -> Column:
    """Return a column by its name, which may contain dots and backticks."""
    return F.col("`" + name.replace("`", "``") + "`")


def ids_to_arrow(ids: Index) -> pa.Array:
    """Return ids as an Arrow array."""
    return pa.array(ids.tolist())


def spark_type_name(arrow_type: pa.DataType) -> str:
    """Return the Spark name of an Arrow type."""
    return from_arrow_type(arrow_type).simpleString()
