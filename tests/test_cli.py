"""The command line as a person meets it."""

import contextlib
import io
import json
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.app.cli import app, run
from gramian.app.experiment import KINDS
from gramian.models import MODELS

COMMANDS = ["demo", "fit", "recommend", "similar", "explain", "evaluate", "tune", "ranks", "epochs", "benchmark", "report"]
COMMANDS += ["serve", "factors", "datasets"]


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


def gramian(*words: object) -> Run:
    """Run the command line's entry point in this process, which saves the seconds of importing."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
    ):
        patch.setattr(sys, "argv", ["gramian", *map(str, words)])
        patch.setenv("COLUMNS", "140")
        patch.delenv("GRAMIAN_DATA", raising=False)
        with pytest.raises(SystemExit) as stop:
            run()
    return Run(stop.value.code or 0, stdout.getvalue(), stderr.getvalue())


def ok(*words: object) -> str:
    done = gramian(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    events = gr.datasets.load("movielens", weights=True).k_core(40)
    table = events.frame().rename({"value": "rating"})
    titles = dict(zip(events.items.tolist(), events.titles, strict=True))
    table.with_columns(title=pl.col("item_id").replace_strict(titles)).write_csv(path)
    return path


@pytest.fixture(scope="module")
def model(csv, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "edlae"
    ok(
        "fit",
        csv,
        "--min-value",
        "rating=4",
        "--title",
        "title",
        "--model",
        "edlae",
        "--dropout",
        0.4,
        "--l2",
        50,
        "--out",
        folder,
    )
    return folder


def test_fit_writes_the_model_the_library_would(csv, model):
    loaded = gr.load(model)
    expected = gr.EDLAE(dropout=0.4, l2=50).fit(gr.read(csv, min_value=("rating", 4), title="title"))
    assert loaded.recipe == gr.EDLAE(dropout=0.4, l2=50)
    assert loaded.recommend(expected.users, k=5) == expected.recommend(expected.users, k=5)


def test_settings_that_make_no_sense_for_little_data_are_no_error_for_more(csv, tmp_path):
    ok("fit", csv, "--model", "regularizedpca", "--l2", 12, "--rank", 4, "--out", tmp_path / "m")  # compiling meets 50 items


def test_fit_in_json(csv, tmp_path):
    found = json.loads(
        ok("fit", csv, "--model", "deql", "--kept-weight", 2, "--zero-diagonal", "--json", "--out", tmp_path / "m")
    )
    assert found["recipe"]["settings"] == {"dropout": 0.3, "kept_weight": 2.0, "l2": 200.0, "zero_diagonal": True}
    assert found["users"] > 0
    assert found["seconds"] > 0


def test_a_dry_run_says_what_a_fit_would_take_and_fits_nothing(csv, tmp_path):
    words = ["fit", csv, "--model", "ease", "--dry-run", "--out", tmp_path / "m"]
    assert re.search(r"EASE\(l2=200\) on .* about .* s, .* MB of .* GB free memory: it fits\.", ok(*words))
    found = json.loads(ok(*words, "--json", "--scratch", tmp_path / "scratch"))
    assert found["fits"] is True
    assert min(found["disk_bytes"], found["peak_bytes"], found["seconds"]) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_names_the_ways_out(csv, monkeypatch):
    monkeypatch.setattr("gramian.models.recipe.available", lambda: 1_000)
    found = ok("fit", csv, "--model", "ease", "--dry-run")
    assert "1 kB free memory: it does not fit." in found
    assert "--scratch FOLDER" in found


def test_fit_with_a_scratch_folder_leaves_no_trace_of_it(csv, model, tmp_path):
    recipe = ("--min-value", "rating=4", "--model", "edlae", "--dropout", 0.4, "--l2", 50)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "mine").touch()
    ok("fit", csv, *recipe, "--scratch", tmp_path / "scratch", "--out", tmp_path / "m", "--threads", 1)
    assert [p.name for p in (tmp_path / "scratch").iterdir()] == ["mine"]
    assert gr.load(tmp_path / "m").recommend([15], k=5).items == gr.load(model).recommend([15], k=5).items


def test_lists_for_everybody_go_to_a_file(model, tmp_path):
    loaded = gr.load(model)
    assert f"{loaded.events.n_users:,} users written" in ok("recommend", model, "--out", tmp_path / "all.parquet", "-k", 3)
    found = pl.read_parquet(tmp_path / "all.parquet")
    expected = loaded.recommend(loaded.users, k=3).frame()
    assert found["item"].to_list() == expected["item"].to_list()
    assert json.loads(ok("recommend", model, "--user", 15, "--out", tmp_path / "one.parquet", "--json"))["users"] == 1
    assert pl.read_parquet(tmp_path / "one.parquet")["user"].unique().to_list() == [15]


def test_titles_from_a_table_of_items(csv, tmp_path):
    pl.read_csv(csv).select("item_id", "title").unique().write_csv(tmp_path / "items.csv")
    ok("fit", csv, "--model", "popularity", "--titles", tmp_path / "items.csv", "--out", tmp_path / "m")
    assert "Pulp Fiction (1994)" in gr.load(tmp_path / "m").events.titles


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


def test_similar(model):
    expected = gr.load(model).similar_items(260, k=4).items[0]
    assert [row["item"] for row in json.loads(ok("similar", model, 260, "-k", 4, "--json"))["similar"]] == expected
    assert "Star Wars" in ok("similar", model, "Star Wars: Episode IV - A New Hope (1977)")


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


@pytest.mark.parametrize("split", ["weak", "leave-last", "temporal"])
def test_every_split_works(csv, split):
    assert "recall@20" in ok("evaluate", csv, "--model", "popularity", "--split", split, "--time", "time")


def test_datasets_are_listed_with_their_source():
    rows = {row["name"]: row for row in json.loads(ok("datasets", "--json"))["datasets"]}
    assert rows["movielens"]["here"]
    assert not rows["gowalla"]["here"]
    assert "LightGCN" in rows["gowalla"]["address"]
    assert "GRAMIAN_DATA" in ok("datasets")


def test_demo_shows_a_leaderboard_and_reasons():
    shown = ok("demo")
    models = re.findall(r"^(\w+) +0\.\d{4} ±", shown, flags=re.MULTILINE)
    assert sorted(models) == ["DEQL", "DLAE", "EASE", "EDLAE", "Popularity"]
    for words in ("memory", "Return of the Jedi", "because of", "gramian fit"):
        assert words in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    assert f"gramian {command}" in ok(command, "--help").split("Example:")[1]


def test_commands_are_documented():
    assert sorted(COMMANDS) == sorted(c.name or c.callback.__name__ for c in app.registered_commands)
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    assert all(f"gramian {command}" in readme for command in COMMANDS)
    assert list(KINDS) == [name.lower() for name in MODELS | gr.sampled.MODELS]


def test_settings_go_to_the_models_that_have_them(csv):
    found = json.loads(ok("evaluate", csv, "--l2", 30, "--json"))["models"]
    assert [row["recipe"]["settings"].get("l2") for row in found] == [None, 30, 30]


def test_a_named_data_set_takes_both_forms_of_a_threshold():
    words = ["evaluate", "movielens", "--model", "popularity", "--json"]
    plain, named = (json.loads(ok(*words, "--min-value", form)) for form in ("4", "rating=4"))
    assert plain["split"] == named["split"]


def test_without_a_command_there_is_help_and_a_version():
    assert "demo" in ok()
    assert ok("--version").strip() == gr.__version__


def test_demo_in_json():
    found = json.loads(ok("demo", "--json"))
    assert [row["recipe"]["name"] for row in found["models"]] == ["Popularity", "EASE", "DLAE", "EDLAE", "DEQL"]
    assert found["recommendations"][0]["title"].startswith("Star Wars: Episode VI")


BAD = {
    "setting of none of the models": (
        ["evaluate", "{csv}", "--model", "ease", "--model", "edlae", "--alpha", "0.3"],
        "--alpha",
    ),
    "ignored column": (["fit", "movielens", "--user", "who"], "--user"),
    "column it does not have": (["fit", "movielens", "--min-value", "stars=4"], "'rating'"),
    "ignored with published": (["evaluate", "gowalla", "--split", "published", "--k-core", "5"], "--k-core"),
    "dtype": (["fit", "{csv}", "--dtype", "foo"], "float64"),
    "no such file": (["fit", "nowhere.csv"], "nowhere.csv"),
    "no such model": (["fit", "movielens", "--model", "magic"], "'magic'"),
    "no such option": (["fit", "movielens", "--bogus"], "--bogus"),
    "no argument": (["fit"], "data"),
    "no command": (["explode"], "explode"),
    "not a number": (["fit", "movielens", "--l2", "many"], "--l2"),
    "negative l2": (["fit", "movielens", "--model", "ease", "--l2", "-1"], "l2 of EASE"),
    "dropout 1": (["fit", "movielens", "--dropout", "1"], "dropout of EDLAE"),
    "foreign setting": (["fit", "movielens", "--model", "ease", "--dropout", "0.2"], "--dropout"),
    "threshold without a column": (["fit", "{csv}", "--min-value", "4"], "rating=4"),
    "missing column": (["fit", "{csv}", "--user", "who"], "'who'"),
    "no such model folder": (["recommend", "nowhere", "--history", "1"], "nowhere"),
    "no such threads": (["fit", "{csv}", "--model", "ease", "--threads", "0"], "n_threads from 1 to"),
    "scratch for nothing": (["fit", "{csv}", "--model", "popularity", "--scratch", "s"], "Leave scratch out"),
    "two ways at once": (["recommend", "{model}", "--history", "260", "--out", "x.parquet"], "--history alone"),
    "nowhere to write": (["recommend", "{model}", "--out", "no/such/x.parquet"], "in a folder that is there"),
    "nothing asked": (["recommend", "{model}"], "--user, --history or --out"),
    "unknown user": (["recommend", "{model}", "--user", "nobody"], "'nobody'"),
    "unknown item": (["recommend", "{model}", "--history", "star wars"], "Star Wars: Episode IV"),
    "k of 0": (["recommend", "{model}", "--history", "260", "-k", "0"], "k of at least 1"),
    "unknown split": (["evaluate", "{csv}", "--split", "sideways"], "sideways"),
    "unknown metric": (["evaluate", "{csv}", "--metric", "magic@3"], "magic@3"),
    "no times": (["evaluate", "{csv}", "--split", "temporal"], "times"),
    "data set not here": (["fit", "gowalla"], "LightGCN"),
    "not split by its publisher": (["evaluate", "movielens", "--split", "published"], "published as train and test"),
    "out is a file": (["fit", "{csv}", "--model", "popularity", "--out", "{csv}"], "something else"),
}


@pytest.mark.parametrize(("words", "expected"), BAD.values(), ids=BAD)
def test_an_error_is_one_line_and_exit_code_2(words, expected, csv, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = gramian(*(word.format(csv=csv, model=model) for word in words))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


def test_the_installed_command_answers_and_fails_like_the_function(csv, tmp_path):
    command = str(Path(sys.executable).with_name("gramian"))
    good = subprocess.run([command, "datasets", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(good.stdout)["datasets"]
    bad = subprocess.run([command, "fit", csv, "--user", "who"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert "Traceback" not in bad.stderr


def test_titles_are_text_not_markup(tmp_path):
    pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2], "title": ["[red]x[/red]", "[/oops]"]}).write_csv(tmp_path / "e.csv")
    ok("fit", tmp_path / "e.csv", "--model", "popularity", "--title", "title", "--out", tmp_path / "[bold]m")
    shown = ok("recommend", tmp_path / "[bold]m", "--history", "1")
    assert "[/oops]" in shown


def test_explain_adds_up_and_draws_bars(model):
    titles = ["Heat (1995)", "Alien (1979)"]
    fitted = gr.load(model)
    history = [i for i, t in zip(fitted.items, fitted.events.titles, strict=True) if t in titles[1:]] + fitted.items[:3]
    words = [w for item in history for w in ("--history", item)]
    found = json.loads(ok("explain", model, fitted.items[5], *words, "--json"))
    expected = fitted.explain(history, fitted.items[5])
    assert found["score"] == pytest.approx(expected.score)
    assert sum(part["contribution"] for part in found["contributions"]) == pytest.approx(found["score"])
    assert all(part["title"] for part in found["contributions"])
    shown = ok("explain", model, fitted.events.titles[5], "--user", fitted.users[0], "-k", 2)
    assert fitted.events.titles[5] in shown
    assert shown.count("█") >= 2
    assert f"{len(fitted.history(fitted.users[0])) - 2:,} others together" in shown


def test_explain_wants_one_history(model):
    for words in ([], ["--user", 1, "--history", 2]):
        assert "--user or --history" in gramian("explain", model, 1, *words).stderr


def test_tune_shows_the_best_a_heat_map_and_the_test_value(csv, tmp_path):
    journal = tmp_path / "journal.jsonl"
    words = ["tune", csv, "--min-value", "rating=4", "--model", "deql", "--space", "dropout=0.2,0.5", "--space", "l2=20,100"]
    shown = ok(*words, "--space", "kept-weight=0,1", "--journal", journal)
    assert "8 points by ndcg@20, validation" in shown
    assert "l2 down and dropout across" in shown
    assert "on the test part" in shown
    assert re.search(r"gramian fit .*ratings.csv --model deql --dropout 0\.\d+ --kept-weight \d --l2 \d+", shown)
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
        (["--space", "l2"], "setting=values"),
        (["--space", "l2=ten"], "a number"),
        (["--space", "alpha=1"], "settings of EDLAE"),
        (["--space", "l2=1:10"], "trials=30"),
        (["--split", "published"], "a split among"),
        (["--split", "temporal", "--time", "rating"], "validation part"),
        (["--model", "svd"], "a model among"),
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
        (["--ranks", "a,b"], "a number"),
        (["--ranks", "2.5"], "a whole number"),
        (["--ranks", "100000"], "a rank of at most"),
        (["--out", "curve.txt"], "ending in .svg"),
        (["--split", "published"], "a split among"),
    ],
)
def test_ranks_refuses_what_makes_no_sense(csv, words, message):
    assert message in gramian("ranks", csv, *words).stderr


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
    assert "folder that is there" in gramian("factors", folder, "--out", tmp_path / "no" / "factors.npy").stderr


def test_small_things_a_person_may_type(csv, model, tmp_path):
    assert "--rank" in gramian("ranks", csv, "--rank", 5).stderr
    assert "folder that is there" in gramian("ranks", csv, "--out", tmp_path / "no" / "x.svg").stderr
    assert gramian("explain", model, 1, "--history", 2, "-k", 0).returncode == 2
    space = [word for part in ("non-negative=false", "l1=30", "l2=100") for word in ("--space", part)]
    assert "--model slim --l1 30 --l2 100 --no-non-negative" in ok("tune", csv, "--model", "slim", *space)


def test_a_factor_model_is_trained_in_epochs_and_served(csv, tmp_path):
    words = ["epochs", csv, "--model", "ials", "--rank", 2, "--n-epochs", 4, "--metric", "ndcg@5"]
    found = json.loads(ok(*words, "--out", tmp_path / "m", "--json"))
    assert 1 <= found["recipe"]["settings"]["n_epochs"] <= 4
    assert [row["epoch"] for row in found["epochs"]] == list(range(1, len(found["epochs"]) + 1))
    assert "epoch" in ok(*words)
    fitted = ["fit", csv, "--model", "rgx", "--rank", 2, "--solver", "conjugategradient(steps=3)", "--out", tmp_path / "rgx"]
    assert "RGX(" in ok(*fitted, "--scratch", tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()
    assert str(gr.load(tmp_path / "rgx").recipe.solver) == "ConjugateGradient(steps=3)"
    space = ["--space", "rank=2", "--space", "l2=0.1", "--space", "n_epochs=1,2", "--space", "unobserved_weight=0.3"]
    tuned = ok("tune", csv, "--model", "ials", *space, "--space", "solver=cholesky;Subspace(size=2)")
    assert "--solver 'Subspace(size=2)'" in tuned or "--solver 'Cholesky()'" in tuned
    assert "about" in ok("fit", csv, "--model", "ials", "--rank", 8, "--dry-run")
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
