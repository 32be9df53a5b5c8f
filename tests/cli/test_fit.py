"""`gramian fit`: specs, flags, titles, dry runs."""

import json
import re

import polars as pl

import gramian as gr
from command_line import ok


def test_fit_writes_the_model_the_library_would(csv, model):
    loaded = gr.load(model)
    expected = gr.EDLAE(dropout=0.4, l2=50).fit(gr.read(csv, min_value=("rating", 4), title="title"))
    assert loaded.recipe == gr.EDLAE(dropout=0.4, l2=50)
    assert loaded.recommend(expected.users, k=5) == expected.recommend(expected.users, k=5)


def test_a_spec_gives_the_same_model_as_flags(csv, model, tmp_path):
    spec = ("--model", "EDLAE(dropout=0.4, l2=50)")
    ok("fit", csv, "--min-value", "rating=4", "--title", "title", *spec, "--out", tmp_path / "spec")
    mixed = ("--model", "edlae(l2=50)", "--dropout", 0.4)
    ok("fit", csv, "--min-value", "rating=4", "--title", "title", *mixed, "--out", tmp_path / "mixed")
    expected = gr.load(model).recommend([15], k=5)
    for name in ("spec", "mixed"):
        fitted = gr.load(tmp_path / name)
        assert fitted.recipe == gr.EDLAE(dropout=0.4, l2=50)
        assert fitted.recommend([15], k=5) == expected


def test_a_spec_may_contain_parts(csv, tmp_path):
    ok("fit", csv, "--model", "ials(rank=2, n_epochs=1, solver=subspace(size=2))", "--out", tmp_path / "m")
    assert gr.load(tmp_path / "m").recipe == gr.IALS(rank=2, n_epochs=1, solver=gr.Subspace(size=2))


def test_a_fit_fits_nothing_else(csv, tmp_path, monkeypatch):
    fits = []
    fit_scorer = gr.EASE.fit_scorer
    monkeypatch.setattr(gr.EASE, "fit_scorer", lambda recipe, *words: fits.append(recipe) or fit_scorer(recipe, *words))
    ok("fit", csv, "--model", "ease(l2=40)", "--out", tmp_path / "m")
    ok("evaluate", csv, "--model", "ease(l2=30)", "--model", "popularity")
    assert fits == [gr.EASE(l2=40), gr.EASE(l2=30)]


def test_tags_and_titles_from_a_table_of_items(csv, tmp_path):
    items = pl.read_csv(csv).select(movie="item_id", name="title").unique()
    items.with_columns(genres=pl.lit("Comedy|Drama")).write_parquet(tmp_path / "items.parquet")
    columns = ("--item", "movie", "--title", "name", "--tags", "genres")
    pl.read_csv(csv).rename({"item_id": "movie"}).write_csv(tmp_path / "events.csv")
    words = ("--model", "popularity", "--titles", tmp_path / "items.parquet", *columns, "--out", tmp_path / "m")
    ok("fit", tmp_path / "events.csv", *words)
    catalog = gr.load(tmp_path / "m").catalog
    assert "Pulp Fiction (1994)" in catalog.titles
    assert set(catalog.tags) == {("Comedy", "Drama")}
    items.select("movie", genres=pl.lit("Comedy")).write_csv(tmp_path / "tags.csv")
    words = (
        "--model",
        "popularity",
        "--titles",
        tmp_path / "tags.csv",
        "--item",
        "movie",
        "--tags",
        "genres",
        "--out",
        tmp_path / "t",
    )
    ok("fit", tmp_path / "events.csv", *words)
    tagged = gr.load(tmp_path / "t").catalog
    assert (tagged.titles, set(tagged.tags)) == (None, {("Comedy",)})


def test_a_table_of_items_has_the_ids_of_the_events(tmp_path):
    """Ids that look like numbers are numbers only if all of them do, in both tables."""
    events = {"user_id": [1, 1, 2], "item_id": ["007", "8", "8"]}
    pl.DataFrame(events).write_csv(tmp_path / "events.csv")
    pl.DataFrame({"item_id": ["8", "007"], "title": ["Eight", "Bond"]}).write_csv(tmp_path / "items.csv")
    ok("fit", tmp_path / "events.csv", "--model", "popularity", "--titles", tmp_path / "items.csv", "--out", tmp_path / "m")
    fitted = gr.load(tmp_path / "m")
    assert dict(zip(fitted.items, fitted.catalog.titles, strict=True)) == {"007": "Bond", "8": "Eight"}


def test_a_low_rank_model_is_fitted(csv, tmp_path):
    ok("fit", csv, "--model", "regularizedpca", "--l2", 12, "--rank", 4, "--out", tmp_path / "m")
    assert gr.load(tmp_path / "m").recipe == gr.RegularizedPCA(rank=4, l2=12)


def test_fit_in_json(csv, tmp_path):
    found = json.loads(
        ok("fit", csv, "--model", "deql", "--kept-weight", 2, "--zero-diagonal", "--json", "--out", tmp_path / "m")
    )
    assert found["recipe"]["params"] == {"dropout": 0.3, "kept_weight": 2.0, "l2": 200.0, "zero_diagonal": True}
    assert found["users"] > 0
    assert found["seconds"] > 0


def test_a_dry_run_prints_the_memory_of_a_fit_and_fits_nothing(csv, tmp_path):
    words = ["fit", csv, "--model", "ease", "--dry-run", "--out", tmp_path / "m"]
    assert re.search(r"EASE\(l2=200\) on Interactions\(.*\) needs .* of .* GB free memory: it fits\.", ok(*words))
    found = json.loads(ok(*words, "--json", "--scratch", tmp_path / "scratch"))
    assert found["fits"] is True
    assert min(found["disk_bytes"], found["peak_bytes"]) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_names_the_ways_out(csv, monkeypatch):
    monkeypatch.setattr("gramian.core.recipe.available_bytes", lambda: 1_000)
    words = "fit", csv, "--model", "ease", "--dry-run"
    found = ok(*words)
    assert "1 kB free memory: it does not fit." in found
    assert "--scratch FOLDER" in found
    assert "sparseedlae" not in found  # which does not fit either
    monkeypatch.setattr(gr.SparseEDLAE, "fit_bytes", lambda recipe, events, dtype: 500)
    assert re.search(r"--model sparseedlae: SparseEDLAE\(.*\) needs 500 bytes of 1 kB free memory: it fits\.", ok(*words))


def test_fit_with_a_scratch_folder_leaves_no_trace_of_it(csv, model, tmp_path):
    recipe = ("--min-value", "rating=4", "--model", "edlae", "--dropout", 0.4, "--l2", 50)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "mine").touch()
    ok("fit", csv, *recipe, "--scratch", tmp_path / "scratch", "--out", tmp_path / "m", "--threads", 1)
    assert [p.name for p in (tmp_path / "scratch").iterdir()] == ["mine"]
    assert gr.load(tmp_path / "m").recommend([15], k=5).items == gr.load(model).recommend([15], k=5).items


def test_titles_from_a_table_of_items(csv, tmp_path):
    pl.read_csv(csv).select("item_id", "title").unique().write_csv(tmp_path / "items.csv")
    ok("fit", csv, "--model", "popularity", "--titles", tmp_path / "items.csv", "--out", tmp_path / "m")
    assert "Pulp Fiction (1994)" in gr.load(tmp_path / "m").catalog.titles


def test_titles_are_text_not_markup(tmp_path):
    pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2], "title": ["[red]x[/red]", "[/oops]"]}).write_csv(tmp_path / "e.csv")
    ok("fit", tmp_path / "e.csv", "--model", "popularity", "--title", "title", "--out", tmp_path / "[bold]m")
    shown = ok("recommend", tmp_path / "[bold]m", "--history", "1")
    assert "[/oops]" in shown
