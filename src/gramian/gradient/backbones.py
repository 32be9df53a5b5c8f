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
from gramian.errors import InvalidInput
from gramian.gradient.array_functions import Array, concatenate_columns
from gramian.models.parameters import rank_param

SMALLEST_NORM = 1e-12  # shorter vectors are divided by this instead of their length


def layers_param(default: int = 3) -> Any:
    return param(default, "number of graph convolutions, usually 1 to 3", at_least=1, below=10, tries=(1, 2, 3))


def dropout_of_messages_param() -> Any:
    about = "fraction of the numbers of each layer's output that training sets to 0, usually 0 to 0.3"
    return param(0.1, about, at_least=0, below=1, tries=(0, 0.1, 0.3))


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
        0.5,
        "weight g of the user's own vector against the history, usually 0.1 to 0.9",
        at_least=0,
        at_most=1,
        tries=(0.2, 0.5, 0.8),
    )
    cosine: bool = cosine_param(True)

    encodes_histories = True

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        return super().shapes(n_users, n_items) | {"history_weight": (self.rank, self.rank)}

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return 2 * (n_users + n_items) * self.rank + n_interactions


@configurable
class YouTubeNet(Backbone):
    """YouTubeNet (Covington et al. 2016): the user's vector is ReLU(mean of v_i over the history · W + b) · V + c.

    The history has vectors v_i of its own, beside the vectors q_i of the items that are scored. In training, the items to be
    predicted in a batch are left out of the mean. There is no vector of a user, so that new users are treated as all others.
    The last layer is linear: the paper has a ReLU there, which gave whole groups of users the vector 0 in our tests.
    """

    rank: int = rank_param()
    hidden: int = param(256, "length of the hidden layer, usually 64 to 1024", at_least=1)
    cosine: bool = cosine_param()

    encodes_histories = True

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        k, h = self.rank, self.hidden
        vectors = {"inputs": (n_items, k), "items": (n_items, k)}
        return vectors | {"weight0": (k, h), "bias0": (h,), "weight1": (h, k), "bias1": (k,)}

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return (2 * n_users + 3 * n_items) * self.rank + 2 * n_users * self.hidden + n_interactions


class GraphBackbone(Backbone):
    """A backbone that computes the vectors of all nodes of the graph in each step."""

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return 8 * (self.n_layers + 1) * (n_users + n_items) * self.rank + 12 * n_interactions


@configurable
class NGCF(GraphBackbone):
    """Neural graph collaborative filtering (Wang et al. 2019): layers E ← LeakyReLU((Â + I)·E·W + (Â·E ⊙ E)·V).

    The vectors of a user or item are those of all layers side by side. Â is as in LightGCN, which is NGCF without the weights W
    and V, the product ⊙ and the LeakyReLU.
    """

    rank: int = rank_param()
    n_layers: int = layers_param()
    dropout: float = dropout_of_messages_param()
    cosine: bool = cosine_param()

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        square = (self.rank, self.rank)
        weights = {f"{name}{layer}": square for layer in range(self.n_layers) for name in ("weight", "interaction_weight")}
        return super().shapes(n_users, n_items) | weights


@configurable
class SGL(GraphBackbone):
    """Self-supervised graph learning (Wu et al. 2021), SGL-ED: LightGCN that also contrasts two views of the graph.

    Each epoch draws two graphs, each without a fraction `dropout` of the edges. The loss of a batch adds
    weight · InfoNCE between the vectors a_v, b_v of its users in the two graphs, and the same for its items:
    −log(e^{cos(a_v, b_v)/temperature} / Σ_w e^{cos(a_v, b_w)/temperature}), with w over the users (items) of the batch.
    """

    rank: int = rank_param()
    n_layers: int = layers_param()
    dropout: float = param(
        0.1, "fraction of edges that a view drops, usually 0.1 to 0.5", at_least=0, below=1, tries=(0.1, 0.3, 0.5)
    )
    temperature: float = param(
        0.2, "temperature of InfoNCE between the views, usually 0.1 to 0.5", at_least=1e-3, tries=(0.1, 0.2, 0.5)
    )
    weight: float = param(0.01, "weight of InfoNCE between the views, usually 0.005 to 0.5", at_least=0, tries=(0.01, 0.1, 0.5))
    cosine: bool = cosine_param()

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return 3 * super().step_floats(n_users, n_items, n_interactions)


@configurable
class PinSage(GraphBackbone):
    """PinSage (Ying et al. 2018): layers h_v ← unit(ReLU([h_v, Σ_w α_vw·ReLU(h_w·Q + q)]·W + w)), then ReLU(h·G + g)·H.

    The sum is over the `n_neighbours` nodes of the other side that `n_walks` random walks of three steps from v visit most;
    α_vw are their shares of the visits. unit(h) = h/‖h‖. The paper's curriculum of hard negatives is left to the sampler.
    """

    rank: int = rank_param()
    n_layers: int = layers_param(2)
    n_neighbours: int = param(50, "neighbours of each user and item, usually 10 to 100", at_least=1, tries=(20, 50, 100))
    n_walks: int = param(100, "random walks from each user and item, usually 50 to 500", at_least=1)
    cosine: bool = cosine_param()

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        k, shapes = self.rank, super().shapes(n_users, n_items)
        for layer in range(self.n_layers):
            shapes |= {f"message_weight{layer}": (k, k), f"message_bias{layer}": (k,)}
            shapes |= {f"weight{layer}": (2 * k, k), f"bias{layer}": (k,)}
        return shapes | {"hidden_weight": (k, k), "hidden_bias": (k,), "output_weight": (k, k)}


@configurable
class GAT(GraphBackbone):
    """Graph attention network (Veličković et al. 2018) with one head: layers h_v ← elu(Σ_w α_vw·h_w·W), the last without elu.

    The sum is over the neighbours of v and v itself; α_vw = softmax over w of LeakyReLU(a · h_v·W + b · h_w·W).
    """

    rank: int = rank_param()
    n_layers: int = layers_param(2)
    cosine: bool = cosine_param()

    def shapes(self, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        k, shapes = self.rank, super().shapes(n_users, n_items)
        for layer in range(self.n_layers):
            shapes |= {f"weight{layer}": (k, k), f"own_attention{layer}": (k, 1), f"attention{layer}": (k, 1)}
        return shapes

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        return super().step_floats(n_users, n_items, n_interactions) + 20 * self.n_layers * n_interactions


@configurable
class DGCF(GraphBackbone):
    """Disentangled graph collaborative filtering (Wang et al. 2020): vectors in `n_intents` parts, each on a graph of its own.

    Every edge is shared among the intents. Routing raises the share S_k(u, i) of an intent k where the propagated u_k and
    tanh(i_k) agree: each of `n_steps` steps takes the softmax of S over k, normalizes it as in LightGCN, and propagates. The
    vectors are the sums over layers. The loss adds independence · Σ distance correlation of each two intents, over a sample of
    the batch.
    """

    rank: int = rank_param()
    n_intents: int = param(4, "number of intents, which must divide the rank, usually 2 to 16", at_least=1, tries=(2, 4, 8))
    n_layers: int = layers_param(1)
    n_steps: int = param(2, "steps of routing in each layer, usually 2 or 3", at_least=1)
    independence: float = param(0.01, "weight of the distance correlation of intents, usually 0 to 0.1", at_least=0)
    max_nodes: int = param(
        256, "users and items of a batch over which the correlation is computed, usually 100 to 1000", at_least=4
    )
    cosine: bool = cosine_param()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank % self.n_intents:
            raise InvalidInput("a rank that n_intents divides", f"{self.rank} and {self.n_intents}", "Change one of them")

    def step_floats(self, n_users: int, n_items: int, n_interactions: int) -> int:
        routing = 10 * self.n_layers * self.n_steps * self.n_intents * n_interactions
        return super().step_floats(n_users, n_items, n_interactions) + routing + 12 * self.n_intents * self.max_nodes**2


BACKBONES = (MF, LightGCN, SimpleX, YouTubeNet, NGCF, SGL, PinSage, GAT, DGCF)


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
