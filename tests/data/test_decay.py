"""Weights that halve with age."""

import datetime as dt
from math import inf

import numpy as np
import polars as pl
import pytest

import gramian as gr

DAYS = [dt.date(2026, 1, 1), dt.date(2026, 1, 31), dt.date(2026, 3, 2), dt.date(2026, 3, 2)]
TABLE = pl.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 1, 3], "day": DAYS, "n": [1.0, 2.0, 4.0, 8.0]})
SECONDS = TABLE.with_columns(day=pl.col("day").cast(pl.Datetime).dt.epoch("s"))


def of(table=TABLE, **options):
    return gr.Interactions.of(table, time="day", **options)


def test_a_weight_halves_with_every_half_life():
    assert of().decayed("30d").matrix.data.tolist() == [0.25, 0.5, 1, 1]
    assert of(value="n").decayed("30d").matrix.data.tolist() == [0.25, 1, 4, 8]


@pytest.mark.parametrize(
    "half_life", ["30d", "30 d", "720h", "43200min", "2592000s", dt.timedelta(30), np.timedelta64(30, "D")]
)
def test_units_are_equivalent(half_life):
    for events in (of(), of(SECONDS), of(SECONDS.with_columns(day=1000 * pl.col("day")))):
        np.testing.assert_allclose(events.decayed(half_life).matrix.data, [0.25, 0.5, 1, 1])
    np.testing.assert_allclose(of(SECONDS).decayed(30 * 86_400).matrix.data, [0.25, 0.5, 1, 1])


def test_an_infinite_half_life_is_no_decay():
    for events in (of(), of(SECONDS), of(value="n")):
        assert events.decayed(inf).fingerprint == events.fingerprint


def test_now_scales_all_weights_and_later_interactions_keep_theirs():
    earlier = of().decayed("30d", now="2026-01-31")
    assert earlier.matrix.data.tolist() == [0.5, 1, 1, 1]
    later = of().decayed("30d", now=dt.datetime(2026, 4, 1))
    np.testing.assert_allclose(later.matrix.data, of().decayed("30d").matrix.data / 2)


def test_reading_with_a_half_life_is_decaying_afterwards(tmp_path):
    TABLE.write_csv(tmp_path / "log.csv")
    read = gr.read(tmp_path / "log.csv", time="day", half_life="30d", value="n")
    assert read.fingerprint == of(value="n").decayed("30d").fingerprint
    assert read.times.tolist() == of().times.tolist()


def test_what_is_very_old_keeps_a_tiny_weight():
    data = of().decayed("1s").matrix.data
    assert (data > 0).all()
    assert data[0] < 1e-37


def test_a_model_follows_the_newer_habit():
    """Old users went from item 0 to item 1, recent users go from item 0 to item 2."""
    table = pl.DataFrame({"user": [u for u in range(20) for _ in range(2)], "item": [0, 1] * 12 + [0, 2] * 8})
    table = table.with_columns(day=pl.Series([0.0] * 24 + [100.0] * 16))
    events = of(table)
    assert gr.EASE(l2=1).fit(events).recommend_for([[0]], k=1).items == [[1]]
    assert gr.EASE(l2=1).fit(events.decayed(10)).recommend_for([[0]], k=1).items == [[2]]


@pytest.mark.parametrize("half_life", [0, -3, "-3d", "0d", "3 moons", "d", "", None, float("nan"), True, [3], "1.2.3d"])
def test_what_is_no_half_life_is_refused(half_life, refused):
    with refused(mentioning="half_life"):
        of().decayed(half_life)


def test_times_and_units_must_fit(refused):
    with refused(mentioning="with times"):
        gr.Interactions.of(TABLE).decayed("30d")
    with refused(mentioning="time=... with half_life"):
        gr.Interactions.of(TABLE, half_life="30d")
    with refused(mentioning="a half_life with a unit"):
        of().decayed(30)
    with refused(mentioning="unit of the times"):
        of(TABLE.with_columns(day=pl.Series([1, 2, 3, 4]))).decayed("30d")
    with refused(mentioning="comparable"):
        of().decayed("30d", now=5)
    with refused():
        gr.Interactions.of(np.eye(2), half_life="3d")
