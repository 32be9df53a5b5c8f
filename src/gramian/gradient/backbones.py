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


def layers_param(default: int = 3) -> Any:
    return param(default, "number of graph convolutions, usually 1 to 3", at_least=1, below=10, tries=(1, 2, 3))


def cosine_param(default: bool = False) -> Any:
    return param(default, "whether a score is the cosine of two vectors instead of their inner product")


class Backbone(Configurable):
    """Gives every user and every item a vector, as a function of learned arrays: the tables.

    `encoders.py` computes the functions, in PyTorch; a trained model keeps their values.
    """

    rank: int
    cosine: bool
    n_layers = 0  # how many times vectors are propagated along the interactions
    encodes_histories = False  # whether the vector of a user is a function of the history, so that new users have one too

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        """The shape of each table by name: vectors of users or items first, then weights (two dimensions) and biases (one)."""
        return {"users": (n_users, self.rank), "items": (n_items, self.rank)}

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self.shapes(1, 1))

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        """The numbers in the temporary arrays of one step, beside those of the loss."""
        return 0


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
    n_layers: int = layers_param()
    cosine: bool = cosine_param()

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return 5 * (n_users + n_items) * self.rank + 12 * n_interactions


@configurable
class SimpleX(Backbone):
    """SimpleX (Mao et al. 2021): the user's vector is own_weight · p_u + (1 − own_weight) · V · mean of q_i over the history.

    p_u and q_i are free vectors and V is a learned matrix. The paper trains it under `CCL`. A new user has no p_u and gets the
    second term alone.
    """

    rank: int = rank_param()
    own_weight: float = param(
        0.5, "weight g of the user's own vector against the history, usually 0.1 to 0.9", at_least=0, at_most=1, tries=(0.2, 0.5, 0.8)
    )
    cosine: bool = cosine_param(True)

    encodes_histories = True

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        return super().shapes(n_users, n_items) | {"history_weight": (self.rank, self.rank)}

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return 2 * (n_users + n_items) * self.rank + n_interactions


BACKBONES = (MF, LightGCN, SimpleX)


def score_geometry(backbone: Backbone, uses_distances: bool) -> str:
    """The name of the geometry: 'product', 'cosine' or 'distance'."""
    if uses_distances:
        return "distance"
    return "cosine" if backbone.cosine else "product"


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
