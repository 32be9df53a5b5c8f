"""Events read by Spark, for `gramian fit --engine spark`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from gramian.cli.options import EventSource, refuse_options
from gramian.data.sources import TEXT_FORMATS, file_format, find_event_files
from gramian.data.tables import Columns
from gramian.errors import InvalidInput, MissingFile, NotSupported
from gramian.validation import format_install_advice

LOCAL_PARTITIONS = 4  # shuffle partitions on one machine, where Spark's default of 200 would be 200 tiny tasks


def read_spark_events(source: EventSource, master: str | None, title: str | None) -> Any:
    """Read the interactions of a file, folder or glob that the cluster can reach, or of a named data set."""
    try:
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        from gramian import spark  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow"):
            raise
        raise NotSupported("PySpark, for --engine spark", "no such package", format_install_advice("spark")) from None
    source.refuse_local_options("--engine spark")
    session = start_session(master)
    if source.is_named_dataset:
        refuse_options("a named data set", {"--title": title})
        events = source.read_events()
        table = session.createDataFrame(events.frame().to_arrow())
        value, time = None if events.is_binary else "value", None if events.times is None else "time"
        remote = spark.interactions(table, user="user_id", item="item_id", value=value, time=time)
        return remote.described_by(events.catalog)
    columns: dict[str, Any] = {"user": source.user, "item": source.item, "value": source.value, "time": source.time}
    columns |= {"title": title, "min_value": source.threshold}
    try:
        table = read_spark_table(session, source.data)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            reason = str(error).splitlines()[0]
            raise InvalidInput(f"a table that Spark can read at {source.data}", reason, "Check the file") from None
        raise MissingFile("a file or folder that the cluster can read", source.data, "Check the path") from None
    if table_format(source.data) in TEXT_FORMATS:
        table = parse_text_columns(table, Columns.of(table.columns, **columns))
    remote = spark.interactions(table, **columns)
    return remote.k_core(source.k_core) if source.k_core else remote


def start_session(master: str | None) -> Any:
    """Return a session on this master, or on the one that `spark-submit` names."""
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


def table_format(path: str) -> str:
    """Return the format of a path: by its files if it exists here, else by its suffix. A remote folder is parquet."""
    if Path(path).exists():
        return file_format(find_event_files(path)[0])
    return file_format(Path(path)) if Path(path).suffix else ".parquet"


def read_spark_table(session: Any, path: str) -> Any:
    """Read a table by its format. Text files give text, because '007' must not become 7."""
    suffix = table_format(path)
    if suffix in TEXT_FORMATS:
        return session.read.csv(path, header=True, sep="," if suffix == ".csv" else "\t", quote='"', escape='"')
    return session.read.parquet(path) if suffix == ".parquet" else session.read.json(path)


def parse_text_columns(table: Any, columns: Columns) -> Any:
    """Return ids and times as integers where every text is one, values as numbers, and other times as numbers or dates."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    from gramian.spark.events import quoted_column  # noqa: PLC0415

    names = [name for name in (columns.user, columns.item, columns.time) if name is not None]
    is_integer = [
        F.bool_and(quoted_column(name).try_cast("bigint").cast("string").eqNullSafe(quoted_column(name))) for name in names
    ]
    types = {name: "bigint" for name, holds in zip(names, table.select(is_integer).first(), strict=True) if holds}
    if columns.time is not None and columns.time not in types:
        is_number = table.select(F.bool_and(quoted_column(columns.time).try_cast("double").isNotNull())).first()[0]
        types[columns.time] = "double" if is_number else "timestamp_ntz"
    if columns.value is not None:
        types[columns.value] = "double"
    return table.select([quoted_column(name).try_cast(types.get(name, "string")).alias(name) for name in table.columns])
