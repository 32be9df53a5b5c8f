"""Models that are replaced while they are served."""

import shutil
import threading

import httpx
import pytest

from gramian.service import endpoints
from gramian.service.app import create_app
from gramian.service.model_registry import ModelRegistry
from gramian.service.served_model import ServedModel
from service.helpers import TIMEOUT, expect_error, expect_ok, run_app, wait_until


@pytest.fixture
def folder(tmp_path, models):
    models["ease"].save(tmp_path / "m")
    return tmp_path / "m"


def recipe(client):
    return expect_ok(client.get("/models"))["models"][0]["recipe"]


def test_a_replaced_model_is_picked_up(folder, models):
    with run_app(create_app([folder])) as client:
        assert recipe(client)["name"] == "EASE"
        models["edlae"].save(folder)
        wait_until(lambda: recipe(client)["name"] == "EDLAE")
        models["pca"].save(folder)
        assert expect_ok(client.post("/reload")) == {"models": {"m": True}, "failed": {}}
        assert recipe(client)["name"] == "RegularizedPCA"
        assert expect_ok(client.post("/reload")) == {"models": {"m": False}, "failed": {}}
        assert 'gramian_reloads_total{model="m",result="replaced"} 2.0' in client.get("/metrics").text


def test_a_broken_model_never_takes_the_place_of_a_good_one(folder, models, tmp_path):
    with run_app(create_app([folder])) as client:
        models["edlae"].save(tmp_path / "other")
        arrays = tmp_path / "other" / "arrays.safetensors"
        arrays.write_bytes(arrays.read_bytes()[:-1])
        shutil.rmtree(folder)
        expect_ok(client.post("/recommend", json={"history": [260]}))  # from what was mapped
        shutil.move(tmp_path / "other", folder)
        wait_until(lambda: expect_ok(client.get("/models"))["models"][0]["failed"])
        error = expect_ok(client.get("/models"))["models"][0]["failed"]
        assert "truncated" in error
        assert str(tmp_path) not in error
        assert recipe(client)["name"] == "EASE"
        assert "truncated" in expect_ok(client.post("/reload"))["failed"]["m"]
        expect_ok(client.post("/recommend", json={"history": [260]}))
        models["edlae"].save(folder)
        wait_until(lambda: recipe(client)["name"] == "EDLAE")
        assert expect_ok(client.get("/models"))["models"][0]["failed"] is None
        shutil.rmtree(folder)
        assert "nothing there" in expect_ok(client.post("/reload"))["failed"]["m"]
        expect_ok(client.post("/recommend", json={"history": [260]}))


def test_no_request_is_dropped_while_models_are_replaced(folder, models):
    stop, failures, n_requests = threading.Event(), [], [0]
    names = ("ease", "edlae")
    expected = [models[name].recommend_for([[260, 1196]], 5) for name in names]
    lists = [tuple(ranked.items[0]) for ranked in expected]

    def send_requests(client):
        with httpx.Client(base_url=client.base_url, timeout=TIMEOUT) as own_client:
            while not stop.is_set():
                response = own_client.post("/recommend", json={"history": [260, 1196], "k": 5})
                items = tuple(row["item"] for row in response.json().get("items", ()))
                n_requests[0] += 1
                if response.status_code != 200 or items not in lists:
                    failures.append(response.text)

    with run_app(create_app([folder])) as client:
        threads = [threading.Thread(target=send_requests, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            models[names[(turn + 1) % 2]].save(folder)
            expect_ok(client.post("/reload"))
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert n_requests[0] > 6


@pytest.fixture
def two_folders(tmp_path, models):
    for name in ("first", "second"):
        models["popularity"].save(tmp_path / name)
    return [tmp_path / "first", tmp_path / "second"]


def fail_for(monkeypatch, cls, method_name, model_name):
    """Make a method fail for one model."""
    method = getattr(cls, method_name)

    def fail(self, *arguments, **options):
        if (self.name if cls is ServedModel else arguments[0]) == model_name:
            raise ZeroDivisionError("on purpose")
        return method(self, *arguments, **options)

    monkeypatch.setattr(cls, method_name, fail)


def test_a_model_that_fails_its_first_warm_up_stops_no_other(two_folders, models, monkeypatch):
    fail_for(monkeypatch, ServedModel, "warm_up", "first")
    with run_app(create_app(two_folders)) as client:
        failed, working = expect_ok(client.get("/models"))["models"]
        assert "ZeroDivisionError" in failed["failed"]
        assert working["failed"] is None
        assert "first" in expect_error(client.post("/recommend", json={"model": "first"}), 503)
        expect_ok(client.post("/recommend", json={"model": "second"}))
        monkeypatch.undo()
        models["ease"].save(two_folders[0])
        wait_until(lambda: client.post("/recommend", json={"model": "first"}).status_code == 200)
        assert expect_ok(client.get("/models"))["models"][0]["failed"] is None


def test_the_service_is_not_ready_while_no_model_works(folder, monkeypatch):
    fail_for(monkeypatch, ServedModel, "warm_up", "m")
    with run_app(create_app([folder]), is_ready=False) as client:
        wait_until(lambda: client.get("/ready").json() == {"status": "no model works"})
        monkeypatch.undo()
        assert expect_ok(client.post("/reload")) == {"models": {"m": True}, "failed": {}}
        assert expect_ok(client.get("/ready")) == {"status": "ready"}


def test_the_watcher_survives_any_error(folder, models, monkeypatch, caplog):
    monkeypatch.setattr(endpoints, "REFRESH_INTERVAL", 0.02)
    with run_app(create_app([folder])) as client:
        fail_for(monkeypatch, ModelRegistry, "refresh_model", "m")
        wait_until(lambda: "looking for a newer version failed" in caplog.text)
        expect_ok(client.get("/ready"))
        monkeypatch.undo()
        models["pca"].save(folder)
        wait_until(lambda: recipe(client)["name"] == "RegularizedPCA")


def test_a_model_that_takes_too_long_is_told_and_delays_no_other(two_folders, models, monkeypatch):
    monkeypatch.setattr(endpoints, "REFRESH_INTERVAL", 0.02)
    monkeypatch.setattr(endpoints, "RELOAD_SECONDS", 0.2)
    is_released, refresh = threading.Event(), ModelRegistry._refresh_model

    def refresh_slowly(self, name, *arguments):
        assert name != "first" or is_released.wait(TIMEOUT)
        return refresh(self, name, *arguments)

    with run_app(create_app(two_folders)) as client:
        monkeypatch.setattr(ModelRegistry, "_refresh_model", refresh_slowly)
        wait_until(lambda: expect_ok(client.get("/models"))["models"][0]["failed"])
        assert "longer than 0.2 s" in expect_ok(client.post("/reload"))["failed"]["first"]
        models["ease"].save(two_folders[1])
        wait_until(lambda: expect_ok(client.get("/models"))["models"][1]["recipe"]["name"] == "EASE")
        expect_ok(client.post("/recommend", json={"model": "first"}))
        is_released.set()
        models["ease"].save(two_folders[0])
        wait_until(lambda: recipe(client)["name"] == "EASE")
        wait_until(lambda: expect_ok(client.get("/models"))["models"][0]["failed"] is None)
