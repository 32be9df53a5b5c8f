"""Debiasing: correct for positives among the sampled negatives   (Chuang et al. 2020, Jin and Li 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.core.params import Configurable, configurable, param


@configurable
class Debias(Configurable):
    """Subtract from the negatives what hidden positives contribute to them   (Jin and Li 2023).

    Negatives are drawn from all items, so a fraction τ_u of them are items that the user likes. The expectation over true
    negatives is (E_j f(y_j) − τ_u E_k f(y_k))/(1 − τ_u), with j drawn from all items and k from the user's positives.

    τ_u is `prior`, or grows with the number |I_u| of the user's items: ((1 + hidden_share)·|I_u| + hidden_items)/n.

    Whether debiasing shows depends on weight·τ. With `weigh_positives` the weight is that of the paper, 0.4 to 0.7; without it,
    about 1/τ times as much.
    """

    positives: int = param(10, "number of the user's positives that are drawn to estimate E_k, usually 10 to 50", at_least=1)
    prior: float | None = param(
        None,
        "τ, the fraction of all items that a user likes, the same for all users; None: from the history",
        like=0.0,
        at_least=0,
        below=1,
    )
    hidden_share: float = param(0.0, "liked items that are not in the history, per item that is, usually 0 to 1", at_least=0)
    hidden_items: float = param(0.0, "liked items that are not in the history, the same number for every user", at_least=0)
    weigh_positives: bool = param(
        False, "whether MSE and CCL multiply the positive's term by τ_u too, as Eq. 22 of Jin and Li (2023) prints"
    )

    def priors(self, sizes: np.ndarray, n_items: int) -> np.ndarray:
        """τ_u of users with histories of these sizes."""
        if self.prior is not None:
            return np.full(len(sizes), self.prior)
        liked_fraction: np.ndarray = ((1 + self.hidden_share) * sizes + self.hidden_items) / n_items
        return np.minimum(liked_fraction, 0.999)


def debiased_param() -> Any:
    return param(
        None, "the correction for positives among the negatives; None: no correction", like=Debias(), choices=(Debias,)
    )
