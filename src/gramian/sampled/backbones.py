"""What gives users and items their vectors, and how two of them meet in a score.

Whatever the geometry, a score is an inner product of a user's row and an item's: of the vectors as they are, of unit vectors,
or minus the squared distance, −‖u − i‖² = [2u, −‖u‖², −1] · [i, 1, ‖i‖²]. `rows_of` writes them so, for tensors and arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramian.models.low_rank import rank_setting
from gramian.models.recipe import Part, setting

Array = Any  # of NumPy or PyTorch
TINY = 1e-12  # the least length that counts


def cosine_setting() -> Any:
    return setting(False, "score by the cosine of two vectors instead of their inner product")


@dataclass(frozen=True)
class Backbone(Part):
    """Vectors of users and items."""

    n_layers = 0  # how often vectors are passed on along interactions


@dataclass(frozen=True)
class MF(Backbone):
    """Matrix factorization: a vector for each user and each item."""

    rank: int = rank_setting()
    cosine: bool = cosine_setting()


@dataclass(frozen=True)
class LightGCN(Backbone):
    """A vector is the mean of what arrives after 0, 1, …, n_layers steps along interactions   (He et al. 2020).

    One step is the product with dMat(degree)^-½ · A · dMat(degree)^-½ of the graph's adjacency matrix A.
    """

    rank: int = rank_setting()
    n_layers: int = setting(3, "steps along interactions", at_least=1, below=10, tries=(1, 2, 3))
    cosine: bool = cosine_setting()


BACKBONES = (MF, LightGCN)


def geometry(backbone: Backbone, of_distances: bool) -> str:
    if of_distances:
        return "distance"
    return "cosine" if backbone.cosine else "product"  # type: ignore[attr-defined]


def rows_of(vectors: Array, geometry: str, side: str) -> Array:
    """The rows of users or items whose inner product is the score."""
    if geometry == "product":
        return vectors
    squares = (vectors * vectors).sum(1)[:, None]
    if geometry == "cosine":
        return vectors / squares.clip(min=TINY**2) ** 0.5
    one = squares * 0 + 1
    return joined(2 * vectors, -squares, -one) if side == "user" else joined(vectors, one, squares)


def joined(*columns: Array) -> Array:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns, axis=1)
    from torch import cat  # noqa: PLC0415

    return cat(columns, 1)


def back_to(vectors: Array, slopes: Array, geometry: str) -> Array:
    """The slopes by users' vectors (or items', but for distances), where those by their rows are given, which it may change."""
    if geometry == "product":
        return slopes
    if geometry == "cosine":
        squares = (vectors * vectors).sum(1)[:, None].clip(min=TINY**2)
        slopes -= vectors * ((vectors * slopes).sum(1)[:, None] / squares)
        slopes /= squares**0.5
        return slopes
    rank = vectors.shape[1]
    return 2 * slopes[:, :rank] - 2 * vectors * slopes[:, rank : rank + 1]
