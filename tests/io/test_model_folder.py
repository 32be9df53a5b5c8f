"""Saving and loading: the same model back, or one clear error; nothing half-written."""

import datetime as dt
import json
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.io import folder as store
from gramian.io.manifest import FOLDER_FORMAT

RECIPES = [gr.Popularity(), gr.EASE(l2=5), gr.DLAE(), gr.EDLAE(), gr.DEQL(kept_weight=2), gr.DebiasedEASE()]


@pytest.fixture(scope="module")
def events():
    return clustered(120, 80, 1_500).with_titles({i: f"<b>{i}</b>" for i in range(80)})


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_loaded_model_is_the_saved_one(recipe, events, tmp_path):
    model = recipe.fit(events)
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model")
    assert again.recipe == recipe
    assert (again.items, again.users, again.catalog.titles) == (model.items, model.users, events.titles)
    assert again.recommend(model.users, k=9) == model.recommend(model.users, k=9)
    np.testing.assert_array_equal(again.scores(events), model.scores(events))


def test_float64_and_weights_survive(tmp_path):
    x = np.random.default_rng(0).random((30, 9)).round(2)
    model = gr.EASE(l2=1).fit(gr.Interactions.of(x), dtype="float64")
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model")
    assert again.weights().dtype == np.float64
    np.testing.assert_array_equal(again.weights(), model.weights())
    np.testing.assert_array_equal(again.histories.matrix.toarray(), model.histories.matrix.toarray())


IDS = [
    ["a", "b", "<script>"],
    [1, 2**70, -3],
    [1.5, 2.5, -3.0],
    [("x", 1), ("x", 2), ("y", ("z", 1))],
    [b"\x00", b"\xff", b"a"],
    [dt.date(2020, 1, 1), dt.date(2021, 1, 1), dt.date(1999, 12, 31)],
    [dt.datetime(2020, 1, 1, 12, 30, 0, 5), dt.datetime(2021, 1, 1), dt.datetime(1999, 1, 1)],
    [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)],
]


@pytest.mark.parametrize("ids", IDS, ids=lambda ids: type(ids[0]).__name__)
def test_ids_of_any_type_come_back_as_they_went(ids, tmp_path):
    frame = pd.DataFrame({"user": ["u", "v", "u"], "item": pd.Series(ids, dtype=object)})
    model = gr.Popularity().fit(gr.Interactions.of(frame))
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model").items
    assert sorted(again) == sorted(ids)
    assert [type(i) for i in again] == [type(i) for i in model.items]
    assert again == model.items


def test_ids_that_cannot_be_saved_are_refused_and_leave_nothing(tmp_path):
    frame = pd.DataFrame({"user": ["u", "v"], "item": pd.Series([frozenset("a"), frozenset("b")], dtype=object)})
    with pytest.raises(gr.errors.NotSupported, match="frozenset"):
        gr.Popularity().fit(gr.Interactions.of(frame)).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_arrays_are_plain_safetensors(events, tmp_path):
    model = gr.EASE().fit(events)
    model.save(tmp_path / "model")
    arrays = load_file(tmp_path / "model" / "arrays.safetensors")
    np.testing.assert_array_equal(arrays["scorer.inverse"], model.scorer.inverse.buffer)
    np.testing.assert_array_equal(arrays["indices"], model.histories.matrix.indices)


def test_arrays_are_mapped_not_read(events, tmp_path):
    gr.EASE().fit(events).save(tmp_path / "model")
    buffer = gr.load(tmp_path / "model").scorer.inverse.buffer
    while isinstance(buffer, np.ndarray) and not isinstance(buffer, np.memmap):
        buffer = buffer.base
    assert isinstance(buffer, np.memmap)


def test_the_folder_holds_no_pickle(events, tmp_path):
    gr.EASE().fit(events).save(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["arrays.safetensors", "ids.json", "manifest.json"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["arrays.safetensors", "ids.json", "manifest.json"])
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_damage_gives_one_clear_error(events, tmp_path, name, damage):
    gr.Popularity().fit(events).save(tmp_path / "model")
    damage(tmp_path / "model" / name)
    with pytest.raises(gr.errors.DamagedFile, match=r"expected .* got"):
        gr.load(tmp_path / "model")


def test_a_damaged_folder_is_told_whatever_was_made_of_it(events, tmp_path):
    gr.EASE(l2=5.0).fit(events).save(tmp_path / "model")
    flip(tmp_path / "model" / store.ARRAYS)
    with pytest.raises(gr.errors.DamagedFile, match="truncated or edited"), store.open_folder(tmp_path / "model", "model"):
        pass
    with pytest.raises(gr.errors.DamagedFile, match="truncated or edited"), store.open_folder(tmp_path / "model", "model"):
        raise KeyError("what the damage led to")


def test_edited_settings_are_noticed(events, tmp_path):
    gr.EASE(l2=5).fit(events).save(tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    path.write_text(path.read_text().replace("5.0", "6.0"))
    with pytest.raises(gr.errors.DamagedFile, match="edited"):
        gr.load(tmp_path / "model")


def test_a_newer_format_asks_for_an_upgrade(events, tmp_path):
    gr.Popularity().fit(events).save(tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FOLDER_FORMAT + 1}))
    with pytest.raises(gr.errors.DamagedFile, match="Upgrade"):
        gr.load(tmp_path / "model")


def test_foreign_and_missing_folders(events, tmp_path):
    with pytest.raises(gr.errors.MissingFile, match="nothing there"):
        gr.load(tmp_path / "nowhere")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "manifest.json").write_text('["something else"]')
    with pytest.raises(gr.errors.DamagedFile):
        gr.load(tmp_path / "foreign")
    gr.Gram.of(events).save(tmp_path / "gram")
    with pytest.raises(gr.errors.DamagedFile, match="a saved gram"):
        gr.load(tmp_path / "gram")


def test_saving_again_replaces_the_old_model_whole(events, tmp_path):
    gr.EASE().fit(events).save(tmp_path / "model")
    old = gr.load(tmp_path / "model")
    before = old.scores(events)
    gr.Popularity().fit(events).save(tmp_path / "model")
    assert gr.load(tmp_path / "model").recipe == gr.Popularity()
    np.testing.assert_array_equal(old.scores(events), before)  # still mapped, still the old one
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_not_ours_is_never_overwritten(events, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "love.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ("letters", "file"):
        with pytest.raises(gr.errors.InvalidInput, match="something else"):
            gr.Popularity().fit(events).save(tmp_path / name)
    assert (tmp_path / "letters" / "love.txt").read_text() == "dear"


def test_a_failed_save_keeps_the_old_model_and_leaves_nothing_behind(events, tmp_path, monkeypatch):
    gr.Popularity().fit(events).save(tmp_path / "model")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        gr.EASE().fit(events).save(tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert gr.load(tmp_path / "model").recipe == gr.Popularity()


def rewritten(path, **changes):
    """The saved model with some parts replaced, under valid checksums: what a stranger may send."""
    facts, arrays, ids = store.read_folder(path, "model")
    arrays = {name: array.copy() for name, array in arrays.items()}
    for name, change in changes.items():
        part = facts if name in facts else ids if name in ids else arrays
        part[name.replace("scorer_", "scorer.", 1) if name.replace("scorer_", "scorer.", 1) in part else name] = change
    store.write_folder(path, "model", facts, arrays, ids)


CRAFTED = {
    "an item out of range": lambda m: {"indices": np.full(m.histories.n_interactions, 2**31 - 1, np.int32)},
    "a negative item": lambda m: {"indices": np.full(m.histories.n_interactions, -1, np.int32)},
    "an unsorted row": lambda m: {"indices": m.histories.matrix.indices[::-1].copy()},
    "rows beyond the entries": lambda m: {"indptr": m.histories.matrix.indptr.astype(np.int64) * 2},
    "falling rows": lambda m: {"indptr": m.histories.matrix.indptr.astype(np.int64)[::-1].copy()},
    "too few rows": lambda m: {"indptr": np.array([0, m.histories.n_interactions])},
    "a short matrix": lambda m: {"scorer_inverse": m.scorer.inverse.buffer[:10]},
    "a matrix of integers": lambda m: {"scorer_inverse": m.scorer.inverse.buffer.astype(np.int32)},
    "a short factor": lambda m: {"scorer_factor": m.scorer.factor[:-1]},
    "another size": lambda m: {"scorer_facts": {"n": m.catalog.n_items + 1, "width": 512}},
    "another width": lambda m: {"scorer_facts": {"n": m.catalog.n_items, "width": 1}},
    "no size": lambda m: {"scorer_facts": {}},
    "words for numbers": lambda m: {"scorer_facts": {"n": "many", "width": 512}},
    "an unknown parameter": lambda m: {"recipe": {"name": "EASE", "params": {"magic": 1}}},
    "a wrong parameter": lambda m: {"recipe": {"name": "EASE", "params": {"l2": -1}}},
    "too few titles": lambda m: {"titles": ["one"]},
    "repeated items": lambda m: {"items": [1] * m.catalog.n_items},
    "too few items": lambda m: {"items": [1]},
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED)
def test_a_crafted_model_is_refused_before_any_kernel_sees_it(craft, events, tmp_path):
    model = gr.EASE().fit(events)
    model.save(tmp_path / "model")
    rewritten(tmp_path / "model", **craft(model))
    with pytest.raises(gr.errors.DamagedFile):
        gr.load(tmp_path / "model")


@pytest.mark.parametrize("change", [{"scorer": "magic"}, {"recipe": {"name": "Magic", "params": {}}}], ids=["scorer", "recipe"])
def test_an_unregistered_name_says_which_registration_is_missing(change, events, tmp_path, refused):
    gr.EASE().fit(events).save(tmp_path / "model")
    rewritten(tmp_path / "model", **change)
    with refused(gr.errors.NotRegistered, "gramian.register"):
        gr.load(tmp_path / "model")


def test_an_honest_rewrite_loads(events, tmp_path):
    model = gr.EASE().fit(events)
    model.save(tmp_path / "model")
    rewritten(tmp_path / "model", scorer_factor=model.scorer.factor * 2)
    np.testing.assert_allclose(gr.load(tmp_path / "model").scorer.factor, model.scorer.factor * 2)


def test_paths_that_cannot_be_a_model(events, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("dear")
    model = gr.Popularity().fit(events)
    for path in (".", "file/model"):
        with pytest.raises(gr.errors.InvalidInput):
            model.save(path)
    model.save("here/")
    assert gr.load("here").recipe == model.recipe


def test_crafted_popularity_is_refused(events, tmp_path):
    model = gr.Popularity().fit(events)
    model.save(tmp_path / "model")
    rewritten(tmp_path / "model", scorer_values=model.scorer.values[:, None])
    with pytest.raises(gr.errors.DamagedFile, match="one value"):
        gr.load(tmp_path / "model")


def test_a_model_that_is_not_finite_is_not_saved(events, tmp_path, refused):
    model = gr.EASE().fit(events)
    model.scorer.factor[3] = np.nan
    with refused(gr.errors.Inaccurate, "the model's factor"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
