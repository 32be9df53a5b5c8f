"""Train and test splits on a cluster, with the same parts as on one machine: both use the functions of `gramian.data.split`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from pyspark import RDD

from gramian.data.dates import parse_cutoff
from gramian.data.split import (
    HeldOutUsers,
    count_held_out_users,
    mark_last_parts,
    mark_targets,
    mark_weak_parts,
)
from gramian.errors import InvalidInput
from gramian.linalg.hashing import hash_pairs
from gramian.spark.blocks import Block, add_tuples, reraise_task_errors
from gramian.spark.events import SparkInteractions

BlockMask = Callable[[Block], np.ndarray]  # a mask of a block's users or entries
BUCKET_BITS = 16  # leading bits of a hash that make its bucket: 65,536 counts for each block
NEVER_HELD_OUT = np.uint64(2**64 - 1)  # above the hash of every held-out user


@dataclass(frozen=True, eq=False)
class SparkSplit:
    """A training part and test users on the cluster, each user with known items and held-out targets.

    Parameters
    ----------
    train
        What a model may learn from.
    fold_in
        The known items of each test user.
    target
        The held-out items of each test user, at least one. The users are the same as in `fold_in`.
    validation
        A split of its own inside the training part, for choosing hyperparameters.
    """

    train: SparkInteractions
    fold_in: SparkInteractions
    target: SparkInteractions
    validation: SparkSplit | None = None

    def local(self) -> HeldOutUsers:
        """Return the test users on this machine, for `gr.evaluate`. The training part stays on the cluster."""
        fold_in, target = self.fold_in.local(), self.target.local()
        fingerprints = " ".join([self.train.fingerprint, fold_in.fingerprint, target.fingerprint])
        return HeldOutUsers(fold_in, target, self.train.n_users, sha256(fingerprints.encode()).hexdigest())


@reraise_task_errors()
def strong_split(
    events: SparkInteractions,
    *,
    validation_users: int | float = 0.1,
    test_users: int | float = 0.1,
    target: float = 0.2,
    seed: int = 0,
) -> SparkSplit:
    """Hold out whole users, whom training never sees: the same split as `gr.split.strong`.

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
    SparkSplit
    """
    blocks = require_on_cluster(events).rdd()
    hashes = blocks.map(lambda block: hash_pairs(seed, block.user_rows[has_two_items(block)], 0))
    n_validation, n_test = count_held_out_users(events.n_users, hashes.map(len).sum(), validation_users, test_users)
    test_start, test_end = hash_threshold(hashes, n_validation), hash_threshold(hashes, n_validation + n_test)

    def select(is_selected: Callable[[np.ndarray], np.ndarray], entries: BlockMask | None = None) -> SparkInteractions:
        """Return the users whose hash is selected, with all of their entries or with some."""

        def select_in_block(block: Block) -> Block:
            user_hashes = np.where(has_two_items(block), hash_pairs(seed, block.user_rows, 0), NEVER_HELD_OUT)
            users = block.take(np.flatnonzero(is_selected(user_hashes)))
            return users if entries is None else users.keep(entries(users))

        return events.map_blocks(select_in_block)

    def hold_out(is_selected: Callable[[np.ndarray], np.ndarray], validation: SparkSplit | None) -> SparkSplit:
        def is_target(block: Block) -> np.ndarray:
            return mark_targets(block.matrix, block.user_rows, target, seed)

        fold_in = select(is_selected, lambda block: ~is_target(block))
        return SparkSplit(train, fold_in, select(is_selected, is_target), validation)

    train = select(lambda hashes: hashes >= test_end)
    validation = hold_out(lambda hashes: hashes < test_start, None) if n_validation else None
    return hold_out(lambda hashes: (hashes >= test_start) & (hashes < test_end), validation)


@reraise_task_errors()
def weak_split(events: SparkInteractions, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> SparkSplit:
    """Hold out a share of every user's items: the same split as `gr.split.weak`.

    Parameters
    ----------
    events
        The interactions to split.
    validation, test
        The shares of each user's items for validation and test. At least one item goes to test, then to validation, as long
        as one stays in train.
    seed
        Seed of the random choices.

    Returns
    -------
    SparkSplit
    """
    require_on_cluster(events)
    return split_entries(events, lambda block: mark_weak_parts(block.matrix, block.user_rows, validation, test, seed))


@reraise_task_errors()
def leave_last_split(events: SparkInteractions, *, k: int = 1, validation: bool = True) -> SparkSplit:
    """Hold out the last items of every user: the same split as `gr.split.leave_last`.

    Parameters
    ----------
    events
        Interactions with times.
    k
        How many items of each user go to test; at least one item stays in train.
    validation
        Whether the k items before them are for validation.

    Returns
    -------
    SparkSplit
    """
    require_timed(events)
    return split_entries(events, lambda block: mark_last_parts(block.matrix, np.asarray(block.times), k, validation))


@reraise_task_errors()
def temporal_split(events: SparkInteractions, *, test_from: Any, validation_from: Any = None) -> SparkSplit:
    """Hold out all interactions from a cutoff time on, the same for all users: the same split as `gr.split.temporal`.

    Parameters
    ----------
    events
        Interactions with times.
    test_from
        The time at which the test part starts.
    validation_from
        The time at which the validation part starts. Left out, there is none.

    Returns
    -------
    SparkSplit
        Users without interactions before the test part are not tested.
    """
    no_times = np.empty(0, require_timed(events))
    test_start = parse_cutoff(test_from, no_times)
    train_end = test_start if validation_from is None else parse_cutoff(validation_from, no_times)
    if train_end > test_start:
        raise InvalidInput("validation_from before test_from", f"{train_end} after {test_start}", "Swap them")

    def mark_parts(block: Block) -> tuple[np.ndarray, np.ndarray]:
        times = np.asarray(block.times)
        return times >= test_start, (times >= train_end) & (times < test_start)

    return split_entries(events, mark_parts)


def split_entries(events: SparkInteractions, mark_parts: Callable[[Block], tuple[np.ndarray, np.ndarray]]) -> SparkSplit:
    """Split by a function that marks the entries of a block for test and for validation."""
    sizes = events.rdd().map(lambda block: tuple(int(mask.sum()) for mask in mark_parts(block)))
    n_test, n_validation = sizes.treeReduce(add_tuples)
    if n_test == 0:
        raise InvalidInput("at least one target", "none", "Hold out more, or give users more items")
    if n_test + n_validation == events.n_interactions:
        raise InvalidInput("interactions before the cutoff", "none", "Choose a later time")

    def is_test(block: Block) -> np.ndarray:
        return mark_parts(block)[0]

    def is_validation(block: Block) -> np.ndarray:
        return mark_parts(block)[1]

    def is_train(block: Block) -> np.ndarray:
        return ~is_test(block) & ~is_validation(block)

    def hold_out(is_known: BlockMask, is_target: BlockMask, validation: SparkSplit | None) -> SparkSplit:
        """Return a split over the users who have both known items and targets."""

        def select(mask: BlockMask) -> SparkInteractions:
            def select_in_block(block: Block) -> Block:
                has_known, has_target = (np.diff(block.keep(mask(block)).matrix.indptr) > 0 for mask in (is_known, is_target))
                return block.keep(mask(block)).take(np.flatnonzero(has_known & has_target))

            return events.map_blocks(select_in_block)

        return SparkSplit(train, select(is_known), select(is_target), validation)

    train = events.map_blocks(lambda block: block.keep(is_train(block)))
    validation = hold_out(is_train, is_validation, None) if n_validation else None
    return hold_out(lambda block: ~is_test(block), is_test, validation)


def has_two_items(block: Block) -> np.ndarray:
    """Mark the users of a block who have two items or more, and so can be held out."""
    return np.diff(block.matrix.indptr) >= 2


def hash_threshold(hashes: RDD[np.ndarray], n: int) -> np.uint64:
    """Return the bound below which n of all hashes are.

    The hashes are counted by their leading bits first; then only the bucket of the n-th is collected.
    """
    if n == 0:
        return np.uint64(0)
    shift = np.uint64(64 - BUCKET_BITS)

    def buckets(hashes: np.ndarray) -> np.ndarray:
        return (hashes >> shift).astype(np.int64)

    counts = hashes.map(lambda hashes: np.bincount(buckets(hashes), minlength=1 << BUCKET_BITS)).treeReduce(np.add)
    ends = np.cumsum(counts)
    bucket = int(np.searchsorted(ends, n))
    in_bucket = np.sort(np.concatenate(hashes.map(lambda hashes: hashes[buckets(hashes) == bucket]).collect()))
    return in_bucket[n - 1 - (ends[bucket] - counts[bucket])] + np.uint64(1)


def require_timed(events: SparkInteractions) -> str:
    """Return the type of the times, or refuse interactions without times."""
    time_dtype = require_on_cluster(events).block_format.time_dtype
    if time_dtype is None:
        raise InvalidInput("interactions with times", "none", 'Read them with time="timestamp"')
    return time_dtype


def require_on_cluster(events: SparkInteractions) -> SparkInteractions:
    """Refuse what is not on a cluster."""
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Use gr.split for data on this machine")
    return events
