"""A real server for tests of the service, and what its responses must look like."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from gramian.service.http_protocol import ConnectionLimits
from gramian.service.server import LimitedServer

TIMEOUT = 120  # seconds: a busy machine may have to compile the kernels first


@contextmanager
def run_app(app, is_ready=True, **limits):
    """Serve an application on a real socket in a thread, and yield a client once it is ready."""
    server = LimitedServer(app, limits=ConnectionLimits(**limits))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        with httpx.Client(base_url=server.address, timeout=TIMEOUT) as client:
            wait_until(lambda: (client.get("/ready").status_code == 200) == is_ready)
            yield client
    finally:
        server.should_exit = True
        thread.join()


def wait_until(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def connect(client):
    """Return a socket that is connected to the server of a client."""
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=TIMEOUT)


def encode_request(path, content):
    """Return a POST request as bytes."""
    body = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_to_end(line):
    """Return what the server sends until it closes or resets the connection."""
    received = b""
    try:
        while more := line.recv(65_536):
            received += more
    except ConnectionError:
        pass
    return received


def expect_ok(response):
    """Expect status 200 and return the JSON."""
    assert response.status_code == 200, response.text
    return response.json()


def expect_error(response, status):
    """Expect a status and one sentence for a person."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    assert len(response.json()["error"].split()) >= 3
    return response.json()["error"]


def item_scores(ranked):
    """Return (item, approximate score) of a list."""
    return [(row["item"], pytest.approx(row["score"], rel=1e-4, abs=1e-6)) for row in ranked["items"]]


READ_TOKEN, ADMIN_TOKEN = "read-token-of-32-characters-0001", "admin-token-of-32-characters-001"
