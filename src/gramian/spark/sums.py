"""The Gram matrix of a cluster's interactions: every block gives its part of each block column, and these are added up.

A task holds the interactions of its block and one block column at a time; a sum holds one block column. The driver alone holds
the whole stored half, 2n² bytes, because the next thing is to invert or decompose it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gramian.errors import InvalidInput
from gramian.linalg.gram import Gram, Products, row_normalised
from gramian.linalg.symmetric import WIDTH, Symmetric, checked_dtype
from gramian.linalg.threads import threads
from gramian.progress import bar
from gramian.spark.blocks import Block, cpus
from gramian.spark.events import SparkInteractions

Tile = tuple[int, np.ndarray]  # the number of a block column, and its entries


def gram(events: SparkInteractions, dtype: str | type = "float32", *, normalised: bool = False) -> Gram:
    """S = XᵀX, equal to `gr.Gram.of` of the same interactions; of rows divided by √|x| where `normalised`, which RG2 needs."""
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Make them: gr.spark.interactions(...)")
    matrix = Symmetric.empty(events.n_items, checked_dtype(dtype))
    spans, kind = matrix.spans(), matrix.dtype.type

    def parts(block: Block) -> Iterator[Tile]:
        """Of one block, all columns where it has anything."""
        with threads(cpus()):
            products = Products(row_normalised(block.matrix, kind) if normalised else block.matrix, WIDTH)
            for number, (first, last) in enumerate(spans):
                if products.costs[first:last].any():
                    part = np.empty((events_n - first) * (last - first), kind)
                    products.write(part, first, last)
                    yield number, part

    events_n = events.n_items
    tiles = events.shape.rdd(events.blocks).flatMap(parts).partitionBy(len(spans), int).mapPartitions(summed)
    seen = set()
    with bar("summing the Gram", len(spans)) as advance:
        for number, tile in tiles.toLocalIterator(prefetchPartitions=True):
            first, last = spans[number]
            matrix.block(first, last).T.reshape(-1)[:] = tile
            seen.add(number)
            advance(1)
    for number in set(range(len(spans))) - seen:  # of items nobody touched
        matrix.block(*spans[number])[:] = 0
    return Gram(matrix, events.items, events.n_users, events.is_binary, normalised)


def summed(tiles: Iterable[Tile]) -> Iterator[Tile]:
    """The sum of each block column, in float64: float32 would stall at 2²⁴ users."""
    totals: dict[int, np.ndarray] = {}
    kinds: dict[int, np.dtype] = {}
    for number, tile in tiles:
        if number in totals:
            totals[number] += tile
        else:
            totals[number], kinds[number] = tile.astype(np.float64), tile.dtype
    for number, total in totals.items():
        yield number, total.astype(kinds[number])
