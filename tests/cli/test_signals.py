"""Kinds of events, time and dislikes on the command line."""

import polars as pl
import pytest

import gramian as gr
from command_line import gramian, ok

KINDS, WEIGHTS = ["view", "buy"], {"view": 0.2, "buy": 1.0}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.csv"
    rows = [(u, (u + k) % 7, KINDS[k % 2], 10 * u + k, 1 + (u + k) % 5) for u in range(20) for k in range(5)]
    pl.DataFrame(rows, schema=["user", "item", "event", "t", "rating"], orient="row").write_csv(path)
    return path


def test_kinds_are_added_up_or_kept_apart(log, tmp_path):
    ok("fit", log, "--kind", "event", "--weights", "view=0.2,buy=1", "--model", "ease(l2=2)", "--out", tmp_path / "added")
    expected = gr.EASE(l2=2).fit(gr.read(log, kind="event", weights=WEIGHTS))
    assert gr.load(tmp_path / "added").recommend([1], k=3) == expected.recommend([1], k=3)
    ok("fit", log, "--kind", "event", "--kinds", "view,buy", "--model", "multibehaviorease(l2=2)", "--out", tmp_path / "apart")
    apart = gr.load(tmp_path / "apart")
    assert apart.histories.kinds == ("view", "buy")
    assert "1" in ok("recommend", tmp_path / "apart", "--user", 1, "-k", 2)


def test_decay_sequences_and_dislikes(log, tmp_path):
    ok("fit", log, "--time", "t", "--half-life", 30, "--model", "ease(l2=2)", "--out", tmp_path / "decayed")
    decayed = gr.read(log, time="t", half_life=30)
    assert gr.load(tmp_path / "decayed").histories.fingerprint == decayed.fingerprint
    ok("fit", log, "--time", "t", "--model", "tale(l2=2, time_scale=5)", "--out", tmp_path / "tale")
    assert gr.load(tmp_path / "tale").recipe == gr.TALE(l2=2, time_scale=5)
    ok("fit", log, "--min-value", "rating=4", "--max-dislike", 2, "--model", "ease(l2=2)", "--out", tmp_path / "signed")
    assert gr.load(tmp_path / "signed").histories.has_dislikes


BAD = {
    "kinds without a column": (["--kinds", "view,buy"], "kind"),
    "neither": (["--kind", "event"], "--weights view=0.2,buy=1"),
    "no weight": (["--kind", "event", "--weights", "view"], "Pass view=0.2,buy=1"),
    "unknown kind": (["--kind", "event", "--weights", "view=1,sell=1"], "buy"),
    "kinds for a model of one": (["--kind", "event", "--kinds", "view,buy", "--model", "ease"], "MultiBehaviorEASE"),
    "negative half-life": (["--time", "t", "--half-life", "-3"], "half"),
    "no times": (["--half-life", "3d"], "--time"),
    "dislikes for a model without": (["--min-value", "rating=4", "--max-dislike", "2", "--model", "itemknn"], "dislikes"),
}


@pytest.mark.parametrize(("words", "mentioning"), BAD.values(), ids=BAD.keys())
def test_bad_signals_are_refused(words, mentioning, log, tmp_path):
    done = gramian("fit", log, *words, "--out", tmp_path / "m")
    assert done.returncode != 0
    assert mentioning in done.stderr
    assert "Traceback" not in done.stderr
