"""The losses of papers 002, 003 and 004, each as a value and its slopes, for tensors in training and for arrays in serving.

A row is a user who has positives, each with a weight (they sum to 1), and candidates that stand for all other items: in
training one positive and what a sampler draws, or the whole history and the whole catalog; in serving always these, with their
probabilities. All are the same formula, so a loss is written once, and whoever comes later is folded in under the very loss
that was trained, without PyTorch. Slopes are written out, too: that is faster than to have them derived.

Negatives are drawn from all items, as in the papers: one may be an item that the user has touched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special

from gramian.models.factors import Rule, Terms
from gramian.models.recipe import Part, setting
from gramian.sampled.negatives import SAMPLERS, Everything, Sampler, Uniform

Array = Any  # of NumPy or PyTorch: what both have is all that is used


class Scores(NamedTuple):
    """What a loss looks at, row by row."""

    positive: Array  # rows × positives
    weight: Array  # of each positive: a row sums to 1
    others: Array  # rows × candidates
    n: float  # how many negatives the candidates stand for
    log_share: Array = None  # of each candidate, for all rows or for each, summing to 1; None: they are alike
    log_q: Array = None  # the sampler's log-probability of each candidate
    liked: Array = None  # rows × more positives, for debiasing
    liked_weight: Array = None
    prior: Array = None  # how much of the catalog a user likes, in a column
    own: Array = None  # a learned number of each user, in a column
    item_own: Array = None  # and of each positive
    between: Array = None  # rows × positives × candidates: scores of candidates for the positive

    def mean(self, values: Array) -> Array:
        """Over the positives of each row."""
        return (self.weight * values).sum(1)

    def share(self) -> Array:
        """Of each candidate, or one number."""
        return 1 / self.others.shape[1] if self.log_share is None else power_of_e(self.log_share)

    def expected(self, values: Array) -> Array:
        """Over the candidates."""
        return values.mean(1) if self.log_share is None else (self.share() * values).sum(1)

    def log_expected(self, exponents: Array) -> tuple[Array, Array]:
        """log E e^x over the candidates, and its slopes, which are probabilities."""
        if self.log_share is None:
            return log_sum(exponents) - log(exponents.shape[1]), softmax(exponents)
        exponents = exponents + self.log_share
        return log_sum(exponents), numbers(softmax(exponents))  # which are none where no candidate counts


class Slopes(NamedTuple):
    """The derivative of each row's value by everything it looks at."""

    positive: Array
    others: Array
    liked: Array = None
    own: Array = None
    item_own: Array = None
    between: Array = None


def power_of_e(x: Array) -> Array:
    return np.exp(x) if isinstance(x, np.ndarray) else x.exp()


def log_sum(x: Array) -> Array:
    return special.logsumexp(x, axis=1) if isinstance(x, np.ndarray) else x.logsumexp(1)


def softmax(x: Array) -> Array:
    return special.softmax(x, axis=1) if isinstance(x, np.ndarray) else x.softmax(1)


def numbers(x: Array) -> Array:
    """0 for what is none."""
    return np.nan_to_num(x) if isinstance(x, np.ndarray) else x.nan_to_num()


def positive(x: Array) -> Array:
    """1 where x is above 0, and 0 elsewhere."""
    return (x > 0).astype(x.dtype) if isinstance(x, np.ndarray) else (x > 0).to(x.dtype)


def sign(x: Array) -> Array:
    return np.sign(x) if isinstance(x, np.ndarray) else x.sign()


def sigmoid(x: Array) -> Array:
    return special.expit(x) if isinstance(x, np.ndarray) else x.sigmoid()


def softplus(x: Array) -> Array:
    """log(1 + e^x)."""
    if isinstance(x, np.ndarray):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    from torch.nn.functional import softplus as of_tensor  # noqa: PLC0415

    return of_tensor(x)


def projected(x: Array) -> tuple[Array, Array]:
    """Sparsemax: the nearest point of the simplex to each row, and the τ with which it is [x − τ]₊.

    Σ [x − τ]₊ − 1 is convex and falls in τ, so that Newton's steps from max x − 1 rise to its root and never pass it.
    """
    threshold = (x.max(1) if isinstance(x, np.ndarray) else x.amax(1))[:, None] - 1
    sizes = None
    while True:
        over = (x - threshold).clip(min=0)
        size = (over > 0).sum(1)
        if sizes is not None and bool((size == sizes).all()):
            return over, threshold
        sizes, threshold = size, threshold + ((over.sum(1) - 1) / size)[:, None]


def temperature_setting(default: float = 1.0, tries: tuple[float, ...] = (0.1, 0.2, 0.5, 1)) -> Any:
    return setting(default, "scores are divided by this", at_least=1e-3, tries=tries)


def negatives_setting(default: int = 64) -> Any:
    return setting(default, "negatives for each positive", at_least=1)


def sampler_setting() -> Any:
    return setting(Uniform(), "where negatives come from", choices=SAMPLERS)


@dataclass(frozen=True)
class Loss(Part, ABC):
    """A loss of scores."""

    needs_cosine = False  # whether it is one of cosines only
    of_distances = False  # whether scores are minus squared distances
    all_items = False  # whether candidates are the whole catalog, and nothing is sampled
    skips_hits = False  # whether a candidate that is the very positive does not count
    owns: ClassVar[tuple[str, ...]] = ()  # learned numbers of users and items: own, item_own
    needs_between = False
    pairs = False  # whether every positive meets every candidate

    @abstractmethod
    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        """The value of each row, and its slopes."""

    @property
    def by_users(self) -> bool:
        """Whether training, too, meets every item, so that a step looks at whole users."""
        return self.all_items or isinstance(self.sampler, Everything)  # type: ignore[attr-defined]

    def folded(self) -> Loss:
        """The loss that is expected of it when every item is a candidate with its probability."""
        return self

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        """Of each item as a candidate."""
        sampler = Uniform() if self.all_items else self.sampler  # type: ignore[attr-defined]
        found: np.ndarray = sampler.log_probabilities(popularity)
        return found

    def rule(self, l2: float, n_items: int) -> Rule | None:
        """Of a squared loss of inner products: by which a user's vector is a linear system."""
        return None

    def gram(self, items: np.ndarray, popularity: np.ndarray) -> np.ndarray:
        """What all users share in that system."""
        return items.T @ items


@dataclass(frozen=True)
class Softmax(Loss):
    """−y_i + log Σ_j e^{y_j} over all items j, of y = score/temperature."""

    temperature: float = temperature_setting()

    all_items = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        t = self.temperature
        others = s.others / t
        value = log_sum(others) - s.mean(s.positive) / t
        return value, Slopes(s.weight * (-1 / t), softmax(others) / t)


@dataclass(frozen=True)
class SampledSoftmax(Loss):
    """Softmax with the sum estimated: log(e^{y_i} + Σ_j e^{y_j}/(N q_j)) − y_i, over N draws j ≠ i by probabilities q."""

    temperature: float = temperature_setting()
    n_negatives: int = negatives_setting(256)
    sampler: Sampler = sampler_setting()

    skips_hits = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        t = self.temperature
        total, shares = s.log_expected(s.others / t - s.log_q)
        odds = total[:, None] - s.positive / t
        missed = sigmoid(odds) * s.weight
        return s.mean(softplus(odds)), Slopes(missed * (-1 / t), shares * (missed.sum(1) / t)[:, None])

    def folded(self) -> Loss:
        return Softmax(self.temperature)


@dataclass(frozen=True)
class BPR(Loss):
    """Mean over negatives of log(1 + e^{y_j − y_i}), of y = score/temperature."""

    temperature: float = temperature_setting()
    n_negatives: int = negatives_setting(16)
    sampler: Sampler = sampler_setting()

    pairs = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        t = self.temperature
        if s.positive.shape[1] == 1:  # in training: one less dimension is faster
            x = (s.others - s.positive) / t
            wrong = sigmoid(x) * (s.share() / t)
            return s.expected(softplus(x)), Slopes(-wrong.sum(1)[:, None], wrong)
        x = (s.others[:, None, :] - s.positive[:, :, None]) / t
        wrong = sigmoid(x) * (s.share() / t) * s.weight[:, :, None]
        return s.mean((softplus(x) * s.share()).sum(2)), Slopes(-wrong.sum(2), wrong.sum(1))


@dataclass(frozen=True)
class BCE(Loss):
    """−log σ(y_i) − Σ_j log(1 − σ(y_j)): a logistic regression of what is touched."""

    n_negatives: int = negatives_setting(16)
    sampler: Sampler = sampler_setting()

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        value = s.mean(softplus(-s.positive)) + s.n * s.expected(softplus(s.others))
        return value, Slopes(-s.weight * sigmoid(-s.positive), s.n * s.share() * sigmoid(s.others))


@dataclass(frozen=True)
class Sparsemax(Loss):
    """−y_i + ½ Σ_{j: p_j > 0} (y_j² − τ²) + ½, with p = [y − τ]₊ the nearest distribution to all scores."""

    all_items = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        p, threshold = projected(s.others)
        squares = ((p > 0) * (s.others * s.others - threshold * threshold)).sum(1)
        return squares / 2 + 0.5 - s.mean(s.positive), Slopes(-s.weight, p)


@dataclass(frozen=True)
class UIB(Loss):
    """[margin + b_u − y_i]₊ + Σ_j [margin + y_j − b_u]₊, with a learned boundary b_u of each user."""

    margin: float = setting(1.0, "how far a score should be from the boundary", at_least=0)
    n_negatives: int = negatives_setting(16)
    sampler: Sampler = sampler_setting()

    owns = ("own",)

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        below, above = self.margin + s.own - s.positive, self.margin + s.others - s.own
        value = s.mean(below.clip(min=0)) + s.n * s.expected(above.clip(min=0))
        up, down = s.weight * positive(below), s.n * s.share() * positive(above)
        return value, Slopes(-up, down, own=(up.sum(1) - down.sum(1))[:, None])


@dataclass(frozen=True)
class SML(Loss):
    """Σ_j [d_ui − d_uj + m_u]₊ + item_weight·[d_ui − d_ij + n_i]₊ − margin_weight·(m_u + n_i), with squared distances d.

    The margins m_u and n_i of users and items are learned, between 0 and `margin`.
    """

    margin: float = setting(1.0, "the largest margin", at_least=1e-6)
    item_weight: float = setting(0.1, "weight of distances between items", at_least=0)
    margin_weight: float = setting(1.0, "reward of large margins", at_least=0)
    n_negatives: int = negatives_setting(16)
    sampler: Sampler = sampler_setting()

    of_distances = True
    owns = ("own", "item_own")
    needs_between = True
    pairs = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        m, n = sigmoid(s.own), sigmoid(s.item_own)
        share = s.share() if s.log_share is None or s.log_share.ndim == 1 else s.share()[:, None, :]
        weight, share = s.weight[:, :, None], s.n * share
        user_side = s.others[:, None, :] - s.positive[:, :, None] + self.margin * m[:, :, None]
        item_side = s.between - s.positive[:, :, None] + self.margin * n[:, :, None]
        value = s.mean(((user_side.clip(min=0) + self.item_weight * item_side.clip(min=0)) * share).sum(2))
        value = value - self.margin_weight * self.margin * (m[:, 0] + s.mean(n))
        of_user = weight * share * (user_side > 0)
        of_item = weight * share * self.item_weight * (item_side > 0)
        margin = self.margin * m * (1 - m) * (of_user.sum(2).sum(1) - self.margin_weight)[:, None]
        item_margin = self.margin * n * (1 - n) * (of_item.sum(2) - self.margin_weight * s.weight)
        pull = -(of_user.sum(2) + of_item.sum(2))
        return value, Slopes(pull, of_user.sum(1), own=margin, item_own=item_margin, between=of_item)


@dataclass(frozen=True)
class Debias(Part):
    """Take out of the negatives those that would be liked   (paper 004): a part τ_u of what is drawn is not negative at all.

    τ_u is `prior`, or by a user's number of items: ((1 + hidden_share)·|I_u| + hidden_items)/n.
    """

    positives: int = setting(10, "positives drawn for each, from which the liked part is estimated", at_least=1)
    prior: float | None = setting(None, "the liked part of the catalog, the same for all", like=0.0, at_least=0, below=1)
    hidden_share: float = setting(0.0, "hidden likes, for each item a user touched", at_least=0)
    hidden_items: float = setting(0.0, "hidden likes of every user", at_least=0)

    def priors(self, sizes: np.ndarray, n_items: int) -> np.ndarray:
        """τ_u for users of these sizes."""
        if self.prior is not None:
            return np.full(len(sizes), self.prior)
        liked: np.ndarray = ((1 + self.hidden_share) * sizes + self.hidden_items) / n_items
        return np.minimum(liked, 0.999)


def debiased_setting() -> Any:
    return setting(None, "whether likes are taken out of the negatives", like=Debias(), choices=(Debias,))


@dataclass(frozen=True)
class Pointwise(Loss):
    """l⁺(y_i) + weight · (E_j l⁻(y_j) − τ_u E_k l⁻(y_k)), the last term, over positives k, with debiasing only.

    Paper 004 multiplies l⁺ by τ_u, too; with one τ for all that is the same with weight/τ, and this form goes on to τ = 0.
    """

    @abstractmethod
    def good(self, y: Array) -> tuple[Array, Array]:
        """l⁺ and its slope."""

    @abstractmethod
    def bad(self, y: Array) -> tuple[Array, Array]:
        """l⁻ and its slope."""

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        weight: float = self.weight  # type: ignore[attr-defined]
        good, up = self.good(s.positive)
        bad, down = self.bad(s.others)
        value = s.mean(good) + weight * s.expected(bad)
        down *= weight * s.share()
        slopes = Slopes(s.weight * up, down)
        if s.prior is None:
            return value, slopes
        liked, back = self.bad(s.liked)
        taken = weight * s.prior * s.liked_weight
        return value - (taken * liked).sum(1), slopes._replace(liked=-taken * back)


@dataclass(frozen=True)
class MSE(Pointwise):
    """(1 − y_i)² + weight · E_j y_j²."""

    weight: float = setting(10.0, "weight of the negatives", at_least=0, tries=(1, 3, 10, 30, 100))
    n_negatives: int = negatives_setting()
    sampler: Sampler = sampler_setting()
    debiased: Debias | None = debiased_setting()

    def good(self, y: Array) -> tuple[Array, Array]:
        return (1 - y) * (1 - y), 2 * y - 2

    def bad(self, y: Array) -> tuple[Array, Array]:
        return y * y, 2 * y

    def rule(self, l2: float, n_items: int) -> Rule | None:
        """A user of s positives has Σ_i (1 − y_i)² + weight·s·E_j y_j² + l2·s·‖p‖². Debiased, there may be no least."""
        if self.debiased is not None:
            return None
        one, size = Terms(constant=1), Terms(linear=1)
        return Rule(Terms(linear=self.weight), one, one, Terms(), size, l2, size, binary=True)

    def gram(self, items: np.ndarray, popularity: np.ndarray) -> np.ndarray:
        shares = np.exp(self.log_probabilities(popularity)).astype(items.dtype)
        return items.T @ (shares[:, None] * items)


@dataclass(frozen=True)
class CCL(Pointwise):
    """1 − y_i + weight · E_j [y_j − margin]₊ of cosines y."""

    margin: float = setting(
        0.7, "negatives below this cosine are good enough", at_least=-1, below=1, tries=(0.4, 0.6, 0.8, 0.9)
    )
    weight: float = setting(100.0, "weight of the negatives", at_least=0, tries=(30, 100, 300))
    n_negatives: int = negatives_setting(800)
    sampler: Sampler = sampler_setting()
    debiased: Debias | None = debiased_setting()

    needs_cosine = True

    def good(self, y: Array) -> tuple[Array, Array]:
        return 1 - y, -1.0

    def bad(self, y: Array) -> tuple[Array, Array]:
        over = (y - self.margin).clip(min=0)
        return over, sign(over)


@dataclass(frozen=True)
class InfoNCE(Loss):
    """log(1 + weight·N·E_j e^{y_j} / e^{y_i}), of y = score/temperature.

    Debiased, the expectation is (E_j e^{y_j} − τ_u E_k e^{y_k})/(1 − τ_u) over positives k, and at least e^{−1/temperature},
    which is the least that it can be for cosines.
    """

    temperature: float = temperature_setting(0.2)
    weight: float = setting(1.0, "weight of the negatives", at_least=1e-6)
    n_negatives: int = negatives_setting(800)
    sampler: Sampler = sampler_setting()
    debiased: Debias | None = debiased_setting()

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        t, times = self.temperature, log(self.weight * s.n)
        total, shares = s.log_expected(s.others / t)
        kept: Array = 1.0
        liked: Array = None
        if s.prior is not None:  # e^total · (1 − Σ likes)/(1 − τ) is left, or the floor
            likes = s.prior * s.liked_weight * power_of_e((s.liked / t - total[:, None]).clip(max=60))
            rest = 1 - likes.sum(1)[:, None]
            least = rest.clip(min=1e-6)
            left = total[:, None] + logarithm(least / (1 - s.prior))
            enough = positive(left + 1 / t) * positive(rest - 1e-6)
            kept = enough / least
            total, liked = (enough * left - (1 - enough) / t)[:, 0], -likes * kept
        odds = total[:, None] + times - s.positive / t
        missed = sigmoid(odds) * s.weight
        pull = missed.sum(1)[:, None] / t
        back = None if liked is None else liked * pull
        return s.mean(softplus(odds)), Slopes(missed * (-1 / t), shares * (pull * kept), back)


def logarithm(x: Array) -> Array:
    return np.log(x) if isinstance(x, np.ndarray) else x.log()


def mine(s: Scores, t: float, weight: float) -> tuple[Array, Slopes]:
    """−y_i + weight · log Σ_j e^{y_j}, of y = score/t."""
    total, shares = s.log_expected(s.others / t)
    value = weight * (total + log(s.n)) - s.mean(s.positive) / t
    return value, Slopes(s.weight * (-1 / t), shares * (weight / t))


@dataclass(frozen=True)
class MINE(Loss):
    """−y_i + log Σ_j e^{y_j} over the negatives alone."""

    n_negatives: int = negatives_setting(800)
    sampler: Sampler = sampler_setting()

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        return mine(s, 1.0, 1.0)


@dataclass(frozen=True)
class MINEPlus(Loss):
    """−y_i + weight · log Σ_j e^{y_j}, of y = cosine/temperature."""

    temperature: float = temperature_setting(0.1, (0.07, 0.1, 0.15, 0.3))
    weight: float = setting(1.2, "weight of the negatives", at_least=0, tries=(1, 1.1, 1.2))
    n_negatives: int = negatives_setting(800)
    sampler: Sampler = sampler_setting()

    needs_cosine = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        return mine(s, self.temperature, self.weight)


@dataclass(frozen=True)
class RG2Loss(Loss):
    """½ E_j (y_j + 1)² − y_i − ½ over all items j: the second-order expansion of softmax at 0, for scores of mean 0.

    Its sum over a user's positives is, up to constants and the factor 2n, the squared loss of RG2.
    """

    all_items = True

    def __call__(self, s: Scores) -> tuple[Array, Slopes]:
        value = s.expected((s.others + 1) * (s.others + 1)) / 2 - 0.5 - s.mean(s.positive)
        return value, Slopes(-s.weight, s.share() * (s.others + 1))

    def rule(self, l2: float, n_items: int) -> Rule | None:
        share, one = Terms(linear=1 / n_items), Terms(constant=1)
        return Rule(share, Terms(), one, Terms(linear=-1 / n_items), Terms(), 2 * l2, Terms(linear=1), binary=True)


LOSSES = (Softmax, SampledSoftmax, BPR, BCE, Sparsemax, UIB, SML, MSE, CCL, InfoNCE, MINE, MINEPlus, RG2Loss)
