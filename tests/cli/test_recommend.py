"""`gramian recommend`, `similar`, `explain` and `factors`."""

import json

import numpy as np
import polars as pl
import pytest

import gramian as gr
from command_line import gramian, ok
from gramian.cli.render import print_recommendations


def test_lists_for_everybody_go_to_a_file(model, tmp_path):
    loaded = gr.load(model)
    assert f"{loaded.histories.n_users:,} users written" in ok("recommend", model, "--out", tmp_path / "all.parquet", "-k", 3)
    found = pl.read_parquet(tmp_path / "all.parquet")
    expected = loaded.recommend(loaded.users, k=3).frame()
    assert found["item"].to_list() == expected["item"].to_list()
    for suffix, scan in ((".csv", pl.read_csv), (".jsonl", pl.read_ndjson)):
        ok("recommend", model, "--out", tmp_path / f"all{suffix}", "-k", 3)
        table = scan(tmp_path / f"all{suffix}")
        assert table.columns == ["user", "rank", "item", "title", "score"]
        assert table["item"].to_list() == expected["item"].to_list()
    assert json.loads(ok("recommend", model, "--user", 15, "--out", tmp_path / "one.parquet", "--json"))["users"] == 1
    assert pl.read_parquet(tmp_path / "one.parquet")["user"].unique().to_list() == [15]


def test_recommend_for_a_history_by_id_and_title(model):
    words = ["recommend", model, "--history", "Pulp Fiction (1994)", "--history", "260", "-k", "3"]
    expected = gr.load(model).recommend_for([[296, 260]], k=3)
    found = json.loads(ok(*words, "--json"))["recommendations"]
    assert [row["item"] for row in found[0]["items"]] == expected.items[0]
    assert [row["title"] for row in found[0]["items"]] == expected.titles[0]
    assert expected.titles[0][0] in ok(*words)


def test_recommend_for_users_with_limits(model):
    loaded = gr.load(model)
    user, (first, second) = loaded.users[0], loaded.recommend(loaded.users[:1], k=2).items[0]
    found = json.loads(ok("recommend", model, "--user", user, "-k", 1, "--deny", first, "--json"))["recommendations"]
    assert found[0]["user"] == user
    assert [row["item"] for row in found[0]["items"]] == [second]
    assert str(user) in ok("recommend", model, "--user", user, "--allow", first)


@pytest.fixture(scope="module")
def tagged(csv, tmp_path_factory):
    """A model with tags, in which two items have the same title."""
    folder = tmp_path_factory.mktemp("tagged")
    items = pl.read_csv(csv).select("item_id", "title").unique().sort("item_id")
    tags = pl.Series("genres", ["Comedy|Drama" if item % 3 else "Horror" for item in items["item_id"]])
    titles = items["title"].to_list()
    titles[1] = titles[0]
    items.with_columns(tags, pl.Series("title", titles)).write_csv(folder / "items.csv")
    words = ("--titles", folder / "items.csv", "--tags", "genres", "--out", folder / "m")
    ok("fit", csv, "--min-value", "rating=4", "--model", "ease(l2=50)", *words)
    return folder / "m"


def items_of(*words):
    return [row["item"] for row in json.loads(ok("recommend", *words, "--json"))["recommendations"][0]["items"]]


def test_rules_by_tag_and_file(tagged, tmp_path):
    fitted = gr.load(tagged)
    user = fitted.users[0]
    horror = {item for item in fitted.items if item % 3 == 0}
    assert set(items_of(tagged, "--user", user, "--allow-tag", "Horror")) <= horror
    assert not set(items_of(tagged, "--user", user, "--deny-tag", "Horror")) & horror
    expected = fitted.recommend([user], k=5).items[0]
    titles = fitted.recommend([user], k=5).titles[0]
    (tmp_path / "deny.txt").write_text(f"{expected[0]}\n\n  {titles[1]} \n", encoding="utf-8")
    (tmp_path / "allow.txt").write_text("".join(f"{item}\n" for item in expected), encoding="utf-8")
    files = ("--allow-file", tmp_path / "allow.txt", "--deny-file", tmp_path / "deny.txt", "--deny", expected[2])
    assert items_of(tagged, "--user", user, *files) == expected[3:]
    ok("recommend", tagged, "--out", tmp_path / "x.csv", "--allow-tag", "Horror", *files[:2])
    assert set(pl.read_csv(tmp_path / "x.csv")["item"]) <= horror & set(expected)
    similar = json.loads(ok("similar", tagged, expected[0], "-k", 4, "--deny-tag", "Horror", "--json"))["similar"]
    allowed = [item for item in fitted.similar_items(expected[0], k=len(fitted.items)).items[0] if item not in horror]
    assert [row["item"] for row in similar] == allowed[:4]


def test_unknown_items_of_a_file_are_named(tagged, tmp_path):
    (tmp_path / "deny.txt").write_text("item_id\n007\n", encoding="utf-8")
    done = gramian("recommend", tagged, "--user", 15, "--deny-file", tmp_path / "deny.txt")
    assert done.returncode == 0
    assert "2 of 2 items in" in done.stderr
    assert "item_id, 007" in done.stderr


def test_rules_that_cannot_hold_are_refused(model, tagged):
    assert "Close: Horror" in gramian("recommend", tagged, "--user", 15, "--allow-tag", "Horor").stderr
    assert "Fit it again with --tags" in gramian("recommend", model, "--user", 15, "--allow-tag", "Horror").stderr


def test_seen_items_can_be_included(model):
    words = ("--history", 260, "--allow", 260)
    assert items_of(model, *words) == []
    assert items_of(model, *words, "--include-seen") == [260]


def test_histories_of_new_users_come_from_a_file(model, tmp_path):
    rows = [("ann", "260"), ("ann", "296"), ("bob", "1"), ("bob", "1_0"), ("cy", "item 7")]
    pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row").write_csv(tmp_path / "new.csv")
    lists = json.loads(ok("recommend", model, "--histories", tmp_path / "new.csv", "-k", 3, "--json"))["recommendations"]
    expected = gr.load(model).recommend_for([[260, 296], [1], []], k=3)
    assert [entry["user"] for entry in lists] == ["ann", "bob", "cy"]
    assert [[row["item"] for row in entry["items"]] for entry in lists] == expected.items
    assert [entry["unknown"] for entry in lists] == [[], ["1_0"], ["item 7"]]
    assert [entry["fallback"] for entry in lists] == [False, False, True]
    words = ("recommend", model, "--histories", tmp_path / "new.csv", "-k", 3, "--out", tmp_path / "lists.jsonl")
    assert "Lists of 3 users" in ok(*words)
    table = pl.read_ndjson(tmp_path / "lists.jsonl")
    assert table["item"].to_list() == [item for items in expected.items for item in items]
    assert table["user"].to_list()[::3] == ["ann", "bob", "cy"]


def test_an_id_is_an_integer_only_as_it_is_written(model):
    fitted = gr.load(model)
    item = next(item for item in fitted.items if item >= 10)
    odd = f"{str(item)[0]}_{str(item)[1:]}"
    for text in (odd, f"0{item}", f"+{item}", f" {item}"):
        assert f"expected an item's id or title; got {text!r}" in gramian("similar", model, text).stderr
        assert f"got {text!r}" in gramian("recommend", model, "--user", text).stderr


def test_a_title_of_two_items_is_refused_with_their_ids(tagged):
    fitted = gr.load(tagged)
    done = gramian("similar", tagged, fitted.catalog.titles[0])
    assert done.returncode == 2
    assert f"the title of 2 items: {fitted.items[0]}, {fitted.items[1]}. Pass one of these ids." in done.stderr


def test_unknown_history_items_are_ignored_and_named(model):
    words = ("recommend", model, "--history", 260, "--history", "Pulp Ficton", "-k", 2)
    entry = json.loads(ok(*words, "--json"))["recommendations"][0]
    assert entry["unknown"] == ["Pulp Ficton"]
    assert [row["item"] for row in entry["items"]] == gr.load(model).recommend_for([[260]], k=2).items[0]
    shown = ok(*words)
    assert "does not know them: Pulp Ficton" in shown
    assert "close to Pulp Ficton: Pulp Fiction (1994)" in shown
    explained = ("explain", model, 296, "--history", 260, "--history", "Pulp Ficton")
    assert "does not know them: Pulp Ficton" in ok(*explained)
    assert json.loads(ok(*explained, "--json"))["unknown"] == ["Pulp Ficton"]


def test_what_a_history_lacks_is_said(capsys):
    result = gr.Recommendations([["a"]], [[1.0]], unknown=[["[red]x", 7]], fallback=[True])
    print_recommendations(result, 0)
    shown = capsys.readouterr().out
    assert "does not know them: [red]x, 7" in shown
    assert "most popular items" in shown


def test_a_model_without_histories_says_so(csv, tmp_path):
    gr.EASE().fit_gram(gr.Gram.of(gr.read(csv))).save(tmp_path / "m")
    for words in (["recommend", "--user", 15], ["recommend", "--out", tmp_path / "x.parquet"], ["explain", 260, "--user", 15]):
        command, *rest = words
        done = gramian(command, tmp_path / "m", *rest)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "a model with its users' histories" in done.stderr
    assert json.loads(ok("recommend", tmp_path / "m", "--history", 260, "--json"))["recommendations"][0]["unknown"] == []


def test_similar(model):
    expected = gr.load(model).similar_items(260, k=4).items[0]
    by_id, by_title = (
        json.loads(ok("similar", model, name, "-k", 4, "--json")) for name in (260, "star wars: episode iv - a new hope (1977)")
    )
    assert by_id == by_title
    assert [row["item"] for row in by_id["similar"]] == expected
    assert (by_id["item"], by_id["title"]) == (260, "Star Wars: Episode IV - A New Hope (1977)")
    assert "Star Wars" in ok("similar", model, "Star Wars: Episode IV - A New Hope (1977)")


def test_explain_adds_up_and_draws_bars(model):
    titles = ["Heat (1995)", "Alien (1979)"]
    fitted = gr.load(model)
    history = [i for i, t in zip(fitted.items, fitted.catalog.titles, strict=True) if t in titles[1:]] + fitted.items[:3]
    words = [w for item in history for w in ("--history", item)]
    found = json.loads(ok("explain", model, fitted.items[5], *words, "--json"))
    expected = fitted.explain(history, fitted.items[5])
    assert found["score"] == pytest.approx(expected.score)
    assert sum(part["contribution"] for part in found["contributions"]) == pytest.approx(found["score"])
    assert all(part["title"] for part in found["contributions"])
    two = json.loads(ok("explain", model, fitted.items[5], *words, "-k", 2, "--json"))
    assert two["contributions"] == found["contributions"][:2]
    assert sum(part["contribution"] for part in two["contributions"]) + two["others"] == pytest.approx(found["score"])
    shown = ok("explain", model, fitted.catalog.titles[5], "--user", fitted.users[0], "-k", 2)
    assert fitted.catalog.titles[5] in shown
    assert shown.count("█") >= 2
    assert f"{len(fitted.history(fitted.users[0])) - 2:,} others together" in shown


def test_explain_wants_one_history(model):
    for words in ([], ["--user", 1, "--history", 2]):
        assert "--user or --history" in gramian("explain", model, 1, *words).stderr


def test_factors_are_written_for_vector_search(csv, model, tmp_path):
    folder = tmp_path / "low"
    ok("fit", csv, "--model", "lowrankedlae", "--rank", 8, "--title", "title", "--out", folder)
    assert "× 8 factors" in ok("factors", folder, "--out", tmp_path / "factors.parquet")
    table = pl.read_parquet(tmp_path / "factors.parquet")
    fitted = gr.load(folder)
    assert table.columns == ["item", "title", "encoder", "decoder"]
    assert table["item"].to_list() == fitted.items
    query = table["encoder"].to_numpy()[:3].sum(axis=0)
    scores = table["decoder"].to_numpy() @ query
    expected = fitted.recommend_for([fitted.items[:3]], k=5, exclude_seen=False)
    assert [fitted.items[at] for at in scores.argsort()[::-1][:5]] == expected.items[0]
    ok("factors", folder, "--out", tmp_path / "factors.npy")
    stacked = np.load(tmp_path / "factors.npy", allow_pickle=False)
    assert all((a == b).all() for a, b in zip(stacked, fitted.factors(), strict=True))
    assert "a low-rank or factor model" in gramian("factors", model).stderr
    assert ".parquet" in gramian("factors", folder, "--out", tmp_path / "factors.csv").stderr
    assert "in an existing folder" in gramian("factors", folder, "--out", tmp_path / "no" / "factors.npy").stderr
