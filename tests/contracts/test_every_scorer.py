"""What every registered scorer promises, for scorers that the registered models are fitted to."""

import json

import numpy as np
import pytest

import gramian as gr
from contracts.samples import EVENTS, fitted, models
from gramian.core.registry import SCORERS
from gramian.core.scorer import EncodesHistories
from gramian.io.folder import read_folder, write_folder
from gramian.models.scorers import LowRankWeights, ScorerSum


def scorers():
    """One scorer of each registered class, from the first model that is fitted to it."""
    found = {}
    for model in models():
        pending = [fitted(model).scorer]
        while pending:
            scorer = pending.pop()
            found.setdefault(scorer.name, scorer)
            pending += getattr(scorer, "scorers", ())
    return found


@pytest.fixture(scope="module")
def examples():
    return scorers()


def test_every_registered_scorer_is_made_by_a_registered_model(examples):
    assert set(examples) == set(SCORERS)


def test_panels_cover_every_column_once(examples):
    for scorer in examples.values():
        covered = np.zeros(scorer.n_items, int)
        for first, panel in scorer.panels(EVENTS.matrix):
            assert panel.shape[0] == EVENTS.n_users
            covered[first : first + panel.shape[1]] += 1
        assert (covered == 1).all(), scorer.name


def test_facts_and_arrays_restore_it(examples):
    for name, scorer in examples.items():
        facts, arrays = scorer.save()
        again = SCORERS[name].load(json.loads(json.dumps(facts)), {key: array.copy() for key, array in arrays.items()})
        for (first, panel), (_, other) in zip(scorer.panels(EVENTS.matrix), again.panels(EVENTS.matrix), strict=True):
            np.testing.assert_allclose(panel, other, rtol=1e-5, atol=1e-6, err_msg=f"{name} at {first}")


def test_a_sum_of_scorers_is_a_scorer(examples):
    rng = np.random.default_rng(0)
    weights = rng.random(EVENTS.n_items)
    low_rank = LowRankWeights(rng.standard_normal((60, 3)), rng.standard_normal((60, 3)))

    def scores(scorer):
        return gr.Recommender(scorer, gr.EASE(), EVENTS.catalog).scores(EVENTS)

    for name, scorer in examples.items():
        if name == ScorerSum.name or isinstance(scorer, EncodesHistories):  # the latter reads histories in its own way
            continue
        total = ScorerSum([scorer, low_rank], [2, -0.5], weights)
        expected = (2 * scores(scorer) - 0.5 * scores(low_rank)) * weights
        np.testing.assert_allclose(scores(total), expected, rtol=1e-3, atol=1e-3, err_msg=name)
        assert total.capabilities <= scorer.capabilities


def test_weights_expanded_for_serving_are_saved_as_what_they_came_from(tmp_path):
    model = gr.EASE().fit(EVENTS)
    expanded = model.scorer.expand()
    served = gr.Recommender(expanded, model.recipe, model.catalog, model.histories)
    np.testing.assert_allclose(served.scores(EVENTS), model.scores(EVENTS), rtol=1e-4, atol=1e-5)
    served.save(tmp_path / "model")
    np.testing.assert_array_equal(gr.load(tmp_path / "model").scores(EVENTS), model.scores(EVENTS))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_array_is_loaded_that_is_not_finite(examples, value, tmp_path):
    for scorer in examples.values():
        model = gr.Recommender(scorer, gr.EASE(), EVENTS.catalog)
        model.save(tmp_path / "model")
        facts, arrays, ids = read_folder(tmp_path / "model", "model")
        for name in (name for name, array in arrays.items() if array.dtype.kind == "f"):
            damaged = arrays[name].copy()
            damaged.reshape(-1)[-1] = value
            write_folder(tmp_path / "damaged", "model", facts, arrays | {name: damaged}, ids)
            with pytest.raises(gr.errors.DamagedFile, match="finite"):
                gr.load(tmp_path / "damaged")
