"""Backbones: where the vectors of users and items come from, and how a score is made of two of them.

In every geometry a score is an inner product of a user's row and an item's row:

    product    u · i
    cosine     u/‖u‖ · i/‖i‖
    distance   −‖u − i‖² = [2u, −‖u‖², −1] · [i, 1, ‖i‖²]

`scoring_rows` makes these rows of vectors, `backpropagate_rows` takes gradients by the rows back to the vectors.
"""

from __future__ import annotations

from typing import Any

from gramian.core.params import Configurable, configurable, param
from gramian.gradient.array_functions import Array, concatenate_columns
from gramian.models.parameters import rank_param

SMALLEST_NORM = 1e-12  # shorter vectors are divided by this instead of their length


def cosine_param() -> Any:
    return param(False, "whether a score is the cosine of two vectors instead of their inner product")


class Backbone(Configurable):
    """Gives every user and every item a vector."""

    n_layers = 0  # how many times vectors are propagated along the interactions


@configurable
class MF(Backbone):
    """Matrix factorization (Koren et al. 2009): a free vector p_u of each user and q_i of each item, with score p_u · q_i."""

    rank: int = rank_param()
    cosine: bool = cosine_param()


@configurable
class LightGCN(Backbone):
    """Light graph convolution (He et al. 2020): E = 1/(L + 1) · Σ_{l=0..L} Âˡ E⁰, with L = n_layers.

    E⁰ are free vectors of users and items, A is the adjacency matrix of the bipartite graph of interactions, and
    Â = diag(degree)^-½ · A · diag(degree)^-½. Smoothing over the graph helps users and items with few interactions.
    """

    rank: int = rank_param()
    n_layers: int = param(3, "number of graph convolutions, usually 1 to 3", at_least=1, below=10, tries=(1, 2, 3))
    cosine: bool = cosine_param()


BACKBONES = (MF, LightGCN)


def score_geometry(backbone: Backbone, uses_distances: bool) -> str:
    """The name of the geometry: 'product', 'cosine' or 'distance'."""
    if uses_distances:
        return "distance"
    return "cosine" if backbone.cosine else "product"  # type: ignore[attr-defined]


def scoring_rows(vectors: Array, geometry: str, side: str) -> Array:
    """Rows of users (side 'user') or of items (side 'item') whose inner products are the scores."""
    if geometry == "product":
        return vectors
    squares = (vectors * vectors).sum(1)[:, None]
    if geometry == "cosine":
        return vectors / squares.clip(min=SMALLEST_NORM**2) ** 0.5
    ones = squares * 0 + 1
    if side == "user":
        return concatenate_columns(2 * vectors, -squares, -ones)
    return concatenate_columns(vectors, ones, squares)


def backpropagate_rows(vectors: Array, row_gradients: Array, geometry: str) -> Array:
    """Gradients by vectors, given those by their scoring rows. For distances, of users only.

    The memory of `row_gradients` may be overwritten.
    """
    if geometry == "product":
        return row_gradients
    if geometry == "cosine":
        squares = (vectors * vectors).sum(1)[:, None].clip(min=SMALLEST_NORM**2)
        row_gradients -= vectors * ((vectors * row_gradients).sum(1)[:, None] / squares)
        row_gradients /= squares**0.5
        return row_gradients
    rank = vectors.shape[1]
    return 2 * row_gradients[:, :rank] - 2 * vectors * row_gradients[:, rank : rank + 1]
