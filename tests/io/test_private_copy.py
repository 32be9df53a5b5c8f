"""A model in private memory is out of reach of programs that overwrite its files in place."""

import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.io import folder as folders
from gramian.service.model_registry import ModelRegistry, folder_version

EVENTS = clustered(200, 300, 4_000)

OVERWRITE = """
import shutil, sys, threading
from pathlib import Path
import numpy as np
import gramian as gr
from gramian.data.synthetic import clustered

served, others = Path("served"), [Path("small"), Path("large")]
model = gr.load(served, private=True)
events = clustered(200, 300, 4_000)
before, is_over = model.scores(events), threading.Event()

def overwrite():
    while not is_over.is_set():
        for other in others:
            for file in other.iterdir():
                shutil.copyfile(file, served / file.name)  # truncates and writes the same file, as cp does

writer = threading.Thread(target=overwrite)
writer.start()
for _ in range(100):
    assert np.array_equal(model.scores(events), before)
is_over.set()
writer.join()
"""


def test_files_overwritten_in_place_change_nothing_and_kill_nobody(tmp_path):
    gr.EASE().fit(EVENTS).save(tmp_path / "served")
    gr.EASE().fit(clustered(20, 10, 100)).save(tmp_path / "small")
    gr.EASE(l2=1).fit(EVENTS).save(tmp_path / "large")
    code = textwrap.dedent(OVERWRITE)
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_private_model_is_the_mapped_one(tmp_path):
    gr.EASE().fit(EVENTS).save(tmp_path / "m")
    private, mapped = gr.load(tmp_path / "m", private=True), gr.load(tmp_path / "m")
    np.testing.assert_array_equal(private.scores(EVENTS), mapped.scores(EVENTS))
    buffer = private.scorer.inverse.buffer
    while isinstance(buffer, np.ndarray):
        assert not isinstance(buffer, np.memmap)
        buffer = buffer.base


def test_the_checksum_is_of_the_bytes_that_are_kept(tmp_path, refused):
    """A file that changes after it was copied is not damage; one that changes before is."""
    gr.EASE().fit(EVENTS).save(tmp_path / "m")
    arrays = tmp_path / "m" / folders.ARRAYS
    expected = gr.load(tmp_path / "m").scores(EVENTS)
    with folders.open_folder(tmp_path / "m", "model", private=True) as (_, copied, _):
        arrays.write_bytes(b"\0" * arrays.stat().st_size)
    assert np.isfinite(copied["scorer.inverse"]).all()
    assert copied["scorer.inverse"].any()
    assert np.isfinite(expected).all()
    with refused(gr.errors.DamagedFile, "truncated or edited"):
        gr.load(tmp_path / "m", private=True)


def test_a_copy_that_does_not_fit_is_refused_before_it_is_made(tmp_path, refused, monkeypatch):
    gr.EASE().fit(EVENTS).save(tmp_path / "m")
    monkeypatch.setattr("gramian.linalg.memory.available_bytes", lambda: 1000)
    with refused(gr.errors.NotEnoughMemory, "private=False"):
        gr.load(tmp_path / "m", private=True)
    assert gr.load(tmp_path / "m").recipe == gr.EASE()


@pytest.mark.parametrize("name", folders.FILES)
def test_a_service_notices_a_file_that_is_overwritten_in_place(tmp_path, name):
    gr.EASE().fit(EVENTS).save(tmp_path / "m")
    before = folder_version(tmp_path / "m")
    content = (tmp_path / "m" / name).read_bytes()
    (tmp_path / "m" / name).write_bytes(content + b" ")
    assert folder_version(tmp_path / "m") != before
    (tmp_path / "m" / name).unlink()
    assert folder_version(tmp_path / "m") == ()


def test_a_service_follows_a_link_that_is_switched(tmp_path):
    for name, l2 in (("v1", 1.0), ("v2", 2.0)):
        gr.EASE(l2=l2).fit(EVENTS).save(tmp_path / name)
    link = tmp_path / "current"
    os.symlink("v1", link)
    registry = ModelRegistry([link])
    assert registry["current"].model.recipe == gr.EASE(l2=1.0)
    assert not registry.refresh_model("current")
    os.symlink("v2", tmp_path / "new")
    os.rename(tmp_path / "new", link)
    assert registry.refresh_model("current")
    assert registry["current"].model.recipe == gr.EASE(l2=2.0)
    shutil.rmtree(tmp_path / "v2")
    assert not registry.refresh_model("current")
    assert registry["current"].model.recipe == gr.EASE(l2=2.0)
