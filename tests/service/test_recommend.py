"""Lists, explanations, similar items and search over HTTP: the same answers as the library's."""

import uuid

import pandas as pd
import polars as pl
import pytest

import gramian as gr
from gramian.service.model_registry import ModelRegistry
from gramian.service.schemas import BatchRequest
from service.helpers import expect_ok, item_scores


@pytest.mark.parametrize("name", ["edlae", "ease", "pca", "ials", "popularity"])
def test_lists_are_those_of_the_library(name, models, client):
    model, some = models[name], [260, 1196, 1]
    expected = model.recommend_for([some], 5)
    content = expect_ok(client.post("/recommend", json={"model": name, "history": some, "k": 5}))
    assert item_scores(content) == list(zip(expected.items[0], expected.scores[0], strict=True))
    assert [row["title"] for row in content["items"]] == expected.titles[0]
    assert (content["model"], content["unknown"], content["fallback"]) == (name, [], False)
    user = model.users[3]
    expected = model.recommend([user], 5)
    assert item_scores(expect_ok(client.post("/recommend", json={"model": name, "user": user, "k": 5}))) == list(
        zip(expected.items[0], expected.scores[0], strict=True)
    )


def test_a_user_may_bring_more_items(models, client):
    model = models["edlae"]
    user = model.users[0]
    fresh = next(item for item in model.items if item not in model.history(user))
    expected = model.recommend_for([[*model.history(user), fresh]], 5)
    content = expect_ok(client.post("/recommend", json={"user": user, "history": [fresh], "k": 5}))
    assert item_scores(content) == list(zip(expected.items[0], expected.scores[0], strict=True))


def test_weights_count(models, client):
    weighted = [{"item": 260, "weight": 2.5}, 1196]
    expected = models["edlae"].recommend_for([{260: 2.5, 1196: 1}], 5)
    assert item_scores(expect_ok(client.post("/recommend", json={"history": weighted, "k": 5}))) == list(
        zip(expected.items[0], expected.scores[0], strict=True)
    )


def test_a_batch_is_its_lists_one_by_one(models, client):
    users, histories = models["ease"].users[:3], [[260], [1196, 1, "nobody's"], []]
    options = {"model": "ease", "k": 4}
    content = expect_ok(client.post("/recommend/batch", json=options | {"users": [*users, "stranger"], "histories": histories}))
    singles = [expect_ok(client.post("/recommend", json=options | {"user": user})) | {"user": user} for user in users]
    singles += [{"user": "stranger", "items": [], "unknown": [], "fallback": False, "model": "ease"}]
    singles += [expect_ok(client.post("/recommend", json=options | {"history": history})) for history in histories]
    for single, batched in zip(singles, content["lists"], strict=True):
        assert item_scores(single) == [(row["item"], row["score"]) for row in batched["items"]]
        assert {name: value for name, value in single.items() if name not in ("items", "model")} == {
            name: value for name, value in batched.items() if name != "items"
        }
    assert content["unknown_users"] == ["stranger"]
    assert content["lists"][5]["unknown"] == ["nobody's"]
    assert content["lists"][6]["fallback"]
    assert expect_ok(client.post("/recommend/batch", json={}))["lists"] == []


def test_filters(models, events, client):
    tags = dict(zip(events.items.tolist(), events.tags, strict=True))

    def recommend(**filters):
        return [
            row["item"]
            for row in expect_ok(client.post("/recommend", json={"history": [260, 1196], "k": 500} | filters))["items"]
        ]

    everything = recommend()
    assert set(everything) == set(events.items.tolist()) - {260, 1196}
    assert recommend(allow_tags=["Comedy"]) == [item for item in everything if "Comedy" in tags[item]]
    assert recommend(deny_tags=["Comedy", "Drama"]) == [
        item for item in everything if not {"Comedy", "Drama"} & set(tags[item])
    ]
    assert recommend(allow=["1", 2858, "none"], deny=[1]) == [2858]
    both = recommend(allow_tags=["Comedy"], deny_tags=["Romance"], deny=everything[:3])
    assert both == [i for i in everything[3:] if "Comedy" in tags[i] and "Romance" not in tags[i]]
    assert recommend(allow_tags=[]) == recommend(allow=[]) == recommend(allow_tags=["no such tag"]) == []
    assert {260, 1196} <= set(recommend(exclude_seen=False))


@pytest.mark.parametrize("name", ["edlae", "pca", "ials"])
def test_reasons_add_up_to_the_score(name, models, client):
    history = [260, 1196, 1, 2858]
    listed = expect_ok(client.post("/recommend", json={"model": name, "history": history, "k": 3}))["items"]
    for row in listed:
        content = expect_ok(client.post("/explain", json={"model": name, "history": [*history, "?"], "item": row["item"]}))
        parts = [part["value"] for part in content["contributions"]]
        assert content["score"] == pytest.approx(row["score"], rel=1e-4)
        assert sum(parts) == pytest.approx(content["score"], rel=1e-9)
        assert sorted(parts, key=abs, reverse=True) == parts
        assert {part["item"] for part in content["contributions"]} == set(history)
        assert (content["unknown"], content["title"]) == (["?"], row["title"])
        expected = models[name].explain(history, row["item"])
        assert {part["item"]: pytest.approx(part["value"]) for part in content["contributions"]} == dict(expected)


def test_similar_items(models, client):
    expected = models["ease"].similar_items(260, 4)
    content = expect_ok(client.get("/similar", params={"model": "ease", "item": 260, "k": 4}))
    assert item_scores(content) == list(zip(expected.items[0], expected.scores[0], strict=True))
    assert content["item"] == 260


def test_items_are_found_by_words_and_by_ids(client):
    content = expect_ok(client.get("/items", params={"query": "STAR w", "limit": 2}))["items"]
    assert [row["title"][:18] for row in content] == ["Star Wars: Episode"] * 2
    assert content[0]["users"] >= content[1]["users"]
    assert "Sci-Fi" in content[0]["tags"]
    assert expect_ok(client.get("/items", params={"query": "amelie"}))["items"][0]["item"] == 1
    assert expect_ok(client.get("/items", params={"query": "no such film"})) == {"items": [], "unknown": []}
    by_id = expect_ok(client.get("/items", params={"id": ["1196", "none", "260"]}))
    assert ([row["item"] for row in by_id["items"]], by_id["unknown"]) == ([1196, 260], ["none"])
    assert len(expect_ok(client.get("/items"))["items"]) == 20


@pytest.mark.parametrize(
    ("ids", "sent"),
    [
        (["a", "b,c", "ü<b>"], ["a", "b,c", "ü<b>"]),
        ([10, 2, 3], [10, "2", 3]),
        ([uuid.UUID(int=i) for i in (1, 2, 3)], [str(uuid.UUID(int=i)) for i in (1, 2, 3)]),
        ([1.5, 2.5, 3.0], ["1.5", "2.5", "3.0"]),
        ([b"\x01", b"\x02", b"\xff"], ["01", "02", "ff"]),
    ],
    ids=["text", "numbers", "uuid", "fractions", "bytes"],
)
def test_ids_of_any_kind_are_sent_and_understood(ids, sent, tmp_path):
    table = {"user_id": [0, 0, 1, 1, 2, 2], "item_id": [ids[i] for i in (0, 1, 1, 2, 0, 2)]}
    gr.EASE(l2=1).fit(gr.Interactions.of(pd.DataFrame(table))).save(tmp_path / "m")
    served = ModelRegistry([tmp_path / "m"])["m"]
    (listed,) = served.recommend_batch(BatchRequest(histories=[sent[:2], [5, "", "x" * 5_000]], k=3))
    assert [row["item"] for row in listed[0]["items"]] == [sent[2]]
    assert (listed[0]["unknown"], listed[1]["unknown"], listed[1]["fallback"]) == ([], [5, "", "x" * 5_000], True)


def test_ids_that_no_request_can_name_are_refused(tmp_path):
    pairs_of_numbers = pl.DataFrame({"user_id": [0, 1], "item_id": [[1, 2], [3, 4]]})
    gr.EASE().fit(gr.Interactions.of(pairs_of_numbers)).save(tmp_path / "m")
    with pytest.raises(gr.errors.NotSupported, match="ids that a request can name"):
        ModelRegistry([tmp_path / "m"])


@pytest.mark.parametrize("sent", ["1_0", "010", " 10", "+10", "１０", "10.0"])
def test_only_the_usual_text_of_a_number_is_its_id(sent, tmp_path):
    table = pd.DataFrame({"user_id": [0, 0, 1, 1], "item_id": [10, 2, 2, 3]})
    gr.EASE(l2=1).fit(gr.Interactions.of(table)).save(tmp_path / "m")
    served = ModelRegistry([tmp_path / "m"])["m"]
    (listed,) = served.recommend_batch(BatchRequest(histories=[[sent], ["10"]], k=3))
    assert [row["unknown"] for row in listed] == [[sent], []]


@pytest.mark.parametrize("name", ["edlae", "ease", "pca", "ials", "popularity"])
def test_a_batch_of_many_slices_is_that_of_the_library(name, models, client):
    model = models[name]
    users, histories = model.users[:150], [list(model.history(user)) for user in model.users[150:300]]
    content = expect_ok(client.post("/recommend/batch", json={"model": name, "users": users, "histories": histories, "k": 5}))
    expected = [model.recommend(users, 5), model.recommend_for(histories, 5)]
    pairs = [pair for ranked in expected for pair in zip(ranked.items, ranked.scores, strict=True)]
    assert [ranked.get("user") for ranked in content["lists"]] == users + [None] * 150
    for ranked, (items, scores) in zip(content["lists"], pairs, strict=True):
        assert item_scores(ranked) == list(zip(items, scores, strict=True))
