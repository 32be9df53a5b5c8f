"""A catalog beyond 32-bit LAPACK (46,340 items), fitted exactly, killed, resumed and evaluated.

    python benchmarks/large.py                                  # amazon-beauty-bert4rec, 54,542 items
    python benchmarks/large.py amazon-beauty-bert4rec --scratch /dev/shm/beauty --kill 10 40
    python benchmarks/large.py amazon-book-twin --scratch /dev/shm/book       # 91,599 items: 17 GB, an hour and a half

The fit runs in a child process, with the matrix in a scratch folder. The child is killed (SIGKILL) after --kill block columns
and started again each time. If this script is killed itself, start it again: it resumes. amazon-book-twin is synthetic, of the
size of the LightGCN amazon-book files; a fifth of it is the test part. In other data sets the test is each user's last item.
The parameters are not tuned. Every step overwrites the whole matrix, so a scratch folder in memory (/dev/shm, mounted large
enough) spares the disk. A row goes to results/large.jsonl.
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
from gramian.linalg.resumable import DONE, STATUS_FILE, SWEEP_FILE
from gramian.linalg.symmetric import BLOCK_WIDTH

METRICS = ("ndcg@10", "hit_rate@10", "recall@20")
TWIN = "amazon-book-twin"
N_USERS, N_ITEMS, N_INTERACTIONS = 52_643, 91_599, 2_984_108  # of amazon-book, train and test


def load_split(data: str) -> tuple[str, gr.Split]:
    """Return the name of the split and the split."""
    if data == TWIN:
        events = clustered(N_USERS, N_ITEMS, N_INTERACTIONS)
        events = events.take(np.flatnonzero(np.diff(events.matrix.indptr) >= 2))
        return "weak", gr.split.weak(events, validation=0, test=0.2)
    return "leave_last", gr.split.leave_last(gr.datasets.load(data))


def fit(data: str, recipe: gr.EDLAE, scratch: Path) -> None:
    """Fit or resume, evaluate, and append a row to the journal. Runs in a child process."""
    split_name, split = load_split(data)
    started = time.perf_counter()
    model, peak = peak_bytes(lambda: recipe.fit(split.train, scratch=scratch))
    seconds = time.perf_counter() - started
    report = gr.evaluate(model, split, METRICS)
    facts = {"data": data, "split": split_name, "recipe": recipe.to_json(), "items": split.train.n_items}
    append("large", facts | {"metrics": report.mean, "last_run_seconds": round(seconds, 1), "last_run_peak_bytes": peak})
    print(report, flush=True)


def count_swept_columns(scratch: Path, pieces: int) -> int:
    """Return how many block columns the sweep in the folder has finished."""
    if not (scratch / STATUS_FILE).exists():
        return 0
    return int(np.memmap(scratch / SWEEP_FILE, np.int64, "r", shape=(3,))[DONE]) // pieces


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="amazon-beauty-bert4rec")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--kill", type=int, nargs="*", default=(20, 60))
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--l2", type=float, default=50.0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        fit(arguments.data, gr.EDLAE(arguments.dropout, arguments.l2), arguments.scratch)
        return
    _, split = load_split(arguments.data)
    pieces = -(-split.train.n_items // BLOCK_WIDTH) + 1
    del split
    with tempfile.TemporaryDirectory() as folder:
        scratch = arguments.scratch or Path(folder) / "scratch"
        options = ["--scratch", str(scratch), "--dropout", str(arguments.dropout), "--l2", str(arguments.l2), "--child"]
        for after in (*arguments.kill, None):
            started = time.perf_counter()
            child = subprocess.Popen([sys.executable, __file__, arguments.data, *options])
            while after is not None and child.poll() is None and count_swept_columns(scratch, pieces) < after:
                time.sleep(0.05)
            if after is not None:
                child.send_signal(signal.SIGKILL)
            child.wait()
            done = min(count_swept_columns(scratch, pieces), pieces - 1)  # the last step is the scaling
            took = time.perf_counter() - started
            print(f"after {took:.0f} s {done} of {pieces - 1} block columns are swept (exit {child.returncode})", flush=True)


if __name__ == "__main__":
    main()
