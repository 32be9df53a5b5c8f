"""Models trained by gradients: losses against their formulas in loops, slopes against differences and autograd, trainings
against naive ones, and serving without PyTorch."""

import inspect
import itertools
import json
import subprocess
import sys
import textwrap
from dataclasses import fields, replace
from math import exp, log

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import minimize
from typer.testing import CliRunner

import gramian as gr
from gramian.app.cli import app
from gramian.models.iterative import State, last
from gramian.sampled import (
    BCE,
    BPR,
    CCL,
    CDAE,
    MF,
    MINE,
    MSE,
    SML,
    UIB,
    ByPopularity,
    Debias,
    Everything,
    FactorModel,
    InBatch,
    InfoNCE,
    LightGCN,
    MINEPlus,
    MultDAE,
    MultVAE,
    RG2Loss,
    SampledSoftmax,
    Softmax,
    Sparsemax,
    Uniform,
)
from gramian.sampled import training as wing
from gramian.sampled.backbones import back_to, geometry, rows_of
from gramian.sampled.losses import LOSSES, Scores, projected
from gramian.sampled.scorers import SHOWN, Problem, keys

RNG = np.random.default_rng(7)
M, N = 60, 24
X = sp.csr_array((RNG.random((M, N)) < 0.15 + 0.5 * (np.arange(M)[:, None] % 3 == np.arange(N) % 3)).astype(np.float32))
EVENTS = gr.Interactions.of(X)
GROUPS = gr.Interactions.of(
    sp.csr_array((RNG.random((150, 60)) < 0.02 + 0.3 * (np.arange(150)[:, None] % 3 == np.arange(60) % 3)).astype(np.float32))
)
UNSEEN = [[0, 3, 9], [1, 4, 10, 13], [2]]

BIASED = [
    Softmax(temperature=0.7),
    SampledSoftmax(temperature=0.7),
    BPR(temperature=0.8),
    BCE(),
    Sparsemax(),
    UIB(margin=0.3),
    SML(margin=0.8, item_weight=0.4, margin_weight=0.7),
    MSE(weight=3),
    CCL(margin=0.1, weight=4),
    InfoNCE(temperature=0.6, weight=1.5),
    MINE(),
    MINEPlus(temperature=0.5, weight=1.2),
    RG2Loss(),
]
DEBIASED = [replace(loss, debiased=Debias(positives=4, prior=0.2)) for loss in BIASED if hasattr(loss, "debiased")]
EACH = [*BIASED, *DEBIASED]


def named(loss):
    whole = loss.by_users and not loss.all_items
    return type(loss).__name__ + (" debiased" if getattr(loss, "debiased", None) else "") + (" whole" if whole else "")


def seen(loss, rows=3, positives=2, candidates=5, shares=True, seed=0):
    """Scores of everything a loss may look at."""
    rng = np.random.default_rng(seed)
    weight = rng.random((rows, positives))
    share = rng.random(candidates)
    q = rng.random(candidates)
    parts = {
        "positive": rng.uniform(-1, 1, (rows, positives)),
        "weight": weight / weight.sum(1)[:, None],
        "others": rng.uniform(-1, 1, (rows, candidates)),
        "n": float(candidates),
        "log_share": np.log(share / share.sum()) if shares else None,
        "log_q": np.log(q / q.sum()),
        "own": rng.uniform(-1, 1, (rows, 1)),
        "item_own": rng.uniform(-1, 1, (rows, positives)),
        "between": rng.uniform(-1, 1, (rows, positives, candidates)),
    }
    if getattr(loss, "debiased", None):
        taken = rng.random((rows, 4))
        parts |= {
            "liked": rng.uniform(-1, 1, (rows, 4)),
            "liked_weight": taken / taken.sum(1)[:, None],
            "prior": np.full((rows, 1), loss.debiased.prior),
        }
    return Scores(**parts)


def tensors(s):
    return Scores(*[torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in s])


def written_out(loss, s, row):
    """The papers' formulas, in loops, over one row."""
    n, share = s.n, np.full(s.others.shape[1], 1 / s.others.shape[1]) if s.log_share is None else np.exp(s.log_share)
    y, others, w = s.positive[row], s.others[row], s.weight[row]
    t, total = getattr(loss, "temperature", 1.0), 0.0
    for i, wi in enumerate(w):
        if isinstance(loss, Softmax):
            value = -log(exp(y[i] / t) / sum(exp(o / t) for o in others))
        elif isinstance(loss, SampledSoftmax):
            rest = sum(p * exp(o / t) / exp(lq) for p, o, lq in zip(share, others, s.log_q, strict=True))
            value = -log(exp(y[i] / t) / (exp(y[i] / t) + rest))
        elif isinstance(loss, BPR):
            value = sum(-p * log(1 / (1 + exp((o - y[i]) / t))) for p, o in zip(share, others, strict=True))
        elif isinstance(loss, BCE):
            value = -log(1 / (1 + exp(-y[i])))
            value -= sum(n * p * log(1 - 1 / (1 + exp(-o))) for p, o in zip(share, others, strict=True))
        elif isinstance(loss, Sparsemax):
            support = nearest_in_simplex(others) > 0
            tau = (others[support].sum() - 1) / support.sum()
            value = -y[i] + sum(o**2 - tau**2 for o in others[support]) / 2 + 0.5
        elif isinstance(loss, UIB):
            b = s.own[row, 0]
            value = max(0, loss.margin + b - y[i])
            value += sum(n * p * max(0, loss.margin + o - b) for p, o in zip(share, others, strict=True))
        elif isinstance(loss, SML):
            m, ni = (loss.margin / (1 + exp(-x)) for x in (s.own[row, 0], s.item_own[row, i]))
            value = -loss.margin_weight * (m + ni)
            for p, o, between in zip(share, others, s.between[row, i], strict=True):
                d_ui, d_uj, d_ij = -y[i], -o, -between
                value += n * p * (max(0, d_ui - d_uj + m) + loss.item_weight * max(0, d_ui - d_ij + ni))
        elif isinstance(loss, MSE | CCL):
            bad = (lambda v: v**2) if isinstance(loss, MSE) else (lambda v: max(0, v - loss.margin))
            value = (1 - y[i]) ** 2 if isinstance(loss, MSE) else 1 - y[i]
            value += loss.weight * sum(p * bad(o) for p, o in zip(share, others, strict=True))
            if loss.debiased:
                liked = zip(s.liked_weight[row], s.liked[row], strict=True)
                value -= loss.weight * s.prior[row, 0] * sum(p * bad(k) for p, k in liked)
        elif isinstance(loss, InfoNCE):
            mean = sum(p * exp(o / t) for p, o in zip(share, others, strict=True))
            if loss.debiased:
                tau = s.prior[row, 0]
                liked = sum(p * exp(k / t) for p, k in zip(s.liked_weight[row], s.liked[row], strict=True))
                mean = max((mean - tau * liked) / (1 - tau), exp(-1 / t))
            value = -log(exp(y[i] / t) / (exp(y[i] / t) + loss.weight * n * mean))
        elif isinstance(loss, MINE | MINEPlus):
            value = -y[i] / t + getattr(loss, "weight", 1) * log(
                sum(n * p * exp(o / t) for p, o in zip(share, others, strict=True))
            )
        else:
            value = sum(p * (o + 1) ** 2 for p, o in zip(share, others, strict=True)) / 2 - 0.5 - y[i]
        total += wi * value
    return total


def nearest_in_simplex(x):
    """By trying every support."""
    best, found = np.inf, None
    for size in range(1, len(x) + 1):
        for support in itertools.combinations(range(len(x)), size):
            p = np.zeros(len(x))
            p[list(support)] = x[list(support)] - (x[list(support)].sum() - 1) / size
            if (p >= 0).all() and ((p - x) ** 2).sum() < best:
                best, found = ((p - x) ** 2).sum(), p
    return found


@pytest.mark.parametrize("loss", EACH, ids=named)
@pytest.mark.parametrize("shares", [True, False], ids=["shares", "alike"])
def test_a_loss_is_the_papers_formula(loss, shares):
    if loss.all_items and shares:
        shares = False  # nothing is sampled
    s = seen(loss, shares=shares)
    values, _ = loss(s)
    np.testing.assert_allclose(values, [written_out(loss, s, row) for row in range(3)], rtol=1e-9)


@pytest.mark.parametrize("loss", EACH, ids=named)
def test_slopes_are_differences_and_what_autograd_derives(loss):
    s = seen(loss, shares=not loss.all_items, seed=3)
    _, slopes = loss(s)
    inputs = ["positive", "others"] + ["liked"] * (s.liked is not None) + list(loss.owns) + ["between"] * loss.needs_between
    parts = {name: torch.from_numpy(getattr(s, name)).requires_grad_() for name in inputs}
    value, by_hand = loss(tensors(s)._replace(**parts))
    derived = torch.autograd.grad(value.sum(), list(parts.values()))
    for name, autograd in zip(inputs, derived, strict=True):
        got = np.broadcast_to(getattr(slopes, name), getattr(s, name).shape)
        np.testing.assert_allclose(got, autograd.numpy(), atol=1e-10, err_msg=name)
        np.testing.assert_allclose(got, getattr(by_hand, name).detach().expand(got.shape), atol=1e-10, err_msg=name)
        step = 1e-6
        for place in itertools.islice(np.ndindex(got.shape), 8):
            up, down = (getattr(s, name).copy() for _ in range(2))
            up[place] += step
            down[place] -= step
            difference = (loss(s._replace(**{name: up}))[0].sum() - loss(s._replace(**{name: down}))[0].sum()) / (2 * step)
            assert got[place] == pytest.approx(difference, abs=1e-6), name


@pytest.mark.parametrize("seed", range(5))
def test_info_nce_is_above_mine_is_above_its_bounds(seed):
    s = seen(MINE(), positives=1, candidates=9, shares=False, seed=seed)
    info, mine = InfoNCE(temperature=1)(s)[0], MINE()(s)[0]
    gaps = s.others - s.positive
    assert (info >= mine).all()
    assert (mine >= gaps.max(1)).all()
    assert (mine >= gaps.mean(1) + log(9) - 1e-12).all()
    assert (BPR()(s)[0] >= gaps.mean(1)).all()
    assert (info <= np.maximum(gaps.max(1), 0) + log(10)).all()


@pytest.mark.parametrize("loss", [loss for loss in BIASED if hasattr(loss, "debiased")], ids=named)
def test_with_prior_0_nothing_is_debiased(loss):
    none = replace(loss, debiased=Debias(positives=4, prior=0))
    s = seen(none)
    for one, other in zip(loss(s._replace(prior=None, liked=None))[1][:2], none(s)[1][:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(none(s)[0], loss(s._replace(prior=None, liked=None))[0], rtol=1e-12)
    many = replace(loss, debiased=Debias(positives=4, prior=0.3))
    assert not np.allclose(many(seen(many))[0], loss(s._replace(prior=None, liked=None))[0])


def test_priors_are_by_what_a_user_touched():
    assert Debias(hidden_items=10).priors(np.array([5, 20]), 100).tolist() == pytest.approx([0.15, 0.3])
    assert Debias(hidden_share=0.5).priors(np.array([10, 20]), 100).tolist() == pytest.approx([0.15, 0.3])
    assert Debias(prior=0.2).priors(np.array([5, 20]), 100).tolist() == [0.2, 0.2]


def test_sampled_softmax_of_all_items_is_softmax():
    """Each item once, its own positive left out of the candidates, by any probabilities q with the shares they imply."""
    y = np.random.default_rng(1).uniform(-1, 1, (1, 6))
    full = Softmax(temperature=0.5)(Scores(y[:, [2]], np.ones((1, 1)), y, 6))
    q = np.array([0.1, 0.3, 0.2, 0.1, 0.15, 0.15])
    log_share = np.log(q)
    log_share[2] = -np.inf  # a hit
    some = Scores(y[:, [2]], np.ones((1, 1)), y, 6, log_share=log_share, log_q=np.log(q))
    sampled = SampledSoftmax(temperature=0.5)(some)
    assert sampled[0] == pytest.approx(full[0])
    whole = full[1].others.copy()
    whole[:, 2] += full[1].positive[:, 0]
    split = sampled[1].others.copy()
    split[:, 2] += sampled[1].positive[:, 0]
    np.testing.assert_allclose(split, whole, atol=1e-12)


def test_rg2_is_the_second_order_expansion_of_softmax():
    o = np.random.default_rng(2).standard_normal((1, 30))
    o -= o.mean()

    def gap(size):
        s = Scores(size * o[:, [4]], np.ones((1, 1)), size * o, 30)
        return float(Softmax()(s)[0][0] - RG2Loss()(s)[0][0]) - log(30)

    assert abs(gap(1e-2)) < 1e-5
    assert gap(2e-2) / gap(1e-2) == pytest.approx(8, rel=0.1)  # what is left is of the third order


def test_sparsemax_is_the_nearest_distribution():
    rng = np.random.default_rng(5)
    for scale in (0.1, 1, 10):
        x = scale * rng.standard_normal((4, 6))
        p, threshold = projected(x)
        np.testing.assert_allclose(p, [nearest_in_simplex(row) for row in x], atol=1e-6)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(projected(torch.from_numpy(x))[0], p)
        np.testing.assert_allclose(p, np.maximum(x - threshold, 0))


SKEWED = gr.Interactions.of(sp.csr_array((RNG.random((90, N)) < np.linspace(0.02, 0.9, N) ** 2).astype(np.float32)))


def test_candidates_come_with_their_probabilities():
    popularity = SKEWED.popularity
    for sampler in (Uniform(), Uniform(shared=False), ByPopularity(power=0.5), ByPopularity(), InBatch()):
        probabilities = np.exp(sampler.log_probabilities(popularity))
        assert probabilities.sum() == pytest.approx(1)
        recipe = FactorModel(MF(rank=4), BPR(n_negatives=20_000, sampler=sampler))
        at = wing.Training(recipe, SKEWED, recipe.first(SKEWED, np.float32))
        items = at.columns[torch.randperm(len(at.columns), generator=torch.Generator().manual_seed(0))]
        drawn = at.candidates(items[: (3 if getattr(sampler, "shared", True) is False else None)], wing.draws(at.device, 1))
        shared = getattr(sampler, "shared", True)
        assert drawn.shape == ((len(items),) if isinstance(sampler, InBatch) else (20_000,) if shared else (3, 20_000))
        counts = np.bincount(drawn.reshape(-1).numpy(), minlength=N) / drawn.numel()
        np.testing.assert_allclose(counts, probabilities, atol=0.01)
        others = Uniform() if isinstance(sampler, ByPopularity | InBatch) else ByPopularity()
        assert np.abs(counts - np.exp(others.log_probabilities(popularity))).max() > 0.03
    np.testing.assert_allclose(np.exp(ByPopularity().log_probabilities(popularity)), popularity / popularity.sum(), atol=1e-9)


def naive_step(recipe, state, users, items, candidates, liked, n=None):
    """The slopes of a batch by autograd through a plain dense computation, where candidates stand for n."""
    own = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in state.arrays.items()}
    p, q = own["users"], own["items"]
    if recipe.backbone.n_layers:
        a = torch.zeros(M + N, M + N, dtype=p.dtype)
        dense = torch.from_numpy((X.toarray() > 0).astype(np.float64)).to(p.dtype)
        a[:M, M:], a[M:, :M] = dense, dense.T
        degree = a.sum(1).clamp(min=1) ** -0.5
        a = degree[:, None] * a * degree
        layer = together = torch.cat([p, q])
        for _ in range(recipe.backbone.n_layers):
            layer = a @ layer
            together = together + layer
        together = together / (recipe.backbone.n_layers + 1)
        p, q = together[:M], together[M:]
    kind = geometry(recipe.backbone, recipe.loss.of_distances)

    def score(a, b):
        if kind == "distance":
            return -((a - b) ** 2).sum(-1)
        if kind == "cosine":
            return torch.nn.functional.cosine_similarity(a, b, dim=-1)
        return (a * b).sum(-1)

    total = 0
    for row, (u, i) in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
        shown = candidates if candidates.ndim == 1 else candidates[row]
        parts = {
            "positive": score(p[u], q[i]).view(1, 1),
            "weight": torch.ones(1, 1, dtype=p.dtype),
            "others": score(p[u][None], q[shown])[None],
            "n": n or len(shown),
            "log_q": torch.full((len(shown),), -log(N), dtype=p.dtype),
            "between": score(q[i][None], q[shown])[None, None],
        }
        if recipe.loss.skips_hits:
            share = torch.full((1, len(shown)), -log(len(shown)), dtype=p.dtype)
            parts["log_share"] = share.masked_fill(shown[None] == i, -float("inf"))
        parts |= {name: own[name][u if name == "own" else i].view(1, 1) for name in recipe.loss.owns}
        if getattr(recipe.loss, "debiased", None):
            parts |= {"liked": score(p[u][None], q[liked[row]])[None], "liked_weight": 1 / len(liked[row]), "prior": 0.2}
        total = total + recipe.loss(Scores(**parts))[0][0]
    total = total / len(users)
    base_p, base_q = own["users"], own["items"]
    total = total + recipe.l2 * (base_p[users] ** 2).sum(1).mean() + recipe.l2 * (base_q[items] ** 2).sum(1).mean()
    if not recipe.loss.all_items:
        total = total + recipe.l2 * (base_q[candidates.reshape(-1)] ** 2).sum(1).mean()
    total.backward()
    return float(total.detach()), {name: part.grad for name, part in own.items()}


def somewhere(recipe):
    """Vectors that are not small."""
    rng = np.random.default_rng(0)
    arrays = recipe.first(EVENTS, np.float64).arrays
    return State({name: array + rng.standard_normal(array.shape) for name, array in arrays.items()})


def moves(at, monkeypatch):
    """What a step would move by, table by table, in all rows."""
    moved = {}

    def move(name, rows, by, rate):
        moved[name] = by if rows is None else torch.zeros_like(at.tables[name]).index_copy(0, rows, by)

    monkeypatch.setattr(at.tables, "move", move)
    return moved


EVERY_BACKBONE = pytest.mark.parametrize("backbone", [MF(rank=5), LightGCN(rank=5, n_layers=2)], ids=["MF", "LightGCN"])


@EVERY_BACKBONE
@pytest.mark.parametrize("loss", [loss for loss in EACH if not loss.by_users], ids=named)
@pytest.mark.parametrize("shape", [(9,), (16, 9)], ids=["shared", "own"])
def test_a_step_takes_the_slopes_of_a_naive_one(backbone, loss, shape, monkeypatch):
    backbone = replace(backbone, cosine=recipe_of(loss).backbone.cosine)
    recipe = FactorModel(backbone, loss, l2=0.03, batch_size=16)
    state, rng = somewhere(recipe), np.random.default_rng(1)
    at = wing.Training(recipe, EVENTS, state)
    batch = torch.from_numpy(rng.permutation(X.nnz)[:16])
    shown, liked = torch.from_numpy(rng.integers(0, N, shape)), torch.from_numpy(rng.integers(0, N, (16, 4)))
    monkeypatch.setattr(at, "candidates", lambda *a: shown)
    monkeypatch.setattr(at, "more", lambda *a: liked)
    moved = moves(at, monkeypatch)
    value = at.step(at.rows[batch], at.columns[batch], wing.draws(at.device, 0), 0.1)
    expected, slopes = naive_step(recipe, state, at.rows[batch], at.columns[batch], shown, liked)
    assert float(value) == pytest.approx(expected)
    assert set(moved) == set(recipe.tables)
    for name, by in moved.items():
        np.testing.assert_allclose(by, slopes[name], atol=1e-8, err_msg=name)


WHOLE = [replace(loss, sampler=Everything()) if hasattr(loss, "sampler") else loss for loss in EACH if not loss.pairs]


@EVERY_BACKBONE
@pytest.mark.parametrize("loss", WHOLE, ids=named)
def test_a_step_by_users_is_that_by_all_their_interactions(backbone, loss, monkeypatch):
    """With every item a candidate, and liked what they touched: a naive step, and ours by interactions."""
    backbone = replace(backbone, cosine=recipe_of(loss).backbone.cosine)
    recipe = FactorModel(backbone, loss, l2=0.03)
    state, users = somewhere(recipe), torch.tensor([7, 2, 40, 11])
    at = wing.Training(recipe, EVENTS, state)
    moved = moves(at, monkeypatch)
    value = at.step_by_users(users, 0.1)
    rows, columns = torch.repeat_interleave(users, at.sizes[users]), torch.cat([histories(at)[u] for u in users.tolist()])
    naive = replace(recipe, loss=loss.folded())
    n = None if naive.loss.all_items else loss.n_negatives
    liked = [histories(at)[u] for u in rows.tolist()]
    expected, slopes = naive_step(naive, state, rows, columns, torch.arange(N), liked, n)
    assert float(value) == pytest.approx(expected)
    assert set(moved) == set(recipe.tables)
    for name, by in moved.items():
        np.testing.assert_allclose(by, slopes[name], atol=1e-8, err_msg=name)
    if loss.all_items or isinstance(loss, SampledSoftmax) or getattr(loss, "debiased", None):
        return
    drawing = wing.Training(replace(recipe, loss=replace(loss, sampler=Uniform())), EVENTS, state)
    drawn = moves(drawing, monkeypatch)
    drawing.loss = replace(drawing.loss, n_negatives=N)
    monkeypatch.setattr(drawing, "candidates", lambda *a: torch.arange(N))
    scores = drawing.scores
    monkeypatch.setattr(drawing, "scores", lambda *a: scores(*a)._replace(n=n))
    assert float(drawing.step(rows, columns, wing.draws(at.device, 0), 0.1)) == pytest.approx(float(value))
    for name, by in drawn.items():
        np.testing.assert_allclose(moved[name], by, atol=1e-8, err_msg=name)


def histories(at):
    return at.columns.split(at.sizes.tolist())


def test_an_epoch_by_users_takes_each_once_in_batches_of_about_as_many_interactions():
    """However skewed they are; who touched nothing is left out."""
    x = sp.csr_array((RNG.random((200, N)) < (np.arange(200)[:, None] % 40 / 40) ** 3).astype(np.float32))
    events = gr.Interactions.of(x)
    recipe = FactorModel(MF(rank=4), Softmax(), batch_size=30)
    at = wing.Training(recipe, events, recipe.first(events, np.float32))
    batches = at.batches(wing.draws(at.device, 0))
    assert sorted(torch.cat(batches).tolist()) == np.flatnonzero(np.diff(events.matrix.indptr)).tolist()
    sizes = [int(at.sizes[batch].sum()) for batch in batches]
    assert max(sizes) < 30 + N
    assert np.mean(sizes) > 25
    assert max(len(batch) for batch in batches) <= recipe.users_at_once(events)
    other = at.batches(wing.draws(at.device, 1))
    assert torch.cat(other).tolist() != torch.cat(batches).tolist()


def test_debiasing_draws_what_the_user_touched():
    recipe = FactorModel(MF(rank=4, cosine=True), CCL(debiased=Debias(positives=50)))
    at = wing.Training(recipe, EVENTS, recipe.first(EVENTS, np.float32))
    users = torch.tensor([3, 8])
    drawn = at.more(users, wing.draws(at.device, 0))
    for user, row in zip(users.tolist(), drawn.tolist(), strict=True):
        assert set(row) == set(X[[user]].indices.tolist())
    np.testing.assert_allclose(at.priors[:, 0], np.diff(X.indptr) / N)


def test_adam_is_pytorchs():
    rng = np.random.default_rng(0)
    start = rng.standard_normal((7, 3))
    ours = wing.Adam(State({"a": start.copy(), "b": start.copy()}), ("a", "b"), torch.device("cpu"))
    dense, sparse = (torch.from_numpy(start.copy()).requires_grad_() for _ in range(2))
    theirs, lazy = torch.optim.Adam([dense], lr=0.01), torch.optim.SparseAdam([sparse], lr=0.01)
    for number in range(5):
        slopes = torch.from_numpy(rng.standard_normal((7, 3)))
        rows = torch.tensor([number % 7, (number + 3) % 7])
        ours.steps += 1
        ours.move("a", None, slopes, 0.01)
        ours.move("b", rows, slopes[rows], 0.01)
        dense.grad = slopes
        sparse.grad = torch.sparse_coo_tensor(rows[None], slopes[rows], (7, 3), check_invariants=False).coalesce()
        theirs.step()
        lazy.step()
    np.testing.assert_allclose(ours["a"], dense.detach(), rtol=1e-6)
    np.testing.assert_allclose(ours["b"], sparse.detach(), rtol=1e-6)


def test_rg2_by_gradients_comes_to_the_closed_form():
    recipe = FactorModel(MF(rank=3), RG2Loss(), n_epochs=400, batch_size=10_000, learning_rate=0.05, halve_after=5)
    closed = gr.RG2(rank=3, l2=0).fit(EVENTS, dtype="float64").scores(EVENTS)
    trained = recipe.fit(EVENTS, dtype="float64").scores(EVENTS)
    np.testing.assert_allclose(trained, closed, atol=0.02 * np.abs(closed).max())


def recipe_of(loss, **settings):
    backbone = settings.pop("backbone", MF(rank=6))
    floored = isinstance(loss, InfoNCE) and loss.debiased
    cosine = bool(loss.needs_cosine or floored)
    return FactorModel(replace(backbone, cosine=cosine), loss, **({"n_epochs": 3, "batch_size": 64} | settings))


def own_kind(model):
    """How much of what is recommended, to the trained and to others, is of their own kind. By chance it is a third."""
    known = model.recommend(GROUPS.users.tolist()[:30], k=2)
    hits = [item % 3 == user % 3 for user, row in zip(known.users, known.items, strict=True) for item in row]
    unseen = model.recommend_for([[0, 3, 9, 12], [1, 4, 10, 13], [2, 5, 11]], k=3)
    others = [item % 3 == kind for kind, row in enumerate(unseen.items) for item in row]
    return min(np.mean(hits), np.mean(others))


SMALL = [replace(loss, n_negatives=8) if hasattr(loss, "n_negatives") else loss for loss in EACH]
SMALL_WHOLE = [replace(loss, n_negatives=8) for loss in WHOLE if not loss.all_items]


@pytest.mark.parametrize("loss", [*SMALL, *SMALL_WHOLE], ids=named)
def test_training_lowers_the_loss_and_finds_the_groups(loss):
    """Users and items are of three kinds; a model that has learned anything recommends a user's own kind."""
    recipe = recipe_of(loss, n_epochs=40, learning_rate=0.03)
    objectives = [epoch.objective for epoch in recipe.epochs(GROUPS)]
    assert np.mean(objectives[-5:]) < objectives[0]
    assert own_kind(recipe.fit(GROUPS)) > 0.7


@pytest.mark.parametrize("loss", [*SMALL, *SMALL_WHOLE], ids=named)
def test_the_same_seed_gives_the_same_bits_and_a_resumed_training_too(loss, tmp_path):
    recipe = recipe_of(loss, n_epochs=4)
    whole = recipe.fit(EVENTS)
    assert np.array_equal(whole.scores(EVENTS), recipe.fit(EVENTS).scores(EVENTS))
    assert not np.array_equal(whole.scores(EVENTS), replace(recipe, seed=1).fit(EVENTS).scores(EVENTS))
    for epoch in recipe.epochs(EVENTS, scratch=tmp_path):
        if epoch.number == 2:
            break
    del epoch
    resumed = list(recipe.epochs(EVENTS, scratch=tmp_path))
    assert [epoch.number for epoch in resumed] == [3, 4]
    assert np.array_equal(resumed[-1].model.scores(EVENTS), whole.scores(EVENTS))


@pytest.mark.parametrize("sampler", [Uniform(shared=False), ByPopularity(power=0.5), InBatch()], ids=str)
@pytest.mark.parametrize("loss", [SampledSoftmax(n_negatives=8), BPR(n_negatives=8), MSE(n_negatives=8)], ids=named)
def test_every_sampler_trains(loss, sampler):
    recipe = recipe_of(replace(loss, sampler=sampler), n_epochs=30, learning_rate=0.03)
    assert own_kind(recipe.fit(GROUPS)) > 0.7


def test_epochs_do_not_change_what_was_given():
    recipe = recipe_of(MINEPlus(n_negatives=8))
    first, *_ = epochs = list(recipe.epochs(EVENTS))
    assert not np.array_equal(first.model.scores(EVENTS), epochs[-1].model.scores(EVENTS))
    alone = last(replace(recipe, n_epochs=1).epochs(EVENTS))
    assert np.array_equal(first.model.scores(EVENTS), alone.model.scores(EVENTS))


def test_the_learning_rate_is_halved_when_nothing_improves(tmp_path):
    recipe = recipe_of(MINEPlus(n_negatives=8), n_epochs=9, halve_after=2)
    epochs = recipe.epochs(EVENTS, scratch=tmp_path)
    verdict = None
    for thought in (0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5):
        epochs.send(verdict)
        verdict = thought
    epochs.send(verdict)
    epochs.close()
    facts, _, _ = gr.store.read(tmp_path / "gramian-epoch-even", "checkpoint")
    assert facts["facts"]["rate"] == recipe.learning_rate / 4  # after (0.4, 0.4) and (0.5, 0.5), not yet after the last
    rate = wing.Rate(1.0, 1, {})
    for _ in range(20):
        rate.judge(0, -1.0)
    assert rate.now == wing.LEAST
    rate.judge(None, -5.0)  # a loss says nothing about a metric
    assert (rate.best, rate.waited) == (5.0, 0)


def test_a_path_is_resumed_with_its_reports_and_its_best_model(tmp_path):
    split = gr.split.weak(EVENTS, validation=0, test=0.2)
    recipe = recipe_of(MINEPlus(n_negatives=8), n_epochs=6, halve_after=1)
    whole = gr.epoch_path(recipe, split, patience=10)
    part = gr.epoch_path(replace(recipe, n_epochs=3), split, patience=10, scratch=tmp_path)
    assert list(part.reports) == [1, 2, 3]
    resumed = gr.epoch_path(recipe, split, patience=10, scratch=tmp_path)
    assert resumed.frame().equals(whole.frame())
    assert np.array_equal(resumed.model.scores(EVENTS), whole.model.scores(EVENTS))
    again = gr.epoch_path(recipe, split, patience=10, scratch=tmp_path)  # it was at its end
    assert again.frame().equals(whole.frame())
    assert np.array_equal(again.model.scores(EVENTS), whole.model.scores(EVENTS))


@pytest.mark.parametrize("loss", [MINEPlus(n_negatives=8), RG2Loss()], ids=named)
def test_a_path_that_was_stopped_or_interrupted_goes_on_as_if_it_had_not_been(loss, tmp_path, monkeypatch):
    split = gr.split.weak(EVENTS, validation=0, test=0.2)
    recipe = recipe_of(loss, n_epochs=8, halve_after=1, learning_rate=0.03)
    whole = gr.epoch_path(recipe, split, patience=20)
    gr.epoch_path(recipe, split, patience=1, scratch=tmp_path / "stopped")
    assert gr.epoch_path(recipe, split, patience=20, scratch=tmp_path / "stopped").frame().equals(whole.frame())
    module = sys.modules["gramian.tuning.epoch_path"]
    judged, evaluate = [], module.evaluate

    def interrupted(*given, **words):
        judged.append(1)
        if len(judged) == 4:
            raise KeyboardInterrupt
        return evaluate(*given, **words)

    monkeypatch.setattr(module, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gr.epoch_path(recipe, split, patience=20, scratch=tmp_path / "cut")
    resumed = gr.epoch_path(recipe, split, patience=20, scratch=tmp_path / "cut")
    assert resumed.frame().equals(whole.frame())
    assert np.array_equal(resumed.model.scores(EVENTS), whole.model.scores(EVENTS))


def test_a_path_of_something_else_is_refused(tmp_path, refused):
    split = gr.split.weak(EVENTS, validation=0, test=0.2)
    recipe = recipe_of(MINEPlus(n_negatives=8), n_epochs=1)
    gr.epoch_path(recipe, split, scratch=tmp_path)
    for other in (replace(recipe, seed=3), gr.IALS(rank=4, n_epochs=1)):
        with refused(mentioning="another"):
            gr.epoch_path(other, split, scratch=tmp_path)
    with refused(mentioning="metrics"):
        gr.epoch_path(recipe, split, ["recall@5"], scratch=tmp_path)
    with refused():
        gr.epoch_path(recipe, split, dtype="float64", scratch=tmp_path)


SOLVED = [loss for loss in SMALL if not loss.rule(0.0, N)]


@pytest.mark.parametrize("loss", SOLVED, ids=named)
def test_whoever_was_not_trained_has_the_vector_of_least_loss(loss):
    """Against SciPy's minimiser, from several starts."""
    model = recipe_of(loss, n_epochs=30, learning_rate=0.03, l2=0.01).fit(EVENTS, dtype="float64")
    scorer = model.scorer
    histories = sp.csr_array((np.ones(7), ([0, 0, 0, 1, 1, 1, 1], [0, 3, 9, 1, 4, 10, 13])), (2, N))
    found = scorer.solved(histories)
    problem = Problem(scorer, histories)
    for user in range(2):
        touched = histories[[user]].indices

        def value(z, touched=touched):
            s_user, s_items = rows_of(z[None, :6], scorer.geometry, "user"), scorer.rows
            others = s_user @ s_items.T
            parts = {"own": z[None, 6:]} if "own" in scorer.loss.owns else {}
            if scorer.loss.needs_between:
                parts["between"] = (rows_of(scorer.items, scorer.geometry, "user")[touched] @ s_items.T)[None]
                parts["item_own"] = scorer.arrays["item_own"][touched, 0][None]
            weight = np.full((1, len(touched)), 1 / len(touched))
            if getattr(loss, "debiased", None):
                prior = loss.debiased.priors(np.array([len(touched)]), N)[:, None]
                parts |= {"liked": others[:, touched], "liked_weight": weight, "prior": prior}
            log_q = None if loss.all_items else scorer.arrays["log_q"]
            if isinstance(loss, SampledSoftmax):
                s = Scores(others[:, touched], weight, others, N)
                return float(Softmax(loss.temperature)(s)[0][0] + 0.01 * (z[:6] ** 2).sum())
            n = N if loss.all_items else loss.n_negatives
            s = Scores(others[:, touched], weight, others, n, log_share=log_q, log_q=log_q, **parts)
            return float(loss(s)[0][0] + 0.01 * (z[:6] ** 2).sum())

        start = problem.first()[user]
        starts = [start + k * np.random.default_rng(k).standard_normal(len(start)) for k in range(3)]
        ends = [minimize(value, begin, method=method) for begin in starts for method in ("BFGS", "Powell")]
        z = np.concatenate([found[user], np.zeros(len(start) - 6)])
        if len(start) > 6:  # with the best of the user's own number
            z[6] = minimize(lambda own, z=z: value(np.append(z[:6], own)), [0.0], method="Nelder-Mead").x[0]
        best, begin = min(end.fun for end in ends), value(start)
        assert value(z) <= begin + 1e-9
        assert value(z) - best <= 0.1 * (begin - best) + 1e-3


def test_slopes_go_back_through_every_geometry():
    rng = np.random.default_rng(0)
    z, by = rng.standard_normal((2, 4)), {"product": 4, "cosine": 4, "distance": 6}
    for kind, width in by.items():
        slopes = rng.standard_normal((2, width))
        leaf = torch.from_numpy(z.copy()).requires_grad_()
        (rows_of(leaf, kind, "user") * torch.from_numpy(slopes)).sum().backward()
        np.testing.assert_allclose(back_to(z, slopes, kind), leaf.grad, atol=1e-12)
    q = rng.standard_normal((3, 4))
    distances = ((z[:, None] - q[None]) ** 2).sum(2)
    np.testing.assert_allclose(rows_of(z, "distance", "user") @ rows_of(q, "distance", "item").T, -distances)


def test_a_trained_users_history_has_the_trained_vector():
    recipe = recipe_of(MINEPlus(n_negatives=8))
    state = next(recipe.improved(EVENTS, recipe.first(EVENTS, np.float32)))
    model = recipe.fitted(EVENTS, state)
    distinct = np.unique(keys(EVENTS.matrix), return_index=True)[1]
    assert np.array_equal(model.users(EVENTS.matrix)[distinct], state.users[distinct])
    shuffled = model.users(EVENTS.matrix[::-1])
    assert np.array_equal(shuffled[::-1][distinct], state.users[distinct])
    assert not model.users(sp.csr_array((1, N), dtype=np.float32)).any()


def test_many_candidates_are_drawn_where_each_meets_each():
    n = 2 * SHOWN
    events = gr.Interactions.of(sp.csr_array((np.random.default_rng(0).random((50, n)) < 0.02).astype(np.float32)))
    model = FactorModel(MF(rank=4), BPR(), n_epochs=2).fit(events)
    problem = Problem(model.scorer, events.matrix[:3])
    assert len(problem.shown) == SHOWN
    assert len(set(problem.shown.tolist())) == SHOWN  # spread over all items
    found = model.recommend_for([[1, 2, 3]], k=4)
    assert len(found.items[0]) == 4
    assert found.scores == model.recommend_for([[1, 2, 3]], k=4).scores


EVERY_KIND = [
    *(recipe_of(loss) for loss in SMALL),
    recipe_of(BPR(n_negatives=8), backbone=LightGCN(rank=6, n_layers=2)),
    CDAE(rank=6, n_epochs=3, batch_size=16),
    MultDAE(rank=6, n_epochs=3, batch_size=16),
    MultVAE(rank=6, hidden=10, n_epochs=3, batch_size=16),
]


def kind_of(recipe):
    return named(recipe.loss) + type(recipe.backbone).__name__ if isinstance(recipe, FactorModel) else type(recipe).__name__


@pytest.mark.parametrize("recipe", EVERY_KIND, ids=kind_of)
def test_models_are_saved_and_loaded_as_they_are(recipe, tmp_path):
    model = recipe.fit(EVENTS)
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model")
    assert again.recipe == recipe
    assert np.array_equal(again.scores(EVENTS), model.scores(EVENTS))
    assert again.recommend_for(UNSEEN, k=3) == model.recommend_for(UNSEEN, k=3)
    assert again.similar_items(3, k=2) == model.similar_items(3, k=2)
    users, items = model.factors()
    assert len(users) == M
    assert len(items) == N
    rows = rows_of(users, geometry(recipe.backbone, recipe.loss.of_distances), "user") if hasattr(recipe, "loss") else users
    of_items = getattr(model.scorer, "rows", items)
    np.testing.assert_allclose(rows @ of_items.T, model.scores(EVENTS), atol=1e-4)


def test_a_saved_model_is_served_where_there_is_no_pytorch(tmp_path):
    """In a process in which torch cannot be imported."""
    expected = {}
    for recipe in EVERY_KIND:
        name = kind_of(recipe)
        model = recipe.fit(EVENTS)
        model.save(tmp_path / name)
        lists = model.recommend_for(UNSEEN, k=3)
        expected[name] = [lists.items, model.recommend(EVENTS.users.tolist()[:4], k=3).items]
    code = """
        import sys, json

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "torch":
                    raise ModuleNotFoundError("no torch here", name="torch")

        sys.meta_path.insert(0, Absent())
        import gramian as gr
        from gramian.sampled import MF, CCL, FactorModel, MultVAE
        found = {}
        for name in sys.argv[2:]:
            model = gr.load(f"{sys.argv[1]}/{name}")
            lists = model.recommend_for([[0, 3, 9], [1, 4, 10, 13], [2]], k=3)
            found[name] = [lists.items, model.recommend(model.users[:4], k=3).items]
        for recipe in (FactorModel(MF(rank=2, cosine=True), CCL()), MultVAE()):
            try:
                recipe.fit(model.events)
            except gr.errors.NotSupported as error:
                assert "gramian[torch]" in str(error), error
            else:
                raise AssertionError
        print(json.dumps(found))
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path), *expected]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("loss", [MSE(n_negatives=8), RG2Loss()], ids=named)
def test_squared_losses_of_inner_products_are_explained(loss):
    model = recipe_of(loss, n_epochs=10, l2=0.01).fit(EVENTS, dtype="float64")
    reasons = model.explain([0, 3, 9], 6)
    column = gr.Interactions.of(sp.csr_array((np.ones(3), ([0, 0, 0], [0, 3, 9])), (1, N)))
    scores = model.scores(column)
    assert reasons.score == pytest.approx(float(scores[0, 6]), rel=1e-6)
    assert set(reasons) == {0, 3, 9}


@pytest.mark.parametrize("sampler", [Uniform(), ByPopularity()], ids=str)
@pytest.mark.parametrize("loss", [MSE(weight=3), RG2Loss()], ids=named)
def test_a_squared_loss_is_solved_by_its_rule(loss, sampler):
    """The linear system of models/factors.py has the least of the very loss, with every item a candidate."""
    if hasattr(loss, "sampler"):
        loss = replace(loss, sampler=sampler)
    model = recipe_of(loss, n_epochs=5, l2=0.02).fit(EVENTS, dtype="float64")
    q = model.scorer.fixed.factors
    history = sp.csr_array((np.ones(3), ([0, 0, 0], [0, 3, 9])), (1, N))
    p = model.scorer.users(history)
    log_q = None if loss.all_items else loss.log_probabilities(EVENTS.popularity)
    third = np.full((1, 3), 1 / 3)

    def value(p):
        y = p @ q.T
        return float(loss(Scores(y[:, [0, 3, 9]], third, y, N, log_share=log_q))[0][0]) + 0.02 * float((p**2).sum())

    for place in range(p.shape[1]):
        step = np.zeros_like(p)
        step[0, place] = 1e-5
        assert (value(p + step) - value(p - step)) / 2e-5 == pytest.approx(0, abs=1e-6)


def test_what_is_no_sum_over_the_history_says_so(refused):
    for recipe in (recipe_of(BPR(n_negatives=8)), MultDAE(rank=4, n_epochs=1)):
        model = recipe.fit(EVENTS)
        with refused(gr.errors.NotSupported, mentioning="sums over the history"):
            model.explain([0, 3], 6)
        with refused(gr.errors.NotSupported, mentioning="item-item"):
            model.weights()


@pytest.mark.parametrize("recipe", [r for r in EVERY_KIND if not isinstance(r, FactorModel)], ids=kind_of)
def test_an_autoencoder_serves_what_it_has_trained(recipe):
    """The forward pass in NumPy against PyTorch's, without what training hides and draws."""
    recipe = replace(recipe, dropout=0.0, n_epochs=2)
    training = recipe.improved(EVENTS, recipe.first(EVENTS, np.float64))
    state = [next(training) for _ in range(2)][-1]
    scores = np.concatenate([panel for _, panel in recipe.fitted(EVENTS, state).panels(EVENTS.matrix)], axis=1)
    parts = {name: torch.from_numpy(array) for name, array in state.arrays.items()}
    x = torch.from_numpy(X.toarray().astype(np.float64))
    code = x / x.square().sum(1, keepdim=True).sqrt() if recipe.normalised else x
    code = code @ parts["weight0"] + parts["bias0"]
    if isinstance(recipe, CDAE):
        code = (code + parts["users"]).sigmoid()
    elif isinstance(recipe, MultDAE):
        code = code.tanh()
    else:
        code = (code.tanh() @ parts["weight1"] + parts["bias1"])[:, :6]
        code = (code @ parts["weight2"] + parts["bias2"]).tanh()
    expected = (code @ parts["output"].T + parts["output_bias"]).numpy()
    distinct = np.unique(keys(EVENTS.matrix), return_index=True)[1]
    np.testing.assert_allclose(scores[distinct], expected[distinct], atol=1e-6)
    at = wing.AutoencoderTraining(recipe, EVENTS, state)
    users = torch.arange(M)
    found = float(at.loss({name: parts[name] for name in recipe.shapes(EVENTS)}, users, 10**6, wing.draws(at.device, 0)))
    if isinstance(recipe, CDAE):
        likelihood = torch.nn.functional.binary_cross_entropy_with_logits(torch.from_numpy(expected), x, reduction="none")
        assert found == pytest.approx(float(likelihood.sum(1).mean()), rel=1e-6)
    elif isinstance(recipe, MultDAE):
        likelihood = -(x * torch.from_numpy(expected).log_softmax(1)).sum(1).mean()
        assert found == pytest.approx(float(likelihood), rel=1e-6)
    else:
        assert np.isfinite(found)


@pytest.mark.parametrize("recipe", [r for r in EVERY_KIND if not isinstance(r, FactorModel)], ids=kind_of)
def test_autoencoders_learn_resume_and_end_at_the_same_bits(recipe, tmp_path):
    recipe = replace(recipe, n_epochs=60, learning_rate=0.02, halve_after=1000)
    objectives = [epoch.objective for epoch in recipe.epochs(GROUPS)]
    assert np.mean(objectives[-5:]) < objectives[0]
    whole = recipe.fit(GROUPS)
    assert own_kind(whole) > 0.7
    replace(recipe, n_epochs=30).fit(GROUPS, scratch=tmp_path)
    assert np.array_equal(recipe.fit(GROUPS, scratch=tmp_path).scores(GROUPS), whole.scores(GROUPS))


def test_the_divergence_is_of_normal_distributions():
    """Against numbers drawn from them."""
    recipe = MultVAE(rank=2, hidden=3, divergence=1.0, warm_up=4, batch_size=M)
    at = wing.AutoencoderTraining(recipe, EVENTS, recipe.first(EVENTS, np.float64))
    assert [at.divergence(number) for number in (0, 1, 3, 9)] == [0.25, 0.5, 1, 1]
    zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in recipe.shapes(EVENTS).items()}
    zero["bias1"] = torch.tensor([0.3, -0.5, 0.2, 0.4], dtype=torch.float64)  # means, logarithms of variances
    flat = float(np.diff(X.indptr).mean() * log(N))  # the likelihood of scores that are all 0
    found = float(at.loss(zero, torch.arange(M), 99, wing.draws(at.device, 0))) - flat
    mean, spread = np.array([0.3, -0.5]), np.exp(np.array([0.2, 0.4]) / 2)
    z = mean + spread * np.random.default_rng(0).standard_normal((400_000, 2))
    ratio = (-((z - mean) ** 2) / (2 * spread**2) - np.log(spread) + z**2 / 2).sum(1)
    assert found == pytest.approx(ratio.mean(), abs=0.01)


def test_bad_input_says_what_to_do(refused):
    for make, word in (
        (lambda: FactorModel(MF(), CCL()), "cosine=True for CCL"),
        (lambda: FactorModel(MF(), MINEPlus()), "cosine=True for MINEPlus"),
        (lambda: FactorModel(MF(), InfoNCE(debiased=Debias())), "debiased InfoNCE"),
        (lambda: FactorModel(MF(cosine=True), SML()), "cosine=False"),
        (lambda: FactorModel(MF(), BPR(sampler=Everything())), "draws for BPR"),
        (lambda: FactorModel(MF(), SML(sampler=Everything())), "draws for SML"),
        (lambda: FactorModel(loss="CCL(margin=2)"), "margin of CCL"),
        (lambda: FactorModel(loss="nonsense"), "loss of FactorModel"),
        (lambda: FactorModel(loss="CCL(__import__('os'))"), "loss of FactorModel"),
        (lambda: FactorModel(loss="-" * 100_000 + "1"), "loss of FactorModel"),
        (lambda: FactorModel(loss={"name": "BPR", "settings": None}), "loss of FactorModel"),
        (lambda: ByPopularity(power=50), "power"),
        (lambda: FactorModel(backbone="mf(rank=0)"), "rank of MF"),
        (lambda: CCL(debiased=Debias(prior=1)), "prior of Debias"),
        (lambda: CCL(debiased=3), "or None"),
        (lambda: BPR(n_negatives=0), "n_negatives"),
        (lambda: BPR(sampler="softly"), "sampler"),
        (lambda: FactorModel(device="gpu"), "device"),
        (lambda: FactorModel(batch_size=0), "batch_size"),
        (lambda: FactorModel(MF(rank=N)).fit(EVENTS), "rank"),
        (lambda: FactorModel(MF(rank=4)).fit(gr.Interactions.of(X * 2)), "0/1"),
        (lambda: MultVAE(dropout=1), "dropout"),
    ):
        with refused(mentioning=word):
            make()
    if not torch.cuda.is_available():
        with refused(gr.errors.NotSupported, mentioning="GPU"):
            FactorModel(MF(rank=4), device="cuda").fit(EVENTS)
    with refused(gr.errors.Inaccurate, mentioning="finite"):
        FactorModel(MF(rank=4), MSE(n_negatives=4), learning_rate=1e30, batch_size=64).fit(EVENTS)


@pytest.mark.parametrize(
    ("recipe", "signature"),
    [
        (
            FactorModel,
            ["backbone", "loss", "n_epochs", "batch_size", "learning_rate", "l2", "halve_after", "seed", "device"],
        ),
        (MF, ["rank", "cosine"]),
        (LightGCN, ["rank", "n_layers", "cosine"]),
        (Debias, ["positives", "prior", "hidden_share", "hidden_items"]),
        (MINEPlus, ["temperature", "weight", "n_negatives", "sampler"]),
        (BPR, ["temperature", "n_negatives", "sampler"]),
        (CCL, ["margin", "weight", "n_negatives", "sampler", "debiased"]),
        (MSE, ["weight", "n_negatives", "sampler", "debiased"]),
        (InfoNCE, ["temperature", "weight", "n_negatives", "sampler", "debiased"]),
    ],
)
def test_recipes_take_what_the_contract_says(recipe, signature):
    assert list(inspect.signature(recipe).parameters) == signature


def test_the_wing_itself_is_imported_without_pytorch():
    code = "import sys, gramian as gr; gr.sampled.FactorModel(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_parts_are_read_as_they_are_printed():
    for loss in (*BIASED, *DEBIASED, CCL(sampler=ByPopularity(power=0.5, shared=False)), BPR(sampler=InBatch()), *WHOLE):
        recipe = recipe_of(loss)
        assert FactorModel(str(recipe.backbone), str(loss)).loss == loss
        assert FactorModel(**recipe.to_json()["settings"]) == replace(recipe, n_epochs=3)
        assert json.loads(json.dumps(recipe.to_json())) == recipe.to_json()
    assert {type(loss) for loss in BIASED} == set(LOSSES)
    assert all(f.metadata["about"] for kind in (FactorModel, CDAE, MultDAE, MultVAE, *LOSSES) for f in fields(kind))


def test_damaged_models_are_refused(tmp_path, refused):
    model = recipe_of(SML(n_negatives=4)).fit(EVENTS)
    facts, arrays = model.scorer.save()
    kind = type(model.scorer)
    for change in ({"geometry": "flat"}, {"l2": -1.0}, {"loss": {"name": "Os"}}, {"loss": "-" * 100_000}):
        with pytest.raises(gr.errors.DamagedFile):
            kind.load(facts | change, arrays)
    broken = {
        "keys": arrays["keys"][:-1],
        "users": arrays["users"][:, :-1],
        "log_q": arrays["log_q"][:-1],
        "items": np.full_like(arrays["items"], np.nan),
        "item_own": arrays["item_own"][:-1],
    }
    for name, array in broken.items():
        with pytest.raises(gr.errors.DamagedFile):
            kind.load(facts, arrays | {name: array})
    network = CDAE(rank=4, n_epochs=1).fit(EVENTS).scorer
    facts, arrays = network.save()
    for change in ({"activations": ["relu"]}, {"activations": []}, {"normalised": 1}, {"activations": ["tanh", "tanh"]}):
        with pytest.raises(gr.errors.DamagedFile):
            type(network).load(facts | change, arrays)
    for name in arrays:
        with pytest.raises(gr.errors.DamagedFile):
            type(network).load(facts, arrays | {name: arrays[name][:-1]})


def test_a_batch_in_which_nobody_has_a_negative_changes_nothing():
    """Of one interaction, or of one item; and a draw may be the very positive."""
    one = gr.Interactions.of(sp.csr_array(np.eye(33, 8, dtype=np.float32)[:, :] + (np.arange(33)[:, None] % 8 == np.arange(8))))
    one = gr.Interactions.of(sp.csr_array((one.matrix > 0).astype(np.float32)))
    for loss in (
        SampledSoftmax(n_negatives=1),
        *(replace(k, sampler=InBatch()) for k in (InfoNCE(), MINE(), SampledSoftmax())),
    ):
        for batch_size in (1, one.n_interactions - 1):
            model = FactorModel(MF(rank=3), loss, n_epochs=2, batch_size=batch_size).fit(one)
            assert np.isfinite(model.scores(one)).all()


def test_debiased_info_nce_is_finite_at_any_temperature():
    for t in (0.3, 0.02, 0.005, 0.001):
        recipe = recipe_of(InfoNCE(temperature=t, n_negatives=8, debiased=Debias(prior=0.2)))
        assert np.isfinite(recipe.fit(EVENTS).scores(EVENTS)).all()


def test_in_batch_negatives_are_the_others_positives():
    loss = InfoNCE(temperature=0.5, n_negatives=6, sampler=InBatch())
    recipe = FactorModel(MF(rank=4), loss, batch_size=9)
    at = wing.Training(recipe, EVENTS, recipe.first(EVENTS, np.float64))
    users, items = at.rows[:9], torch.tensor([3, 5, 3, 7, 8, 9, 1, 5, 2])
    shown = at.candidates(items, wing.draws(at.device, 0))
    assert shown.tolist() == [3, 5, 3, 7, 8, 9]
    positive, others = torch.zeros(9, 1, dtype=torch.float64), torch.zeros(9, 6, dtype=torch.float64)
    share = at.scores({"positive": positive, "others": others}, users, items, shown).log_share.exp().numpy()
    hits = items[:, None].numpy() == shown.numpy()
    assert not share[hits].any()
    np.testing.assert_allclose(share, ~hits / (~hits).sum(1, keepdims=True))
    corrected = replace(recipe, loss=SampledSoftmax(n_negatives=6, sampler=InBatch()))
    at = wing.Training(corrected, EVENTS, corrected.first(EVENTS, np.float64))
    share = at.scores({"positive": positive, "others": others}, users, items, shown).log_share.exp().numpy()
    drawn = np.array([5, 5, 5, 5, 5, 5, 6, 6, 6])[:, None]  # the first six are among those shown
    np.testing.assert_allclose(share, ~hits / drawn)


def test_what_a_step_needs_is_counted():
    shared, own = (FactorModel(MF(rank=8), BPR(n_negatives=50, sampler=Uniform(shared=s))) for s in (True, False))
    gathered = min(2048, EVENTS.n_interactions) * 50 * 8 * 4
    assert own.fit_bytes(EVENTS, np.float32) - shared.fit_bytes(EVENTS, np.float32) >= 2 * gathered
    whole = recipe_of(CCL(sampler=Everything()), backbone=MF(rank=8))
    assert whole.fit_bytes(EVENTS, np.float32) >= 2 * whole.users_at_once(EVENTS) * N * 4
    for recipe in (shared, whole, recipe_of(SML(), backbone=MF(rank=8)), MultVAE(rank=4, hidden=6)):
        state = next(recipe.improved(EVENTS, recipe.first(EVENTS, np.float32)))
        kept = sum(array.nbytes for array in state.arrays.values())
        assert recipe.fit_bytes(EVENTS, np.float32) >= 2 * kept
        assert recipe.scratch_bytes(EVENTS, np.float32)[1] >= 3 * kept


def test_memory_is_counted_before_it_is_taken(monkeypatch, refused):
    monkeypatch.setattr("gramian.linalg.memory.available", lambda: 1000)
    for recipe in (recipe_of(BPR()), MultVAE()):
        with refused(gr.errors.NotEnoughMemory):
            recipe.fit(EVENTS)


def test_the_command_line_trains_tunes_and_serves(tmp_path):
    runner, model = CliRunner(), tmp_path / "model"
    loss = "ccl(margin=0.5, weight=20, n_negatives=32, debiased=debias(positives=3))"
    words = ["movielens", "--min-value", "4", "--k-core", "20", "--model", "factormodel", "--n-epochs", "2"]
    words += ["--backbone", "mf(rank=8, cosine=True)"]
    done = runner.invoke(app, ["fit", *words, "--loss", loss, "--out", str(model), "--json"])
    assert done.exit_code == 0, done.output
    recipe = json.loads(done.stdout)["recipe"]
    assert recipe["settings"]["loss"]["settings"]["debiased"]["settings"]["positives"] == 3
    assert gr.load(model).recipe.loss == CCL(0.5, 20, 32, debiased=Debias(3))
    done = runner.invoke(app, ["recommend", str(model), "--history", "318", "-k", "3", "--json"])
    assert done.exit_code == 0, done.output
    scratch = ["--scratch", str(tmp_path / "scratch")]
    done = runner.invoke(app, ["epochs", *words, "--loss", "bpr(n_negatives=4)", "--metric", "ndcg@10", *scratch, "--json"])
    assert done.exit_code == 0, done.output
    assert [row["epoch"] for row in json.loads(done.stdout)["epochs"]] == [1, 2]
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["gramian-lock"]
