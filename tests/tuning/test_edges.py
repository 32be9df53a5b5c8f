"""A search whose best point is at an edge says so, and goes on where that is cheap."""

import pytest

import gramian as gr
from gramian.core.params import configurable, param
from gramian.data.synthetic import clustered
from gramian.linalg.coefficients import Coefficients
from gramian.models.autoencoders import KEPT_WEIGHTS
from gramian.models.full_rank import LinearAutoencoder
from gramian.tuning.edges import Edge, find_edges, next_value, points_beyond
from gramian.tuning.space import Range, Space

EVENTS = clustered(150, 200, 3_000)  # best at an l2 of about 1,000
SPLIT = gr.split.strong(EVENTS, validation_users=0, test_users=0.4)


def test_an_optimum_at_the_end_of_a_list_is_said():
    with pytest.warns(gr.errors.SearchEdgeWarning, match="upper end of what was tried: higher values may be better"):
        search = gr.tune(gr.EASE, SPLIT, {"l2": [0.01, 0.1, 1]})
    (edge,) = search.edges
    assert (edge.name, edge.value, edge.is_highest) == ("l2", 1, True)
    assert not search.added  # a list that the caller named is not extended
    assert str(edge) in str(search)
    assert str(edge) in search._repr_html_()
    with pytest.warns(gr.errors.SearchEdgeWarning, match="lower end of what was tried: lower"):
        search = gr.tune(gr.EASE, SPLIT, {"l2": [1e3, 1e5, 1e7]})
    assert not search.edges[0].is_highest


def test_an_optimum_within_its_list_says_nothing():
    search = gr.tune(gr.EASE, SPLIT, {"l2": [1, 10, 1000, 1e6]})
    assert search.recipe.l2 == 1000
    assert search.edges == ()
    assert "\n" not in str(search)


def test_the_end_of_what_is_possible_is_no_edge():
    space = Space(gr.EDLAE, {"dropout": [0, 0.3, 0.6], "l2": [10]})
    recipes = space.grid()
    assert find_edges(space, recipes, recipes[:1]) == ()  # dropout=0 cannot be lower
    assert [edge.name for edge in find_edges(space, recipes, recipes[2:])] == ["dropout"]


def test_two_values_have_no_middle():
    space = Space(gr.EASE, {"l2": [1, 2]})
    assert find_edges(space, space.grid(), space.grid()[1:]) == ()


def test_equally_good_points_within_the_list_are_no_edge():
    space = Space(gr.EASE, {"l2": [1, 2, 3]})
    recipes = space.grid()
    assert find_edges(space, recipes, recipes[1:]) == ()


@pytest.mark.parametrize(
    ("low", "high", "value", "is_edge"), [(1, 1000, 900, True), (1, 1000, 500, False), (0.1, 0.8, 0.11, True)]
)
def test_the_edge_of_a_range_is_its_last_twentieth(low, high, value, is_edge):
    name = "l2" if high > 1 else "dropout"
    space = Space(gr.EDLAE, {name: (low, high)})
    assert isinstance(space.axes[name], Range)
    recipes = [gr.EDLAE(**{name: v}) for v in (low, value, (low + high) / 2, high)]
    assert bool(find_edges(space, recipes, recipes[1:2])) == is_edge


@pytest.mark.parametrize(
    ("tried", "is_highest", "below", "expected"),
    [
        ([10, 30, 100], True, float("inf"), 333),
        ([10, 30, 100], False, float("inf"), 3.33),
        ([0, 0.45, 0.9], True, 1, 0.95),
        ([0, 2], True, float("inf"), 4),
    ],
)
def test_the_next_value_continues_the_list(tried, is_highest, below, expected):
    assert next_value(tried, is_highest, below) == expected


@configurable
class WeakEASE(LinearAutoencoder):
    """EASE whose own list ends far below the best penalty."""

    l2: float = param(1.0, "the penalty", at_least=0, tries=(0.01, 0.1, 1))

    @property
    def coefficients(self):
        return Coefficients(ridge=self.l2)


def test_a_list_of_the_model_is_extended_a_few_times():
    with pytest.warns(gr.errors.SearchEdgeWarning, match="l2=1000 is at the upper end"):
        search = gr.tune(WeakEASE, SPLIT, dtype="float64")
    assert search.added == {"l2": (10, 100, 1000)}
    assert sorted(result.recipe.l2 for result in search.results) == [0.01, 0.1, 1, 10, 100, 1000]
    assert search.recipe.l2 == 1000
    assert "10, 100, 1000 added to the values of l2" in str(search)
    for result in search.results:
        report = gr.evaluate(result.recipe.fit(SPLIT.train, dtype="float64"), SPLIT, ["ndcg@20"])
        assert result.value == pytest.approx(report["ndcg@20"], abs=1e-12)


def test_a_search_that_is_not_to_be_extended_is_its_grid():
    with pytest.warns(gr.errors.SearchEdgeWarning, match="l2=1 is at the upper end"):
        search = gr.tune(WeakEASE, SPLIT, dtype="float64", extend=False)
    assert not search.added
    assert len(search.results) == 3


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
def test_an_extended_search_continues_from_its_journal(tmp_path):
    first, again = (gr.tune(WeakEASE, SPLIT, dtype="float64", journal=tmp_path / "journal.jsonl") for _ in range(2))
    assert [(result.recipe, result.value) for result in again.results] == [(r.recipe, r.value) for r in first.results]
    assert again.edges == first.edges
    assert again.added == first.added != {}


def beyond(model, edge, values=None):
    space = Space(model, values)
    return points_beyond(space, [edge], space.grid(), model()).get(edge.name, [])


def test_free_parameters_are_varied_at_a_new_value():
    points = beyond(gr.DEQL, Edge("l2", 3000.0, True))
    assert {point.l2 for point in points} == {9000}
    assert {point.dropout for point in points} == {gr.DEQL().dropout}
    assert sorted(point.kept_weight for point in points) == sorted(KEPT_WEIGHTS)
    (point,) = beyond(gr.DEQL, Edge("kept_weight", 3.0, True))
    assert point == gr.DEQL(kept_weight=4.5)


@pytest.mark.parametrize(
    ("model", "edge", "values"),
    [
        (gr.LRR, Edge("rank", 512, True), {"l2": [10]}),  # a higher rank costs more
        (gr.IALS, Edge("l2", 1e-3, False), {"rank": [8]}),  # every value costs a training
        (gr.EASE, Edge("l2", 30.0, True), {"l2": [1, 10, 30]}),  # the caller's own list
    ],
)
def test_what_is_expensive_or_asked_for_is_not_extended(model, edge, values):
    assert beyond(model, edge, values) == []
