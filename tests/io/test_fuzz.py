"""Some thousand random damages under valid checksums; benchmarks/fuzz_models.py without options runs a million."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_models.py"


def test_a_damaged_model_is_refused_or_works():
    run = subprocess.run([sys.executable, SCRIPT, "--cases", "2000"], capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2,000 cases, 0 failures" in run.stdout
