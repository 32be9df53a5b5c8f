"""Tokens, hosts, origins, security headers, errors and metrics."""

import logging

import pytest

from gramian.service.app import create_app
from gramian.service.middleware.access import Tokens
from gramian.service.served_model import ServedModel
from service.helpers import ADMIN_TOKEN, READ_TOKEN, expect_error, expect_ok, run_app


@pytest.mark.parametrize(
    ("tokens", "sent", "reading", "reloading"),
    [
        (Tokens(), None, 200, 200),
        (Tokens(READ_TOKEN, ADMIN_TOKEN), None, 401, 401),
        (Tokens(READ_TOKEN, ADMIN_TOKEN), "wrong", 401, 401),
        (Tokens(READ_TOKEN, ADMIN_TOKEN), READ_TOKEN[:-1], 401, 401),
        (Tokens(READ_TOKEN, ADMIN_TOKEN), READ_TOKEN, 200, 403),
        (Tokens(READ_TOKEN, ADMIN_TOKEN), ADMIN_TOKEN, 200, 200),
        (Tokens(READ_TOKEN), READ_TOKEN, 200, 403),
        (Tokens(admin=ADMIN_TOKEN), None, 200, 401),
        (Tokens(admin=ADMIN_TOKEN), ADMIN_TOKEN, 200, 200),
    ],
)
def test_tokens(tokens, sent, reading, reloading, folders, caplog):
    caplog.set_level(logging.INFO, "gramian.serve")
    with run_app(create_app(folders[-1:], tokens=tokens)) as client:
        headers = {} if sent is None else {"authorization": f"Bearer {sent}"}
        for path in ("/models", "/models/popularity", "/items", "/metrics"):
            response = client.get(path, headers=headers)
            assert response.status_code == reading
            assert ("www-authenticate" in response.headers) == (reading == 401)
        assert client.post("/recommend", json={}, headers=headers).status_code == reading
        assert client.post("/reload", headers=headers).status_code == reloading
        for path in ("/", "/health", "/ready", "/docs", "/openapi.json", "/page/style.css"):
            assert client.get(path).status_code == 200
        assert client.get(f"/items?token={READ_TOKEN}", headers={"authorization": f"Basic {sent}"}).status_code in (200, 401)
    assert "GET /models" in caplog.text
    assert READ_TOKEN not in caplog.text
    assert ADMIN_TOKEN not in caplog.text


def test_other_names_and_other_pages_are_refused(folders):
    with run_app(create_app(folders[-1:], hosts=["127.0.0.1", "mine.example"], origins=["https://ours.example"])) as client:
        expect_ok(client.get("/models"))
        expect_ok(client.get("/models", headers={"host": "mine.example:8000"}))
        expect_error(client.get("/models", headers={"host": "evil.example"}), 400)
        expect_error(client.get("/models", headers={"host": "evil.example:127.0.0.1"}), 400)
        expect_error(client.get("/models", headers={"origin": "https://evil.example"}), 403)
        expect_error(client.post("/reload", headers={"origin": "null"}), 403)
        same_origin = client.get("/models", headers={"origin": str(client.base_url)})
        assert "access-control-allow-origin" not in same_origin.headers
        allowed = client.get("/models", headers={"origin": "https://ours.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://ours.example"
        preflight_headers = {"origin": "https://ours.example", "access-control-request-method": "POST"}
        preflight = client.options("/recommend", headers=preflight_headers | {"access-control-request-headers": "content-type"})
        assert preflight.status_code == 200
        expect_error(client.options("/recommend", headers=preflight_headers | {"access-control-request-method": "DELETE"}), 400)


def test_other_sites_are_refused_unless_told(client):
    expect_error(client.get("/models", headers={"origin": "https://evil.example"}), 403)
    preflight_headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in client.options("/recommend", headers=preflight_headers).headers


@pytest.mark.parametrize(
    ("host", "status"),
    [("[::1]", 200), ("[::1]:8000", 200), ("LOCALHOST:8000", 200), ("[::2]:8000", 400), ("[::1", 400), ("::1", 400), ("", 400)],
)
def test_hosts_may_be_ipv6_addresses(host, status, folders):
    with run_app(create_app(folders[-1:], hosts=["127.0.0.1", "localhost", "::1"])) as client:
        assert client.get("/health", headers={"host": host}).status_code == status


def test_a_refused_host_is_told_how_to_allow_it(folders):
    with run_app(create_app(folders[-1:], hosts=["127.0.0.1"])) as client:
        refusal = client.get("/health", headers={"host": "evil.example"})
        assert "--allow-host" in expect_error(refusal, 400)
        assert refusal.headers["x-content-type-options"] == "nosniff"


def test_an_unexpected_error_is_logged_and_returned_as_json(folders, monkeypatch, caplog):
    with run_app(create_app(folders[-1:])) as client:
        monkeypatch.setattr(ServedModel, "info", lambda self: 1 / 0)
        failed = client.get("/models")
        expect_error(failed, 500)
        assert "script-src 'self'" in failed.headers["content-security-policy"]
        assert "ZeroDivisionError" in caplog.text
        assert 'gramian_requests_total{route="/models",status="500"} 1.0' in client.get("/metrics").text
        monkeypatch.undo()
        expect_ok(client.get("/models"))


@pytest.mark.parametrize("path", ["/", "/models", "/nowhere", "/page/app.js", "/docs", "/similar"])
def test_every_answer_has_the_security_headers(path, client):
    headers = client.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers or headers["server"] == "uvicorn"  # which `gramian serve` takes away
    assert headers["cache-control"] in ("no-store", "no-cache")


def test_metrics_are_for_prometheus(client):
    expect_ok(client.post("/recommend", json={"model": "ease", "history": [260]}))
    client.get("/nowhere/123")
    text = client.get("/metrics").text
    assert 'gramian_requests_total{route="/recommend",status="200"}' in text
    assert 'gramian_request_seconds_bucket{le="0.025",route="/recommend"}' in text
    assert 'gramian_lists_total{model="ease"}' in text
    assert "123" not in {line.partition('route="')[2].partition('"')[0] for line in text.splitlines()}
    assert "process_resident_memory_bytes" in text
