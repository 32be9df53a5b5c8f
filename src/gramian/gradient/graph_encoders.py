"""Encoders that pass messages along the graph of users and items, in PyTorch for training.

N(v) are the neighbours of a node v: the items of a user, the users of an item.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import elu, leaky_relu, normalize

from gramian.gradient.encoder import AutogradEncoder, Tables, select_rows
from gramian.gradient.graph import EdgePattern, InteractionGraph, edge_products, multiply
from gramian.gradient.random_walks import sample_neighbours

NGCF_SLOPE = GAT_SLOPE = 0.2  # of the leaky ReLU below 0, as both papers print or run it


class NodeEncoder(AutogradEncoder):
    """An encoder that computes the vectors of all users and items, of which a batch takes some."""

    def __init__(self, backbone: Any, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(backbone, x, device, dtype)
        self.graph = InteractionGraph(x, device, dtype)

    def forward(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        all_users, all_items = self.encode_nodes(tables)
        return select_rows(all_users, users), select_rows(all_items, items)

    @abstractmethod
    def encode_nodes(self, tables: Tables) -> tuple[Tensor, Tensor]:
        """The vectors of all users and items."""

    def drop(self, vectors: Tensor, fraction: float) -> Tensor:
        """Dropout in training: set a fraction of the numbers to 0, and divide the others by 1 − fraction."""
        if self.generator is None or not fraction:
            return vectors
        uniform = torch.rand(vectors.shape, generator=self.generator, device=self.device, dtype=self.dtype)
        return vectors * ((uniform >= fraction) / (1 - fraction))


class NGCFEncoder(NodeEncoder):
    """Layers E ← LeakyReLU((Â + I)·E·W + (Â·E ⊙ E)·V), and their outputs side by side   (Wang et al. 2019)."""

    def encode_nodes(self, tables: Tables) -> tuple[Tensor, Tensor]:
        users, items = tables["users"], tables["items"]
        outputs = [(users, items)]
        for layer in range(self.backbone.n_layers):
            weight, interaction = tables[f"weight{layer}"], tables[f"interaction_weight{layer}"]
            messages = self.graph.multiply(users, items)
            users, items = (
                self.drop(leaky_relu((sums + own) @ weight + (sums * own) @ interaction, NGCF_SLOPE), self.backbone.dropout)
                for sums, own in zip(messages, (users, items), strict=True)
            )
            outputs.append((users, items))
        return torch.cat([users for users, _ in outputs], 1), torch.cat([items for _, items in outputs], 1)


class SGLEncoder(NodeEncoder):
    """LightGCN, and InfoNCE between the vectors of two views of the graph without some edges   (Wu et al. 2021)."""

    def __init__(self, backbone: Any, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(backbone, x, device, dtype)
        self.views: list[InteractionGraph] = []  # drawn in every epoch

    def start_epoch(self, generator: torch.Generator) -> None:
        """Draw the two views of this epoch."""
        super().start_epoch(generator)
        self.views = [self.drop_edges(), self.drop_edges()]

    def drop_edges(self) -> InteractionGraph:
        edges = self.graph.to_users
        uniform = torch.rand(edges.size, generator=self.generator, device=self.device)
        remaining = edges.select_edges((uniform >= self.backbone.dropout).cpu().numpy())
        return InteractionGraph(remaining.to_csr(), self.device, self.dtype)

    def encode_nodes(self, tables: Tables) -> tuple[Tensor, Tensor]:
        return self.propagate(self.graph, tables)

    def propagate(self, graph: InteractionGraph, tables: Tables) -> tuple[Tensor, Tensor]:
        """1/(L + 1) · Σ_{l=0..L} Âˡ E of the graph or a view of it."""
        users, items = tables["users"], tables["items"]
        user_sum, item_sum = users, items
        for _ in range(self.backbone.n_layers):
            users, items = graph.multiply(users, items)
            user_sum, item_sum = user_sum + users, item_sum + items
        return user_sum / (self.backbone.n_layers + 1), item_sum / (self.backbone.n_layers + 1)

    def auxiliary_loss(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> Tensor | None:
        views = [self.propagate(view, tables) for view in self.views]
        if not views:
            return None
        losses = [
            contrast_views(select_rows(views[0][side], rows), select_rows(views[1][side], rows), self.backbone.temperature)
            for side, rows in enumerate((users, items))
        ]
        return self.backbone.weight * (losses[0] + losses[1])


def contrast_views(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Mean over nodes v of −log(e^{cos(a_v, b_v)/t} / Σ_w e^{cos(a_v, b_w)/t}), of the rows a and b of two views."""
    cosines = normalize(first) @ normalize(second).T / temperature
    return (cosines.logsumexp(1) - cosines.diagonal()).mean()


class PinSageEncoder(NodeEncoder):
    """Layers h ← unit(ReLU([h, Σ_{w ∈ N(v)} α_vw ReLU(h_w·Q + q)]·W + w)), then ReLU(h·G + g)·H   (Ying et al. 2018).

    N(v) are the nodes of the other side that random walks from v visit most, α their shares of the visits.
    """

    def __init__(self, backbone: Any, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(backbone, x, device, dtype)
        sides = (sample_neighbours(side, backbone.n_neighbours, backbone.n_walks) for side in (x, sp.csr_array(x.T.tocsr())))
        self.neighbours = [(EdgePattern.of(side, device), torch.from_numpy(side.data).to(device, dtype)) for side in sides]

    def encode_nodes(self, tables: Tables) -> tuple[Tensor, Tensor]:
        vectors = [tables["users"], tables["items"]]
        for layer in range(self.backbone.n_layers):
            messages = [(v @ tables[f"message_weight{layer}"] + tables[f"message_bias{layer}"]).relu() for v in vectors]
            sums = [multiply(*self.neighbours[side], messages[1 - side]) for side in (0, 1)]
            weight, bias = tables[f"weight{layer}"], tables[f"bias{layer}"]
            vectors = [
                normalize((torch.cat([own, total], 1) @ weight + bias).relu()) for own, total in zip(vectors, sums, strict=True)
            ]
        hidden = [(v @ tables["hidden_weight"] + tables["hidden_bias"]).relu() for v in vectors]
        return hidden[0] @ tables["output_weight"], hidden[1] @ tables["output_weight"]


class GATEncoder(NodeEncoder):
    """Layers h_v ← elu(Σ_{w ∈ N(v) ∪ {v}} α_vw·h_w·W), without elu in the last   (Veličković et al. 2018).

    α_vw = softmax over w of LeakyReLU(a · h_v·W + b · h_w·W), with learned vectors a and b.
    """

    def encode_nodes(self, tables: Tables) -> tuple[Tensor, Tensor]:
        vectors = [tables["users"], tables["items"]]
        patterns = (self.graph.to_users, self.graph.to_items)
        for layer in range(self.backbone.n_layers):
            vectors = [v @ tables[f"weight{layer}"] for v in vectors]
            by_own, by_other = ([v @ tables[f"{name}{layer}"] for v in vectors] for name in ("own_attention", "attention"))
            vectors = [
                attend(patterns[side], vectors[side], vectors[1 - side], by_own[side], by_other[side], by_other[1 - side])
                for side in (0, 1)
            ]
            if layer < self.backbone.n_layers - 1:
                vectors = [elu(v) for v in vectors]
        return vectors[0], vectors[1]


def attend(pattern: EdgePattern, own: Tensor, others: Tensor, query: Tensor, own_key: Tensor, other_key: Tensor) -> Tensor:
    """The mean of each row's own vector and its neighbours', weighted by the softmax of leaky_relu(query + key).

    Queries and keys are columns.
    """
    own_logit = leaky_relu(query + own_key, GAT_SLOPE)[:, 0]
    logits = leaky_relu(query[pattern.rows, 0] + other_key[pattern.columns, 0], GAT_SLOPE)
    highest = own_logit.detach().scatter_reduce(0, pattern.rows, logits.detach(), "amax")
    own_weight, weights = (own_logit - highest).exp()[:, None], (logits - highest[pattern.rows]).exp()
    total = own_weight + multiply(pattern, weights, torch.ones_like(other_key))
    return (own_weight * own + multiply(pattern, weights, others)) / total


class DGCFEncoder(NodeEncoder):
    """LightGCN in n_intents parts, each on a graph of its own that routing weighs   (Wang et al. 2020).

    Edge weights of the intents k start equal, S_k(u, i) = 1. Each routing step takes their softmax over k, normalizes it by the
    degrees of both nodes, propagates u_k = Σ_i L_k(u, i)·i_k, likewise i_k, and adds u_k · tanh(i_k before this layer) to S_k.
    """

    def encode_nodes(self, tables: Tables) -> tuple[Tensor, Tensor]:
        k = self.backbone.n_intents
        users, items = tables["users"].chunk(k, 1), tables["items"].chunk(k, 1)
        user_sum, item_sum = tables["users"], tables["items"]
        for _ in range(self.backbone.n_layers):
            users, items = self.route(users, items)
            user_sum, item_sum = user_sum + torch.cat(users, 1), item_sum + torch.cat(items, 1)
        return user_sum, item_sum

    def route(self, users: tuple[Tensor, ...], items: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """One layer: the propagated vectors of each intent after the last routing step."""
        edges = self.graph.to_users
        scores = torch.ones((edges.size, len(users)), device=self.device, dtype=self.dtype)
        new_users, new_items = users, items
        for step in range(self.backbone.n_steps):
            weights = self.normalize_by_degrees(scores.softmax(1)).unbind(1)
            new_users = tuple(multiply(edges, weight, part) for weight, part in zip(weights, items, strict=True))
            new_items = tuple(
                multiply(edges.transposed, edges.transpose_values(weight), part)
                for weight, part in zip(weights, users, strict=True)
            )
            if step < self.backbone.n_steps - 1:
                agreement = [edge_products(edges, u, i.tanh()) for u, i in zip(new_users, items, strict=True)]
                scores = scores + torch.stack(agreement, 1)
        return new_users, new_items

    def normalize_by_degrees(self, shares: Tensor) -> Tensor:
        """Divide each edge's share of an intent by the root of its two nodes' sums of shares."""
        edges = self.graph.to_users
        user_degree, item_degree = (
            shares.new_zeros((n, shares.shape[1])).index_add(0, nodes, shares)
            for n, nodes in zip(edges.shape, (edges.rows, edges.columns), strict=True)
        )
        return shares / (user_degree[edges.rows] * item_degree[edges.columns]).sqrt()

    def auxiliary_loss(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> Tensor | None:
        """independence · Σ_{k < l} distance correlation of the intents k and l, over at most `max_nodes` nodes of the batch."""
        if not self.backbone.independence or self.backbone.n_intents == 1:
            return None
        rows = torch.cat([vectors[: self.backbone.max_nodes // 2] for vectors in self.outputs])
        parts = [center_distances(part) for part in rows.chunk(self.backbone.n_intents, 1)]
        pairs = [correlate_distances(a, b) for k, a in enumerate(parts) for b in parts[:k]]
        return self.backbone.independence * torch.stack(pairs).sum()


def distance_correlation(x: Tensor, y: Tensor) -> Tensor:
    """dCov(x, y) / √(dCov(x, x)·dCov(y, y)) of paired rows: 0 if and only if they are independent   (Székely et al. 2007)."""
    return correlate_distances(center_distances(x), center_distances(y))


def correlate_distances(a: Tensor, b: Tensor) -> Tensor:
    """The distance correlation, given the centered distances of both sides."""
    tiny = torch.finfo(a.dtype).tiny ** 0.5  # keeps the gradient of the root finite
    covariance, x_variance, y_variance = ((p * q).mean().clip(min=tiny).sqrt() for p, q in ((a, b), (a, a), (b, b)))
    return covariance / (x_variance * y_variance).sqrt()


def center_distances(x: Tensor) -> Tensor:
    """The distances between all pairs of rows, minus the means of their row and column, plus the mean of all."""
    lengths = x.square().sum(1)
    squares = lengths[:, None] + lengths - 2 * x @ x.T
    distances = (squares.clip(min=0) + torch.finfo(x.dtype).eps).sqrt()  # the root has no gradient at 0
    return distances - distances.mean(0) - distances.mean(1, keepdim=True) + distances.mean()
