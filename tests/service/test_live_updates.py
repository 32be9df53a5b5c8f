"""Events and deletions over HTTP: durable, exactly once, equal to a refit, and without a trace of who was forgotten."""

import json
import weakref

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.cli.verify import parse_id
from gramian.core.receipts import read_receipt, verify_receipt
from gramian.errors import DamagedFile
from gramian.io.event_log import EventLog
from gramian.service import live_updates
from gramian.service.app import create_app
from gramian.service.middleware.access import Tokens
from gramian.service.model_registry import ModelRegistry
from gramian.service.server import run_server
from service.helpers import ADMIN_TOKEN, READ_TOKEN, expect_error, expect_ok, run_app, wait_until

WRITE_TOKEN = "write-token-of-32-characters-001"
pytestmark = pytest.mark.filterwarnings("ignore::gramian.errors.RefitWarning")


@pytest.fixture
def folder(texts, tmp_path):
    gr.EASE(l2=5).fit(texts).save(tmp_path / "ease")
    return tmp_path / "ease"


def send(client, *pairs, **fields):
    return client.post("/events", json={"events": [{"user": user, "item": item} for user, item in pairs], **fields})


def wait_for(client, number, name="ease"):
    def is_learned():
        return any(m["name"] == name and m["log_position"] >= number for m in client.get("/models").json()["models"])

    wait_until(is_learned)


def test_events_are_learned_and_equal_a_refit(folder, texts, tmp_path):
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        first = send(client, ("person-003", "item-07"), ("somebody new", "item-01"), ("somebody new", "a new item"), key="one")
        assert first.status_code == 202
        assert first.json()["is_new"]
        again = send(client, ("person-003", "item-08"), key="one")
        assert (again.json()["number"], again.json()["is_new"]) == (first.json()["number"], False)
        wait_for(client, first.json()["number"])
        history = expect_ok(client.post("/history", json={"user": "somebody new"}))
        assert {row["item"] for row in history["items"]} == {"item-01", "a new item"}
        lists = expect_ok(client.post("/recommend", json={"user": "person-003", "k": 5}))
        new = gr.Interactions.of(
            pl.DataFrame({"user": ["person-003", "somebody new", "somebody new"], "item": ["item-07", "item-01", "a new item"]})
        )
        refit = gr.EASE(l2=5).fit(texts.merge(new))
        assert [row["item"] for row in lists["items"]] == refit.recommend(["person-003"], k=5).items[0]
        metrics = client.get("/metrics").text
        assert 'gramian_pending_events{model="ease"} 0.0' in metrics
        assert 'gramian_update_lag_seconds{model="ease"} 0.0' in metrics
        assert 'gramian_applied_events_total{model="ease"} 3.0' in metrics


def test_a_restart_applies_what_was_acknowledged_exactly_once(folder, texts, tmp_path):
    log = EventLog(tmp_path / "log" / "ease.log") if (tmp_path / "log").mkdir() is None else None
    log.append(events=[("person-003", "item-07", 2.0)])  # acknowledged, and then the service was killed
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        wait_for(client, 1)
    assert gr.load(folder).log_position == 0  # not saved yet
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        number = send(client, ("person-004", "item-07")).json()["number"]
        wait_for(client, number)
        receipt = expect_ok(client.delete("/users/person-004"))  # saves
    saved = gr.load(folder)
    assert saved.log_position == 3
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        history = expect_ok(client.post("/history", json={"user": "person-003"}))
    before = dict(
        zip(*(texts.frame().filter(user_id="person-003")[name].to_list() for name in ("item_id", "value")), strict=True)
    )
    assert {row["item"]: row["weight"] for row in history["items"]}["item-07"] == before.get("item-07", 0) + 2
    assert receipt["interactions"] >= 6


def test_forgetting_leaves_no_trace_and_a_receipt_that_can_be_verified(folder, texts, tmp_path):
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        send(client, ("person-042", "item-01"), ("person-042", "item-02"), ("person-001", "item-03"))
        receipt = expect_ok(client.delete("/users/person-042"))
        expect_error(client.post("/recommend", json={"user": "person-042"}), 404)
        expect_error(client.delete("/users/person-042"), 404)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert {path.name for path in files} == {"manifest.json", "arrays.safetensors", "ids.json", "ease.log"}
        assert not [path for path in files if b"person-042" in path.read_bytes()]
        assert "person-042" not in json.dumps(receipt)
        (tmp_path / "receipt.json").write_text(json.dumps(receipt))
        checks = verify_receipt(read_receipt(tmp_path / "receipt.json"), folder, "person-042")
        assert len(checks) == 5
        assert all(holds for _, holds in checks)
    rest = np.flatnonzero([user != "person-042" for user in texts.users.tolist()])
    refit = gr.EASE(l2=5).fit(
        texts.take(rest).merge(gr.Interactions.of(pl.DataFrame({"user": ["person-001"], "item": ["item-03"]})))
    )
    np.testing.assert_allclose(gr.load(folder).weights(), refit.weights(), atol=1e-5)
    assert receipt["residual"] < receipt["bound"]
    assert receipt["before"] != receipt["after"]


def test_a_replaced_model_leaves_the_memory(folder, tmp_path):
    registry = ModelRegistry([folder])
    with run_app(create_app(registry, log=tmp_path / "log")) as client:
        for path, body in (("/recommend", {"user": "person-003"}), ("/influence", {"history": ["item-01"], "item": "item-02"})):
            expect_ok(client.post(path, json=body))
        expect_ok(client.get("/models/ease"))
        expect_ok(client.get("/items", params={"query": "item"}))
        before = weakref.ref(registry.models["ease"])
        expect_ok(client.delete("/users/person-003"))
        wait_until(lambda: before() is None)  # without a garbage collection, which may be far off


def test_a_receipt_does_not_hold_for_other_models(folder, texts, tmp_path):
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        receipt = expect_ok(client.delete("/users/person-042"))
    gr.EASE(l2=5).fit(texts).save(tmp_path / "with")
    failed = [check for check, holds in verify_receipt(receipt, tmp_path / "with", "person-043") if not holds]
    assert failed[0].startswith("The receipt is of 'person-043'")
    assert failed[1].startswith("None of the forgotten users")
    assert failed[2].endswith("byte for byte")
    wrong = gr.EASE(l2=5).fit(texts)
    wrong.scorer.inverse.buffer *= 1.1
    wrong.save(tmp_path / "wrong")
    assert not dict(verify_receipt(receipt, tmp_path / "wrong")).popitem()[1]
    assert any("equals a new fit" in check and not holds for check, holds in verify_receipt(receipt, tmp_path / "wrong"))
    assert parse_id("17", gr.Popularity().fit(gr.Interactions.of(pl.DataFrame({"user": [1], "item": [2]})))) == 17
    for content in ("", "[]", "{}", json.dumps(receipt | {"format": 2}), json.dumps(receipt | {"users": [1]})):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(DamagedFile, match="a receipt"):
            read_receipt(tmp_path / "bad.json")


def test_a_model_that_another_program_saved_goes_on_with_the_log(folder, texts, tmp_path):
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        number = send(client, ("somebody new", "item-01")).json()["number"]
        wait_for(client, number)
        gr.EASE(l2=50).fit(texts).save(folder)
        wait_until(lambda: client.get("/models").json()["models"][0]["recipe"]["params"]["l2"] == 50)
        wait_for(client, number)
        assert expect_ok(client.post("/history", json={"user": "somebody new"}))["total"] == 1


def test_an_update_that_fails_keeps_the_old_model(folder, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise gr.errors.Inaccurate("an update", "none", "Try again")

    monkeypatch.setattr(gr.Recommender, "observe", fail)
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        send(client, ("somebody new", "item-01"))
        wait_until(lambda: client.get("/models").json()["models"][0]["failed"] is not None)
        expect_ok(client.post("/recommend", json={"user": "person-003"}))
        assert 'gramian_updates_total{model="ease",result="failed"} 1.0' in client.get("/metrics").text
        assert 'gramian_pending_events{model="ease"} 1.0' in client.get("/metrics").text


def test_too_many_events_are_pushed_back(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(live_updates, "MAX_PENDING_EVENTS", 2)
    monkeypatch.setattr(live_updates.LiveModel, "apply", lambda self: None)
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        assert send(client, ("a", "item-01"), ("b", "item-01")).status_code == 202
        refused = send(client, ("c", "item-01"))
        expect_error(refused, 429)
        assert int(refused.headers["retry-after"]) >= 1
        expect_error(client.delete("/users/person-003"), 429)


@pytest.fixture(scope="module")
def others(folders, tmp_path_factory):
    """Models with whole numbers as ids, behind one service with a log."""
    with run_app(create_app(folders, log=tmp_path_factory.mktemp("log"))) as client:
        yield client


def test_models_that_cannot_learn_or_forget_say_why(others):
    body = {"events": [{"user": 1, "item": 260}]}
    assert "LRR" not in expect_error(others.post("/events", json=body | {"model": "pca"}), 409)
    assert "may keep a trace" in expect_error(others.delete("/users/1?model=ials"), 409)
    assert others.post("/events", json=body | {"model": "ials"}).status_code == 202
    assert others.post("/events", json=body | {"model": "popularity"}).status_code == 202


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"events": []}, 422),
        ({"events": [{"user": 1}]}, 422),
        ({"events": [{"user": "nobody", "item": 260}]}, 422),
        ({"events": [{"user": 1, "item": "../etc"}]}, 422),
        ({"events": [{"user": 1, "item": 260, "weight": 0}]}, 422),
        ({"events": [{"user": 1, "item": 260, "weight": "1e999"}]}, 422),
        ({"events": [{"user": 1, "item": 260}], "model": "../ease"}, 404),
        ({"events": [{"user": 1, "item": 260}], "key": "k" * 201}, 422),
        ({"events": [{"user": 1, "item": 260}] * 10_001}, 422),
        ({"events": [{"user": 1, "item": 260}], "path": "/tmp/x"}, 422),
    ],
)
def test_bad_events_are_refused(others, body, status):
    expect_error(others.post("/events", json=body), status)


def test_bad_deletions_are_refused(others):
    expect_error(others.delete("/users/987654321?model=ease"), 404)
    expect_error(others.delete("/users/..%2F..%2Fetc?model=ease"), 422)
    expect_error(others.post("/events", content="{}"), 415)
    expect_error(others.get("/events"), 405)


def test_a_service_without_a_log_changes_nothing(client):
    assert "--log" in expect_error(client.post("/events", json={"events": [{"user": 1, "item": 260}]}), 409)
    assert "--log" in expect_error(client.delete("/users/1"), 409)


def test_who_may_write(folder, tmp_path):
    tokens = Tokens(READ_TOKEN, ADMIN_TOKEN, WRITE_TOKEN)
    with run_app(create_app([folder], log=tmp_path / "log", tokens=tokens)) as client:

        def status(token, method="POST", path="/events"):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            body = {"events": [{"user": "a", "item": "item-01"}]} if path == "/events" else None
            return client.request(method, path, json=body, headers=headers).status_code

        assert [status(token) for token in (None, READ_TOKEN, WRITE_TOKEN, ADMIN_TOKEN)] == [401, 403, 202, 202]
        path = ("DELETE", "/users/person-003")
        assert [status(token, *path) for token in (None, READ_TOKEN, WRITE_TOKEN)] == [401, 403, 200]
        assert status(WRITE_TOKEN, "POST", "/reload") == 403
        assert status(WRITE_TOKEN, "GET", "/models") == 200


def test_a_log_that_other_machines_could_write_to_needs_a_token(tmp_path):
    options = {"port": 0, "max_connections": 5, "journal": None, "token_files": (None, None, None), "hosts": (), "origins": ()}
    with pytest.raises(gr.errors.InvalidInput, match="a write token"):
        run_server(None, host="0.0.0.0", quiet=True, log=tmp_path, **options)


def test_a_followed_folder_is_learned_line_by_line_exactly_once(folder, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    lines = [json.dumps({"user": "somebody new", "item": f"item-{i:02}", "weight": 1}) for i in range(4)]
    (source / "1.jsonl").write_text(
        lines[0] + "\nnot an event\n\n" + lines[1] + "\n" + lines[2][:9]
    )  # the last is being written
    options = {"log": tmp_path / "log", "follow": source}

    def items(client):
        response = client.post("/history", json={"user": "somebody new"})
        return {row["item"]: row["weight"] for row in response.json()["items"]} if response.status_code == 200 else {}

    with run_app(create_app([folder], **options)) as client:
        wait_until(lambda: len(items(client)) == 2)
        assert "gramian_skipped_lines_total 1.0" in client.get("/metrics").text
        (source / "1.jsonl").write_text(lines[0] + "\nnot an event\n\n" + lines[1] + "\n" + lines[2] + "\n")
        wait_until(lambda: len(items(client)) == 3)
    (source / "2.jsonl").write_text(lines[3] + "\n")
    with run_app(create_app([folder], **options)) as client:
        wait_until(lambda: len(items(client)) == 4)
        assert set(items(client).values()) == {1.0}
    with pytest.raises(gr.errors.MissingFile):
        create_app([folder], log=tmp_path / "log", follow=tmp_path / "nothing")
    with pytest.raises(gr.errors.InvalidInput, match="log=folder"):
        create_app([folder], follow=source)


def test_small_updates_are_subtracted_once_none_has_come_for_a_while(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(live_updates, "SETTLING_SECONDS", 3_600)
    registry = ModelRegistry([folder])

    def rank():
        return live_updates.deferred_rank(registry.models["ease"].model)

    with run_app(create_app(registry, log=tmp_path / "log")) as client:
        wait_until(lambda: registry.memories["ease"].spare)  # reserved before the first update
        wait_for(client, send(client, ("one", "item-01"), ("two", "item-02")).json()["number"])
        assert rank() == 2  # the first update does not rewrite the matrix either
        monkeypatch.setattr(live_updates, "CONSOLIDATED_RANK", 3)
        wait_for(client, send(client, ("three", "item-03")).json()["number"])
        wait_until(lambda: rank() == 0)
        wait_for(client, send(client, ("four", "item-04")).json()["number"])
        assert rank() == 1
        monkeypatch.setattr(live_updates, "SETTLING_SECONDS", 0)
        wait_until(lambda: rank() == 0)
