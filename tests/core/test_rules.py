"""Which items a list may show, for whom, and where it is written."""

import polars as pl
import pytest

import gramian as gr

TAGS = {"A": "Horror|Space", "B": "Comedy", "C": "Crime", "D": "Space", "E": "Horror"}


@pytest.fixture(scope="module")
def model(events):
    return gr.EASE(l2=1).fit(events.with_tags(TAGS))


def shown(lists):
    return {item for items in lists.items for item in items}


CALLS = {
    "recommend": lambda model, **rules: model.recommend(["ann", "frank"], **rules),
    "recommend_for": lambda model, **rules: model.recommend_for([["C"], []], **rules),
    "similar_items": lambda model, **rules: model.similar_items("C", **rules),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tags_restrict_every_list(model, call):
    assert shown(call(model, allow_tags=["Space"])) <= {"A", "D"}
    assert not shown(call(model, deny_tags=["Space", "Comedy"])) & {"A", "B", "D"}
    assert shown(call(model, allow_tags=["Horror"], deny_tags=["Space"], deny=["nothing"])) <= {"E"}
    assert shown(call(model, allow=["B", "E"], allow_tags=["Horror"])) <= {"E"}
    assert shown(call(model, allow_tags=[])) == set()
    with pytest.raises(gr.errors.InvalidInput, match="a list of tags to allow"):
        call(model, allow_tags="Space")


def read_lists(path):
    readers = {".csv": pl.read_csv, ".jsonl": pl.read_ndjson, ".parquet": pl.read_parquet}
    return readers[path.suffix](path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_lists_are_written_in_the_format_of_the_name(model, tmp_path, suffix):
    path = tmp_path / f"lists{suffix}"
    model.recommend_to(path, 3, allow_tags=["Space", "Horror"])
    expected = model.recommend(model.users, 3, allow_tags=["Space", "Horror"]).frame()
    table = read_lists(path)
    assert table.columns == expected.columns
    assert table.drop("score").rows() == expected.drop("score").rows()
    assert table["score"].to_list() == pytest.approx(expected["score"].to_list(), abs=1e-6)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_many_blocks_make_one_file(model, tmp_path, suffix, monkeypatch):
    model.recommend_to(tmp_path / f"whole{suffix}", 2)
    monkeypatch.setattr("gramian.core.scorer.USERS_PER_BLOCK", 2)
    model.recommend_to(tmp_path / f"blocks{suffix}", 2)
    assert (tmp_path / f"blocks{suffix}").read_text() == (tmp_path / f"whole{suffix}").read_text()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_an_incomplete_file_never_appears(model, tmp_path, suffix, monkeypatch):
    def fail(*_, **__):
        yield from ()
        raise RuntimeError("stopped")

    monkeypatch.setattr("gramian.core.recommender.rank_and_rerank", fail)
    with pytest.raises(RuntimeError, match="stopped"):
        model.recommend_to(tmp_path / f"lists{suffix}", 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["lists.xlsx", "lists", "no/such/folder/lists.csv"])
def test_other_names_are_refused(model, tmp_path, name, refused):
    with refused(gr.errors.InvalidInput, ".parquet or .csv or .jsonl"):
        model.recommend_to(tmp_path / name)


NEW = gr.Interactions.of(pl.DataFrame({"user": ["y", "x", "x", "z"], "item": ["B", "A", "unknown", "neither"]}))


def test_interactions_of_new_users_are_histories(model):
    lists = model.recommend_for(NEW, k=2)
    expected = model.recommend_for([["A", "unknown"], ["B"], ["neither"]], k=2)
    assert lists.users == ["x", "y", "z"]
    assert lists.items == expected.items
    assert lists.unknown == expected.unknown == [["unknown"], [], ["neither"]]
    assert lists.fallback == [False, False, True]


def test_weights_of_new_users_count():
    table = pl.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 1], "weight": [1.0, 3.0, 2.0]})
    events = gr.Interactions.of(table, value="weight")
    model = gr.EASE(l2=1).fit(events)
    by_history = model.recommend_for([{1: 1.0, 2: 3.0}, {1: 2.0}], exclude_seen=False)
    assert model.recommend_for(events, exclude_seen=False).scores == by_history.scores


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_lists_of_new_users_are_written(model, tmp_path, suffix):
    path = tmp_path / f"new{suffix}"
    model.recommend_to(path, 2, histories=NEW, deny=["D"])
    expected = model.recommend_for(NEW, 2, deny=["D"]).frame()
    assert read_lists(path).drop("score").rows() == expected.drop("score").rows()


def test_users_of_the_model_and_new_users_are_not_mixed(model, tmp_path, refused):
    with refused(gr.errors.InvalidInput, "users=... of the model or histories=..."):
        model.recommend_to(tmp_path / "x.csv", users=["ann"], histories=NEW)
    with refused(gr.errors.InvalidInput, "Interactions"):
        model.recommend_to(tmp_path / "x.csv", histories=[["A"]])
