"""Leave-one-out scores: what a full-rank autoencoder would score without one training user, or without one of its events.

With P the inverse of A = XᵀX + diag(slope·s + ridge), a history f scores item i by −(Pf)_i · scale_i + f_i · diagonal_i
(linalg/coefficients.py). A user's row x with its items I enters A by Bᵀ C B, with few rows B on I. With H = P_II, and
M = Bᵀ C (I + B H Bᵀ C)⁻¹ B, the model after that change of A has

    (P'f)_i = (Pf)_i − p_Iᵀ M (Pf)_I,   P'_ii = P_ii − p_Iᵀ M p_I,   p = P_i

so that one user costs |I|² operations, and each of its events |I| more. No inverse is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gramian.linalg.coefficients import Coefficients
from gramian.linalg.symmetric import Symmetric


@dataclass(frozen=True)
class ItemScore:
    """The score of one item for one history, with what is needed to change it.

    Parameters
    ----------
    inverse, coefficients, s
        P, the model, and the diagonal of XᵀX.
    item
        The column of the item.
    own_weight
        The weight of the item in the history itself, usually 0.
    image
        Pf, for the history f.
    row
        P_i, for the item i.
    """

    inverse: Symmetric
    coefficients: Coefficients
    s: np.ndarray
    item: int
    own_weight: float
    image: np.ndarray
    row: np.ndarray

    @staticmethod
    def of(
        inverse: Symmetric, coefficients: Coefficients, s: np.ndarray, history: np.ndarray, values: np.ndarray, item: int
    ) -> ItemScore:
        """Compute Pf and P_i."""
        image = np.zeros(inverse.n)
        for column, value in zip(history, values, strict=True):
            image += float(value) * inverse.row(column)
        own_weight = float(values[history == item].sum())
        return ItemScore(inverse, coefficients, s, item, own_weight, image, inverse.row(item).astype(np.float64))

    def at(self, z: float, p_ii: float, s: float) -> float:
        """Return the score for other values of (Pf)_i, P_ii and s_i."""
        p, diagonal = np.array([p_ii]), np.array([s])
        weight = self.coefficients.diagonal(p, diagonal)[0]
        return float(-z * self.coefficients.scale(p, diagonal)[0] + self.own_weight * weight)

    @property
    def value(self) -> float:
        """The score itself."""
        return self.at(float(self.image[self.item]), float(self.row[self.item]), float(self.s[self.item]))

    def first_order(self, x: sp.csr_array) -> np.ndarray:
        """Return how strongly each user of X is tied to the history and to the item: (x·Pf)(x·P_i). It needs no P_II."""
        return np.asarray((x @ self.image) * (x @ self.row))

    def without_user(self, items: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the score without a user, and the scores without each of the user's events.

        Parameters
        ----------
        items, values
            The user's row of X.
        """
        x, slope = values.astype(np.float64), self.coefficients.slope
        h = self.inverse.entries(items)
        z, p = self.image[items], self.row[items]
        core = -np.outer(x, x) - slope * np.diag(x**2)
        m = core @ np.linalg.inv(np.eye(len(x)) + h @ core)
        at_item = items == self.item
        lost = float((x[at_item] ** 2).sum())
        base = float(self.image[self.item]), float(self.row[self.item]), float(self.s[self.item])
        whole = self.at(base[0] - p @ m @ z, base[1] - p @ m @ p, base[2] - lost)
        hx, events = h @ x, np.empty(len(x))
        for at, weight in enumerate(x):
            # x' = x − weight·e: B has the rows x', x and e
            h_event = h[at]
            projected = np.stack([hx - weight * h_event, hx, h_event])  # rows of B H
            rows = np.stack([x, x, np.zeros(len(x))])
            rows[0, at], rows[2, at] = 0, 1
            signs = np.diag([1.0, -1.0, -slope * weight**2])
            small = signs @ np.linalg.inv(np.eye(3) + projected @ rows.T @ signs)
            bz, bp = rows @ z, rows @ p
            s = base[2] - (weight**2 if at_item[at] else 0)
            events[at] = self.at(base[0] - bp @ small @ bz, base[1] - bp @ small @ bp, s)
        return whole, events
