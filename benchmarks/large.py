"""A catalog beyond 32-bit LAPACK (46,340 items), fitted exactly, killed on the way, resumed, and judged.

    python benchmarks/large.py                                  # amazon-beauty-bert4rec, 54,542 items
    python benchmarks/large.py amazon-beauty-bert4rec --scratch /dev/shm/beauty --kill 10 40
    python benchmarks/large.py amazon-book-twin --scratch /dev/shm/book       # 91,599 items: 17 GB, an hour and a half

The fit runs in a process of its own, with the matrix in a scratch folder. It is killed (SIGKILL) after the given numbers of
block columns, and started again each time; a run that was itself killed goes on when it is started again. amazon-book-twin
is synthetic, of the size of the LightGCN amazon-book files, a fifth of it the test. In other sets the test is each user's
last item. The settings are the defaults or as given: leave-last's validation part is where to choose them. The matrix is
written over at every step: a folder in memory (/dev/shm, mounted large enough) spares the disk. A row goes to
results/large.jsonl.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from journal import append
from measure import peak_bytes

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.scratch import DONE, FACTS, FILE
from gramian.linalg.symmetric import WIDTH

METRICS = ("ndcg@10", "hit_rate@10", "recall@20")
TWIN = "amazon-book-twin"
N_USERS, N_ITEMS, N_INTERACTIONS = 52_643, 91_599, 2_984_108  # of amazon-book, train and test


def split_of(data: str) -> tuple[str, gr.Split]:
    """How a data set is split, and its parts."""
    if data == TWIN:
        events = clustered(N_USERS, N_ITEMS, N_INTERACTIONS)
        events = events.take(np.flatnonzero(np.diff(events.matrix.indptr) >= 2))
        return "weak", gr.split.weak(events, validation=0, test=0.2)
    return "leave_last", gr.split.leave_last(gr.datasets.load(data))


def fit(data: str, recipe: gr.EDLAE, scratch: Path) -> None:
    """What the child does: fit, or go on fitting, and judge."""
    how, split = split_of(data)
    started = time.perf_counter()
    model, peak = peak_bytes(lambda: recipe.fit(split.train, scratch=scratch))
    seconds = time.perf_counter() - started
    report = gr.evaluate(model, split, METRICS)
    facts = {"data": data, "split": how, "recipe": recipe.to_json(), "items": split.train.n_items}
    append("large", facts | {"metrics": report.mean, "last_run_seconds": round(seconds, 1), "last_run_peak_bytes": peak})
    print(report, flush=True)


def swept(scratch: Path, pieces: int) -> int:
    """How many block columns the sweep in the folder has behind it."""
    if not (scratch / FACTS).exists():
        return 0
    return int(np.memmap(scratch / FILE, np.int64, "r", shape=(3,))[DONE]) // pieces


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="amazon-beauty-bert4rec")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--kill", type=int, nargs="*", default=(20, 60))
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--l2", type=float, default=50.0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        fit(given.data, gr.EDLAE(given.dropout, given.l2), given.scratch)
        return
    _, split = split_of(given.data)
    pieces = -(-split.train.n_items // WIDTH) + 1
    del split
    with tempfile.TemporaryDirectory() as folder:
        scratch = given.scratch or Path(folder) / "scratch"
        again = ["--scratch", str(scratch), "--dropout", str(given.dropout), "--l2", str(given.l2), "--child"]
        for after in (*given.kill, None):
            started = time.perf_counter()
            child = subprocess.Popen([sys.executable, __file__, given.data, *again])
            while after is not None and child.poll() is None and swept(scratch, pieces) < after:
                time.sleep(0.05)
            if after is not None:
                child.send_signal(signal.SIGKILL)
            child.wait()
            done = min(swept(scratch, pieces), pieces - 1)  # the last step is the scaling
            took = time.perf_counter() - started
            print(f"after {took:.0f} s {done} of {pieces - 1} block columns are swept (exit {child.returncode})", flush=True)


if __name__ == "__main__":
    main()
