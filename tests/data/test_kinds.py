"""Several kinds of events: added up with weights, or kept apart as sets."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gramian as gr
from gramian.data.kinds import MAX_KINDS, expand_kinds

KINDS = ["view", "cart", "buy"]
WEIGHTS = {"view": 0.25, "cart": 0.5, "buy": 1}
LOG = pl.DataFrame(
    {
        "user": ["a", "a", "a", "a", "b", "b", "c"],
        "item": [1, 1, 1, 2, 1, 3, 2],
        "event": ["view", "view", "buy", "view", "cart", "buy", "view"],
        "time": [1, 2, 9, 4, 5, 6, 7],
    }
)
logs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(KINDS)), min_size=1, max_size=30)


def apart(log=LOG, **options):
    return gr.Interactions.of(log, kind="event", kinds=KINDS, **options)


def test_kinds_add_up_with_their_weights_and_repetitions_of_a_kind_count_once():
    events = gr.Interactions.of(LOG, kind="event", weights=WEIGHTS, time="time")
    assert events.kinds is None
    assert events.matrix.toarray().tolist() == [[1.25, 0.25, 0], [0.5, 0, 1], [0, 0.25, 0]]
    assert events.times.tolist() == [9, 4, 5, 6, 7]


@given(logs)
def test_the_simple_way_is_the_weighted_sum_of_the_kinds(rows):
    log = pl.DataFrame(rows + [(9, 9, kind) for kind in KINDS], schema=["user", "item", "event"], orient="row")
    sets = apart(log)
    naive = sum(weight * sets.of_kind(kind).matrix.toarray() for kind, weight in WEIGHTS.items())
    np.testing.assert_allclose(sets.with_kind_weights(WEIGHTS).matrix.toarray(), naive)
    read = gr.Interactions.of(log, kind="event", weights=WEIGHTS)
    np.testing.assert_allclose(read.reindex(sets.users, sets.items).matrix.toarray(), naive)
    for k, kind in enumerate(KINDS):
        np.testing.assert_array_equal(
            expand_kinds(sets.matrix, 3).toarray()[:, k::3], sets.of_kind(kind).matrix.toarray(), err_msg=kind
        )


def test_values_of_a_kind_are_summed_before_they_are_weighed():
    log = LOG.with_columns(n=pl.Series([1, 2, 3, 4, 5, 6, 7]))
    events = gr.Interactions.of(log, kind="event", weights=WEIGHTS, value="n")
    assert events.matrix[0, 0] == 0.25 * (1 + 2) + 3
    counted = gr.Interactions.of(LOG, kind="event", weights=WEIGHTS, weight="binary")
    assert counted.is_binary


def test_a_kind_of_weight_0_is_dropped_and_reported():
    events = gr.Interactions.of(LOG, kind="event", weights={"view": 0, "cart": 1, "buy": 1})
    assert events.users.tolist() == ["a", "b"]
    assert "4 of kinds with weight 0" in str(events.read_summary)


def test_kinds_kept_apart_are_sets():
    events = apart(time="time")
    assert events.kinds == ("view", "cart", "buy")
    assert events.matrix.toarray().tolist() == [[1 + 4, 1, 0], [2, 0, 4], [0, 1, 0]]
    assert "kinds view, cart, buy" in repr(events)
    assert events.of_kind("buy").frame()["item_id"].to_list() == [1, 3]
    assert sorted(events.frame().select("user_id", "item_id", "kind").rows()) == sorted(
        set(LOG.select("user", "item", "event").rows())
    )
    assert events.popularity.tolist() == [2, 2, 1]


def test_kinds_are_kept_by_what_makes_interactions_of_interactions():
    events = apart(time="time")
    others = apart(LOG.with_columns(user=pl.col("user") + "2"))
    made = [
        events.take(np.array([1, 0])),
        events.keep(events.matrix.data > 1),
        events.compact(),
        events.k_core(1),
        events.reindex(events.users, others.items.union(events.items)),
        events.join(others),
        events.with_titles({1: "One"}),
    ]
    assert all(part.kinds == events.kinds for part in made)
    assert events.fingerprint != gr.Interactions.of(events.matrix).reindex(events.users, events.items).fingerprint


def test_files_and_sql_have_kinds_too(tmp_path):
    LOG.write_csv(tmp_path / "log.csv")
    LOG.write_parquet(tmp_path / "log.parquet")
    LOG.write_ndjson(tmp_path / "log.jsonl")
    for suffix in ("csv", "parquet", "jsonl"):
        read = gr.read(tmp_path / f"log.{suffix}", kind="event", kinds=KINDS)
        assert read.fingerprint == apart().fingerprint
        weighed = gr.read(tmp_path / f"log.{suffix}", kind="event", weights=WEIGHTS)
        assert weighed.fingerprint == gr.Interactions.of(LOG, kind="event", weights=WEIGHTS).fingerprint


def test_kinds_may_be_numbers():
    log = LOG.with_columns(event=pl.col("event").replace_strict({"view": 1, "cart": 2, "buy": 3}))
    assert gr.Interactions.of(log, kind="event", kinds=[1, 2, 3]).kinds == ("1", "2", "3")


def test_targets_are_of_the_last_kind():
    rng = np.random.default_rng(0)
    log = pl.DataFrame({"user": rng.integers(0, 60, 1500), "item": rng.integers(0, 40, 1500), "t": rng.random(1500)})
    log = log.with_columns(event=pl.Series(rng.choice(KINDS, 1500)))
    events = apart(log, time="t")
    for split in (gr.split.strong(events), gr.split.weak(events), gr.split.leave_last(events), gr.split.temporal(events)):
        assert split.target.can_be_target.all()
        assert split.target.n_interactions > 0
        seen = split.fold_in.matrix.astype(bool).multiply(split.target.matrix.astype(bool))
        assert seen.nnz == 0  # a purchase that is held out is held out with its views
        assert split.train.kinds == events.kinds


BAD = {
    "neither": ({"kind": "event"}, "neither"),
    "both": ({"kind": "event", "kinds": KINDS, "weights": WEIGHTS}, "both"),
    "no column": ({"kinds": KINDS}, "kind=... with kinds"),
    "weights without a column": ({"weights": WEIGHTS}, "kind=... with weights"),
    "no such column": ({"kind": "what", "kinds": KINDS}, "'what'"),
    "unknown kind": ({"kind": "event", "kinds": ["view", "buy"]}, "'cart' in row 5"),
    "unknown kind, weights": ({"kind": "event", "weights": {"view": 1, "buy": 1}}, "'cart' in row 5"),
    "a kind that never occurs": ({"kind": "event", "kinds": [*KINDS, "return"]}, "none of return"),
    "negative weight": ({"kind": "event", "weights": WEIGHTS | {"view": -1}}, "at least 0"),
    "NaN weight": ({"kind": "event", "weights": WEIGHTS | {"view": float("nan")}}, "at least 0"),
    "only zeros": ({"kind": "event", "weights": dict.fromkeys(KINDS, 0)}, "above 0"),
    "weights as a list": ({"kind": "event", "weights": [1, 2]}, "mapping"),
    "text of kinds": ({"kind": "event", "kinds": "view"}, "list"),
    "repeated kinds": ({"kind": "event", "kinds": ["view", "view"]}, "different"),
    "too many kinds": ({"kind": "event", "kinds": range(MAX_KINDS + 1)}, f"1 to {MAX_KINDS}"),
    "values of sets": ({"kind": "event", "kinds": KINDS, "value": "time"}, "as sets"),
    "decay of sets": ({"kind": "event", "kinds": KINDS, "time": "time", "half_life": 3}, "as sets"),
}


@pytest.mark.parametrize(("options", "mentioning"), BAD.values(), ids=BAD.keys())
def test_bad_kinds_are_refused(options, mentioning, refused):
    with refused(mentioning=mentioning):
        gr.Interactions.of(LOG, **options)


def test_what_needs_one_kind_refuses_several(refused):
    events = apart(time="time")
    for call in (lambda e: e.with_weights("log"), lambda e: e.decayed(3), gr.Gram.of, gr.EASE().fit):
        with refused(mentioning="with_kind_weights"):
            call(events)
    with refused(mentioning="'sell'"):
        events.of_kind("sell")
    with refused(mentioning="'sell'"):
        events.with_kind_weights({"sell": 1})
    with refused(mentioning="none for 'view'"):
        events.with_kind_weights({"buy": 1, "cart": 1})
    with refused(mentioning="one kind"):
        gr.Interactions.of(LOG).of_kind("buy")
    with refused(mentioning="the same kinds"):
        events.join(gr.Interactions.of(LOG.with_columns(user=pl.col("user") + "2")))
    with refused(mentioning="skip_nulls"):
        gr.Interactions.of(LOG.with_columns(event=None), kind="event", kinds=KINDS)
