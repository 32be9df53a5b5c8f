"""Spark on this machine (local[2]) against the local engine and against Spark MLlib.

    python benchmarks/spark.py gram      # 10 million interactions × 20,000 items: the Gram, and the local kernel's
    python benchmarks/spark.py als       # RG2ALS and iALS against MLlib's ALS: same data, rank and number of epochs
    python benchmarks/spark.py growth    # the Gram over 1, 10 and 100 million interactions

Events are files in benchmarks/.scratch, made at the first run. Needs Java 17 and `gramian[spark]`.
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
ITEMS = 20_000
PART = 10_000_000  # interactions of one file


def session(memory: str) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", memory)
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": 8}
    for name, value in (settings | {"spark.local.dir": str(SCRATCH), "spark.driver.maxResultSize": "4g"}).items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def events(millions: int) -> Path:
    """Files of about so many distinct interactions; users of different files are different."""
    folder = SCRATCH / f"events-{millions}m"
    if not folder.exists():
        half = folder.with_suffix(".half")
        half.mkdir(parents=True, exist_ok=True)
        n = min(PART, millions * 1_000_000)
        for number in range(millions * 1_000_000 // n):
            part = clustered(n * 137 // 10_000, ITEMS, n * 3 // 2, seed=number)
            shift = number * part.n_users
            columns = {"user": part.rows + shift, "item": part.matrix.indices.astype(np.int64)}
            pl.DataFrame(columns).write_parquet(half / f"part-{number}.parquet")
        half.rename(folder)
    return folder


def gram(millions: int, memory: str) -> None:
    row: dict[str, Any] = {"job": "gram", "millions": millions}
    source = events(millions)
    started = time.perf_counter()
    spark = session(memory)
    spark.range(1).count()
    row["start"] = time.perf_counter() - started
    table = spark.read.parquet(str(source))
    gr.spark.gram(gr.spark.interactions(table.limit(10_000), user="user", item="item"))  # workers start and compile
    row["read"], there = timed(lambda: gr.spark.interactions(table, user="user", item="item"))
    row["spark"], found = timed(lambda: gr.spark.gram(there))
    row |= {"users": there.n_users, "items": there.n_items, "interactions": there.n_interactions}
    there.unpersist()
    if millions <= 10:
        here = gr.read(str(source), user="user", item="item")
        gr.Gram.of(clustered(300, 200, 3_000))  # compiles
        row["local"], wanted = timed(lambda: gr.Gram.of(here))
        assert np.array_equal(found.matrix.buffer, wanted.matrix.buffer)
        row["allowed"] = 2.5 * row["local"] + 20
    spark.stop()
    words = ", ".join(f"{name} {row[name]:.1f} s" for name in ("start", "read", "spark", "local", "allowed") if name in row)
    print(f"{there.n_interactions:,} × {there.n_items:,}: {words}", flush=True)
    append("spark", row)


def als(rank: int, n_epochs: int, memory: str) -> None:
    """MLlib's implicit ALS, and ours, all from the same kept table of events; and their epochs alone."""
    from pyspark.ml.recommendation import ALS  # noqa: PLC0415

    spark = session(memory)
    table = spark.read.parquet(str(events(10))).selectExpr("int(user) user", "int(item) item", "float(1) rating").persist()
    table.count()
    read, there = timed(lambda: gr.spark.interactions(table, user="user", item="item"))

    def theirs(n: int) -> object:
        how = {"userCol": "user", "itemCol": "item", "ratingCol": "rating", "implicitPrefs": True, "regParam": 0.01}
        return ALS(rank=rank, maxIter=n, numUserBlocks=2, numItemBlocks=2, **how).fit(table).itemFactors.count()

    for name, run in {
        "RG2ALS": lambda n: gr.spark.fit(gr.RG2ALS(rank=rank, n_epochs=n), there),
        "IALS": lambda n: gr.spark.fit(gr.IALS(rank=rank, n_epochs=n), there),
        "MLlib ALS": theirs,
    }.items():
        if run is not theirs:
            run(1)  # kernels are loaded at the first run
        took = {n: seconds(lambda n=n, run=run: run(n)) for n in (1, n_epochs)}
        epoch = (took[n_epochs] - took[1]) / (n_epochs - 1)
        whole = took[n_epochs] + (0 if name == "MLlib ALS" else read)
        row = {"job": "als", "side": name, "rank": rank, "epochs": n_epochs, "seconds": whole, "epoch": epoch, "read": read}
        print(f"rank {rank}, {n_epochs} epochs | {name:<9} | {whole:6.1f} s | {epoch:5.2f} s an epoch", flush=True)
        append("spark", row | {"interactions": there.n_interactions})
    spark.stop()


def growth(memory: str) -> None:
    for millions in (1, 10, 100):
        gram(millions, memory)


def timed(job: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    found = job()
    return time.perf_counter() - started, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    jobs.add_parser("gram").add_argument("--millions", type=int, default=10)
    ranked = jobs.add_parser("als")
    ranked.add_argument("--rank", type=int, default=64)
    ranked.add_argument("--epochs", dest="n_epochs", type=int, default=3)
    jobs.add_parser("growth")
    for job in jobs.choices.values():
        job.add_argument("--memory", default="4g", help="of Spark's process")
    given = vars(parser.parse_args())
    globals()[given.pop("job")](**given)
