"""Alternating least squares on a cluster: the row solver of one machine, mapped over blocks of users and blocks of items.

The items' vectors are the smaller side: they are on the driver, and are broadcast. With them every block solves for its own
users. Where all rows share one system (RG2ALS), users' vectors are never kept: a block hands on Σ_u pull·x_ui·p_u for every
item, and one sum over all blocks is all that an epoch needs. Else users' vectors stay with their blocks, and each block sends
to every block of items the vectors of the users who touched one of them, where the items' rows are solved for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from pyspark import RDD, Broadcast, StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from gramian.data.interactions import csr
from gramian.errors import InvalidInput
from gramian.linalg.gram import sizes
from gramian.linalg.product import times
from gramian.linalg.rows import OWN, PULL, REST, SHARED, Fixed, Rows
from gramian.linalg.threads import threads
from gramian.models.als import Alternating, Sums, weighted
from gramian.models.factors import Terms
from gramian.models.iterative import CHECKPOINTS, State
from gramian.progress import bar
from gramian.recommender import Scorer
from gramian.spark.blocks import Block, added, cpus
from gramian.spark.events import SparkInteractions

Vectors = tuple[np.ndarray, np.ndarray]  # the numbers of some users, and their vectors


class Job(NamedTuple):
    """What every task knows: the recipe, and how many items and blocks there are."""

    recipe: Alternating
    n_items: int
    n_blocks: int
    kind: type

    def numbers(self, block: Block) -> np.ndarray:
        """The five of each user."""
        return self.recipe.rule(self.n_items).numbers(sizes(block.matrix)).astype(self.kind)

    def solved(self, block: Block, start: np.ndarray, fixed: Fixed, basis: np.ndarray) -> np.ndarray:
        """The users of a block, from the items' vectors."""
        rows = Rows(block.matrix, self.numbers(block), np.ones((self.n_items, 2), self.kind))
        return self.recipe.half(rows, fixed, start, basis)[0]

    def shared(self, block: Block, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a block adds to G and g of the items' half step."""
        numbers = self.numbers(block)
        return weighted(users, numbers[:, SHARED]), np.asarray(numbers[:, REST] @ users, np.float64)

    def nowhere(self, block: Block) -> np.ndarray:
        """Where users are before the first epoch."""
        return np.zeros((block.matrix.shape[0], self.recipe.rank), self.kind)


class Alone:
    """Epochs of a loss under which all rows share one system: one sum over the blocks for each."""

    def __init__(self, job: Job, of_items: np.ndarray, blocks: RDD[Block]) -> None:
        self.job, self.of_items, self.blocks = job, of_items, blocks

    def epoch(self, items: np.ndarray) -> np.ndarray:
        job = self.job
        told = self.blocks.context.broadcast(turned(job.recipe, items))

        def part(block: Block) -> tuple[np.ndarray, ...]:
            with threads(cpus()):
                users = job.solved(block, job.nowhere(block), *told.value)
                pull = job.numbers(block)[:, PULL, None] * users
                right = times(sp.csr_array(block.matrix.T.tocsr()), pull)
                return *job.shared(block, users), right.astype(np.float64)

        gram, total, right = self.blocks.map(part).treeReduce(added)
        told.destroy()
        # the right sides are there: they stand for the vectors of one user for each item
        fixed, basis = Fixed.of(right.astype(items.dtype), gram, total)
        one = sp.eye_array(job.n_items, dtype=items.dtype, format="csr")
        rows = Rows(one, self.of_items, np.tile(np.array([0, 1], items.dtype), (job.n_items, 1)))
        return job.recipe.half(rows, fixed, items, basis)[0]

    def vectors(self) -> RDD[Vectors] | None:
        """Nothing of the users is kept."""
        return None

    def restore(self, vectors: RDD[Vectors]) -> None:
        pass

    def close(self) -> None:
        pass


class Party(NamedTuple):
    """A block's users, their vectors, and which of them each block of items is to hear of."""

    block: Block
    sends: list[np.ndarray]
    vectors: np.ndarray


class Told(NamedTuple):
    """A block of items: its rows over the users it is told of, block after block, and their numbers."""

    matrix: sp.csr_array
    by_column: np.ndarray


class Exchanging:
    """Epochs of any weighted loss: users' vectors stay with their blocks, and travel to the blocks of items they touch."""

    kept: RDD[Party] | None  # of the last epoch
    broadcasts: list[Broadcast[Any]]

    def __init__(self, job: Job, of_items: np.ndarray, blocks: RDD[Block]) -> None:
        self.job, self.of_items = job, of_items
        self.told = blocks.flatMap(introductions(job)).partitionBy(job.n_blocks, int).mapPartitions(joined)
        self.told.persist(StorageLevel.MEMORY_AND_DISK)
        self.fresh = blocks.map(lambda block: Party(block, sends(block, job.n_blocks), job.nowhere(block)))
        self.parties, self.kept, self.broadcasts = self.fresh, None, []

    def epoch(self, items: np.ndarray) -> np.ndarray:
        job, context, before = self.job, self.told.context, self.kept
        fixed, basis = turned(job.recipe, items)
        known = context.broadcast((fixed, basis))

        def half(party: Party) -> Party:
            with threads(cpus()):
                return party._replace(vectors=job.solved(party.block, party.vectors, *known.value))

        parties = self.parties.map(half).persist(StorageLevel.MEMORY_AND_DISK)
        gram, total = parties.map(lambda party: job.shared(party.block, party.vectors)).treeReduce(added)
        if before is not None:
            before.unpersist()
        nobody = np.zeros((0, job.recipe.rank), items.dtype)
        shared, turn = Fixed.of(nobody, gram, total)  # for the users' vectors themselves are elsewhere
        there = context.broadcast((shared, turn, fixed.factors, self.of_items))

        self.broadcasts += [known, there]

        def solve(pair: tuple[Told, list[Any]]) -> tuple[int, np.ndarray]:
            (matrix, by_column), letters = pair
            to = letters[0][0]
            vectors = np.concatenate([vectors for _, (_, vectors) in sorted(letters, key=lambda letter: letter[1][0])])
            shared, turn, items, of_items = there.value
            fixed = Fixed(vectors @ turn, shared.spectrum, shared.total)
            mine = slice(to, None, job.n_blocks)
            with threads(cpus()):
                return to, job.recipe.half(Rows(matrix, of_items[mine], by_column), fixed, items[mine], turn)[0]

        def post(party: Party) -> Iterator[tuple[int, tuple[int, np.ndarray]]]:
            for to, users in enumerate(party.sends):
                yield to, (party.block.number, party.vectors[users])

        letters = parties.flatMap(post).partitionBy(job.n_blocks, int).glom()
        found = np.empty_like(items)
        for to, vectors in self.told.zip(letters).map(solve).collect():
            found[to :: job.n_blocks] = vectors
        self.kept, self.parties = parties, parties.map(lambda party: party._replace(vectors=party.vectors @ there.value[1]))
        return found

    def vectors(self) -> RDD[Vectors] | None:
        return self.parties.map(lambda party: (party.block.rows, party.vectors))

    def restore(self, vectors: RDD[Vectors]) -> None:
        """Go on from these, whichever blocks they were saved from. What led to them is forgotten, lest it is done again."""
        n_blocks = self.job.n_blocks

        def posted(some: Vectors) -> Iterator[tuple[int, Vectors]]:
            rows, found = some
            for to in range(n_blocks):
                mine = rows % n_blocks == to
                yield to, (rows[mine], found[mine])

        def with_vectors(pair: tuple[int, tuple[Iterable[Party], Iterable[Vectors]]]) -> Iterator[Party]:
            own, parts = pair[1]
            for party in own:
                rows, found = (np.concatenate(part) for part in zip(*parts, strict=True))
                yield party._replace(vectors=found[np.argsort(rows)])  # a block's users are in the order of their numbers

        by_number = self.fresh.keyBy(lambda party: party.block.number)
        self.parties = by_number.cogroup(vectors.flatMap(posted), n_blocks).flatMap(with_vectors)

    def close(self) -> None:
        """Let the cluster's memory go."""
        self.told.unpersist()
        if self.kept is not None:
            self.kept.unpersist()
        for sent in self.broadcasts:
            sent.destroy()


def turned(recipe: Alternating, items: np.ndarray) -> tuple[Fixed, np.ndarray]:
    """The items' vectors in the basis in which what users share is diagonal, and the basis."""
    return Fixed.of(items, recipe.user_gram(items), items.sum(axis=0, dtype=np.float64))


def sends(block: Block, n_blocks: int) -> list[np.ndarray]:
    """Which users of a block touched an item of each block of items."""
    rows, to = block.events.rows, block.matrix.indices % n_blocks
    return [np.unique(rows[to == number]) for number in range(n_blocks)]


def introductions(job: Job) -> Any:
    """What each block of items is told once of a block's users: its rows over those who touched it, and their numbers."""

    def parts(block: Block) -> Iterator[tuple[int, tuple[int, Told]]]:
        by_item, numbers = sp.csr_array(block.matrix.T.tocsr()), job.numbers(block)[:, [OWN, PULL]]
        for to in range(job.n_blocks):
            part = by_item[to :: job.n_blocks]
            users, compact = np.unique(part.indices, return_inverse=True)
            rows = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
            mine = csr(rows, compact, part.data, (part.shape[0], len(users)))
            yield to, (block.number, Told(mine, np.ascontiguousarray(numbers[users])))

    return parts


def joined(parts: Iterable[tuple[int, tuple[int, Told]]]) -> Iterator[Told]:
    """What all blocks of users have told one block of items, in their order."""
    told = [part for _, (_, part) in sorted(parts, key=lambda pair: pair[1][0])]
    matrix = sp.hstack([part.matrix for part in told], format="csr")
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    yield Told(csr(rows, matrix.indices, matrix.data, matrix.shape), np.concatenate([part.by_column for part in told]))


def trained(recipe: Alternating, events: SparkInteractions, dtype: type, scratch: str | None, every: int) -> Scorer:
    """The items' vectors after all epochs, and the rule by which users are folded in."""
    recipe.require_possible(events)  # type: ignore[arg-type]
    blocks = events.shape.rdd(events.blocks)
    job = Job(recipe, events.n_items, blocks.getNumPartitions(), dtype)
    sums: Sums = Sums(*blocks.map(lambda block: Sums.of(block.matrix)).treeReduce(added))  # type: ignore[arg-type]
    alone = recipe.rule(events.n_items).own == Terms()
    way = (Alone if alone else Exchanging)(job, recipe.of_items(sums, np.dtype(dtype)), blocks)
    items, number = recipe.first(events.catalog, dtype).items, 0
    kept = None if scratch is None else Checkpoints(events, scratch, job)
    if kept is not None and (found := kept.latest()):
        number, items, vectors = found
        if vectors is not None:
            way.restore(vectors)
    try:
        with bar("epochs", recipe.n_epochs) as advance:
            advance(number)
            for following in range(number + 1, recipe.n_epochs + 1):
                items = way.epoch(items)
                if kept is not None and (following % every == 0 or following == recipe.n_epochs):
                    vectors = kept.write(following, items, way.vectors())
                    if vectors is not None:
                        way.restore(vectors)
                advance(1)
    finally:
        way.close()
    return recipe.fitted(events.catalog, State.of(items[:0], items))


class Checkpoints:
    """The last epochs of a training, as parquet under any path that the cluster can write: two of them, one always whole."""

    def __init__(self, events: SparkInteractions, path: str, job: Job) -> None:
        facts = {"recipe": job.recipe.endless(), "events": events.digest, "users": events.n_users}
        items = sha256(repr(events.items.tolist()).encode()).hexdigest()
        self.key = json.dumps(facts | {"items": items, "dtype": np.dtype(job.kind).name}, sort_keys=True)
        self.spark, self.path, self.job, self.n_users = events.blocks.sparkSession, path.rstrip("/"), job, events.n_users
        self.free = 0  # the one of the two that may be written over

    def write(self, number: int, items: np.ndarray, vectors: RDD[Vectors] | None) -> RDD[Vectors] | None:
        """Users first: that the items are there says that all is. Gives the users as they were written."""
        place = self.places[self.free]
        self.free = 1 - self.free
        if vectors is not None:
            rows = vectors.map(lambda some: (number, len(some[0]), some[0].tobytes(), some[1].tobytes()))
            table = self.spark.createDataFrame(rows, "epoch int, n int, rows binary, vectors binary")
            table.write.mode("overwrite").parquet(f"{place}/users")
        row = [(number, self.key, items.tobytes(), vectors is not None)]
        table = self.spark.createDataFrame(row, "epoch int, key string, vectors binary, users boolean").coalesce(1)
        table.write.mode("overwrite").parquet(f"{place}/items")
        return None if vectors is None else self.users(self.spark.read.parquet(f"{place}/users"))

    @property
    def places(self) -> list[str]:
        return [f"{self.path}/{name}" for name in CHECKPOINTS]

    def latest(self) -> tuple[int, np.ndarray, RDD[Vectors] | None] | None:
        """The last epoch that was kept whole, if there is one."""
        found = {at: kept for at, place in enumerate(self.places) if (kept := self.read(place)) is not None}
        if not found:
            return None
        newest = max(found, key=lambda at: found[at][0])
        self.free = 1 - newest
        return found[newest]

    def read(self, place: str) -> tuple[int, np.ndarray, RDD[Vectors] | None] | None:
        job = self.job
        try:
            row = self.spark.read.parquet(f"{place}/items").first()
            users = self.spark.read.parquet(f"{place}/users") if row is not None and row["users"] else None
        except AnalysisException:  # nothing there, or not yet all of it
            return None
        if row is None:
            return None
        if row["key"] != self.key:
            do = "Name another, or go on with the same recipe and data"
            raise InvalidInput(f"the checkpoints of this training in {self.path}", "those of another", do)
        if row["epoch"] > job.recipe.n_epochs:
            wanted = f"at most {job.recipe.n_epochs} epochs in {self.path}"
            raise InvalidInput(wanted, f"{row['epoch']}", "Name another path, or raise n_epochs")
        if users is not None:
            whole = users.filter(users["epoch"] == row["epoch"]).agg({"n": "sum"}).first()
            if whole is None or whole[0] != self.n_users:  # written over by a later epoch, whose items are not there
                return None
        items: np.ndarray = np.frombuffer(row["vectors"], job.kind).reshape(job.n_items, job.recipe.rank)
        return int(row["epoch"]), items, None if users is None else self.users(users)

    def users(self, table: DataFrame) -> RDD[Vectors]:
        rank, kind = self.job.recipe.rank, self.job.kind

        def unpacked(row: Any) -> Vectors:
            return np.frombuffer(row["rows"], np.int64), np.frombuffer(row["vectors"], kind).reshape(-1, rank)

        return table.rdd.map(unpacked)
