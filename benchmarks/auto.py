"""`gr.auto` against fixed defaults and against tuned models of other libraries, at equal wall time on the same test users.

    python benchmarks/auto.py movielens lastfm-2k --budget 120
    python benchmarks/auto.py movielens --budget 60 --peers            # without other libraries
    python benchmarks/auto.py --table                                  # the newest row of each data set, for docs/auto.md

For each data set one run: `gr.auto` with the budget, EASE(l2=200) and IALS() as they are, and implicit's ALS and RecTools'
EASE, each tuned by at most 50 Optuna trials within the same budget in an environment of its own (peers/tune_with_optuna.py).
The peers choose on the first fold of the validation users. All are fitted again on all but the test users, and measured on the
same test users. A row in results/auto.jsonl has every ndcg@20 with its standard error and seconds, the paired difference of
auto from each other, and the share of the budget that auto used: less than 1 where the search converged, or where no further
fit would have left time for the final test. A peer that has no answer after 1.25 times the budget is stopped, and a default
that takes longer than the budget is not among those that auto must not be worse than. `--memory` limits auto and the defaults.
Needs Linux, and an idle machine for the times to mean anything.
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
from journal import append, rows
from peers import PEERS, error_reason, python_of, run_script

import gramian as gr
from gramian.errors import GramianError
from gramian.evaluation.comparison import SIGNIFICANCE
from gramian.evaluation.metrics import parse_metrics
from gramian.evaluation.report import Report
from gramian.evaluation.task import RankingTask
from gramian.linalg.memory import available_bytes, limit_memory
from gramian.selection.budget import parse_size
from gramian.selection.protocol import Protocol

METRIC, K, N_TRIALS = "ndcg@20", 20, 50
THRESHOLDS = {"movielens": 4.0, "ml-1m": 4.0}  # ratings that count as liked; other data sets are taken as they are
DEFAULTS = (gr.EASE(l2=200), gr.IALS())
TUNED = ("implicit", "rectools")
MAX_OVERRUN = 1.25  # times the budget after which a peer is stopped
DENSE_COPIES = 4  # items × items matrices in float32 that RecTools' EASE holds at its peak


def write_inputs(folder: Path, protocol: Protocol) -> None:
    """Write the matrices that a peer chooses and is tested with."""
    fold, test = protocol.folds[0], protocol.test
    parts = {"train": fold.train, "fold_in": fold.fold_in, "target": fold.target}
    parts |= {"test_train": test.train, "test_fold_in": test.fold_in}
    for name, events in parts.items():
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(events.matrix))


def python_of_tuned(peer: str) -> str:
    """Return the Python of the peer's environment with Optuna."""
    PEERS[peer] = f"{PEERS[peer]} optuna==4.6.0" if "optuna" not in str(PEERS[peer]) else PEERS[peer]
    return python_of(peer)


def tune_peer(peer: str, folder: Path, budget: float) -> dict[str, Any]:
    """Tune a peer within the budget; its lists for the test users are in lists.npy of the folder."""
    arguments = (peer, folder, budget, N_TRIALS)
    answer: dict[str, Any] = run_script(python_of_tuned(peer), "tune_with_optuna.py", *arguments, timeout=MAX_OVERRUN * budget)
    return answer


def run_peer(peer: str, protocol: Protocol, task: RankingTask, budget: float) -> tuple[dict[str, Any], Report | None]:
    """Return what a tuned peer used and chose, and its report; None if it has none."""
    needed = DENSE_COPIES * 4 * protocol.test.train.n_items**2
    if peer == "rectools" and needed > available_bytes():
        return {"failed": f"needs {needed / 1e9:.0f} GB of memory"}, None
    with TemporaryDirectory() as folder:
        write_inputs(Path(folder), protocol)
        try:
            facts = tune_peer(peer, Path(folder), budget)
        except subprocess.CalledProcessError as error:
            return {"failed": error_reason(error)}, None
        except subprocess.TimeoutExpired:
            return {"failed": f"no answer in {MAX_OVERRUN * budget:.0f} s"}, None
        return facts, task.report(np.load(Path(folder) / "lists.npy").astype(np.int32), parse_metrics([METRIC]))


def run(name: str, budget: float, peers: list[str], memory: str | None) -> dict[str, Any]:
    """Compare everything on one data set."""
    events = gr.datasets.load(name, min_value=THRESHOLDS.get(name))
    started = time.perf_counter()
    selection = gr.auto(events, budget=budget, memory=memory)
    used = time.perf_counter() - started
    test = selection.protocol.test
    task = RankingTask.of(test.held_out, test.train.catalog)
    reports: dict[str, Report] = {"auto": selection.finalists[0].report}
    facts: dict[str, dict[str, Any]] = {"auto": {"seconds": used}}
    for recipe in DEFAULTS:
        started = time.perf_counter()
        try:
            with limit_memory(parse_size(memory)):
                reports[str(recipe)] = gr.evaluate(recipe.fit(test.train), test, [METRIC])
            facts[str(recipe)] = {"seconds": time.perf_counter() - started}
        except GramianError as error:
            facts[str(recipe)] = {"failed": str(error)}
    for peer in peers:
        facts[peer], report = run_peer(peer, selection.protocol, task, budget)
        reports |= {} if report is None else {peer: report}
    for who, report in reports.items():
        facts[who] |= {METRIC: report[METRIC], "stderr": report.stderr[METRIC]}
        if who != "auto":
            facts[who]["auto_minus_this"] = vars(reports["auto"].compare(report, METRIC))
    affordable = [str(recipe) for recipe in DEFAULTS if facts[str(recipe)].get("seconds", np.inf) <= budget]
    row: dict[str, Any] = {"data": name, "budget": budget, "memory": memory, "seconds": used, "share_of_budget": used / budget}
    row |= {"chosen": str(selection.recipe), "points": selection.n_points, "protocol": selection.protocol.name}
    row |= {"test_users": len(task.users), "recommendation": selection.recommendation, "left_out": selection.left_out}
    row["best_default"] = max(affordable, key=lambda who: reports[who][METRIC], default=None)
    return row | {"models": facts, "load": os.getloadavg()[1]}  # of the last five minutes: other processes slow all of them


def print_table() -> None:
    """Print the newest row of each data set as Markdown: ndcg@20, and seconds in brackets."""
    names = [str(recipe) for recipe in DEFAULTS] + list(TUNED)
    print(f"| data | budget | auto chose | auto | {' | '.join(names)} |\n|{'---|' * (4 + len(names))}")
    for row in {row["data"]: row for row in rows("auto")}.values():
        cells = [f"{row['budget']:.0f} s" + (f", {row['memory']}" if row["memory"] else ""), f"`{row['chosen']}`"]
        for name in ("auto", *names):
            facts = row["models"].get(name, {"failed": "not run"})
            figure = facts.get("failed") or f"{facts[METRIC]:.4f} ± {facts['stderr']:.4f} ({facts['seconds']:.0f} s)"
            p_value = facts.get("auto_minus_this", {}).get("p_value", 1.0)
            cells.append(figure + (" *" if p_value < SIGNIFICANCE else ""))
        print(f"| {row['data']} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="names of data sets")
    parser.add_argument("--table", action="store_true", help="only print the table from the journal")
    parser.add_argument("--budget", type=float, default=120, help="seconds for each")
    parser.add_argument("--memory", help="memory that auto and the defaults may use, such as 4GB")
    parser.add_argument("--peers", nargs="*", choices=TUNED, default=TUNED, help="other libraries; none after a bare --peers")
    options = parser.parse_args()
    if options.table:
        print_table()
        return
    for peer in options.peers:
        python_of_tuned(peer)  # not within the time of a run
    for name in options.data:
        row = run(name, options.budget, options.peers, options.memory)
        append("auto", row)
        print(f"{name}: {row['chosen']}, {row['seconds']:.0f} of {row['budget']:.0f} s, {row['points']} points")
        for who, facts in row["models"].items():
            if "failed" in facts:
                print(f"  {who:<18} {facts['failed']}")
                continue
            paired = facts.get("auto_minus_this")
            against = (
                f"auto {paired['difference']:+.4f} ± {paired['stderr']:.4f}, p = {paired['p_value']:.2g}" if paired else ""
            )
            trials = f"{facts['trials']} trials, " if "trials" in facts else ""
            print(
                f"  {who:<18} {facts[METRIC]:.4f} ± {facts['stderr']:.4f}  {trials}{facts['seconds']:.0f} s  {against}",
                flush=True,
            )


if __name__ == "__main__":
    main()
