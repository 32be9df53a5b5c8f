"""Every example runs on the bundled data, in an empty folder, and ends with its picture."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_draws_its_answer(example, tmp_path):
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{example.stem}.svg").stat().st_size > 1_000


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_opens_with_a_question_and_ends_with_an_answer(example):
    cells = re.split(r"^# %%", example.read_text(), flags=re.MULTILINE)[1:]
    assert re.search(r"\*\*.*\?.*\*\*", cells[0])
    assert "## The answer" in cells[-2]
    assert f'savefig("{example.stem}.svg"' in cells[-1]
