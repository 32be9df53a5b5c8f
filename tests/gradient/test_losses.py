"""Losses against the papers' formulas in loops, and their gradients against autograd and finite differences."""

import itertools
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch

from gradient.cases import ALL_LOSSES, BIASED_LOSSES, loss_id
from gramian.gradient import (
    BCE,
    BPR,
    CCL,
    CML,
    MINE,
    MSE,
    SML,
    UIB,
    Debias,
    InfoNCE,
    MeanDifference,
    MINEPlus,
    RG2Loss,
    SampledSoftmax,
    Softmax,
    Sparsemax,
)
from gramian.gradient.array_functions import project_to_simplex
from gramian.gradient.loss import Scores


def random_scores(loss, rows=3, positives=2, negatives=5, weighted=True, seed=0):
    """Random values for every input of a loss, the negatives with random or equal weights."""
    rng = np.random.default_rng(seed)
    weight = rng.random((rows, positives))
    negative_weight = rng.random(negatives)
    q = rng.random(negatives)
    fields = {
        "positives": rng.uniform(-1, 1, (rows, positives)),
        "positive_weight": weight / weight.sum(1)[:, None],
        "negatives": rng.uniform(-1, 1, (rows, negatives)),
        "n_negatives": float(negatives),
        "negative_log_weight": np.log(negative_weight / negative_weight.sum()) if weighted else None,
        "log_q": np.log(q / q.sum()),
        "user_bias": rng.uniform(-1, 1, (rows, 1)),
        "item_bias": rng.uniform(-1, 1, (rows, positives)),
        "n_items": 40,
        "item_item": rng.uniform(-1, 1, (rows, positives, negatives)),
    }
    if getattr(loss, "debiased", None):
        extra_weight = rng.random((rows, 4))
        fields |= {
            "extra_positives": rng.uniform(-1, 1, (rows, 4)),
            "extra_positive_weight": extra_weight / extra_weight.sum(1)[:, None],
            "prior": np.full((rows, 1), loss.debiased.prior),
        }
    return Scores(**fields)


def to_tensors(s):
    return Scores(*[torch.from_numpy(field) if isinstance(field, np.ndarray) else field for field in s])


def loss_in_loops(loss, s, row):  # noqa: PLR0915 - one branch for each loss
    """The papers' formulas, in loops over the positives and negatives of one row."""
    n, size = s.n_negatives, s.negatives.shape[1]
    share = np.full(size, 1 / size) if s.negative_log_weight is None else np.exp(s.negative_log_weight)
    y, negatives, w = s.positives[row], s.negatives[row], s.positive_weight[row]
    t, total = getattr(loss, "temperature", 1.0), 0.0
    for i, wi in enumerate(w):
        if isinstance(loss, Softmax):
            value = -log(exp(y[i] / t) / sum(exp(o / t) for o in negatives))
        elif isinstance(loss, SampledSoftmax):
            rest = sum(p * exp(o / t) / exp(lq) for p, o, lq in zip(share, negatives, s.log_q, strict=True))
            value = -log(exp(y[i] / t) / (exp(y[i] / t) + rest))
        elif isinstance(loss, BPR):
            value = sum(-p * log(1 / (1 + exp((o - y[i]) / t))) for p, o in zip(share, negatives, strict=True))
        elif isinstance(loss, BCE):
            value = -log(1 / (1 + exp(-y[i])))
            value -= sum(n * p * log(1 - 1 / (1 + exp(-o))) for p, o in zip(share, negatives, strict=True))
        elif isinstance(loss, Sparsemax):
            support = project_by_enumeration(negatives) > 0
            tau = (negatives[support].sum() - 1) / support.sum()
            value = -y[i] + sum(o**2 - tau**2 for o in negatives[support]) / 2 + 0.5
        elif isinstance(loss, UIB):
            b = s.user_bias[row, 0]
            value = max(0, loss.margin + b - y[i])
            value += sum(n * p * max(0, loss.margin + o - b) for p, o in zip(share, negatives, strict=True))
        elif isinstance(loss, SML):
            m, ni = (loss.margin / (1 + exp(-x)) for x in (s.user_bias[row, 0], s.item_bias[row, i]))
            value = -loss.margin_weight * (m + ni)
            for p, o, item_item in zip(share, negatives, s.item_item[row, i], strict=True):
                d_ui, d_uj, d_ij = -y[i], -o, -item_item
                value += n * p * (max(0, d_ui - d_uj + m) + loss.item_weight * max(0, d_ui - d_ij + ni))
        elif isinstance(loss, CML):
            value = metric_loss_in_loops(share, negatives, y[i] - loss.margin, s.n_items)
        elif isinstance(loss, MSE | CCL):
            negative_term = (lambda v: v**2) if isinstance(loss, MSE) else (lambda v: max(0, v - loss.margin))
            value = (1 - y[i]) ** 2 if isinstance(loss, MSE) else 1 - y[i]
            if loss.debiased and loss.debiased.weigh_positives:
                value *= s.prior[row, 0]
            value += loss.weight * sum(p * negative_term(o) for p, o in zip(share, negatives, strict=True))
            if loss.debiased:
                extra = zip(s.extra_positive_weight[row], s.extra_positives[row], strict=True)
                value -= loss.weight * s.prior[row, 0] * sum(p * negative_term(k) for p, k in extra)
        elif isinstance(loss, InfoNCE):
            mean = sum(p * exp(o / t) for p, o in zip(share, negatives, strict=True))
            if loss.debiased:
                tau = s.prior[row, 0]
                extra = zip(s.extra_positive_weight[row], s.extra_positives[row], strict=True)
                positive_mean = sum(p * exp(k / t) for p, k in extra)
                mean = max((mean - tau * positive_mean) / (1 - tau), exp(-1 / t))
            value = -log(exp(y[i] / t) / (exp(y[i] / t) + loss.weight * n * mean))
        elif isinstance(loss, MeanDifference):
            value = sum(p * (o - y[i]) for p, o in zip(share, negatives, strict=True))
        elif isinstance(loss, MINE | MINEPlus):
            value = -y[i] / t + getattr(loss, "weight", 1) * log(
                sum(n * p * exp(o / t) for p, o in zip(share, negatives, strict=True))
            )
        else:
            value = sum(p * (o + 1) ** 2 for p, o in zip(share, negatives, strict=True)) / 2 - 0.5 - y[i]
        total += wi * value
    return total


def metric_loss_in_loops(share, negatives, threshold, n_items):
    """CML of one positive: negatives with scores above the threshold violate its margin."""
    violations = [(p, o - threshold) for p, o in zip(share, negatives, strict=True) if o > threshold]
    return log(1 + int(n_items * sum(p for p, _ in violations))) * sum(p * excess for p, excess in violations)


def project_by_enumeration(x):
    """The nearest point of the simplex, by trying every support."""
    smallest, nearest = np.inf, None
    for size in range(1, len(x) + 1):
        for support in itertools.combinations(range(len(x)), size):
            p = np.zeros(len(x))
            p[list(support)] = x[list(support)] - (x[list(support)].sum() - 1) / size
            if (p >= 0).all() and ((p - x) ** 2).sum() < smallest:
                smallest, nearest = ((p - x) ** 2).sum(), p
    return nearest


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=loss_id)
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "equal"])
def test_loss_equals_the_formula_of_its_paper(loss, weighted):
    s = random_scores(loss, weighted=weighted and not loss.uses_all_items)  # nothing is sampled from all items
    values, _ = loss(s)
    np.testing.assert_allclose(values, [loss_in_loops(loss, s, row) for row in range(3)], rtol=1e-9)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=loss_id)
def test_gradients_equal_autograd_and_finite_differences(loss):
    s = random_scores(loss, weighted=not loss.uses_all_items, seed=3)
    _, gradients = loss(s)
    inputs = ["positives", "negatives", *loss.learned_biases]
    inputs += ["extra_positives"] * (s.extra_positives is not None) + ["item_item"] * loss.needs_item_item
    leaves = {name: torch.from_numpy(getattr(s, name)).requires_grad_() for name in inputs}
    value, by_hand = loss(to_tensors(s)._replace(**leaves))
    derived = torch.autograd.grad(value.sum(), list(leaves.values()))
    for name, autograd in zip(inputs, derived, strict=True):
        got = np.broadcast_to(getattr(gradients, name), getattr(s, name).shape)
        np.testing.assert_allclose(got, autograd.numpy(), atol=1e-10, err_msg=name)
        np.testing.assert_allclose(got, getattr(by_hand, name).detach().expand(got.shape), atol=1e-10, err_msg=name)
        step = 1e-6
        for index in itertools.islice(np.ndindex(got.shape), 8):
            up, down = (getattr(s, name).copy() for _ in range(2))
            up[index] += step
            down[index] -= step
            difference = (loss(s._replace(**{name: up}))[0].sum() - loss(s._replace(**{name: down}))[0].sum()) / (2 * step)
            assert got[index] == pytest.approx(difference, abs=1e-6), name


@pytest.mark.parametrize("seed", range(5))
def test_info_nce_bounds_mine_and_mine_bounds_the_score_gaps(seed):
    s = random_scores(MINE(), positives=1, negatives=9, weighted=False, seed=seed)
    info, mine = InfoNCE(temperature=1)(s)[0], MINE()(s)[0]
    gaps = s.negatives - s.positives
    assert (info >= mine).all()
    assert (mine >= gaps.max(1)).all()
    assert (mine >= gaps.mean(1) + log(9) - 1e-12).all()
    assert (BPR()(s)[0] >= gaps.mean(1)).all()
    assert (info <= np.maximum(gaps.max(1), 0) + log(10)).all()


@pytest.mark.parametrize("loss", [loss for loss in BIASED_LOSSES if hasattr(loss, "debiased")], ids=loss_id)
def test_debiasing_with_prior_0_changes_nothing(loss):
    without_prior = replace(loss, debiased=Debias(positives=4, prior=0))
    s = random_scores(without_prior)
    biased_value, biased_gradients = loss(s._replace(prior=None, extra_positives=None))
    value, gradients = without_prior(s)
    np.testing.assert_allclose(gradients.positives, biased_gradients.positives, rtol=1e-12)
    np.testing.assert_allclose(gradients.negatives, biased_gradients.negatives, rtol=1e-12)
    np.testing.assert_allclose(value, biased_value, rtol=1e-12)
    with_prior = replace(loss, debiased=Debias(positives=4, prior=0.3))
    assert not np.allclose(with_prior(random_scores(with_prior))[0], biased_value)


@pytest.mark.parametrize("loss", [MSE(weight=3), CCL(margin=0.1, weight=4)], ids=loss_id)
def test_equation_22_is_the_debiased_loss_with_another_weight(loss):
    """With one τ: τ times the loss whose weight is divided by τ. So what matters is weight·τ, or the weight of the paper."""
    tau = 0.05
    ours = replace(loss, weight=loss.weight / tau, debiased=Debias(prior=tau))
    printed = replace(loss, debiased=Debias(prior=tau, weigh_positives=True))
    s = random_scores(printed)
    (value, gradients), (other_value, other_gradients) = printed(s), ours(s)
    np.testing.assert_allclose(value, tau * other_value)
    for name in ("positives", "negatives", "extra_positives"):
        np.testing.assert_allclose(getattr(gradients, name), tau * getattr(other_gradients, name))


def test_priors_follow_the_size_of_the_history():
    assert Debias(hidden_items=10).priors(np.array([5, 20]), 100).tolist() == pytest.approx([0.15, 0.3])
    assert Debias(hidden_share=0.5).priors(np.array([10, 20]), 100).tolist() == pytest.approx([0.15, 0.3])
    assert Debias(prior=0.2).priors(np.array([5, 20]), 100).tolist() == [0.2, 0.2]


def test_sampled_softmax_over_all_items_equals_softmax():
    """Each item once, weighted by any probabilities q, and the positive masked among the negatives."""
    y = np.random.default_rng(1).uniform(-1, 1, (1, 6))
    full = Softmax(temperature=0.5)(Scores(y[:, [2]], np.ones((1, 1)), y, 6))
    q = np.array([0.1, 0.3, 0.2, 0.1, 0.15, 0.15])
    log_weight = np.log(q)
    log_weight[2] = -np.inf  # an accidental hit
    s = Scores(y[:, [2]], np.ones((1, 1)), y, 6, negative_log_weight=log_weight, log_q=np.log(q))
    sampled = SampledSoftmax(temperature=0.5)(s)
    assert sampled[0] == pytest.approx(full[0])
    by_score, sampled_by_score = full[1].negatives.copy(), sampled[1].negatives.copy()
    by_score[:, 2] += full[1].positives[:, 0]
    sampled_by_score[:, 2] += sampled[1].positives[:, 0]
    np.testing.assert_allclose(sampled_by_score, by_score, atol=1e-12)


def test_sampled_softmax_without_its_correction_is_info_nce():
    """As Pu et al. print it for uniform draws: −log(e^{y_i}/(e^{y_i} + Σ_j e^{y_j})), with no factor for q."""
    s = random_scores(MINE(), positives=1, weighted=False)
    printed = -np.log(np.exp(s.positives[:, 0]) / (np.exp(s.positives[:, 0]) + np.exp(s.negatives).sum(1)))
    np.testing.assert_allclose(InfoNCE(temperature=1)(s)[0], printed)
    uncorrected = SampledSoftmax()(s._replace(log_q=np.full(5, -log(5))))  # q_j = 1/N: what the correction divides by is 1
    np.testing.assert_allclose(uncorrected[0], printed)
    for name in ("positives", "negatives"):
        np.testing.assert_allclose(getattr(uncorrected[1], name), getattr(InfoNCE(temperature=1)(s)[1], name))
    corrected = SampledSoftmax()(s._replace(log_q=np.full(5, -log(1000))))  # of 1,000 items
    assert (corrected[0] > printed + 1).all()


def test_rg2_is_no_upper_bound_of_softmax():
    """Pu et al. (2024, B.2; 2025, Proposition 7) claim RG² + log N ≥ softmax. One large score of a positive refutes it."""

    def gap(o):  # RG² + log N − softmax, of the first item as the positive
        s = Scores(o[None, :1], np.ones((1, 1)), o[None], len(o))
        return float(RG2Loss()(s)[0][0] - Softmax()(s)[0][0]) + log(len(o))

    assert gap(np.array([7.0] + [0.0] * 999)) == pytest.approx(-0.061 - 0.648, abs=1e-3)
    assert gap(np.array([0.1] + [0.0] * 999)) < 0  # small scores, too: the third-order term has no sign
    assert gap(np.array([1.0, -1.0] * 500)) > 0


def test_softmax_bounds_ndcg_and_the_minimum_of_rg2_has_the_order_of_the_probabilities():
    """log NDCG ≥ −softmax (Bruch et al. 2019); the scores of least expected RG² are N·p − 1, so RG² is DCG-consistent."""
    rng = np.random.default_rng(0)
    for scale in (0.1, 1, 10):
        o = scale * rng.standard_normal((200, 30))
        softmax = Softmax()(Scores(o[:, :1], np.ones((200, 1)), o, 30))[0]
        rank = 1 + (o > o[:, :1]).sum(1)
        assert (np.log(np.log(2) / np.log(1 + rank)) >= -softmax - 1e-12).all()
    p = rng.dirichlet(np.ones(30))
    s = Scores((30 * p - 1)[None], p[None], (30 * p - 1)[None], 30)
    gradients = RG2Loss()(s)[1]
    np.testing.assert_allclose(gradients.positives + gradients.negatives, 0, atol=1e-12)


def test_the_regret_of_rg2_bounds_that_of_dcg():
    """DCG of the best order − DCG of the order of o ≤ C·√(RG²(o) − its minimum), with C² = 4/N·Σ 1/log₂²(1 + rank).

    In expectation over relevances with probabilities p (Pu et al. 2025, Theorems 10 and 12).
    """
    rng, n = np.random.default_rng(0), 30
    discount = 1 / np.log2(np.arange(2, n + 2))
    ratios = []
    for size in np.repeat([0.01, 0.1, 1, 10], 50):
        p = rng.dirichlet(np.ones(n))
        best, o = n * p - 1, n * p - 1 + size * rng.standard_normal(n)

        def expected_rg2(scores, p=p):
            return float(RG2Loss()(Scores(scores[None], p[None], scores[None], n))[0][0])

        lost = (np.sort(p)[::-1] - p[np.argsort(-o)]) @ discount
        ratios.append(lost / np.sqrt(4 / n * (discount**2).sum() * (expected_rg2(o) - expected_rg2(best))))
    assert 0.05 < max(ratios) <= 1


def test_the_generalization_bounds_of_rg2_say_nothing_at_any_size_of_data():
    """With probability 1 − δ, error ≤ empirical error + ε (Pu et al. 2024, Eq. 29; 2025, Eq. 33), but ε > the largest loss."""
    n_users, n_items, rank, n_interactions, delta, largest_loss = 6_040, 3_706, 64, 1_000_209, 0.05, 1.0
    d = rank * (n_users + n_items) * log(16 * np.e * n_users / rank)  # pseudo-dimension

    def bound_2024(log_interactions):
        log_top = log(4 * (d + 1)) + 3 * log(largest_loss) + (d + 1) * log(32 * np.e * largest_loss)
        return np.exp((log_top - log_interactions - log(delta)) / (d + 2))

    def bound_2025(log_interactions):
        lipschitz = 2 * (1 + n_items)  # its smallest value, for factors of length 0
        log_top = log(d + 1) + 4 * log(largest_loss) + d + 1 + d * log(lipschitz)
        return 16 * np.exp((log_top - log_interactions - log(delta)) / (d + 2))

    assert bound_2024(log(n_interactions)) == pytest.approx(32 * np.e, rel=1e-3)
    assert bound_2025(log(n_interactions)) == pytest.approx(16 * np.e * 2 * (1 + n_items), rel=1e-3)
    assert bound_2024(1e6 * log(10)) > largest_loss  # not even with 10^1,000,000 interactions
    assert bound_2025(1e6 * log(10)) > largest_loss


def test_rg2_is_the_second_order_expansion_of_softmax():
    o = np.random.default_rng(2).standard_normal((1, 30))
    o -= o.mean()

    def gap(size):
        s = Scores(size * o[:, [4]], np.ones((1, 1)), size * o, 30)
        return float(Softmax()(s)[0][0] - RG2Loss()(s)[0][0]) - log(30)

    assert abs(gap(1e-2)) < 1e-5
    assert gap(2e-2) / gap(1e-2) == pytest.approx(8, rel=0.1)  # the remainder is of third order


def test_project_to_simplex_finds_the_nearest_distribution():
    rng = np.random.default_rng(5)
    for scale in (0.1, 1, 10):
        x = scale * rng.standard_normal((4, 6))
        p, threshold = project_to_simplex(x)
        np.testing.assert_allclose(p, [project_by_enumeration(row) for row in x], atol=1e-6)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(project_to_simplex(torch.from_numpy(x))[0], p)
        np.testing.assert_allclose(p, np.maximum(x - threshold, 0))
