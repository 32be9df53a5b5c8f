"""The cost of a fit."""

import subprocess
import sys

import gramian as gr
from gramian.experiments import trial
from gramian.experiments.trial import warm_up

MEASURE_TWICE = """
import numpy as np
from gramian.experiments.trial import MeasuredCost

for _ in range(2):  # the second time, freed memory of the first may not have been returned to the system
    with MeasuredCost() as cost:
        np.ones(40_000_000, np.uint8).sum()
        np.ones(10_000_000, np.uint8).sum()
    print(cost.peak_bytes)
"""


def test_the_peak_memory_is_that_of_the_measured_code():
    # in a process of its own: the system may take idle pages of a long test run away meanwhile
    answer = subprocess.run([sys.executable, "-c", MEASURE_TWICE], capture_output=True, text=True, check=True)
    for peak in answer.stdout.split():
        assert 38e6 < int(peak) < 60e6
    assert len(answer.stdout.split()) == 2


def test_a_warm_up_fits_small_versions_of_its_recipes_and_no_others(monkeypatch):
    fitted, run = [], trial.Trial.run
    monkeypatch.setattr(trial.Trial, "run", lambda recipe, split: fitted.append(recipe) or run(recipe, split))
    warm_up(gr.IALS(rank=64, n_epochs=16), gr.LRR(rank=3, l2=7), gr.VLAE(rank=10**6))
    assert fitted == [gr.IALS(rank=4, n_epochs=1), gr.LRR(rank=3, l2=7), gr.VLAE(rank=4)]
