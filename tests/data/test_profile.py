"""A look at a table: which columns are taken for what, what looks wrong, and what is done about it."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.data.profile import as_dates, measure_quantiles

RNG = np.random.default_rng(0)
DAY = 86_400
TODAY = int(datetime.now(UTC).timestamp())


def table(n_users=60, n_items=40, per_user=8, **columns):
    users = np.repeat(np.arange(n_users), per_user)
    items = np.concatenate([RNG.choice(n_items, per_user, replace=False) for _ in range(n_users)])
    return pl.DataFrame({"user_id": users, "item_id": items, **columns})


def problems(profile):
    return " | ".join(str(finding) for finding in profile.findings)


def test_counts_and_quantiles_are_those_of_the_table():
    frame = pl.concat([table(), table(n_users=1, per_user=3)])
    profile = gr.describe(frame)
    pairs = frame.unique(["user_id", "item_id"])
    assert (profile.n_rows, profile.n_interactions) == (len(frame), len(pairs))
    assert profile.n_duplicates == len(frame) - len(pairs)
    assert profile.density == pytest.approx(len(pairs) / (profile.n_users * profile.n_items))
    lengths = sorted(pairs["user_id"].value_counts()["count"])
    assert profile.history_lengths["min"] == lengths[0]
    assert profile.history_lengths["max"] == lengths[-1]
    assert profile.history_lengths["median"] == lengths[(len(lengths) - 1) // 2]
    assert measure_quantiles(np.array([5]))["75 %"] == 5
    assert f"{profile.n_duplicates} row" in str(profile)


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (["user_id", "item_id", "timestamp"], {"user": "user_id", "item": "item_id", "time": "timestamp"}),
        (["CustomerID", "product_id", "InvoiceDate"], {"user": "CustomerID", "item": "product_id", "time": "InvoiceDate"}),
        (["uid", "movieId", "ts"], {"user": "uid", "item": "movieId", "time": "ts"}),
    ],
)
def test_columns_are_guessed_by_their_names(names, roles):
    frame = table(time=np.arange(480) * DAY + 1_500_000_000)
    frame.columns = names
    profile = gr.describe(frame.with_columns(remark=pl.lit("x")))
    assert profile.columns == roles
    assert profile.unused == ("remark",)
    assert "remark" in str(profile)
    assert profile.events.times is not None


def test_a_file_and_a_table_have_the_same_profile(tmp_path):
    frame = table(rating=RNG.integers(1, 6, 480), timestamp=np.arange(480) + 1_500_000_000)
    frame.write_csv(tmp_path / "events.csv")
    from_file, from_table = gr.describe(str(tmp_path / "events.csv")), gr.describe(frame)
    assert from_file.to_json() == from_table.to_json()
    assert from_file.events.fingerprint == from_table.events.fingerprint


def test_times_that_number_the_events_of_a_user_are_not_used():
    profile = gr.describe(table(time=np.tile(np.arange(8), 60)))
    assert "only number the events of each user" in problems(profile)
    assert profile.events.times is None
    assert gr.describe(table(time=RNG.integers(0, 9, 480))).events.times is not None


def test_ids_that_differ_in_every_row_are_named():
    frame = table()
    shuffled = frame.with_columns(user_id=pl.Series(RNG.permutation(len(frame))))
    assert "user_id, taken for the user, is different in every row" in problems(gr.describe(shuffled))
    assert "is different in every row" not in problems(gr.describe(frame))
    one_user = pl.DataFrame({"user_id": np.zeros(30, int), "item_id": RNG.permutation(30)})
    assert "is different in every row" not in problems(gr.describe(one_user))


def test_named_columns_win_and_unknown_ones_are_refused():
    frame = table(other=np.repeat(np.arange(240), 2))
    assert gr.describe(frame, user="other").n_users == 240
    with pytest.raises(gr.errors.InvalidInput, match="a column named"):
        gr.describe(table().rename({"user_id": "who"}))


def test_ratings_are_thresholded_and_counts_are_not():
    ratings = np.tile([5, 4, 4, 3, 2, 5, 4, 1], 60)
    profile = gr.describe(table(rating=ratings))
    assert profile.values.kind == "ratings"
    assert profile.events.n_interactions == (ratings >= 4).sum()
    counts = np.tile([1, 1, 1, 2, 1, 9, 150, 3], 60)
    profile = gr.describe(table(plays=counts))
    assert profile.values.kind == "counts"
    assert profile.events.is_binary
    assert profile.events.n_interactions == 480
    weighted = gr.describe(table(plays=counts), value="plays", weight="log")
    assert not weighted.events.is_binary
    assert weighted.values.use == "used as weights"
    assert gr.describe(table(rating=ratings), min_value=("rating", 2)).events.n_interactions == (ratings >= 2).sum()
    assert gr.describe(table(rating=np.ones(480))).values.kind == "one value"


def test_a_user_with_half_of_the_events_is_left_out():
    bot = pl.DataFrame({"user_id": np.full(500, 999), "item_id": np.arange(500)})
    frame = pl.concat([table(), bot])
    profile = gr.describe(frame)
    assert "999" in problems(profile)
    assert "51%" in problems(profile)
    assert 999 not in profile.events.users.tolist()
    assert profile.events.n_interactions == 480
    assert 999 in gr.describe(frame, keep_suspicious=True).events.users.tolist()


def test_a_crowd_of_equals_has_no_finding():
    assert gr.describe(table()).findings == ()


@pytest.mark.parametrize("role", ["user", "item"])
def test_ids_that_number_the_rows_are_named(role):
    frame = table().with_columns(pl.int_range(pl.len()).alias(f"{role}_id"))
    assert f"{role}_id, taken for the {role}, numbers the rows from 0 to 479" in problems(gr.describe(frame))


def test_future_dates_are_left_out_and_many_of_them_discredit_the_times():
    times = TODAY - RNG.integers(1, 1000, 480) * DAY
    times[:3] = TODAY + 400 * DAY
    profile = gr.describe(table(timestamp=times))
    assert "3 events are dated in the future" in problems(profile)
    assert profile.events.n_interactions == 477
    assert profile.events.times is not None
    assert gr.describe(table(timestamp=times), keep_suspicious=True).events.n_interactions == 480
    times[:200] = TODAY + 400 * DAY
    assert gr.describe(table(timestamp=times)).events.times is None
    times = TODAY - RNG.integers(1, 1000, 480) * DAY
    times[0] = 0
    assert "1970" in problems(gr.describe(table(timestamp=times)))


def test_times_that_cannot_be_read_are_not_used_unless_asked_for():
    frame = table(date=["soon"] * 480)
    profile = gr.describe(frame)
    assert profile.events.times is None
    assert "cannot be read" in problems(profile)
    with pytest.raises(gr.errors.InvalidInput):
        gr.describe(frame, time="date")


def test_times_that_are_all_equal_are_not_used():
    assert gr.describe(table(timestamp=np.full(480, 1_500_000_000))).events.times is None


def test_numbers_are_dates_only_where_they_look_like_epochs():
    assert as_dates(np.array([1, 2, 3])) is None
    day = np.datetime64("2020-02-03", "us")
    seconds = np.array([int(day.astype("datetime64[s]").astype(int))])
    assert as_dates(seconds)[0] == day
    assert as_dates(seconds * 1000)[0] == day
    assert as_dates(np.array([day]))[0] == day


def test_interactions_and_matrices_have_a_profile_too():
    events = gr.Interactions.of(table())
    assert gr.describe(events).n_interactions == events.n_interactions
    assert gr.describe(events.matrix).n_users == events.n_users
    assert "findings" in repr(gr.describe(events))
    assert "<table" in gr.describe(events)._repr_html_()
    with pytest.raises(gr.errors.InvalidInput, match="no options of reading"):
        gr.describe(events, user="user_id")


def test_lonely_users_and_items_are_reported():
    frame = pl.DataFrame({"user_id": range(100), "item_id": range(1000, 1100)}).with_columns(pl.col("user_id") * 7)
    assert "100 of 100 users have a single item" in problems(gr.describe(frame))
    assert "100 of 100 items have a single user" in problems(gr.describe(frame))
