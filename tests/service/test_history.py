"""The history of a user over HTTP, and items that share a title."""

import polars as pl
import pytest

import gramian as gr
from gramian.service.app import create_app
from service.helpers import expect_error, expect_ok, run_app


@pytest.fixture(scope="module")
def shop():
    """A weighted history, and two items with one title."""
    pairs = {"user": ["ann", "ann", "ann", "bob", "bob"], "item": ["a", "b", "c", "b", "c"]}
    events = gr.Interactions.of(pl.DataFrame(pairs | {"weight": [1.0, 1.0, 5.0, 1.0, 2.0]}), value="weight")
    return gr.EASE(l2=1).fit(events.with_titles({"a": "Twin", "b": "Twin", "c": "Single"}))


@pytest.fixture(scope="module")
def shop_client(shop, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop") / "shop"
    shop.save(folder)
    with run_app(create_app([folder])) as http_client:
        yield http_client


def test_a_users_history_has_the_largest_weights_first(shop_client):
    content = expect_ok(shop_client.post("/history", json={"user": "ann"}))
    twin = {"title": "Twin", "weight": 1, "shares_title": True}
    items = [{"item": "c", "title": "Single", "weight": 5}, {"item": "b"} | twin, {"item": "a"} | twin]  # b has more users
    assert content == {"model": "shop", "user": "ann", "items": items, "total": 3}
    shortened = expect_ok(shop_client.post("/history", json={"user": "ann", "k": 1}))
    assert (shortened["items"], shortened["total"]) == (items[:1], 3)


def test_numbers_may_be_sent_as_text(models, client):
    user = models["ease"].histories.users[:1][0]
    content = expect_ok(client.post("/history", json={"user": str(user), "model": "popularity"}))
    assert {row["item"]: row["weight"] for row in content["items"]} == models["ease"].history(user)


@pytest.mark.parametrize(
    ("body", "status"),
    [({"user": "nobody"}, 404), ({"user": "ann", "model": "other"}, 404), ({}, 422), ({"user": "ann", "k": 0}, 422)],
)
def test_a_history_that_is_not_there_is_refused(shop_client, body, status):
    expect_error(shop_client.post("/history", json=body), status)


def test_shared_titles_are_marked_everywhere(shop_client):
    for request in (
        shop_client.post("/recommend", json={"history": ["c"], "k": 3}),
        shop_client.get("/similar", params={"item": "c"}),
        shop_client.get("/items", params={"query": "twin"}),
        shop_client.get("/items", params={"id": ["a", "c"]}),
        shop_client.post("/recommend", json={"exclude_seen": False, "history": ["a", "c"]}),
    ):
        rows = expect_ok(request)["items"]
        assert {row["item"] for row in rows if row.get("shares_title")} == {row["item"] for row in rows} & {"a", "b"}
    explained = expect_ok(shop_client.post("/explain", json={"history": ["a", "c"], "item": "b"}))
    assert explained["shares_title"]
    assert {row["item"]: row.get("shares_title") for row in explained["contributions"]} == {"a": True, "c": None}
