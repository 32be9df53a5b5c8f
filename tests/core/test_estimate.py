"""The memory and the disk space of a fit: estimated before, refused with the numbers, and kept to."""

import tracemalloc

import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import memory
from gramian.linalg.resumable import SWEEP_FILE
from gramian.progress import format_duration

EVENTS = clustered(200, 150, 3_000)
RECIPE = gr.EDLAE(dropout=0.3, l2=10)


def test_the_estimate_counts_bytes(monkeypatch):
    monkeypatch.setattr("gramian.core.recipe.available_bytes", lambda: 10**9)
    estimate = RECIPE.estimate(EVENTS)
    assert estimate.peak_bytes == 4 * (150 * 150 + 150 * 150 + 5 * 150 * 150) + 8 * EVENTS.n_interactions
    assert estimate.free_bytes == 10**9
    assert estimate.fits
    assert "fits" in str(estimate)
    double = RECIPE.estimate(EVENTS, dtype="float64")
    assert double.peak_bytes - 8 * EVENTS.n_interactions == 2 * (estimate.peak_bytes - 8 * EVENTS.n_interactions)


def test_the_estimate_with_a_file_is_what_the_file_takes(tmp_path):
    estimate = RECIPE.estimate(EVENTS, scratch=tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()
    RECIPE.fit(EVENTS, scratch=tmp_path)
    assert estimate.disk_bytes == (tmp_path / SWEEP_FILE).stat().st_size
    assert estimate.peak_bytes == 4 * 5 * 150 * 150 + 8 * EVENTS.n_interactions
    assert estimate.free_disk_bytes > estimate.disk_bytes


def test_what_cannot_fit_is_refused_with_numbers_and_a_way_out(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    monkeypatch.setattr("gramian.core.recipe.available_bytes", lambda: 100_000)
    estimate = RECIPE.estimate(EVENTS)
    assert not estimate.fits
    assert "does not fit" in str(estimate)
    with pytest.raises(gr.errors.NotEnoughMemory, match=r"100 kB free\. Keep fewer items .* keep the matrix in a file"):
        RECIPE.fit(EVENTS)


def test_a_fit_stays_within_its_estimate():
    events = clustered(2_000, 1_500, 40_000)
    RECIPE.fit(EVENTS)  # compile
    expected = RECIPE.estimate(events).peak_bytes
    tracemalloc.start()
    RECIPE.fit(events)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.9 * expected < peak < 1.1 * expected + 2**20


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1e-5, "under 0.01 s"), (0.123, "0.12 s"), (9.4, "9.4 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (7_260, "2 h 1 min")],
)
def test_durations_are_words(seconds, words):
    assert format_duration(seconds) == words
