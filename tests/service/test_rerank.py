"""Re-ranking and missing items over HTTP: the same answers as the library's, within limits."""

import pytest

import gramian as gr
from service.helpers import expect_error, expect_ok, item_scores

HISTORY = [260, 1196, 1]
STAGES = [gr.rerank.PopularityPenalty(0.2), gr.rerank.MMR(0.4), gr.rerank.Calibration(0.6), gr.rerank.MaxPerTag(3)]


@pytest.mark.parametrize("stage", [*STAGES, gr.rerank.MMR(0.5, "tags"), gr.rerank.ReservedSlots("War", 2, 2)], ids=str)
def test_re_ranked_lists_are_those_of_the_library(stage, models, client):
    expected = models["edlae"].recommend_for([HISTORY], 8, rerank=stage, depth=60)
    request = {"history": HISTORY, "k": 8, "rerank": [stage.to_json()], "depth": 60}
    content = expect_ok(client.post("/recommend", json=request))
    assert item_scores(content) == list(zip(expected.items[0], expected.scores[0], strict=True))
    assert [row["from_rank"] for row in content["items"]] == expected.from_ranks()
    moves = [(move["item"], move["from_rank"], move["to_rank"], move["stage"], move["reason"]) for move in content["moves"]]
    assert moves == [(m.item, m.from_rank, m.to_rank, m.stage, m.reason) for m in expected.moves()]


def test_batches_are_re_ranked(models, client):
    users, stages = models["ease"].users[:70], [stage.to_json() for stage in STAGES]
    request = {"model": "ease", "users": users, "histories": [HISTORY, []], "k": 5, "rerank": stages}
    content = expect_ok(client.post("/recommend/batch", json=request))["lists"]
    expected = models["ease"].recommend(users, 5, rerank=STAGES).items
    expected += models["ease"].recommend_for([HISTORY, []], 5, rerank=STAGES).items
    assert [[row["item"] for row in ranked["items"]] for ranked in content] == expected
    assert all("from_rank" in row for ranked in content for row in ranked["items"])


def test_without_stages_nothing_changes(client):
    content = expect_ok(client.post("/recommend", json={"history": HISTORY, "rerank": [], "depth": 7}))
    assert "moves" not in content
    assert not any("from_rank" in row for row in content["items"])


BAD = {
    "unknown stage": ({"rerank": [{"name": "shuffle"}]}, 422, "re-ranker among mmr"),
    "unknown parameter": ({"rerank": [{"name": "MMR", "params": {"strength": 1}}]}, 422, "diversity"),
    "bad value": ({"rerank": [{"name": "MMR", "params": {"diversity": 2}}]}, 422, "at most 1"),
    "nested": ({"rerank": [{"name": "MMR", "params": {"diversity": {"a": 1}}}]}, 422, "rerank"),
    "a spec": ({"rerank": ["mmr(diversity=0.3)"]}, 422, "rerank"),
    "no tag": ({"rerank": [{"name": "ReservedSlots"}]}, 422, "a tag"),
    "unknown tag": ({"rerank": [{"name": "ReservedSlots", "params": {"tag": "Wart"}}]}, 404, "War"),
    "many stages": ({"rerank": [{"name": "MMR"}] * 9}, 422, "at most 8"),
    "no depth": ({"depth": 0}, 422, "depth"),
    "deep": ({"depth": 501}, 422, "depth"),
    "path": ({"rerank": [{"name": "../../etc/passwd"}]}, 422, "not registered"),
    "long name": ({"rerank": [{"name": "x" * 101}]}, 422, "100"),
    "other field": ({"rerank": [{"name": "MMR", "module": "os"}]}, 422, "module"),
}


@pytest.mark.parametrize(("fields", "status", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("path", ["/recommend", "/recommend/batch"])
def test_bad_stages_are_refused(fields, status, words, path, client):
    history = {"history": HISTORY} if path == "/recommend" else {"histories": [HISTORY]}
    assert words in expect_error(client.post(path, json=history | fields), status)


def test_a_model_that_cannot_compare_items_says_so(client):
    request = {"model": "popularity", "history": HISTORY, "rerank": [{"name": "MMR"}]}
    assert "relates items" in expect_error(client.post("/recommend", json=request), 409)


def ask(client, **fields):
    return expect_ok(client.post("/explain/missing", json={"history": HISTORY, "k": 5} | fields))


@pytest.mark.parametrize("name", ["edlae", "pca", "ials", "popularity"])
def test_missing_items_are_explained_as_by_the_library(name, models, client):
    model = models[name]
    order = model.recommend_for([HISTORY], 500).items[0]
    for item in (order[0], order[6], order[-1], 260):
        content, expected = ask(client, model=name, item=item, pool=50), model.explain_missing(HISTORY, item, 5, pool=50)
        assert (content["status"], content["rank"], content["model"]) == (expected.status, expected.rank, name)
        assert content["score"] == pytest.approx(expected.score, rel=1e-4)
        assert content["lacking"] == pytest.approx(expected.lacking, rel=1e-3, abs=1e-6)
        for key in ("addition", "removal"):
            change, own = content[key], getattr(expected, key)
            assert (change is None) == (own is None)
            if change:
                assert [row["item"] for row in change["added"] + change["removed"]] == own.added + own.removed
                assert change["rank"] == own.rank
                assert all(row["title"] for row in change["added"] + change["removed"])


def test_rules_and_unknown_items(models, client):
    best = models["edlae"].recommend_for([HISTORY], 1).items[0][0]
    assert ask(client, item=best)["status"] == "recommended"
    assert ask(client, item=best, deny=[best])["status"] == "denied"
    assert ask(client, item=best, allow=[])["status"] == "not allowed"
    unknown = ask(client, item="nobody's", history=[*HISTORY, "?"])
    assert (unknown["status"], unknown["item"], unknown["unknown"], unknown["rank"]) == ("unknown", "nobody's", ["?"], None)
    user = models["edlae"].users[0]
    seen = next(iter(models["edlae"].history(user)))
    assert ask(client, user=user, history=[], item=str(seen))["status"] == "seen"


@pytest.mark.parametrize(
    "fields", [{}, {"item": 1, "pool": 501}, {"item": 1, "pool": 0}, {"item": 1, "k": 501}, {"item": None}]
)
def test_bad_questions_are_refused(fields, client):
    expect_error(client.post("/explain/missing", json={"history": HISTORY} | fields), 422)


def test_the_schema_describes_both(client):
    schema = client.get("/openapi.json").json()
    assert "/explain/missing" in schema["paths"]
    assert {"rerank", "depth"} <= set(schema["components"]["schemas"]["RecommendRequest"]["properties"])
    assert "pool" in schema["components"]["schemas"]["ExplainMissingRequest"]["properties"]
