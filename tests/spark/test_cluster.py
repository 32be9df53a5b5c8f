"""A standalone cluster, a master and two workers on loopback, one of which is killed; and the command line on Spark."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyspark
import pytest

import gramian as gr
from spark_support import SPARK_MARKS

pytestmark = SPARK_MARKS
SPARK = Path(pyspark.__file__).parent
ENVIRONMENT = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}

DRIVER = """
import sys, time
import numpy as np
from pyspark.sql import SparkSession
import gramian as gr

master, events, out = sys.argv[1:]
session = SparkSession.builder.master(master).getOrCreate()
session.sparkContext.setLogLevel("OFF")
tracker = session.sparkContext._jsc.sc().statusTracker()
while len(tracker.getExecutorInfos()) < 3:  # the driver counts
    time.sleep(0.1)
interactions = gr.spark.interactions(session.read.parquet(events))
recipe = gr.IALS(rank=6, n_epochs=5)
gram = gr.spark.gram(interactions)
print("halfway", flush=True)  # persisted blocks are on both workers, and training begins
model = recipe.fit(interactions)
ease = gr.EASE(l2=20).fit_gram(gr.spark.gram(interactions)).scorer
scores = model.scores(interactions.local())
np.savez(out, gram=gram.matrix.dense(), scores=scores, inverse=ease.inverse.dense())
lists = gr.spark.recommend(model, interactions, 5).orderBy("user", "rank").toArrow()
np.save(out + ".lists", np.array(lists["item"].to_pylist()), allow_pickle=False)
print("executors left:", len(tracker.getExecutorInfos()) - 1, flush=True)
session.stop()
"""
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def cluster(tmp_path):
    """Start a cluster: the address of its master, and its two workers."""
    processes = []

    def start(name, class_name, *options):
        log = open(tmp_path / f"{name}.log", "w")  # noqa: SIM115
        environment = ENVIRONMENT | {"SPARK_WORKER_DIR": str(tmp_path / name)}
        command = [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{class_name}", *options]
        processes.append(psutil.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
        log.close()
        return processes[-1]

    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
    shared = ("--host", "127.0.0.1", "--cores", "1", "--memory", "600m")
    workers = [start(f"worker{n}", "worker.Worker", *shared, "--webui-port", str(free_port()), master) for n in range(2)]
    yield master, workers
    for process in processes:
        kill(process)


def kill(process):
    """Kill a process with all of its children."""
    try:
        processes = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for child in processes:
        try:
            child.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=20)


def test_a_cluster_that_loses_a_worker_ends_with_the_right_answer(cluster, tmp_path):
    master, workers = cluster
    events = gr.datasets.load("movielens", min_value=4).k_core(20)
    events.frame().write_parquet(tmp_path / "events.parquet")
    out = tmp_path / "results.npz"
    (tmp_path / "driver.py").write_text(DRIVER)
    settings = [option for name, value in SETTINGS.items() for option in ("--conf", f"{name}={value}")]
    submit = [SPARK / "bin" / "spark-submit", *settings, "--master", master, tmp_path / "driver.py"]
    command = [*submit, master, str(tmp_path / "events.parquet"), str(out)]
    with (
        open(tmp_path / "driver.log", "w") as log,
        psutil.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True) as driver,
    ):
        output = ""
        for line in driver.stdout:
            output += line
            if line.startswith("halfway"):
                time.sleep(1)  # into the training
                kill(workers[0])
        assert driver.wait(timeout=300) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    assert "executors left: 1" in output
    with np.load(out) as archive:
        results = dict(archive)
    np.testing.assert_array_equal(results["gram"], gr.Gram.of(events).matrix.dense())
    expected = gr.IALS(rank=6, n_epochs=5).fit(events)
    np.testing.assert_allclose(results["scores"], expected.scores(events), atol=1e-4)
    inverse = gr.EASE(l2=20).fit(events).scorer.inverse.dense()
    np.testing.assert_allclose(results["inverse"], inverse, atol=1e-5 * np.abs(inverse).max())
    lists = np.load(f"{out}.lists.npy").reshape(-1, 5)
    expected_lists = expected.recommend(events.users.tolist(), 5).items
    is_equal = [row.tolist() == items for row, items in zip(lists, expected_lists, strict=True)]
    assert np.mean(is_equal) > 0.95  # they may differ where scores tie within rounding


def gramian(*arguments, **environment):
    command = [sys.executable, "-c", "from gramian.cli.main import run; run()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | environment, check=False)


def test_the_command_line_fits_on_spark(tmp_path):
    events = gr.datasets.load("movielens", min_value=4).k_core(20)
    ratings = events.frame().with_columns(rating=4.0)
    ratings.write_csv(tmp_path / "ratings.csv")
    options = ("--min-value", "rating=3", "--k-core", 25, "--engine", "spark", "--master", "local[2]")
    run = gramian("fit", tmp_path / "ratings.csv", "--model", "ease", "--l2", 50, *options, "--out", tmp_path / "model")
    assert run.returncode == 0, run.stderr
    assert re.search(r"EASE\(l2=50\) on SparkInteractions\(.+\): [\d.]+ s", " ".join(run.stdout.split()))
    actual, expected = gr.load(tmp_path / "model"), gr.EASE(l2=50).fit(events.k_core(25))
    assert actual.items == expected.items
    assert actual.users == expected.users
    assert actual.recommend(actual.users[:5]).items == expected.recommend(actual.users[:5]).items
    for arguments, problem in (
        (("fit", tmp_path / "none.parquet", "--engine", "spark", "--master", "local[1]"), "a file or folder that the cluster"),
        (("fit", "movielens", "--engine", "dask"), "an engine among local, spark"),
        (("fit", "movielens", "--master", "local[2]"), "no --master with --engine local"),
        (("fit", "movielens", "--engine", "spark", "--dry-run"), "no --dry-run with --engine spark"),
    ):
        run = gramian(*arguments, "--out", tmp_path / "other")
        assert run.returncode == 2
        assert problem in " ".join(run.stderr.split())
