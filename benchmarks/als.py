"""Alternating least squares: epochs against implicit and irspack, and RG2 against training to the best ranking.

    python benchmarks/als.py epochs      # 10 million interactions, rank 64 and 128, every solver of each library
    python benchmarks/als.py epochs --data ml-1m gowalla --ranks 64 128 256 --libraries gramian irspack
    python benchmarks/als.py optimum     # RG2's closed form against implicit to its best validation ndcg

Epochs are timed in a process for each library and solver, in turn; the best epoch counts. A ratio is theirs / ours. On a busy
machine, `--threads 1` and the CPU seconds are comparable, and seconds are not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import scipy.sparse as sp
from journal import append
from measure import wall_and_cpu_seconds
from peers import CORES, OWN_THREADS, THREADS, python_of

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.threads import limit_threads

HERE = Path(__file__).parent
RUNS = (  # library and solver, in the order that puts ours beside theirs
    ("gramian", "ials cg"),
    ("irspack", "cg"),
    ("gramian", "ials cholesky"),
    ("irspack", "cholesky"),
    ("gramian", "ials subspace"),
    ("irspack", "ialspp"),
    ("gramian", "wrmf cg"),
    ("implicit", "cg"),
    ("implicit", "cholesky"),
    ("gramian", "rg2"),
)
LIBRARIES = ("gramian", "irspack", "implicit")
SYNTHETIC = {"10 million": (136_677, 20_000, 15_200_000), "2.5 million": (50_000, 8_192, 4_000_000)}  # users, items, draws
DATA = (*SYNTHETIC, "gowalla", "ml-1m")


def train_in_process(side: str, folder: str, rank: int, solver: str, n_epochs: int, threads: int) -> dict[str, Any]:
    """Train by one library in a process of its own; return its seconds per epoch and its objective."""
    python = sys.executable if side == "gramian" else python_of(side)
    command = [python, str(HERE / "peers" / "epochs.py"), side, folder, str(rank), solver, str(n_epochs)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    environment |= dict.fromkeys(THREADS, str(threads)) | OWN_THREADS.get(side, {})
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1]) | {"side": side, "solver": solver, "rank": rank, "threads": threads}


def load_data(name: str) -> gr.Interactions:
    """Return a data set by its name here."""
    if name == "gowalla":
        return gr.split.published("gowalla").train
    if name == "ml-1m":
        return gr.datasets.load("ml-1m", min_value=3).k_core(5)
    return clustered(*SYNTHETIC[name])


def epochs(name: str, ranks: list[int], n_epochs: int, libraries: list[str], threads: int) -> None:
    """Time an epoch of every library and solver on the same data."""
    with tempfile.TemporaryDirectory() as folder:
        events = load_data(name)
        sp.save_npz(Path(folder) / "train.npz", sp.csr_matrix(events.matrix), compressed=False)
        sp.save_npz(Path(folder) / "tiny.npz", sp.csr_matrix(clustered(300, 200, 3_000).matrix))
        print(f"{name}: {events}, {n_epochs} epochs")
        for rank in ranks:
            for side, solver in RUNS:
                if side not in libraries:
                    continue
                row = train_in_process(side, folder, rank, solver, n_epochs, threads)
                best, cpu = min(row["seconds"]), min(row["cpu_seconds"])
                value = "" if row["objective"] is None else f"objective {row['objective']:,.0f}"
                print(
                    f"rank {rank:>3} | {side:<8} | {solver:<13} | {best:7.3f} s an epoch, {cpu:7.3f} CPU s | {value}",
                    flush=True,
                )
                append("als", {"job": "epochs", "data": name, **row})


def optimum(names: list[str], rank: int, threads: int) -> None:
    """Time RG2's closed form against implicit until it is within a thousandth of its best validation ndcg@10."""
    gr.RG2(rank=8).fit(clustered(300, 200, 3_000))  # compiles
    for name in names:
        split = gr.split.weak(load_data(name), seed=0).validation
        assert split is not None
        with tempfile.TemporaryDirectory() as folder:
            target = split.target.reindex(split.train.users, split.train.items).matrix
            sp.save_npz(Path(folder) / "train.npz", sp.csr_matrix(split.train.matrix), compressed=False)
            sp.save_npz(Path(folder) / "target.npz", sp.csr_matrix(target), compressed=False)
            theirs = train_in_process("implicit", folder, rank, "best", 20, threads)
        values = theirs["ndcg"]
        epoch = next(at for at, value in enumerate(values) if value >= 0.999 * max(values))
        train = split.train
        their_s, their_cpu = (sum(theirs[kind][: epoch + 1]) for kind in ("seconds", "cpu_seconds"))
        with limit_threads(threads):
            runs = [wall_and_cpu_seconds(lambda train=train: gr.RG2(rank=rank).fit(train)) for _ in range(3)]  # type: ignore[misc]
        ours, cpu = (min(run[kind] for run in runs) for kind in (0, 1))
        row = {
            "job": "optimum",
            "data": name,
            "rank": rank,
            "threads": threads,
            "seconds": ours,
            "cpu_seconds": cpu,
            "their_seconds": their_s,
            "their_cpu_seconds": their_cpu,
            "their_epochs": epoch + 1,
        }
        ratios = f"ratio {their_s / ours:.1f}, of CPU seconds {their_cpu / cpu:.1f}"
        print(f"{name}: RG2 {ours:.2f} s, implicit {their_s:.2f} s ({epoch + 1} epochs), {ratios}", flush=True)
        append("als", row | {"their_ndcg": values, "implicit": theirs["version"]})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=("epochs", "optimum"))
    parser.add_argument(
        "--data", nargs="+", choices=DATA, help="default: 10 million for epochs, all but 2.5 million for optimum"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--threads", type=int, default=int(CORES))
    arguments = parser.parse_args()
    if arguments.job == "epochs":
        for name in arguments.data or ["10 million"]:
            epochs(name, arguments.ranks, arguments.epochs, arguments.libraries, arguments.threads)
    else:
        optimum(arguments.data or ["10 million", "gowalla", "ml-1m"], arguments.ranks[0], arguments.threads)


if __name__ == "__main__":
    main()
