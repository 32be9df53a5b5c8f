"""Top-20 lists of this revision against those of others, in turn within one run: wall and CPU seconds, and equality.

    git worktree add /tmp/before 9f98113^
    python benchmarks/lists.py /tmp/before/src      # EASE at 8,192 items, lists of 20,000 users

Each revision runs in a process of its own, which fits once and then ranks whenever it is told to. The medians of the rounds are
compared. On a busy machine wall times mean little, and CPU seconds include the time that threads spin at barriers.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from journal import append

HERE = Path(__file__).parent
SIZES = ("users", "items", "interactions")


def work(n_users: int, n_items: int, n_interactions: int, n_ranked: int) -> None:
    """Fit, then rank once for every line of stdin and print the seconds; the first time, compile."""
    from measure import wall_and_cpu_seconds  # noqa: PLC0415

    import gramian as gr  # noqa: PLC0415 - of the revision that is measured
    from gramian.data.synthetic import clustered  # noqa: PLC0415

    events = clustered(n_users, n_items, n_interactions)
    model = gr.EASE().fit(events)
    results: list[Any] = []
    for _ in sys.stdin:
        times = wall_and_cpu_seconds(lambda: results.append(model.top_k(events.matrix[:n_ranked], 20)))
        columns, scores = results.pop()
        digest = hashlib.sha256(columns.tobytes() + scores.tobytes()).hexdigest()
        print(json.dumps([*times, digest]), flush=True)


def start_worker(source: Path, sizes: list[int]) -> "subprocess.Popen[str]":
    """Start the process of a revision."""
    environment = os.environ | {"PYTHONPATH": f"{source.resolve()}{os.pathsep}{HERE}"}
    command = [sys.executable, __file__, "--work", *map(str, sizes)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def rank_once(worker: "subprocess.Popen[str]") -> tuple[float, float, str]:
    """Let a process rank, and return its wall and CPU seconds and the digest of the lists."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    print("go", file=worker.stdin, flush=True)
    wall, cpu, digest = json.loads(worker.stdout.readline())
    return wall, cpu, digest


def revision_of(source: Path) -> str:
    """Return the git revision of a source folder."""
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="*", type=Path, help="src folders of other revisions")
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--items", type=int, default=8_192)
    parser.add_argument("--interactions", type=int, default=2_800_000)
    parser.add_argument("--ranked", type=int, default=20_000, help="users who get lists")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=int, nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    sizes = {name: getattr(options, name) for name in (*SIZES, "ranked")}
    sources = [HERE.parent / "src", *options.before]
    workers = [start_worker(source, list(sizes.values())) for source in sources]
    for worker in workers:
        rank_once(worker)  # compiles
    rounds = [[rank_once(worker) for worker in workers] for _ in range(options.rounds)]
    for worker in workers:
        worker.communicate()
    results = []
    for source, runs in zip(sources, zip(*rounds, strict=True), strict=True):
        wall, cpu = (statistics.median(run[place] for run in runs) for place in (0, 1))
        results.append({"revision": revision_of(source), "wall": wall, "cpu": cpu, "digest": runs[0][2]})
    for result in results:
        ratios = {name: results[0][name] / result[name] for name in ("wall", "cpu")}
        result |= {"ratios": ratios, "same_lists": result["digest"] == results[0]["digest"]}
        print(f"{result['revision']:<16} {result['wall']:.3f} s, {result['cpu']:.3f} CPU s; this revision takes "
              f"{ratios['wall']:.3f} × and {ratios['cpu']:.3f} ×; same lists: {result['same_lists']}")  # fmt: skip
    append("lists", sizes | {"rounds": options.rounds, "results": results, "load_average": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
