"""Features of items on the command line: `gramian fit --features` and what `gramian explain` says of them."""

import json

import polars as pl
import pytest

import gramian as gr
from command_line import gramian, ok


@pytest.fixture(scope="module")
def items(csv, tmp_path_factory):
    """A table with features of all items, and of two more that have no events."""
    ids = pl.read_csv(csv)["item_id"].unique().sort().to_list()
    rows = [
        (item, f"Movie {item}", "even" if item % 2 == 0 else "odd|rare", 1900 + item % 100) for item in [*ids, 10**9, 10**9 + 1]
    ]
    path = tmp_path_factory.mktemp("features") / "items.csv"
    pl.DataFrame(rows, schema=["item_id", "title", "kind", "year"], orient="row").write_csv(path)
    return path


COLUMNS = ("--feature-tags", "kind", "--feature-text", "title", "--feature-numbers", "year")


def test_a_table_of_features_gives_the_model_the_library_would(csv, items, tmp_path):
    done = gramian("fit", csv, "--model", "cease(l2=50)", "--features", items, *COLUMNS, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "2 items" in done.stderr
    assert "--cold-items" in done.stderr
    events = gr.read(csv)
    features = gr.Features.of(pl.read_csv(items), tags="kind", numbers="year", text="title").take(events.items.tolist())
    expected = gr.CEASE(l2=50).fit(events.with_features(features))
    loaded = gr.load(tmp_path / "m")
    assert loaded.items == expected.items
    assert loaded.recommend(expected.users, k=5).items == expected.recommend(expected.users, k=5).items


def test_cold_items_are_recommended_and_explained(csv, items, tmp_path):
    words = ("--model", "cease(l2=50)", "--features", items, *COLUMNS, "--cold-items", "--out", tmp_path / "m")
    assert gramian("fit", csv, *words).returncode == 0
    model = gr.load(tmp_path / "m")
    assert model.items[-2:] == [10**9, 10**9 + 1]
    history = [word for item in model.items[:3] for word in ("--history", item)]
    facts = json.loads(ok("explain", tmp_path / "m", 10**9, *history, "--json"))
    assert sum(facts["features"].values()) == pytest.approx(facts["score"], abs=1e-5)
    assert "kind: even" in ok("explain", tmp_path / "m", 10**9, *history)


def test_tags_and_titles_of_the_events_are_features_too(tmp_path):
    words = ("--min-value", 4, "--k-core", 20, "--model", "l3ae", "--feature-tags", "tags", "--feature-text", "title")
    ok("fit", "movielens", *words, "--out", tmp_path / "m")
    assert [block.kind for block in gr.load(tmp_path / "m").catalog.features.blocks] == ["tags", "text"]


@pytest.mark.parametrize(
    ("words", "mentioned"),
    [
        ((), "--features"),
        (("--cold-items",), "--cold-items"),
        (("--feature-numbers", "year"), "--features FILE"),
        (("--features", "items", "--feature-tags", "mood"), "mood"),
        (("--features", "items"), "none named"),
    ],
)
def test_what_cannot_be_done_is_refused(csv, items, tmp_path, words, mentioned):
    words = [items if word == "items" else word for word in words]
    done = gramian("fit", csv, "--model", "cease", *words, "--out", tmp_path / "m")
    assert done.returncode != 0
    assert mentioned in done.stderr
