"""Fixtures for the tests of experiments."""

import pytest

from gramian.experiments import runner


@pytest.fixture
def fits(monkeypatch):
    """The fits that were measured, in order, without warming up."""
    measured, enter = [], runner.MeasuredCost.__enter__

    def recording_enter(cost):
        measured.append(cost)
        return enter(cost)

    monkeypatch.setattr(runner.MeasuredCost, "__enter__", recording_enter)
    monkeypatch.setattr(runner, "warm_up", lambda *recipes: None)
    return measured
