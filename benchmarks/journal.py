"""Rows of the benchmarks: results/<journal>.jsonl, a line of JSON for each fit or comparison. None is overwritten."""

import json
from pathlib import Path
from typing import Any

from gramian.journal import provenance

RESULTS = Path(__file__).parent / "results"


def append(journal: str, row: dict[str, Any]) -> None:
    """Add a row, with the time, the revision, the versions and the threads."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{journal}.jsonl").open("a") as file:
        file.write(json.dumps(row | provenance(), ensure_ascii=False) + "\n")


def rows(journal: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{journal}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
