"""Parts of interactions: the weight, the time and the title of a pair follow its ids, so a slip in alignment shows."""

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from data.pairs import pairs
from gramian import Interactions
from gramian.data.ids import Index
from gramian.errors import InvalidInput

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
