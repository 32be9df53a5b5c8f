"""Events read by Spark, for `gramian fit --engine spark`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from gramian.app.options import Source, number, refuse
from gramian.data import datasets as registry
from gramian.data.read import kind
from gramian.data.tables import Columns
from gramian.errors import InvalidInput, MissingFile, NotSupported

LOCAL_PARTITIONS = 4  # of a shuffle on one machine, where Spark's 200 would be 200 tiny tasks


def events_on_cluster(source: Source, master: str | None, title: str | None) -> Any:
    """The interactions of a file, folder or glob that the cluster can read, or of a named data set."""
    try:
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        from gramian import spark as wing  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow"):
            raise
        raise NotSupported("PySpark, for --engine spark", "no such package", "Install gramian[spark]") from None
    session = session_of(master)
    if source.data in registry.DATASETS and not Path(source.data).exists():
        refuse("a named data set", {"--title": title})
        here = source.events()
        table = session.createDataFrame(here.frame().to_arrow())
        value, time = None if here.is_binary else "value", None if here.times is None else "time"
        return wing.interactions(table, user="user_id", item="item_id", value=value, time=time).named_like(here)
    column, equals, least = (source.min_value or "").rpartition("=")
    if source.min_value and not equals:
        raise InvalidInput("--min-value column=number", source.min_value, "Pass rating=4, say")
    threshold = (column, number(least)) if source.min_value else None
    try:
        table = read(session, source.data)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise MissingFile("a file or folder that the cluster can read", source.data, "Check the path") from None
    named: dict[str, Any] = {"user": source.user, "item": source.item, "value": source.value, "time": source.time}
    named |= {"title": title, "min_value": threshold}
    if is_text(source.data):
        table = typed(table, Columns.of(table.columns, **named))
    events = wing.interactions(table, **named)
    return events.k_core(source.k_core) if source.k_core else events


def session_of(master: str | None) -> Any:
    """The session of a master, or of whatever started this program."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("gramian").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    if master is not None and master.startswith("local"):
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", LOCAL_PARTITIONS)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def is_text(path: str) -> bool:
    return bool(Path(path).suffix) and kind(Path(path)) in (".csv", ".tsv")


def read(session: Any, path: str) -> Any:
    """A table by its file's ending; a folder without one is parquet. Text stays text: '007' is no 7."""
    suffix = kind(Path(path)) if Path(path).suffix else ".parquet"
    if suffix in (".csv", ".tsv"):
        return session.read.csv(path, header=True, sep="," if suffix == ".csv" else "\t")
    return session.read.parquet(path) if suffix == ".parquet" else session.read.json(path)


def typed(table: Any, columns: Columns) -> Any:
    """Ids and times as integers where all of the text is the text of integers; values and other times as numbers."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    names = [name for name in (columns.user, columns.item, columns.time) if name is not None]
    same = [F.bool_and(F.col(f"`{name}`").try_cast("bigint").cast("string").eqNullSafe(F.col(f"`{name}`"))) for name in names]
    whole = dict(zip(names, table.select(same).first(), strict=True))
    kinds = {name: "bigint" for name, is_whole in whole.items() if is_whole}
    kinds |= {name: "double" for name in (columns.value, columns.time) if name is not None and name not in kinds}
    return table.select([F.col(f"`{n}`").try_cast(kinds.get(n, "string")).alias(n) for n in table.columns])
