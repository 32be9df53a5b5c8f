"""Interactions on a cluster are those of one machine: ids, weights, times, titles and cores."""

import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F

import gramian as gr
from spark_support import SPARK_MARKS, assert_same_interactions

pytestmark = SPARK_MARKS


def test_ids_are_numbered_as_on_one_machine(spark_events, local_events):
    assert_same_interactions(spark_events.local(), local_events)
    for name in ("n_users", "n_items", "n_interactions"):
        assert getattr(spark_events, name) == getattr(local_events, name)
    assert spark_events.is_binary
    np.testing.assert_array_equal(spark_events.popularity, local_events.popularity)
    assert str(spark_events).startswith("SparkInteractions(")
    rows = np.concatenate([block.user_rows for block in spark_events.rdd().collect()])
    assert spark_events.blocks.count() == 3
    assert sorted(rows) == list(range(local_events.n_users))  # every user in one block only


def test_weights_add_up_and_thresholds_drop(frame, table):
    events = gr.spark.interactions(frame, user="user", item="item", value="stars")
    assert not events.is_binary
    assert_same_interactions(events.local(), gr.Interactions.of(table, user="user", item="item", value="stars"))
    events = gr.spark.interactions(frame, user="user", item="item", min_value=("stars", 4))
    assert_same_interactions(events.local(), gr.Interactions.of(table, user="user", item="item", min_value=("stars", 4)))


def test_times_may_be_timestamps_and_titles_come_along(spark, table):
    dated = table.with_columns(pl.from_epoch("at").alias("at"), ("Title of " + pl.col("item").cast(str)).alias("title"))
    spark_frame = spark.createDataFrame(dated.with_columns(pl.col("at").dt.replace_time_zone("UTC")).to_arrow())
    events = gr.spark.interactions(spark_frame, user="user", item="item", time="at", title="title")
    expected = gr.Interactions.of(dated, user="user", item="item", time="at", title="title")
    assert_same_interactions(events.local(), expected)
    assert events.local().titles == expected.titles
    again = gr.spark.interactions(events.frame(), time="time")
    assert_same_interactions(again.local(), expected)
    walls = events.frame().withColumn("a`b.c", F.col("time").cast("timestamp_ntz"))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert_same_interactions(gr.spark.interactions(walls, time="a`b.c").local(), expected)


def test_items_are_described_as_on_one_machine(spark_events, local_events):
    first = local_events.items.tolist()[0]
    titled, tagged = spark_events.with_titles({first: "First"}), spark_events.with_tags({first: "A|B"})
    assert titled.catalog.titles == local_events.with_titles({first: "First"}).titles
    assert tagged.catalog.tags == local_events.with_tags({first: "A|B"}).tags
    assert titled.described_by(tagged.catalog).catalog.tags == tagged.catalog.tags
    assert titled.fingerprint == spark_events.fingerprint


def test_a_user_of_a_million_events(spark):
    busy = spark.range(1_000_000).select(F.lit("busy").alias("user"), (F.col("id") % 300).alias("item"))
    rest = spark.range(40).select(F.lit("rest").alias("user"), F.col("id").alias("item"))
    events = gr.spark.interactions(busy.union(rest), user="user", item="item")
    assert (events.n_users, events.n_items, events.n_interactions) == (2, 300, 340)
    assert gr.spark.gram(events).matrix.dense()[0, 0] == 2


def test_users_are_numbered_by_their_ids_alone(spark):
    """Spark samples the ranges of a sort, differently each time: the numbers must not depend on them."""
    table = spark.range(30_000).selectExpr("concat('u', hash(id)) user", "id % 7 item")
    events = gr.spark.interactions(table, user="user", item="item")
    before = events.local()
    spark.catalog.clearCache()
    assert_same_interactions(events.map_blocks(lambda block: block).local(), before)
    assert before.users.tolist() == sorted(before.users.tolist())


def test_the_core_is_that_of_one_machine(spark_events, local_events, refused):
    for k in ((9,), (12, 5), (0, 30)):
        assert_same_interactions(spark_events.k_core(*k).local(), local_events.k_core(*k))
    with refused(mentioning="nothing left"):
        spark_events.k_core(1_000)
    with refused(mentioning="k of at least 0"):
        spark_events.k_core(-1)


def test_bad_tables_are_refused(spark, frame, table, refused):
    def read(part, **named):
        return gr.spark.interactions(part, **({"user": "user", "item": "item"} | named))

    with refused(mentioning="every row of 'user'"):
        read(frame.withColumn("user", F.when(F.col("at") > 500_000, F.col("user"))))
    with refused(mentioning="every row of 'item'"):
        read(frame.withColumn("item", F.when(F.col("at") > 500_000, F.col("item"))))
    with refused(mentioning="whole numbers or text"):
        read(frame.withColumn("item", F.array("item")))
    with refused(mentioning="double"):
        read(frame.withColumn("user", F.col("stars")))
    with refused(mentioning="numbers in 'user'"):
        read(frame, value="user")
    with refused(mentioning="weights above 0"):
        read(frame.withColumn("stars", F.col("stars") - 1), value="stars")
    with refused(mentioning="finite numbers"):
        read(frame.withColumn("stars", F.when(F.col("at") > 9, F.lit(float("nan"))).otherwise(1.0)), min_value=("stars", 1))
    with refused(mentioning="a time in every row"):
        read(frame.withColumn("at", F.when(F.col("at") > 500_000, F.col("at"))), time="at")
    with refused(mentioning="a time in every row"):
        read(frame.withColumn("at", F.when(F.col("at") > 9, F.lit(float("nan"))).otherwise(1.0)), time="at")
    with refused(mentioning="dates or times"):
        read(frame, time="user")
    with refused(mentioning="weights above 0 and below 3e38"):
        read(frame.withColumn("stars", F.lit(3e38)), value="stars")
    with refused(mentioning="differ in more than their case"):
        read(frame.withColumnRenamed("at", "USER"))
    with refused(mentioning="at least one event"):
        read(frame.limit(0))
    with refused(mentioning="at least one interaction"):
        read(frame, min_value=("stars", 99))
    with refused(mentioning="a column named 'nobody'"):
        read(frame, user="nobody")
    with refused(mentioning="a Spark DataFrame"):
        read(table)


def test_arrow_ids_keep_their_type(spark_events):
    frame = spark_events.frame()
    assert dict(frame.dtypes) == {"user_id": "string", "item_id": "bigint", "value": "float", "time": "bigint"}
    assert pa.types.is_int64(frame.toArrow().schema.field("item_id").type)


def test_without_pyspark_the_error_says_what_to_install():
    code = "import sys; sys.modules['pyspark'] = None; import gramian as gr; gr.spark"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'gramian[spark]'`" in run.stderr
