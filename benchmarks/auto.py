"""`gr.auto` against fixed defaults and against tuned models of other libraries, at equal wall time on the same test users.

    python benchmarks/auto.py movielens lastfm-2k --budget 120
    python benchmarks/auto.py movielens --budget 60 --peers            # without other libraries

For each data set one run: `gr.auto` with the budget, EASE(l2=200) and IALS() as they are, and implicit's ALS and RecTools'
EASE, each tuned by at most 50 Optuna trials within the same budget in an environment of its own (peers/tune_with_optuna.py).
The peers choose on the first fold of the validation users. All are fitted again on all but the test users, and measured on the
same test users. A row in results/auto.jsonl has every ndcg@20 with its standard error, the paired difference of auto from the
best default, and the share of the budget that auto used. Needs Linux, and an idle machine for the times to mean anything.
"""

import argparse
import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from journal import append
from peers import PEERS, error_reason, python_of, run_script

import gramian as gr
from gramian.evaluation.metrics import parse_metrics
from gramian.evaluation.task import RankingTask
from gramian.selection.protocol import Protocol

METRIC, K, N_TRIALS = "ndcg@20", 20, 50
THRESHOLDS = {"movielens": 4.0, "ml-1m": 4.0}  # ratings that count as liked; other data sets are taken as they are
DEFAULTS = (gr.EASE(l2=200), gr.IALS())
TUNED = {"implicit": "implicit", "rectools": "rectools"}  # peer → environment, with Optuna added


def write_inputs(folder: Path, protocol: Protocol) -> None:
    """Write the matrices that a peer chooses and is tested with."""
    fold, test = protocol.folds[0], protocol.test
    parts = {"train": fold.train, "fold_in": fold.fold_in, "target": fold.target}
    parts |= {"test_train": test.train, "test_fold_in": test.fold_in}
    for name, events in parts.items():
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(events.matrix))


def tune_peer(peer: str, folder: Path, budget: float) -> dict[str, Any]:
    """Tune a peer within the budget; its lists for the test users are in lists.npy of the folder."""
    PEERS[peer] = f"{PEERS[peer]} optuna==4.6.0" if "optuna" not in str(PEERS[peer]) else PEERS[peer]
    answer: dict[str, Any] = run_script(python_of(peer), "tune_with_optuna.py", peer, folder, budget, N_TRIALS)
    return answer


def run(name: str, budget: float, peers: list[str]) -> dict[str, Any]:
    """Compare everything on one data set."""
    events = gr.datasets.load(name, min_value=THRESHOLDS.get(name))
    started = time.perf_counter()
    selection = gr.auto(events, budget=budget)
    used = time.perf_counter() - started
    test, metrics = selection.protocol.test, parse_metrics([METRIC])
    task = RankingTask.of(test.held_out, test.train.catalog)
    reports, facts = {"auto": selection.finalists[0].report}, {}
    for recipe in DEFAULTS:
        reports[str(recipe)] = gr.evaluate(recipe.fit(test.train), test, [METRIC])
    for peer in peers:
        with TemporaryDirectory() as folder:
            write_inputs(Path(folder), selection.protocol)
            try:
                facts[peer] = tune_peer(peer, Path(folder), budget)
                reports[peer] = task.report(np.load(Path(folder) / "lists.npy").astype(np.int32), metrics)
            except subprocess.CalledProcessError as error:
                facts[peer] = {"failed": error_reason(error)}
    best_default = max(map(str, DEFAULTS), key=lambda name: reports[name][METRIC])
    paired = reports["auto"].compare(reports[best_default], METRIC)
    row: dict[str, Any] = {"data": name, "budget": budget, "seconds": used, "share_of_budget": used / budget}
    row |= {"chosen": str(selection.recipe), "points": selection.n_points, "protocol": selection.protocol.name}
    row |= {"test_users": len(task.users), "recommendation": selection.recommendation, "left_out": selection.left_out}
    row["figures"] = {who: {METRIC: report[METRIC], "stderr": report.stderr[METRIC]} for who, report in reports.items()}
    row["against_best_default"] = {"default": best_default} | vars(paired)
    return row | {"peers": facts, "load": os.getloadavg()[1]}  # of the last five minutes: other processes slow all of them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="names of data sets")
    parser.add_argument("--budget", type=float, default=120, help="seconds for each")
    parser.add_argument(
        "--peers", nargs="*", choices=list(TUNED), default=list(TUNED), help="other libraries; none after a bare --peers"
    )
    options = parser.parse_args()
    for name in options.data:
        row = run(name, options.budget, options.peers)
        append("auto", row)
        print(f"{name}: {row['chosen']}, {row['seconds']:.0f} of {row['budget']:.0f} s, {row['points']} points")
        for who, figure in sorted(row["figures"].items(), key=lambda pair: -pair[1][METRIC]):
            print(f"  {who:<20}{figure[METRIC]:.4f} ± {figure['stderr']:.4f}")
        for peer, fact in row["peers"].items():
            print(f"  {peer}: {fact}")
        paired = row["against_best_default"]
        print(
            f"  auto − {paired['default']}: {paired['difference']:+.4f} ± {paired['stderr']:.4f}, p = {paired['p_value']:.2g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
