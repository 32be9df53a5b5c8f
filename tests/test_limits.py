"""Estimates, threads, and lists streamed to a file: what a machine is asked for, before and while it works."""

import subprocess
import sys
import tracemalloc

import numpy as np
import polars as pl
import pytest
from numba import config, get_num_threads
from threadpoolctl import threadpool_info, threadpool_limits

import gramian as gr
from gramian.core import scorer
from gramian.data.synthetic import clustered
from gramian.linalg import memory, symmetric, threads
from gramian.linalg.resumable import SWEEP_FILE
from gramian.models.scorers import LowRankWeights
from gramian.progress import format_duration

EVENTS = clustered(200, 150, 3_000)
RECIPE = gr.EDLAE(dropout=0.3, l2=10)


def test_the_estimate_counts_bytes(monkeypatch):
    monkeypatch.setattr("gramian.core.recipe.available_bytes", lambda: 10**9)
    estimate = RECIPE.estimate(EVENTS)
    assert estimate.peak_bytes == 4 * (150 * 150 + 150 * 150 + 6 * 150 * 150) + 8 * EVENTS.n_interactions
    assert estimate.free_bytes == 10**9
    assert estimate.fits
    assert "fits" in str(estimate)
    double = RECIPE.estimate(EVENTS, dtype="float64")
    assert double.peak_bytes - 8 * EVENTS.n_interactions == 2 * (estimate.peak_bytes - 8 * EVENTS.n_interactions)


def test_the_estimate_with_a_file_is_what_the_file_takes(tmp_path):
    estimate = RECIPE.estimate(EVENTS, scratch=tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()
    RECIPE.fit(EVENTS, scratch=tmp_path)
    assert estimate.disk_bytes == (tmp_path / SWEEP_FILE).stat().st_size
    assert estimate.peak_bytes == 4 * 6 * 150 * 150 + 8 * EVENTS.n_interactions
    assert estimate.free_disk_bytes > estimate.disk_bytes


def test_what_cannot_fit_is_refused_with_numbers_and_a_way_out(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    monkeypatch.setattr("gramian.core.recipe.available_bytes", lambda: 100_000)
    estimate = RECIPE.estimate(EVENTS)
    assert not estimate.fits
    assert "does not fit" in str(estimate)
    with pytest.raises(gr.errors.NotEnoughMemory, match=r"100 kB free\. Keep fewer items .* keep the matrix in a file"):
        RECIPE.fit(EVENTS)


def test_a_fit_stays_within_its_estimate():
    events = clustered(2_000, 1_500, 40_000)
    RECIPE.fit(EVENTS)  # compile
    expected = RECIPE.estimate(events).peak_bytes
    tracemalloc.start()
    RECIPE.fit(events)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.9 * expected < peak < 1.1 * expected + 2**20


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1e-5, "under 0.01 s"), (0.123, "0.12 s"), (9.4, "9.4 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (7_260, "2 h 1 min")],
)
def test_durations_are_words(seconds, words):
    assert format_duration(seconds) == words


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_hold_for_numba_and_blas_and_are_given_back():
    before = get_num_threads(), blas_threads()
    with threads.limit_threads(1):
        assert (get_num_threads(), blas_threads()) == (1, {1})
    assert (get_num_threads(), blas_threads()) == before
    with pytest.raises(KeyError), threads.limit_threads(1):
        raise KeyError
    assert (get_num_threads(), blas_threads()) == before


def test_overlapping_work_gives_the_threads_back():
    before = blas_threads()
    one, other = threads.BLAS.limited(1), threads.BLAS.limited(1)
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert blas_threads() == before


def test_inner_work_gives_the_outer_its_threads_back():
    most = max(blas_threads())
    with threads.BLAS.limited(1):
        with threads.BLAS.limited(most):
            assert blas_threads() == {most}
        assert blas_threads() == {1}


def test_asking_for_all_threads_is_heard():
    with threadpool_limits(1), threads.limit_threads(config.NUMBA_NUM_THREADS):
        assert blas_threads() == {config.NUMBA_NUM_THREADS}


def test_a_container_gets_no_more_threads_than_its_share(monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "CGROUP", tmp_path)
    all_cores = threads.available_cores.__wrapped__()
    for limit, expected in (("150000 100000", 1), ("50000 100000", 1), ("max 100000", all_cores), ("odd", all_cores)):
        (tmp_path / "cpu.max").write_text(limit)
        assert threads.available_cores.__wrapped__() == expected
    monkeypatch.setattr(threads, "available_cores", lambda: 1)
    with threads.limit_threads(None):
        assert (get_num_threads(), blas_threads()) == (1, {1})


@pytest.mark.parametrize("n_threads", [0, -1, 10_000, 1.5, True, "two"])
def test_a_senseless_number_of_threads_is_refused(n_threads):
    with pytest.raises(gr.errors.InvalidInput, match="n_threads from 1 to"):
        RECIPE.fit(EVENTS, n_threads=n_threads)


def test_results_do_not_depend_on_the_threads():
    events = clustered(800, 1_200, 20_000)
    split = gr.split.strong(events)
    assert np.array_equal(gr.Gram.of(events, n_threads=1).matrix.buffer, gr.Gram.of(events).matrix.buffer)
    one, all_cores = RECIPE.fit(split.train, n_threads=1), RECIPE.fit(split.train)
    np.testing.assert_allclose(one.weights(), all_cores.weights(), atol=1e-6)
    assert one.recommend(split.train.users[:50], n_threads=1) == one.recommend(split.train.users[:50])
    assert one.recommend_for([[3, 4]], n_threads=1) == one.recommend_for([[3, 4]])
    assert gr.evaluate(one, split, n_threads=1).mean == gr.evaluate(one, split).mean


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(scorer, "USERS_PER_BLOCK", 64)


@pytest.mark.parametrize("titled", [False, True])
def test_lists_in_a_file_are_those_of_recommend(tmp_path, small_blocks, titled):
    events = EVENTS.with_titles({item: f"title {item}" for item in EVENTS.items.tolist()}) if titled else EVENTS
    model = RECIPE.fit(events)
    path = tmp_path / "lists.parquet"
    model.recommend_to(path, k=7, deny=[3])
    found, expected = pl.read_parquet(path), model.recommend(model.users, k=7, deny=[3]).frame()
    assert found.schema == expected.schema | {"rank": pl.Int32, "score": pl.Float32}
    assert found.drop("score").equals(expected.drop("score").cast({"rank": pl.Int32}))
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["lists.parquet"]


def test_lists_of_some_users_or_none_in_a_file(tmp_path):
    model = gr.EASE(10).fit(gr.Interactions.of(pl.DataFrame({"user": ["a", "a", "b", "c"], "item": ["x", "y", "x", "z"]})))
    model.recommend_to(tmp_path / "some.parquet", k=2, users=["b", "c"], exclude_seen=False)
    assert pl.read_parquet(tmp_path / "some.parquet")["user"].to_list() == ["b", "b", "c", "c"]
    model.recommend_to(tmp_path / "none.parquet", users=[])
    assert pl.read_parquet(tmp_path / "none.parquet").height == 0
    for name in ("lists.txt", "no/such/lists.parquet", "", "folder.parquet"):
        (tmp_path / "folder.parquet").mkdir(exist_ok=True)
        with pytest.raises(gr.errors.InvalidInput, match="ending in"):
            model.recommend_to(str(tmp_path / name) if name else "")
    with pytest.raises(gr.errors.UnknownId):
        model.recommend_to(tmp_path / "no.parquet", users=["nobody"])
    assert not (tmp_path / "no.parquet").exists()


def test_a_file_appears_only_when_it_is_whole(tmp_path, small_blocks, monkeypatch):
    model = RECIPE.fit(EVENTS)
    path = tmp_path / "lists.parquet"
    path.write_text("the old one")
    panels, calls = model.scorer.panels, []

    def failing(histories):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the machine is on fire")
        return panels(histories)

    monkeypatch.setattr(model.scorer, "panels", failing)
    with pytest.raises(Exception, match="on fire"):
        model.recommend_to(path)
    assert path.read_text() == "the old one"
    assert [p.name for p in tmp_path.iterdir()] == ["lists.parquet"]


INTERRUPTED = """
import os, signal, sys, threading
import gramian as gr
from gramian.core import scorer
from gramian.data.synthetic import clustered

model = gr.Popularity().fit(clustered(400_000, 20, 800_000))
scorer.USERS_PER_BLOCK = 50
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
model.recommend_to(sys.argv[1], k=5)
"""


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "x.parquet")], capture_output=True, text=True, check=False
    )
    assert "KeyboardInterrupt" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_of_the_disk(tmp_path, monkeypatch):
    def full(self, path):
        raise pl.exceptions.ComputeError("No space left on device")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", full)
    with pytest.raises(OSError, match="could not be written: No space left"):
        RECIPE.fit(EVENTS).recommend_to(tmp_path / "lists.parquet")


def test_histories_in_other_columns_are_refused():
    model = RECIPE.fit(EVENTS)
    other = EVENTS.matrix[:3].copy()
    other.indices[0] = 10**7
    for histories in (EVENTS.matrix[:, :10], other):
        with pytest.raises(gr.errors.InvalidInput, match="columns"):
            model.top_k(histories, 5)
    with pytest.raises(gr.errors.InvalidInput, match="weights above 0 and below"):
        model.recommend_for([{3: 1e39}])


def test_the_order_within_a_history_does_not_matter():
    model = RECIPE.fit(EVENTS)
    shuffled = EVENTS.matrix.copy()
    for u in range(EVENTS.n_users):
        part = slice(shuffled.indptr[u], shuffled.indptr[u + 1])
        shuffled.indices[part] = shuffled.indices[part][::-1]
    shuffled.has_sorted_indices = False
    assert np.array_equal(model.top_k(shuffled, 5)[0], model.top_k(EVENTS.matrix, 5)[0])


def test_ids_that_parquet_cannot_hold_are_refused(tmp_path):
    events = gr.Interactions.of(pl.DataFrame({"user": [1, 2], "item": pl.Series([(1, 2), (3, 4)], dtype=pl.Object)}))
    with pytest.raises(gr.errors.NotSupported, match="parquet"):
        gr.EASE(10).fit(events).recommend_to(tmp_path / "lists.parquet")


# Low-rank scorers


def test_a_low_rank_scorer_scores_explains_saves_and_loads(tmp_path):
    encoder, decoder = np.random.default_rng(0).standard_normal((2, EVENTS.n_items, 5)).astype(np.float32)
    model = gr.Recommender(LowRankWeights(encoder, decoder), gr.EASE(), EVENTS.catalog, EVENTS)
    W = encoder @ decoder.T
    np.testing.assert_allclose(model.weights(), W)
    dense = model.scores(EVENTS)
    np.testing.assert_allclose(dense, EVENTS.matrix @ W, rtol=1e-4, atol=1e-4)
    history = EVENTS.items[EVENTS.matrix[[0]].indices]
    assert model.explain(history, 7).score == pytest.approx(float(dense[0, 7]), abs=1e-4)
    dense[EVENTS.matrix.nonzero()] = -np.inf
    active = np.flatnonzero(np.diff(EVENTS.matrix.indptr))  # the others get the most popular items
    for row, items in zip(active, model.recommend(EVENTS.users[active], k=5).items, strict=True):
        assert items == np.argsort(-dense[row])[:5].tolist()
    lengths = np.linalg.norm(decoder, axis=1)
    cosines = decoder @ decoder[7] / lengths / lengths[7]
    cosines[7] = -2
    assert model.similar_items(7, k=3).items == [np.argsort(-cosines)[:3].tolist()]
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model")
    assert again.recommend([0, 1]) == model.recommend([0, 1])
    assert all(map(np.array_equal, again.factors(), (encoder, decoder)))


def test_the_widths_of_panels_and_blocks_agree():
    assert symmetric.BLOCK_WIDTH % symmetric.PANEL == 0
