"""Lists of many users streamed to a file, and what they are computed from."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.core import scorer
from gramian.data.synthetic import clustered
from gramian.linalg import symmetric
from gramian.models.scorers import LowRankWeights

EVENTS = clustered(200, 150, 3_000)
RECIPE = gr.EDLAE(dropout=0.3, l2=10)


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
    visit_panels, calls = model.scorer.visit_panels, []

    def failing(histories, visit):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the machine is on fire")
        visit_panels(histories, visit)

    monkeypatch.setattr(model.scorer, "visit_panels", failing)
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
    with pytest.raises(gr.errors.InvalidInput, match="weights between"):
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
