"""Checkpoints of alternating least squares on a cluster: parquet under any path that the cluster can write.

There are two, overwritten alternately, so that one is always complete. A checkpoint has the item vectors, and the user
vectors where the training needs them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pyspark import RDD
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from gramian.errors import InvalidInput
from gramian.io.checkpoints import CHECKPOINTS
from gramian.models.als import AlternatingRecipe
from gramian.spark.events import SparkInteractions

UserVectors = tuple[np.ndarray, np.ndarray]  # the rows of some users, and their vectors
SavedEpoch = tuple[int, np.ndarray, RDD[UserVectors] | None]  # epoch, item vectors, user vectors


class AlsCheckpoints:
    """The two last checkpoints of a training under a path."""

    def __init__(self, events: SparkInteractions, path: str, recipe: AlternatingRecipe, dtype: type) -> None:
        key = {"recipe": recipe.resume_key(), "events": events.fingerprint, "dtype": np.dtype(dtype).name}
        self.key = json.dumps(key, sort_keys=True)
        self.spark, self.path, self.recipe, self.dtype = events.blocks.sparkSession, path.rstrip("/"), recipe, dtype
        self.n_users, self.n_items = events.n_users, events.n_items
        self.folders = [f"{self.path}/{name}" for name in CHECKPOINTS]
        self.next_folder = 0  # the older of the two, which the next checkpoint replaces

    def write(self, epoch: int, items: np.ndarray, users: RDD[UserVectors] | None) -> RDD[UserVectors] | None:
        """Write a checkpoint over the older of the two; return the user vectors as they were written.

        The item vectors are written last: if they exist, the checkpoint is complete.
        """
        folder = self.folders[self.next_folder]
        self.next_folder = 1 - self.next_folder
        if users is not None:
            rows = users.map(lambda part: (epoch, len(part[0]), part[0].tobytes(), part[1].tobytes()))
            table = self.spark.createDataFrame(rows, "epoch int, n int, rows binary, vectors binary")
            table.write.mode("overwrite").parquet(f"{folder}/users")
        row = [(epoch, self.key, items.tobytes(), users is not None)]
        table = self.spark.createDataFrame(row, "epoch int, key string, vectors binary, users boolean").coalesce(1)
        table.write.mode("overwrite").parquet(f"{folder}/items")
        return None if users is None else self._decode_users(self.spark.read.parquet(f"{folder}/users"))

    def read_latest(self) -> SavedEpoch | None:
        """Return the newest complete checkpoint, if there is one."""
        saved = {number: epoch for number, folder in enumerate(self.folders) if (epoch := self._read(folder)) is not None}
        if not saved:
            return None
        newest = max(saved, key=lambda number: saved[number][0])
        self.next_folder = 1 - newest
        return saved[newest]

    def _read(self, folder: str) -> SavedEpoch | None:
        """Return a checkpoint, or None where it is missing or incomplete."""
        try:
            row = self.spark.read.parquet(f"{folder}/items").first()
            users = self.spark.read.parquet(f"{folder}/users") if row is not None and row["users"] else None
        except AnalysisException:  # no such path, or a write that was cut off
            return None
        if row is None:
            return None
        if row["key"] != self.key:
            do = "Choose another path, or continue with the same recipe and data"
            raise InvalidInput(f"the checkpoints of this training in {self.path}", "those of another", do)
        if row["epoch"] > self.recipe.n_epochs:
            expected = f"at most {self.recipe.n_epochs} epochs in {self.path}"
            raise InvalidInput(expected, f"{row['epoch']}", "Choose another path, or raise n_epochs")
        if users is not None:
            total = users.filter(users["epoch"] == row["epoch"]).agg({"n": "sum"}).first()
            if total is None or total[0] != self.n_users:  # a later epoch overwrote the users, but not yet the items
                return None
        items: np.ndarray = np.frombuffer(row["vectors"], self.dtype).reshape(self.n_items, self.recipe.rank)
        return int(row["epoch"]), items, None if users is None else self._decode_users(users)

    def _decode_users(self, table: DataFrame) -> RDD[UserVectors]:
        rank, dtype = self.recipe.rank, self.dtype

        def decode(row: Any) -> UserVectors:
            return np.frombuffer(row["rows"], np.int64), np.frombuffer(row["vectors"], dtype).reshape(-1, rank)

        return table.rdd.map(decode)
