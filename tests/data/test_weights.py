"""Weights made from counts: their formulas, their mean of 1, users who come later, and the warning of heavy tails."""

import warnings
from math import log

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import gramian as gr
from gramian.data.weights import WEIGHTINGS
from gramian.errors import HeavyTailWarning

COUNTS = gr.Interactions.of(np.array([[3, 0, 1], [1, 7, 0], [2, 1, 1], [5, 0, 0]]))
matrices = st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=2, max_size=6).filter(np.any)


def naive_weights(counts, weight):
    """The formulas of the module's header, entry by entry."""
    n_users, raw = len(counts), {}
    mean_length = counts.sum(axis=1).mean()
    for u, i in zip(*counts.nonzero(), strict=True):
        c, n, length = counts[u, i], (counts[:, i] > 0).sum(), counts[u].sum()
        raw[u, i] = {
            "binary": 1,
            "log": log(1 + c),
            "tfidf": log(1 + c) * (1 + log((1 + n_users) / (1 + n))),
            "bm25": c * 2.2 / (c + 1.2 * (0.25 + 0.75 * length / mean_length)) * log(1 + (n_users - n + 0.5) / (n + 0.5)),
        }[weight]
    mean = np.mean(list(raw.values()))
    return {pair: value / mean for pair, value in raw.items()}


@pytest.mark.parametrize("weight", WEIGHTINGS)
@given(matrices)
def test_weights_are_those_of_the_formulas_with_a_mean_of_1(weight, rows):
    counts = np.array(rows)
    weighted = gr.Interactions.of(counts, weight=weight)
    assert weighted.matrix.data.mean() == pytest.approx(1, rel=1e-5)
    expected = naive_weights(counts, weight)
    actual = {(u, i): weighted.matrix[u, i] for u, i in zip(*weighted.matrix.nonzero(), strict=True)}
    assert actual == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weight", WEIGHTINGS)
def test_users_who_come_later_are_weighed_as_the_training_data_was(weight):
    all_weighted = COUNTS.with_weights(weight)
    later = COUNTS.take(np.array([2, 0]))
    np.testing.assert_allclose(
        later.with_weights(weight, reference=COUNTS).matrix.toarray(),
        all_weighted.take(np.array([2, 0])).matrix.toarray(),
        rtol=1e-6,
    )


def test_items_that_only_later_users_have_get_a_weight():
    later = gr.Interactions.of(pl.DataFrame({"user": [9, 9], "item": [0, 77], "n": [1, 4]}), value="n")
    weights = later.with_weights("bm25", reference=COUNTS)
    assert weights.items.tolist() == [0, 77]
    assert weights.matrix[0, 1] > weights.matrix[0, 0] > 0  # nobody had item 77 before, so it says more


def test_events_without_values_are_counted():
    table = pl.DataFrame({"user": [1, 1, 1, 2], "item": ["a", "a", "b", "a"]})
    counted = gr.Interactions.of(table, weight="log").matrix.toarray()
    assert counted[0, 0] / counted[0, 1] == pytest.approx(log(3) / log(2))
    assert gr.Interactions.of(table).is_binary
    assert gr.Interactions.of(table, weight="binary").is_binary


def test_read_and_a_named_data_set_take_a_weight(tmp_path):
    (tmp_path / "plays.csv").write_text("user,item,plays\n1,1,9\n1,2,1\n2,1,4\n")
    read = gr.read(tmp_path / "plays.csv", value="plays", weight="log")
    expected = gr.read(tmp_path / "plays.csv", value="plays").with_weights("log")
    assert read.fingerprint == expected.fingerprint
    assert gr.datasets.load("movielens", weights=True, weight="binary").is_binary


def test_the_rest_stays_as_it_is():
    table = pl.DataFrame({"user": [1, 2], "item": [1, 1], "n": [3, 4], "t": [5, 6]})
    counts = gr.Interactions.of(table, value="n", time="t").with_titles({1: "One"})
    weighted = counts.with_weights("log")
    assert (weighted.titles, weighted.times.tolist(), weighted.read_summary) == (["One"], [5, 6], counts.read_summary)
    assert counts.matrix.data.tolist() == [3, 4]


def test_an_unknown_weight_is_refused(refused):
    for make in (COUNTS.with_weights, lambda weight: gr.Interactions.of(COUNTS.frame(), weight=weight)):
        with refused(mentioning="binary, log, bm25, tfidf"):
            make("sqrt")


def plays(values):
    n = len(values)
    return pl.DataFrame({"user": range(n), "item": [k % 7 for k in range(n)], "n": values})


def test_heavy_tails_are_told_once_with_what_to_choose():
    heavy = plays(np.random.default_rng(0).lognormal(sigma=2.5, size=2000) + 1e-3)
    with pytest.warns(HeavyTailWarning, match="weight='log'") as caught:
        gr.Interactions.of(heavy, value="n")
    assert len(caught) == 1
    with pytest.warns(HeavyTailWarning):
        gr.Interactions.of(sp.csr_array(np.diag(heavy["n"].to_numpy())))


def test_what_is_no_heavy_tail_is_not_told():
    random = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gr.Interactions.of(plays(random.integers(1, 6, 2000)), value="n")
        gr.Interactions.of(plays(random.exponential(size=2000) + 1e-3), value="n")
        gr.Interactions.of(plays([1.0] * 50 + [1e6]), value="n")  # too few to speak of a tail
        gr.Interactions.of(plays(random.lognormal(sigma=2.5, size=2000) + 1e-3), value="n", weight="log")
        gr.Interactions.of(plays(random.lognormal(sigma=2.5, size=2000) + 1e-3))
