"""A small table of models on synthetic data, for the tests of experiments."""

import numpy as np

from gramian.data.synthetic import clustered
from gramian.experiments.experiment import EventsData, Experiment, ModelEntry

EVENTS = clustered(300, 60, 6_000, n_tastes=5)
DATA = EventsData("some", "strong", {}, events=EVENTS)
EASE = ModelEntry("EASE", "EASE", {"l2": 5})
POPULARITY = ModelEntry("Popularity", "Popularity")
EDLAE = ModelEntry("EDLAE", "EDLAE", {"dropout": [0.2, 0.5], "l2": [5, 50]})
DEQL = ModelEntry("DEQL(zero)", "DEQL", {"dropout": [0.2, 0.5], "kept_weight": [0.5, 2], "l2": [5, 50], "zero_diagonal": True})
METRICS = {"recall@20": "recall@20", "ndcg@20": "ndcg@20"}


def table(*entries, data=(DATA,), metrics=METRICS, **more):
    """An experiment of these models on the small data."""
    return Experiment("table", "A table", metrics, "ndcg@20", tuple(data), entries, **more)


def pairs(events):
    """The set of (user id, item id) of interactions."""
    users, items = np.array(events.users.tolist()), np.array(events.items.tolist())
    return set(zip(users[events.rows], items[events.matrix.indices], strict=True))
