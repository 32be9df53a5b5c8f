"""Train and test parts on a cluster, by the very functions that divide interactions on one machine, and so the same parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import RDD

from gramian.data.split import Split, hashed, held_out_users, last_parts, moment_of, targets, weak_parts
from gramian.errors import InvalidInput
from gramian.spark.blocks import Block, added, retold
from gramian.spark.events import SparkInteractions

Mask = Callable[[Block], np.ndarray]  # of a block's entries
BUCKETS = 16  # bits of a hash by which users are counted first


@dataclass(frozen=True, eq=False)
class SparkSplit:
    """What a model may learn from, what is known of each tested user, and what is to be found, all on the cluster."""

    train: SparkInteractions
    fold_in: SparkInteractions
    target: SparkInteractions
    validation: SparkSplit | None = None

    def local(self) -> Split:
        """The tested users on this machine, for `gr.evaluate`. Of the training part it has the items only."""
        validation = None if self.validation is None else self.validation.local()
        return Split(self.train.catalog, self.fold_in.local(), self.target.local(), validation)


@retold()
def strong(
    events: SparkInteractions,
    *,
    validation_users: int | float = 0.1,
    test_users: int | float = 0.1,
    target: float = 0.2,
    seed: int = 0,
) -> SparkSplit:
    """Held-out users, whom training never sees, as in `gr.split.strong`."""
    blocks = checked(events).shape.rdd(events.blocks)
    hashes = blocks.map(lambda block: hashed(seed, block.rows[divisible(block)], 0))
    n_divisible = hashes.map(len).sum()
    n_validation, n_test = held_out_users(events.n_users, n_divisible, validation_users, test_users)
    low, high = smallest(hashes, n_validation), smallest(hashes, n_validation + n_test)

    def some(chosen: Callable[[np.ndarray], np.ndarray], of: Mask | None = None) -> SparkInteractions:
        def part(block: Block) -> Block:
            here = chosen(np.where(divisible(block), hashed(seed, block.rows, 0), np.uint64(2**64 - 1)))
            found = block.take(np.flatnonzero(here))
            return found if of is None else found.keep(of(found))

        return events.mapped(part)

    def held_out(chosen: Callable[[np.ndarray], np.ndarray], validation: SparkSplit | None) -> SparkSplit:
        def wanted(block: Block) -> np.ndarray:
            return targets(block.events, block.rows, target, seed)

        return SparkSplit(train, some(chosen, lambda block: ~wanted(block)), some(chosen, wanted), validation)

    train = some(lambda h: h >= high)
    validation = held_out(lambda h: h < low, None) if n_validation else None
    return held_out(lambda h: (h >= low) & (h < high), validation)


@retold()
def weak(events: SparkInteractions, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> SparkSplit:
    """Of every user a share of the items for validation and for test, as in `gr.split.weak`."""
    return divided(checked(events), lambda block: weak_parts(block.events, block.rows, validation, test, seed))


@retold()
def leave_last(events: SparkInteractions, *, k: int = 1, validation: bool = True) -> SparkSplit:
    """The last k items of every user are the test, the k before them the validation, as in `gr.split.leave_last`."""
    require_times(events)
    return divided(events, lambda block: last_parts(block.events, k, validation))


@retold()
def temporal(events: SparkInteractions, *, test_from: Any, validation_from: Any = None) -> SparkSplit:
    """What happens from `test_from` on is to be found, from what each user did before, as in `gr.split.temporal`."""
    require_times(events)
    like = np.empty(0, events.shape.times)
    cut = moment_of(test_from, like)
    train_end = cut if validation_from is None else moment_of(validation_from, like)
    if train_end > cut:
        raise InvalidInput("validation_from before test_from", f"{train_end} after {cut}", "Swap them")

    def parts(block: Block) -> tuple[np.ndarray, np.ndarray]:
        times = np.asarray(block.times)
        return times >= cut, (times >= train_end) & (times < cut)

    return divided(events, parts)


def divided(events: SparkInteractions, parts: Callable[[Block], tuple[np.ndarray, np.ndarray]]) -> SparkSplit:
    """A split by which entries of a block are for test, and which for validation."""
    sizes = events.shape.rdd(events.blocks).map(lambda block: tuple(int(mask.sum()) for mask in parts(block)))
    n_test, n_validation = sizes.treeReduce(added)
    if n_test == 0:
        raise InvalidInput("at least one target", "none", "Hold out more, or give users more items")
    if n_test + n_validation == events.n_interactions:
        raise InvalidInput("interactions before the cut", "none", "Choose a later moment")

    def in_train(block: Block) -> np.ndarray:
        in_test, in_validation = parts(block)
        return ~in_test & ~in_validation

    def tested(known: Mask, wanted: Mask, validation: SparkSplit | None) -> SparkSplit:
        def part(which: Mask) -> SparkInteractions:
            def found(block: Block) -> Block:
                both = [np.diff(block.keep(mask(block)).matrix.indptr) > 0 for mask in (known, wanted)]
                return block.keep(which(block)).take(np.flatnonzero(both[0] & both[1]))

            return events.mapped(found)

        return SparkSplit(train, part(known), part(wanted), validation)

    train = events.mapped(lambda block: block.keep(in_train(block)))
    validation = tested(in_train, lambda block: parts(block)[1], None) if n_validation else None
    return tested(lambda block: ~parts(block)[0], lambda block: parts(block)[0], validation)


def divisible(block: Block) -> np.ndarray:
    """Who has two items or more."""
    return np.diff(block.matrix.indptr) >= 2


def smallest(hashes: RDD[np.ndarray], n: int) -> np.uint64:
    """The hash below which there are n: counted by their first bits, and then looked at where the n-th is."""
    if n == 0:
        return np.uint64(0)
    shift = np.uint64(64 - BUCKETS)
    counts = hashes.map(lambda h: np.bincount((h >> shift).astype(np.int64), minlength=1 << BUCKETS)).treeReduce(np.add)
    ends = np.cumsum(counts)
    bucket = int(np.searchsorted(ends, n))
    inside = np.sort(np.concatenate(hashes.map(lambda h: h[(h >> shift).astype(np.int64) == bucket]).collect()))
    return inside[n - 1 - (ends[bucket] - counts[bucket])] + np.uint64(1)


def require_times(events: SparkInteractions) -> None:
    if checked(events).shape.times is None:
        raise InvalidInput("interactions with times", "none", 'Read them with time="timestamp"')


def checked(events: SparkInteractions) -> SparkInteractions:
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Use gr.split for what is here")
    return events
