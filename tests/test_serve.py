"""The service over real sockets: the same answers as the library, and a sentence for everything that is wrong."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

import gramian as gr
from gramian.app.benchmark import Benchmark
from gramian.app.experiment import find
from gramian.app.guard import Limits, Tokens
from gramian.app.portrait import portrait
from gramian.app.serve import create_app
from gramian.app.shapes import BATCH, HISTORY, LONGEST
from gramian.app.shelf import Served, Shelf, plain
from gramian.data.synthetic import clustered
from gramian.models.scorers import Unfolded
from test_cli import gramian

SOON = 30  # seconds to wait for what takes none


@contextmanager
def serving(app):
    """A real server in a thread of its own, and a client of it."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SOON) as client:
            until(lambda: client.get("/ready").status_code == 200)
            yield client
    finally:
        server.should_exit = True
        thread.join()


def until(condition):
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def events():
    movies = gr.datasets.load("movielens", min_value=4).k_core(25)
    return movies.with_titles(dict(zip(movies.items.tolist(), movies.titles, strict=True)) | {1: "Amélie <b>of</b> Montmartre"})


@pytest.fixture(scope="module")
def models(events):
    recipes = {"edlae": gr.EDLAE(dropout=0.3, l2=50), "ease": gr.EASE(l2=50), "pca": gr.RegularizedPCA(rank=8, l2=10)}
    recipes |= {"ials": gr.IALS(rank=8, n_epochs=2), "popularity": gr.Popularity()}
    return {name: recipe.fit(events) for name, recipe in recipes.items()}


@pytest.fixture(scope="module")
def folders(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(root / name)
    return [root / name for name in models]


@pytest.fixture(scope="module")
def client(folders):
    with serving(create_app(folders)) as found:
        yield found


def ok(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer, status):
    """A status, and one sentence for a person."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    assert len(answer.json()["error"].split()) >= 3
    return answer.json()["error"]


def pairs(found):
    return [(row["item"], pytest.approx(row["score"], rel=1e-4, abs=1e-6)) for row in found["items"]]


# answers


@pytest.mark.parametrize("name", ["edlae", "ease", "pca", "ials", "popularity"])
def test_lists_are_those_of_the_library(name, models, client):
    model, some = models[name], [260, 1196, 1]
    expected = model.recommend_for([some], 5)
    found = ok(client.post("/recommend", json={"model": name, "history": some, "k": 5}))
    assert pairs(found) == list(zip(expected.items[0], expected.scores[0], strict=True))
    assert [row["title"] for row in found["items"]] == expected.titles[0]
    assert (found["model"], found["unknown"], found["fallback"]) == (name, [], False)
    user = model.users[3]
    expected = model.recommend([user], 5)
    assert pairs(ok(client.post("/recommend", json={"model": name, "user": user, "k": 5}))) == list(
        zip(expected.items[0], expected.scores[0], strict=True)
    )


def test_a_user_may_bring_more_items(models, client):
    model = models["edlae"]
    user = model.users[0]
    fresh = next(item for item in model.items if item not in model.history(user))
    expected = model.recommend_for([[*model.history(user), fresh]], 5)
    found = ok(client.post("/recommend", json={"user": user, "history": [fresh], "k": 5}))
    assert pairs(found) == list(zip(expected.items[0], expected.scores[0], strict=True))


def test_weights_count(models, client):
    weighted = [{"item": 260, "weight": 2.5}, 1196]
    expected = models["edlae"].recommend_for([{260: 2.5, 1196: 1}], 5)
    assert pairs(ok(client.post("/recommend", json={"history": weighted, "k": 5}))) == list(
        zip(expected.items[0], expected.scores[0], strict=True)
    )


def test_a_batch_is_its_lists_one_by_one(models, client):
    users, histories = models["ease"].users[:3], [[260], [1196, 1, "nobody's"], []]
    ask = {"model": "ease", "k": 4}
    found = ok(client.post("/recommend/batch", json=ask | {"users": [*users, "stranger"], "histories": histories}))
    singles = [ok(client.post("/recommend", json=ask | {"user": user})) | {"user": user} for user in users]
    singles += [{"user": "stranger", "items": [], "unknown": [], "fallback": False, "model": "ease"}]
    singles += [ok(client.post("/recommend", json=ask | {"history": history})) for history in histories]
    for one, own in zip(singles, found["lists"], strict=True):
        assert pairs(one) == [(row["item"], row["score"]) for row in own["items"]]
        assert {name: value for name, value in one.items() if name not in ("items", "model")} == {
            name: value for name, value in own.items() if name != "items"
        }
    assert found["unknown_users"] == ["stranger"]
    assert found["lists"][5]["unknown"] == ["nobody's"]
    assert found["lists"][6]["fallback"]
    assert ok(client.post("/recommend/batch", json={}))["lists"] == []


def test_filters(models, events, client):
    tags = dict(zip(events.items.tolist(), events.tags, strict=True))

    def asked(**filters):
        return [
            row["item"] for row in ok(client.post("/recommend", json={"history": [260, 1196], "k": 500} | filters))["items"]
        ]

    everything = asked()
    assert set(everything) == set(events.items.tolist()) - {260, 1196}
    assert asked(allow_tags=["Comedy"]) == [item for item in everything if "Comedy" in tags[item]]
    assert asked(deny_tags=["Comedy", "Drama"]) == [item for item in everything if not {"Comedy", "Drama"} & set(tags[item])]
    assert asked(allow=["1", 2858, "none"], deny=[1]) == [2858]
    both = asked(allow_tags=["Comedy"], deny_tags=["Romance"], deny=everything[:3])
    assert both == [i for i in everything[3:] if "Comedy" in tags[i] and "Romance" not in tags[i]]
    assert asked(allow_tags=[]) == asked(allow=[]) == asked(allow_tags=["no such tag"]) == []
    assert {260, 1196} <= set(asked(exclude_seen=False))


@pytest.mark.parametrize("name", ["edlae", "pca", "ials"])
def test_reasons_add_up_to_the_score(name, models, client):
    history = [260, 1196, 1, 2858]
    listed = ok(client.post("/recommend", json={"model": name, "history": history, "k": 3}))["items"]
    for row in listed:
        found = ok(client.post("/explain", json={"model": name, "history": [*history, "?"], "item": row["item"]}))
        parts = [part["value"] for part in found["contributions"]]
        assert found["score"] == pytest.approx(row["score"], rel=1e-4)
        assert sum(parts) == pytest.approx(found["score"], rel=1e-9)
        assert sorted(parts, key=abs, reverse=True) == parts
        assert {part["item"] for part in found["contributions"]} == set(history)
        assert (found["unknown"], found["title"]) == (["?"], row["title"])
        expected = models[name].explain(history, row["item"])
        assert {part["item"]: pytest.approx(part["value"]) for part in found["contributions"]} == dict(expected)


def test_similar_items(models, client):
    expected = models["ease"].similar_items(260, 4)
    found = ok(client.get("/similar", params={"model": "ease", "item": 260, "k": 4}))
    assert pairs(found) == list(zip(expected.items[0], expected.scores[0], strict=True))
    assert found["item"] == 260


def test_items_are_found_by_words_and_by_ids(client):
    found = ok(client.get("/items", params={"query": "STAR w", "limit": 2}))["items"]
    assert [row["title"][:18] for row in found] == ["Star Wars: Episode"] * 2
    assert found[0]["users"] >= found[1]["users"]
    assert "Sci-Fi" in found[0]["tags"]
    assert ok(client.get("/items", params={"query": "amelie"}))["items"][0]["item"] == 1
    assert ok(client.get("/items", params={"query": "no such film"})) == {"items": [], "unknown": []}
    by_id = ok(client.get("/items", params={"id": ["1196", "none", "260"]}))
    assert ([row["item"] for row in by_id["items"]], by_id["unknown"]) == ([1196, 260], ["none"])
    assert len(ok(client.get("/items"))["items"]) == 20


def test_words_are_found_without_case_and_accents():
    assert plain("Éowyn's STRASSE Ä") == plain("eowyn's straße a")


def test_models_are_listed_with_their_facts(models, events, client):
    found = ok(client.get("/models"))["models"]
    assert [row["name"] for row in found] == list(models)
    assert found[0]["recipe"] == models["edlae"].recipe.to_json()
    assert (found[0]["users"], found[0]["items"], found[0]["interactions"]) == (
        events.n_users,
        events.n_items,
        events.n_interactions,
    )
    assert found[0]["words"] == "EDLAE(dropout=0.3, l2=50)"
    assert found[0]["tags"] == sorted({tag for own in events.tags for tag in own})
    assert [row["failed"] for row in found] == [None] * len(found)


@pytest.mark.parametrize("name", ["edlae", "pca", "ials", "popularity"])
def test_a_model_has_a_portrait(name, models, client):
    found = ok(client.get(f"/models/{name}"))
    assert found["popularity"]["items"][-1] == found["popularity"]["events"][-1] == found["popularity"]["lists"][-1] == 1
    for curve in found["popularity"].values():
        assert (np.diff(curve) >= 0).all()
    if name == "pca":
        singular = np.linalg.svd(models["pca"].weights(), compute_uv=False)[:8]
        assert found["picture"]["values"] == pytest.approx(singular.tolist(), rel=1e-3)
    elif name == "ials":
        assert found["picture"]["values"] == pytest.approx(np.linalg.svd(models[name].factors()[1])[1].tolist(), rel=1e-4)
    elif name == "edlae":
        n = models["edlae"].events.n_items
        assert sum(found["picture"]["counts"]) == 64 * (n - 1)
        assert found["picture"]["edges"][0] == -found["picture"]["edges"][-1]
    else:
        assert found["picture"] is None
    assert found["measured"] == []


def test_a_model_that_always_lists_the_same_is_the_most_popular():
    curve = portrait(Served("p", gr.Popularity().fit(clustered(200, 500, 3_000))))["popularity"]
    assert curve["lists"][20] == 1  # nobody is shown more than the first fifth
    assert curve["events"][20] < 1


def test_the_leaderboard_is_the_journal(folders, tmp_path):
    journal = tmp_path / "own.jsonl"
    experiment = find("movielens").only([], ["Popularity"])
    Benchmark(journal).run(experiment)
    with serving(create_app(folders[-1:], journal=journal)) as client:
        (table,) = ok(client.get("/leaderboard"))["tables"]
        ((data,), (row,)) = table["data"], table["data"][0]["rows"]
        assert (table["name"], data["name"], row["model"]) == ("movielens", "movielens", "Popularity")
        fit = next(iter(Benchmark(journal).fits.values()))
        assert {name: own["ours"] for name, own in row["figures"].items()} == fit["metrics"]
        assert (row["seconds"], row["peak_bytes"]) == (fit["seconds"], fit["peak_bytes"])
        assert ok(client.get("/models/popularity"))["measured"] == [{"data": "movielens", "metrics": fit["metrics"]}]
        journal.write_text("")
        assert ok(client.get("/leaderboard"))["tables"] == []


@pytest.mark.parametrize(
    ("ids", "sent"),
    [
        (["a", "b,c", "ü<b>"], ["a", "b,c", "ü<b>"]),
        ([10, 2, 3], [10, "2", 3]),
        ([uuid.UUID(int=i) for i in (1, 2, 3)], [str(uuid.UUID(int=i)) for i in (1, 2, 3)]),
        ([1.5, 2.5, 3.0], ["1.5", "2.5", "3.0"]),
        ([b"\x01", b"\x02", b"\xff"], ["01", "02", "ff"]),
    ],
    ids=["text", "numbers", "uuid", "fractions", "bytes"],
)
def test_ids_of_any_kind_are_sent_and_understood(ids, sent, tmp_path):
    table = {"user_id": [0, 0, 1, 1, 2, 2], "item_id": [ids[i] for i in (0, 1, 1, 2, 0, 2)]}
    gr.EASE(l2=1).fit(gr.Interactions.of(pd.DataFrame(table))).save(tmp_path / "m")
    served = Shelf([tmp_path / "m"])["m"]
    listed = served.lists(served.histories([sent[:2], [5, "", "x" * 5_000]]), 3)
    assert [row["item"] for row in listed[0].items] == [sent[2]]
    assert (listed[0].unknown, listed[1].unknown, listed[1].fallback) == ([], [5, "", "x" * 5_000], True)


def test_ids_that_no_request_can_name_are_refused(tmp_path):
    pairs_of_numbers = pl.DataFrame({"user_id": [0, 1], "item_id": [[1, 2], [3, 4]]})
    gr.EASE().fit(gr.Interactions.of(pairs_of_numbers)).save(tmp_path / "m")
    with pytest.raises(gr.errors.NotSupported, match="ids that a request can name"):
        Shelf([tmp_path / "m"])


def test_an_unfolded_model_gives_the_same_lists(models):
    folded = models["edlae"].scorer
    *_, unfolded = Unfolded.steps(folded)
    histories = models["edlae"].events.matrix[:70]
    assert np.array_equal(unfolded.rows, folded.weights())
    for n in (1, 70):
        scores = np.hstack([panel.copy() for _, panel in unfolded.panels(histories[:n])])
        assert np.allclose(scores, histories[:n] @ folded.weights(), atol=1e-5)


# what is wrong


BAD = {
    "no json": ("POST", "/recommend", b"{", 422),
    "a list": ("POST", "/recommend", b"[]", 422),
    "not utf-8": ("POST", "/recommend", b'{"model": "\xff"}', 400),
    "k of 0": ("POST", "/recommend", {"k": 0}, 422),
    "k too large": ("POST", "/recommend", {"k": LONGEST + 1}, 422),
    "k as text": ("POST", "/recommend", {"k": "10"}, 422),
    "k as true": ("POST", "/recommend", {"k": True}, 422),
    "long history": ("POST", "/recommend", {"history": [1] * (HISTORY + 1)}, 422),
    "history of null": ("POST", "/recommend", {"history": [None]}, 422),
    "history of lists": ("POST", "/recommend", {"history": [[1]]}, 422),
    "history as text": ("POST", "/recommend", {"history": "260"}, 422),
    "weight of 0": ("POST", "/recommend", {"history": [{"item": 260, "weight": 0}]}, 422),
    "weight of NaN": ("POST", "/recommend", b'{"history": [{"item": 260, "weight": NaN}]}', 422),
    "infinite weight": ("POST", "/recommend", b'{"history": [{"item": 260, "weight": 1e999}]}', 422),
    "misspelt": ("POST", "/recommend", {"histroy": [260]}, 422),
    "unknown model": ("POST", "/recommend", {"model": "nobody"}, 404),
    "unknown user": ("POST", "/recommend", {"user": "nobody"}, 404),
    "large batch": ("POST", "/recommend/batch", {"users": [1] * (BATCH + 1)}, 422),
    "large batch of histories": ("POST", "/recommend/batch", {"histories": [[]] * (BATCH + 1)}, 422),
    "long history in a batch": ("POST", "/recommend/batch", {"histories": [[1] * (HISTORY + 1)]}, 422),
    "no item": ("POST", "/explain", {"history": [260]}, 422),
    "unknown item": ("POST", "/explain", {"history": [260], "item": "nothing"}, 404),
    "no reasons": ("POST", "/explain", {"model": "popularity", "history": [260], "item": 1}, 409),
    "nothing similar": ("GET", "/similar?model=popularity&item=1", None, 409),
    "similar to nothing": ("GET", "/similar?item=nothing", None, 404),
    "similar without item": ("GET", "/similar", None, 422),
    "too many similar": ("GET", f"/similar?item=1&k={LONGEST + 1}", None, 422),
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
    refused(client.request(method, path, content=content, headers={"content-type": "application/json"}), status)


def test_half_an_emoji_comes_back_as_it_was_sent(client):
    found = client.post("/recommend", content=b'{"history": ["\\ud83d"]}', headers={"content-type": "application/json"})
    assert ok(found)["unknown"] == ["\ud83d"]


def test_a_deep_body_does_no_harm(client):
    deep = b'{"history": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert client.post("/recommend", content=deep, headers={"content-type": "application/json"}).status_code in (400, 422)
    assert ok(client.get("/health")) == {"status": "ok"}


def raw(client, *parts):
    """What the server answers to these bytes, until it closes."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=SOON) as line:
        for part in parts:
            line.sendall(part)
        found = b""
        while more := line.recv(65_536):
            found += more
        return found


def test_bodies_are_limited_in_size_and_time(folders):
    head = b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with serving(create_app(folders[-1:], limits=Limits(body=2_000, seconds=0.5))) as client:
        refused(client.post("/recommend", json={"history": list(range(2_000))}), 413)
        chunked = raw(client, head + b"Transfer-Encoding: chunked\r\n\r\n", b"7d0\r\n" + b"x" * 2_000 + b"\r\n", b"1\r\nx\r\n")
        assert chunked.startswith(b"HTTP/1.1 413")
        slow = raw(client, head + b"Content-Length: 100\r\n\r\n", b'{"history"')
        assert slow.startswith(b"HTTP/1.1 408")
        assert b"within 0.5 s" in slow
        ok(client.post("/recommend", json={"history": [260]}))


def test_clients_that_go_away_do_no_harm(client):
    content = json.dumps({"histories": [[260, 1196]] * 500, "k": 100}).encode()
    head = (
        f"POST /recommend/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    for sent in (head.encode() + content, head.encode() + content[:50], head.encode()[:30]):
        for _ in range(5):
            with socket.create_connection((client.base_url.host, client.base_url.port)) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # closed at once
                line.sendall(sent)
    assert ok(client.get("/ready")) == {"status": "ready"}
    ok(client.post("/recommend", json={"history": [260]}))


# who may ask


READ, ADMIN = "read-token-of-32-characters-0001", "admin-token-of-32-characters-001"


@pytest.mark.parametrize(
    ("tokens", "given", "reading", "reloading"),
    [
        (Tokens(), None, 200, 200),
        (Tokens(READ, ADMIN), None, 401, 401),
        (Tokens(READ, ADMIN), "wrong", 401, 401),
        (Tokens(READ, ADMIN), READ[:-1], 401, 401),
        (Tokens(READ, ADMIN), READ, 200, 403),
        (Tokens(READ, ADMIN), ADMIN, 200, 200),
        (Tokens(READ), READ, 200, 403),
        (Tokens(admin=ADMIN), None, 200, 401),
        (Tokens(admin=ADMIN), ADMIN, 200, 200),
    ],
)
def test_tokens(tokens, given, reading, reloading, folders, caplog):
    caplog.set_level(logging.INFO, "gramian.serve")
    with serving(create_app(folders[-1:], tokens=tokens)) as client:
        headers = {} if given is None else {"authorization": f"Bearer {given}"}
        for path in ("/models", "/models/popularity", "/items", "/metrics"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == reading
            assert ("www-authenticate" in answer.headers) == (reading == 401)
        assert client.post("/recommend", json={}, headers=headers).status_code == reading
        assert client.post("/reload", headers=headers).status_code == reloading
        for path in ("/", "/health", "/ready", "/docs", "/openapi.json", "/page/style.css"):
            assert client.get(path).status_code == 200
        assert client.get(f"/items?token={READ}", headers={"authorization": f"Basic {given}"}).status_code in (200, 401)
    assert "GET /models" in caplog.text
    assert READ not in caplog.text
    assert ADMIN not in caplog.text


def test_other_names_and_other_pages_are_refused(folders):
    with serving(create_app(folders[-1:], hosts=["127.0.0.1", "mine.example"], origins=["https://ours.example"])) as client:
        ok(client.get("/models"))
        ok(client.get("/models", headers={"host": "mine.example:8000"}))
        refused(client.get("/models", headers={"host": "evil.example"}), 400)
        refused(client.get("/models", headers={"host": "evil.example:127.0.0.1"}), 400)
        refused(client.get("/models", headers={"origin": "https://evil.example"}), 403)
        refused(client.post("/reload", headers={"origin": "null"}), 403)
        own = client.get("/models", headers={"origin": str(client.base_url)})
        assert "access-control-allow-origin" not in own.headers
        allowed = client.get("/models", headers={"origin": "https://ours.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://ours.example"
        asked = {"origin": "https://ours.example", "access-control-request-method": "POST"}
        assert (
            client.options("/recommend", headers=asked | {"access-control-request-headers": "content-type"}).status_code == 200
        )


def test_other_sites_are_refused_unless_told(client):
    refused(client.get("/models", headers={"origin": "https://evil.example"}), 403)
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in client.options("/recommend", headers=asked).headers


@pytest.mark.parametrize("path", ["/", "/models", "/nowhere", "/page/app.js", "/docs", "/similar"])
def test_every_answer_has_the_security_headers(path, client):
    headers = client.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers or headers["server"] == "uvicorn"  # which `gramian serve` takes away
    assert headers["cache-control"] in ("no-store", "no-cache")


# the description


def test_the_description_needs_no_network(client):
    page = client.get("/docs").text
    assert "POST /recommend/batch" in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "<script" not in page
    for path in ok(client.get("/openapi.json"))["paths"]:
        assert path in page


def test_metrics_are_for_prometheus(client):
    ok(client.post("/recommend", json={"model": "ease", "history": [260]}))
    client.get("/nowhere/123")
    text = client.get("/metrics").text
    assert 'gramian_requests_total{route="/recommend",status="200"}' in text
    assert 'gramian_request_seconds_bucket{le="0.025",route="/recommend"}' in text
    assert 'gramian_lists_total{model="ease"}' in text
    assert "123" not in {line.partition('route="')[2].partition('"')[0] for line in text.splitlines()}
    assert "process_resident_memory_bytes" in text


OPERATIONS = ["POST /recommend", "POST /recommend/batch", "GET /similar", "POST /explain", "GET /items", "GET /models"]
OPERATIONS += ["GET /models/{name}", "GET /leaderboard", "POST /reload", "GET /health", "GET /ready", "GET /metrics"]


@pytest.fixture(scope="module")
def described(client):
    found = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json").get_all_operations()
    return {operation.ok().label: operation.ok() for operation in found}


def test_every_operation_is_tried(described):
    assert sorted(described) == sorted(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_whatever_is_asked_the_answer_is_as_described(operation, mode, described, client):
    """Requests that keep to the description and requests that do not, made by a program that has only read it."""
    if mode is GenerationMode.NEGATIVE and operation in OPERATIONS[-7:]:
        return  # there is nothing to be wrong about

    @given(described[operation].as_strategy(generation_mode=mode))
    @settings(max_examples=40, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    def tried(case):
        case.call_and_validate(excluded_checks=[schemathesis.checks.positive_data_acceptance])

    tried()


# models that are replaced


@pytest.fixture
def place(tmp_path, models):
    models["ease"].save(tmp_path / "m")
    return tmp_path / "m"


def recipe(client):
    return ok(client.get("/models"))["models"][0]["recipe"]


def test_a_replaced_model_is_picked_up(place, models):
    with serving(create_app([place])) as client:
        assert recipe(client)["name"] == "EASE"
        models["edlae"].save(place)
        until(lambda: recipe(client)["name"] == "EDLAE")
        models["pca"].save(place)
        assert ok(client.post("/reload")) == {"models": {"m": True}, "failed": {}}
        assert recipe(client)["name"] == "RegularizedPCA"
        assert ok(client.post("/reload")) == {"models": {"m": False}, "failed": {}}
        assert 'gramian_reloads_total{model="m",result="replaced"} 2.0' in client.get("/metrics").text


def test_a_broken_model_never_takes_the_place_of_a_good_one(place, models, tmp_path):
    with serving(create_app([place])) as client:
        models["edlae"].save(tmp_path / "other")
        arrays = tmp_path / "other" / "arrays.safetensors"
        arrays.write_bytes(arrays.read_bytes()[:-1])
        shutil.rmtree(place)
        ok(client.post("/recommend", json={"history": [260]}))  # from what was mapped
        shutil.move(tmp_path / "other", place)
        until(lambda: ok(client.get("/models"))["models"][0]["failed"])
        said = ok(client.get("/models"))["models"][0]["failed"]
        assert "truncated" in said
        assert str(tmp_path) not in said
        assert recipe(client)["name"] == "EASE"
        assert "truncated" in ok(client.post("/reload"))["failed"]["m"]
        ok(client.post("/recommend", json={"history": [260]}))
        models["edlae"].save(place)
        until(lambda: recipe(client)["name"] == "EDLAE")
        assert ok(client.get("/models"))["models"][0]["failed"] is None
        shutil.rmtree(place)
        assert "nothing there" in ok(client.post("/reload"))["failed"]["m"]
        ok(client.post("/recommend", json={"history": [260]}))


def test_no_request_is_dropped_while_models_are_replaced(place, models):
    stop, wrong, asked = threading.Event(), [], [0]
    names = ("ease", "edlae")
    expected = [models[name].recommend_for([[260, 1196]], 5) for name in names]
    lists = [tuple(found.items[0]) for found in expected]

    def ask(client):
        with httpx.Client(base_url=client.base_url, timeout=SOON) as own:
            while not stop.is_set():
                found = own.post("/recommend", json={"history": [260, 1196], "k": 5})
                items = tuple(row["item"] for row in found.json().get("items", ()))
                asked[0] += 1
                if found.status_code != 200 or items not in lists:
                    wrong.append(found.text)

    with serving(create_app([place])) as client:
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            models[names[(turn + 1) % 2]].save(place)
            ok(client.post("/reload"))
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert asked[0] > 6


# the command


def command(*words, **environment):
    line = [sys.executable, "-c", "from gramian.app.cli import run; run()", "serve", *map(str, words)]
    return subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as line:
        return line.getsockname()[1]


def test_the_command_serves_until_it_is_interrupted(folders, tmp_path):
    port = free_port()
    (tmp_path / "token").write_text(f"{READ}\n")
    words = [folders[-1], "--port", port, "--read-token", tmp_path / "token"]
    with command(*words, GRAMIAN_ADMIN_TOKEN=ADMIN) as process:
        base = f"http://127.0.0.1:{port}"

        def answers():
            assert process.poll() is None, process.stderr.read()
            try:
                return httpx.get(f"{base}/ready").status_code == 200
            except httpx.TransportError:
                return False

        until(answers)
        assert httpx.get(f"{base}/models").status_code == 401
        found = httpx.get(f"{base}/models", headers={"authorization": f"Bearer {READ}"})
        assert [row["name"] for row in ok(found)["models"]] == ["popularity"]
        assert "server" not in found.headers
        assert httpx.post(f"{base}/reload", headers={"authorization": f"Bearer {ADMIN}"}).status_code == 200
        assert httpx.get(f"{base}/health", headers={"host": "evil.example"}).status_code == 400
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SOON)
    assert process.returncode in (0, -signal.SIGINT, 130)
    assert f"Serving popularity at {base}" in said
    assert "GET /models 200" in said
    assert READ not in said
    assert ADMIN not in said
    assert "Traceback" not in said


WRONG = {
    "no folder": (["missing"], {}, "nothing there"),
    "twice": (["popularity", "popularity"], {}, "two folders named popularity"),
    "short token": (["popularity"], {"GRAMIAN_READ_TOKEN": "short"}, "a token of at least 16"),
    "no token file": (["popularity", "--read-token", "missing"], {}, "a token in missing"),
    "no journal": (["popularity", "--journal", "missing.jsonl"], {}, "a benchmark's journal at missing.jsonl"),
}


@pytest.mark.parametrize(("words", "environment", "said"), WRONG.values(), ids=WRONG)
def test_wrong_commands_are_told_so(words, environment, said, folders, monkeypatch):
    monkeypatch.chdir(folders[0].parent)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = gramian("serve", *words)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr


def test_a_port_that_is_taken_is_told_so(folders):
    with socket.create_server(("127.0.0.1", 0)) as line, command(folders[-1], "--port", line.getsockname()[1]) as process:
        _, said = process.communicate(timeout=SOON)
    assert process.returncode == 2
    assert "Traceback" not in said
    assert "Choose another with --port" in said


def test_no_file_but_the_page_is_sent():
    page = Path(gr.__file__).parent / "app" / "page"
    assert {path.suffix for path in page.iterdir()} <= {".html", ".js", ".css", ".svg"}
