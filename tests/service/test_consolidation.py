"""Updates that are subtracted from a served matrix in a thread, while further ones arrive."""

import logging
import threading

import numpy as np
import pytest

import gramian as gr
from gramian.linalg.product import expand
from gramian.linalg.recycled import RecycledMemory
from gramian.linalg.updated import UpdatedSymmetric
from gramian.service import consolidation as module
from gramian.service.consolidation import Consolidation
from gramian.service.live_updates import deferred_rank

RECIPE = gr.EASE(l2=5)


@pytest.fixture
def model(texts):
    """A model that has forgotten one user, whose update is deferred."""
    fitted = RECIPE.fit(texts)
    updated = fitted.with_scorer(fitted.scorer.with_inverse(UpdatedSymmetric.of(expand(fitted.scorer.inverse))))
    return updated.forget_users(texts.users[:1])


@pytest.fixture
def consolidation():
    thread = Consolidation("ease", RecycledMemory())
    yield thread
    thread.finish()


def test_the_new_matrix_has_no_updates_and_the_same_weights(model, consolidation):
    assert deferred_rank(model)
    consolidation.begin(model)
    consolidation.finish()
    consolidated = consolidation.apply(model)
    assert not deferred_rank(consolidated)
    np.testing.assert_allclose(consolidated.weights(), RECIPE.fit(model.histories).weights(), atol=2e-4)
    assert consolidation.apply(consolidated) is None
    consolidation.begin(consolidated)  # which has nothing to subtract
    assert not consolidation.is_running


def test_updates_that_arrive_meanwhile_stay_beside_the_new_matrix(model, consolidation, monkeypatch):
    may_end, subtracted = threading.Event(), UpdatedSymmetric.subtracted

    def wait(matrix):
        assert may_end.wait(30)
        return subtracted(matrix)

    monkeypatch.setattr(UpdatedSymmetric, "subtracted", wait)
    consolidation.begin(model)
    later = model.forget_users(model.users[:1])
    assert consolidation.is_running
    assert consolidation.apply(later) is None
    may_end.set()
    consolidation.finish()
    consolidated = consolidation.apply(later)
    assert consolidated.scorer.inverse.rank == later.scorer.inverse.rank - model.scorer.inverse.rank > 0
    np.testing.assert_allclose(consolidated.weights(), RECIPE.fit(later.histories).weights(), atol=2e-4)


def test_a_new_matrix_is_dropped_if_the_model_was_replaced(model, consolidation, texts):
    consolidation.begin(model)
    consolidation.finish()
    assert consolidation.apply(RECIPE.fit(texts)) is None
    assert consolidation.apply(model) is None


def test_a_failure_is_logged_and_tried_again_later(model, consolidation, monkeypatch, caplog):
    def fail(matrix):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(UpdatedSymmetric, "subtracted", fail)
        with caplog.at_level(logging.ERROR):
            consolidation.begin(model)
            consolidation.finish()
    assert "the updates of ease cannot be consolidated" in caplog.text
    assert consolidation.source is None  # the old matrix has the user that was forgotten
    assert consolidation.apply(model) is None
    consolidation.begin(model)
    assert not consolidation.is_running
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    consolidation.begin(model)
    consolidation.finish()
    assert not deferred_rank(consolidation.apply(model))
