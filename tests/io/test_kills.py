"""Processes that are killed while they write, and disks that are full: the old or the new file, and no leftovers."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gramian as gr
from gramian.data.synthetic import clustered

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill_saves.py"


@pytest.mark.parametrize("options", [[], ["--two-renames"], ["--what", "vectors"]], ids=" ".join)
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(options):
    run = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "30", *options], capture_output=True, text=True, check=False, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("30 kills")


FULL_DISK = """
import os, resource, signal, sys
import gramian as gr
from gramian.data.synthetic import clustered
model = gr.EASE().fit(clustered(200, 200, 2_000))  # 160 kB
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # bytes that a file may have
for write in (lambda: model.save("m"), lambda: model.recommend_to("lists.parquet", k=100)):
    try:
        write()
    except OSError as error:
        print(error)
"""


def test_a_write_that_fails_keeps_the_old_and_leaves_nothing(tmp_path):
    events = clustered(20, 10, 100)
    gr.Popularity().fit(events).save(tmp_path / "m")
    code = textwrap.dedent(FULL_DISK)
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    save_error, export_error = run.stdout.splitlines()
    assert "the model was not saved, and what was there is unchanged" in save_error
    assert "lists.parquet" in export_error
    assert os.listdir(tmp_path) == ["m"]
    assert gr.load(tmp_path / "m").recipe == gr.Popularity()
