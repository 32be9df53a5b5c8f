"""What every registered metric promises."""

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.core.registry import METRICS
from gramian.data.ids import Index
from gramian.evaluation.metrics import RankedLists, parse_metric

pytestmark = pytest.mark.parametrize("metric", list(METRICS.values()), ids=str)


def lists(hits):
    hits = np.asarray(hits, bool)
    columns = np.arange(hits.size, dtype=np.int32).reshape(hits.shape) % 50
    targets = np.zeros((len(hits), 50), np.float32)
    np.put_along_axis(targets, columns, hits, axis=1)
    tags = [("Comedy",), ("Drama", "War"), ()]
    catalog = gr.Catalog(Index(range(50)), np.arange(50, 0, -1), tags=[tags[item % 3] for item in range(50)])
    histories = sp.csr_array(np.eye(len(hits), 50)[:, ::-1])
    return RankedLists(columns, hits, np.maximum(hits.sum(axis=1), 1), catalog, 100, sp.csr_array(targets), histories)


def test_a_metric_is_found_by_its_name(metric):
    assert parse_metric(f"{metric.name}@7") == metric.at(7)
    assert str(metric.at(7)) == f"{metric.name}@7"
    assert metric.needs <= {"hits", "popularity", "tags", "histories"}


def test_it_has_a_value_for_each_user_or_one_for_all(metric):
    values = metric.at(3)(lists([[1, 0, 0], [0, 0, 1]]))
    assert np.shape(values) == ((2,) if metric.per_user else ())
    assert np.isfinite(values).all()


def test_metrics_of_hits_are_between_0_and_1_and_grow_with_them(metric):
    if "hits" not in metric.needs:
        return
    none, late, early = metric.at(3)(lists([[0, 0, 0], [0, 0, 1], [1, 0, 0]]))
    assert none == 0
    assert 0 < late <= early <= 1


def test_what_is_beyond_the_cut_off_does_not_count(metric):
    if "hits" in metric.needs:
        np.testing.assert_array_equal(metric.at(1)(lists([[0, 1, 1]])), 0)
