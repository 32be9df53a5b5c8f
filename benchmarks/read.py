"""What it costs to lose no row: reading a csv file with and without the check of every record.

    python benchmarks/read.py --rows 5000000

Compares `gr.read`'s reading of the needed columns with the scan of Polars alone, which skips the columns it does not read and
the check, within one run. Prints seconds, peak memory and their ratios.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from measure import seconds

import gramian as gr
from gramian.data.numbers import parse_integers
from gramian.data.sources import find_sources
from gramian.data.tables import Columns
from gramian.data.text_files import read_text_table
from gramian.data.text_format import TextFormat

COLUMNS = Columns("user_id", "item_id", None, None, "time", None)


def write_events(path: Path, n_rows: int, quoted: bool) -> None:
    """Write random events with ids, a rating, a time, and a title that is not read."""
    rng = np.random.default_rng(0)
    titles = np.array(['"Good, Bad, Ugly"' if quoted else "Alien"] * 9 + ["The Long Goodbye"])
    columns = [rng.integers(1, n_rows // 50, n_rows), rng.integers(1, 20_000, n_rows), rng.integers(1, 6, n_rows)]
    columns += [np.sort(rng.integers(10**9, 1_700_000_000, n_rows))]
    with path.open("w") as file:
        file.write("user_id,item_id,rating,time,title\n")
        chosen = titles[rng.integers(0, 10, n_rows)]
        file.writelines(f"{u},{i},{r},{t},{name}\n" for u, i, r, t, name in zip(*columns, chosen, strict=True))


def read_checked(path: Path) -> object:
    return read_text_table(find_sources(path), TextFormat(), lambda names: COLUMNS).series()


def read_unchecked(path: Path) -> object:
    frame = pl.scan_csv(path, infer_schema=False).select(COLUMNS.needed).collect()
    return [parse_integers(frame[name]) for name in COLUMNS.needed]


def peak_in_new_process(job: str, path: Path) -> int:
    """Return the peak memory of a job in bytes; in this process, memory that was freed before would hide it."""
    code = f"import measure, pathlib, read; print(measure.peak_bytes(lambda: read.{job}(pathlib.Path({str(path)!r})))[1])"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return int(done.stdout)


def compare(path: Path, title: str) -> None:
    """Print seconds and peak memory with and without the check."""
    megabytes = path.stat().st_size / 1e6
    read_checked(path)  # compiles the scan and warms the file cache
    checked = min(seconds(lambda: read_checked(path)) for _ in range(3))
    unchecked = min(seconds(lambda: read_unchecked(path)) for _ in range(3))
    peaks = [peak_in_new_process(name, path) for name in ("read_checked", "read_unchecked")]
    whole = seconds(lambda: gr.read(path, time="time"))
    print(f"{title}, {megabytes:.0f} MB")
    print(f"  checked   {checked:6.2f} s  {megabytes / checked:5.0f} MB/s  peak {peaks[0] / 1e6:6.0f} MB")
    print(f"  unchecked {unchecked:6.2f} s  {megabytes / unchecked:5.0f} MB/s  peak {peaks[1] / 1e6:6.0f} MB")
    print(
        f"  ratio     {checked / unchecked:6.2f}    of memory {peaks[0] / peaks[1]:.2f}    gr.read in all {whole:.2f} s",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for quoted in (False, True):
            path = Path(folder) / f"events-{quoted}.csv"
            write_events(path, arguments.rows, quoted)
            compare(path, f"{arguments.rows:,} rows, {'quoted' if quoted else 'unquoted'} titles")
