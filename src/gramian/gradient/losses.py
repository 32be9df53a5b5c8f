"""The losses that Pu et al. (2024, 2025) and Jin and Li (2023) compare, each as a value and its gradients.

y_i is the score of a positive item, y_j of a negative; N is the number of negatives, E_j the mean over them, and q_j the
probability with which j is drawn. `loss.py` has the contract.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from gramian.core.params import configurable, param
from gramian.core.registry import register
from gramian.gradient.array_functions import (
    Array,
    exp,
    heaviside,
    log,
    logsumexp,
    project_to_simplex,
    sigmoid,
    sign,
    softmax,
    softplus,
)
from gramian.gradient.debiasing import Debias, debiased_param
from gramian.gradient.loss import Gradients, Loss, Scores, n_negatives_param, sampler_param, temperature_param
from gramian.gradient.samplers import Sampler
from gramian.models.factors import RowLoss, SizePolynomial


@configurable
class Softmax(Loss):
    """−y_i + log Σ_j e^{y_j} over all items j, with y = score/temperature: softmax cross-entropy over the catalog.

    The listwise loss that sampled losses approximate, exact and slow on large catalogs; Pu et al. (2024) use it as a baseline.
    """

    temperature: float = temperature_param()

    uses_all_items = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        t = self.temperature
        negatives = s.negatives / t
        value = logsumexp(negatives) - s.mean_over_positives(s.positives) / t
        return value, Gradients(s.positive_weight * (-1 / t), softmax(negatives) / t)


@configurable
class SampledSoftmax(Loss):
    """log(e^{y_i} + Σ_j e^{y_j}/(N q_j)) − y_i over N draws j ≠ i, with y = score/temperature   (Bengio and Senécal 2008).

    Softmax with its sum estimated by importance sampling: for large catalogs, and the default of FactorModel. Pu et al. (2024,
    2025) leave out the factor 1/(N q_j) where draws are uniform; their sampled softmax is InfoNCE(temperature=1).
    """

    temperature: float = temperature_param()
    n_negatives: int = n_negatives_param(256)
    sampler: Sampler = sampler_param()

    masks_accidental_hits = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        t = self.temperature
        log_mean, probabilities = s.log_mean_exp(s.negatives / t - s.log_q)
        log_odds = log_mean[:, None] - s.positives / t
        residual = sigmoid(log_odds) * s.positive_weight  # weight · (1 − probability of the positive)
        gradients = Gradients(residual * (-1 / t), probabilities * (residual.sum(1) / t)[:, None])
        return s.mean_over_positives(softplus(log_odds)), gradients

    def all_items_loss(self) -> Loss:
        return Softmax(self.temperature)


@configurable
class BPR(Loss):
    """E_j log(1 + e^{y_j − y_i}), with y = score/temperature: Bayesian personalized ranking   (Rendle et al. 2009).

    The classic pairwise loss: it estimates the probability that a positive is ranked above a random item.
    """

    temperature: float = temperature_param()
    n_negatives: int = n_negatives_param(16)
    sampler: Sampler = sampler_param()

    is_pairwise = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        t = self.temperature
        if s.positives.shape[1] == 1:  # training on interactions: two dimensions are faster than three
            x = (s.negatives - s.positives) / t
            by_pairs = sigmoid(x) * (s.negative_weight() / t)
            return s.mean_over_negatives(softplus(x)), Gradients(-by_pairs.sum(1)[:, None], by_pairs)
        x = (s.negatives[:, None, :] - s.positives[:, :, None]) / t
        by_pairs = sigmoid(x) * (s.negative_weight() / t) * s.positive_weight[:, :, None]
        value = s.mean_over_positives((softplus(x) * s.negative_weight()).sum(2))
        return value, Gradients(-by_pairs.sum(2), by_pairs.sum(1))


@configurable
class BCE(Loss):
    """−log σ(y_i) − Σ_j log(1 − σ(y_j)): binary cross-entropy   (He et al. 2017).

    The classic pointwise loss: a logistic regression of interactions against sampled negatives.
    """

    n_negatives: int = n_negatives_param(16)
    sampler: Sampler = sampler_param()

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        value = s.mean_over_positives(softplus(-s.positives)) + s.n_negatives * s.mean_over_negatives(softplus(s.negatives))
        by_negatives = s.n_negatives * s.negative_weight() * sigmoid(s.negatives)
        return value, Gradients(-s.positive_weight * sigmoid(-s.positives), by_negatives)


@configurable
class Sparsemax(Loss):
    """−y_i + ½ Σ_{j: p_j > 0} (y_j² − τ²) + ½, with p = [y − τ]₊   (Martins and Astudillo 2016).

    p is the projection of all scores on the probability simplex. A variant of softmax that gives most items probability 0.
    """

    uses_all_items = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        p, threshold = project_to_simplex(s.negatives)
        squares = ((p > 0) * (s.negatives * s.negatives - threshold * threshold)).sum(1)
        return squares / 2 + 0.5 - s.mean_over_positives(s.positives), Gradients(-s.positive_weight, p)


@configurable
class UIB(Loss):
    """[margin + b_u − y_i]₊ + Σ_j [margin + y_j − b_u]₊: user interest boundary   (Zhuo et al. 2022).

    Each user has a learned boundary b_u; positives should score above it, negatives below.
    """

    margin: float = param(1.0, "distance that a score should keep from the boundary, usually 0.1 to 2", at_least=0)
    n_negatives: int = n_negatives_param(16)
    sampler: Sampler = sampler_param()

    learned_biases = ("user_bias",)

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        boundary = s.user_bias
        too_low, too_high = self.margin + boundary - s.positives, self.margin + s.negatives - boundary
        value = s.mean_over_positives(too_low.clip(min=0)) + s.n_negatives * s.mean_over_negatives(too_high.clip(min=0))
        by_boundary = s.positive_weight * heaviside(too_low)
        by_negatives = s.n_negatives * s.negative_weight() * heaviside(too_high)
        return value, Gradients(-by_boundary, by_negatives, user_bias=(by_boundary.sum(1) - by_negatives.sum(1))[:, None])


@configurable
class SML(Loss):
    """Σ_j [d_ui − d_uj + m_u]₊ + item_weight·[d_ui − d_ij + n_i]₊ − margin_weight·(m_u + n_i)   (Li et al. 2020).

    Symmetric metric learning with squared distances d: a positive should be nearer to the user than a negative is to either.
    The margins m_u of users and n_i of items are learned, between 0 and `margin`.
    """

    margin: float = param(1.0, "largest margin that can be learned, usually 0.5 to 2", at_least=1e-6)
    item_weight: float = param(0.1, "weight of distances between items, usually 0 to 1", at_least=0)
    margin_weight: float = param(1.0, "reward of large margins, usually 0.1 to 10", at_least=0)
    n_negatives: int = n_negatives_param(16)
    sampler: Sampler = sampler_param()

    uses_distances = True
    learned_biases = ("user_bias", "item_bias")
    needs_item_item = True
    is_pairwise = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        m, n = sigmoid(s.user_bias), sigmoid(s.item_bias)  # margins, as fractions of the largest
        is_shared = s.negative_log_weight is None or s.negative_log_weight.ndim == 1
        negative_weight = s.n_negatives * (s.negative_weight() if is_shared else s.negative_weight()[:, None, :])
        weight = s.positive_weight[:, :, None]
        user_side = s.negatives[:, None, :] - s.positives[:, :, None] + self.margin * m[:, :, None]
        item_side = s.item_item - s.positives[:, :, None] + self.margin * n[:, :, None]
        hinges = user_side.clip(min=0) + self.item_weight * item_side.clip(min=0)
        value = s.mean_over_positives((hinges * negative_weight).sum(2))
        value = value - self.margin_weight * self.margin * (m[:, 0] + s.mean_over_positives(n))
        by_user_side = weight * negative_weight * (user_side > 0)
        by_item_side = weight * negative_weight * self.item_weight * (item_side > 0)
        by_user_margin = self.margin * m * (1 - m) * (by_user_side.sum(2).sum(1) - self.margin_weight)[:, None]
        by_item_margin = self.margin * n * (1 - n) * (by_item_side.sum(2) - self.margin_weight * s.positive_weight)
        by_positives = -(by_user_side.sum(2) + by_item_side.sum(2))
        biases = {"user_bias": by_user_margin, "item_bias": by_item_margin}
        return value, Gradients(by_positives, by_user_side.sum(1), **biases, item_item=by_item_side)


@configurable
class Pointwise(Loss):
    """l⁺(y_i) + weight · (E_j l⁻(y_j) − τ_u E_k l⁻(y_k)); the last term, over positives k, only with debiasing.

    Jin and Li (2023) also multiply l⁺ by τ_u: `Debias(weigh_positives=True)`. With one τ for all users that is this form with
    weight/τ, times τ. Without it τ = 0 is allowed.
    """

    @abstractmethod
    def positive_term(self, y: Array) -> tuple[Array, Array]:
        """l⁺ and its derivative."""

    @abstractmethod
    def negative_term(self, y: Array) -> tuple[Array, Array]:
        """l⁻ and its derivative."""

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        weight: float = self.weight  # type: ignore[attr-defined]
        positive_value, by_positives = self.positive_term(s.positives)
        if s.prior is not None and self.debiased.weigh_positives:  # type: ignore[attr-defined]
            positive_value, by_positives = s.prior * positive_value, s.prior * by_positives
        negative_value, by_negatives = self.negative_term(s.negatives)
        value = s.mean_over_positives(positive_value) + weight * s.mean_over_negatives(negative_value)
        by_negatives *= weight * s.negative_weight()
        gradients = Gradients(s.positive_weight * by_positives, by_negatives)
        if s.prior is None:
            return value, gradients
        extra_value, by_extra = self.negative_term(s.extra_positives)
        extra_weight = weight * s.prior * s.extra_positive_weight
        return value - (extra_weight * extra_value).sum(1), gradients._replace(extra_positives=-extra_weight * by_extra)


@configurable
class MSE(Pointwise):
    """(1 − y_i)² + weight · E_j y_j²: mean squared error, debiased as in Jin and Li (2023).

    The sampled form of the loss of iALS (Hu et al. 2008). With inner products and no debiasing, fold-in is a linear system.
    """

    weight: float = param(10.0, "weight of the negatives, usually 1 to 100", at_least=0, tries=(1, 3, 10, 30, 100))
    n_negatives: int = n_negatives_param()
    sampler: Sampler = sampler_param()
    debiased: Debias | None = debiased_param()

    def positive_term(self, y: Array) -> tuple[Array, Array]:
        return (1 - y) * (1 - y), 2 * y - 2

    def negative_term(self, y: Array) -> tuple[Array, Array]:
        return y * y, 2 * y

    def row_loss(self, l2: float, n_items: int) -> RowLoss | None:
        """Σ_i (1 − y_i)² + weight·s·E_j y_j² + l2·s·‖p‖² of a user with s positives. Debiased, it may have no minimum."""
        if self.debiased is not None:
            return None
        return RowLoss(
            unobserved_weight=SizePolynomial(linear=self.weight),
            extra_weight=SizePolynomial(constant=1),
            extra_target=SizePolynomial(constant=1),
            unobserved_target=SizePolynomial(),
            loss_at_zero=SizePolynomial(linear=1),
            l2=l2,
            ridge=SizePolynomial(linear=1),
            binary=True,
        )

    def negative_gram(self, items: np.ndarray, popularity: np.ndarray) -> np.ndarray:
        q = np.exp(self.log_probabilities(popularity)).astype(items.dtype)
        return items.T @ (q[:, None] * items)


@configurable
class CCL(Pointwise):
    """1 − y_i + weight · E_j [y_j − margin]₊ with cosines y: cosine contrastive loss   (SimpleX, Mao et al. 2021).

    Negatives below the margin have gradient 0, so it takes many of them. Debiased as in Jin and Li (2023).
    """

    margin: float = param(
        0.7, "negatives below this cosine are ignored, usually 0.4 to 0.9", at_least=-1, below=1, tries=(0.4, 0.6, 0.8, 0.9)
    )
    weight: float = param(100.0, "weight of the negatives, usually 30 to 300", at_least=0, tries=(30, 100, 300))
    n_negatives: int = n_negatives_param(800)
    sampler: Sampler = sampler_param()
    debiased: Debias | None = debiased_param()

    needs_cosine = True

    def positive_term(self, y: Array) -> tuple[Array, Array]:
        return 1 - y, -1.0

    def negative_term(self, y: Array) -> tuple[Array, Array]:
        excess = (y - self.margin).clip(min=0)
        return excess, sign(excess)


@configurable
class InfoNCE(Loss):
    """log(1 + weight·N·E_j e^{y_j} / e^{y_i}), with y = score/temperature   (van den Oord et al. 2018).

    Sampled softmax without the correction for q, and at temperature 1 the SSM of Pu et al. (2024, 2025). Debiased (Chuang et
    al. 2020), E_j e^{y_j} is replaced by (E_j e^{y_j} − τ_u E_k e^{y_k})/(1 − τ_u) over positives k, but at least
    e^{−1/temperature}, the lower bound for cosines.
    """

    temperature: float = temperature_param(0.2)
    weight: float = param(1.0, "weight of the negatives, usually 0.5 to 2", at_least=1e-6)
    n_negatives: int = n_negatives_param(800)
    sampler: Sampler = sampler_param()
    debiased: Debias | None = debiased_param()

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        t, log_weight = self.temperature, math.log(self.weight * s.n_negatives)
        log_mean, probabilities = s.log_mean_exp(s.negatives / t)
        by_mean: Array = 1.0
        by_extra: Array = None
        if s.prior is not None:  # log_mean becomes log_mean + log((1 − Σ_k ratios)/(1 − τ)), or the lower bound
            ratios = s.prior * s.extra_positive_weight * exp((s.extra_positives / t - log_mean[:, None]).clip(max=60))
            remainder = 1 - ratios.sum(1)[:, None]
            safe_remainder = remainder.clip(min=1e-6)
            debiased_mean = log_mean[:, None] + log(safe_remainder / (1 - s.prior))
            is_above_bound = heaviside(debiased_mean + 1 / t) * heaviside(remainder - 1e-6)
            by_mean = is_above_bound / safe_remainder
            log_mean = (is_above_bound * debiased_mean - (1 - is_above_bound) / t)[:, 0]
            by_extra = -ratios * by_mean
        log_odds = log_mean[:, None] + log_weight - s.positives / t
        residual = sigmoid(log_odds) * s.positive_weight  # weight · (1 − probability of the positive)
        row_residual = residual.sum(1)[:, None] / t
        extra_positives = None if by_extra is None else by_extra * row_residual
        gradients = Gradients(residual * (-1 / t), probabilities * (row_residual * by_mean), extra_positives)
        return s.mean_over_positives(softplus(log_odds)), gradients


def mutual_information_loss(s: Scores, t: float, weight: float) -> tuple[Array, Gradients]:
    """−y_i + weight · log Σ_j e^{y_j}, with y = score/t, and its gradients."""
    log_mean, probabilities = s.log_mean_exp(s.negatives / t)
    value = weight * (log_mean + math.log(s.n_negatives)) - s.mean_over_positives(s.positives) / t
    return value, Gradients(s.positive_weight * (-1 / t), probabilities * (weight / t))


@configurable
class MINE(Loss):
    """−y_i + log Σ_j e^{y_j} over the negatives alone   (Belghazi et al. 2018; for recommendation Jin and Li 2023).

    Mutual information neural estimation: InfoNCE whose denominator leaves the positive out.
    """

    n_negatives: int = n_negatives_param(800)
    sampler: Sampler = sampler_param()

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        return mutual_information_loss(s, 1.0, 1.0)


@configurable
class MINEPlus(Loss):
    """−y_i + weight · log Σ_j e^{y_j}, with y = cosine/temperature: MINE+   (Jin and Li 2023).

    MINE with a temperature and a weight of the negatives, which a search must choose: a good first loss for cosines.
    """

    temperature: float = temperature_param(0.1, (0.07, 0.1, 0.15, 0.3))
    weight: float = param(1.2, "weight of the negatives, usually 1 to 1.2", at_least=0, tries=(1, 1.1, 1.2))
    n_negatives: int = n_negatives_param(800)
    sampler: Sampler = sampler_param()

    needs_cosine = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        return mutual_information_loss(s, self.temperature, self.weight)


@configurable
class MeanDifference(Loss):
    """E_j y_j − y_i with cosines y: the mean score gap, a lower bound of BPR, InfoNCE and MINE   (Jin and Li 2023, Eq. 14).

    It treats easy and hard negatives alike and ranks poorly: a baseline that shows what the other losses add.
    """

    n_negatives: int = n_negatives_param(800)
    sampler: Sampler = sampler_param()

    needs_cosine = True  # of inner products it has no minimum

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        value = s.mean_over_negatives(s.negatives) - s.mean_over_positives(s.positives)
        return value, Gradients(-s.positive_weight, s.negatives * 0 + s.negative_weight())


@configurable
class RG2Loss(Loss):
    """½ E_j (y_j + 1)² − y_i − ½ over all items j: RG² by gradients   (Pu et al. 2024).

    The second-order Taylor expansion of softmax at 0, for scores with mean 0. Its sum over a user's positives is the squared
    loss of `gr.RG2`, up to constants and the factor 2n. It is here to compare gradients with that closed form.
    """

    uses_all_items = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        squares = (s.negatives + 1) * (s.negatives + 1)
        value = s.mean_over_negatives(squares) / 2 - 0.5 - s.mean_over_positives(s.positives)
        return value, Gradients(-s.positive_weight, s.negative_weight() * (s.negatives + 1))

    def row_loss(self, l2: float, n_items: int) -> RowLoss | None:
        return RowLoss(
            unobserved_weight=SizePolynomial(linear=1 / n_items),
            extra_weight=SizePolynomial(),
            extra_target=SizePolynomial(constant=1),
            unobserved_target=SizePolynomial(linear=-1 / n_items),
            loss_at_zero=SizePolynomial(),
            l2=2 * l2,
            ridge=SizePolynomial(linear=1),
            binary=True,
        )


for loss in (
    Softmax,
    SampledSoftmax,
    BPR,
    BCE,
    Sparsemax,
    UIB,
    SML,
    MSE,
    CCL,
    InfoNCE,
    MINE,
    MINEPlus,
    MeanDifference,
    RG2Loss,
):
    register(loss)
del loss
