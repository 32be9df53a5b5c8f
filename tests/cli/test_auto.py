"""`gramian describe` and `gramian auto`: what a newcomer sees, the files that are left, and the exit codes for cron."""

import json

import polars as pl
import pytest

import gramian as gr
from command_line import gramian, ok
from gramian.cli.auto import NOT_REPLACED
from gramian.selection import search
from gramian.selection.families import FAMILIES


@pytest.fixture(autouse=True)
def few_families(monkeypatch):
    names = ("popularity", "item neighbours", "shrunk singular values")
    monkeypatch.setattr(search, "FAMILIES", tuple(family for family in FAMILIES if family.name in names))


def test_describe_says_what_is_taken_for_what_and_how_to_change_it(csv):
    text = ok("describe", csv)
    assert "taken for the user; another one: --user NAME" in text
    assert "--min-value" in text
    assert "A strong split, because" in text
    facts = json.loads(ok("describe", csv, "--json"))
    assert facts["columns"]["item"] == "item_id"
    assert facts["values"]["kind"] == "ratings"
    assert ok("describe", "movielens", "--k-core", 10)


def test_describe_warns_that_auto_would_refuse(tmp_path):
    pl.DataFrame({"user_id": range(30), "item_id": [1, 2, 3] * 10}).write_csv(tmp_path / "tiny.csv")
    text = ok("describe", tmp_path / "tiny.csv")
    assert "numbers the rows" in text
    assert "gramian auto would refuse this" in text
    done = gramian("auto", tmp_path / "tiny.csv", "--out", tmp_path / "model")
    assert done.returncode == 2
    assert "to compare models" in done.stderr
    assert not (tmp_path / "model").exists()


def test_auto_leaves_a_model_with_a_card_results_and_a_report(csv, tmp_path):
    folder = tmp_path / "my-model"
    done = gramian("auto", csv, "--budget", "5h", "--out", folder, "--title", "title")  # from the start of this process
    assert done.returncode == 0, done.stderr
    assert "best so far" in done.stderr
    assert "(chosen)" in done.stdout
    assert "Use " in done.stdout
    assert "Next: " in done.stdout
    results = json.loads((tmp_path / "my-model.json").read_text())
    assert results["recommendation"] in " ".join(done.stdout.split())
    assert "<svg" in (tmp_path / "my-model.html").read_text()
    model = gr.load(folder)
    assert model.recipe.to_json() == results["recipe"]
    assert model.card["metric"] == "ndcg@20"
    assert model.catalog.titles is not None
    assert model.card["model"] in ok("describe", folder)
    assert json.loads(ok("describe", folder, "--json"))["card"] == model.card
    assert ok("recommend", folder, "--history", str(model.items[0]))


def test_auto_retrains_and_tells_cron(csv, model, tmp_path):
    done = gramian("auto", csv, "--like", model, "--out", tmp_path / "new")
    assert done.returncode == NOT_REPLACED
    assert "has seen all" in done.stdout
    assert not (tmp_path / "new").exists()
    table = pl.read_csv(csv)
    old = tmp_path / "old"
    table.sort("time").head(len(table) // 2).write_csv(tmp_path / "before.csv")
    ok("fit", tmp_path / "before.csv", "--min-value", "rating=4", "--model", "ease", "--out", old)
    done = gramian("auto", csv, "--like", old, "--json")
    outcome = json.loads(done.stdout)
    assert done.returncode == (0 if outcome["is_replaced"] else NOT_REPLACED)
    assert (gr.load(old).card is not None) == outcome["is_replaced"]


def test_a_model_without_a_card_says_so(model):
    assert "no card" in ok("describe", model)


@pytest.mark.parametrize("words", [("--budget", "soon"), ("--memory", "lots"), ("--metric", "ndcg")])
def test_bad_options_are_refused_before_anything_is_read(tmp_path, words):
    done = gramian("auto", tmp_path / "missing.csv", *words)
    assert done.returncode == 2
    assert "missing.csv" not in done.stderr
