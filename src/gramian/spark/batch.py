"""Batch recommendation on a cluster: the model goes to every executor once, as files that its tasks map into memory."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession

from gramian.core.ranking import Exclusions
from gramian.core.recommender import Recommender, load_model
from gramian.errors import InvalidInput
from gramian.linalg.sparse import csr_from_sorted, row_of_entry
from gramian.spark.blocks import Block
from gramian.spark.events import SparkInteractions, ids_to_arrow, spark_type_name
from gramian.validation import require_whole_number

USERS_PER_BATCH = 4_096  # lists of so many users are one Arrow batch


def recommend(
    model: Recommender,
    events: SparkInteractions,
    k: int = 10,
    *,
    allow: Iterable[Any] | None = None,
    deny: Iterable[Any] | None = None,
    exclude_seen: bool = True,
) -> DataFrame:
    """Recommend the k best items to every user of interactions on a cluster.

    Parameters
    ----------
    model
        A fitted model. It is sent to the executors by this call, without its users' histories.
    events
        The histories. Items that the model does not know are ignored.
    k
        The length of a list. It is shorter when fewer items may be shown.
    allow, deny
        Recommend only these items, or none of these. Unknown ids are ignored.
    exclude_seen
        Leave out the items of the user's history.

    Returns
    -------
    DataFrame
        Columns user, rank (from 1), item, title where the model has titles, and score. It is lazy, like every DataFrame: the
        lists are computed by an action such as `.write.parquet(path)`.
    """
    if not isinstance(model, Recommender):
        raise InvalidInput("a fitted model", type(model).__name__, "Fit it first: recipe.fit(interactions)")
    if not isinstance(events, SparkInteractions):
        do = "Use model.recommend_to for users on this machine"
        raise InvalidInput("interactions on a cluster", type(events).__name__, do)
    k = require_whole_number("k", k, example=10)
    catalog = model.catalog
    item_ids, titles = ids_to_arrow(catalog.ids), None if catalog.titles is None else pa.array(catalog.titles)
    allowed, exclusions = catalog.allowed(allow, deny), Exclusions(exclude_seen)
    model_columns = None if catalog.ids == events.items else catalog.ids.positions(events.items.tolist())
    archive, n_items = distribute_model(events.blocks.sparkSession, model), len(catalog)
    schema = {"user": events.block_format.user_type, "rank": "int", "item": spark_type_name(item_ids.type)}
    schema |= ({} if titles is None else {"title": "string"}) | {"score": "float"}

    def rank_users(block: Block) -> Iterator[pa.RecordBatch]:
        model = load_distributed_model(archive)
        histories = block.matrix if model_columns is None else reindex_columns(block.matrix, model_columns, n_items)
        for start in range(0, histories.shape[0], USERS_PER_BATCH):
            batch = histories[start : start + USERS_PER_BATCH]
            columns, scores = model.top_k(batch, k, allowed=allowed, exclusions=exclusions)
            row, rank = np.nonzero(columns >= 0)
            column = pa.array(columns[row, rank])
            fields = [block.user_ids.take(pa.array(start + row)), pa.array((rank + 1).astype(np.int32)), item_ids.take(column)]
            fields += [] if titles is None else [titles.take(column)]
            yield pa.record_batch([*fields, pa.array(scores[row, rank].astype(np.float32))], names=list(schema))

    return events.map_to_rows(rank_users, ", ".join(f"{name} {type_name}" for name, type_name in schema.items()))


def distribute_model(spark: SparkSession, model: Recommender) -> str:
    """Send a model without its histories to the executors; return the name of the archive that each of them unpacks."""
    folder = Path(tempfile.mkdtemp(prefix="gramian-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that join later still fetch it from the driver
    name = f"gramian-{uuid4().hex}"
    Recommender(model.scorer, model.recipe, model.catalog).save(folder / "model")
    archive = shutil.make_archive(str(folder / name), "tar", folder, "model")
    shutil.rmtree(folder / "model")
    spark.sparkContext.addArchive(archive)
    return Path(archive).name


@lru_cache(maxsize=1)
def load_distributed_model(archive: str) -> Recommender:
    """Load the model on an executor, once for each Python worker process."""
    return load_model(Path(SparkFiles.get(archive)) / "model")


def reindex_columns(matrix: sp.csr_array, new_columns: np.ndarray, n_items: int) -> sp.csr_array:
    """Return histories in other columns; entries whose new column is −1 are dropped."""
    rows, columns = row_of_entry(matrix), new_columns[matrix.indices]
    order = np.lexsort((columns, rows))
    order = order[columns[order] >= 0]
    return csr_from_sorted(rows[order], columns[order], matrix.data[order], (matrix.shape[0], n_items))
