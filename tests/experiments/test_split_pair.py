"""The two splits of an experiment: one to search parameters on, one to test on."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.experiments.experiment import (
    EventsData,
    ExperimentData,
    find_experiment,
    keep_popular_items,
    make_split_pair,
)
from gramian.experiments.runner import Benchmark
from small_experiments import DATA, EASE, EVENTS, pairs, table


@pytest.mark.parametrize("name", ["strong", "weak"])
def test_parameters_are_searched_without_the_test_items(name):
    pair = make_split_pair(EVENTS, name, {"seed": 3})
    test = pairs(pair.test.target)
    seen = pairs(pair.search.train) | pairs(pair.search.fold_in) | pairs(pair.search.target)
    assert not test & seen
    assert pairs(pair.search.train) <= pairs(pair.test.train)
    if name == "weak":  # the final model is trained on the validation items
        assert pairs(pair.search.target) <= pairs(pair.test.train)
        assert pairs(pair.test.train) | test == pairs(EVENTS)


def test_the_last_items_are_for_the_test_and_those_before_for_the_search(events):
    pair = make_split_pair(events, "leave-last", {})
    assert pairs(pair.search.target) <= pairs(pair.test.train)
    assert not pairs(pair.test.target) & (pairs(pair.search.train) | pairs(pair.search.target))


def test_a_split_without_a_validation_split_is_refused(refused):
    with refused(mentioning="a validation split"):
        make_split_pair(EVENTS, "temporal", {})
    with refused(mentioning="a validation split"):
        make_split_pair(EVENTS, "weak", {"validation": 0})


def test_a_split_is_reduced_to_its_most_popular_items():
    whole = gr.split.weak(EVENTS).validation
    reduced = keep_popular_items(whole, 10)
    order = sorted(range(EVENTS.n_items), key=lambda column: (-whole.train.popularity[column], column))
    popular = {whole.train.items[column] for column in order[:10]}
    assert set(reduced.train.items.tolist()) == popular
    assert pairs(reduced.train) == {(user, item) for user, item in pairs(whole.train) if item in popular}
    users = set(reduced.target.users.tolist())
    assert pairs(reduced.target) == {(user, item) for user, item in pairs(whole.target) if item in popular and user in users}
    assert (np.diff(reduced.target.matrix.indptr) > 0).all()
    assert (np.diff(reduced.fold_in.matrix.indptr) > 0).all()


def test_a_search_on_some_users_has_a_sample_of_them_with_all_their_items():
    whole = DATA.load_splits().search
    sampled = replace(DATA, search_users=10).load_splits()
    assert sampled.test.fingerprint == DATA.load_splits().test.fingerprint
    assert sampled.search.train.fingerprint == whole.train.fingerprint
    users = sampled.search.target.users.tolist()
    assert len(users) == 10
    assert sampled.search.fold_in.users.tolist() == users
    for part, of in ((sampled.search.target, whole.target), (sampled.search.fold_in, whole.fold_in)):
        assert pairs(part) == {(user, item) for user, item in pairs(of) if user in users}
    assert replace(DATA, search_users=10**6).load_splits().search.fingerprint == whole.fingerprint


def test_a_published_split_is_searched_within_its_training_part(shared_data):
    data = replace(find_experiment("deql-table2").data[1], search_items=500)
    assert (data.name, data.split) == ("yelp2018", "published")
    pair = data.load_splits()
    whole = gr.split.published("yelp2018")
    assert pair.test.fingerprint == whole.fingerprint
    assert pair.search.train.n_items == 500
    for events in (pair.search.train, pair.search.fold_in, pair.search.target):
        matrix = events.reindex(whole.train.users, whole.train.items).matrix
        assert matrix.multiply(whole.train.matrix).nnz == matrix.nnz == events.n_interactions


def test_data_is_filtered_as_the_file_says(refused):
    raw = gr.datasets.load("movielens", min_value=4)
    once = raw.k_core(0, 20).k_core(10, 0)
    data = ExperimentData("some", "weak", source="movielens", min_value=4, items_with=20, users_with=10)
    assert data.load_splits().test.fingerprint == gr.split.weak(once, validation=0).fingerprint
    core = replace(data, items_with=0, users_with=0, k_core=15)
    assert core.load_splits().test.fingerprint == gr.split.weak(raw.k_core(15), validation=0).fingerprint
    assert replace(core, retrain=False).load_splits().test.fingerprint == gr.split.weak(raw.k_core(15)).fingerprint
    counts = (once.n_users, once.n_items, once.n_interactions)
    assert replace(data, counts=counts).load_splits().test.fingerprint == data.load_splits().test.fingerprint
    with refused(mentioning="as printed, in some"):
        replace(data, counts=(1, 2, 3)).load_splits()


def test_self_links_are_neither_searched_nor_tested(fits, tmp_path):
    rng = np.random.default_rng(0)
    links = {(int(a), int(b)) for a, b in rng.integers(0, 40, (900, 2))} | {(a, a) for a in range(40)}
    events = gr.Interactions.of(pl.DataFrame(sorted(links), schema=["user_id", "item_id"], orient="row"))
    data = EventsData("links", "weak", {}, events=events, exclude_self=True)
    pair = data.load_splits()
    assert all(a != b for split in (pair.search, pair.test) for a, b in pairs(split.target))
    (cell,) = Benchmark(tmp_path / "j.jsonl").run(table(EASE, data=[data]))
    expected = gr.evaluate(gr.EASE(5).fit(pair.test.train), pair.test, ["ndcg@20"], exclude_self=True)
    assert cell.measured_figure("ndcg@20") == pytest.approx(expected["ndcg@20"])
