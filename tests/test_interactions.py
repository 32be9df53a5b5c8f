"""Interactions.of: ids come back as they went in, duplicates merge by the stated rule, and everything stays aligned."""

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
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gramian import Interactions
from gramian.data.ids import Index
from gramian.errors import InvalidInput

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


def pairs(events):
    return list(zip(events.users[events.rows], events.items[events.matrix.indices], strict=True))


def entries(events):
    return dict(zip(pairs(events), events.matrix.data.tolist(), strict=True))


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


# parts: the weight, the time and the title of a pair can be told from its ids, so a slip in alignment shows

marked_pairs = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1)


def marked(some_pairs):
    rows = [(u, i, 10 * u + i + 1, 100 * u - i, f"item {i}") for u, i in some_pairs]
    table = pl.DataFrame(rows, schema=["user", "item", "weight", "time", "title"], orient="row")
    return Interactions.of(table, value="weight", time="time", title="title")


def assert_holds(events, expected_pairs):
    assert set(pairs(events)) == set(expected_pairs)
    assert events.matrix.has_canonical_format
    assert events.matrix.data.tolist() == [10 * u + i + 1 for u, i in pairs(events)]
    assert events.times.tolist() == [100 * u - i for u, i in pairs(events)]


@given(marked_pairs, st.data())
def test_take_picks_whole_users_in_the_asked_order(some_pairs, data):
    events = marked(some_pairs)
    rows = data.draw(st.permutations(range(events.n_users)))[: data.draw(st.integers(1, events.n_users))]
    part = events.take(np.array(rows))
    assert part.users.tolist() == [events.users.tolist()[row] for row in rows]
    assert part.items == events.items
    assert part.titles == events.titles
    assert_holds(part, {(u, i) for u, i in some_pairs if u in part.users.tolist()})


@given(marked_pairs, st.data())
def test_keep_drops_entries_and_compact_drops_what_is_left_empty(some_pairs, data):
    events = marked(some_pairs)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(some_pairs), max_size=len(some_pairs))))
    assume(mask.any())
    kept = {pair for pair, stays in zip(pairs(events), mask, strict=True) if stays}
    part = events.keep(mask)
    assert part.users == events.users
    assert part.titles == events.titles
    assert_holds(part, kept)
    small = part.compact()
    assert small.users.tolist() == sorted({u for u, _ in kept})
    assert small.items.tolist() == sorted({i for _, i in kept})
    assert small.titles == [f"item {i}" for i in small.items.tolist()]
    assert_holds(small, kept)


@given(marked_pairs, st.data())
def test_reindex_moves_events_and_drops_strangers(some_pairs, data):
    events = marked(some_pairs)
    users, items = (data.draw(st.lists(st.integers(-1, 11), unique=True, min_size=1)) for _ in range(2))
    kept = {(u, i) for u, i in some_pairs if u in users and i in items}
    assume(kept)
    moved = events.reindex(Index(users), Index(items))
    assert (moved.users.tolist(), moved.items.tolist()) == (users, items)
    known = set(events.items.tolist())
    assert moved.titles == [f"item {i}" if i in known else str(i) for i in items]
    assert_holds(moved, kept)


def test_reindex_to_the_same_ids_changes_nothing(events):
    moved = events.reindex(Index(events.users.tolist()), Index(events.items.tolist()))
    assert moved.fingerprint == events.fingerprint


def naive_core(some_pairs, per_user, per_item):
    while True:
        items_of, users_of = Counter(u for u, _ in some_pairs), Counter(i for _, i in some_pairs)
        smaller = {(u, i) for u, i in some_pairs if items_of[u] >= per_user and users_of[i] >= per_item}
        if smaller == some_pairs:
            return some_pairs
        some_pairs = smaller


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=5), st.integers(0, 4), st.integers(0, 4))
def test_k_core_is_the_naive_loop_and_a_fixed_point(some_pairs, per_user, per_item):
    expected = naive_core(some_pairs, per_user, per_item)
    if not expected:
        with pytest.raises(InvalidInput, match="nothing left"):
            marked(some_pairs).k_core(per_user, per_item)
        return
    core = marked(some_pairs).k_core(per_user, per_item)
    assert_holds(core, expected)
    assert core.titles == [f"item {i}" for i in core.items.tolist()]
    assert np.diff(core.matrix.indptr).min() >= max(per_user, 1)
    assert core.popularity.min() >= max(per_item, 1)
    assert core.k_core(per_user, per_item).fingerprint == core.fingerprint


def test_one_number_asks_the_same_core_of_users_and_items(events):
    assert events.k_core(3).fingerprint == events.k_core(3, 3).fingerprint
    assert events.k_core(3).n_items == 4


# bad input


def table(**columns):
    return pl.DataFrame({"user": ["a", "b"], "item": [1, 2]} | columns, strict=False)


def objects(*values):
    return pl.Series(values, dtype=pl.Object)


VALUES, THRESHOLD, TIME = {"value": "x"}, {"min_value": ("x", 2)}, {"time": "x"}
BAD_TABLES = {
    "null id": (table(user=["a", None]), {}),
    "null item": (table(item=[1, None]), {}),
    "null id, lazy": (table(user=["a", None]).lazy(), {}),
    "null id, pandas": (pd.DataFrame({"user": ["a", None], "item": [1, 2]}), {}),
    "null id, pandas Int64": (pd.DataFrame({"user": pd.array([1, None], dtype="Int64"), "item": [1, 2]}), {}),
    "null id, arrow": (pa.table({"user": ["a", None], "item": [1, 2]}), {}),
    "None among objects": (table(user=objects(("a",), None)), {}),
    "only nulls": (table(user=[None, None]), {}),
    "NaN id": (table(user=[1.0, float("nan")]), {}),
    "NaN id, pandas": (pd.DataFrame({"user": [1.0, float("nan")], "item": [1, 2]}), {}),
    "NaN id, arrow": (pa.table({"user": [1.0, float("nan")], "item": [1, 2]}), {}),
    "mixed ids": (table(user=objects("a", 1)), {}),
    "mixed ids, pandas": (pd.DataFrame({"user": ["a", 1], "item": [1, 2]}), {}),
    "int and float ids, pandas": (pd.DataFrame({"user": pd.Series([1, 2.5], dtype=object), "item": [1, 2]}), {}),
    "True among ints": (pd.DataFrame({"user": pd.Series([True, 2], dtype=object), "item": [1, 2]}), {}),
    "dict ids": (table(user=objects({"a": 1}, {"b": 2})), {}),
    "set ids, pandas": (pd.DataFrame({"user": [{1}, {2}], "item": [1, 2]}), {}),
    "array ids, pandas": (pd.DataFrame({"user": [np.array([1, 2]), np.array([3, 4])], "item": [1, 2]}), {}),
    "no user column": (pl.DataFrame({"who": [1], "item": [1]}), {}),
    "no item column": (pl.DataFrame({"user": [1], "what": [1]}), {}),
    "no columns": (pl.DataFrame(), {}),
    "unknown user name": (table(), {"user": "nobody"}),
    "unknown value name": (table(), {"value": "rating"}),
    "unknown threshold name": (table(), {"min_value": ("rating", 4)}),
    "unknown time name": (table(), {"time": "when"}),
    "unknown title name": (table(), {"title": "name"}),
    "two columns of one name, pandas": (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), {}),
    "two columns of one name, arrow": (pa.table([[1], [2], [3]], names=["user", "user", "item"]), {}),
    "NaN weight": (table(x=[1.0, float("nan")]), VALUES),
    "infinite weight": (table(x=[1.0, float("inf")]), VALUES),
    "null weight": (table(x=[1, None]), VALUES),
    "negative weight": (table(x=[1, -1]), VALUES),
    "zero weight": (table(x=[1, 0]), VALUES),
    "weight beyond float32": (table(x=[1.0, 1e300]), VALUES),
    "weights whose sum is beyond float32": (pl.DataFrame({"user": [1, 1], "item": [1, 1], "x": [3e38, 3e38]}), VALUES),
    "weight that float32 rounds to zero": (table(x=[1.0, 1e-300]), VALUES),
    "text weight": (table(x=["much", "little"]), VALUES),
    "number and word as weights": (pd.DataFrame({"user": [1, 2], "item": [1, 2], "x": [1, "much"]}), VALUES),
    "NaN rating": (table(x=[5.0, float("nan")]), THRESHOLD),
    "infinite rating": (table(x=[5.0, float("-inf")]), THRESHOLD),
    "null rating": (table(x=[5, None]), THRESHOLD),
    "null rating, pandas": (pd.DataFrame({"user": [1, 2], "item": [1, 2], "x": [5, None]}), THRESHOLD),
    "text rating": (table(x=["5", "4"]), THRESHOLD),
    "nothing above the threshold": (table(x=[1, 1]), THRESHOLD),
    "value together with min_value": (table(x=[1, 2]), VALUES | THRESHOLD),
    "threshold without a column": (table(x=[1, 2]), {"min_value": 4}),
    "threshold without a number": (table(x=[1, 2]), {"min_value": ("x", None)}),
    "threshold in words": (table(x=[1, 5]), {"min_value": ("x", "4")}),
    "NaN threshold": (table(x=[1, 5]), {"min_value": ("x", float("nan"))}),
    "null time": (table(x=[1, None]), TIME),
    "NaN time": (table(x=[1.0, float("nan")]), TIME),
    "text time": (table(x=["noon", "night"]), TIME),
    "duration as time": (table(x=[timedelta(1), timedelta(2)]), TIME),
    "number and word as times": (pd.DataFrame({"user": [1, 2], "item": [1, 2], "x": [1, "noon"]}), TIME),
    "no rows": (pl.DataFrame({"user": [], "item": []}), {}),
    "no rows, pandas": (pd.DataFrame({"user": [], "item": []}), {}),
    "no rows, arrow": (pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.int64())}), {}),
    "no rows, weights": (pl.DataFrame({"user": [], "item": [], "x": []}), VALUES),
}
BAD_MATRICES = {
    "one dimension": (np.ones(3), {}),
    "three dimensions": (np.ones((2, 2, 2)), {}),
    "one sparse dimension": (sp.coo_array(np.ones(3)), {}),
    "all zeros": (np.zeros((2, 2)), {}),
    "no rows": (np.zeros((0, 3)), {}),
    "no stored entries": (sp.csr_array((2, 2)), {}),
    "NaN": (np.array([[1, float("nan")]]), {}),
    "infinity": (sp.csr_array(np.array([[1, float("inf")]])), {}),
    "NaN under a threshold": (np.array([[5, float("nan")]]), {"min_value": 4}),
    "negative": (np.array([[1, -1]]), {}),
    "beyond float32": (np.array([[1, 1e300]]), {}),
    "text": (np.array([["a", "b"]]), {}),
    "complex": (np.array([[1 + 1j]]), {}),
    "threshold with a column": (np.eye(2), {"min_value": ("rating", 4)}),
    "threshold in words": (np.eye(2), {"min_value": "4"}),
    "threshold above all": (np.eye(2), {"min_value": 4}),
    "column name": (np.eye(2), {"user": "user"}),
}
NO_DATA = {
    "None": None,
    "number": 5,
    "path": "events.csv",
    "list of pairs": [("a", 1)],
    "dict of columns": {"user": ["a"], "item": [1]},
    "polars series": pl.Series([1, 2]),
    "pandas series": pd.Series([1, 2]),
}


@pytest.mark.parametrize(("data", "options"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_a_bad_table_is_refused(data, options, refused):
    with refused():
        Interactions.of(data, **options)


@pytest.mark.parametrize(("data", "options"), BAD_MATRICES.values(), ids=BAD_MATRICES.keys())
def test_a_bad_matrix_is_refused(data, options, refused):
    with refused():
        Interactions.of(data, **options)


@pytest.mark.parametrize("data", NO_DATA.values(), ids=NO_DATA.keys())
def test_what_is_no_table_or_matrix_is_refused(data, refused):
    with refused(mentioning=type(data).__name__):
        Interactions.of(data)


def test_the_complaint_names_the_column_and_the_columns_there_are(refused):
    with refused(mentioning="1 nulls"):
        Interactions.of(table(user=["a", None]))
    with refused(mentioning="'rating'"):
        Interactions.of(table(rating=[1, None]), value="rating")
    with refused(mentioning="columns user, item, stars"):
        Interactions.of(table(stars=[1, 2]), value="rating")


def test_an_unused_column_may_hold_anything():
    Interactions.of(table(x=[None, float("nan")], y=["", None]))


def test_a_core_too_large_or_below_zero_is_refused(events, refused):
    with refused():
        events.k_core(6)
    with refused():
        events.k_core(-1)


def test_an_index_holds_distinct_ids_of_one_type(refused):
    with refused():
        Index(["a", "a"])
    with refused():
        Index(["a", 1])
    with refused():
        Index(["a", None])
    with refused():
        Index(["a"]).positions([["a"]])


def test_an_index_finds_its_ids_and_extends_by_new_ones():
    index = Index(["b", "a"])
    assert index.positions(["a", "x", "b"]).tolist() == [1, -1, 0]
    assert index.union(Index(["c", "a"])).tolist() == ["b", "a", "c"]
    assert index.union(Index(["a"])) is index


def test_masked_entries_of_a_matrix_are_no_interactions():
    matrix = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[True, False], [False, False]])
    assert Interactions.of(matrix).matrix.toarray().tolist() == [[0, 2], [3, 4]]
