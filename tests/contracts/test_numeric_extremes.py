"""What every registered model promises at numeric extremes: finite scores, or an error that says what to do."""

import pytest

from contracts.extremes import run_case
from contracts.samples import models

CASES = 24  # of each model; benchmarks/numeric_extremes.py runs more


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_scores_are_finite_or_refused(model):
    outcomes = [run_case(model, seed) for seed in range(CASES)]
    assert "finite" in outcomes  # not everything is refused
