"""What every registered model promises: a fit takes the memory that its estimate says, no more and not much less."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gramian as gr

SCRIPT = Path(__file__).with_name("measure_peaks.py")
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # give back at once
NOISE = 6 * 2**20  # bytes that threads, code and small objects take


@pytest.fixture(scope="module")
def peaks():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, env=os.environ | MALLOC)
    assert done.returncode == 0, done.stderr
    return {name: (estimate, peak) for name, estimate, peak in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", [*gr.MODELS, "EASE of few users", "DAN of few users"])
def test_a_fit_takes_the_memory_of_its_estimate(name, peaks):
    estimate, peak = peaks[name]
    assert peak <= 1.15 * estimate + NOISE, f"{peak / estimate:.2f} × the estimate"
    assert peak >= 0.6 * estimate - NOISE, f"{peak / estimate:.2f} × the estimate"
