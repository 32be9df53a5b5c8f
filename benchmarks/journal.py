"""One line of JSON for every fit: what was fitted on what, how well, at what cost, by which code on which machine."""

import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numba import get_num_threads

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("gramian", "numpy", "scipy", "numba", "polars")


def append(journal: str, row: dict[str, Any]) -> None:
    """Add a row to results/<journal>.jsonl, with the time, the revision, the versions and the threads. None is overwritten."""
    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    facts = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": found.stdout.strip() or "unknown",
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "machine": f"{platform.machine()}, {get_num_threads()} threads",
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{journal}.jsonl").open("a") as file:
        file.write(json.dumps(row | facts, ensure_ascii=False) + "\n")


def rows(journal: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{journal}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
