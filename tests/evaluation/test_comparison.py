"""Several models side by side: the order, the paired tests, and who may be called the winner."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_rel

import gramian as gr
from gramian.evaluation.comparison import adjust_p_values

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
    for name, paired in comparison.behind.items():
        values = REPORTS[name].per_user["ndcg@20"]
        assert paired.p_value == pytest.approx(ttest_rel(values, best).pvalue)
        assert paired.difference == pytest.approx((values - best).mean())


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


def test_p_values_are_adjusted_as_holm_does():
    p_values = [0.01, 0.04, 0.03, 0.5]
    naive, largest = {}, 0.0
    for rank, p in enumerate(sorted(p_values)):
        largest = max(largest, p * (len(p_values) - rank))
        naive[p] = min(largest, 1.0)
    assert adjust_p_values(p_values) == pytest.approx([naive[p] for p in p_values])
    assert adjust_p_values([0.02]) == [0.02]
    assert adjust_p_values([]) == []
    assert adjust_p_values([0.9, 0.8]) == [1.0, 1.0]


def test_a_tie_takes_the_number_of_comparisons_into_account():
    noise = RNG.normal(0, 0.1, 400)
    noise *= 0.0049 / abs(noise.mean()) * np.sign(noise.mean())  # about p = 0.05 for a single comparison
    slightly_worse = report(BASE - noise)
    alone = gr.compare({"best": report(BASE), "other": slightly_worse}).behind["other"].p_value
    many = {f"copy {k}": slightly_worse for k in range(20)}
    comparison = gr.compare({"best": report(BASE), **many})
    assert comparison.adjusted["copy 0"] == pytest.approx(min(1, 20 * alone))
