"""Train and test parts. Seeded by a hash of (seed, row, column), so a split is the same to the bit everywhere."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from gramian.data import datasets
from gramian.data.interactions import Interactions
from gramian.data.tables import is_number
from gramian.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Split:
    """What a model may learn from (`train`), what is known of each tested user (`fold_in`), and what is to be found (`target`).

    The rows of fold_in and target are the same users, each with at least one target. `validation` is a split of its own
    inside the training part, for choosing hyperparameters.
    """

    train: Interactions
    fold_in: Interactions
    target: Interactions
    validation: Split | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A stable hash of the whole split."""
        parts = [self.train.fingerprint, self.fold_in.fingerprint, self.target.fingerprint]
        return sha256(" ".join([*parts, self.validation.fingerprint if self.validation else ""]).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Split(train={self.train}, {self.target.n_users:,} test users, {self.target.n_interactions:,} targets)"

    def without_self_links(self) -> Split:
        """The same without targets that are the user's own id, and without users that have no others."""
        users, items = self.target.users.tolist(), self.target.items.tolist()
        own = np.array([users[row] == items[c] for row, c in zip(self.target.rows, self.target.matrix.indices, strict=True)])
        target = self.target.keep(~own.astype(bool))
        left = np.flatnonzero(np.diff(target.matrix.indptr))
        fold_in = self.fold_in.reindex(target.users, self.fold_in.items)
        return Split(self.train, fold_in.take(left), target.take(left), self.validation)


def strong(
    events: Interactions,
    *,
    validation_users: int | float = 0.1,
    test_users: int | float = 0.1,
    target: float = 0.2,
    seed: int = 0,
) -> Split:
    """Strong generalization: held-out users, whom training never sees. Of each, a share `target` is to be found.

    At least one item of each is a target; users with a single item stay in train. Numbers below 1 are shares of all users.
    """
    divisible = np.flatnonzero(np.diff(_some(events).matrix.indptr) >= 2)
    n_validation, n_test = held_out_users(events.n_users, len(divisible), validation_users, test_users)
    chosen = divisible[np.argsort(hashed(seed, divisible, 0))[: n_validation + n_test]]
    train = events.take(np.setdiff1d(np.arange(events.n_users), chosen))

    def held_out(rows: np.ndarray, validation: Split | None) -> Split:
        rows = np.sort(rows)
        part = events.take(rows)
        is_target = targets(part, rows, target, seed)
        return Split(train, part.keep(~is_target), part.keep(is_target), validation)

    validation = held_out(chosen[:n_validation], None) if n_validation else None
    return held_out(chosen[n_validation:], validation)


def weak(events: Interactions, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> Split:
    """Weak generalization: of every user a share of the items for validation and for test.

    At least one of each, first for test, where a user has enough; one item always stays in train.
    """
    return _held_out(events, *weak_parts(_some(events), np.arange(events.n_users), validation, test, seed))


def leave_last(events: Interactions, *, k: int = 1, validation: bool = True) -> Split:
    """The last k items of every user are the test, the k before them the validation. At least one item stays in train."""
    return _held_out(events, *last_parts(events, k, validation))


def temporal(events: Interactions, *, test_from: Any = None, validation_from: Any = None, test: float = 0.1) -> Split:
    """One moment for all: what happens from `test_from` on is to be found, from what each user did before.

    Without a moment, the last share `test` of all interactions is the test. Users with nothing before it are not tested.
    """
    times = _times(events)
    if test_from is None:
        _share("test", test)
        test_from = np.sort(times)[int((1 - test) * len(times))]
    cut = moment_of(test_from, times)
    train_end = cut if validation_from is None else moment_of(validation_from, times)
    if train_end > cut:
        raise InvalidInput("validation_from before test_from", f"{train_end} after {cut}", "Swap them")
    if not (times < train_end).any():
        raise InvalidInput("interactions before the cut", f"none before {train_end}", "Choose a later moment")
    before, after = times < cut, times >= cut
    train = events.keep(times < train_end)
    validation = None if validation_from is None else _tested(train, train, events, before & (times >= train_end))
    return _tested(train, events.keep(before), events, after, validation)


def published(train: Interactions | str, test: Interactions | None = None) -> Split:
    """Published train and test files as they are: two sets of interactions, or the name of a data set that has both."""
    if isinstance(train, str):
        train, test = datasets.load_published(train)
    if not (isinstance(train, Interactions) and isinstance(test, Interactions)):
        got = f"{type(train).__name__} and {type(test).__name__}"
        raise InvalidInput("train and test interactions, or a data set's name", got, "Wrap both: gr.Interactions.of(...)")
    users, items = train.users.union(test.users), train.items.union(test.items)
    train, test = train.reindex(users, items), test.reindex(users, items)
    return _tested(train, train, test, np.ones(test.n_interactions, dtype=bool))


def weak_parts(
    events: Interactions, rows: np.ndarray, validation: float, test: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which entries of these users, whose rows in all the data are given, are for test, and which for validation."""
    place = _place(events, hashed(seed, rows[events.rows], events.matrix.indices + 1))
    return _by_place(events, place, _at_least_one(validation, events) if validation else 0, _at_least_one(test, events))


def last_parts(events: Interactions, k: int, validation: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which entries are the last k of their user, and which the k before them."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInput("k of at least 1", repr(k), "Pass k=1")
    place = _place(events, -np.unique(_times(events), return_inverse=True)[1])
    return _by_place(events, place, k if validation else 0, k)


def held_out_users(n_users: int, n_divisible: int, validation_users: int | float, test_users: int | float) -> tuple[int, int]:
    """How many users a strong split holds out for validation and for test."""
    n_validation = _count("validation_users", validation_users, n_users)
    n_test = _count("test_users", test_users, n_users)
    if n_test < 1 or n_validation + n_test >= n_users or n_validation + n_test > n_divisible:
        raise InvalidInput(
            f"1 or more test users, at most {n_divisible} held out (those with two items or more), and someone to train on",
            f"{n_validation} validation and {n_test} test users of {n_users}",
            "Lower validation_users and test_users",
        )
    return n_validation, n_test


def targets(part: Interactions, rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which entries of these users, whose rows in all the data are given, are to be found: a share of each, at least one."""
    place = _place(part, hashed(seed, rows[part.rows], part.matrix.indices + 1))
    return place < _at_least_one(share, part)[part.rows]


def hashed(seed: int, rows: np.ndarray, columns: np.ndarray | int) -> np.ndarray:
    """A well-mixed 64-bit number for each (seed, row, column): the finalizer of splitmix64."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInput("a seed of at least 0", repr(seed), "Pass seed=0")
    start = np.uint64(int(seed) * 0x2545F4914F6CDD1D % 2**64)
    x = np.atleast_1d(rows).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x ^= np.atleast_1d(columns).astype(np.uint64) * np.uint64(0xD1342543DE82EF95) + start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def _place(events: Interactions, key: np.ndarray) -> np.ndarray:
    """The place of every entry among its user's entries when these are ordered by key, counted from 0."""
    order = np.lexsort((key, events.rows))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - events.matrix.indptr[events.rows]
    return place


def _by_place(
    events: Interactions, place: np.ndarray, n_validation: np.ndarray | int, n_test: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Per user the first n_test places to test, the next n_validation to validation, as long as one entry stays in train."""
    sizes = np.diff(events.matrix.indptr)
    test_end: np.ndarray = np.minimum(n_test, np.maximum(sizes - 1, 0))
    validation_end = test_end + np.minimum(n_validation, np.maximum(sizes - test_end - 1, 0))
    in_test = place < test_end[events.rows]
    return in_test, ~in_test & (place < validation_end[events.rows])


def _held_out(events: Interactions, in_test: np.ndarray, in_validation: np.ndarray) -> Split:
    train = events.keep(~in_test & ~in_validation)
    validation = _tested(train, train, events, in_validation) if in_validation.any() else None
    return _tested(train, events.keep(~in_test), events, in_test, validation)


def _tested(
    train: Interactions, known: Interactions, events: Interactions, is_target: np.ndarray, validation: Split | None = None
) -> Split:
    """A split over the users who have both something known and something to find."""
    if not is_target.any():
        raise InvalidInput("at least one target", "none", "Hold out more, or give users more items")
    target = events.keep(is_target)
    rows = np.flatnonzero((np.diff(target.matrix.indptr) > 0) & (np.diff(known.matrix.indptr) > 0))
    if len(rows) == 0:
        raise InvalidInput("users known before their targets", "none", "Choose another split or moment")
    return Split(train, known.take(rows), target.take(rows), validation)


def _at_least_one(share: float, events: Interactions) -> np.ndarray:
    _share("a held-out share", share)
    return np.maximum(1, (share * np.diff(events.matrix.indptr)).astype(np.int64))


def _share(name: str, value: float) -> None:
    if not (is_number(value) and 0 < value < 1):
        raise InvalidInput(f"{name} between 0 and 1", repr(value), "Pass 0.1, say")


def _count(name: str, value: int | float, total: int) -> int:
    if not is_number(value) or value < 0 or (value >= 1 and value != int(value)):
        raise InvalidInput(f"{name} as a number of users or a share below 1", f"{value}", "Pass 100 or 0.1, say")
    return int(value * total) if value < 1 else int(value)


def _times(events: Interactions) -> np.ndarray:
    if _some(events).times is None:
        raise InvalidInput("interactions with times", "none", 'Read them with time="timestamp"')
    return np.asarray(events.times)


def _some(events: Interactions) -> Interactions:
    if not isinstance(events, Interactions) or events.n_interactions == 0:
        got = "none" if isinstance(events, Interactions) else type(events).__name__
        raise InvalidInput("Interactions to divide", got, "Wrap your data: gr.Interactions.of(...)")
    return events


def moment_of(moment: Any, times: np.ndarray) -> Any:
    """A moment that can be compared with the times."""
    try:
        if times.dtype.kind != "M" and is_number(moment):
            return moment
        if times.dtype.kind == "M" and not is_number(moment):
            aware = isinstance(moment, dt.datetime) and moment.tzinfo is not None
            return np.datetime64(moment.astimezone(dt.UTC).replace(tzinfo=None) if aware else moment).astype(times.dtype)
    except (TypeError, ValueError):
        pass
    raise InvalidInput(f"a moment comparable with {times.dtype}", repr(moment), "Give it as the times are given")
