"""Journals of the benchmark scripts: results/<name>.jsonl, one JSON object per line. Rows are appended, never overwritten."""

import json
from pathlib import Path
from typing import Any

from gramian.io.journal import provenance

RESULTS = Path(__file__).parent / "results"


def append(journal: str, row: dict[str, Any]) -> None:
    """Append a row to a journal, with the time, git revision, package versions and number of threads."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{journal}.jsonl").open("a") as file:
        file.write(json.dumps(row | provenance(), ensure_ascii=False) + "\n")


def rows(journal: str) -> list[dict[str, Any]]:
    """Return all rows of a journal, oldest first; none if it does not exist."""
    path = RESULTS / f"{journal}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
