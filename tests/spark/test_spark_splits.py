"""Splits on a cluster are those of one machine."""

import pytest

import gramian as gr
from spark_support import SPARK_MARKS, assert_same_interactions

pytestmark = SPARK_MARKS


SPLITS = {
    "strong": {"validation_users": 0.1, "test_users": 30, "seed": 3},
    "weak": {"validation": 0.1, "test": 0.2, "seed": 1},
    "leave_last": {"k": 2},
    "temporal": {"test_from": 800_000, "validation_from": 700_000},
}


@pytest.mark.parametrize("name", SPLITS)
def test_splits_are_those_of_one_machine(name, spark_events, local_events):
    actual = getattr(gr.spark, f"{name}_split")(spark_events, **SPLITS[name])
    expected = getattr(gr.split, name)(local_events, **SPLITS[name])
    assert_same_interactions(actual.train.local(), expected.train)
    for part, other in ((actual, expected), (actual.validation, expected.validation)):
        assert_same_interactions(part.fold_in.local(), other.fold_in)
        assert_same_interactions(part.target.local(), other.target)
    held_out = actual.local()
    assert held_out.n_train_users == expected.train.n_users
    assert held_out.fingerprint != actual.validation.local().fingerprint
    reports = [
        gr.evaluate(gr.EASE(l2=20).fit(train), users, ["ndcg@10", "novelty@10"])
        for train, users in ((actual.train, held_out), (expected.train, expected))
    ]
    for metric in ("ndcg@10", "novelty@10"):
        assert reports[0][metric] == pytest.approx(reports[1][metric])


def test_splits_refuse_what_makes_no_sense(spark_events, local_events, frame, refused):
    untimed = gr.spark.interactions(frame, user="user", item="item")
    for divide in (gr.spark.leave_last_split, lambda events: gr.spark.temporal_split(events, test_from=1)):
        with refused(mentioning="times"):
            divide(untimed)
    with refused(mentioning="test users"):
        gr.spark.strong_split(spark_events, test_users=10_000)
    with refused(mentioning="comparable"):
        gr.spark.temporal_split(spark_events, test_from="noon")
    with refused(mentioning="Swap"):
        gr.spark.temporal_split(spark_events, test_from=5, validation_from=6)
    with refused(mentioning="gr.split"):
        gr.spark.weak_split(local_events)
    with refused(mentioning="seed of at least 0"):
        gr.spark.strong_split(spark_events, seed=-1)
    with refused(mentioning="between 0 and 1"):
        gr.spark.weak_split(spark_events, test=2.0)
    with refused(mentioning="k of at least 1"):
        gr.spark.leave_last_split(spark_events, k=0)
    with refused(mentioning="at least one target"):
        gr.spark.temporal_split(spark_events, test_from=10**9)
    with refused(mentioning="before the cut"):
        gr.spark.temporal_split(spark_events, test_from=-1)


def test_a_split_without_validation_has_none(spark):
    rows = [("a", 1, 1), ("a", 2, 2), ("b", 1, 1), ("b", 3, 2)]
    events = gr.spark.interactions(spark.createDataFrame(rows, "user string, item int, at int"), time="at")
    split = gr.spark.leave_last_split(events)
    assert split.validation is None
    assert split.target.n_interactions == 2
