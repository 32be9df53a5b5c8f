"""The selection: what it returns, that it chooses on validation, keeps to its budget's rules, and continues after a kill."""

import json
import re
from itertools import product

import numpy as np
import pytest

import gramian as gr
from gramian.evaluation.metrics import parse_metric
from gramian.selection import search as search_module
from gramian.selection.budget import Clock, parse_budget, parse_size
from gramian.selection.families import FAMILIES, Axis
from gramian.selection.finals import run_final_test
from gramian.selection.page import count_in_bins, write_selection_page
from gramian.selection.protocol import choose_protocol
from gramian.selection.search import FamilySearch
from gramian.selection.standing import FamilyState

CHEAP = tuple(family for family in FAMILIES if family.name in ("popularity", "item neighbours"))


def quiet(standing):
    pass


@pytest.fixture
def cheap(monkeypatch):
    monkeypatch.setattr(search_module, "FAMILIES", CHEAP)


def test_the_chosen_model_is_the_best_on_validation(selection):
    values = [finalist.candidate.value for finalist in selection.finalists]
    assert values == sorted(values, reverse=True)
    assert selection.recipe == selection.model.recipe == selection.finalists[0].recipe
    assert selection.recipe != gr.Popularity()


def test_the_test_figures_are_those_of_evaluate(selection):
    split = selection.protocol.test
    for finalist in selection.finalists:
        report = gr.evaluate(finalist.recipe.fit(split.train), split, ["ndcg@20", "novelty@20", "coverage@20"])
        assert finalist.report["ndcg@20"] == pytest.approx(report["ndcg@20"], abs=1e-3)
        assert finalist.report["coverage@20"] == pytest.approx(report["coverage@20"], abs=1e-2)


def test_the_last_model_is_fitted_on_all_events_and_keeps_its_card(selection, events, tmp_path):
    assert selection.model.histories.fingerprint == events.fingerprint
    selection.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.card == selection.model.card
    assert loaded.card["data"]["fingerprint"] == events.fingerprint
    assert {"recipe", "protocol", "figures", "versions", "time", "metric", "recommendation"} <= set(loaded.card)
    assert loaded.recommend(events.users[:2].copy(), k=3).items == selection.model.recommend(events.users[:2], k=3).items
    plain = gr.Popularity().fit(events)
    plain.save(tmp_path / "plain")
    assert gr.load(tmp_path / "plain").card is None


def test_the_result_reads_as_text_json_and_table(selection):
    facts = selection.to_json()
    json.dumps(facts, allow_nan=False, default=str)
    assert facts["recommendation"].startswith(f"Use {selection.recipe}")
    assert [row["spec"] for row in facts["leaderboard"]] == list(selection.comparison.reports)
    frame = selection.frame()
    assert frame["chosen"].sum() == 1
    assert frame["ndcg@20"].to_list() == sorted(frame["ndcg@20"], reverse=True)
    assert selection.recommendation in str(selection)
    assert "recipes in" in repr(selection)
    assert "<table" in selection._repr_html_()


def test_the_page_is_self_contained(selection, tmp_path):
    page = write_selection_page(selection, tmp_path / "page.html").read_text()
    assert page.count("<svg") >= 4
    assert not re.search(r"<script|<link|\bsrc=|href=\"http|url\((?!#)", page)
    assert "Model card" in page
    assert selection.model.card["data"]["fingerprint"] in page
    for finalist in selection.finalists:
        assert finalist.name in page


def test_a_search_continues_from_its_journal(events, tmp_path, cheap, monkeypatch):
    protocol, journal = choose_protocol(events), tmp_path / "search.jsonl"
    metric = parse_metric("ndcg@20")
    first = FamilySearch(protocol, metric, Clock(600), journal, quiet)
    first.run()
    lines = journal.read_text().splitlines()
    assert len(lines) > len(CHEAP)
    journal.write_text("\n".join(lines[: len(lines) // 2]) + "\n")  # as a kill in the middle leaves it
    second = FamilySearch(protocol, metric, Clock(600), journal, quiet)
    second.run()
    assert [(c.recipe, c.value) for c in second.candidates()] == [(c.recipe, c.value) for c in first.candidates()]
    assert second.clock.used > 0  # the time of the first run counts
    n_lines = len(journal.read_text().splitlines())
    FamilySearch(protocol, metric, Clock(600), journal, quiet).run()
    assert len(journal.read_text().splitlines()) == n_lines


def test_ctrl_c_keeps_the_best_so_far(events, cheap):
    def interrupt(standing):
        raise KeyboardInterrupt

    selection = gr.auto(events, budget="10m", on_progress=interrupt)
    assert selection.is_interrupted
    assert selection.model.histories is not None


def test_ctrl_c_on_the_sample_keeps_the_best_there(events, cheap, monkeypatch):
    def interrupt(standing):
        if standing.stage == "sample" and len(standing.candidates) == len(CHEAP):
            raise KeyboardInterrupt

    monkeypatch.setattr(search_module, "sample_split", lambda split: split)
    selection = gr.auto(events, budget="10m", on_progress=interrupt)
    assert selection.is_interrupted
    assert isinstance(selection.recipe, gr.ItemKNN)
    assert selection.model.histories.fingerprint == events.fingerprint


def test_without_time_the_first_model_is_still_tested(events, cheap):
    selection = gr.auto(events, budget=5, elapsed=1000)
    assert [finalist.name for finalist in selection.finalists] == ["Popularity()"]
    assert "raise the budget" in selection.recommendation


def test_a_family_that_needs_more_memory_than_allowed_is_left_out(events, monkeypatch):
    search = FamilySearch(choose_protocol(events), parse_metric("ndcg@20"), Clock(60), None, quiet)
    monkeypatch.setattr(search_module, "available_bytes", lambda: 1000)
    assert not any(search.is_feasible(family) for family in FAMILIES if family.is_dense)
    assert "of memory" in search.left_out["autoencoder"]


def test_weighted_events_leave_out_models_of_binary_events():
    events = gr.datasets.load("movielens", weights=True).k_core(40)
    search = FamilySearch(choose_protocol(events), parse_metric("ndcg@20"), Clock(60), None, quiet)
    feasible = [family.name for family in FAMILIES if search.is_feasible(family)]
    assert "normalised autoencoder" not in feasible
    assert "0/1" in search.left_out["normalised autoencoder"]
    assert "autoencoder" in feasible


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_has_valid_recipes_at_its_starts_and_around(family, events):
    for start in family.starts:
        assert family.recipes(start, events)
        for step, n_steps in product((1, 0.5), range(1, 12)):
            for point in family.neighbours(start, step * n_steps):
                for recipe in family.recipes(point, events):
                    assert recipe.params.get("rank", 1) <= min(events.n_users, events.n_items)


def test_the_defaults_are_among_the_starting_points(events):
    recipes = [recipe.canonical() for family in FAMILIES for start in family.starts for recipe in family.recipes(start, events)]
    assert gr.EASE(l2=200).canonical() in recipes
    assert gr.EDLAE().canonical() in recipes
    assert gr.IALS().canonical() in recipes


def test_an_axis_ends_at_its_limits():
    axis = Axis("l2", 200, 3, 0.5, 1000)
    assert [axis.value(k) for k in (0, 1, 2, -0.5)] == [200, 600, None, 115]
    assert Axis("rank", 128, 2, 8, 512, is_whole=True).value(0.5) == 181


def test_a_family_is_not_evaluated_beyond_the_time_for_the_end(events, cheap, monkeypatch):
    search = FamilySearch(choose_protocol(events), parse_metric("ndcg@20"), Clock(600), None, quiet)
    search.states = popularity, neighbours = [FamilyState(family) for family in CHEAP]
    search.visit(popularity, ())
    left = iter([1e3, 1e3])  # before the family, and at its first fit
    monkeypatch.setattr(Clock, "left", property(lambda clock: next(left, 0.0)))
    search.visit(neighbours, (0,))
    assert len(search.searches[0].journal.outcomes) == 2  # of popularity, and of the first fit
    assert neighbours.best is not None


def test_without_time_for_a_whole_point_its_best_recipe_on_the_sample_is_tried(events, cheap, monkeypatch):
    monkeypatch.setattr(search_module, "sample_split", lambda split: split)
    search = FamilySearch(choose_protocol(events), parse_metric("ndcg@20"), Clock(600), None, quiet)
    search.states = [FamilyState(family) for family in CHEAP]
    search.search_sample()
    neighbours = next(state for state in search.states if state.sampled and isinstance(state.sampled[1], gr.ItemKNN))
    neighbours.seconds, neighbours.single_seconds = 1e6, 0.1
    search.searches.clear()
    search.search_starts()
    assert neighbours.best.recipe == neighbours.sampled[1]
    assert len(search.searches[0].journal.outcomes) == len(CHEAP)


def test_a_larger_rank_is_expected_to_take_longer():
    family = next(family for family in FAMILIES if family.name == "iALS")
    state = FamilyState(family, last_point=(0, 0, 0))
    assert state.growth((1, 0, 0)) > 2
    assert state.growth((-1, 0, 0)) < 1
    assert state.growth((0, 1, -1)) == 1


def test_families_with_the_defaults_are_compared_on_all_data_whatever_the_sample_says(events, monkeypatch):
    families = tuple(family for family in FAMILIES if family.name in ("popularity", "item neighbours", "autoencoder"))
    monkeypatch.setattr(search_module, "FAMILIES", families)
    monkeypatch.setattr(search_module, "MIN_STARTING", 1)
    monkeypatch.setattr(search_module, "sample_split", lambda split: split)
    search = FamilySearch(choose_protocol(events), parse_metric("ndcg@20"), Clock(600), None, quiet)
    search.states = [FamilyState(family) for family in families]
    search.search_sample()
    assert "autoencoder" in {state.family.name for state in search.states}


def test_finalists_are_tested_in_order_while_there_is_time(events, cheap):
    protocol, metric = choose_protocol(events), parse_metric("ndcg@20")
    search = FamilySearch(protocol, metric, Clock(60), None, quiet)
    search.run()
    candidates = search.candidates()
    assert len(run_final_test(candidates, protocol.test, metric, Clock(1000))) == len(candidates)
    assert len(run_final_test(candidates, protocol.test, metric, Clock(1000, used=2000))) == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), (45, 45), ("30m", 1800), ("1h30m", 5400), ("1.5 h", 5400), ("20s", 20)]
)
def test_budgets(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1", "-5m", "5 weeks", "nan", float("inf"), "1m and more"])
def test_bad_budgets(text, events):
    with pytest.raises(gr.errors.InvalidInput, match="a budget"):
        gr.auto(events, budget=text)


def test_sizes():
    assert parse_size("4GB") == 4 * 10**9
    assert parse_size("500 mb") == 5 * 10**8
    assert parse_size(None) is None
    for text in ("lots", "4 cows", "0"):
        with pytest.raises(gr.errors.InvalidInput, match="memory"):
            parse_size(text)


def test_bins_hold_every_count():
    counts = np.array([1, 1, 4, 9, 10, 250])
    labels, heights = count_in_bins(counts)
    assert dict(zip(labels, heights, strict=True)) == {"1": 2, "2": 1, "5": 1, "10": 1, "30": 0, "100": 1}
