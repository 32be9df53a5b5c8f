"""An inverse in a file: the same bits as in memory, wherever a run is killed, and never resumed where it must not be."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import memory
from gramian.linalg import resumable as scratch
from gramian.linalg.inverse import invert, scale_and_probe, sweep_blocks
from gramian.linalg.resumable import DONE, LOCK_FILE, PREPARED, SAVED, STATUS_FILE, SWEEP_FILE, ResumableSweep, clear_scratch
from gramian.linalg.symmetric import Symmetric, stored_size

N, WIDTH = 150, 64


class Killed(BaseException):
    pass


class Counters:
    """Counters that kill the run when set for the nth time: after setting, or before it with the work left half done."""

    def __init__(self, sweep, nth, before):
        self.sweep, self.values, self.remaining, self.before = sweep, sweep.counters, nth, before

    def __getitem__(self, at):
        return self.values[at]

    def __setitem__(self, at, value):
        self.remaining -= 1
        if self.remaining == 0 and self.before:
            self.spoil(at, value)
            raise Killed
        self.values[at] = value
        if self.remaining == 0:
            raise Killed

    def spoil(self, at, value):
        sweep = self.sweep
        spans = sweep.matrix.spans()
        if at == PREPARED and sweep.step < len(spans):
            sweep.column[::3], sweep.inverse_factor[::2] = np.nan, np.nan
        elif at == SAVED:
            sweep.workspace[::3] = np.nan
        elif at == DONE and value % sweep.pieces_per_step:
            sweep.matrix.block(*spans[(value - 1) % sweep.pieces_per_step])[::2] = np.nan
        elif at == DONE and value // sweep.pieces_per_step <= len(spans):
            sweep.matrix.block(*spans[value // sweep.pieces_per_step - 1])[::2] = np.nan


@pytest.fixture(scope="module")
def source():
    root = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
    matrix = Symmetric(N, np.empty(stored_size(N, WIDTH), np.float32), WIDTH)
    dense = root @ root.T + 10 * np.eye(N, dtype=np.float32)
    for first, last, block in matrix.blocks():
        block[:] = dense[first:, first:last]
    return matrix


def resume(folder, source, nth=0, before=True):
    """Begin or resume the inverse in the folder, until it is complete or killed."""
    with ResumableSweep(folder, "key", N, np.float32, WIDTH) as sweep:
        if not sweep.has_begun:
            sweep.matrix.buffer[:] = source.buffer
            scale, image = scale_and_probe(sweep.matrix)
            sweep.begin(scale=scale, image=image)
        sweep.counters = Counters(sweep, nth, before)
        if not sweep.is_complete:
            sweep_blocks(sweep, sweep.arrays["scale"])
        return sweep.matrix.buffer.copy()


@pytest.mark.parametrize("before", [True, False])
def test_a_sweep_killed_at_any_point_ends_in_the_same_bits(source, tmp_path, before):
    expected = source.copy()
    invert(expected)
    nth = n_kills = 0
    while True:
        nth += 1
        shutil.rmtree(tmp_path)
        try:
            resume(tmp_path, source, nth, before)
            break
        except Killed:
            n_kills += 1
        assert np.array_equal(resume(tmp_path, source), expected.buffer), f"killed at {nth}"
    n_blocks = len(source.spans())
    assert n_kills == (n_blocks + 1) * (2 * n_blocks + 2) - 1  # a step: prepared, each block saved and done, finished


def test_a_sweep_killed_again_and_again_ends_in_the_same_bits(source, tmp_path):
    expected = source.copy()
    invert(expected)
    inverse = None
    while inverse is None:
        with contextlib.suppress(Killed):
            inverse = resume(tmp_path, source, nth=5)
    assert np.array_equal(inverse, expected.buffer)


EVENTS = {"n_users": 400, "n_items": 1_300, "n_interactions": 9_000}
KILLED = """
import os, signal
import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.resumable import ResumableSweep

def update_blocks(self, update, run, original=ResumableSweep.update_blocks):
    def run_and_die(work, tiles):
        run(work, tiles)
        if self.step == 1 and tiles[0].first > 0:
            tiles[0].values[5:] = 0  # as if the product had stopped here
            os.kill(os.getpid(), signal.SIGKILL)

    original(self, update, run_and_die)

ResumableSweep.update_blocks = update_blocks
gr.EDLAE(dropout=0.4, l2=20).fit(clustered({n_users}, {n_items}, {n_interactions}), scratch={folder!r})
"""


def test_a_fit_after_kill_minus_nine_goes_on_and_gives_the_same_model(tmp_path):
    folder = tmp_path / "scratch"
    child = subprocess.run([sys.executable, "-c", KILLED.format(folder=str(folder), **EVENTS)], check=False)
    assert child.returncode == -signal.SIGKILL
    events = clustered(**EVENTS)
    recipe = gr.EDLAE(dropout=0.4, l2=20)
    key = json.loads((folder / STATUS_FILE).read_text())["key"].removeprefix(f"{scratch.SCRATCH_FORMAT} ")
    with ResumableSweep(folder, key, events.n_items, np.float32) as sweep:
        assert sweep.step == 1
    model = recipe.fit(events, scratch=folder)
    assert np.array_equal(model.scorer.inverse.buffer, recipe.fit(events).scorer.inverse.buffer)
    model.save(tmp_path / "model")
    shutil.rmtree(folder)
    assert gr.load(tmp_path / "model").recommend([0]) == recipe.fit(events).recommend([0])


def test_models_of_one_penalty_share_a_finished_inverse(tmp_path, monkeypatch):
    events = clustered(60, 30, 400)
    gr.EDLAE(dropout=0.4, l2=20).fit(events, scratch=tmp_path)
    monkeypatch.setattr("gramian.models.full_rank.sweep_blocks", lambda sweep: pytest.fail("inverted again"))
    for recipe in (gr.DLAE(dropout=0.4, l2=20), gr.DEQL(dropout=0.4, kept_weight=0.7, l2=20)):
        assert np.array_equal(recipe.fit(events, scratch=tmp_path).weights(), recipe.fit(events).weights())


@pytest.mark.parametrize(
    ("recipe", "events", "dtype"),
    [
        (gr.EASE(l2=11), clustered(60, 30, 400), "float32"),
        (gr.EASE(l2=10), clustered(60, 30, 401), "float32"),
        (gr.EASE(l2=10), clustered(60, 30, 400), "float64"),
    ],
)
def test_the_folder_of_another_fit_is_refused(tmp_path, recipe, events, dtype):
    gr.EASE(l2=10).fit(clustered(60, 30, 400), scratch=tmp_path)
    with pytest.raises(gr.errors.InvalidInput, match="Name a new folder"):
        recipe.fit(events, scratch=tmp_path, dtype=dtype)


def test_a_folder_in_use_is_refused(tmp_path):
    with ResumableSweep(tmp_path, "key", N, np.float32, WIDTH), pytest.raises(gr.errors.InvalidInput, match="in use"):
        ResumableSweep(tmp_path, "key", N, np.float32, WIDTH)
    with ResumableSweep(tmp_path, "key", N, np.float32, WIDTH) as sweep:
        assert not sweep.has_begun


def test_after_a_restart_of_the_machine_only_a_complete_run_is_used(source, tmp_path, monkeypatch):
    with pytest.raises(Killed):
        resume(tmp_path, source, nth=12)
    monkeypatch.setattr(scratch, "read_boot_id", lambda: "another")
    with (
        pytest.warns(gr.errors.RestartWarning, match="restarted"),
        ResumableSweep(tmp_path, "key", N, np.float32, WIDTH) as sweep,
    ):
        assert not sweep.has_begun
    done = resume(tmp_path, source)
    monkeypatch.setattr(scratch, "read_boot_id", lambda: "yet another")
    with ResumableSweep(tmp_path, "key", N, np.float32, WIDTH) as sweep:
        assert sweep.is_complete
        assert np.array_equal(sweep.matrix.buffer, done)


def test_a_run_killed_before_it_recorded_its_completion_does_so_later(source, tmp_path):
    n_blocks = len(source.spans())
    with pytest.raises(Killed):
        resume(tmp_path, source, nth=(n_blocks + 1) * (2 * n_blocks + 2) - 1, before=False)
    assert not json.loads((tmp_path / STATUS_FILE).read_text())["complete"]
    resume(tmp_path, source)
    assert json.loads((tmp_path / STATUS_FILE).read_text())["complete"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\0\0", '{"key": 1, "dtype": "no", "boot": 1, "complete": true}'])
def test_a_damaged_status_file_starts_over(source, tmp_path, text):
    done = resume(tmp_path, source)
    (tmp_path / STATUS_FILE).write_text(text)
    with pytest.warns(gr.errors.RestartWarning, match="damaged"):
        again = resume(tmp_path, source)
    assert np.array_equal(again, done)


def test_the_warning_names_the_line_of_the_user(tmp_path):
    events = clustered(60, 30, 400)
    gr.EASE(l2=10).fit(events, scratch=tmp_path)
    (tmp_path / STATUS_FILE).write_text("")
    with pytest.warns(gr.errors.RestartWarning) as caught:
        gr.EASE(l2=10).fit(events, scratch=tmp_path)
    assert caught[0].filename == __file__


def test_a_finished_inverse_that_was_spoiled_is_not_used(tmp_path):
    events = clustered(60, 30, 400)
    fitted = gr.EASE(l2=10).fit(events, scratch=tmp_path)
    expected = fitted.weights()
    fitted.scorer.inverse.buffer[5:9] += 1
    with pytest.warns(gr.errors.PrecisionWarning):  # it is done again, in the wider dtype
        again = gr.EASE(l2=10).fit(events, scratch=tmp_path)
    np.testing.assert_allclose(again.weights(), expected, atol=1e-5)


def test_a_file_of_another_size_is_refused(source, tmp_path):
    resume(tmp_path, source)
    os.truncate(tmp_path / SWEEP_FILE, 1_000)
    with pytest.raises(gr.errors.InvalidInput, match="fit again"):
        ResumableSweep(tmp_path, "key", N, np.float32, WIDTH)


def test_a_full_disk_is_refused_with_numbers_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000})())
    with pytest.raises(gr.errors.NotEnoughMemory, match="1 kB free"):
        gr.EASE().fit(clustered(60, 30, 400), scratch=tmp_path / "scratch")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_memory_must_fit_there(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "is_memory_backed", lambda folder: True)
    monkeypatch.setattr("gramian.core.recipe.is_memory_backed", lambda folder: True)
    estimate = gr.EASE().estimate(clustered(60, 30, 400), scratch=tmp_path)
    assert estimate.peak_bytes > estimate.disk_bytes > 0
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000)
    with pytest.raises(gr.errors.NotEnoughMemory, match="which is in memory"):
        gr.EASE().fit(clustered(60, 30, 400), scratch=tmp_path)


def test_which_folders_are_in_memory(monkeypatch):
    kinds = {"/": "ext4", "/dev/shm": "tmpfs", "/dev/shm/disk": "ext4"}
    mounts = [type("Mount", (), {"mountpoint": place, "fstype": kind})() for place, kind in kinds.items()]
    monkeypatch.setattr(memory.psutil, "disk_partitions", lambda all: mounts)
    expected = {"/tmp/x": False, "/dev/shm": True, "/dev/shm/x": True, "/dev/shmx": False, "/dev/shm/disk/x": False}
    assert {place: memory.is_memory_backed(Path(place)) for place in expected} == expected


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(gr.errors.InvalidInput, match="a folder for scratch"):
            gr.EASE().fit(clustered(60, 30, 400), scratch=path)


def test_clearing_takes_only_what_is_ours(tmp_path):
    (tmp_path / "lock").write_text("mine")
    gr.EASE().fit(clustered(60, 30, 400), scratch=tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"lock", STATUS_FILE, SWEEP_FILE, LOCK_FILE}
    clear_scratch(tmp_path)
    assert (tmp_path / "lock").read_text() == "mine"
    clear_scratch(tmp_path / "never there")


def test_float64_takes_over_in_the_folder_too(tmp_path):
    events = clustered(20, 60, 200)  # more items than users: without l2 there is no inverse
    with pytest.warns(gr.errors.PrecisionWarning):
        model = gr.EASE(l2=1e-5).fit(events, scratch=tmp_path)
    assert model.scorer.inverse.dtype == np.float64
    assert np.array_equal(model.weights(), gr.EASE(l2=1e-5).fit(events, dtype="float64").weights())
    again = gr.EASE(l2=1e-5).fit(events, scratch=tmp_path)  # goes on where it was: in float64, without a warning
    assert np.array_equal(again.weights(), model.weights())


def test_a_model_without_an_inverse_has_no_use_for_a_folder(tmp_path):
    with pytest.raises(gr.errors.NotSupported, match="Leave scratch out"):
        gr.Popularity().fit(clustered(60, 30, 400), scratch=tmp_path)
    with pytest.raises(gr.errors.NotSupported, match="Leave scratch out"):
        gr.Popularity().estimate(clustered(60, 30, 400), scratch=tmp_path)
