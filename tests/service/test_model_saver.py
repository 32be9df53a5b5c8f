"""Saves of a served model in a thread, and folders without fitted arrays, which are all that a deletion waits for."""

import json
import os
import shutil
import threading

import numpy as np
import pytest

import gramian as gr
from gramian.core.receipts import verify_receipt
from gramian.io.event_log import EventLog
from gramian.io.model_folder import is_fitted, save_model_folder
from gramian.service import model_saver
from gramian.service.app import create_app
from gramian.service.model_registry import ModelRegistry
from gramian.service.model_saver import ModelSaver, Superseded
from service.helpers import expect_ok, run_app, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::gramian.errors.RefitWarning")
RECIPES = [gr.EASE(l2=5), gr.EDLAE(dropout=0.3, l2=5), gr.DAN(l2=5), gr.Popularity()]


@pytest.fixture
def folder(texts, tmp_path):
    gr.EASE(l2=5).fit(texts).save(tmp_path / "ease")
    return tmp_path / "ease"


@pytest.fixture
def saver(folder, tmp_path):
    return ModelSaver("ease", ModelRegistry([folder]), EventLog(tmp_path / "ease.log"))


def without(texts, user):
    return texts.take(np.flatnonzero([other != user for other in texts.users.tolist()]))


def leftovers(folder):
    return [name for name in os.listdir(folder.parent) if ".part" in name or ".old" in name]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_folder_without_fitted_arrays_is_fitted_when_it_is_loaded(recipe, dtype, texts, tmp_path):
    model = recipe.fit(texts, dtype=dtype)
    model.log_position, model.card = 7, {"chosen": "by hand"}
    save_model_folder(tmp_path / "model", model.take_apart().without_scorer())
    assert not is_fitted(tmp_path / "model")
    with pytest.warns(gr.errors.RefitWarning, match="without its fitted arrays"):
        loaded = gr.load(tmp_path / "model")
    assert (loaded.log_position, loaded.card, loaded.recipe) == (7, {"chosen": "by hand"}, recipe)
    for name, array in model.scorer.save()[1].items():
        found = loaded.scorer.save()[1][name]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    loaded.save(tmp_path / "model")
    assert is_fitted(tmp_path / "model")


def test_a_folder_without_fitted_arrays_needs_histories(texts, tmp_path):
    model = gr.EASE(l2=5).fit_gram(gr.Gram.of(texts))
    save_model_folder(tmp_path / "model", model.take_apart().without_scorer())
    with pytest.raises(gr.errors.DamagedFile, match="histories"):
        gr.load(tmp_path / "model")


def test_a_save_that_is_cancelled_at_any_moment_leaves_the_old_folder(saver, texts, monkeypatch):
    new = gr.EASE(l2=5).fit(without(texts, "person-042"))
    before, n_calls = saver.folder.stat().st_ino, []
    for limit in range(100):
        n_calls.clear()

        def proceed(limit=limit):
            n_calls.append(1)
            if len(n_calls) > limit:
                raise Superseded

        monkeypatch.setattr(saver, "_proceed", proceed)
        try:
            saver.save(new)
            break
        except Superseded:
            assert saver.folder.stat().st_ino == before
            assert not leftovers(saver.folder)
    assert limit >= 3, "it proceeds before each array and before the exchange"
    assert "person-042" not in gr.load(saver.folder).users
    assert saver.registry.refresh_model("ease") is False, "a folder that the service has written is not loaded"


def test_a_folder_that_another_program_replaced_is_not_overwritten(saver, texts):
    gr.EASE(l2=50).fit(texts).save(saver.folder)
    for is_complete in (True, False):
        with pytest.raises(Superseded):
            saver.save(gr.EASE(l2=5).fit(texts), is_complete=is_complete)
    assert gr.load(saver.folder).recipe == gr.EASE(l2=50)


def test_a_save_that_fails_is_tried_again_later(saver, texts, monkeypatch):
    def fail(*_, **__):
        raise OSError("no space left")

    model = gr.EASE(l2=5).fit(texts)
    saver.save(model, is_complete=False)
    saver.save_in_time(model, 60)
    assert not saver.thread.is_alive()  # a deletion within the next seconds would cancel it
    monkeypatch.setattr(model_saver, "COMPLETION_SECONDS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(model_saver, "save_model_folder", fail)
        saver.save_in_time(model, 60)
        saver.finish()
        assert saver.has_failed
        saver.save_in_time(model, 60)
        assert not saver.thread.is_alive()
    monkeypatch.setattr(model_saver, "RETRY_SECONDS", 0)
    saver.save_in_time(model, 60)
    saver.finish()
    assert is_fitted(saver.folder)


@pytest.fixture
def paused(monkeypatch):
    """Makes every model count as large, and complete saves wait at their first array until the event is set or they are
    cancelled."""
    may_go_on, original = threading.Event(), ModelSaver.save

    def save(self, model, *, is_complete=True):
        for _ in range(3_000 if is_complete else 0):
            if may_go_on.wait(0.01):
                break
            self._proceed()
        original(self, model, is_complete=is_complete)

    monkeypatch.setattr(model_saver, "SAVED_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(ModelSaver, "save", save)
    yield may_go_on
    may_go_on.set()


def test_a_receipt_holds_before_and_after_the_fitted_arrays_are_written(folder, texts, tmp_path, paused):
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        receipts = {user: expect_ok(client.delete(f"/users/{user}")) for user in ("person-042", "person-043")}
        assert not is_fitted(folder)
        shutil.copytree(folder, tmp_path / "killed")  # what a kill or a power loss would leave now
        shutil.copytree(tmp_path / "log", tmp_path / "killed log")
        for path in (path for path in tmp_path.rglob("*") if path.is_file()):
            assert not any(user.encode() in path.read_bytes() for user in receipts)
        (tmp_path / "receipt.json").write_text(json.dumps(receipts["person-043"]))
        assert all(holds for _, holds in verify_receipt(receipts["person-043"], folder, "person-043"))
        paused.set()
        wait_until(lambda: is_fitted(folder))
        assert all(holds for _, holds in verify_receipt(receipts["person-043"], folder, "person-043"))
        assert not leftovers(folder)
    rest = without(without(texts, "person-042"), "person-043")
    refit = gr.EASE(l2=5).fit(rest)
    np.testing.assert_allclose(gr.load(folder).weights(), refit.weights(), atol=1e-5)
    (tmp_path / "killed").rename(folder.parent / "again")
    (tmp_path / "killed log" / "ease.log").rename(tmp_path / "killed log" / "again.log")
    with run_app(create_app([folder.parent / "again"], log=tmp_path / "killed log")) as client:
        lists = expect_ok(client.post("/recommend", json={"user": "person-003", "k": 5}))
        assert [row["item"] for row in lists["items"]] == refit.recommend(["person-003"], k=5).items[0]
        wait_until(lambda: is_fitted(folder.parent / "again"))


def test_events_are_learned_while_a_model_is_saved(folder, tmp_path, paused, monkeypatch):
    monkeypatch.setattr("gramian.service.live_updates.SAVE_SECONDS", 0)
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        for user in ("first", "second"):
            assert client.post("/events", json={"events": [{"user": user, "item": "item-01"}]}).status_code == 202
            wait_until(lambda user=user: client.post("/recommend", json={"user": user}).status_code == 200)
        assert gr.load(folder).log_position == 0
        paused.set()
        wait_until(lambda: gr.load(folder).log_position == 2)


def test_a_service_that_stops_completes_the_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(model_saver, "SAVED_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(model_saver, "COMPLETION_SECONDS", 3_600)
    with run_app(create_app([folder], log=tmp_path / "log")) as client:
        receipt = expect_ok(client.delete("/users/person-042"))
        assert not is_fitted(folder)
    assert is_fitted(folder)
    assert all(holds for _, holds in verify_receipt(receipt, folder, "person-042"))
