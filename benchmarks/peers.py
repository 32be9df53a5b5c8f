"""Gramian against its peers, each in its own environment: ratios within one run, and whether the answers agree.

    python benchmarks/peers.py                                  # 8,192 items; installs the peers on first use (7 GB)
    python benchmarks/peers.py --only irspack implicit --rounds 1

Every run is a process of its own, ours and theirs in turn, after a warm-up on tiny data. Imports and reading the inputs do not
count; the best of the rounds is taken. Memory is the peak over what was resident before the job, inputs included.
A ratio is theirs / ours. The sides are benchmarks/peers/use_<name>.py. Needs Linux, and an idle machine to mean anything.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np
from journal import append

HERE = Path(__file__).parent
PEERS = {
    "irspack": "irspack==0.5.2",
    "rectools": "rectools==0.19.0",
    "cornac": "cornac==3.0.1",
    "recpack": "recpack==0.3.6",
    "implicit": "implicit==0.7.3",
    "recbole": "torch==2.13.0 recbole==1.2.1 numpy==1.26.4 pandas==2.2.3 scipy==1.13.1",
    "scipy": None,  # in our own environment
}
COMPARISONS = (
    ("EASE fit", ("irspack", "rectools", "cornac", "recpack")),
    ("SLIM fit", ("irspack",)),
    ("top 20", ("scipy", "irspack", "rectools")),
    ("top 20, factors", ("implicit",)),
    ("metrics", ("rectools",)),
    ("frames + metrics", ("rectools",)),
    ("evaluation", ("irspack",)),
    ("evaluation, factors", ("implicit",)),
)
SAMPLED = {("top 20", "irspack"), ("top 20", "rectools")}  # theirs for some users only, being slow
CORES = str(len(os.sched_getaffinity(0)))
KINDS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "IRSPACK_NUM_THREADS_DEFAULT")
THREADS = dict.fromkeys(KINDS, CORES)
OWN_THREADS = {"implicit": {"OPENBLAS_NUM_THREADS": "1"}}  # as it asks for: it multiplies in threads of its own
WIDTHS = {"job": 20, "peer": 19, "ours_s": 9, "theirs_s": 9, "s_ratio": 8, "ours_mb": 9, "theirs_mb": 9, "mb_ratio": 8}


def python_of(peer: str) -> str:
    """The Python of the peer's own environment, which is made when it is missing or holds another version."""
    wanted, home = PEERS[peer], HERE / ".peers" / peer
    if wanted is None:
        return sys.executable
    python, mark = home / "bin" / "python", home / "installed"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"installing {wanted}", flush=True)
        venv.create(home, clear=True, symlinks=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.split()]
        subprocess.run(install, check=True, capture_output=True, text=True)
        mark.write_text(wanted)
    return str(python)


def installed(peers: list[str]) -> dict[str, str]:
    """The Python of each peer that can be installed."""
    found = {}
    for peer in peers:
        try:
            found[peer] = python_of(peer)
        except subprocess.CalledProcessError as error:
            print(f"{peer} could not be installed: {reason(error)}", flush=True)
    return found


def run(python: str, script: str, *arguments: object, **environment: str) -> Any:
    """What a script in peers/ prints last, which is JSON."""
    command = [python, str(HERE / "peers" / script), *map(str, arguments)]
    environment = os.environ | THREADS | {"PYTHONPATH": str(HERE)} | environment  # where measure.py is
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def agreement(ours: np.ndarray, theirs: np.ndarray) -> tuple[str, bool]:
    """How much of their lists is in ours, or how far numbers are apart, for the users and items they answered."""
    ours = ours[tuple(slice(size) for size in theirs.shape)]
    if theirs.dtype.kind == "i":
        overlap = (theirs[:, :, None] == ours[:, None, :]).any(axis=2).mean()
        return f"overlap {overlap:.4f}", bool(overlap >= 0.99)
    difference = np.abs(ours - theirs).max()
    return f"difference {difference:.0e}", bool(difference <= 1e-3)


def compare(job: str, peer: str, python: str, folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    answers, runs = (folder / "ours.npy", folder / "theirs.npy"), []
    for _ in range(rounds):
        ours = run(sys.executable, "use_gramian.py", job, folder, answers[0])
        runs.append((ours, run(python, f"use_{peer}.py", job, folder, answers[1], **OWN_THREADS.get(peer, {}))))
    our_s, their_s = (min(one["seconds"] for one in side) for side in zip(*runs, strict=True))
    our_mb, their_mb = (min(one["peak"] for one in side) / 1e6 for side in zip(*runs, strict=True))
    text, agree = agreement(*map(np.load, answers))
    return {
        "job": job,
        "peer": f"{peer} {runs[0][1]['version']}",
        "ours_s": round(our_s, 4),
        "theirs_s": round(their_s * scale, 4),
        "s_ratio": round(their_s * scale / our_s, 2),
        "ours_mb": round(our_mb, 1),
        "theirs_mb": round(their_mb, 1),
        "mb_ratio": round(their_mb / max(our_mb, 1), 2),  # less than a megabyte is noise
        "answers": text,
        "agree": agree,
        "scale": round(scale, 3),
        "peer_versions": runs[0][1]["versions"],
    }


def reason(error: subprocess.CalledProcessError) -> str:
    lines = (error.stderr or "").strip().splitlines() or [str(error)]
    return next((text for text in reversed(lines) if "error" in text.lower()), lines[-1])


def report(row: dict[str, Any]) -> None:
    agree = "" if row["agree"] else " DISAGREE"
    scaled = f" (theirs for fewer users, seconds × {row['scale']})" if row["scale"] > 1 else ""
    print(
        " | ".join(f"{row[name]:<{width}}" for name, width in WIDTHS.items()), "|", row["answers"] + agree + scaled, flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--jobs", nargs="+", choices=[job for job, _ in COMPARISONS], default=[job for job, _ in COMPARISONS])
    for name, default in (("items", 8_192), ("users", 50_000), ("interactions", 4_000_000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    pythons = installed(given.only)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "inputs.py", folder / "tiny", 200, 60, 3_000)
        size = run(sys.executable, "inputs.py", folder / "real", given.users, given.items, given.interactions)
        print(f"{size} on {CORES} cores, best of {given.rounds}")
        print(" | ".join(f"{name:<{width}}" for name, width in WIDTHS.items()), "| answers", flush=True)
        for job, peer in [(j, p) for j, peers in COMPARISONS for p in peers if p in pythons and j in given.jobs]:
            scale = size["users"] / size["sample"] if (job, peer) in SAMPLED else 1.0
            try:
                row = compare(job, peer, pythons[peer], folder, given.rounds, scale)
            except subprocess.CalledProcessError as error:
                print(f"{job}: {peer} could not run: {reason(error)}", flush=True)
                continue
            report(row)
            append("peers", row | size | {"rounds": given.rounds})


if __name__ == "__main__":
    main()
