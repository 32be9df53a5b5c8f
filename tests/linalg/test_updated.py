"""A matrix with deferred updates equals the matrix from which they were subtracted, in everything that can be asked of it."""

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.core.updates import RowChange
from gramian.errors import DamagedFile
from gramian.linalg.product import expand, inverse_panels
from gramian.linalg.recycled import RecycledMemory, allocate_from
from gramian.linalg.symmetric import FULL_WIDTH, Symmetric
from gramian.linalg.updated import MAX_DEFERRED_RANK, UpdatedSymmetric
from gramian.linalg.woodbury import pad_inverse
from gramian.models.scorers import InverseWeights

RANK = 3


def full_matrix(rng, n):
    root = rng.normal(size=(n, n)).astype(np.float32)
    full = Symmetric.empty(n, np.float32, FULL_WIDTH)
    full.rows[:] = root @ root.T / n + np.eye(n)
    return full


@pytest.fixture(params=[40, 700])  # below and above the width of a block column
def matrices(request):
    """An updated matrix, and the dense one that it stands for."""
    rng = np.random.default_rng(request.param)
    base = full_matrix(rng, request.param)
    left = rng.normal(size=(request.param, RANK)).astype(np.float32)
    small = np.diag([1.0, -2.0, 0.5]).astype(np.float32)
    before = base.dense()
    updated = UpdatedSymmetric.of(base).defer(left[:, :1] @ small[:1, :1], left[:, :1].T)
    updated = updated.defer(left[:, 1:] @ small[1:, 1:], left[:, 1:].T)
    assert (base.dense() == before).all()
    return updated, before - left @ small @ left.T


def test_it_equals_the_matrix_without_its_updates(matrices):
    updated, dense = matrices
    close = {"rtol": 1e-4, "atol": 1e-4}
    assert (updated.n, updated.rank, updated.is_full) == (len(dense), RANK, True)
    np.testing.assert_allclose(updated.dense(), dense, **close)
    np.testing.assert_allclose(updated.subtracted().dense(), dense, **close)
    np.testing.assert_allclose(updated.copy().dense(), dense, **close)
    np.testing.assert_allclose(updated.halved().dense(), dense, **close)
    np.testing.assert_allclose(updated.diagonal(), dense.diagonal(), **close)
    np.testing.assert_allclose(updated.row(7), dense[7], **close)
    items = np.array([3, 30, 11])
    np.testing.assert_allclose(updated.entries(items), dense[np.ix_(items, items)], **close)
    thin = np.random.default_rng(0).normal(size=(len(dense), 2)).astype(np.float32)
    np.testing.assert_allclose(updated @ thin, dense @ thin, rtol=1e-3, atol=1e-3)


def test_padding_subtracts_the_updates_in_one_new_matrix(matrices):
    updated, dense = matrices
    n, made = updated.n, []
    memory = RecycledMemory(lambda n_bytes: made.append(n_bytes) or bytearray(n_bytes))
    with allocate_from(memory):
        padded = pad_inverse(updated, np.array([2.0, 3.0]))
    expected = np.zeros((n + 2, n + 2))
    expected[:n, :n], expected[n, n], expected[n + 1, n + 1] = dense, 2, 3
    np.testing.assert_allclose(padded.dense(), expected, rtol=1e-4, atol=1e-4)
    assert len(made) == 1


def test_updates_stay_beside_another_matrix(matrices):
    updated, dense = matrices
    first = UpdatedSymmetric.of(updated.base).defer(updated.left[:, :1], updated.right[:1])
    rebased = updated.rebased(first.subtracted(), 1)
    assert rebased.rank == RANK - 1
    np.testing.assert_allclose(rebased.dense(), dense, rtol=1e-4, atol=1e-4)


def test_no_kernel_can_overlook_the_updates(matrices):
    updated, _ = matrices
    with pytest.raises(AttributeError):
        _ = updated.rows


@pytest.mark.parametrize("n_users", [1, 5, 70])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_scores_are_those_of_the_updated_matrix(matrices, n_users, index):
    updated, dense = matrices
    rng = np.random.default_rng(n_users)
    x = sp.random_array((n_users, updated.n), density=0.1, format="csr", dtype=np.float32, rng=rng)
    x.indptr, x.indices = x.indptr.astype(index), x.indices.astype(index)
    factor, diagonal = rng.normal(size=(2, updated.n)).astype(np.float32)
    expected = x.toarray() @ (dense * factor + np.diag(diagonal))
    for first, panel in inverse_panels(x, updated, factor, diagonal):
        np.testing.assert_allclose(panel, expected[:, first : first + panel.shape[1]], rtol=1e-3, atol=1e-3)


def test_a_scorer_answers_the_same_and_survives_saving(matrices):
    updated, _ = matrices
    factor, diagonal = np.random.default_rng(1).normal(size=(2, updated.n)).astype(np.float32)
    scorer, plain = (InverseWeights(matrix, factor, diagonal) for matrix in (updated, updated.subtracted()))
    lists = np.array([[1, 2, 5], [9, 0, -1]])
    for ours, theirs in (
        (scorer.similar(4), plain.similar(4)),
        (scorer.similarities(lists)[0], plain.similarities(lists)[0]),
        (scorer.similarities(lists)[1, :2, :2], plain.similarities(lists)[1, :2, :2]),
        (scorer.weights(), plain.weights()),
        (scorer.expand().weights(), plain.weights()),
        (scorer.compact().weights(), plain.weights()),
        (InverseWeights.load(*scorer.save()).weights(), plain.weights()),
    ):
        off_diagonal = ~np.eye(len(ours), dtype=np.bool_) if ours.shape in {(2, 2), (3, 3)} else np.s_[:]
        np.testing.assert_allclose(ours[off_diagonal], theirs[off_diagonal], rtol=1e-3, atol=1e-3)
    facts, arrays = scorer.save()
    left, right = arrays["left"], arrays["right"]
    for damaged in ({"left": left[:-1]}, {"right": right[:-1]}, {"left": left.astype(np.float64)}):
        with pytest.raises(DamagedFile):
            InverseWeights.load(facts, arrays | damaged)


def test_deferred_changes_in_float64_have_its_precision():
    events = gr.datasets.load("movielens", min_value=4).k_core(25)
    model = gr.EASE(l2=20).fit(events, dtype="float64")
    inverse = UpdatedSymmetric.of(expand(model.scorer.inverse))
    deferring = model.with_scorer(model.scorer.with_inverse(inverse))
    for _ in range(3):
        deferring = deferring.forget_users(deferring.users[:1])
    assert deferring.scorer.inverse.rank == 3
    refit = gr.EASE(l2=20).fit(deferring.histories, dtype="float64")
    np.testing.assert_allclose(deferring.weights(), refit.weights(), atol=1e-12)


@pytest.mark.parametrize("recipe", [gr.EASE(l2=20), gr.EDLAE(dropout=0.3, l2=20), gr.DEQL(dropout=0.3, l2=20, kept_weight=0.7)])
def test_deferred_changes_of_users_equal_a_refit(recipe):
    events = gr.datasets.load("movielens", min_value=4).k_core(25)
    first, last = events.take(np.arange(1, events.n_users)), events.take(np.arange(1))
    model = recipe.fit(first)
    full = expand(model.scorer.inverse)
    deferring = model.with_scorer(model.scorer.with_inverse(UpdatedSymmetric.of(full)))
    learned = deferring.observe(last)
    refit = recipe.fit(learned.histories)
    np.testing.assert_allclose(learned.weights(), refit.weights(), atol=2e-4)
    gone = learned.forget_users(learned.users[:1])
    np.testing.assert_allclose(gone.weights(), recipe.fit(gone.histories).weights(), atol=2e-4)
    user = gone.users[0]
    influences = [m.influence(m.history(user), 260, 3) for m in (gone, recipe.fit(gone.histories))]
    assert list(influences[0].users) == list(influences[1].users)
    for model, is_deferred in ((learned, isinstance(recipe, gr.EASE)), (gone, isinstance(recipe, gr.EASE))):
        assert isinstance(model.scorer.inverse, UpdatedSymmetric) or not is_deferred
    assert (full.dense() == expand(recipe.fit(first).scorer.inverse).dense()).all()


def test_a_change_beyond_the_deferred_rank_and_new_items_are_subtracted():
    events = gr.datasets.load("movielens", min_value=4).k_core(25)
    model = gr.EASE(l2=20).fit(events)
    inverse = UpdatedSymmetric.of(expand(model.scorer.inverse))
    deferring = model.with_scorer(model.scorer.with_inverse(inverse))
    change = RowChange(events.matrix[:1], -np.ones(1))
    after = events.take(np.arange(1, events.n_users))
    assert isinstance(model.recipe.update(deferring.scorer, after, change).inverse, UpdatedSymmetric)
    filler = np.zeros((inverse.n, MAX_DEFERRED_RANK), np.float32)
    crowded = deferring.scorer.with_inverse(inverse.defer(filler, filler.T))
    updated = model.recipe.update(crowded, after, change)
    assert not isinstance(updated.inverse, UpdatedSymmetric)
    np.testing.assert_allclose(updated.weights(), gr.EASE(l2=20).fit(after).weights(), atol=2e-4)
    grown = deferring.observe(gr.Interactions.of(pl.DataFrame({"user": [1, 1], "item": [260, 10**9]})))
    np.testing.assert_allclose(grown.weights(), gr.EASE(l2=20).fit(grown.histories).weights(), atol=2e-4)
