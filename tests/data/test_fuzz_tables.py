"""Damaged tables are read in full or refused with our own errors: a few hundred cases of benchmarks/fuzz_tables.py."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import polars as pl
import pytest

import gramian as gr
from gramian.data import read as reading

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_tables.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = spec_from_file_location("fuzz_tables", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_table_is_read_in_full_or_refused(seed, fuzz):
    outcomes = fuzz.run_cases(100, seed)
    assert outcomes.total() == 100
    assert {outcome for _, outcome in outcomes} == {"read", "refused"}


def test_a_panic_of_the_parquet_reader_is_refused(monkeypatch, tmp_path, refused):
    def panic(*words, **options):
        raise pl.exceptions.PanicException("index out of bounds")

    (tmp_path / "events.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(reading.pl, "scan_parquet", panic)
    with refused(mentioning="index out of bounds"):
        gr.read(tmp_path / "events.parquet")
