"""`gramian recommend --rerank`, `gramian evaluate --rerank` and `gramian missing`."""

import json

import pytest

import gramian as gr
from command_line import gramian, ok

HISTORY = ("--history", "Pulp Fiction (1994)", "--history", "260")


def test_lists_are_re_ranked(model, tmp_path):
    stages = ["mmr(diversity=0.5)", "popularitypenalty(strength=0.2)"]
    words = ["recommend", model, *HISTORY, "-k", 5, "--rerank", stages[0], "--rerank", stages[1], "--depth", 30]
    expected = gr.load(model).recommend_for([[296, 260]], 5, rerank=stages, depth=30)
    (listed,) = json.loads(ok(*words, "--json"))["recommendations"]
    assert [row["item"] for row in listed["items"]] == expected.items[0]
    assert [row["from_rank"] for row in listed["items"]] == expected.from_ranks()
    assert [(move["item"], move["to_rank"], move["reason"]) for move in listed["moves"]] == [
        (move.item, move.to_rank, move.reason) for move in expected.moves()
    ]
    shown = ok(*words)
    assert shown.split()[:4] == ["rank", "was", "item", "score"]
    ok(*words, "--out", tmp_path / "lists.csv")
    assert "from_rank" in (tmp_path / "lists.csv").read_text()


def test_re_ranked_lists_are_evaluated(csv):
    words = ["evaluate", csv, "--min-value", "rating=4", "--model", "ease(l2=50)", "--metric", "gini@10", "--json"]
    plain = json.loads(ok(*words))["models"][0]["metrics"]["gini@10"]["mean"]
    spread = json.loads(ok(*words, "--rerank", "popularitypenalty(strength=0.5)"))["models"][0]["metrics"]["gini@10"]["mean"]
    assert spread < plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rerank", "shuffle"), "re-ranker among mmr"),
        (("--rerank", "mmr(strength=1)"), "diversity"),
        (("--rerank", "mmr(diversity=7)"), "at most 1"),
        (("--rerank", "calibration"), "items with tags"),
        (("--rerank", "mmr", "--depth", 0), "--depth of at least 1"),
        (("--rerank", "__import__('os')"), "a name with parameters"),
    ],
)
def test_bad_stages_are_refused(model, words, message):
    done = gramian("recommend", model, *HISTORY, *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_missing_items_are_explained(model):
    loaded = gr.load(model)
    order = loaded.recommend_for([[296, 260]], 500).items[0]
    expected = loaded.explain_missing([296, 260], order[7], 5)
    found = json.loads(ok("missing", model, order[7], *HISTORY, "-k", 5, "--json"))
    assert (found["status"], found["rank"], found["lacking"]) == ("ranked out", 8, expected.lacking)
    assert found["addition"]["added"] == expected.addition.added
    shown = ok("missing", model, order[7], *HISTORY, "-k", 5)
    assert "ranked out, rank 8" in shown
    assert "in the history it would be at rank" in shown
    assert "Tried:" in shown
    assert "recommended, rank 1" in ok("missing", model, order[0], *HISTORY)
    assert ": denied" in ok("missing", model, order[0], *HISTORY, "--deny", order[0])
    assert ": not allowed" in ok("missing", model, order[0], *HISTORY, "--allow", order[1])
    assert ": seen" in ok("missing", model, 260, *HISTORY)
    assert "No such film: unknown" in ok("missing", model, "No such film", *HISTORY)
    user = loaded.users[0]
    assert ": seen" in ok("missing", model, next(iter(loaded.history(user))), "--user", user)


def test_missing_needs_one_history(model):
    assert "--user or --history" in gramian("missing", model, 260).stderr
    assert "pool of at least 1" in gramian("missing", model, 1, *HISTORY, "--pool", 0).stderr
