"""Every wrong request gets a 4xx and a sentence, and does no harm."""

import json
import socket

import pytest

from gramian.service.app import create_app
from gramian.service.middleware.body_limits import BodyLimits
from gramian.service.schemas import MAX_BATCH_SIZE, MAX_HISTORY_LENGTH, MAX_LIST_LENGTH
from service.helpers import connect, encode_request, expect_error, expect_ok, read_to_end, run_app

BAD = {
    "no json": ("POST", "/recommend", b"{", 422),
    "a list": ("POST", "/recommend", b"[]", 422),
    "not utf-8": ("POST", "/recommend", b'{"model": "\xff"}', 422),
    "half an emoji": ("POST", "/recommend", b'{"history": ["\\ud83d"]}', 422),
    "huge number": ("POST", "/recommend", b'{"history": [' + b"9" * 5_000 + b"]}", 422),
    "k of NaN": ("POST", "/recommend", b'{"k": NaN}', 422),
    "nothing": ("POST", "/recommend", b"", 422),
    "k of 0": ("POST", "/recommend", {"k": 0}, 422),
    "k too large": ("POST", "/recommend", {"k": MAX_LIST_LENGTH + 1}, 422),
    "k as text": ("POST", "/recommend", {"k": "10"}, 422),
    "k as true": ("POST", "/recommend", {"k": True}, 422),
    "long history": ("POST", "/recommend", {"history": [1] * (MAX_HISTORY_LENGTH + 1)}, 422),
    "history of null": ("POST", "/recommend", {"history": [None]}, 422),
    "history of lists": ("POST", "/recommend", {"history": [[1]]}, 422),
    "history as text": ("POST", "/recommend", {"history": "260"}, 422),
    "weight of 0": ("POST", "/recommend", {"history": [{"item": 260, "weight": 0}]}, 422),
    "weight of NaN": ("POST", "/recommend", b'{"history": [{"item": 260, "weight": NaN}]}', 422),
    "infinite weight": ("POST", "/recommend", b'{"history": [{"item": 260, "weight": 1e999}]}', 422),
    "misspelt": ("POST", "/recommend", {"histroy": [260]}, 422),
    "unknown model": ("POST", "/recommend", {"model": "nobody"}, 404),
    "unknown user": ("POST", "/recommend", {"user": "nobody"}, 404),
    "large batch": ("POST", "/recommend/batch", {"users": [1] * (MAX_BATCH_SIZE + 1)}, 422),
    "large batch of histories": ("POST", "/recommend/batch", {"histories": [[]] * (MAX_BATCH_SIZE + 1)}, 422),
    "long history in a batch": ("POST", "/recommend/batch", {"histories": [[1] * (MAX_HISTORY_LENGTH + 1)]}, 422),
    "no item": ("POST", "/explain", {"history": [260]}, 422),
    "unknown item": ("POST", "/explain", {"history": [260], "item": "nothing"}, 404),
    "no reasons": ("POST", "/explain", {"model": "popularity", "history": [260], "item": 1}, 409),
    "nothing similar": ("GET", "/similar?model=popularity&item=1", None, 409),
    "similar to nothing": ("GET", "/similar?item=nothing", None, 404),
    "similar without item": ("GET", "/similar", None, 422),
    "too many similar": ("GET", f"/similar?item=1&k={MAX_LIST_LENGTH + 1}", None, 422),
    "long words": ("GET", f"/items?query={'x' * 201}", None, 422),
    "no such model": ("GET", "/models/nobody", None, 404),
    "no journal": ("GET", "/leaderboard", None, 404),
    "nowhere": ("GET", "/nowhere", None, 404),
    "wrong method": ("GET", "/recommend", None, 405),
    "up and away": ("GET", "/page/%2e%2e%2fserve.py", None, 404),
    "a path": ("GET", "/page//etc/passwd", None, 404),
    "a model's path": ("GET", "/models/..%2f..%2fetc", None, 404),
}


@pytest.mark.parametrize(("method", "path", "body", "status"), BAD.values(), ids=BAD)
def test_bad_requests_are_told_so_in_a_sentence(method, path, body, status, client):
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    expect_error(client.request(method, path, content=content, headers={"content-type": "application/json"}), status)


def test_a_deep_body_does_no_harm(client):
    deep = b'{"history": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert client.post("/recommend", content=deep, headers={"content-type": "application/json"}).status_code in (400, 422)
    assert expect_ok(client.get("/health")) == {"status": "ok"}


def send_raw(client, *parts):
    """Return what the server answers to these bytes until it closes the connection."""
    with connect(client) as line:
        for part in parts:
            line.sendall(part)
        return read_to_end(line)


def test_bodies_are_limited_in_size_and_time(folders):
    head = b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with run_app(create_app(folders[-1:], limits=BodyLimits(max_bytes=2_000, max_seconds=0.5))) as client:
        expect_error(client.post("/recommend", json={"history": list(range(2_000))}), 413)
        chunked = send_raw(
            client, head + b"Transfer-Encoding: chunked\r\n\r\n", b"7d0\r\n" + b"x" * 2_000 + b"\r\n", b"1\r\nx\r\n"
        )
        assert chunked.startswith(b"HTTP/1.1 413")
        slow = send_raw(client, head + b"Content-Length: 100\r\n\r\n", b'{"history"')
        assert slow.startswith(b"HTTP/1.1 408")
        assert b"within 0.5 s" in slow
        expect_ok(client.post("/recommend", json={"history": [260]}))


def test_clients_that_go_away_do_no_harm(client):
    request = encode_request("/recommend/batch", {"histories": [[260, 1196]] * 500, "k": 100})
    for sent in (request, request[:150], request[:30]):
        for _ in range(5):
            with connect(client) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # closed at once
                line.sendall(sent)
    assert expect_ok(client.get("/ready")) == {"status": "ready"}
    expect_ok(client.post("/recommend", json={"history": [260]}))
