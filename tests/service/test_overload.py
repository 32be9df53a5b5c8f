"""No request stops the service: hostile bodies, full queues, abandoned work, and single requests beside large batches."""

import asyncio
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from numba import threading_layer
from starlette.responses import Response

from gramian.service import endpoints, served_model, work_queue
from gramian.service.app import create_app
from gramian.service.middleware.body_limits import BodyLimitMiddleware, BodyLimits
from gramian.service.model_registry import read_kernels
from gramian.service.served_model import SCORING_LOCK, ServedModel, one_core_lock
from service.helpers import TIMEOUT, connect, encode_request, expect_error, expect_ok, read_to_end, run_app, wait_until

read_kernels()  # so that Numba's kind of threads is known
JSON = {"content-type": "application/json"}
HOSTILE = {
    "null histories": ("/recommend/batch", json.dumps({"histories": [[None] * 1_300] * 1_000})),
    "null allowed": ("/recommend", json.dumps({"allow": [None] * 300_000})),
    "tags of numbers": ("/recommend", json.dumps({"deny_tags": [1] * 500_000})),
    "too many histories": ("/recommend/batch", json.dumps({"histories": [[]] * 100_000})),
    "weightless items": ("/recommend", json.dumps({"history": [{"item": 1}] * 100_000})),
    "fields of an item": ("/recommend", json.dumps({"history": [{str(n): n for n in range(100_000)}]})),
    "text": ("/recommend", json.dumps({"model": 1, "x": "x" * 1_900_000})),
}


@pytest.mark.parametrize(("path", "content"), HOSTILE.values(), ids=HOSTILE)
def test_validation_stops_at_the_first_errors(path, content, client):
    error = expect_error(client.post(path, content=content, headers=JSON), 422)
    n_more = error.partition("(and ")[2].partition(" more)")[0]
    assert int(n_more or 0) <= 5, error


def test_many_unknown_fields_are_counted_only(client):
    fields = json.dumps({f"field{n}": n for n in range(20_000)})
    assert "20,000 errors" in expect_error(client.post("/recommend", content=fields, headers=JSON), 422)


def test_the_last_of_repeated_fields_counts(client):
    response = client.post("/recommend", content=b'{"k": 0, "k": 3, "k": 2}', headers=JSON)
    assert len(expect_ok(response)["items"]) == 2


def test_large_integers_are_unknown_items(client):
    history = [10**4_000, -(10**30), 2**63, 260]
    assert expect_ok(client.post("/recommend", json={"history": history}))["unknown"] == history[:3]


def test_only_json_is_read(client):
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        expect_error(client.post("/recommend", content=b"{}", headers=headers), 415)
    expect_ok(client.post("/recommend", content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"}))


def test_bodies_share_a_limited_memory():
    async def answer(scope, receive, send):
        await Response(str(len((await receive())["body"])))(scope, receive, send)

    async def send_chunk(body, status_of, name, *, is_last):
        """Start a request, or go on with it, and let the middleware take what has arrived."""
        received[name].put_nowait({"type": "http.request", "body": body, "more_body": not is_last})
        for _ in range(10):
            await asyncio.sleep(0)
        return [message["status"] for message in status_of[name] if "status" in message]

    async def send_requests():
        middleware, sent, tasks = BodyLimitMiddleware(answer, BodyLimits(max_bytes=1_000, max_total_bytes=1_500)), {}, []
        for name in ("first", "second", "third"):
            received[name], sent[name] = asyncio.Queue(), []

            async def send(message, name=name):
                sent[name].append(message)

            scope = {"type": "http", "path": "/recommend", "headers": []}
            tasks.append(asyncio.create_task(middleware(scope, received[name].get, send)))
        assert await send_chunk(b"x" * 900, sent, "first", is_last=False) == []
        assert await send_chunk(b"x" * 900, sent, "second", is_last=False) == [503]
        assert (b"retry-after", b"1") in sent["second"][0]["headers"]
        assert await send_chunk(b"x" * 500, sent, "third", is_last=True) == [200]
        assert await send_chunk(b"x" * 100, sent, "first", is_last=True) == [200]
        await asyncio.gather(*tasks)
        assert middleware.total_bytes == 0

    received = {}
    asyncio.run(send_requests())


@pytest.mark.parametrize("name", ["edlae", "pca", "ials"])
def test_enormous_weights_are_answered_once_and_in_json(name, client):
    weighted = [{"item": item, "weight": 2.9e38} for item in (260, 1196, 1, 1210, 1198, 2028, 593, 480)]
    response = client.post("/recommend", json={"model": name, "history": weighted, "k": 500})
    assert response.headers["content-type"] == "application/json"
    assert response.status_code in (200, 422), response.text


def test_infinite_scores_are_refused_once_and_in_json(folders, monkeypatch):
    with run_app(create_app(folders[-1:])) as client, connect(client) as line:
        monkeypatch.setattr(ServedModel, "recommend_together", lambda self, requests: [{"score": float("inf")}])
        line.sendall(encode_request("/recommend", {}) + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = read_to_end(line)
        assert received.startswith(b"HTTP/1.1 422")
        assert b"Send smaller weights" in received
        assert received.count(b"HTTP/1.1") == 2


class Gate:
    """Make a method wait until the gate opens, and count its calls."""

    def __init__(self, monkeypatch, cls, name):
        self.is_open, self.n_calls, method = threading.Event(), 0, getattr(cls, name)

        def wait(*arguments, **options):
            self.n_calls += 1
            assert self.is_open.wait(TIMEOUT)
            return method(*arguments, **options)

        monkeypatch.setattr(cls, name, wait)


def test_a_full_queue_refuses_at_once(folders, monkeypatch):
    monkeypatch.setattr(endpoints, "MAX_SINGLES", 1)
    monkeypatch.setattr(endpoints, "MAX_BATCHES", 1)
    with run_app(create_app(folders[-1:])) as client, ThreadPoolExecutor(2) as pool:
        single, batch = Gate(monkeypatch, ServedModel, "recommend_together"), Gate(monkeypatch, ServedModel, "recommend_batch")
        waiting = [pool.submit(client.post, "/recommend", json={"history": [260]})]
        waiting += [pool.submit(client.post, "/recommend/batch", json={"histories": [[260]]})]
        wait_until(lambda: single.n_calls == batch.n_calls == 1)
        for path in ("/recommend", "/recommend/batch"):
            refused = client.post(path, json={})
            expect_error(refused, 503)
            assert refused.headers["retry-after"] == "1"
        expect_ok(client.get("/health"))
        expect_ok(client.get("/items"))
        single.is_open.set()
        batch.is_open.set()
        assert [future.result().status_code for future in waiting] == [200, 200]
        expect_ok(client.post("/recommend", json={}))


def test_a_request_that_waits_too_long_is_refused(folders, monkeypatch):
    with run_app(create_app(folders[-1:])) as client, ThreadPoolExecutor(1) as pool:
        gate = Gate(monkeypatch, ServedModel, "recommend_together")
        first = pool.submit(client.post, "/recommend", json={})
        wait_until(lambda: gate.n_calls == 1)
        monkeypatch.setattr(work_queue, "MAX_WAIT", 0.1)
        expect_error(client.post("/recommend", json={}), 503)
        gate.is_open.set()
        assert first.result().status_code == 200
        assert gate.n_calls == 1


def test_an_abandoned_batch_is_not_computed(folders, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "gramian.serve")
    request = encode_request("/recommend/batch", {"histories": [[260]] * 1_000})
    with run_app(create_app(folders[-1:])) as client:
        batch, ranking = Gate(monkeypatch, ServedModel, "recommend_batch"), Gate(monkeypatch, ServedModel, "_rank")
        batch.is_open.set()
        with connect(client) as running, connect(client) as waiting:
            running.sendall(request)
            wait_until(lambda: ranking.n_calls == 1)
            waiting.sendall(request)
            expect_ok(client.get("/health"))
        wait_until(lambda: caplog.text.count("/recommend/batch 499") == 2)
        expect_ok(client.get("/health"))  # in the turns of the event loop after the log, work that waits is cancelled
        ranking.is_open.set()
        expect_ok(client.post("/recommend/batch", json={"histories": [[260]]}))
        assert batch.n_calls == 2  # the first and the last
        assert ranking.n_calls == 2  # one slice of the first


def test_a_single_request_goes_before_the_rest_of_a_batch(folders, monkeypatch):
    with run_app(create_app(folders[-1:])) as client, ThreadPoolExecutor(1) as pool:
        gate = Gate(monkeypatch, ServedModel, "_rank")
        batch = pool.submit(client.post, "/recommend/batch", json={"histories": [[260]] * 1_000})
        wait_until(lambda: gate.n_calls == 1)
        monkeypatch.undo()  # later slices and single requests are ranked without a gate
        with httpx.Client(base_url=client.base_url, timeout=TIMEOUT) as other:
            expect_ok(other.post("/recommend", json={"history": [260]}))
        assert not batch.done()
        gate.is_open.set()
        assert len(expect_ok(batch.result())["lists"]) == 1_000


@pytest.mark.skipif(threading_layer() == "workqueue", reason="Numba's threads serve one caller at a time here")
def test_a_single_request_is_answered_while_a_batch_is_scored(folders):
    with run_app(create_app(folders[:1])) as client, SCORING_LOCK:
        expect_ok(client.post("/recommend", json={"history": [260]}))
        expect_ok(client.post("/explain", json={"history": [260], "item": 1}))
        expect_ok(client.get("/similar", params={"item": "260"}))


def test_a_single_request_waits_where_threads_serve_one_caller(monkeypatch):
    monkeypatch.setattr(served_model, "threading_layer", lambda: "workqueue")
    assert one_core_lock() is SCORING_LOCK


def test_a_damaged_journal_is_told_without_its_path(folders, tmp_path):
    journal = tmp_path / "journal.jsonl"
    journal.write_text("")
    with run_app(create_app(folders[-1:], journal=journal)) as client:
        expect_ok(client.get("/leaderboard"))
        journal.write_text("not a journal\n")
        for path in ("/leaderboard", "/models/popularity"):
            assert str(tmp_path) not in expect_error(client.get(path), 503)
        journal.unlink()
        expect_error(client.get("/leaderboard"), 503)
        expect_ok(client.post("/recommend", json={}))
