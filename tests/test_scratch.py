"""An inverse in a file: the same bits as in memory, wherever a run is killed, and never resumed where it must not be."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.inverse import begin, end, invert, run
from gramian.linalg.scratch import DONE, PREPARED, SAVED, Scratch
from gramian.linalg.symmetric import Symmetric, size

N, WIDTH = 150, 64


class Killed(BaseException):
    pass


class Counters:
    """Counters that kill the run before or after they are set for the nth time; before, what they stand for is half done."""

    def __init__(self, sweep, nth, before):
        self.sweep, self.values, self.left, self.before = sweep, sweep.counters, nth, before

    def __getitem__(self, at):
        return self.values[at]

    def __setitem__(self, at, value):
        self.left -= 1
        if self.left == 0 and self.before:
            self.spoil(at, value)
            raise Killed
        self.values[at] = value
        if self.left == 0:
            raise Killed

    def spoil(self, at, value):
        sweep = self.sweep
        spans = sweep.matrix.spans()
        if at == PREPARED and sweep.step < len(spans):
            sweep.column[::3], sweep.root[::2] = np.nan, np.nan
        elif at == SAVED:
            sweep.spare[::3] = np.nan
        elif at == DONE and value % sweep.pieces:
            sweep.matrix.block(*spans[(value - 1) % sweep.pieces])[::2] = np.nan
        elif at == DONE and value // sweep.pieces <= len(spans):
            sweep.matrix.block(*spans[value // sweep.pieces - 1])[::2] = np.nan


@pytest.fixture(scope="module")
def source():
    root = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
    matrix = Symmetric(N, np.empty(size(N, WIDTH), np.float32), WIDTH)
    dense = root @ root.T + 10 * np.eye(N, dtype=np.float32)
    for first, last, block in matrix.blocks():
        block[:] = dense[first:, first:last]
    return matrix


def resume(folder, source, nth=0, before=True):
    """Go on with the inverse in the folder, until it is done or killed."""
    with Scratch(folder, "key", N, np.float32, WIDTH) as sweep:
        if not sweep.begun:
            sweep.matrix.buffer[:] = source.buffer
            by, image = begin(sweep.matrix)
            sweep.begin(by=by, image=image)
        sweep.counters = Counters(sweep, nth, before)
        if not sweep.complete:
            run(sweep)
            end(sweep, sweep.kept["by"], sweep.kept["image"])
        return sweep.matrix.buffer.copy()


@pytest.mark.parametrize("before", [True, False])
def test_a_sweep_killed_at_any_point_ends_in_the_same_bits(source, tmp_path, before):
    expected = source.copy()
    invert(expected)
    nth = deaths = 0
    while True:
        nth += 1
        shutil.rmtree(tmp_path)
        try:
            resume(tmp_path, source, nth, before)
            break
        except Killed:
            deaths += 1
        assert np.array_equal(resume(tmp_path, source), expected.buffer), f"killed at {nth}"
    n_blocks = len(source.spans())
    assert deaths == (n_blocks + 1) * (2 * n_blocks + 2)  # each step: prepared, each block saved and done, finished


def test_a_sweep_killed_again_and_again_ends_in_the_same_bits(source, tmp_path):
    expected = source.copy()
    invert(expected)
    found = None
    while found is None:
        with contextlib.suppress(Killed):
            found = resume(tmp_path, source, nth=5)
    assert np.array_equal(found, expected.buffer)


EVENTS = {"n_users": 400, "n_items": 1_300, "n_interactions": 9_000}
KILLED = """
import os, signal
import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.scratch import Scratch

def blocks(self, original=Scratch.blocks):
    for first, last, block in original(self):
        yield first, last, block
        if self.step == 1 and first > 0:
            block[5:] = 0  # as if the product had stopped here
            os.kill(os.getpid(), signal.SIGKILL)

Scratch.blocks = blocks
gr.EDLAE(dropout=0.4, l2=20).fit(clustered({n_users}, {n_items}, {n_interactions}), scratch={folder!r})
"""


def test_a_fit_after_kill_minus_nine_goes_on_and_gives_the_same_model(tmp_path):
    folder = tmp_path / "scratch"
    child = subprocess.run([sys.executable, "-c", KILLED.format(folder=str(folder), **EVENTS)], check=False)
    assert child.returncode == -signal.SIGKILL
    events = clustered(**EVENTS)
    recipe = gr.EDLAE(dropout=0.4, l2=20)
    sweep_key = json.loads((folder / "facts.json").read_text())["key"]
    with Scratch(folder, sweep_key, events.n_items, np.float32) as sweep:
        assert sweep.step == 1
    model = recipe.fit(events, scratch=folder)
    assert np.array_equal(model.scorer.inverse.buffer, recipe.fit(events).scorer.inverse.buffer)
    model.save(tmp_path / "model")
    shutil.rmtree(folder)
    assert gr.load(tmp_path / "model").recommend([0]) == recipe.fit(events).recommend([0])


def test_models_of_one_penalty_share_a_finished_inverse(tmp_path, monkeypatch):
    events = clustered(60, 30, 400)
    gr.EDLAE(dropout=0.4, l2=20).fit(events, scratch=tmp_path)
    monkeypatch.setattr("gramian.models.autoencoders.run", lambda sweep: pytest.fail("inverted again"))
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


def test_a_folder_in_use_is_refused(source, tmp_path):
    with Scratch(tmp_path, "key", N, np.float32, WIDTH), pytest.raises(gr.errors.InvalidInput, match="another at work"):
        Scratch(tmp_path, "key", N, np.float32, WIDTH)
    with Scratch(tmp_path, "key", N, np.float32, WIDTH) as sweep:
        assert not sweep.begun


def test_after_a_restart_of_the_machine_only_a_complete_run_is_used(source, tmp_path, monkeypatch):
    with pytest.raises(Killed):
        resume(tmp_path, source, nth=12)
    booted = psutil.boot_time()
    monkeypatch.setattr(psutil, "boot_time", lambda: booted + 3_600)
    with pytest.warns(gr.errors.StartingOver, match="restarted"), Scratch(tmp_path, "key", N, np.float32, WIDTH) as sweep:
        assert not sweep.begun
    done = resume(tmp_path, source)
    monkeypatch.setattr(psutil, "boot_time", lambda: booted + 7_200)
    with Scratch(tmp_path, "key", N, np.float32, WIDTH) as sweep:
        assert sweep.complete
        assert np.array_equal(sweep.matrix.buffer, done)


def test_a_file_of_another_size_is_refused(source, tmp_path):
    resume(tmp_path, source)
    os.truncate(tmp_path / "sweep.bin", 1_000)
    with pytest.raises(gr.errors.InvalidInput, match="fit again"):
        Scratch(tmp_path, "key", N, np.float32, WIDTH)


def test_a_full_disk_is_refused_with_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000})())
    with pytest.raises(gr.errors.NotEnoughMemory, match="1 kB free"):
        gr.EASE().fit(clustered(60, 30, 400), scratch=tmp_path)


def test_float64_takes_over_in_the_folder_too(tmp_path):
    events = clustered(20, 60, 200)  # more items than users: without l2 there is no inverse
    with pytest.warns(gr.errors.PrecisionWarning):
        model = gr.EASE(l2=1e-5).fit(events, scratch=tmp_path)
    assert model.scorer.inverse.dtype == np.float64
    assert np.array_equal(model.weights(), gr.EASE(l2=1e-5).fit(events, dtype="float64").weights())


def test_a_model_without_an_inverse_has_no_use_for_a_folder(tmp_path):
    with pytest.raises(gr.errors.NotSupported, match="Leave scratch out"):
        gr.Popularity().fit(clustered(60, 30, 400), scratch=tmp_path)
    with pytest.raises(gr.errors.NotSupported, match="Leave scratch out"):
        gr.Popularity().estimate(clustered(60, 30, 400), scratch=tmp_path)
