"""Read damaged tables: each must be read with every row that Python's csv module finds, or refused with our own error.

    python benchmarks/fuzz_tables.py --cases 100000 --seed 0

Prints the number of cases and outcomes for each format. A case that ends in another way stops the run and is printed.
"""

import argparse
import csv
import gzip
import io
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

import gramian as gr
from gramian.errors import GramianError

TOKENS = [
    b'"',
    b'""',
    b",",
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b";",
    b"\t",
    b"{",
    b"}",
    b"null",
    b"1e999",
    b"-",
]
ROLES = {"value": "rating", "time": "time", "title": "title"}


def make_tables(seed: int) -> dict[str, bytes]:
    """Return a small table in every format."""
    rng = random.Random(seed)
    n = 30
    table = pl.DataFrame(
        {
            "user": [rng.choice("abcde") for _ in range(n)],
            "item": [rng.randrange(9) for _ in range(n)],
            "rating": [rng.randrange(1, 6) for _ in range(n)],
            "time": [f"2020-01-{1 + k % 28:02}T10:00:00" for k in range(n)],
            "title": [rng.choice(['3" reel', "a, b", "two\nlines", "é", "plain"]) for _ in range(n)],
        }
    )
    formats: dict[str, Any] = {".csv": table.write_csv, ".jsonl": table.write_ndjson, ".parquet": table.write_parquet}
    contents = {}
    for suffix, write in formats.items():
        file = io.BytesIO()
        write(file)
        contents[suffix] = file.getvalue()
    contents[".tsv"] = table.write_csv(separator="\t").encode()
    contents[".csv.gz"] = gzip.compress(contents[".csv"], mtime=0)
    return contents


def damage(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes with a few random changes."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start = rng.randrange(len(content) + 1)
        stop = min(len(content), start + rng.choice([1, 1, 2, 5, 40]))
        change = rng.randrange(6)
        if change == 0:
            content = content[:start] + rng.choice(TOKENS) + content[start:]
        elif change == 1:
            content = content[:start] + content[stop:]
        elif change == 2:
            alphabet = rng.choice([b'ab1," \n', bytes(range(256))])
            content = content[:start] + bytes(rng.choices(alphabet, k=stop - start)) + content[stop:]
        elif change == 3:
            content = content[:start] + content[start:stop] * 2 + content[stop:]
        elif change == 4:
            content = content[:start] + rng.choice(TOKENS) + content[stop:]
        else:
            content = content[: max(start, 1)]
    return content


def count_rows(content: bytes, separator: str) -> int:
    """Count the rows that are not empty, as Python's csv module reads them."""
    rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=separator)
    return sum(any(field.strip() if n == 0 else field for field in row) for n, row in enumerate(rows))


def try_case(suffix: str, content: bytes, folder: Path, roles: dict[str, Any]) -> str:
    """Read a damaged table and return the outcome; an error that is not ours, or a lost row, is raised."""
    path = folder / f"events{suffix}"
    path.write_bytes(content)
    try:
        events = gr.read(path, **roles)
    except GramianError:
        return "refused"
    if suffix in (".csv", ".tsv") and events.read_summary is not None and not events.read_summary.notes:
        summary = events.read_summary
        expected = count_rows(content, "," if suffix == ".csv" else "\t") - 1
        if summary.n_rows + summary.n_headers != expected:
            raise AssertionError(f"{summary.n_rows} rows read, {expected} in the file")
    return "read"


def run_cases(cases: int, seed: int) -> Counter[tuple[str, str]]:
    """Try this many damaged tables and count the outcomes by format."""
    tables = make_tables(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in range(cases):
            rng = random.Random(f"{seed}/{case}")
            suffix = rng.choice(list(tables))
            content = damage(tables[suffix], rng)
            try:
                outcomes[suffix, try_case(suffix, content, Path(folder), rng.choice([ROLES, {}]))] += 1
            except BaseException:
                print(f"case {case} of seed {seed}: {suffix} {content!r}", flush=True)
                raise
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    outcomes = run_cases(arguments.cases, arguments.seed)
    print(f"{arguments.cases:,} damaged tables, seed {arguments.seed}")
    for (suffix, outcome), count in sorted(outcomes.items()):
        print(f"{suffix:10} {outcome:8} {count:10,}")
