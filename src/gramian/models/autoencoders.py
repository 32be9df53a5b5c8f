"""Full-rank linear autoencoders: W that reconstructs X from X·W. One positive definite inverse gives them all.

With S = XᵀX, a penalty Λ per item, P = (S + diag(Λ))⁻¹, and Z_ki = −P_ki / P_ii off the diagonal and 0 on it, each model is

    W = Z · diag(f) + diag(y)

    EASE           Λ = l2                 f = 1            y = 0
    DLAE           Λ = (p/q)·s + l2       f = Λ·P_ii       y = 1 − f
    EDLAE          Λ = (p/q)·s + l2       f = 1/q          y = 0
    DEQL           Λ = (p/q)·s + l2       f = 1/q − ρ·y    y as below
    RDLAE          Λ = (p/q)·s + l2       f = 1 − y        y = min(1 − Λ·P_ii, ξ)
    DebiasedEASE   Λ = l2/(1 − α)         f = 1/(1 − α)    y = 0

where p is the dropout, q = 1 − p and s = diag(S). The formulas hold for weighted X too. Every f is a fraction of P_ii and s,
which `Coefficients` (linalg/coefficients.py) holds: scale = f/P_ii and diagonal = f + y.
"""

from __future__ import annotations

from math import inf

from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.errors import InvalidInput
from gramian.linalg.coefficients import Coefficients
from gramian.models.full_rank import LinearAutoencoder
from gramian.models.parameters import dropout_param, l2_param, max_diagonal_param
from gramian.validation import is_number

KEPT_WEIGHTS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 3)


@configurable
class EASE(LinearAutoencoder):
    """Item-item ridge regression without self-similarity   (Steck 2019).

    min ‖X − XW‖² + l2·‖W‖²  with  diag(W) = 0
    """

    l2: float = l2_param()

    @property
    def coefficients(self) -> Coefficients:
        return Coefficients(ridge=self.l2)


@configurable
class DLAE(LinearAutoencoder):
    """Denoising linear autoencoder: reconstructs all interactions from a random part of them   (Steck 2020).

    min E‖X − X̃W‖² + l2·‖W‖², where X̃ is X/q with a share p of its entries hidden
    """

    dropout: float = dropout_param()
    l2: float = l2_param()

    @property
    def coefficients(self) -> Coefficients:
        slope = self.dropout / (1 - self.dropout)
        return Coefficients(slope, self.l2, b0=0, c0=self.l2, c1=slope, n=1, y0=1, y1=1)  # scale = Λ


@configurable
class EDLAE(LinearAutoencoder):
    """Emphasised denoising linear autoencoder: reconstructs only the hidden interactions   (Steck 2020).

    DLAE with  diag(W) = 0.
    """

    dropout: float = dropout_param()
    l2: float = l2_param()

    @property
    def coefficients(self) -> Coefficients:
        q = 1 - self.dropout
        return Coefficients(self.dropout / q, self.l2, c0=1 / q)

    def canonical(self) -> Recipe:
        return EASE(self.l2) if self.dropout == 0 else self


@configurable
class DEQL(LinearAutoencoder):
    """Decoupled expected quadratic loss: a family that contains EDLAE and DLAE   (the DEQL paper, 2026).

    Hidden interactions weigh 1, kept ones kept_weight². It is EDLAE at kept_weight 0 and DLAE at 1 (up to a factor);
    kept_weight may exceed 1. `l2` is on the same scale as in EDLAE and DLAE; `from_paper` takes the paper's own parameters.
    With c = p + q·b² and ρ = b²/c for kept_weight b, and g = 1/P_ii,

        y = ρ·(g − Λ) / (ρ·s + q·l2 − q·ρ²·(s + Λ − g)),   f = 1/q − ρ·y,

    so that all kept_weights share one inverse. With zero_diagonal the model is EDLAE for every kept_weight. The denominator is
    positive for every kept_weight (module header of `expected_loss`); every fit checks that.
    """

    dropout: float = dropout_param()
    kept_weight: float = param(
        0.5, "weight of the interactions that were not hidden", at_least=0, tries=KEPT_WEIGHTS, free=True
    )
    l2: float = l2_param()
    zero_diagonal: bool = param(False, "force the diagonal of the weights to 0", free=True)

    @staticmethod
    def from_paper(a: float, b: float, p: float, lam: float, zero_diagonal: bool = False) -> DEQL:
        """Return the recipe in the parameters of the DEQL paper.

        Parameters
        ----------
        a, b
            The weights of hidden and of kept interactions. Theorem 3.3 of the paper states for a ≥ b > 0 that every item's
            system is positive definite. That holds for b above a too, as in the paper's own grid (docs/models.md).
        p
            The dropout.
        lam
            The penalty λ, which is l2·(1 − p)²·(p·a² + (1 − p)·b²).
        zero_diagonal
            Force the diagonal of the weights to 0.
        """
        is_valid = all(map(is_number, (a, b, p, lam))) and a > 0 and b >= 0 and 0 <= p < 1 and lam >= 0
        if not is_valid:
            got = f"a={a!r}, b={b!r}, p={p!r}, lam={lam!r}"
            raise InvalidInput("numbers a > 0, b ≥ 0, 0 ≤ p < 1 and lam ≥ 0", got, "Pass a=1; only b/a and lam/a² matter")
        ratio = (1 - p) ** 2 * (p * a * a + (1 - p) * b * b)
        l2 = lam / ratio if ratio else inf
        if not (ratio < inf and l2 < inf):
            expected = "(1 − p)²·(p·a² + (1 − p)·b²), by which lam is divided, above 0 and finite"
            raise InvalidInput(expected, f"{ratio:g}", "Choose p or b above 0, and ordinary a and b")
        return DEQL(dropout=p, l2=l2, kept_weight=b / a, zero_diagonal=zero_diagonal)

    def canonical(self) -> Recipe:
        if self.zero_diagonal or self.kept_weight == 0:
            return EDLAE(self.dropout, self.l2).canonical()
        return DLAE(self.dropout, self.l2) if self.kept_weight == 1 or self.dropout == 0 else self

    @property
    def coefficients(self) -> Coefficients:
        p, q, b, l2 = self.dropout, 1 - self.dropout, self.kept_weight, self.l2
        slope = p / q
        if b == 0 or self.zero_diagonal:
            return Coefficients(slope, l2, c0=1 / q)
        rho = 1 / (p / b / b + q)
        b0, b1 = q * (1 - rho**2) * l2, rho * (1 - rho)
        c0, c1 = b0 / q + rho**2 * l2, b1 / q + rho**2 * slope
        return Coefficients(slope, l2, b0, b1, c0, c1, n=q * rho**2, y0=1 / (q * rho), y1=1 / rho)


@configurable
class RDLAE(LinearAutoencoder):
    """Denoising linear autoencoder with a relaxed diagonal constraint; RLAE at dropout 0   (Moon et al. 2023).

    DLAE with  W_ii ≤ max_diagonal. At 0 it is EDLAE, and at 1 the constraint is never active and it is DLAE.
    """

    dropout: float = dropout_param()
    max_diagonal: float = max_diagonal_param(0.3)
    l2: float = l2_param()

    @property
    def coefficients(self) -> Coefficients:
        slope = self.dropout / (1 - self.dropout)
        return Coefficients(slope, self.l2, c0=max(1 - self.max_diagonal, 0), y0=1, y1=1, floor=1)

    def canonical(self) -> Recipe:
        if self.max_diagonal == 0:
            return EDLAE(self.dropout, self.l2).canonical()
        return DLAE(self.dropout, self.l2) if self.max_diagonal >= 1 else self


@configurable
class DebiasedEASE(LinearAutoencoder):
    """EASE that treats a share of the unobserved items as liked   (Jin and Li 2023).

    min ‖X − XW‖² − alpha·‖XW‖² + l2·‖W‖²  with  diag(W) = 0. It is the same model as EASE with another l2.
    """

    needs_binary = True  # the loss it debiases is one of positives and unlabelled items
    takes_dislikes = False

    alpha: float = param(0.1, "share of unobserved items assumed to be liked", at_least=0, below=1, tries=(0, 0.1, 0.3, 0.5))
    l2: float = l2_param()

    @property
    def coefficients(self) -> Coefficients:
        return Coefficients(ridge=self.l2 / (1 - self.alpha), c0=1 / (1 - self.alpha))

    def canonical(self) -> Recipe:
        return EASE(self.coefficients.ridge)
