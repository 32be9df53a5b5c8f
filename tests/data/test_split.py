"""Splits: nothing is lost, nothing leaks, and a seed gives the same split to the bit everywhere."""

import os
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gramian as gr
from gramian.errors import InvalidInput, UnknownId

PINNED = "1f511ae065f770f15b75098789b78574c5b506738faa462cc315996d67dcda23"  # strong(movielens, seed=0)


@pytest.fixture(scope="module")
def movielens():
    return gr.datasets.load("movielens")


def pairs(events):
    return set(zip(events.users[events.rows], events.items[events.matrix.indices], strict=True))


def users_of(events):
    return {user for user, _ in pairs(events)}


def of_users(some_pairs, users):
    return {(user, item) for user, item in some_pairs if user in users}


def times_of(events):
    """The times of each user's events."""
    times = defaultdict(list)
    for user, time in zip(events.users[events.rows], events.times.tolist(), strict=True):
        times[user].append(time)
    return times


def moments(events):
    """The time of each event."""
    keys = zip(events.users[events.rows], events.items[events.matrix.indices], strict=True)
    return dict(zip(keys, events.times.tolist(), strict=True))


def table_of(log):
    rows = [(user, item, time, f"item {item}") for user, seen in enumerate(log) for item, time in seen]
    return pl.DataFrame(rows, schema=["user", "item", "time", "title"], orient="row")


def events_of(log):
    return gr.Interactions.of(table_of(log), time="time", title="title")


# each user's items with their times: ties, single items and items of one user occur
histories = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=9, unique_by=lambda seen: seen[0])
logs = st.lists(histories, min_size=1, max_size=10)
seeds = st.integers(0, 5)


def assert_sound(split, events):
    """What every split owes: the same items everywhere, tested users with both parts, no target known beforehand."""
    for part in (split.train, split.fold_in, split.target):
        assert part.items == events.items
        assert part.titles == events.titles
        assert moments(part).items() <= moments(events).items()
    assert split.fold_in.users == split.target.users
    assert users_of(split.fold_in) == users_of(split.target) == set(split.target.users.tolist())
    assert not pairs(split.fold_in) & pairs(split.target)
    assert not pairs(split.train) & pairs(split.target)
    if split.validation is not None:
        assert split.validation.validation is None
        assert split.validation.train is split.train
        assert_sound(split.validation, events)
        for part in (split.validation.train, split.validation.fold_in, split.validation.target):
            assert not pairs(part) & pairs(split.target)


# strong: held-out users


@given(logs, st.integers(0, 3), st.integers(1, 3), st.sampled_from([0.01, 0.2, 0.5, 0.99]), seeds)
def test_strong_holds_out_whole_users_and_loses_nothing(log, n_validation, n_test, share, seed):
    events = events_of(log)
    divisible = sum(len(seen) >= 2 for seen in log)
    assume(n_validation + n_test <= min(divisible, len(log) - 1))
    split = gr.split.strong(events, validation_users=n_validation, test_users=n_test, target=share, seed=seed)
    assert_sound(split, events)
    held_out = [split] + ([split.validation] if split.validation else [])
    assert [part.target.n_users for part in held_out] == [n_test] + ([n_validation] if n_validation else [])
    everyone = pairs(split.train).union(*(pairs(part.fold_in) | pairs(part.target) for part in held_out))
    assert everyone == pairs(events)
    groups = [set(split.train.users.tolist()), *(set(part.target.users.tolist()) for part in held_out)]
    assert sum(map(len, groups)) == len(set().union(*groups)) == len(log)
    for part in held_out:
        for user in part.target.users.tolist():
            n_targets = len(of_users(pairs(part.target), {user}))
            assert n_targets == max(1, int(share * len(log[user])))


def test_strong_shares_are_about_right(movielens):
    split = gr.split.strong(movielens, validation_users=0.2, test_users=0.1, target=0.2)
    assert split.target.n_users == int(0.1 * movielens.n_users)
    assert split.validation.target.n_users == int(0.2 * movielens.n_users)
    assert split.train.n_users == movielens.n_users - split.target.n_users - split.validation.target.n_users
    assert split.target.n_interactions / (split.target.n_interactions + split.fold_in.n_interactions) == pytest.approx(
        0.2, abs=0.01
    )
    assert split.train.n_interactions / movielens.n_interactions == pytest.approx(0.7, abs=0.1)


def test_users_are_held_out_without_regard_to_their_place(movielens):
    held_out = [gr.split.strong(movielens, seed=seed).target.users.tolist() for seed in range(6)]
    ranks = movielens.users.positions(np.concatenate(held_out).tolist()) / movielens.n_users
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.06)  # four standard errors of 402 uniform draws
    assert len(np.unique(np.concatenate(held_out))) > 250  # six draws of 67 that overlap no more than by chance


# weak: a share of everybody's items


@given(logs, st.sampled_from([0, 0.1, 0.4]), st.sampled_from([0.01, 0.3, 0.8]), seeds)
def test_weak_takes_items_of_everybody_and_loses_nothing(log, validation, test, seed):
    events = events_of(log)
    divisible = {user for user, seen in enumerate(log) if len(seen) >= 2}
    assume(divisible)
    split = gr.split.weak(events, validation=validation, test=test, seed=seed)
    assert_sound(split, events)
    assert split.train.users == events.users
    assert users_of(split.train) == users_of(events)
    assert set(split.target.users.tolist()) == divisible
    assert pairs(split.fold_in) | pairs(split.target) == of_users(pairs(events), divisible)
    held_out = pairs(split.target) | (pairs(split.validation.target) if split.validation else set())
    assert pairs(split.train) | held_out == pairs(events)
    for user in divisible:
        n_items, n_test = len(log[user]), len(of_users(pairs(split.target), {user}))
        assert n_test == min(max(1, int(test * n_items)), n_items - 1)
    if split.validation:
        assert pairs(split.validation.fold_in) == of_users(pairs(split.train), set(split.validation.target.users.tolist()))
    else:
        assert validation == 0 or all(len(of_users(pairs(split.train), {user})) == 1 for user in divisible)


def test_weak_shares_are_about_right(movielens):
    split = gr.split.weak(movielens, validation=0.1, test=0.2)
    assert split.target.n_interactions / movielens.n_interactions == pytest.approx(0.2, abs=0.01)
    assert split.validation.target.n_interactions / movielens.n_interactions == pytest.approx(0.1, abs=0.01)


def test_items_are_held_out_without_regard_to_their_place(movielens):
    target = gr.split.weak(movielens, test=0.2).target
    assert target.matrix.indices.mean() == pytest.approx(movielens.matrix.indices.mean(), rel=0.03)
    rare = movielens.popularity == 1
    rare_share = target.popularity[rare].sum() / rare.sum()
    assert rare_share == pytest.approx(0.2, abs=0.03)


# leave_last: the latest items


@given(logs, st.integers(1, 3), st.booleans())
def test_leave_last_targets_are_the_latest(log, k, validation):
    events = events_of(log)
    assume(any(len(seen) >= 2 for seen in log))
    split = gr.split.leave_last(events, k=k, validation=validation)
    assert_sound(split, events)
    assert users_of(split.train) == users_of(events)
    known, sought = times_of(split.fold_in), times_of(split.target)
    for user, seen in enumerate(log):
        times = sorted(time for _, time in seen)
        n_test = min(k, len(seen) - 1)
        assert sorted(sought[user]) == times[len(times) - n_test :]
        if n_test:
            assert sorted(known[user]) == times[: len(times) - n_test]
    if split.validation:
        before, between = times_of(split.validation.fold_in), times_of(split.validation.target)
        for user in split.validation.target.users.tolist():
            assert len(between[user]) == min(k, len(log[user]) - k - 1)
            assert max(before[user]) <= min(between[user])
            assert max(between[user]) <= min(sought[user])
    else:
        assert not validation or all(len(seen) <= k + 1 for seen in log)


def test_leave_last_orders_datetimes_and_floats_as_it_orders_integers(movielens):
    frame = movielens.frame()
    expected = gr.split.leave_last(movielens).fingerprint
    for time in (pl.from_epoch("time"), pl.col("time") / 7):
        events = gr.Interactions.of(frame.with_columns(time=time), time="time")
        assert gr.split.leave_last(events.reindex(movielens.users, movielens.items)).fingerprint == expected


# temporal: one moment for all


@given(logs, st.integers(0, 20), st.none() | st.integers(0, 20))
def test_temporal_respects_the_moment(log, test_from, validation_from):
    events = events_of(log)
    train_end = test_from if validation_from is None else validation_from
    when = moments(events)
    before = {pair for pair, time in when.items() if time < test_from}
    after = set(when) - before
    trained = {pair for pair, time in when.items() if time < train_end}
    tested = {u for u, _ in before} & {u for u, _ in after}
    between = before - trained
    validated = {u for u, _ in trained} & {u for u, _ in between}
    possible = tested and trained and train_end <= test_from and (validation_from is None or validated)
    if not possible:
        with pytest.raises(InvalidInput):
            gr.split.temporal(events, test_from=test_from, validation_from=validation_from)
        return
    split = gr.split.temporal(events, test_from=test_from, validation_from=validation_from)
    assert_sound(split, events)
    assert set(split.target.users.tolist()) == tested
    assert pairs(split.train) == trained
    assert pairs(split.fold_in) == of_users(before, tested)
    assert pairs(split.target) == of_users(after, tested)
    if validation_from is None:
        assert split.validation is None
    else:
        assert set(split.validation.target.users.tolist()) == validated
        assert pairs(split.validation.fold_in) == of_users(trained, validated)
        assert pairs(split.validation.target) == of_users(between, validated)


def test_temporal_without_a_moment_tests_the_last_share(movielens):
    split = gr.split.temporal(movielens, test=0.2)
    assert split.train.n_interactions / movielens.n_interactions == pytest.approx(0.8, abs=0.001)
    assert split.train.times.max() < split.target.times.min()


@pytest.fixture(scope="module")
def dated():
    """Ten events of one user, an hour apart."""
    start = datetime(2020, 1, 1)
    hours = [start + timedelta(hours=n) for n in range(10)]
    return gr.Interactions.of(pl.DataFrame({"user": ["a"] * 10, "item": range(10), "time": hours}), time="time")


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2020, 1, 1, 6),
        "2020-01-01T06:00",
        np.datetime64("2020-01-01T06"),
        datetime(2020, 1, 1, 6, tzinfo=UTC),
        datetime(2020, 1, 1, 7, tzinfo=timezone(timedelta(hours=1))),
    ],
    ids=["datetime", "text", "numpy", "utc", "zoned"],
)
def test_a_moment_may_be_given_in_any_usual_form(moment, dated):
    assert pairs(gr.split.temporal(dated, test_from=moment).target) == {("a", n) for n in range(6, 10)}


def test_a_moment_between_two_whole_times_falls_between_them():
    events = gr.Interactions.of(pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "time": [1, 2, 3]}), time="time")
    assert pairs(gr.split.temporal(events, test_from=2.5).target) == {(1, 3)}


# published: train and test as they are


@given(logs, logs)
def test_published_keeps_both_parts_as_they_are(train_log, test_log):
    train, test = events_of(train_log), events_of(test_log)
    split = gr.split.published(train, test)
    known = users_of(train)
    assert pairs(split.train) == pairs(train)
    assert pairs(split.target) == of_users(pairs(test), known)
    assert pairs(split.fold_in) == of_users(pairs(train), users_of(split.target))
    assert split.fold_in.users == split.target.users
    assert set(split.train.items.tolist()) == {i for _, i in pairs(train) | pairs(test)}
    assert split.train.items == split.fold_in.items == split.target.items
    assert split.validation is None


def test_published_users_who_are_not_in_train_are_not_tested():
    train = gr.Interactions.of(pl.DataFrame({"user": ["a", "b"], "item": [1, 2]}))
    test = gr.Interactions.of(pl.DataFrame({"user": ["stranger", "a"], "item": [1, 3]}))
    split = gr.split.published(train, test)
    assert split.target.users.tolist() == ["a"]
    assert pairs(split.target) == {("a", 3)}


# reproducible


def test_a_strong_split_is_the_same_to_the_bit_in_another_process(movielens):
    program = "import gramian as gr; print(gr.split.strong(gr.datasets.load('movielens'), seed=0).fingerprint)"
    here = gr.split.strong(movielens, seed=0).fingerprint
    other_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": other_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert here == there.stdout.strip() == PINNED


@pytest.mark.parametrize("split", [gr.split.strong, gr.split.weak], ids=["strong", "weak"])
def test_a_seed_decides_the_split(split, movielens):
    assert split(movielens, seed=0).fingerprint == split(movielens, seed=0).fingerprint
    assert len({split(movielens, seed=seed).fingerprint for seed in range(6)}) == 6


@pytest.mark.parametrize("seed", [7, 42, 2024, 2**32 - 1, 2**63 - 1])
def test_any_seed_will_do(seed, movielens):
    assert gr.split.strong(movielens, seed=seed).fingerprint != PINNED


@settings(max_examples=25)
@given(logs.flatmap(lambda log: st.permutations(table_of(log).rows())))
def test_the_order_of_the_events_does_not_matter(rows):
    one, other = (
        gr.Interactions.of(pl.DataFrame(some, schema=["user", "item", "time", "title"], orient="row"), time="time")
        for some in (rows, sorted(rows))
    )
    assume((np.diff(one.matrix.indptr) > 1).any())
    assert gr.split.weak(one).fingerprint == gr.split.weak(other).fingerprint
    assert gr.split.leave_last(one).fingerprint == gr.split.leave_last(other).fingerprint


def test_the_fingerprint_covers_validation(movielens):
    split = gr.split.weak(movielens)
    without = gr.Split(split.train, split.fold_in, split.target)
    assert split.fingerprint != without.fingerprint


def test_weights_and_titles_pass_through(movielens):
    weighted = gr.datasets.load("movielens", weights=True)
    split = gr.split.weak(weighted)
    assert split.train.matrix.sum() + split.target.matrix.sum() + split.validation.target.matrix.sum() == weighted.matrix.sum()
    assert split.train.titles == split.target.titles == movielens.titles


# bad input


BAD = {
    "strong": [
        {"test_users": 0},
        {"test_users": -1},
        {"test_users": 6},
        {"test_users": 100},
        {"test_users": 0.001},
        {"test_users": float("nan")},
        {"test_users": float("inf")},
        {"validation_users": -0.1},
        {"validation_users": 5, "test_users": 1},
        {"test_users": 1, "target": 0},
        {"test_users": 1, "target": 1},
        {"test_users": 1, "target": -0.2},
        {"test_users": 1, "target": float("nan")},
        {"test_users": 1, "seed": -1},
    ],
    "weak": [{"test": 0}, {"test": 1}, {"test": 2}, {"test": -0.1}, {"validation": 1}, {"validation": -0.1}, {"seed": -1}],
    "leave_last": [{"k": 0}, {"k": -1}],
    "temporal": [
        {"test": 0},
        {"test": 1},
        {"test": 1.5},
        {"test_from": -1},
        {"test_from": 10**6},
        {"test_from": "noon"},
        {"test_from": datetime(2020, 1, 1)},
        {"test_from": float("nan")},
        {"test_from": 5, "validation_from": 9},
        {"test_from": 9, "validation_from": 9},
        {"test_from": 9, "validation_from": -1},
    ],
}


@pytest.mark.parametrize(
    ("split", "options"), [pytest.param(s, o, id=f"{s} {o}") for s, several in BAD.items() for o in several]
)
def test_a_bad_argument_is_refused(split, options, events, refused):
    with refused():
        getattr(gr.split, split)(events, **options)


@pytest.mark.parametrize("split", [gr.split.leave_last, gr.split.temporal], ids=["leave_last", "temporal"])
def test_without_times_there_is_no_last(split, refused):
    with refused(mentioning="time"):
        split(gr.Interactions.of(np.ones((3, 3))))


@pytest.mark.parametrize("split", ["strong", "weak", "leave_last", "temporal"])
def test_users_of_a_single_item_cannot_be_divided(split, refused):
    table = pl.DataFrame({"user": range(20), "item": range(20), "time": range(20)})
    with refused():
        getattr(gr.split, split)(gr.Interactions.of(table, time="time"))


@pytest.mark.parametrize("split", ["strong", "weak", "leave_last", "temporal"])
def test_nothing_cannot_be_divided(split, events, refused):
    with refused():
        getattr(gr.split, split)(events.keep(np.zeros(events.n_interactions, dtype=bool)))


def test_published_wants_both_parts_of_ids_of_one_type_and_known_users(events, refused):
    with refused(mentioning="NoneType"):
        gr.split.published(events)
    with refused():
        gr.split.published(events, gr.Interactions.of(pl.DataFrame({"user": ["stranger"], "item": ["A"]})))
    with refused(mentioning="int and str"):
        gr.split.published(events, gr.Interactions.of(pl.DataFrame({"user": [1], "item": ["A"]})))


def test_published_wants_a_known_name_of_a_set_with_both_parts(refused):
    with refused(UnknownId, mentioning="gowalla"):
        gr.split.published("no such set")
    with refused(mentioning="gowalla"):
        gr.split.published("movielens")


@pytest.mark.parametrize("split", [gr.split.strong, gr.split.weak, gr.split.leave_last, gr.split.temporal])
def test_a_table_must_be_wrapped_first(split, refused):
    with refused(mentioning="DataFrame"):
        split(pl.DataFrame({"user": [1], "item": [2]}))
