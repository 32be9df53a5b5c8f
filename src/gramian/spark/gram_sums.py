"""The Gram matrix of interactions on a cluster: each block of users computes its part of every block column, and the parts
are summed.

Only a few block columns are summed at a time, so that a task holds its interactions and these few (Spark collects a task's
output before sending it), and a reducer holds one. Counts travel as 16 bits where these suffice. Only the driver holds the
whole stored half, 2n² bytes, because it inverts or decomposes the matrix next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from gramian.core.gram import Gram, parse_powers, scale_items
from gramian.errors import InvalidInput
from gramian.linalg.gram import GramKernel
from gramian.linalg.sparse import normalise_rows
from gramian.linalg.symmetric import BLOCK_WIDTH, Symmetric, parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.progress import progress_bar
from gramian.spark.blocks import Block, reraise_task_errors, task_cores
from gramian.spark.events import SparkInteractions

BlockColumn = tuple[int, np.ndarray]  # the number of a block column, and its entries
BYTES_PER_ROUND = 2**28  # of the block columns that are summed at a time


def gram(events: SparkInteractions, dtype: str | type = "float32", *, user_power: float = 0.0, item_power: float = 0.0) -> Gram:
    """Compute S = XᵀX on the cluster, equal to `gr.Gram.of` of the same interactions.

    Parameters
    ----------
    events
        The interactions, from `gr.spark.interactions`.
    dtype
        "float32" or "float64".
    user_power, item_power
        Powers of the rows' sums and of the items' numbers of users that X is divided by, as in `gr.Gram.of`.

    Returns
    -------
    Gram
        On the driver. Save it, and fit any number of models with `recipe.fit_gram(gram)`.
    """
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Make them: gr.spark.interactions(...)")
    powers = parse_powers(user_power, item_power)
    matrix = Symmetric.empty(events.n_items, parse_dtype(dtype))
    matrix.buffer[:] = 0  # no block contributes to block columns of items that nobody touched
    spans = list(enumerate(matrix.spans()))
    per_round = max(1, BYTES_PER_ROUND // (matrix.n * BLOCK_WIDTH * matrix.dtype.itemsize))
    blocks, is_count = events.rdd(), events.is_binary and not powers.user_power
    with reraise_task_errors(), progress_bar("summing the Gram", len(spans)) as advance:
        for start in range(0, len(spans), per_round):
            in_round = spans[start : start + per_round]
            multiply = partial(
                multiply_block, spans=in_round, dtype=matrix.dtype.type, user_power=powers.user_power, is_count=is_count
            )
            parts = blocks.flatMap(multiply).partitionBy(len(in_round), int)
            for number, total in parts.mapPartitions(sum_block_column).toLocalIterator(prefetchPartitions=True):
                matrix.block(*spans[number][1]).T.reshape(-1)[:] = total
            advance(len(in_round))
    scale_items(matrix, events.popularity, powers.item_power)
    return Gram(matrix, events.catalog, events.n_users, events.is_binary, powers)


def multiply_block(
    block: Block, spans: list[tuple[int, tuple[int, int]]], dtype: type, user_power: float, is_count: bool
) -> Iterator[BlockColumn]:
    """Yield what a block of users adds to some block columns, without those to which it adds nothing."""
    with limit_threads(task_cores()):
        rows = normalise_rows(block.matrix, user_power, dtype) if user_power else block.matrix
        kernel = GramKernel(rows, BLOCK_WIDTH)
        for number, (first, last) in spans:
            if kernel.costs[first:last].any():
                entries = np.empty((kernel.n - first) * (last - first), dtype)
                kernel.write(entries, first, last)
                yield number, entries.astype(np.uint16) if is_count and entries.max() < 2**16 else entries


def sum_block_column(parts: Iterable[BlockColumn]) -> Iterator[BlockColumn]:
    """Sum the parts of one block column in float64: a float32 sum of ones would stop growing at 2²⁴."""
    total: BlockColumn | None = None
    for number, entries in parts:
        total = number, entries.astype(np.float64) if total is None else np.add(total[1], entries, out=total[1])
    if total is not None:
        yield total[0], total[1].astype(np.float32) if entries.dtype != np.float64 else total[1]
