"""Where events come from besides files: standard input, addresses, arrow streams and DuckDB relations."""

import gzip
import io
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import gramian as gr
from command_line import gramian, ok
from gramian.data import read as reading
from gramian.data.sources import Source, find_sources, is_address

TABLE = pl.DataFrame({"user": [1, 2, 2], "item": ["a", "b", "a"], "rating": [5, 4, 1]})


def content(suffix):
    file = io.BytesIO()
    {".csv": TABLE.write_csv, ".parquet": TABLE.write_parquet, ".jsonl": TABLE.write_ndjson}[suffix](file)
    return file.getvalue()


CONTENTS = {suffix: content(suffix) for suffix in (".csv", ".parquet", ".jsonl")}


@pytest.fixture(scope="module")
def address():
    """A web server that answers ranges, which Polars asks for."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.respond(with_body=False)

        def do_GET(self):
            self.respond(with_body=True)

        def respond(self, with_body):
            body = CONTENTS.get("." + self.path.rpartition(".")[2])
            if body is None:
                self.send_error(404)
                return
            limits = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            start, stop = 0, len(body)
            if limits and limits[1]:
                start, stop = int(limits[1]), min(int(limits[2] or stop) + 1, stop)
            elif limits:
                start = max(stop - int(limits[2]), 0)
            self.send_response(206 if limits else 200)
            if limits:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
            self.send_header("Content-Length", str(stop - start))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if with_body:
                self.wfile.write(body[start:stop])

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("suffix", CONTENTS)
def test_an_address_is_fetched_by_polars(suffix, address):
    events = gr.read(f"{address}/events{suffix}", min_value=("rating", 4))
    assert events.fingerprint == gr.Interactions.of(TABLE, min_value=("rating", 4)).fingerprint
    assert events.read_summary.n_below == 1


def test_an_address_that_is_not_there_is_refused(address, refused):
    with refused(mentioning="nothing.txt"):
        gr.read(f"{address}/nothing.txt")


@pytest.mark.parametrize("scheme", ["http", "https", "s3", "gs", "az", "hf"])
def test_addresses_are_told_from_paths(scheme):
    assert is_address(f"{scheme}://bucket/events.parquet")
    assert find_sources(f"{scheme}://bucket/a.csv?token=1") == [Source(f"{scheme}://bucket/a.csv?token=1", ".csv")]


def test_an_address_of_parquet_is_handed_to_polars_as_it_is(monkeypatch):
    scanned = []

    def scan(paths, **options):
        scanned.extend(paths)
        return TABLE.lazy()

    monkeypatch.setattr(reading.pl, "scan_parquet", scan)
    assert gr.read("s3://bucket/day=1/events.parquet").n_interactions == 3
    assert set(scanned) == {"s3://bucket/day=1/events.parquet"}


def test_a_windows_path_is_no_address():
    assert not is_address("C:\\events.csv")
    assert not is_address("events.csv")


@pytest.mark.parametrize("suffix", CONTENTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_standard_input_is_read_by_its_first_bytes(suffix, pack, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(CONTENTS[suffix]))))
    assert gr.read("-").fingerprint == gr.Interactions.of(TABLE).fingerprint


def test_empty_standard_input_is_refused(monkeypatch, refused):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with refused(mentioning="standard input"):
        gr.read("-")


def test_a_duckdb_relation_and_arrow_streams_are_tables():
    expected = gr.Interactions.of(TABLE, value="rating").fingerprint
    arrow = pa.table(TABLE.to_dict(as_series=False))
    with duckdb.connect() as connection:
        relation = connection.sql("select * from arrow")
        assert gr.Interactions.of(relation, value="rating").fingerprint == expected
    assert gr.Interactions.of(arrow.to_reader(), value="rating").fingerprint == expected
    assert gr.Interactions.of(arrow.to_batches()[0], value="rating").fingerprint == expected

    class Capsule:
        columns = arrow.column_names

        def __arrow_c_stream__(self, requested_schema=None):
            return arrow.__arrow_c_stream__(requested_schema)

    assert gr.Interactions.of(Capsule(), value="rating").fingerprint == expected


# the command line


def test_the_command_line_reads_standard_input_and_says_what_it_read(monkeypatch, tmp_path):
    text = (
        "who;what;stars;when\n"
        + "".join(f"{u};{i};4,5;0{1 + u}/05/2011\n" for u in range(4) for i in range(3) if u != i)
        + ";1;1;\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    roles = ["--user", "who", "--item", "what", "--value", "stars", "--time", "when", "--time-format", "%d/%m/%Y"]
    done = gramian("fit", "-", *roles, "--skip-nulls", "--weight", "log", "--model", "ease(l2=1)", "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "read 10 rows: 9 interactions of 4 users with 3 items (1 with nulls skipped; separated by semicolons)"
    ]


def test_the_command_line_names_columns_separator_encoding_and_tags(tmp_path):
    path = tmp_path / "films.data"
    path.write_bytes("".join(f"{u}~{i}~Amélie {i}~a/b\n" for u in range(4) for i in range(3) if u != i).encode("latin-1"))
    words = ["--separator", "~", "--columns", "user,item,title,tags", "--encoding", "latin-1"]
    words += ["--title", "title", "--tags", "tags", "--tag-separator", "/"]
    ok("fit", path, *words, "--model", "ease(l2=1)", "--out", tmp_path / "m")
    catalog = gr.load(tmp_path / "m").catalog
    assert catalog.titles == ["Amélie 0", "Amélie 1", "Amélie 2"]
    assert catalog.tags[0] == ("a", "b")


def test_the_command_line_runs_a_query(tmp_path):
    address = f"duckdb:///{tmp_path / 'events.duckdb'}"
    with duckdb.connect(tmp_path / "events.duckdb") as connection:
        connection.execute(
            "create table plays as select u as user_id, i as item_id from range(4) a(u), range(3) b(i) where u <> i"
        )
    ok("fit", "select * from plays", "--connection", address, "--model", "ease(l2=1)", "--out", tmp_path / "m")
    assert len(gr.load(tmp_path / "m").catalog) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["movielens", "--separator", ";"], "no --separator with a named data set"),
        (["movielens", "--weight", "much"], "a weight among binary"),
        (["select 1", "--connection", "sqlite://", "--encoding", "latin-1"], "no encoding with a connection"),
        (["movielens", "--engine", "spark", "--weight", "log"], "no --weight with --engine spark"),
    ],
)
def test_options_that_would_be_ignored_are_refused(words, message, tmp_path):
    done = gramian("fit", *words, "--out", tmp_path / "m")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
