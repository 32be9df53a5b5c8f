"""What the sides of a comparison share: one warm-up on tiny data, then one measured run. Needs NumPy and SciPy only."""

import ctypes
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import peak_bytes, seconds

L1, L2, K, RANK, SCORED = 10.0, 200.0, 20, 64, 50  # SCORED: users whose scores are compared after a fit
CORES = int(os.environ["OMP_NUM_THREADS"])

Job = tuple[Callable[[], Any], Callable[[Any], Any]]  # what is measured, and what of its result is compared


def matrix(data: Path, name: str) -> sp.csr_matrix:
    return sp.csr_matrix(sp.load_npz(data / f"{name}.npz"))


def rows(histories: sp.csr_matrix) -> np.ndarray:
    """The user of every stored entry."""
    return np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))


def main(jobs: dict[str, Callable[[Path], Job]]) -> None:
    """Run as `use_<side>.py <job> <folder> <answer.npy>`; the last line printed is JSON."""
    name, folder, side = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[0]).stem.removeprefix("use_")
    jobs[name](folder / "tiny")[0]()  # compile, start the threads, load what is loaded late
    run, answer = jobs[name](folder / "real")
    ctypes.CDLL(None).malloc_trim(0)  # give back what loading has freed, or reusing it would not count
    results: list[Any] = []
    elapsed, peak = peak_bytes(lambda: seconds(lambda: results.append(run())))
    np.save(sys.argv[3], np.asarray(answer(results[0])))
    versions = {"python": platform.python_version()} | {package: version(package) for package in (side, "numpy", "scipy")}
    print(json.dumps({"seconds": elapsed, "peak": peak, "version": version(side), "versions": versions}))
