"""Several models side by side: the order, the paired tests, and who may be called the winner."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_rel

import gramian as gr
from gramian.evaluation.comparison import correct_p_values
from gramian.evaluation.report import Comparison

USERS = list(range(400))
RNG = np.random.default_rng(0)
BASE = RNG.random(400)


def report(values, **more):
    return gr.Report({"ndcg@20": np.asarray(values)}, {}, USERS, "a split", ("ndcg@20",), **more)


REPORTS = {
    "worst": report(BASE - 0.3),
    "best": report(BASE + RNG.normal(0.001, 0.1, 400)),
    "second": report(BASE),
}


def test_models_are_ordered_and_compared_with_the_best():
    comparison = gr.compare(REPORTS)
    order = sorted(REPORTS, key=lambda name: -REPORTS[name]["ndcg@20"])
    assert list(comparison.reports) == order
    assert comparison.best == order[0]
    assert set(comparison.behind) == set(order[1:])
    best = REPORTS[comparison.best].per_user["ndcg@20"]
    for factor, name in ((2, "worst"), (1, order[1])):  # Holm's factors: the smaller p-value of two is doubled
        paired, values = comparison.behind[name], REPORTS[name].per_user["ndcg@20"]
        assert paired.p_value == pytest.approx(factor * ttest_rel(values, best).pvalue)
        assert paired.difference == pytest.approx((values - best).mean())


@pytest.mark.parametrize("seed", range(5))
def test_corrected_p_values_are_those_of_the_definition(seed):
    p_values = np.random.default_rng(seed).random(6) ** 3
    tests = {f"model {n}": Comparison("ndcg@20", -0.1, 0.01, p) for n, p in enumerate(p_values)}
    corrected = correct_p_values(tests | {"one user": Comparison("ndcg@20", 0, 0, float("nan"))})
    assert np.isnan(corrected["one user"].p_value)
    for n, p_value in enumerate(p_values):
        naive = max((1 + sum(p_values > smaller)) * smaller for smaller in p_values if smaller <= p_value)
        assert corrected[f"model {n}"].p_value == pytest.approx(min(1, naive))


def test_a_single_test_needs_no_correction_and_equal_ones_stay_equal():
    test = Comparison("ndcg@20", -0.1, 0.01, 0.04)
    assert correct_p_values({}) == {}
    assert correct_p_values({"a": test}) == {"a": test}
    assert {c.p_value for c in correct_p_values({"a": test, "b": test}).values()} == {0.08}


def test_a_winner_needs_significance():
    comparison = gr.compare(REPORTS)
    assert comparison.winner is None
    assert set(comparison.tied) == {"best", "second"}
    assert "no significant difference" in str(comparison)
    clear = gr.compare(REPORTS | {"clear": report(BASE + 0.2)})
    assert clear.winner == clear.best == "clear"
    assert clear.tied == ["clear"]
    assert "clear is significantly better" in repr(clear)


def test_equal_models_and_a_single_model_have_no_winner():
    equal = gr.compare({"a": report(BASE), "b": report(BASE)})
    assert equal.winner is None
    assert equal.tied == ["a", "b"]
    assert gr.compare({"alone": report(BASE)}).winner is None


def test_the_table_has_standard_errors_and_p_values():
    frame = gr.compare(REPORTS).frame()
    assert frame.columns == ["model", "ndcg@20", "ndcg@20 stderr", "behind", "behind stderr", "p"]
    assert frame["behind"].to_list()[0] is None
    assert (frame["behind"].drop_nulls() > 0).all()
    single = gr.compare({"alone": report(BASE)}).frame()
    assert single.height == 1


def test_models_are_ordered_by_the_metric_that_is_asked_for():
    first = replace(report(BASE), catalog={"coverage@20": 0.1}, metrics=("coverage@20", "ndcg@20"))
    assert gr.compare({"a": first}).metric == "ndcg@20"  # coverage has no value for each user
    with pytest.raises(gr.errors.InvalidInput, match="recall@5"):
        gr.compare(REPORTS, "recall@5")


@pytest.mark.parametrize("reports", [{}, [], {"a": 1}, None])
def test_anything_but_reports_is_refused(reports, refused):
    with refused(gr.errors.InvalidInput, "reports by the names"):
        gr.compare(reports)


def test_reports_of_different_splits_are_refused(refused):
    with refused(gr.errors.InvalidInput, "same split"):
        gr.compare(REPORTS | {"other": replace(report(BASE), split="another split")})


def test_names_are_escaped_in_a_notebook():
    html = gr.compare({"<b>": report(BASE), "b": report(BASE - 1)})._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert isinstance(gr.compare(REPORTS).frame(), pl.DataFrame)
