"""Spark on this machine (local[2]) against the local engine and against Spark MLlib.

    python benchmarks/spark.py gram      # 10 million interactions × 20,000 items: the Gram on Spark and by the local kernel
    python benchmarks/spark.py als       # RG2ALS and iALS against MLlib's ALS: same data, rank and number of epochs
    python benchmarks/spark.py growth    # the Gram over 1, 10 and 100 million interactions

The events are files in benchmarks/.scratch, made by the first run. Needs Java 17 and `gramian[spark]`.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from journal import append
from measure import seconds

import gramian as gr
from gramian.data.synthetic import clustered

SCRATCH = Path(__file__).parent / ".scratch"
N_ITEMS = 20_000
INTERACTIONS_PER_FILE = 10_000_000


def start_session(memory: str) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", memory)
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": 8}
    for name, value in (settings | {"spark.local.dir": str(SCRATCH), "spark.driver.maxResultSize": "4g"}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def make_events(millions: int) -> Path:
    """Return a folder of files with about so many distinct interactions, made once; each file has its own users."""
    folder = SCRATCH / f"events-{millions}m"
    if not folder.exists():
        unfinished = folder.with_suffix(".half")
        unfinished.mkdir(parents=True, exist_ok=True)
        n = min(INTERACTIONS_PER_FILE, millions * 1_000_000)
        for number in range(millions * 1_000_000 // n):
            part = clustered(n * 137 // 10_000, N_ITEMS, n * 3 // 2, seed=number)
            first_user = number * part.n_users
            columns = {"user": part.rows + first_user, "item": part.matrix.indices.astype(np.int64)}
            pl.DataFrame(columns).write_parquet(unfinished / f"part-{number}.parquet")
        unfinished.rename(folder)
    return folder


def gram(millions: int, memory: str) -> None:
    """Measure the Gram on Spark and, up to 10 million interactions, by the local kernel."""
    row: dict[str, Any] = {"job": "gram", "millions": millions}
    source = make_events(millions)
    started = time.perf_counter()
    session = start_session(memory)
    session.range(1).count()
    row["start"] = time.perf_counter() - started
    table = session.read.parquet(str(source))
    gr.spark.gram(gr.spark.interactions(table.limit(10_000), user="user", item="item"))  # starts workers, compiles kernels
    row["read"], events = time_job(lambda: gr.spark.interactions(table, user="user", item="item"))
    row["spark"], spark_gram = time_job(lambda: gr.spark.gram(events))
    row |= {"users": events.n_users, "items": events.n_items, "interactions": events.n_interactions}
    events.unpersist()
    if millions <= 10:
        local_events = gr.read(str(source), user="user", item="item")
        gr.Gram.of(clustered(300, 200, 3_000))  # compiles kernels
        row["local"], local_gram = time_job(lambda: gr.Gram.of(local_events))
        assert np.array_equal(spark_gram.matrix.buffer, local_gram.matrix.buffer)
        row["allowed"] = 2.5 * row["local"] + 20
    session.stop()
    times = ", ".join(f"{name} {row[name]:.1f} s" for name in ("start", "read", "spark", "local", "allowed") if name in row)
    print(f"{events.n_interactions:,} × {events.n_items:,}: {times}", flush=True)
    append("spark", row)


def als(rank: int, n_epochs: int, memory: str) -> None:
    """Measure MLlib's implicit ALS and ours on the same persisted table: the whole training, and an epoch."""
    from pyspark.ml.recommendation import ALS  # noqa: PLC0415

    session = start_session(memory)
    table = session.read.parquet(str(make_events(10)))
    table = table.selectExpr("int(user) user", "int(item) item", "float(1) rating").persist()
    table.count()
    read, events = time_job(lambda: gr.spark.interactions(table, user="user", item="item"))

    def fit_mllib(n: int) -> object:
        params: dict[str, Any] = {
            "userCol": "user",
            "itemCol": "item",
            "ratingCol": "rating",
            "implicitPrefs": True,
            "regParam": 0.01,
        }
        return ALS(rank=rank, maxIter=n, numUserBlocks=2, numItemBlocks=2, **params).fit(table).itemFactors.count()

    for name, run in {
        "RG2ALS": lambda n: gr.spark.fit(gr.RG2ALS(rank=rank, n_epochs=n), events),
        "IALS": lambda n: gr.spark.fit(gr.IALS(rank=rank, n_epochs=n), events),
        "MLlib ALS": fit_mllib,
    }.items():
        if run is not fit_mllib:
            run(1)  # loads the kernels
        took = {n: seconds(lambda n=n, run=run: run(n)) for n in (1, n_epochs)}  # type: ignore[misc]
        epoch = (took[n_epochs] - took[1]) / (n_epochs - 1)
        total = took[n_epochs] + (0 if run is fit_mllib else read)
        row = {"job": "als", "side": name, "rank": rank, "epochs": n_epochs, "seconds": total, "epoch": epoch, "read": read}
        print(f"rank {rank}, {n_epochs} epochs | {name:<9} | {total:6.1f} s | {epoch:5.2f} s per epoch", flush=True)
        append("spark", row | {"interactions": events.n_interactions})
    session.stop()


def growth(memory: str) -> None:
    """Measure the Gram over 1, 10 and 100 million interactions."""
    for millions in (1, 10, 100):
        gram(millions, memory)


def time_job(job: Any) -> tuple[float, Any]:
    """Return the seconds that a job took, and its result."""
    started = time.perf_counter()
    result = job()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    jobs.add_parser("gram").add_argument("--millions", type=int, default=10)
    als_parser = jobs.add_parser("als")
    als_parser.add_argument("--rank", type=int, default=64)
    als_parser.add_argument("--epochs", dest="n_epochs", type=int, default=3)
    jobs.add_parser("growth")
    for job in jobs.choices.values():
        job.add_argument("--memory", default="4g", help="memory of the Spark process")
    arguments = vars(parser.parse_args())
    run_job: Any = {"gram": gram, "als": als, "growth": growth}[arguments.pop("job")]
    run_job(**arguments)
