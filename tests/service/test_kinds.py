"""A model of several kinds of events over HTTP."""

import polars as pl
import pytest

import gramian as gr
from gramian.service.app import create_app
from service.helpers import expect_error, expect_ok, run_app

LOG = pl.DataFrame(
    {
        "user": [u for u in range(12) for _ in range(4)],
        "item": [(u + k) % 6 for u in range(12) for k in (0, 1, 1, 2)],
        "event": ["view", "view", "buy", "buy"] * 12,
    }
)


@pytest.fixture(scope="module")
def model():
    return gr.MultiBehaviorEASE(l2=1, other_l2=2).fit(gr.Interactions.of(LOG, kind="event", kinds=["view", "buy"]))


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds") / "shop"
    model.save(folder)
    with run_app(create_app([folder])) as http_client:
        yield http_client


def test_histories_name_kinds(model, client):
    history = [{"item": 0, "kinds": ["view"]}, {"item": 1, "kinds": ["view", "buy"]}, 2]
    content = expect_ok(client.post("/recommend", json={"history": history, "k": 3}))
    expected = model.recommend_for([{0: "view", 1: ["view", "buy"], 2: "buy"}], k=3)
    assert [row["item"] for row in content["items"]] == expected.items[0]
    plain = expect_ok(client.post("/recommend", json={"history": [0, 1], "k": 3}))
    assert [row["item"] for row in plain["items"]] == model.recommend_for([[0, 1]], k=3).items[0]


def test_a_user_has_kinds_and_an_explanation_says_by_which(model, client):
    content = expect_ok(client.post("/history", json={"user": 0}))
    assert {row["item"]: tuple(row["kinds"]) for row in content["items"]} == model.history(0)
    item = model.recommend([0], k=1).items[0][0]
    why = expect_ok(client.post("/explain", json={"user": 0, "item": item}))
    for row in why["contributions"]:
        assert sum(row["by_kind"].values()) == pytest.approx(row["value"], abs=1e-5)


def test_unknown_kinds_are_refused(client):
    expect_error(client.post("/recommend", json={"history": [{"item": 0, "kinds": ["sell"]}]}), 422)
