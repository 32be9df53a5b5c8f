"""A local Spark session, and the same events on it and on this machine."""

import os
import sys
import warnings

import numpy as np
import polars as pl
import pytest
from pyspark.sql import SparkSession

import gramian as gr


@pytest.fixture(scope="session")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("gramian tests").config("spark.ui.enabled", "false")
    settings = {"spark.sql.shuffle.partitions": 2, "spark.default.parallelism": 3, "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def table():
    """Events with text and number ids in no order, weights, repeats and times."""
    rng = np.random.default_rng(0)
    n = 3000
    users = np.array([f"u{n}" for n in rng.permutation(400)])[rng.integers(0, 150, n)]
    items = rng.permutation(1000)[(60 * rng.random(n) ** 2).astype(int)]
    times = rng.integers(0, 10**6, n)
    return pl.DataFrame({"user": users, "item": items, "stars": rng.integers(1, 6, n).astype(float), "at": times})


@pytest.fixture(scope="session")
def frame(spark, table):
    return spark.createDataFrame(table.to_arrow())


@pytest.fixture(scope="session")
def local_events(table):
    return gr.Interactions.of(table, user="user", item="item", time="at")


@pytest.fixture(scope="session")
def spark_events(frame):
    return gr.spark.interactions(frame, user="user", item="item", time="at")
