"""Lists for all users of a cluster: the model goes to every machine once, as files that its tasks map into memory."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession

from gramian.data.ids import Index
from gramian.data.interactions import csr
from gramian.errors import InvalidInput
from gramian.models import load
from gramian.recommender import Hide, Recommender
from gramian.spark.blocks import Block
from gramian.spark.events import SparkInteractions, arrow_ids, spark_type

SOME = 4_096  # users at a time


def recommend(
    model: Recommender,
    events: SparkInteractions,
    k: int = 10,
    *,
    allow: Iterable[Any] | None = None,
    deny: Iterable[Any] | None = None,
    exclude_seen: bool = True,
) -> DataFrame:
    """The k best items for every user of these interactions: user, rank, item, title where known, score.

    The model is sent out at once; lists are made when the table is asked for: `gr.spark.recommend(...).write.parquet(path)`.
    """
    if not isinstance(model, Recommender):
        raise InvalidInput("a fitted model", type(model).__name__, "Fit it first: recipe.fit(interactions)")
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Use model.recommend_to for what is here")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInput("k of at least 1", repr(k), "Pass k=10, say")
    items, titles = arrow_ids(model.events.items), model.events.titles
    named = None if titles is None else pa.array(titles)
    allowed = model.allowed(allow, deny)
    places = None if model.events.items == events.items else model.events.items.positions(events.items.tolist())
    hide = Hide(exclude_seen)
    archive = shipped(events.blocks.sparkSession, model)

    def lists(block: Block) -> Iterator[pa.RecordBatch]:
        here = opened(archive)
        histories = block.matrix if places is None else relabelled(block.matrix, places, here.events.n_items)
        for start in range(0, histories.shape[0], SOME):
            columns, scores = here.top_k(histories[start : start + SOME], k, allowed=allowed, hide=hide)
            row, rank = np.nonzero(columns >= 0)
            column = pa.array(columns[row, rank])
            found = [block.users.take(pa.array(start + row)), pa.array((rank + 1).astype(np.int32)), items.take(column)]
            found += [] if named is None else [named.take(column)]
            yield pa.record_batch([*found, pa.array(scores[row, rank].astype(np.float32))], names=names)

    names = ["user", "rank", "item", *([] if named is None else ["title"]), "score"]
    kinds = [events.shape.users, "int", spark_type(items.type), *([] if named is None else ["string"]), "float"]
    return events.shape.each(events.blocks, lists, ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)))


def shipped(spark: SparkSession, model: Recommender) -> str:
    """The name of an archive that every executor unpacks: the model without its users, whose histories are on the cluster."""
    folder = Path(tempfile.mkdtemp(prefix="gramian-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # a session serves its archives to the end
    name = f"gramian-{uuid4().hex}"
    events = model.events
    nobody = sp.csr_array((0, events.n_items), dtype=np.float32)
    light = replace(events, matrix=nobody, users=Index(()), times=None, touched=events.popularity)
    Recommender(model.scorer, model.recipe, light).save(folder / "model")
    archive = shutil.make_archive(str(folder / name), "tar", folder, "model")
    shutil.rmtree(folder / "model")
    spark.sparkContext.addArchive(archive)
    return Path(archive).name


@lru_cache(maxsize=1)
def opened(archive: str) -> Recommender:
    """The model of a process that runs tasks, which loads it once."""
    return load(Path(SparkFiles.get(archive)) / "model")


def relabelled(matrix: sp.csr_array, places: np.ndarray, n_items: int) -> sp.csr_array:
    """Histories in the columns of a model, without what it does not know."""
    rows, columns = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), places[matrix.indices]
    order = np.lexsort((columns, rows))
    order = order[columns[order] >= 0]
    return csr(rows[order], columns[order], matrix.data[order], (matrix.shape[0], n_items))
