"""Interactions.of: ids come back as they went in, and duplicates merge by the stated rule."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import count
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from data.pairs import entries, pairs
from gramian import Interactions

IDS = {
    "int": [3, 1, 2],
    "negative int": [-5, 0, 7],
    "uint64": [2**63, 2**64 - 1, 5],
    "huge int": [2**70, -(2**70), 0],
    "float": [0.5, -1.25, 3.0],
    "str": ["bob", "ann", "é"],
    "digits": ["42", "007", "7"],
    "bytes": [b"b", b"\xff", b""],
    "date": [date(2020, 2, 29), date(1969, 12, 31), date(2021, 1, 1)],
    "datetime": [datetime(2020, 1, 2, 3, 4, 5, 6), datetime(1969, 1, 1), datetime(2021, 1, 1)],
    "uuid": [UUID(int=9), UUID(int=5), UUID(int=2**127)],
    "tuple": [("b", 1), ("a", 2), ("a", 1)],
    "tuple of ints": [(1, 2), (3, 4), (0, 0)],
}


def polars(columns):
    python_objects = (tuple, UUID)
    return pl.DataFrame(
        [pl.Series(n, v, dtype=pl.Object if isinstance(v[0], python_objects) else None) for n, v in columns.items()]
    )


def lazy(columns):
    return polars(columns).lazy()


def pandas(columns):
    return pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})


def arrow(columns):
    big = {name: any(isinstance(v, int) and v >= 2**63 for v in values) for name, values in columns.items()}
    return pa.table({name: pa.array(values, pa.uint64() if big[name] else None) for name, values in columns.items()})


TABLES = [polars, lazy, pandas, arrow]
NOT_IN_ARROW = ("huge int", "tuple", "tuple of ints")


# ids


@pytest.mark.parametrize(
    ("make", "ids"),
    [
        pytest.param(make, ids, id=f"{make.__name__}-{kind}")
        for make in TABLES
        for kind, ids in IDS.items()
        if make is not arrow or kind not in NOT_IN_ARROW
    ],
)
def test_ids_come_back_as_they_went_in(make, ids):
    a, b, c = ids
    users, items = [a, b, c, a], [b, c, a, a]
    events = Interactions.of(make({"user": users, "item": items}))
    assert set(pairs(events)) == set(zip(users, items, strict=True))
    assert {type(i) for i in events.users.tolist() + events.items.tolist()} == {type(a)}


@pytest.mark.parametrize(
    ("column", "ids"),
    [
        (pd.Categorical(["b", "a", "b"]), ["b", "a", "b"]),
        (pd.Categorical([5, 3, 5]), [5, 3, 5]),
        (pd.array(["b", "a", "b"], dtype="string"), ["b", "a", "b"]),
        (pd.array([3, 1, 3], dtype="Int64"), [3, 1, 3]),
        (pd.array([3, 1, 3], dtype="UInt8"), [3, 1, 3]),
        (pd.Series([date(2020, 1, 1), date(2019, 1, 1), date(2020, 1, 1)], dtype=object), None),
        (pd.to_datetime(["2020-01-01", "2019-01-01", "2020-01-01"]), None),
        (pd.Series([("a", 1), ("b", 2), ("a", 1)], dtype=object), None),
    ],
    ids=["categorical", "categorical int", "string", "Int64", "UInt8", "dates", "datetimes", "tuples"],
)
def test_pandas_columns_of_every_kind_keep_their_ids(column, ids):
    expected = list(column) if ids is None else ids
    events = Interactions.of(pd.DataFrame({"user": column, "item": [10, 20, 20]}).set_index(pd.Index([7, 7, 9])))
    assert set(pairs(events)) == set(zip(expected, [10, 20, 20], strict=True))


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["b", "a"])], ids=["categorical", "enum"])
def test_polars_categories_are_text(dtype):
    events = Interactions.of(pl.DataFrame({"user": pl.Series(["b", "a"], dtype=dtype), "item": [1, 2]}))
    assert pairs(events) == [("a", 2), ("b", 1)]


def test_arrow_dictionaries_and_chunks_are_read_through():
    part = pa.table({"user": pa.array(["b", "a"]).dictionary_encode(), "item": [1, 2]})
    events = Interactions.of(pa.concat_tables([part, part.slice(0, 1)]))
    assert pairs(events) == [("a", 2), ("b", 1)]


def test_the_text_7_and_the_number_7_are_different_ids():
    text = Interactions.of(pl.DataFrame({"user": ["7"], "item": [1]}))
    number = Interactions.of(pl.DataFrame({"user": [7], "item": [1]}))
    assert text.users != number.users
    assert text.fingerprint != number.fingerprint


@pytest.mark.parametrize("user", ["user_id", "user", "userId", "uid"])
@pytest.mark.parametrize("item", ["item_id", "item", "itemId", "iid"])
def test_the_usual_column_names_are_guessed(user, item):
    events = Interactions.of(pl.DataFrame({"other": [0], item: ["i"], user: ["u"]}))
    assert pairs(events) == [("u", "i")]


def test_user_id_is_guessed_before_user_and_a_given_name_before_both():
    table = pl.DataFrame({"user": ["b"], "user_id": ["a"], "who": ["c"], "item": [1]})
    assert Interactions.of(table).users.tolist() == ["a"]
    assert Interactions.of(table, user="who").users.tolist() == ["c"]


def test_pandas_columns_named_by_numbers_can_be_named_as_the_error_shows_them():
    assert pairs(Interactions.of(pd.DataFrame([[1, 2], [3, 4]]), user="0", item="1")) == [(1, 2), (3, 4)]


def test_the_rows_of_a_lazy_frame_stay_together_when_its_order_varies_from_run_to_run():
    turn = count()

    def rotated(frame):
        cut = next(turn) % len(frame) if len(frame) else 0
        return pl.concat([frame[cut:], frame[:cut]])

    table = pl.DataFrame({"user": range(50), "item": range(50)}).lazy().map_batches(rotated)
    assert all(user == item for user, item in pairs(Interactions.of(table)))


def test_interactions_of_interactions_are_themselves(events):
    assert Interactions.of(events) is events


# matrices


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_a_sparse_matrix_keeps_its_entries_and_numbers_its_ids(form):
    dense = np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, 0]])
    for made in (sp.coo_array(dense).asformat(form), sp.coo_matrix(dense).asformat(form)):
        events = Interactions.of(made)
        np.testing.assert_array_equal(events.matrix.toarray(), dense)
        assert events.users.tolist() == events.items.tolist() == [0, 1, 2]


def test_a_numpy_matrix_is_the_same_as_its_sparse_twin():
    dense = np.array([[0, 2, 0], [3, 0, 1]])
    assert Interactions.of(dense).fingerprint == Interactions.of(sp.csr_array(dense)).fingerprint
    assert Interactions.of(dense > 0).is_binary


def test_duplicate_entries_of_a_coo_matrix_add_and_stored_zeros_vanish():
    matrix = sp.coo_array(([1, 2, 3, 0], ([0, 0, 1, 1], [1, 1, 0, 2])), shape=(2, 3))
    assert entries(Interactions.of(matrix)) == {(0, 1): 3, (1, 0): 3}


def test_a_threshold_makes_a_matrix_binary_and_forgives_negative_entries():
    events = Interactions.of(np.array([[-3.0, 4, 5], [3.9, 0, 4]]), min_value=4)
    assert entries(events) == {(0, 1): 1, (0, 2): 1, (1, 2): 1}


def test_the_given_matrix_is_not_touched():
    matrix = sp.csr_array(([5.0, 0.0, 3.0], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    before = matrix.data.copy(), matrix.indices.copy()
    Interactions.of(matrix, min_value=4)
    np.testing.assert_array_equal(matrix.data, before[0])
    np.testing.assert_array_equal(matrix.indices, before[1])


# values, times, titles


@pytest.mark.parametrize("make", TABLES)
def test_without_values_every_pair_counts_once(make):
    events = Interactions.of(make({"user": ["a", "a", "b"], "item": [1, 1, 2], "rating": [5, 3, 1]}))
    assert entries(events) == {("a", 1): 1, ("b", 2): 1}
    assert events.is_binary


@pytest.mark.parametrize("make", TABLES)
def test_weights_of_duplicates_add(make):
    events = Interactions.of(make({"user": ["a", "a", "b"], "item": [1, 1, 2], "plays": [5.0, 3.0, 1.5]}), value="plays")
    assert entries(events) == {("a", 1): 8, ("b", 2): 1.5}
    assert not events.is_binary


@pytest.mark.parametrize("make", TABLES)
def test_a_threshold_is_inclusive_counts_once_and_looks_at_each_event_alone(make):
    table = make({"user": ["a", "b", "b", "c", "c", "d"], "item": [1, 2, 2, 3, 3, 4], "rating": [4, 5, 9, 3, 3, -1]})
    events = Interactions.of(table, min_value=("rating", 4))
    assert entries(events) == {("a", 1): 1, ("b", 2): 1}
    assert (events.users.tolist(), events.items.tolist()) == (["a", "b"], [1, 2])


def test_a_threshold_filters_times_and_titles_and_object_ids_too():
    table = pd.DataFrame(
        {"user": [("a",), ("b",)], "item": [1, 2], "rating": [1, 5], "time": [10, 20], "title": ["bad", "good"]}
    )
    events = Interactions.of(table, min_value=("rating", 4), time="time", title="title")
    assert pairs(events) == [(("b",), 2)]
    assert events.times.tolist() == [20]
    assert events.titles == ["good"]


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize(
    "times",
    [[3, 1, 2], [-1, -7, 0], [0.5, 0.25, 1.5], [datetime(2022, 1, 1, 12), datetime(2020, 1, 1), datetime(2021, 1, 1)]],
    ids=["int", "negative", "float", "datetime"],
)
def test_the_time_kept_is_the_latest(make, times):
    first, second, third = times
    table = make({"user": ["a", "a", "b"], "item": [1, 1, 2], "time": [second, first, third]})
    assert Interactions.of(table, time="time").times.tolist() == [first, third]


def test_dates_and_zoned_datetimes_are_moments():
    days = pl.DataFrame({"user": ["a", "b"], "item": [1, 1], "day": [date(2020, 1, 1), date(2021, 1, 1)]})
    assert Interactions.of(days, time="day").times.tolist() == [datetime(2020, 1, 1), datetime(2021, 1, 1)]
    zoned = pl.DataFrame({"user": ["a"], "item": [1], "at": [datetime(2020, 1, 1, 12, tzinfo=UTC)]})
    paris = zoned.with_columns(pl.col("at").dt.convert_time_zone("Europe/Paris"))
    assert Interactions.of(zoned, time="at").times == Interactions.of(paris, time="at").times


@pytest.mark.parametrize("make", TABLES)
def test_zoned_datetimes_are_moments_in_every_table(make):
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    events = Interactions.of(make({"user": ["a", "b"], "item": [1, 1], "at": [noon, noon + timedelta(hours=1)]}), time="at")
    assert events.times.tolist() == [datetime(2020, 1, 1, 12), datetime(2020, 1, 1, 13)]


@pytest.mark.parametrize("make", TABLES)
def test_titles_follow_the_items(make):
    table = make({"user": [1, 2, 3], "item": ["z", "a", "z"], "name": ["Zulu", "Alien", "Zulu"]})
    events = Interactions.of(table, title="name")
    assert dict(zip(events.items.tolist(), events.titles, strict=True)) == {"a": "Alien", "z": "Zulu"}


@pytest.mark.parametrize("make", TABLES)
def test_an_item_without_a_title_is_shown_by_its_id(make):
    table = make({"user": [1, 2], "item": [10, 20], "name": ["Alien", None]})
    assert Interactions.of(table, title="name").titles == ["Alien", "20"]


def test_a_missing_title_does_not_hide_a_later_one():
    table = pl.DataFrame({"user": [1, 2], "item": [10, 10], "name": [None, "Alien"]})
    assert Interactions.of(table, title="name").titles == ["Alien"]


def test_with_titles_takes_a_mapping_and_shows_the_rest_by_id(events):
    assert events.with_titles({"A": "Aliens"}).titles == ["Aliens", "B", "C", "D", "E"]


logs = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 40).map(lambda n: n / 4), st.integers(-9, 9)),
    min_size=1,
    max_size=20,
)


def frame_of(log):
    return pl.DataFrame(log, schema=["user", "item", "weight", "time"], orient="row")


@given(logs)
def test_duplicates_merge_as_a_dictionary_would(log):
    weights, times = Counter(), {}
    for user, item, weight, time in log:
        weights[user, item] += weight
        times[user, item] = max(time, times.get((user, item), time))
    events = Interactions.of(frame_of(log), value="weight", time="time")
    assert entries(events) == weights
    assert dict(zip(pairs(events), events.times.tolist(), strict=True)) == times
    assert entries(Interactions.of(frame_of(log))) == dict.fromkeys(weights, 1)


@pytest.mark.parametrize(
    "as_id", [int, str, lambda n: (n % 2, str(n)), lambda n: UUID(int=n)], ids=["int", "str", "tuple", "uuid"]
)
@settings(max_examples=25)
@given(logs.flatmap(lambda log: st.tuples(st.just(log), st.permutations(log))))
def test_the_order_of_the_events_does_not_matter(as_id, orders):
    given_order, other_order = (
        Interactions.of(
            pd.DataFrame([(as_id(u), as_id(i), w, t) for u, i, w, t in log], columns=["user", "item", "weight", "time"]),
            value="weight",
            time="time",
        )
        for log in orders
    )
    assert given_order.fingerprint == other_order.fingerprint
    assert given_order.users == other_order.users
    np.testing.assert_array_equal(given_order.times, other_order.times)


def test_the_fingerprint_sees_ids_entries_and_weights():
    tables = [
        {"user": [1, 2], "item": [1, 2], "weight": [1, 1]},
        {"user": [1, 3], "item": [1, 2], "weight": [1, 1]},
        {"user": [1, 2], "item": [1, 3], "weight": [1, 1]},
        {"user": [1, 2, 2], "item": [1, 2, 1], "weight": [1, 1, 1]},
        {"user": [1, 2], "item": [1, 2], "weight": [1, 2]},
    ]
    assert len({Interactions.of(pl.DataFrame(table), value="weight").fingerprint for table in tables}) == len(tables)


def test_counts_and_popularity(events):
    assert (events.n_users, events.n_items, events.n_interactions) == (6, 5, 19)
    assert events.popularity.tolist() == [4, 4, 4, 5, 2]
    assert repr(events) == "Interactions(6 users × 5 items, 19 interactions)"


@given(logs)
def test_the_matrix_is_canonical(log):
    matrix = Interactions.of(frame_of(log), value="weight").matrix
    assert matrix.dtype == np.float32
    assert matrix.has_canonical_format
    assert (matrix.data > 0).all()
    assert np.diff(matrix.indptr).min() > 0


@given(logs)
def test_frame_and_back_is_the_same(log):
    events = Interactions.of(frame_of(log), value="weight", time="time")
    again = Interactions.of(events.frame(), value="value", time="time")
    assert again.fingerprint == events.fingerprint
    np.testing.assert_array_equal(again.times, events.times)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_frame_gives_back_ids_of_every_type(ids):
    events = Interactions.of(pandas({"user": ids, "item": ids[::-1]}))
    again = Interactions.of(events.frame())
    assert again.users == events.users
    assert again.items == events.items
    assert pairs(again) == pairs(events)
