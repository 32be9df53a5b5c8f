"""Our side of the comparison with other libraries runs, on tiny data. The type checker covers the other benchmark scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).parents[1] / "benchmarks" / "peers"
RUN_ALL_JOBS = """
import runpy, sys
jobs, folder = sys.argv[1].split(";"), sys.argv[2]
for job in jobs:
    sys.argv = ["use_gramian.py", job, folder, f"{folder}/answer.npy"]
    runpy.run_path("use_gramian.py", run_name="__main__")
"""
JOBS = (
    *("EASE fit", "EASE fit, approximate", "SLIM fit", "iALS epoch", "WRMF epoch", "top 20", "top 20, approximate"),
    *("top 20, factors", "metrics", "frames + metrics", "evaluation", "evaluation, factors"),
)


def test_our_side_of_every_comparison_runs(tmp_path):
    environment = os.environ | {"PYTHONPATH": f"{PEERS}{os.pathsep}{PEERS.parent}", "OMP_NUM_THREADS": "2"}

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, cwd=PEERS, env=environment, check=True, capture_output=True, text=True).stdout

    for name in ("tiny", "real"):
        run("inputs.py", tmp_path / name, 200, 60, 3_000)
    rows = [json.loads(line) for line in run("-c", RUN_ALL_JOBS, ";".join(JOBS), tmp_path).splitlines()]
    assert len(rows) == len(JOBS)
    assert all(row["seconds"] > 0 for row in rows)
