"""Alternating least squares on a cluster: the row solver of one machine, mapped over blocks of users and blocks of items.

The item vectors are the smaller side: they are on the driver and are broadcast. With them every block solves for its users.
There are two ways to do the items' half step:

    AggregatingTrainer   where all rows share one system (RG2ALS), user vectors are never stored: a block computes
                         Σ_u extra_target_u · x_ui · p_u for every item, and an epoch needs only the sum over all blocks;
    ShufflingTrainer     otherwise user vectors stay with their blocks, and each block sends to every block of items the vectors
                         of the users who touched one of them; there the items' rows are solved.

Item i is in item block i % n_blocks, at position i // n_blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from pyspark import RDD, Broadcast, StorageLevel

from gramian.core.fit_check import require_convergence
from gramian.core.scorer import Scorer
from gramian.linalg.product import multiply_sparse
from gramian.linalg.row_solvers import (
    EXTRA_TARGET,
    EXTRA_WEIGHT,
    RIDGE,
    UNOBSERVED_TARGET,
    UNOBSERVED_WEIGHT,
    FixedSide,
    RowProblems,
)
from gramian.linalg.sparse import csr_from_sorted, row_of_entry, row_sums
from gramian.linalg.threads import limit_threads
from gramian.models.als import AlternatingRecipe, UserSums, weighted_gram
from gramian.progress import progress_bar
from gramian.spark.als_checkpoints import AlsCheckpoints, UserVectors
from gramian.spark.blocks import Block, add_tuples, task_cores
from gramian.spark.events import SparkInteractions


class AlsTask(NamedTuple):
    """What every task needs: the recipe, the numbers of items and blocks, and the precision."""

    recipe: AlternatingRecipe
    n_items: int
    n_blocks: int
    dtype: type

    def user_coefficients(self, block: Block) -> np.ndarray:
        """Return the five coefficients of each user's row."""
        return self.recipe.row_loss(self.n_items).row_coefficients(row_sums(block.matrix)).astype(self.dtype)

    def solve_users(self, block: Block, start: np.ndarray, fixed: FixedSide, basis: np.ndarray) -> np.ndarray:
        """Solve for the users of a block, with the item vectors fixed."""
        rows = RowProblems(block.matrix, self.user_coefficients(block), np.ones((self.n_items, 2), self.dtype))
        return self.recipe.half_step(rows, fixed, start, basis)[0]

    def user_sums(self, block: Block, users: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return a block's terms of the sums G and g (see `row_solvers`), which all items share, and of the users' penalty."""
        coefficients = self.user_coefficients(block)
        gram, total = weighted_gram(users, coefficients[:, UNOBSERVED_WEIGHT]), coefficients[:, UNOBSERVED_TARGET] @ users
        penalty = coefficients[:, RIDGE] @ np.einsum("uk,uk->u", users, users, dtype=np.float64)
        return gram, np.asarray(total, np.float64), float(penalty)

    def loss_at_zero(self, block: Block) -> float:
        """Return a block's term of the loss when every score is 0."""
        sizes = row_sums(block.matrix)
        return float(self.recipe.row_loss(self.n_items).loss_at_zero.at(sizes[sizes > 0]).sum())

    def initial_users(self, block: Block) -> np.ndarray:
        """Return the user vectors before the first epoch: 0."""
        return np.zeros((block.matrix.shape[0], self.recipe.rank), self.dtype)

    def rotate_items(self, items: np.ndarray) -> tuple[FixedSide, np.ndarray]:
        """Return the item vectors in the basis in which the matrix that users share is diagonal, and the basis."""
        return FixedSide.of(items, self.recipe.user_gram(items), items.sum(axis=0, dtype=np.float64))


def train_als(recipe: AlternatingRecipe, events: SparkInteractions, dtype: type, scratch: str | None, every: int) -> Scorer:
    """Train on a cluster, with a checkpoint at `scratch` after every `every` epochs; return the scorer of the item vectors."""
    recipe.require_trainable(events, events.is_binary)
    blocks = events.rdd()
    task = AlsTask(recipe, events.n_items, blocks.getNumPartitions(), dtype)
    sums = UserSums(*blocks.map(lambda block: UserSums.of(block.matrix)).treeReduce(add_tuples))  # type: ignore[arg-type]
    trainer_class = AggregatingTrainer if recipe.row_loss(events.n_items).is_shared else ShufflingTrainer
    trainer = trainer_class(task, recipe.item_coefficients(sums, np.dtype(dtype)), blocks)
    items, epochs_done, first_objective = recipe.initial_items(events.n_items, dtype), 0, None
    loss_at_zero = blocks.map(task.loss_at_zero).sum()
    checkpoints = None if scratch is None else AlsCheckpoints(events, scratch, recipe, dtype)
    if checkpoints is not None and (latest := checkpoints.read_latest()):
        epochs_done, items, users = latest
        if users is not None:
            trainer.restore(users)
    try:
        with progress_bar("epochs", recipe.n_epochs) as advance:
            advance(epochs_done)
            for epoch in range(epochs_done + 1, recipe.n_epochs + 1):
                items, value = trainer.run_epoch(items)
                objective = value + loss_at_zero
                first_objective = objective if first_objective is None else first_objective
                require_convergence(objective, first_objective, recipe)
                if checkpoints is not None and (epoch % every == 0 or epoch == recipe.n_epochs):
                    users = checkpoints.write(epoch, items, trainer.user_vectors())
                    if users is not None:
                        trainer.restore(users)
                advance(1)
    finally:
        trainer.close()
    return recipe.scorer_of_items(items)


class AggregatingTrainer:
    """Epochs of a loss under which all rows share one system: one sum over the blocks for each, and no user vectors."""

    def __init__(self, task: AlsTask, item_coefficients: np.ndarray, blocks: RDD[Block]) -> None:
        self.task, self.item_coefficients, self.blocks = task, item_coefficients, blocks

    def run_epoch(self, items: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the item vectors after one more epoch, and the objective minus its value when every score is 0."""
        task = self.task
        broadcast = self.blocks.context.broadcast(task.rotate_items(items))

        def sum_block(block: Block) -> tuple[Any, ...]:
            with limit_threads(task_cores()):
                users = task.solve_users(block, task.initial_users(block), *broadcast.value)
                weighted_users = task.user_coefficients(block)[:, EXTRA_TARGET, None] * users
                right_sides = multiply_sparse(sp.csr_array(block.matrix.T.tocsr()), weighted_users)
                return *task.user_sums(block, users), right_sides.astype(np.float64)

        gram, total, penalty, right_sides = self.blocks.map(sum_block).treeReduce(add_tuples)
        broadcast.destroy()
        # The right sides are already summed. To the row solver they look like one user per item, whose vector they are.
        fixed, basis = FixedSide.of(right_sides.astype(items.dtype), gram, total)
        identity = sp.eye_array(task.n_items, dtype=items.dtype, format="csr")
        rows = RowProblems(identity, self.item_coefficients, np.tile(np.array([0, 1], items.dtype), (task.n_items, 1)))
        solved, values = task.recipe.half_step(rows, fixed, items, basis)
        return solved, float(values.sum()) + penalty

    def user_vectors(self) -> RDD[UserVectors] | None:
        """Return None: no user vectors are stored."""
        return None

    def restore(self, users: RDD[UserVectors]) -> None:
        """Do nothing: the item vectors are the whole state."""

    def close(self) -> None:
        """Do nothing: nothing is persisted."""


class UserBlock(NamedTuple):
    """A block of users, the vectors of the users, and for each item block the users who touched one of its items."""

    block: Block
    users_to_send: list[np.ndarray]
    vectors: np.ndarray


class ItemBlock(NamedTuple):
    """A block of items: its rows over the users who touched them, ordered by user block, and these users' coefficients."""

    matrix: sp.csr_array
    column_coefficients: np.ndarray


class ShufflingTrainer:
    """Epochs of any weighted loss: user vectors stay with their blocks, and are shuffled to the item blocks that need them."""

    def __init__(self, task: AlsTask, item_coefficients: np.ndarray, blocks: RDD[Block]) -> None:
        self.task, self.item_coefficients = task, item_coefficients
        parts = blocks.flatMap(lambda block: item_block_parts(task, block))
        self.item_blocks: RDD[ItemBlock] = parts.partitionBy(task.n_blocks, int).mapPartitions(join_item_block_parts)
        self.item_blocks.persist(StorageLevel.MEMORY_AND_DISK)
        self.initial_blocks = blocks.map(
            lambda block: UserBlock(block, users_per_item_block(block, task.n_blocks), task.initial_users(block))
        )
        self.user_blocks = self.initial_blocks
        self.persisted: RDD[UserBlock] | None = None  # the user blocks of the last epoch
        self.broadcasts: list[Broadcast[Any]] = []  # of all epochs: a lost partition is recomputed from them

    def run_epoch(self, items: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the item vectors after one more epoch, and the objective minus its value when every score is 0."""
        task, context, previous = self.task, self.item_blocks.context, self.persisted
        fixed_items, item_basis = task.rotate_items(items)
        for_users = context.broadcast((fixed_items, item_basis))

        def solve_users(users: UserBlock) -> UserBlock:
            with limit_threads(task_cores()):
                return users._replace(vectors=task.solve_users(users.block, users.vectors, *for_users.value))

        user_blocks = self.user_blocks.map(solve_users).persist(StorageLevel.MEMORY_AND_DISK)
        gram, total, penalty = user_blocks.map(lambda users: task.user_sums(users.block, users.vectors)).treeReduce(add_tuples)
        if previous is not None:
            previous.unpersist()
        no_vectors = np.zeros((0, task.recipe.rank), items.dtype)  # the driver has G and g, but not the user vectors
        shared, user_basis = FixedSide.of(no_vectors, gram, total)
        for_items = context.broadcast((shared, user_basis, fixed_items.factors, self.item_coefficients))
        self.broadcasts += [for_users, for_items]

        def solve_items(pair: tuple[ItemBlock, list[Any]]) -> tuple[int, np.ndarray, float]:
            (matrix, column_coefficients), messages = pair
            number = messages[0][0]
            vectors = np.concatenate([vectors for _, (_, vectors) in sorted(messages, key=sender)])
            shared, user_basis, items, item_coefficients = for_items.value
            fixed_users = FixedSide(vectors @ user_basis, shared.spectrum, shared.total)
            in_block = slice(number, None, task.n_blocks)
            rows = RowProblems(matrix, item_coefficients[in_block], column_coefficients)
            with limit_threads(task_cores()):
                solved, values = task.recipe.half_step(rows, fixed_users, items[in_block], user_basis)
                return number, solved, float(values.sum())

        messages = user_blocks.flatMap(send_vectors).partitionBy(task.n_blocks, int).glom()
        solved, value = np.empty_like(items), penalty
        for number, vectors, block_value in self.item_blocks.zip(messages).map(solve_items).collect():
            solved[number :: task.n_blocks] = vectors
            value += block_value
        self.persisted = user_blocks
        self.user_blocks = user_blocks.map(lambda users: users._replace(vectors=users.vectors @ for_items.value[1]))
        return solved, value

    def user_vectors(self) -> RDD[UserVectors] | None:
        """Return the user vectors, with the row of each user."""
        return self.user_blocks.map(lambda users: (users.block.user_rows, users.vectors))

    def restore(self, users: RDD[UserVectors]) -> None:
        """Continue from these user vectors, whichever number of blocks they were saved from.

        This cuts the RDD lineage, so that earlier epochs are not recomputed.
        """
        n_blocks = self.task.n_blocks

        def send_to_blocks(saved: UserVectors) -> Iterator[tuple[int, UserVectors]]:
            rows, vectors = saved
            for number in range(n_blocks):
                in_block = rows % n_blocks == number
                yield number, (rows[in_block], vectors[in_block])

        def with_vectors(group: tuple[int, tuple[Iterable[UserBlock], Iterable[UserVectors]]]) -> Iterator[UserBlock]:
            user_blocks, parts = group[1]
            for user_block in user_blocks:
                rows, vectors = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
                yield user_block._replace(vectors=vectors[np.argsort(rows)])  # a block's users are in the order of their rows

        by_number = self.initial_blocks.keyBy(lambda users: users.block.number)
        self.user_blocks = by_number.cogroup(users.flatMap(send_to_blocks), n_blocks).flatMap(with_vectors)

    def close(self) -> None:
        """Free the executors' memory."""
        self.item_blocks.unpersist()
        if self.persisted is not None:
            self.persisted.unpersist()
        for broadcast in self.broadcasts:
            broadcast.destroy()


def users_per_item_block(block: Block, n_blocks: int) -> list[np.ndarray]:
    """Return for each item block the users of a block who touched one of its items."""
    rows, item_block = row_of_entry(block.matrix), block.matrix.indices % n_blocks
    return [np.unique(rows[item_block == number]) for number in range(n_blocks)]


def send_vectors(users: UserBlock) -> Iterator[tuple[int, tuple[int, np.ndarray]]]:
    """Yield a message for each item block: (item block, (user block, vectors of the users it needs))."""
    for number, positions in enumerate(users.users_to_send):
        yield number, (users.block.number, users.vectors[positions])


def sender(message: tuple[int, tuple[int, Any]]) -> int:
    """Return the user block that a message comes from: messages are joined in this order."""
    return message[1][0]


def item_block_parts(task: AlsTask, block: Block) -> Iterator[tuple[int, tuple[int, ItemBlock]]]:
    """Yield what each item block receives once from a block: its rows over the users who touched it, and their coefficients."""
    by_item, coefficients = sp.csr_array(block.matrix.T.tocsr()), task.user_coefficients(block)[:, [EXTRA_WEIGHT, EXTRA_TARGET]]
    for number in range(task.n_blocks):
        rows = by_item[number :: task.n_blocks]
        users, columns = np.unique(rows.indices, return_inverse=True)
        matrix = csr_from_sorted(row_of_entry(rows), columns, rows.data, (rows.shape[0], len(users)))
        yield number, (block.number, ItemBlock(matrix, np.ascontiguousarray(coefficients[users])))


def join_item_block_parts(parts: Iterable[tuple[int, tuple[int, ItemBlock]]]) -> Iterator[ItemBlock]:
    """Join what all user blocks sent to one item block, in the order of the user blocks."""
    item_blocks = [item_block for _, (_, item_block) in sorted(parts, key=sender)]
    x = sp.hstack([item_block.matrix for item_block in item_blocks], format="csr")
    matrix = csr_from_sorted(row_of_entry(x), x.indices, x.data, x.shape)
    yield ItemBlock(matrix, np.concatenate([item_block.column_coefficients for item_block in item_blocks]))
