"""The protocol of a model selection: which users and events are held out, for choosing and for the final test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gramian.data import split as splits
from gramian.data.catalog import Catalog
from gramian.data.interactions import Interactions
from gramian.data.split import Split, mark_targets
from gramian.data.summary import format_count
from gramian.errors import InvalidInput
from gramian.linalg.hashing import hash_pairs

MIN_USERS = 20  # with two items or more; a test on fewer held-out users than a handful says nothing
MIN_TEMPORAL_USERS = 100  # test users below whom a split by time says too little
TEST_SHARE, MAX_HELD_OUT = 0.1, 10_000  # of users or events; more users than this only cost time
SMALL_CROWD, SMALL_TEST_SHARE, N_FOLDS = 5_000, 0.2, 5  # fewer users than this: a larger test, and cross-validation
TARGET_SHARE = 0.2  # of the items of a held-out user
SAMPLE_ITEMS, SAMPLE_USERS = 2_000, 5_000  # of the small data on which families are compared first


@dataclass(frozen=True, eq=False)
class Protocol:
    """How models are chosen and tested.

    Parameters
    ----------
    name
        "temporal" or "strong".
    reason
        Why, in a sentence.
    test
        The final test, used once: models are fitted on its `train`, which holds the users and events of the folds too.
    folds
        Splits of `test.train`, for choosing.
    """

    name: str
    reason: str
    test: Split
    folds: tuple[Split, ...]

    def __str__(self) -> str:
        n_validation, n_test = sum(fold.target.n_users for fold in self.folds), self.test.target.n_users
        if self.name == "temporal":
            chosen = f"the events of {n_validation:,} users just before the test part"
            tested = f"the newest events, of {n_test:,} users"
        else:
            folds = f" in {len(self.folds)} folds" if len(self.folds) > 1 else ""
            chosen, tested = f"{n_validation:,} validation users{folds}", f"{n_test:,} others"
        return f"A {self.name} split, because {self.reason}. Models are chosen on {chosen}, and tested once on {tested}"


def choose_protocol(events: Interactions, seed: int = 0) -> Protocol:
    """Choose a split by time where the data has times and enough users come back, else one that holds out whole users.

    Parameters
    ----------
    events
        The interactions.
    seed
        Seed of the random choices of a strong split.
    """
    lengths = np.diff(events.matrix.indptr)
    n_eligible = int((lengths >= 2).sum())
    if n_eligible < MIN_USERS or int((events.popularity >= 2).sum()) < 2:
        shared = int((events.popularity >= 2).sum())
        raise InvalidInput(
            f"at least {MIN_USERS} users with two items or more, and two items with two users or more, to compare models",
            f"{format_count(n_eligible, 'such user')} and {format_count(shared, 'such item')}",
            "Check which columns are the user and the item, or collect more events; gr.Popularity() needs no comparison",
        )
    if events.times is None:
        return _strong_protocol(events, "the events have no times to split by", seed)
    try:
        test = splits.temporal(events, test=TEST_SHARE)
        fold = splits.temporal(test.train, test=TEST_SHARE)
        n_users = min(test.target.n_users, fold.target.n_users)
    except InvalidInput:  # nobody has events on both sides
        n_users = 0
    if n_users < MIN_TEMPORAL_USERS:
        verb = "has" if n_users == 1 else "have"
        reason = f"only {format_count(n_users, 'user')} {verb} events before and after the cutoff of a split by time"
        reason += ", so that figures may be too high, because later events of other users are known"
        return _strong_protocol(events, reason, seed)
    reason = "the events have times, and a random split would learn from events later than those it predicts"
    return Protocol("temporal", reason, _cap_users(test, seed), (_cap_users(fold, seed),))


def _strong_protocol(events: Interactions, reason: str, seed: int) -> Protocol:
    n_eligible = int((np.diff(events.matrix.indptr) >= 2).sum())
    is_small = events.n_users < SMALL_CROWD
    n_test = max(2, min(int((SMALL_TEST_SHARE if is_small else TEST_SHARE) * n_eligible), MAX_HELD_OUT))
    test = splits.strong(events, validation_users=0, test_users=n_test, target=TARGET_SHARE, seed=seed)
    if is_small:
        return Protocol("strong", reason, test, split_into_folds(test.train, N_FOLDS, seed + 1))
    fold = splits.strong(test.train, validation_users=0, test_users=n_test, target=TARGET_SHARE, seed=seed + 1)
    return Protocol("strong", reason, test, (fold,))


def split_into_folds(events: Interactions, n_folds: int, seed: int) -> tuple[Split, ...]:
    """Split users into folds; each is held out in turn, with a share of every user's items as targets."""
    eligible = np.flatnonzero(np.diff(events.matrix.indptr) >= 2)
    shuffled = eligible[np.argsort(hash_pairs(seed, eligible, 0))]
    folds = []
    for rows in np.array_split(shuffled, n_folds):
        users = events.take(np.sort(rows))
        is_target = mark_targets(users.matrix, np.sort(rows), TARGET_SHARE, seed)
        train = events.take(np.setdiff1d(np.arange(events.n_users), rows))
        folds.append(Split(train, users.keep(~is_target), users.keep(is_target)))
    return tuple(folds)


def _cap_users(split: Split, seed: int) -> Split:
    """Return the split with at most `MAX_HELD_OUT` test users, chosen at random."""
    n_users = split.target.n_users
    if n_users <= MAX_HELD_OUT:
        return split
    rows = np.sort(np.argsort(hash_pairs(seed, np.arange(n_users), 1))[:MAX_HELD_OUT])
    return Split(split.train, split.fold_in.take(rows), split.target.take(rows))


def sample_split(split: Split, seed: int = 0) -> Split | None:
    """Return the split with the most popular items and some of the training users; None if it is small already."""
    train = split.train
    if train.n_items <= 2 * SAMPLE_ITEMS and train.n_users <= 4 * SAMPLE_USERS:
        return None
    columns = np.sort(np.argsort(-train.popularity, kind="stable")[:SAMPLE_ITEMS])
    rows = np.sort(np.argsort(hash_pairs(seed, np.arange(train.n_users), 2))[:SAMPLE_USERS])
    known, target = (_take_items(events, columns) for events in (split.fold_in, split.target))
    testable = np.flatnonzero((np.diff(known.matrix.indptr) > 0) & (np.diff(target.matrix.indptr) > 0))[:SAMPLE_USERS]
    if len(testable) < MIN_USERS:
        return None
    return Split(_take_items(train.take(rows), columns), known.take(testable), target.take(testable))


def _take_items(events: Interactions, columns: np.ndarray) -> Interactions:
    catalog: Catalog = events.catalog.take(columns)
    return Interactions(events.matrix[:, columns], events.users, catalog)
