"""A search must find what fitting and judging every point by itself finds, at the cost of the families."""

import json
from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import eigen
from gramian.models import low_rank, spectral
from gramian.tuning import objective, shared_fits
from gramian.tuning.shared_fits import SharedFits

pytestmark = pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")  # test_search_edges.py is about them

EVENTS = clustered(400, 60, 5_000)
SPLIT = gr.split.strong(EVENTS, validation_users=0, test_users=0.5)
SPACE = {"dropout": [0, 0.3, 0.6], "kept_weight": [0, 0.5, 1, 2.5], "l2": [1, 30]}


@pytest.fixture
def inverses(monkeypatch):
    """The recipes whose inverse was computed."""
    made, solve = [], SharedFits.solve

    def watched(self, recipe, dtype):
        made.append(recipe)
        return solve(self, recipe, dtype)

    monkeypatch.setattr(SharedFits, "solve", watched)
    return made


def values(search):
    return {result.recipe: result.value for result in search.results}


@pytest.mark.parametrize("metric", ["ndcg@20", "recall@5", "novelty@10"])
def test_a_grid_has_the_value_of_every_point(metric, inverses):
    found = gr.tune(gr.DEQL, SPLIT, SPACE, metric, dtype="float64")
    assert len(found.results) == 24
    assert len(inverses) == 6  # a dropout and an l2 share one for all kept_weights
    for recipe, value in values(found).items():
        report = gr.evaluate(recipe.fit(SPLIT.train, dtype="float64"), SPLIT, [metric])
        assert value == pytest.approx(report[metric], abs=1e-12)
    best = max(found.results, key=lambda r: r.value)
    assert found.value == best.value
    assert found.stderr == best.stderr > 0
    assert [r.value for r in found.results] == sorted((r.value for r in found.results), reverse=True)


def test_leaving_users_out_has_the_value_of_every_point(inverses):
    found = gr.tune(gr.DEQL, EVENTS, SPACE, dtype="float64", fold_in=0.6, seed=3)
    assert len(inverses) == 6
    for recipe, value in values(found).items():
        report = gr.leave_one_user_out(recipe, EVENTS, ["ndcg@20"], dtype="float64", fold_in=0.6, seed=3)
        assert value == pytest.approx(report["ndcg@20"], abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "space", "n_inverses"),
    [
        (gr.DEQL, {"dropout": [0.3], "kept_weight": [0, 1, 2], "l2": [5], "zero_diagonal": [False, True]}, 1),
        (gr.RDLAE, {"dropout": [0.3], "max_diagonal": [0, 0.3, 0.6, 1], "l2": [5]}, 1),
        (gr.DebiasedEASE, {"alpha": [0, 0.5], "l2": [10, 20]}, 3),  # 20/(1 − 0) is 10/(1 − 0.5)
        (gr.EDLAE, {"dropout": 0, "l2": [3, 3.0]}, 1),
        (gr.Popularity, {}, 0),
    ],
)
def test_the_same_model_is_never_fitted_twice(kind, space, n_inverses, inverses, monkeypatch):
    judged, outcomes = [], objective.SplitObjective.values

    def watched(self, family, rows):
        judged.extend(family.recipes)
        return outcomes(self, family, rows)

    monkeypatch.setattr(objective.SplitObjective, "values", watched)
    found = gr.tune(kind, SPLIT, space)
    assert len(inverses) == n_inverses
    assert len(judged) == len({r.recipe.canonical() for r in found.results})
    assert all(a.value == b.value for a in found.results for b in found.results if gr.equivalent(a.recipe, b.recipe))


@pytest.mark.parametrize("kind", [gr.EASE, gr.DLAE, gr.DEQL])
def test_a_path_of_ridges_by_one_decomposition_is_the_same(kind, inverses, monkeypatch):
    space = {"l2": [0.5, 3, 10, 40, 500]} | ({} if kind is gr.EASE else {"dropout": [0.2, 0.5]})
    monkeypatch.setattr(shared_fits, "is_decomposition_cheaper", lambda *_: False)
    expected = values(gr.tune(kind, SPLIT, space, dtype="float64"))
    count = len(inverses)
    assert count == 5 * len(space.get("dropout", [0]))
    monkeypatch.setattr(shared_fits, "is_decomposition_cheaper", eigen.is_decomposition_cheaper)
    monkeypatch.setattr(eigen, "DECOMPOSITION_COST", 0)
    monkeypatch.setattr(eigen, "DENSE_SCORING_COST", 0)
    found = values(gr.tune(kind, SPLIT, space, dtype="float64"))
    assert len(inverses) == count  # no more
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_decomposition_is_used_where_it_pays_only():
    assert not eigen.is_decomposition_cheaper(6, 100, 10_000)
    assert eigen.is_decomposition_cheaper(20, 100, 10_000)
    assert not eigen.is_decomposition_cheaper(20, 10_000, 10_000)
    assert not eigen.is_decomposition_cheaper(10**6, float("inf"), 10_000)


def test_a_decomposition_that_is_too_coarse_is_not_used(inverses, monkeypatch):
    """float32 eigenvalues of a nearly singular Gram would drown a tiny l2; the inverse is checked, and made in float64."""
    rng = np.random.default_rng(0)
    events = gr.Interactions.of((rng.random((30, 100)) < 0.3) * 1)
    split = gr.split.strong(events, validation_users=0, test_users=5)
    monkeypatch.setattr(shared_fits, "is_decomposition_cheaper", lambda *_: True)
    with pytest.warns(gr.errors.PrecisionWarning):
        gr.tune(gr.EASE, split, {"l2": [1e-7, 1e-6]})
    assert inverses


def test_a_singular_gram_is_left_to_the_inverse_and_then_left_out(inverses, monkeypatch):
    x = np.random.default_rng(0).random((40, 10)) < 0.4
    split = gr.split.strong(gr.Interactions.of(np.hstack([x, x]) * 1), validation_users=0, test_users=5)  # every item twice
    monkeypatch.setattr(shared_fits, "is_decomposition_cheaper", lambda *_: True)
    with pytest.warns(UserWarning, match="left out: expected"):
        found = gr.tune(gr.EASE, split, {"l2": [0, 1]}, dtype="float64")
    assert inverses
    assert [r.recipe.l2 for r in found.results] == [1]


def test_a_killed_search_goes_on_where_it_was(tmp_path, inverses, monkeypatch):
    path, expected = tmp_path / "journal.jsonl", values(gr.tune(gr.DEQL, SPLIT, SPACE))
    inverses.clear()
    solve = SharedFits.solve

    def dies(self, recipe, dtype):
        if len(inverses) == 4:
            raise KeyboardInterrupt
        return solve(self, recipe, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(SharedFits, "solve", dies)
        with pytest.raises(KeyboardInterrupt):
            gr.tune(gr.DEQL, SPLIT, SPACE, journal=path)
    assert len(inverses) == 4
    with open(path, "a") as file:
        file.write('{"objective": "torn')  # as a crash would leave it
    found = gr.tune(gr.DEQL, SPLIT, SPACE, journal=path)
    assert len(inverses) == 6
    assert values(found) == expected
    lines = path.read_text().splitlines()
    assert len(lines) == len({json.loads(line)["key"] for line in lines}) == 20  # at dropout 0 there are EASE and DLAE only
    gr.tune(gr.DEQL, SPLIT, SPACE, journal=path)
    assert len(inverses) == 6


def test_a_journal_is_not_mistaken_for_another_searchs(tmp_path, inverses):
    path, space = tmp_path / "journal.jsonl", {"l2": [5]}
    for data, how in [
        (SPLIT, {}),
        (SPLIT, {"metric": "recall@20"}),
        (SPLIT, {"dtype": "float64"}),
        (gr.split.strong(EVENTS, validation_users=0, test_users=0.5, seed=1), {}),
        (EVENTS, {}),
        (EVENTS, {"seed": 1}),
        (EVENTS, {"fold_in": 0.5}),
    ]:
        count = len(inverses)
        first = gr.tune(gr.EASE, data, space, journal=path, **how)
        again = gr.tune(gr.EASE, data, space, journal=path, **how)
        assert (len(inverses), values(again)) == (count + 1, values(first))


@pytest.mark.parametrize("line", ["{}", "no json", '{"objective": 1, "key": "x", "value": "a"}', "[1]"])
def test_a_damaged_journal_is_named(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    gr.tune(gr.EASE, SPLIT, {"l2": [5]}, journal=path)
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(gr.errors.DamagedFile, match="line 1"):
        gr.tune(gr.EASE, SPLIT, {"l2": [5]}, journal=path)


def test_optuna_finds_the_best_of_a_range_and_repeats_itself(tmp_path, inverses):
    space = {"l2": (1, 1000), "dropout": (0.1, 0.7), "kept_weight": (0.0, 2.0)}
    path = tmp_path / "journal.jsonl"
    found = gr.tune(gr.DEQL, SPLIT, space, trials=8, seed=5)
    assert len(inverses) == 8
    assert len(found.results) == 8 * 16  # kept_weight is free, and swept
    assert all(1 <= r.recipe.l2 <= 1000 and 0.1 <= r.recipe.dropout <= 0.7 for r in found.results)
    gr.tune(gr.DEQL, SPLIT, space, trials=3, seed=5, journal=path)
    again = gr.tune(gr.DEQL, SPLIT, space, trials=8, seed=5, journal=path)
    assert values(again) == values(found)
    assert len(inverses) == 8 + 3 + 5
    assert gr.tune(gr.DEQL, SPLIT, space, trials=3, seed=6).recipe != found.recipe
    lists = gr.tune(gr.EASE, SPLIT, {"l2": [1, 10, 100]}, trials=6)
    assert {r.recipe.l2 for r in lists.results} <= {1, 10, 100}


def test_hopeless_points_are_given_up_early_and_the_best_is_not(monkeypatch):
    events, space = clustered(2_000, 200, 20_000), {"l2": [100, 30, 300, 0.01, 1e6]}
    whole = gr.tune(gr.EASE, events, space)
    assert {r.n_users for r in whole.results} == {whole.n_users}
    monkeypatch.setattr(objective, "FIRST_BLOCK", 200)
    early = gr.tune(gr.EASE, events, space)
    given_up = [r for r in early.results if r.n_users < early.n_users]
    assert given_up
    assert early.recipe == whole.recipe
    assert early.value == pytest.approx(whole.value, abs=1e-15)
    assert early.results[-len(given_up) :] == tuple(given_up)  # last, whatever their value
    assert all(values(whole)[r.recipe] < whole.value - 3 * r.stderr / 4 for r in given_up)


def test_users_are_judged_once_each():
    some = objective.SplitObjective(SPLIT, "ndcg@20")
    some.n_users, some.order = 70_000, np.random.default_rng(0).permutation(70_000)
    blocks = some.blocks()
    assert [len(b) for b in blocks] == [8192, 8192, 16384, 16384, 16384, 70_000 - 65_536]
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(70_000))


def test_a_user_without_known_items_gets_the_popular_ones():
    fold_in = SPLIT.fold_in.keep(SPLIT.fold_in.rows > 20)
    split = replace(SPLIT, fold_in=fold_in.reindex(SPLIT.fold_in.users, SPLIT.fold_in.items))
    found = gr.tune(gr.EASE, split, {"l2": [10]}, dtype="float64")
    assert found.value == pytest.approx(gr.evaluate(gr.EASE(10).fit(split.train, dtype="float64"), split)["ndcg@20"])


def test_results_as_a_table_and_as_a_heat_map():
    found = gr.tune(gr.DEQL, SPLIT, SPACE)
    frame = found.frame()
    assert frame.columns == ["dropout", "kept_weight", "l2", "zero_diagonal", "ndcg@20", "stderr", "users"]
    assert frame.height == 24
    table = found.heat_map("kept_weight", "l2")
    assert table.columns == ["kept_weight", "1.0", "30.0"]
    for row in table.to_dicts():
        for l2 in (1.0, 30.0):
            same = [r.value for r in found.results if (r.recipe.kept_weight, r.recipe.l2) == (row["kept_weight"], l2)]
            assert row[str(l2)] == max(same)
    assert str(found).startswith(f"DEQL({found.recipe.summary})")
    assert repr(found.fit(EVENTS)).startswith(f"Recommender({found.recipe}")
    wide = gr.tune(gr.EDLAE, SPLIT, {"dropout": [0.1, 0.2], "l2": [2, 10, 100]}).heat_map("dropout", "l2")
    assert wide.columns == ["dropout", "2.0", "10.0", "100.0"]  # in the order of numbers, not of text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": gr.EASE(l2=3)}, "without parentheses"),
        ({"kind": "EASE"}, "a model class"),
        ({"data": "events"}, "a Split, or Interactions"),
        ({"space": {"lambda": [1]}}, "parameters of EASE"),
        ({"space": {"l2": []}}, "at least one value for l2"),
        ({"space": {"l2": [-1]}}, "at least 0"),
        ({"space": {"l2": "10"}}, "l2 of EASE to be a number"),
        ({"space": {"l2": None}}, "a list of values for l2"),
        ({"space": {"l2": (1, 100)}}, "trials=30"),
        ({"space": {"l2": (100, 1)}, "trials": 3}, "lower end first"),
        ({"trials": 0}, "trials of at least 1"),
        ({"trials": 2.5}, "trials of at least 1"),
        ({"metric": "coverage@20"}, "a value for each user"),
        ({"metric": "ndcg"}, "ndcg"),
        ({"journal": "/nowhere/at/all"}, "a folder that exists"),
        ({"journal": "/"}, "a file for the journal"),
        ({"dtype": "int"}, "float32"),
        ({"data": EVENTS, "metric": "novelty@10"}, "metrics of hits"),
    ],
)
def test_bad_requests_are_refused(change, message):
    request = {"kind": gr.EASE, "data": SPLIT, "space": {"l2": [5]}, "metric": "ndcg@20"} | change
    with pytest.raises(gr.errors.InvalidInput, match=message):
        gr.tune(request.pop("kind"), request.pop("data"), request.pop("space"), request.pop("metric"), **request)


def test_what_cannot_be_left_out_is_refused():
    with pytest.raises(gr.errors.NotSupported, match="full-rank"):
        gr.tune(gr.Popularity, EVENTS)


def test_heat_maps_need_two_settings():
    found = gr.tune(gr.EDLAE, SPLIT, {"dropout": [0.1, 0.2], "l2": [2, 10]})
    for pair in (("l2", "l2"), ("l2", "alpha")):
        with pytest.raises(gr.errors.InvalidInput, match="two parameters among dropout, l2"):
            found.heat_map(*pair)


# low rank


def test_one_decomposition_serves_all_ranks_and_all_l2(monkeypatch):
    made, decompose = [], eigen.top_eigenpairs

    def watched(operator, k, seed=0):
        made.append(k)
        return decompose(operator, k, seed)

    monkeypatch.setattr(low_rank, "top_eigenpairs", watched)
    monkeypatch.setattr(spectral, "top_eigenpairs", watched)
    found = gr.tune(gr.RegularizedPCA, SPLIT, {"rank": [2, 8, 20], "l2": [0, 1, 3]}, dtype="float64")
    assert made == [20]
    for recipe, value in values(found).items():
        assert value == pytest.approx(gr.evaluate(recipe.fit(SPLIT.train, dtype="float64"), SPLIT)["ndcg@20"], abs=1e-9)
    made.clear()
    space = {"rank": [2, 8], "dropout": [0.2, 0.4], "l2": [10], "truncate": ["output", "weights"]}
    found = gr.tune(gr.LowRankEDLAE, SPLIT, space)
    assert made == [8] * 4
    assert len(found.results) == 8


def test_points_that_make_no_sense_are_left_out_and_named():
    with pytest.warns(UserWarning, match="left out: expected l2 of RegularizedPCA to leave a factor"):
        found = gr.tune(gr.RegularizedPCA, SPLIT, {"rank": 5, "l2": [1, 1e6]})
    assert [r.recipe.l2 for r in found.results] == [1]
    with pytest.warns(UserWarning, match="left out"), pytest.raises(gr.errors.InvalidInput, match="makes sense"):
        gr.tune(gr.NuclearNormMF, SPLIT, {"l2": [1e6, 1e7]})


def test_optuna_chooses_whole_ranks():
    found = gr.tune(gr.LRR, SPLIT, {"rank": (2, 40), "l2": [10]}, trials=4)
    assert all(isinstance(r.recipe.rank, int) and 2 <= r.recipe.rank <= 40 for r in found.results)


def test_a_rank_path_is_the_model_at_each_rank():
    path = gr.rank_path(gr.LowRankEDLAE(dropout=0.3, l2=10), [20, 4, 60], SPLIT, ["ndcg@20", "recall@5"], dtype="float64")
    assert list(path.reports) == [4, 20, 60]
    for rank, report in path.reports.items():
        one = gr.evaluate(gr.LowRankEDLAE(rank, 0.3, 10).fit(SPLIT.train, dtype="float64"), SPLIT, ["ndcg@20", "recall@5"])
        assert report.mean == pytest.approx(one.mean, abs=1e-9)
    whole = gr.evaluate(gr.EDLAE(0.3, 10).fit(SPLIT.train), SPLIT)
    assert path.reports[60]["ndcg@20"] == pytest.approx(whole["ndcg@20"], abs=1e-6)
    assert path.frame().columns == ["rank", "ndcg@20", "recall@5", "ndcg@20 stderr", "recall@5 stderr"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"recipe": gr.EASE()}, gr.errors.NotSupported, "a recipe with a rank"),
        ({"recipe": gr.ADMMEDLAE()}, gr.errors.NotSupported, "a recipe with a rank"),
        ({"ranks": 4}, gr.errors.InvalidInput, "a list of ranks"),
        ({"ranks": []}, gr.errors.InvalidInput, "a list of ranks"),
        ({"ranks": ["two"]}, gr.errors.InvalidInput, "a list of ranks"),
        ({"ranks": [0]}, gr.errors.InvalidInput, "at least 1"),
        ({"ranks": [61]}, gr.errors.InvalidInput, "a rank of at most 60"),
        ({"split": EVENTS}, gr.errors.InvalidInput, "a Split"),
    ],
)
def test_bad_rank_paths_are_refused(change, error, message):
    request = {"recipe": gr.LRR(), "ranks": [2], "split": SPLIT} | change
    with pytest.raises(error, match=message):
        gr.rank_path(**request)


def test_ranks_that_are_too_high_are_left_out():
    with pytest.warns(UserWarning, match="a rank of at most 60"):
        found = gr.tune(gr.LRR, SPLIT, {"rank": [4, 100], "l2": [10]})
    assert [r.recipe.rank for r in found.results] == [4]


def test_one_number_for_each_factor_and_single_words_can_be_searched():
    found = gr.tune(gr.LRR, SPLIT, {"rank": 3, "l2": [(1, 2, 3), (3, 2, 1)]})
    assert {r.recipe.l2 for r in found.results} == {(1, 2, 3), (3, 2, 1)}
    assert (
        gr.tune(gr.LowRankEDLAE, SPLIT, {"rank": 3, "truncate": "weights", "l2": 5, "dropout": 0.2}).recipe.truncate
        == "weights"
    )


def test_a_point_given_up_is_judged_again_by_a_search_without_what_beat_it(tmp_path, monkeypatch):
    events, path = clustered(2_000, 200, 20_000), tmp_path / "journal.jsonl"
    monkeypatch.setattr(objective, "FIRST_BLOCK", 200)
    first = gr.tune(gr.EASE, events, {"l2": [100, 1500]}, journal=path)
    assert {r.recipe.l2: r.n_users < first.n_users for r in first.results} == {100: False, 1500: True}
    again = gr.tune(gr.EASE, events, {"l2": [100, 1500]}, journal=path)
    assert again == first
    second = gr.tune(gr.EASE, events, {"l2": [1500, 1e6]}, journal=path)
    assert second.recipe.l2 == gr.tune(gr.EASE, events, {"l2": [1500, 1e6]}).recipe.l2 == 1500


@pytest.mark.parametrize("content", ['{"a": 1}', "user,item\n1,2\n3,4"])
def test_a_file_that_is_no_journal_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "precious.json"
    path.write_text(content)
    with pytest.raises(gr.errors.DamagedFile, match="name another file"):
        gr.tune(gr.EASE, SPLIT, {"l2": [5]}, journal=path)
    assert path.read_text() == content


def test_debiased_models_refuse_weights_in_a_search_too():
    weighted = gr.Interactions.of(EVENTS.matrix * np.float32(2))
    for data in (weighted, gr.split.strong(weighted, validation_users=0, test_users=9)):
        with pytest.raises(gr.errors.InvalidInput, match="0/1 interactions"):
            gr.tune(gr.DebiasedEASE, data, {"l2": [5], "alpha": [0.1]})


def test_one_gram_serves_slim_too(monkeypatch):
    made, of = [], shared_fits.Gram.of
    monkeypatch.setattr(shared_fits.Gram, "of", lambda *args, **options: made.append(args) or of(*args, **options))
    gr.tune(gr.SLIM, SPLIT, {"l1": [1, 3], "l2": [5, 10]})
    assert len(made) == 1
