"""`gramian evaluate`, `tune`, `ranks`, `epochs` and, on own data, `benchmark`."""

import json
import re

import polars as pl
import pytest

import gramian as gr
from command_line import gramian, ok
from gramian.cli.model_options import format_recipe, parse_model, split_specs


def test_evaluate_prints_what_the_library_finds(csv):
    words = ["evaluate", csv, "--min-value", "rating=4", "--model", "ease", "--model", "popularity", "--l2", 30]
    found = json.loads(ok(*words, "--metric", "ndcg@10", "--metric", "coverage@5", "--json"))
    split = gr.split.strong(gr.read(csv, min_value=("rating", 4)))
    report = gr.evaluate(gr.EASE(l2=30).fit(split.train), split, ["ndcg@10", "coverage@5"])
    assert found["split"] == split.fingerprint
    assert found["models"][0]["metrics"]["ndcg@10"] == {"mean": report["ndcg@10"], "stderr": report.stderr["ndcg@10"]}
    assert found["models"][0]["metrics"]["coverage@5"] == {"mean": report["coverage@5"], "stderr": None}
    table = ok(*words)
    assert table.index("EASE") < table.index("Popularity"), "best first"
    assert "l2=30" in table


def test_models_with_different_parameters_are_compared(csv):
    specs = ("--model", "ease(l2=300)", "--model", "ease(l2=30)", "--model", "ials(rank=4, l2=0.003, n_epochs=2)")
    rows = json.loads(ok("evaluate", csv, *specs, "--json"))["models"]
    assert [row["recipe"]["params"]["l2"] for row in rows] == [300, 30, 0.003]


def test_a_flag_goes_to_the_one_model_that_has_it(csv):
    words = ("--model", "popularity", "--model", "ease", "--model", "rg2(rank=8)", "--rank", 4)
    refused = gramian("evaluate", csv, *words)
    assert "got rank=8 and --rank 4" in refused.stderr
    rows = json.loads(ok("evaluate", csv, "--model", "popularity", "--model", "rg2", "--rank", 4, "--l2", 0.5, "--json"))[
        "models"
    ]
    assert [row["recipe"]["params"].get("rank") for row in rows] == [None, 4]
    assert [row["recipe"]["params"].get("l2") for row in rows] == [None, 0.5]


def test_the_recipe_of_a_search_can_be_typed_exactly():
    recipe = gr.SLIM(l1=1 / 3, l2=100, non_negative=False)
    ((model, params),) = [parse_model(format_recipe(recipe))]
    assert model(**params) == recipe
    recipe = gr.IALS(solver=gr.Subspace(size=2))
    ((model, params),) = [parse_model(format_recipe(recipe))]
    assert model(**params) == recipe


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("ease,edlae(l2=3, dropout=0.1)", ["ease", "edlae(l2=3, dropout=0.1)"]),
        ("f(a=g(x=1, y=h(z=2)), b=3), ials", ["f(a=g(x=1, y=h(z=2)), b=3)", "ials"]),
        ("cholesky;Subspace(size=2)", ["cholesky", "Subspace(size=2)"]),
    ],
)
def test_lists_of_specs_are_split_outside_parentheses(text, specs):
    assert split_specs(text) == specs


@pytest.mark.parametrize("split", ["weak", "leave-last", "temporal"])
def test_every_split_works(csv, split):
    assert "recall@20" in ok("evaluate", csv, "--model", "popularity", "--split", split, "--time", "time")


def test_a_named_data_set_takes_both_forms_of_a_threshold():
    words = ["evaluate", "movielens", "--model", "popularity", "--json"]
    plain, named = (json.loads(ok(*words, "--min-value", form)) for form in ("4", "rating=4"))
    assert plain["split"] == named["split"]


def test_tune_shows_the_best_a_heat_map_and_the_test_value(csv, tmp_path):
    journal = tmp_path / "journal.jsonl"
    words = ["tune", csv, "--min-value", "rating=4", "--model", "deql", "--space", "dropout=0.2,0.5", "--space", "l2=20,100"]
    shown = ok(*words, "--space", "kept-weight=0,1", "--journal", journal)
    assert "8 points by ndcg@20, validation" in shown
    assert "l2 down and dropout across" in shown
    assert "on the test part" in shown
    spec = r"'DEQL\(dropout=0\.\d, kept_weight=\d, l2=\d+\)'"
    assert re.search(rf"gramian fit .*ratings.csv --min-value rating=4 --model {spec} --out my-model", shown)
    before = journal.read_text()
    found = json.loads(ok(*words, "--space", "kept-weight=0,1", "--journal", journal, "--json"))
    assert journal.read_text() == before
    assert len(found["points"]) == 8
    assert found["points"][0]["value"] == max(point["value"] for point in found["points"])
    assert found["test"]["value"] > 0


def test_tune_by_leaving_users_out_with_optuna(csv):
    words = ["tune", csv, "--min-value", "rating=4", "--model", "ease", "--split", "leave-one-user-out", "--trials", 3]
    found = json.loads(ok(*words, "--space", "l2=10:1000", "--json"))
    assert found["test"] is None
    assert len(found["points"]) == 3
    assert "every user left out" in ok(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--space", "l2"], "parameter=values"),
        (["--space", "l2=ten"], "a number"),
        (["--space", "alpha=1"], "parameters of EDLAE"),
        (["--space", "l2=1:10"], "--trials 30"),
        (["--split", "published"], "a split among"),
        (["--split", "temporal", "--time", "rating"], "validation split"),
        (["--model", "svd"], "a model among"),
        (["--model", "edlae(l2=3)"], "Fix a parameter with --space l2=3"),
    ],
)
def test_tune_refuses_what_makes_no_sense(csv, words, message):
    done = gramian("tune", csv, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_ranks_shows_and_draws_the_curve(csv, tmp_path):
    picture = tmp_path / "ranks.svg"
    words = ["ranks", csv, "--min-value", "rating=4", "--model", "lowrankedlae", "--model", "lrr", "--ranks", "2,8,16"]
    shown = ok(*words, "--dropout", 0.2, "--out", picture)
    assert shown.count("█") >= 6
    assert "LowRankEDLAE(" in shown
    assert picture.read_text().startswith("<?xml")
    found = json.loads(ok(*words, "--json"))
    assert [row["rank"] for row in found["models"][1]["ranks"]] == [2, 8, 16]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "ease"], "a recipe with a rank"),
        (["--model", "lrr(rank=5)"], "no rank with --ranks"),
        (["--ranks", "a,b"], "a number"),
        (["--ranks", "2.5"], "a whole number"),
        (["--ranks", "100000"], "a rank of at most"),
        (["--out", "curve.txt"], "ending in .svg"),
        (["--split", "published"], "a split among"),
    ],
)
def test_ranks_refuses_what_makes_no_sense(csv, words, message):
    assert message in gramian("ranks", csv, *words).stderr


def test_small_things_a_person_may_type(csv, model, tmp_path):
    assert "--rank" in gramian("ranks", csv, "--rank", 5).stderr
    assert "folder that exists" in gramian("ranks", csv, "--out", tmp_path / "no" / "x.svg").stderr
    assert gramian("explain", model, 1, "--history", 2, "-k", 0).returncode == 2
    space = [word for part in ("non-negative=false", "l1=30", "l2=100") for word in ("--space", part)]
    assert "--model 'SLIM(l1=30, l2=100, non_negative=False)'" in ok("tune", csv, "--model", "slim", *space)


def test_a_factor_model_is_trained_in_epochs_and_served(csv, tmp_path):
    words = ["epochs", csv, "--model", "ials", "--rank", 2, "--n-epochs", 4, "--metric", "ndcg@5"]
    found = json.loads(ok(*words, "--out", tmp_path / "m", "--json"))
    assert 1 <= found["recipe"]["params"]["n_epochs"] <= 4
    assert [row["epoch"] for row in found["epochs"]] == list(range(1, len(found["epochs"]) + 1))
    assert "epoch" in ok(*words)
    fitted = ["fit", csv, "--model", "rgx", "--rank", 2, "--solver", "conjugategradient(steps=3)", "--out", tmp_path / "rgx"]
    assert "RGX(" in ok(*fitted, "--scratch", tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()
    assert str(gr.load(tmp_path / "rgx").recipe.solver) == "ConjugateGradient(steps=3)"
    space = ["--space", "rank=2", "--space", "l2=0.1", "--space", "n_epochs=1,2", "--space", "unobserved_weight=0.3"]
    tuned = ok("tune", csv, "--model", "ials", *space, "--space", "solver=cholesky;Subspace(size=2)")
    assert "solver=Subspace(size=2)" in tuned or "solver=Cholesky()" in tuned
    assert "it fits" in ok("fit", csv, "--model", "ials", "--rank", 8, "--dry-run")
    ok("recommend", tmp_path / "rgx", "--user", gr.load(tmp_path / "rgx").users[0], "--exclude-self")
    ok("evaluate", csv, "--model", "rg2", "--rank", 4, "--metric", "map@10", "--exclude-self")
    ok("factors", tmp_path / "rgx", "--of", "users", "--out", tmp_path / "users.parquet")
    assert pl.read_parquet(tmp_path / "users.parquet").columns == ["user", "vector"]
    for words, problem in (
        (["fit", csv, "--model", "ials", "--rank", 4000, "--out", tmp_path / "x"], "rank=4,000"),
        (["fit", csv, "--model", "ials", "--solver", "magic", "--out", tmp_path / "x"], "solver of IALS"),
        (["epochs", csv, "--model", "ease"], "epochs (ials"),
    ):
        done = gramian(*words)
        assert (done.returncode, problem in done.stderr) == (2, True), done.stderr


def test_the_best_epochs_are_fitted_on_all_events(csv, tmp_path):
    events = gr.read(csv, min_value=("rating", 4))
    words = ["epochs", csv, "--min-value", "rating=4", "--model", "ials(rank=2, n_epochs=3)", "--metric", "ndcg@5"]
    shown = ok(*words, "--out", tmp_path / "m", "--scratch", tmp_path / "scratch")
    n_train = gr.split.strong(events).train.n_interactions
    left_out = events.n_interactions - n_train
    shown = " ".join(shown.split())
    assert f"Trained on {n_train:,} of {events.n_interactions:,} interactions. The other {left_out:,} are left out" in shown
    assert f"fitted on all {events.n_interactions:,} interactions" in shown
    fitted = gr.load(tmp_path / "m")
    assert fitted.histories.n_users == events.n_users
    assert fitted.recommend([15], k=5) == fitted.recipe.fit(events).recommend([15], k=5)
    assert not (tmp_path / "scratch").exists()


def test_the_model_of_the_best_epoch_keeps_titles_and_tags(csv, tmp_path):
    words = ["epochs", csv, "--model", "ials(rank=2, n_epochs=2)", "--metric", "ndcg@5"]
    ok(*words, "--title", "title", "--out", tmp_path / "own")
    items = pl.read_csv(csv).select("item_id", "title").unique().with_columns(genres=pl.lit("Comedy|Drama"))
    items.write_csv(tmp_path / "items.csv")
    ok(*words, "--titles", tmp_path / "items.csv", "--tags", "genres", "--out", tmp_path / "table")
    own, table = gr.load(tmp_path / "own").catalog, gr.load(tmp_path / "table").catalog
    assert "Pulp Fiction (1994)" in own.titles
    assert own.titles == table.titles
    assert set(table.tags) == {("Comedy", "Drama")}
    ok("similar", tmp_path / "table", "Pulp Fiction (1994)")


def test_a_benchmark_fixes_the_parameters_in_a_spec(csv, tmp_path):
    words = ["benchmark", "--data", csv, "--min-value", "rating=4", "--journal", tmp_path / "b.jsonl"]
    specs = "ease(l2=50),edlae(dropout=0.2, l2=100)"
    cells = json.loads(ok(*words, "--models", specs, "--models", "popularity", "--json"))["cells"]
    assert [cell["model"] for cell in cells] == ["EASE(l2=50)", "EDLAE(dropout=0.2, l2=100)", "Popularity"]
    assert cells[0]["recipe"]["params"] == {"l2": 50}
    assert cells[1]["recipe"]["params"] == {"dropout": 0.2, "l2": 100}
    done = gramian(*words, "--models", specs)
    assert done.returncode == 0, done.stderr
    assert "EDLAE(dropout=0.2, l2=100)" in done.stdout
