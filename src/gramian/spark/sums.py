"""The Gram matrix of a cluster's interactions: every block gives its part of each block column, and these are added up.

A few block columns at a time are summed, so that a task holds the interactions of its block and those few (Spark gathers what a
task sends before it sends it), and a sum holds one. Counts travel as 16 bits where these suffice. The driver alone holds the
whole stored half, 2n² bytes, because the next thing is to invert or decompose it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from gramian.errors import InvalidInput
from gramian.linalg.gram import Gram, Products, row_normalised
from gramian.linalg.symmetric import WIDTH, Symmetric, checked_dtype
from gramian.linalg.threads import threads
from gramian.progress import bar
from gramian.spark.blocks import Block, cpus, retold
from gramian.spark.events import SparkInteractions

Tile = tuple[int, np.ndarray]  # the number of a block column, and its entries
AT_ONCE = 2**28  # bytes of block columns


def gram(events: SparkInteractions, dtype: str | type = "float32", *, normalised: bool = False) -> Gram:
    """S = XᵀX, equal to `gr.Gram.of` of the same interactions; of rows divided by √|x| where `normalised`, which RG2 needs."""
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Make them: gr.spark.interactions(...)")
    n = events.n_items
    matrix = Symmetric.empty(n, checked_dtype(dtype))
    matrix.buffer[:] = 0  # a block column of items that nobody touched has no parts
    spans, kind = list(enumerate(matrix.spans())), matrix.dtype.type
    several = max(1, AT_ONCE // (n * WIDTH * matrix.dtype.itemsize))
    blocks, small = events.shape.rdd(events.blocks), events.is_binary and not normalised

    def parts(some: list[tuple[int, tuple[int, int]]]) -> Callable[[Block], Iterator[Tile]]:
        def of(block: Block) -> Iterator[Tile]:
            """What one block adds to these block columns, where it has anything."""
            with threads(cpus()):
                products = Products(row_normalised(block.matrix, kind) if normalised else block.matrix, WIDTH)
                for number, (first, last) in some:
                    if products.costs[first:last].any():
                        part = np.empty((n - first) * (last - first), kind)
                        products.write(part, first, last)
                        yield number, part.astype(np.uint16) if small and part.max() < 2**16 else part

        return of

    with retold(), bar("summing the Gram", len(spans)) as advance:
        for at in range(0, len(spans), several):
            some = spans[at : at + several]
            tiles = blocks.flatMap(parts(some)).partitionBy(len(some), int)
            for number, total in tiles.mapPartitions(summed).toLocalIterator(prefetchPartitions=True):
                matrix.block(*spans[number][1]).T.reshape(-1)[:] = total
            advance(len(some))
    return Gram(matrix, events.items, events.n_users, events.is_binary, normalised)


def summed(parts: Iterable[Tile]) -> Iterator[Tile]:
    """The sum of one block column, in float64: float32 would stall at 2²⁴ users."""
    total: Tile | None = None
    for number, part in parts:
        total = number, part.astype(np.float64) if total is None else np.add(total[1], part, out=total[1])
    if total is not None:
        yield total[0], total[1].astype(np.float32) if part.dtype != np.float64 else total[1]
