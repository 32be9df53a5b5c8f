"""Events read by Spark, for `gramian fit --engine spark`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from gramian.app.options import Source, number, refuse
from gramian.data import datasets as registry
from gramian.data.read import TEXT, files, kind
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
            why = str(error).splitlines()[0]
            raise InvalidInput(f"a table that Spark can read at {source.data}", why, "Check the file") from None
        raise MissingFile("a file or folder that the cluster can read", source.data, "Check the path") from None
    named: dict[str, Any] = {"user": source.user, "item": source.item, "value": source.value, "time": source.time}
    named |= {"title": title, "min_value": threshold}
    if suffix_of(source.data) in TEXT:
        table = typed(table, Columns.of(table.columns, **named))
    events = wing.interactions(table, **named)
    return events.k_core(source.k_core) if source.k_core else events


def session_of(master: str | None) -> Any:
    """The session of a master, or of whatever started this program."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("gramian").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    if master is not None and master.startswith("local"):
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", LOCAL_PARTITIONS)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise NotSupported("Java 17, for Spark", "no Java that starts", "Install openjdk-17-jre-headless, say") from None
    session.sparkContext.setLogLevel("ERROR")
    return session


def suffix_of(path: str) -> str:
    """The format of a path: of the files in it where it is here, else by its ending; a folder elsewhere is parquet."""
    if Path(path).exists():
        return kind(files(path)[0])
    return kind(Path(path)) if Path(path).suffix else ".parquet"


def read(session: Any, path: str) -> Any:
    """A table by its format. Text stays text: '007' is no 7."""
    suffix = suffix_of(path)
    if suffix in TEXT:
        return session.read.csv(path, header=True, sep="," if suffix == ".csv" else "\t", quote='"', escape='"')
    return session.read.parquet(path) if suffix == ".parquet" else session.read.json(path)


def typed(table: Any, columns: Columns) -> Any:
    """Ids and times as integers where all of the text is the text of integers; values as numbers, other times as dates."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    from gramian.spark.events import column  # noqa: PLC0415

    names = [name for name in (columns.user, columns.item, columns.time) if name is not None]
    same = [F.bool_and(column(name).try_cast("bigint").cast("string").eqNullSafe(column(name))) for name in names]
    whole = dict(zip(names, table.select(same).first(), strict=True))
    kinds = {name: "bigint" for name, is_whole in whole.items() if is_whole}
    if columns.time is not None and columns.time not in kinds:
        is_number = table.select(F.bool_and(column(columns.time).try_cast("double").isNotNull())).first()[0]
        kinds[columns.time] = "double" if is_number else "timestamp_ntz"
    if columns.value is not None:
        kinds[columns.value] = "double"
    return table.select([column(name).try_cast(kinds.get(name, "string")).alias(name) for name in table.columns])
