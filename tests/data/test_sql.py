"""SQL queries over a real DuckDB file, SQLite and a real PostgreSQL that the test starts."""

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from datetime import datetime
from pathlib import Path

import duckdb
import polars as pl
import psycopg
import pytest
import sqlalchemy

import gramian as gr
from gramian.errors import NotSupported

ROWS = [(1, "a", 5.0, datetime(2020, 1, 1)), (2, "b", 4.0, datetime(2021, 1, 1)), (2, "a", 1.0, datetime(2022, 1, 1))]
CREATE = "create table plays (user_id integer, item_id text, rating double precision, moment timestamp)"
QUERY = "select user_id, item_id, rating, moment from plays where rating > 0"
EXPECTED = gr.Interactions.of(
    pl.DataFrame(ROWS, schema=["user_id", "item_id", "rating", "moment"], orient="row"), value="rating", time="moment"
)


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's programs; Debian keeps them out of the path."""
    candidates = [*Path("/usr/lib/postgresql").glob("*/bin"), Path(shutil.which("initdb") or "/nowhere").parent]
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


@pytest.fixture(scope="module")
def postgres():
    """The address of a PostgreSQL server with the events, started for these tests."""
    programs = find_postgres()
    if programs is None and "CI" not in os.environ:
        pytest.skip("no PostgreSQL on this machine")
    assert programs is not None
    account = {"user": "postgres"} if os.geteuid() == 0 else {}  # the server refuses to run as root
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, socket.socket() as free:
        if account:
            shutil.chown(folder, "postgres")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        cluster = Path(folder) / "cluster"

        def run(*words):
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, **account)
            assert done.returncode == 0, done.stdout + done.stderr

        run(programs / "initdb", "-D", cluster, "-U", "tester", "-A", "trust", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        run(programs / "pg_ctl", "-D", cluster, "-w", "-o", options, "-l", Path(folder) / "log", "start")
        address = f"postgresql://tester@127.0.0.1:{port}/postgres"
        try:
            with psycopg.connect(address) as connection, connection.cursor() as cursor:
                cursor.execute(CREATE)
                cursor.executemany("insert into plays values (%s, %s, %s, %s)", ROWS)
            yield address.replace("postgresql:", "postgresql+psycopg:")
        finally:
            run(programs / "pg_ctl", "-D", cluster, "-w", "-m", "immediate", "stop")


@pytest.fixture
def duckdb_file(tmp_path):
    path = tmp_path / "events.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(CREATE)
        connection.executemany("insert into plays values (?, ?, ?, ?)", ROWS)
    return path


def assert_same(events):
    assert events.fingerprint == EXPECTED.fingerprint
    assert events.times.tolist() == EXPECTED.times.tolist()
    assert events.read_summary.n_rows == 3


def test_a_duckdb_file_by_its_address_and_by_a_connection(duckdb_file):
    assert_same(gr.read(QUERY, connection=f"duckdb:///{duckdb_file}", value="rating", time="moment"))
    with duckdb.connect(duckdb_file, read_only=True) as connection:
        assert_same(gr.read(QUERY, connection=connection, value="rating", time="moment"))
        assert connection.sql("select 1").fetchall() == [(1,)]  # it stays open


def test_postgresql_by_its_address_and_by_an_engine(postgres):
    assert_same(gr.read(QUERY, connection=postgres, value="rating", time="moment"))
    engine = sqlalchemy.create_engine(postgres)
    with engine.connect() as connection:
        assert_same(gr.read(QUERY, connection=connection, value="rating", time="moment"))
    engine.dispose()


def test_options_of_reading_hold_for_queries(postgres):
    query = "select user_id, nullif(item_id, 'b') as item_id, rating from plays"
    events = gr.read(query, connection=postgres, min_value=("rating", 4), skip_nulls=True)
    assert str(events.read_summary) == (
        "read 3 rows: 1 interaction of 1 user with 1 item (1 below the threshold; 1 with nulls skipped)"
    )


def test_a_query_that_fails_is_refused_with_the_reason_of_the_database(postgres, duckdb_file, refused):
    for connection in (postgres, f"duckdb:///{duckdb_file}"):
        with refused(mentioning="nowhere"):
            gr.read("select * from nowhere", connection=connection)


def test_sqlite_by_its_address(tmp_path):
    with sqlite3.connect(tmp_path / "events.sqlite") as connection:
        connection.execute("create table plays (user_id integer, item_id text)")
        connection.executemany("insert into plays values (?, ?)", [row[:2] for row in ROWS])
    connection.close()
    events = gr.read("select * from plays", connection=f"sqlite:///{tmp_path / 'events.sqlite'}")
    assert events.n_interactions == 3


def test_a_connection_that_cannot_be_is_refused(tmp_path, refused):
    with refused(mentioning="nowhere.duckdb"):
        gr.read("select 1", connection=f"duckdb:///{tmp_path / 'nowhere.duckdb'}")
    with refused(mentioning="URL"):
        gr.read("select 1", connection="somewhere")
    with refused(NotSupported, mentioning="mysql"):
        gr.read("select 1", connection="mysql://localhost/events")


@pytest.mark.parametrize(("package", "address"), [("duckdb", "duckdb:///x.duckdb"), ("sqlalchemy", "postgresql://localhost/x")])
def test_a_missing_package_is_named_with_the_extra(package, address, monkeypatch, refused):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with refused(NotSupported, mentioning="Install gramian[sql]"):
        gr.read("select 1", connection=address)
