"""A real cluster in processes of its own, a master and two workers on loopback, of which one is killed. The command line."""

import os
import re
import shutil
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

pytestmark = pytest.mark.skipif(shutil.which("java") is None and "CI" not in os.environ, reason="no Java on this machine")
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
found = gr.spark.interactions(session.read.parquet(events))
recipe = gr.IALS(rank=6, n_epochs=5)
gram = gr.spark.gram(found)
print("halfway", flush=True)  # what is kept is on both workers, and training begins
model = recipe.fit(found)
ease = gr.EASE(l2=20).fit_gram(gr.spark.gram(found))
np.savez(out, gram=gram.matrix.dense(), items=model.scores(found.local()), inverse=ease.inverse.dense())
lists = gr.spark.recommend(model, found, 5).orderBy("user", "rank").toArrow()
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
    """The address of a master, and its two workers."""
    processes = []

    def start(name, *words):
        log = open(tmp_path / f"{name}.log", "w")  # noqa: SIM115
        environment = ENVIRONMENT | {"SPARK_WORKER_DIR": str(tmp_path / name)}
        command = [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{words[0]}", *words[1:]]
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
    """A process with all that it started."""
    try:
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for one in family:
        try:
            one.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=20)


def test_a_cluster_that_loses_a_worker_ends_with_the_right_answer(cluster, tmp_path):
    master, workers = cluster
    events = gr.datasets.load("movielens", min_value=4).k_core(20)
    events.frame().write_parquet(tmp_path / "events.parquet")
    out = tmp_path / "found.npz"
    (tmp_path / "driver.py").write_text(DRIVER)
    conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    submit = [SPARK / "bin" / "spark-submit", *conf, "--master", master, tmp_path / "driver.py"]
    words = [*submit, master, str(tmp_path / "events.parquet"), str(out)]
    with (
        open(tmp_path / "driver.log", "w") as log,
        psutil.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True) as driver,
    ):
        said = ""
        for line in driver.stdout:
            said += line
            if line.startswith("halfway"):
                time.sleep(1)  # into the training
                kill(workers[0])
        assert driver.wait(timeout=300) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    assert "executors left: 1" in said
    found = np.load(out)
    np.testing.assert_array_equal(found["gram"], gr.Gram.of(events).matrix.dense())
    wanted = gr.IALS(rank=6, n_epochs=5).fit(events)
    np.testing.assert_allclose(found["items"], wanted.scores(events), atol=1e-4)
    inverse = gr.EASE(l2=20).fit(events).scorer.inverse.dense()
    np.testing.assert_allclose(found["inverse"], inverse, atol=1e-5 * np.abs(inverse).max())
    lists = np.load(f"{out}.lists.npy").reshape(-1, 5)
    same = [row.tolist() == own for row, own in zip(lists, wanted.recommend(events.users.tolist(), 5).items, strict=True)]
    assert np.mean(same) > 0.95  # equal but for ties within rounding


def gramian(*words, **environment):
    command = [sys.executable, "-c", "from gramian.app.cli import run; run()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | environment, check=False)


def test_the_command_line_fits_on_spark(tmp_path):
    events = gr.datasets.load("movielens", min_value=4).k_core(20)
    ratings = events.frame().with_columns(rating=4.0)
    ratings.write_csv(tmp_path / "ratings.csv")
    settings = ("--min-value", "rating=3", "--k-core", 25, "--engine", "spark", "--master", "local[2]")
    run = gramian("fit", tmp_path / "ratings.csv", "--model", "ease", "--l2", 50, *settings, "--out", tmp_path / "model")
    assert run.returncode == 0, run.stderr
    assert re.search(r"EASE\(l2=50\) on SparkInteractions\(.+\): [\d.]+ s", " ".join(run.stdout.split()))
    found, wanted = gr.load(tmp_path / "model"), gr.EASE(l2=50).fit(events.k_core(25))
    assert found.items == wanted.items
    assert found.users == wanted.users
    assert found.recommend(found.users[:5]).items == wanted.recommend(found.users[:5]).items
    for words, problem in (
        (("fit", tmp_path / "none.parquet", "--engine", "spark", "--master", "local[1]"), "a file or folder that the cluster"),
        (("fit", "movielens", "--engine", "dask"), "an engine among local, spark"),
        (("fit", "movielens", "--master", "local[2]"), "no --master with --engine local"),
        (("fit", "movielens", "--engine", "spark", "--dry-run"), "no --dry-run with --engine spark"),
    ):
        run = gramian(*words, "--out", tmp_path / "other")
        assert run.returncode == 2
        assert problem in " ".join(run.stderr.split())
