"""Our times beside busy processes on the same cores, as multiples of a fair share.

    python benchmarks/contention.py                                # an inverse, a Gram, lists and epochs at 8,192 items
    python benchmarks/contention.py --jobs inverse lists --busy 2  # some of them, beside two busy processes

Beside b busy processes, t threads on c cores get t/(t + b) of the machine if all are treated alike, and never more than t
cores. A job of s seconds on the idle machine then takes s · min(t, c) / min(t, c · t/(t + b)) seconds: its fair share. The
script starts its own busy processes. Idle and busy rounds alternate, and the medians are compared. Needs an otherwise idle
machine.
"""

import argparse
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from journal import append
from measure import seconds
from numba import get_num_threads

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.inverse import invert

Job = Callable[[], object]


def spin() -> None:
    """Keep a core busy until the parent ends."""
    while os.getppid() != 1:
        sum(range(100_000))


@contextmanager
def busy_processes(n: int) -> Iterator[None]:
    """Keep n processes busy within a `with`."""
    processes = [multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(n)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def fair_share(n_busy: int) -> float:
    """How many times as long a job takes beside busy processes, if the cores are shared equally."""
    threads, cores = get_num_threads(), os.cpu_count() or 1
    return min(threads, cores) / min(threads, cores * threads / (threads + n_busy))


def make_jobs(n_items: int, n_users: int, n_interactions: int) -> dict[str, Job]:
    """Return the jobs by name; each has run once on small data, so that nothing is compiled while it is measured."""
    gr.EASE().fit(clustered(200, 100, 2_000)).recommend(list(range(200)), k=20)
    events = clustered(n_users, n_items, n_interactions)
    source = gr.Gram.of(events).matrix
    source.change_diagonal(lambda diagonal, first, last: diagonal + 200)
    half, model = source.copy(), gr.EASE().fit(events)
    assert model.histories is not None
    histories = model.histories.matrix[:20_000]
    als = gr.IALS(rank=64, n_epochs=1)
    als.fit(events)

    def inverse() -> None:
        half.buffer[:] = source.buffer
        invert(half)

    jobs: dict[str, Job] = {"gram": lambda: gr.Gram.of(events), "inverse": inverse, "lists": lambda: model.top_k(histories, 20)}
    return jobs | {"fit": lambda: gr.EASE().fit(events), "epoch": lambda: als.fit(events)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=["fit", "inverse", "gram", "lists", "epoch"])
    parser.add_argument("--busy", nargs="+", type=int, default=[1, 2, 4], help="numbers of busy processes")
    parser.add_argument("--items", type=int, default=8_192)
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--interactions", type=int, default=2_800_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-journal", dest="use_journal", action="store_false", help="add no row to results/contention.jsonl")
    options = parser.parse_args()
    jobs = make_jobs(options.items, options.users, options.interactions)
    for name in options.jobs:
        times: dict[int, list[float]] = {n: [] for n in (0, *options.busy)}
        for _ in range(options.rounds):
            for n, measured in times.items():
                with busy_processes(n):
                    measured.append(seconds(jobs[name]))
        medians = {n: statistics.median(values) for n, values in times.items()}
        ratios = {n: medians[n] / medians[0] / fair_share(n) for n in options.busy}
        shown = ", ".join(f"beside {n} {medians[n]:.2f} s = {ratio:.2f} × a fair share" for n, ratio in ratios.items())
        print(f"{name:<10}idle {medians[0]:.2f} s, {shown}", flush=True)
        if options.use_journal:
            facts = {"items": options.items, "users": options.users, "interactions": options.interactions}
            idle_spread = float(np.ptp(times[0]) / medians[0])
            append("contention", {"job": name, **facts, "seconds": medians, "ratios": ratios, "idle_spread": idle_spread})


if __name__ == "__main__":
    main()
