"""Train and test splits. Random choices are hashes of (seed, row, column), so a split is the same to the bit everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data import datasets
from gramian.data.dates import parse_cutoff
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.hashing import hash_pairs
from gramian.linalg.sparse import rank_within_rows, row_of_entry
from gramian.validation import is_number, require_whole_number


@dataclass(frozen=True, eq=False)
class HeldOutUsers:
    """Test users with their known items and held-out targets: what an evaluation needs of a split.

    Parameters
    ----------
    fold_in, target
        The known items and the targets of each test user, in the same order of users.
    n_train_users
        How many users the training part has.
    fingerprint
        A hash of the split, the same on every machine.
    """

    fold_in: Interactions
    target: Interactions
    n_train_users: int
    fingerprint: str

    def without_self_links(self) -> HeldOutUsers:
        """Return the users without targets that equal their own id, and without users who then have no target."""
        users, items = self.target.users.tolist(), self.target.items.tolist()
        entries = zip(self.target.rows, self.target.matrix.indices, strict=True)
        is_self = np.array([users[row] == items[column] for row, column in entries], dtype=bool)
        target = self.target.keep(~is_self)
        rows = np.flatnonzero(np.diff(target.matrix.indptr))
        fold_in = self.fold_in.reindex(target.users, self.fold_in.items)
        return HeldOutUsers(fold_in.take(rows), target.take(rows), self.n_train_users, f"{self.fingerprint} without self-links")


@dataclass(frozen=True, eq=False)
class Split:
    """A training part and test users, each with known items and held-out targets.

    Parameters
    ----------
    train
        What a model may learn from.
    fold_in
        The known items of each test user.
    target
        The held-out items of each test user, at least one. The rows are the same users as in `fold_in`.
    validation
        A split with the same training part and other targets, for choosing hyperparameters.
    """

    train: Interactions
    fold_in: Interactions
    target: Interactions
    validation: Split | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the whole split, the same on every machine."""
        hashes = [self.train.fingerprint, self.fold_in.fingerprint, self.target.fingerprint]
        return sha256(" ".join([*hashes, self.validation.fingerprint if self.validation else ""]).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Split(train={self.train}, {self.target.n_users:,} test users, {self.target.n_interactions:,} targets)"

    @property
    def held_out(self) -> HeldOutUsers:
        """The test users."""
        return HeldOutUsers(self.fold_in, self.target, self.train.n_users, self.fingerprint)

    def without_self_links(self) -> Split:
        """Return the split without targets that equal the user's own id, and without users who then have no target."""
        users = self.held_out.without_self_links()
        return Split(self.train, users.fold_in, users.target, self.validation)


def strong(
    events: Interactions,
    *,
    validation_users: int | float = 0.1,
    test_users: int | float = 0.1,
    target: float = 0.2,
    seed: int = 0,
) -> Split:
    """Hold out whole users, whom training never sees (strong generalization).

    Parameters
    ----------
    events
        The interactions to split.
    validation_users, test_users
        How many users to hold out; numbers below 1 are shares of all users. Users with a single item stay in train.
    target
        The share of each held-out user's items that are targets, at least one item.
    seed
        Seed of the random choices.

    Returns
    -------
    Split
    """
    can_hold_out = np.flatnonzero(np.diff(_require_interactions(events).matrix.indptr) >= 2)
    n_validation, n_test = count_held_out_users(events.n_users, len(can_hold_out), validation_users, test_users)
    held_out = can_hold_out[np.argsort(hash_pairs(seed, can_hold_out, 0))[: n_validation + n_test]]
    train = events.take(np.setdiff1d(np.arange(events.n_users), held_out))

    def split_users(rows: np.ndarray, validation: Split | None) -> Split:
        rows = np.sort(rows)
        users = events.take(rows)
        is_target = mark_targets(users.matrix, rows, target, seed) & users.can_be_target
        return _split_from(train, users.keep(~is_target), users, is_target, validation)

    validation = split_users(held_out[:n_validation], None) if n_validation else None
    return split_users(held_out[n_validation:], validation)


def weak(events: Interactions, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> Split:
    """Hold out a share of every user's items for validation and for test (weak generalization).

    Parameters
    ----------
    events
        The interactions to split.
    validation, test
        The shares. At least one item of each user goes to test, then to validation, as long as one stays in train.
    seed
        Seed of the random choices.

    Returns
    -------
    Split
    """
    matrix = _require_interactions(events).matrix
    return _split_entries(events, *mark_weak_parts(matrix, np.arange(events.n_users), validation, test, seed))


def leave_last(events: Interactions, *, k: int = 1, validation: bool = True) -> Split:
    """Hold out the last items of every user.

    Parameters
    ----------
    events
        Interactions with times.
    k
        How many of the last items are for test. At least one item of each user stays in train.
    validation
        Whether the k items before them are for validation.

    Returns
    -------
    Split
    """
    times = _require_times(events)
    return _split_entries(events, *mark_last_parts(events.matrix, times, k, validation))


def temporal(events: Interactions, *, test_from: Any = None, validation_from: Any = None, test: float = 0.1) -> Split:
    """Hold out all interactions from a cutoff time on, the same for all users.

    Parameters
    ----------
    events
        Interactions with times.
    test_from
        The time at which the test part starts. Left out, the last share `test` of all interactions is the test part.
    validation_from
        The time at which the validation part starts. Left out, there is none.
    test
        The share of the interactions in the test part, where `test_from` is left out.

    Returns
    -------
    Split
        Users without interactions before the test part are not tested.
    """
    times = _require_times(events)
    if test_from is None:
        _require_share("test", test)
        test_from = np.sort(times)[int((1 - test) * len(times))]
    test_start = parse_cutoff(test_from, times)
    train_end = test_start if validation_from is None else parse_cutoff(validation_from, times)
    if train_end > test_start:
        raise InvalidInput("validation_from before test_from", f"{train_end} after {test_start}", "Swap them")
    if not (times < train_end).any():
        raise InvalidInput("interactions before the cutoff", f"none before {train_end}", "Choose a later time")
    before, after = times < test_start, (times >= test_start) & events.can_be_target
    train, between = events.keep(times < train_end), (times >= train_end) & (times < test_start) & events.can_be_target
    validation = None if validation_from is None else _split_from(train, train, events, between)
    return _split_from(train, events.keep(before), events, after, validation)


def cold_items(events: Interactions, *, validation: float = 0.1, test: float = 0.1, warm: float = 0.1, seed: int = 0) -> Split:
    """Hold out whole items, which nobody has touched in training, and a share of every user's other items.

    Parameters
    ----------
    events
        The interactions to split. Their items stay in the catalog with their features, so that a model that learns from
        features can recommend them; other models cannot tell cold items apart.
    validation, test
        The shares of the items that are cold in validation and in test. In training, both are.
    warm
        The share of each user's other items that are targets too, at least one: `gr.evaluate_by_popularity` measures cold and
        other targets separately. At 0 all targets are cold.
    seed
        Seed of the random choices.

    Returns
    -------
    Split
        The users who have both known items and targets. Cold items are known items of no user.
    """
    matrix = _require_interactions(events).matrix
    for name, share in (("validation", validation), ("test", test), ("warm", warm)):
        if share or name == "test":
            _require_share(name, share)
    order = np.argsort(hash_pairs(seed, np.arange(events.n_items), 0))
    n_test, n_validation = (max(1, int(share * events.n_items)) if share else 0 for share in (test, validation))
    part = np.zeros(events.n_items, np.int64)  # 0 in training, 1 in test, 2 in validation
    part[order[:n_test]], part[order[n_test : n_test + n_validation]] = 1, 2
    if not (events.popularity[part == 0] > 0).any():
        raise InvalidInput("items to train on", "none left", "Lower validation and test")
    of_entry = part[matrix.indices]
    is_warm = of_entry == 0
    if warm:
        known = events.keep(is_warm)
        in_test, in_validation = mark_weak_parts(known.matrix, np.arange(events.n_users), warm if validation else 0, warm, seed)
        of_entry[np.flatnonzero(is_warm)[in_test]] = 1
        of_entry[np.flatnonzero(is_warm)[in_validation]] = 2
    train = events.keep(of_entry == 0)
    validation_split = _split_from(train, train, events, of_entry == 2) if validation else None
    return _split_from(train, train, events, of_entry == 1, validation_split)


def published(train: Interactions | str, test: Interactions | None = None) -> Split:
    """Use published train and test files as they are: two sets of interactions, or the name of a data set that has both.

    A data set may instead be published with held-out users, whose items are in two files each: fold_in and target. Its split
    has a validation part.
    """
    if isinstance(train, str):
        parts = datasets.load_published(train)
        if "test" not in parts:
            return _split_from_parts(parts)
        train, test = parts["train"], parts["test"]
    if not (isinstance(train, Interactions) and isinstance(test, Interactions)):
        got = f"{type(train).__name__} and {type(test).__name__}"
        raise InvalidInput("train and test interactions, or a data set's name", got, "Wrap both: gr.Interactions.of(...)")
    users, items = train.users.union(test.users), train.items.union(test.items)
    train, test = train.reindex(users, items), test.reindex(users, items)
    return _split_from(train, train, test, np.ones(test.n_interactions, dtype=bool))


def _split_from_parts(parts: Mapping[str, Interactions]) -> Split:
    """Return the split of published held-out users, in the columns of all items."""
    items = parts["train"].items
    for events in parts.values():
        items = items.union(events.items)
    parts = {stem: events.reindex(events.users, items) for stem, events in parts.items()}

    def split_users(name: str, validation: Split | None) -> Split:
        fold_in, target = parts[f"{name}_fold_in"], parts[f"{name}_target"]
        known = fold_in.reindex(target.users, items)
        return _split_from(parts["train"], known, target, np.ones(target.n_interactions, dtype=bool), validation)

    return split_users("test", split_users("validation", None))


def mark_weak_parts(
    matrix: sp.csr_array, user_rows: np.ndarray, validation: float, test: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the entries for test and for validation. `user_rows` are the users' rows in the whole data."""
    rank = rank_within_rows(matrix, hash_pairs(seed, user_rows[row_of_entry(matrix)], matrix.indices + 1))
    n_validation = _share_of_each_user(validation, matrix) if validation else 0
    return _mark_by_rank(matrix, rank, n_validation, _share_of_each_user(test, matrix))


def mark_last_parts(matrix: sp.csr_array, times: np.ndarray, k: int, validation: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the last k entries of each user, and of the k before them."""
    require_whole_number("k", k)
    rank = rank_within_rows(matrix, -np.unique(times, return_inverse=True)[1])
    return _mark_by_rank(matrix, rank, k if validation else 0, k)


def mark_targets(matrix: sp.csr_array, user_rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a mask of each user's targets: a share of the entries, at least one."""
    rows = row_of_entry(matrix)
    rank = rank_within_rows(matrix, hash_pairs(seed, user_rows[rows], matrix.indices + 1))
    return rank < _share_of_each_user(share, matrix)[rows]


def count_held_out_users(
    n_users: int, n_eligible: int, validation_users: int | float, test_users: int | float
) -> tuple[int, int]:
    """Return how many users a strong split holds out for validation and for test."""
    n_validation = _parse_user_count("validation_users", validation_users, n_users)
    n_test = _parse_user_count("test_users", test_users, n_users)
    if n_test < 1 or n_validation + n_test >= n_users or n_validation + n_test > n_eligible:
        raise InvalidInput(
            f"1 or more test users, at most {n_eligible} held out (those with two items or more), and some to train on",
            f"{n_validation} validation and {n_test} test users of {n_users}",
            "Lower validation_users and test_users",
        )
    return n_validation, n_test


def _mark_by_rank(
    matrix: sp.csr_array, rank: np.ndarray, n_validation: np.ndarray | int, n_test: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Mark each user's first n_test entries for test and the next n_validation for validation; one entry stays in train."""
    lengths, rows = np.diff(matrix.indptr), row_of_entry(matrix)
    test_end: np.ndarray = np.minimum(n_test, np.maximum(lengths - 1, 0))
    validation_end = test_end + np.minimum(n_validation, np.maximum(lengths - test_end - 1, 0))
    in_test = rank < test_end[rows]
    return in_test, ~in_test & (rank < validation_end[rows])


def _split_entries(events: Interactions, in_test: np.ndarray, in_validation: np.ndarray) -> Split:
    in_test, in_validation = in_test & events.can_be_target, in_validation & events.can_be_target
    train = events.keep(~in_test & ~in_validation)
    validation = _split_from(train, train, events, in_validation) if in_validation.any() else None
    return _split_from(train, events.keep(~in_test), events, in_test, validation)


def _split_from(
    train: Interactions, known: Interactions, events: Interactions, is_target: np.ndarray, validation: Split | None = None
) -> Split:
    """Return a split over the users who have both known items and targets."""
    if not is_target.any():
        raise InvalidInput("at least one target", "none", "Hold out more, or give users more items")
    target = events.keep(is_target)
    rows = np.flatnonzero((np.diff(target.matrix.indptr) > 0) & (np.diff(known.matrix.indptr) > 0))
    if len(rows) == 0:
        raise InvalidInput("users with items before their targets", "none", "Choose another split or a later time")
    return Split(train, known.take(rows), target.take(rows), validation)


def _share_of_each_user(share: float, matrix: sp.csr_array) -> np.ndarray:
    """Return a share of each user's number of entries, at least 1."""
    _require_share("a held-out share", share)
    return np.maximum(1, (share * np.diff(matrix.indptr)).astype(np.int64))


def _require_share(name: str, value: float) -> None:
    if not (is_number(value) and 0 < value < 1):
        raise InvalidInput(f"{name} between 0 and 1", repr(value), "Pass 0.1, say")


def _parse_user_count(name: str, value: int | float, n_users: int) -> int:
    if not is_number(value) or value < 0 or (value >= 1 and value != int(value)):
        raise InvalidInput(f"{name} as a number of users or a share below 1", f"{value}", "Pass 100 or 0.1, say")
    return int(value * n_users) if value < 1 else int(value)


def _require_times(events: Interactions) -> np.ndarray:
    if _require_interactions(events).times is None:
        raise InvalidInput("interactions with times", "none", 'Read them with time="timestamp"')
    return np.asarray(events.times)


def _require_interactions(events: Interactions) -> Interactions:
    if not isinstance(events, Interactions) or events.n_interactions == 0:
        got = "none" if isinstance(events, Interactions) else type(events).__name__
        raise InvalidInput("Interactions to split", got, "Wrap your data: gr.Interactions.of(...)")
    return events
