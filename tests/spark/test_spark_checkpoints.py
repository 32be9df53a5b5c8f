"""Alternating least squares on a cluster continue from their checkpoints."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import functions as F

import gramian as gr
from gramian.spark.als import AggregatingTrainer, ShufflingTrainer
from gramian.spark.events import build_blocks
from spark_support import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.fixture
def epochs(monkeypatch):
    """A list that grows by one with every epoch."""
    numbers = []
    for trainer in (AggregatingTrainer, ShufflingTrainer):

        def count_epoch(self, items, run_epoch=trainer.run_epoch):
            numbers.append(1)
            return run_epoch(self, items)

        monkeypatch.setattr(trainer, "run_epoch", count_epoch)
    return numbers


@pytest.mark.parametrize("recipe", [gr.RG2ALS(rank=5, l2=0.1, n_epochs=6), gr.IALS(rank=5, n_epochs=6)], ids=str)
def test_training_continues_from_its_checkpoints(recipe, spark_events, local_events, frame, tmp_path, refused, epochs):
    def train(events, n_epochs, path, **how):
        epochs.clear()
        actual = gr.spark.fit(replace(recipe, n_epochs=n_epochs), events, dtype="float64", scratch=tmp_path / path, **how)
        return actual.scores(local_events), len(epochs)

    whole = recipe.fit(spark_events, dtype="float64").scores(local_events)
    assert train(spark_events, 4, "kept", every=2)[1] == 4
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"gramian-epoch-even", "gramian-epoch-odd"}
    scores, n = train(spark_events, 6, "kept", every=10)
    assert n == 2
    np.testing.assert_allclose(scores, whole, rtol=1e-9, atol=1e-12)
    assert train(spark_events, 6, "kept")[1] == 0
    with refused(mentioning="those of another"):
        replace(recipe, l2=0.5).fit(spark_events, dtype="float64", scratch=str(tmp_path / "kept"))
    with refused(mentioning="at most 2 epochs"):
        replace(recipe, n_epochs=2).fit(spark_events, dtype="float64", scratch=str(tmp_path / "kept"))
    # A kill between the two writes leaves users of a later epoch, or no items: training continues from the checkpoint before.
    train(spark_events, 3, "cut", every=1)
    newest = tmp_path / "cut" / "gramian-epoch-even"  # of epochs 1 and 3
    if isinstance(recipe, gr.IALS):
        shutil.rmtree(newest / "users")
        shutil.copytree(tmp_path / "kept" / "gramian-epoch-even" / "users", newest / "users")
    else:
        shutil.rmtree(newest / "items")
    scores, n = train(spark_events, 6, "cut")
    assert n == 4
    np.testing.assert_allclose(scores, whole, rtol=1e-9, atol=1e-12)


def test_training_continues_in_other_blocks_but_not_on_other_data(
    spark_events, local_events, frame, spark, tmp_path, refused, epochs
):
    recipe = gr.IALS(rank=5, n_epochs=4)
    whole = recipe.fit(spark_events, dtype="float64").scores(local_events)
    gr.spark.fit(replace(recipe, n_epochs=2), spark_events, dtype="float64", scratch=tmp_path / "kept")
    epochs.clear()
    untimed = spark_events.block_format._replace(time_dtype=None)
    again = replace(spark_events, blocks=rebuild_blocks(spark_events, untimed, 5), block_format=untimed)
    actual = recipe.fit(again, dtype="float64", scratch=tmp_path / "kept")
    assert len(epochs) == 2
    np.testing.assert_allclose(actual.scores(local_events), whole, rtol=1e-6, atol=1e-9)
    weighted = gr.spark.interactions(frame, user="user", item="item", value="stars")
    with refused(mentioning="those of another"):
        recipe.fit(weighted, dtype="float64", scratch=tmp_path / "kept")
    few = gr.spark.interactions(spark.createDataFrame([("a", 1), ("a", 2), ("b", 1), ("b", 3)], "user string, item int"))
    gr.spark.fit(gr.IALS(rank=1, n_epochs=2), few, scratch=tmp_path / "few")
    epochs.clear()
    gr.spark.fit(gr.IALS(rank=1, n_epochs=3), few, scratch=tmp_path / "few")  # of more blocks than users
    assert len(epochs) == 1


def rebuild_blocks(events, block_format, n_blocks):
    """Return the same users in another number of blocks, as a cluster of another size would have them."""
    table = events.frame().select(F.col("user_id").alias("user"), F.col("item_id").alias("item"))
    return build_blocks(table, events.items, block_format, n_blocks)
