"""What every registered model promises with its default parameters on real data: it beats Popularity, and nothing warns.

The data are cut to a core of active users and items, so that models trained by gradients take seconds.
"""

import warnings

import pytest

import gramian as gr
from contracts.samples import models

DATA = {"movielens": {"min_value": 4}, "lastfm-2k": {}}
METRIC = "ndcg@20"


@pytest.fixture(scope="module")
def splits():
    """The split of each data set, made once, with Popularity's value on it."""
    made = {}

    def split_of(name):
        if name not in made:
            events = gr.datasets.load(name, **DATA[name]).k_core(20)
            events = events.with_features(gr.Features.of_catalog(events.catalog, tags=events.tags is not None, titles=True))
            split = gr.split.strong(events, seed=0)
            made[name] = split, gr.evaluate(gr.Popularity().fit(split.train), split, [METRIC])[METRIC]
        return made[name]

    return split_of


def require_better_than_popularity(model, split, popularity):
    if model.needs_times and split.train.times is None:
        pytest.skip("a model of sequences needs times")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model().fit(split.train)
    assert gr.evaluate(fitted, split, [METRIC])[METRIC] >= popularity


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_defaults_beat_popularity_on_the_bundled_data(model, splits):
    require_better_than_popularity(model, *splits("movielens"))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_defaults_beat_popularity_on_lastfm(model, splits, shared_data):
    require_better_than_popularity(model, *splits("lastfm-2k"))
