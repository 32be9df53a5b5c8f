"""Limits on connections: clients that send slowly, send without end, or do not read. Other clients are served meanwhile."""

import json
import re
import socket
from contextlib import ExitStack, suppress

import httpx
import pytest

from gramian.service.app import create_app
from service.helpers import TIMEOUT, connect, encode_request, expect_ok, read_to_end, run_app, wait_until

UNFINISHED = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "


@pytest.fixture
def app(folders):
    return create_app(folders[-1:])


def test_unfinished_headers_lock_nobody_out(app):
    with run_app(app, max_connections=20) as client, ExitStack() as stack:
        lines = [stack.enter_context(connect(client)) for _ in range(100)]
        for line in lines:
            try:
                line.sendall(UNFINISHED)
            except ConnectionError:  # already closed to make room
                continue
            try:
                expect_ok(client.get("/health"))
            except httpx.ReadError:  # its idle connection was closed just then, to make room: a new one is accepted
                expect_ok(client.get("/health"))


@pytest.mark.parametrize("sent", [b"", UNFINISHED, b"\r\n"], ids=["nothing", "a part", "an empty line"])
def test_unfinished_requests_are_closed(app, sent):
    with run_app(app, header_seconds=0.3) as client, connect(client) as line:
        line.sendall(sent)
        assert read_to_end(line).startswith(b"HTTP/1.1 408")


def test_a_second_request_has_a_deadline_too(app):
    with run_app(app, header_seconds=0.3) as client, connect(client) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        line.sendall(UNFINISHED)
        received = read_to_end(line)
        assert received.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in received


def test_idle_connections_are_closed(app):
    with run_app(app, idle_seconds=1) as client, connect(client) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_to_end(line).startswith(b"HTTP/1.1 200")


def test_a_refused_request_must_send_its_body_in_time(app):
    with run_app(app, body_seconds=0.3) as client, connect(client) as line:
        line.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\nContent-Length: 100\r\n\r\nx")
        assert read_to_end(line).startswith(b"HTTP/1.1 403")


def test_endless_headers_are_refused(app):
    with run_app(app) as client, connect(client) as line:
        n_bytes, chunk = 0, b"x" * 100_000
        line.sendall(UNFINISHED)
        with suppress(ConnectionError):  # the server closes long before the end
            while n_bytes < 100_000_000:
                line.sendall(chunk)
                n_bytes += len(chunk)
        assert n_bytes < 20_000_000  # the buffers of both sockets


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Large: %b\r\n\r\n" % (b"x" * 140_000),
        b"GET /health HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"X-Many: 1\r\n" * 14_000),
        b"GET /health?%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 140_000),
    ],
    ids=["large", "many", "long url"],
)
def test_large_headers_are_refused(app, request_bytes):
    with run_app(app) as client, connect(client) as line:
        line.sendall(request_bytes)
        head, _, body = read_to_end(line).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431")
        assert "131,072" in json.loads(body)["error"]


def test_a_body_may_follow_in_parts(app):
    request = encode_request("/recommend", {"history": [1]})
    with run_app(app) as client, connect(client) as line:
        for start in range(0, len(request), 7):
            line.sendall(request[start : start + 7])
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = read_to_end(line)
        assert received.count(b"HTTP/1.1 200") == 2


def test_trailers_are_not_kept(app):
    head = b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    with run_app(app) as client, connect(client) as line:
        line.sendall(head + b"Connection: close\r\n\r\n2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n")
        assert read_to_end(line).startswith(b"HTTP/1.1 200")


def test_what_is_not_http_is_told_so_in_json(app):
    with run_app(app) as client, connect(client) as line:
        line.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        head, _, body = read_to_end(line).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert "not a valid HTTP request" in json.loads(body)["error"]


@pytest.mark.parametrize("header", [b"Host: y", b"Authorization: Bearer a\r\nAuthorization: Bearer b"])
def test_repeated_headers_are_refused(app, header):
    with run_app(app) as client, connect(client) as line:
        line.sendall(b"GET /models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n\r\n")
        assert read_to_end(line).startswith(b"HTTP/1.1 400")


def test_a_response_that_nobody_reads_is_given_up(app, folders):
    request = encode_request("/recommend/batch", {"histories": [[1]] * 400, "k": 500})
    with run_app(app, write_seconds=0.3) as client, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.settimeout(TIMEOUT)
        line.connect((client.base_url.host, client.base_url.port))
        line.sendall(request)
        head = line.recv(2_000)
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        wait_until(lambda: 'route="/recommend/batch",status="200"' in client.get("/metrics").text)  # counted when it has ended
        assert len(read_to_end(line)) < length
        expect_ok(client.post("/recommend/batch", json={"histories": [[1]]}))
