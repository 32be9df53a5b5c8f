"""Leaderboards: best first, a paired test against the best, the winner only where it is one, and no number cut."""

import io
import re
import shlex

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import gramian as gr
from command_line import gramian, ok
from gramian.cli import leaderboards
from gramian.cli.leaderboards import path_tables, trial_leaderboard
from gramian.experiments.trial import Trial

MEAN = r"0\.\d{4} ±0\.\d{4}"


def make_trial(recipe, values, coverage=None):
    catalog = {} if coverage is None else {"coverage@20": coverage}
    metrics = ("ndcg@20", *catalog) if values is not None else tuple(catalog)
    per_user = {} if values is None else {"ndcg@20": np.asarray(values)}
    return Trial(recipe, gr.Report(per_user, catalog, list(range(40)), "split", metrics), 1.0, 1000)


def render(table, width=140):
    console = Console(width=width, force_terminal=True, color_system="standard", record=True, file=io.StringIO())
    console.print(table)
    return console.export_text(styles=True)


NOISE = np.random.default_rng(0).random(40)
GREEN = "\x1b[1;32m"


def test_the_winner_is_highlighted_only_where_its_lead_is_significant():
    better, second = make_trial(gr.EASE(), NOISE + 0.1 + NOISE[::-1] / 50), make_trial(gr.EDLAE(), NOISE)
    shown = render(trial_leaderboard([second, better]))
    assert GREEN in shown
    assert shown.index("EASE(l2=200)") < shown.index("EDLAE(dropout=0.3, l2=200)")
    assert "<0.0001" in shown
    assert "not significant" not in shown
    third = make_trial(gr.DLAE(), NOISE[::-1] - 0.01)
    unclear = render(trial_leaderboard([second, better, third]))
    assert GREEN not in unclear, "it must be better than every other"
    assert "The lead of the best is not significant" in unclear


def test_one_model_or_a_metric_without_users_has_no_winner():
    for trials in ([make_trial(gr.EASE(), NOISE)], [make_trial(gr.EASE(), None, 0.4), make_trial(gr.EDLAE(), None, 0.3)]):
        shown = render(trial_leaderboard(trials))
        assert GREEN not in shown
        assert "paired" not in shown


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_narrow_terminal_cuts_no_number(csv, width):
    models = ("--model", "popularity", "--model", "ease", "--model", "edlae(dropout=0.25, l2=123)")
    metrics = [word for name in ("ndcg@20", "recall@20", "coverage@20") for word in ("--metric", name)]
    shown = ok("evaluate", csv, *models, *metrics, width=width).partition("The time includes")[0]
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert len(re.findall(MEAN, shown)) >= 3
    assert "EDLAE(dropout=0.25," in shown, "parameters are shown, if on a second line"
    assert "l2=123)" in shown
    assert len(re.findall(r" (<0\.0001|0\.\d{4})( |$)", shown, flags=re.MULTILINE)) >= 2, "p of all but the best"
    assert ("Not shown in 60 characters: " in shown) == (width == 60)
    if width == 140:
        assert re.search(r"coverage@20 +p +fit +memory", shown)


def test_a_narrow_benchmark_cuts_no_number(csv, tmp_path):
    words = ["benchmark", "--data", csv, "--min-value", "rating=4", "--models", "ease(l2=50),popularity"]
    done = gramian(*words, "--journal", tmp_path / "b.jsonl", width=60)
    assert "…" not in done.stdout
    table = done.stdout.partition("Not shown")[0]
    assert max(map(len, table.splitlines())) <= 60
    assert len(re.findall(MEAN, table)) >= 2
    assert "EASE(l2=50)" in table


def test_tune_tests_each_point_against_the_best(csv, tmp_path):
    words = ["tune", csv, "--min-value", "rating=4", "--model", "ease", "--space", "l2=1,20,5000", "--journal", tmp_path / "j"]
    shown = ok(*words, width=60)
    rows = re.findall(rf"^l2=(\d+) +({MEAN}) +(\S+)? +\d+$", shown, flags=re.MULTILINE)
    assert len(rows) == 3
    assert rows[0][2] == "", "the best has no p"
    assert all(p for _, _, p in rows[1:])
    values = [float(mean.split()[0]) for _, mean, _ in rows]
    assert values == sorted(values, reverse=True)
    assert not re.search(rf"^l2=(\d+) +({MEAN}) +[<.\d]+ +\d+$", ok(*words), flags=re.MULTILINE), "a journal has no users"


def test_a_search_compares_its_points_user_by_user(csv):
    events = gr.read(csv, min_value=("rating", 4))
    split = gr.split.strong(events).validation
    search = gr.tune(gr.EASE, split, {"l2": [1, 20, 5000]})
    reports = [gr.evaluate(result.recipe.fit(split.train), split, ["ndcg@20"]) for result in search.results]
    expected = [report.compare(reports[0], "ndcg@20").p_value for report in reports[1:]]
    assert search.results[0].p_value is None
    assert [result.p_value for result in search.results[1:]] == pytest.approx(expected, rel=1e-3)


def test_bars_start_at_zero(monkeypatch):
    reports = {n: make_trial(gr.EASE(), np.full(40, value)).report for n, value in ((8, 0.2), (16, 0.4), (32, 0.3))}
    monkeypatch.setattr(leaderboards, "MAX_BAR_WIDTH", 40)
    shown = "".join(render(table) for table in path_tables([gr.RankPath(gr.LowRankEDLAE(), reports)], "ndcg@20"))
    assert [line.count("█") for line in shown.splitlines() if "█" in line] == [20, 40, 30]
    assert re.search(r"16 .*best", shown)


def test_paths_of_several_models_come_best_first(csv):
    words = ["ranks", csv, "--min-value", "rating=4", "--model", "regularizedpca", "--model", "lowrankedlae", "--ranks", "2,16"]
    shown = ok(*words, "--metric", "ndcg@20")
    titles = re.findall(r"^(\w+)\(", shown, flags=re.MULTILINE)
    best = [max(map(float, re.findall(r"(0\.\d{4}) ±", block))) for block in re.split(r"^\w+\(.*\n", shown, flags=re.M)[1:]]
    assert len(titles) == 2
    assert best == sorted(best, reverse=True)
    assert shown.count("best\n") + shown.count("best ") >= 1
    assert "paired t-test on ndcg@20" in shown


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
def test_wide_heat_maps_are_folded(csv):
    space = ("--space", "dropout=0.1,0.15,0.2,0.25,0.3,0.35,0.4", "--space", "l2=1,3,5,10,20,50,100")
    shown = ok("tune", csv, "--min-value", "rating=4", "--model", "edlae", *space, width=60)
    heat_map = shown.partition("across")[2].partition("The best on")[0]
    assert len(re.findall(r"0\.\d{4}", heat_map)) == 49
    assert max(map(len, heat_map.splitlines())) <= 60


def next_commands(shown):
    return [shlex.split(line)[2:] for line in shown.splitlines() if line.startswith("Next: gramian ")]


def test_next_commands_can_be_pasted(csv, tmp_path, monkeypatch):
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    table = pl.read_csv(csv).rename({"user_id": "who is it", "item_id": "item"})
    table.write_csv(folder / "my events.csv")
    source = ("my events.csv", "--user", "who is it", "--min-value", "rating=4", "--k-core", 5)
    (fit,) = next_commands(ok("tune", *source, "--model", "ease", "--space", "l2=20,50"))
    assert "--k-core" in fit
    (recommend,) = next_commands(ok(*fit))
    assert "item" in ok(*recommend)
    (titled,) = next_commands(ok("fit", *source, "--title", "title", "--model", "popularity", "--out", "my model"))
    assert "item" in ok(*titled)
    (fit,) = next_commands(ok("epochs", *source, "--model", "ials(rank=2, n_epochs=2)"))
    (recommend,) = next_commands(ok(*fit))
    assert "item" in ok(*recommend)
    (explained,) = next_commands(ok("models"))
    assert "dropout" in ok(*explained)
