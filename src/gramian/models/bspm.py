"""BSPM: blurring and sharpening processes, solved as differential equations   (Choi et al. 2023).

With R̃ = diag(u)^-½ X diag(s)^-½, Q = R̃ᵀR̃, V its top `rank` eigenvectors and the low-pass filter L = diag(s)^-½ V Vᵀ diag(s)^½,
a history x is blurred by one Euler step to x·Q and x·L, and then sharpened by dy/dt = −y·Q up to the time `sharpening`, in
`n_steps` steps of size τ:

    y₀ = x·(Q + low_pass·L),   y_j = y_{j−1}·g(τQ),   g(z) = 1 − z                             (Euler)
                                                      g(z) = 1 − z + z²/2 − z³/6 + z⁴/24       (Runge–Kutta of order 4)

The scores are the last y; with `average` they are the mean of x·Q and all y_j, j ≥ 1. With merge="late", y₀ = x·Q is sharpened,
and low_pass·x·L is added at the end. Every one of these is x·a(Q) + low_pass·x·L·b(Q) for two polynomials a and b. The authors'
code calls Runge–Kutta of torchdiffeq, which takes the 3/8 rule: for a linear equation, the same polynomial.
"""

from __future__ import annotations

from numpy.polynomial import Chebyshev, Polynomial

from gramian.core.params import configurable, param
from gramian.models.graph_filter import FilterBasis, FilterRecipe
from gramian.models.parameters import eigenvectors_param, low_pass_param
from gramian.models.scorers import ScorerSum

STEPS = {"euler": (1, -1), "rk4": (1, -1, 1 / 2, -1 / 6, 1 / 24)}  # powers of z in a step exp(−z) ≈ g(z)


@configurable
class BSPM(FilterRecipe):
    """Graph filter: blurring and sharpening processes plus an ideal low-pass filter   (Choi et al. 2023)."""

    rank: int = eigenvectors_param()
    low_pass: float = low_pass_param()
    sharpening: float = param(1.0, "time of the sharpening process; usually 0 to 3", at_least=0, tries=(0, 0.5, 1, 1.5, 2.5))
    solver: str = param("euler", "how a step of the process is computed", choices=tuple(STEPS))
    n_steps: int = param(1, "steps of the sharpening process", at_least=1, below=17)
    merge: str = param("early", "whether the low-pass filter is sharpened too", choices=("early", "late"))
    average: bool = param(False, "average the scores before and after each step of sharpening")

    @property
    def steps(self) -> list[Polynomial]:
        """The sharpening up to each step, as polynomials of Q."""
        step = Polynomial(STEPS[self.solver])(Polynomial([0, self.sharpening / self.n_steps]))
        return [step ** (number + 1) for number in range(self.n_steps)]

    @property
    def transfer(self) -> Chebyshev:
        q = Polynomial([0, 1])
        scores = sum((q * step for step in self.steps), q) / (self.n_steps + 1) if self.average else q * self.steps[-1]
        return scores.convert(domain=(0, 1), kind=Chebyshev)

    @property
    def low_pass_sharpening(self) -> Chebyshev | None:
        """What the low-pass term is multiplied by, or None for 1."""
        if self.merge == "late":
            return None
        b = sum(self.steps, Polynomial([0])) / (self.n_steps + 1) if self.average else self.steps[-1]
        return b.convert(domain=(0, 1), kind=Chebyshev)

    def truncate_to_scorer(self, decomposition: FilterBasis) -> ScorerSum:
        low_pass = decomposition.low_pass(self.rank, sharpening=self.low_pass_sharpening)
        return ScorerSum([decomposition.filter(self.transfer), low_pass], [1, self.low_pass])
