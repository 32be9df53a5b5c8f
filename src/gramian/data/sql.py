"""Read the rows of an SQL query: over DuckDB, an ADBC connection, or any address of SQLAlchemy."""

from __future__ import annotations

from typing import Any

import polars as pl

from gramian.errors import InvalidInput, NotSupported

DUCKDB_ADDRESS = "duckdb:///"


def read_query(query: str, connection: Any) -> pl.DataFrame:
    """Run a query and return its rows.

    Parameters
    ----------
    query
        An SQL query whose rows are events.
    connection
        An address: "duckdb:///events.duckdb", or any of SQLAlchemy such as "postgresql://user@host/name". Or an open
        connection of DuckDB, ADBC or SQLAlchemy, which stays open.
    """
    if not isinstance(query, str):
        raise InvalidInput("an SQL query", type(query).__name__, "Pass its text")
    try:
        if not isinstance(connection, str):
            return pl.read_database(query, connection, infer_schema_length=None)
        if connection.startswith(DUCKDB_ADDRESS):
            with _import_duckdb().connect(connection.removeprefix(DUCKDB_ADDRESS), read_only=True) as opened:
                return pl.read_database(query, opened)
        engine = _create_engine(connection)
        try:
            with engine.connect() as opened:
                return pl.read_database(query, opened, infer_schema_length=None)
        finally:
            engine.dispose()
    except (NotSupported, InvalidInput):
        raise
    except Exception as error:  # each driver has errors of its own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidInput("a query that the database answers", reason, "Check the query and the connection") from None


def _import_duckdb() -> Any:
    try:
        import duckdb  # noqa: PLC0415
    except ModuleNotFoundError:
        raise NotSupported("DuckDB, for this connection", "no such package", "Install gramian[sql]") from None
    return duckdb


def _create_engine(address: str) -> Any:
    try:
        from sqlalchemy import create_engine  # noqa: PLC0415
    except ModuleNotFoundError:
        raise NotSupported("SQLAlchemy, for this connection", "no such package", "Install gramian[sql]") from None
    try:
        return create_engine(address)
    except ModuleNotFoundError as error:
        raise NotSupported(
            f"the driver {error.name} for {address.partition(':')[0]}", "no such package", "Install it"
        ) from None
