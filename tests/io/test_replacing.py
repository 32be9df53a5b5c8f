"""Saving over what exists: our own folders are replaced in one step, and nothing else is ever deleted."""

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.io import folder as folders
from gramian.io import replacement
from gramian.io.atomic import atomic_file
from gramian.io.checkpoints import CHECKPOINTS, Checkpoint, clear_checkpoints, load_latest_checkpoint, save_checkpoint

EVENTS = clustered(60, 30, 600)
LEFTOVER = ".{}.gramian-0123456789abcdef.part"


@pytest.fixture(scope="module")
def models():
    return [gr.EASE(l2=l2).fit(EVENTS) for l2 in (1, 2)]


@pytest.fixture(params=["exchange", "two renames"])
def both_ways(request, monkeypatch):
    """Run the test with folders exchanged in one step, and as where that is not possible."""
    if request.param == "two renames":
        monkeypatch.setattr(replacement, "exchange_paths", lambda first, second: False)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, with its content."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


FOREIGN = {
    "another program's manifest": {"manifest.json": '{"name": "an extension", "version": 1}'},
    "a manifest that is no object": {"manifest.json": "[]"},
    "a manifest without a checksum": {"manifest.json": '{"format": 2, "kind": "model", "facts": {}, "files": {}}'},
    "an empty manifest": {"manifest.json": ""},
    "files with our names": {"arrays.safetensors": "x", "ids.json": "{}"},
    "other files": {"letter.txt": "dear"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_without_our_manifest_is_never_replaced(models, files, tmp_path, refused):
    target = tmp_path / "target"
    target.mkdir()
    for name, text in files.items():
        (target / name).write_text(text)
    with refused(gr.errors.InvalidInput, "something else"):
        models[0].save(target)
    assert contents(target) == files


def test_a_saved_object_of_another_kind_is_not_replaced(models, tmp_path, refused):
    gr.Gram.of(EVENTS).save(tmp_path / "gram")
    with refused(gr.errors.InvalidInput, "a saved model to replace"):
        models[0].save(tmp_path / "gram")
    assert gr.Gram.load(tmp_path / "gram").n_users == EVENTS.n_users


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "arrays.safetensors.bak"])
def test_a_users_own_file_in_a_model_folder_makes_the_save_refuse(models, name, tmp_path, refused, both_ways):
    models[0].save(tmp_path / "m")
    (tmp_path / "m" / name).write_text("mine")
    with refused(gr.errors.InvalidInput, f"also holds {name}"):
        models[1].save(tmp_path / "m")
    assert (tmp_path / "m" / name).read_text() == "mine"
    assert gr.load(tmp_path / "m").recipe == models[0].recipe
    (tmp_path / "m" / name).unlink()
    models[1].save(tmp_path / "m")
    assert gr.load(tmp_path / "m").recipe == models[1].recipe


@pytest.mark.parametrize("name", ["arrays.safetensors", "ids.json"])
def test_what_is_in_place_of_our_files_is_not_deleted_either(models, name, tmp_path, refused):
    for make in (os.mkdir, lambda path: os.symlink(tmp_path / "elsewhere", path)):
        models[0].save(tmp_path / "m")
        (tmp_path / "m" / name).unlink()
        make(tmp_path / "m" / name)
        with refused(gr.errors.InvalidInput, f"also holds {name}"):
            models[1].save(tmp_path / "m")
        assert sorted(os.listdir(tmp_path / "m")) == sorted(folders.FILES)
        shutil.rmtree(tmp_path / "m")


def test_a_file_that_appears_during_the_save_is_put_back_with_its_folder(models, tmp_path, monkeypatch, refused, both_ways):
    models[0].save(tmp_path / "m")
    sync = folders.sync

    def write_letter(path):
        sync(path)
        (tmp_path / "m" / "letter.txt").write_text("dear")

    monkeypatch.setattr(folders, "sync", write_letter)
    with refused(gr.errors.InvalidInput, "letter.txt"):
        models[1].save(tmp_path / "m")
    assert (tmp_path / "m" / "letter.txt").read_text() == "dear"
    assert gr.load(tmp_path / "m").recipe == models[0].recipe
    assert os.listdir(tmp_path) == ["m"]


PATHS = ["m", "m/", "./m", "m/.", "m/../m", "m/./../m/", "link/m", "link/../here/m", "../here/m"]


@pytest.mark.parametrize("path", PATHS)
def test_no_form_of_a_path_loses_the_model(models, path, tmp_path, monkeypatch, both_ways):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    os.symlink(tmp_path / "here", "link")
    models[0].save("m")
    models[1].save(path)
    assert gr.load("m").recipe == gr.load(path).recipe == models[1].recipe
    assert sorted(os.listdir(".")) == ["link", "m"]


def test_a_symbolic_link_is_loaded_and_not_written_through(models, tmp_path, refused):
    models[0].save(tmp_path / "v1")
    os.symlink(tmp_path / "v1", tmp_path / "current")
    assert gr.load(tmp_path / "current").recipe == models[0].recipe
    with refused(gr.errors.InvalidInput, "something else"):
        models[1].save(tmp_path / "current")
    assert gr.load(tmp_path / "v1").recipe == models[0].recipe


@pytest.mark.parametrize("path", ["x" * 300, "x" * 240, "x/" * 3_000 + "m", "a\0b"], ids=["name", "almost", "path", "null"])
def test_a_path_that_cannot_be_is_one_clear_error(models, path, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    for action in (models[0].save, gr.load, gr.Gram.load, lambda p: models[0].recommend_to(f"{p}.parquet", k=3)):
        with refused(gr.errors.InvalidInput):
            action(path)
    assert os.listdir(tmp_path) == []


def test_an_interrupted_replacement_is_finished_by_the_next_load_or_save(models, tmp_path):
    for finish in (lambda: gr.load(tmp_path / "m"), lambda: models[1].save(tmp_path / "m")):
        models[0].save(tmp_path / "m")
        os.rename(tmp_path / "m", tmp_path / ".m.gramian-00000000000000ff.old")  # as a kill between two renames leaves it
        finish()
        assert os.listdir(tmp_path) == ["m"]
    assert gr.load(tmp_path / "m").recipe == models[1].recipe


def test_leftovers_of_killed_saves_are_deleted_and_nothing_else(models, tmp_path):
    ours = tmp_path / LEFTOVER.format("m")
    others = [LEFTOVER.format("other"), ".m.gramian-0123.part", ".m-0123456789abcdef.part", "m.gramian-0123456789abcdef.part"]
    for name in (ours.name, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.safetensors").write_text("half")
    mixed = tmp_path / ".m.gramian-00000000000000aa.part"
    mixed.mkdir()
    for name in ("arrays.safetensors", "letter.txt"):
        (mixed / name).write_text("dear")
    models[0].save(tmp_path / "m")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, mixed.name, "m"])
    assert contents(mixed) == {"letter.txt": "dear"}


def test_what_a_live_process_is_writing_is_not_deleted(models, tmp_path, monkeypatch):
    seen = []
    write_and_hash = folders.write_and_hash

    def save_another(path, chunks):
        if not seen:
            seen.append(path.parent)
            models[1].save(tmp_path / "m")  # with a lock of its own: as another process would
        return write_and_hash(path, chunks)

    monkeypatch.setattr(folders, "write_and_hash", save_another)
    models[0].save(tmp_path / "m")
    assert seen[0].name.startswith(".m.gramian-")
    assert gr.load(tmp_path / "m").recipe == models[0].recipe
    assert os.listdir(tmp_path) == ["m"]


def test_leftovers_of_killed_exports_are_deleted(models, tmp_path):
    (tmp_path / LEFTOVER.format("lists.parquet")).write_bytes(bytes(1000))
    (tmp_path / "lists.parquet.1.part").write_text("mine")
    models[0].recommend_to(tmp_path / "lists.parquet", k=3)
    assert sorted(os.listdir(tmp_path)) == ["lists.parquet", "lists.parquet.1.part"]
    with atomic_file(tmp_path / "a") as first, atomic_file(tmp_path / "a") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a").read_text() == "first"  # the last one to end


def test_concurrent_savers_and_readers_all_succeed(models, tmp_path, both_ways):
    errors, recipes = [], {model.recipe for model in models}
    models[0].save(tmp_path / "m")
    is_over = threading.Event()

    def save(model):
        try:
            for _ in range(15):
                model.save(tmp_path / "m")
        except Exception as error:
            errors.append(error)

    def load():
        try:
            while not is_over.is_set():
                assert gr.load(tmp_path / "m").recipe in recipes
        except Exception as error:
            errors.append(error)

    savers = [threading.Thread(target=save, args=(model,)) for model in models]
    reader = threading.Thread(target=load)
    for thread in (*savers, reader):
        thread.start()
    for thread in savers:
        thread.join()
    is_over.set()
    reader.join()
    assert errors == []
    assert gr.load(tmp_path / "m").recipe in recipes
    assert os.listdir(tmp_path) == ["m"]


CHECKPOINT = Checkpoint(1, {"items": EVENTS.matrix.data}, 0.5)


def test_clearing_checkpoints_deletes_only_ours(tmp_path):
    save_checkpoint(tmp_path, {}, CHECKPOINT)
    others = {
        "gramian-epoch-even/letter.txt": "dear",
        "gramian-best-practices/letter.txt": "dear",
        "gramian-report-00001/manifest.json": "{}",
        ".gramian-epoch-odd-mine/letter.txt": "dear",
        "gramian-best": "a file",
    }
    for name, text in others.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert load_latest_checkpoint(tmp_path / "none", {}) is None
    clear_checkpoints(tmp_path)
    assert contents(tmp_path) == others
    clear_checkpoints(tmp_path / "none")


def test_a_damaged_checkpoint_makes_room_without_being_deleted(tmp_path):
    save_checkpoint(tmp_path, {}, CHECKPOINT)
    save_checkpoint(tmp_path, {}, Checkpoint(2, CHECKPOINT.arrays, 0.4))
    (tmp_path / CHECKPOINTS[0] / "manifest.json").write_text("damaged")
    with pytest.warns(gr.errors.RestartWarning, match="epoch before"):
        assert load_latest_checkpoint(tmp_path, {}).epoch == 1
    save_checkpoint(tmp_path, {}, Checkpoint(2, CHECKPOINT.arrays, 0.4))
    assert load_latest_checkpoint(tmp_path, {}).epoch == 2
    assert [text for text in map(str, tmp_path.glob("*.damaged")) if "epoch-even" in text]


def test_a_save_flushes_its_files_and_both_folders_to_the_disk(models, tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def record(descriptor):
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    models[0].save(tmp_path / "m")
    *files, new, parent = flushed
    assert files == ["arrays.safetensors", "ids.json", "manifest.json"]
    assert new.startswith(".m.gramian-")
    assert parent == tmp_path.name


def test_facts_that_could_not_be_loaded_are_not_saved(tmp_path, refused):
    for facts in ({"n": 10**400}, {"text": "x" * (1 << 25)}, json.loads("[" * 40 + "]" * 40)):
        with refused(gr.errors.NotSupported, "Keep large data in arrays"):
            folders.write_folder(tmp_path / "f", "model", {"facts": facts}, {}, {})
    assert os.listdir(tmp_path) == []
