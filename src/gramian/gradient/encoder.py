"""Encoders: the vectors of users and items as functions of a backbone's tables, and the gradients back to the tables.

A step encodes the users and items of its batch, takes the gradients of the loss by their vectors, and lets the encoder take
these back to its tables. MF has nothing to compute, LightGCN is linear and has its gradients written out, and the others leave
them to autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import scipy.sparse as sp
import torch
from torch import Tensor

from gramian.gradient.graph import InteractionGraph, sum_along_edges, sum_from_columns

# By table: the rows that have a gradient (None: all), and their gradient.
TableGradients = dict[str, tuple[Tensor | None, Tensor]]


class Tables(Protocol):
    """Tables by name: a dictionary, or what Adam updates."""

    def __getitem__(self, name: str, /) -> Tensor: ...


class Encoder(ABC):
    """The function from tables to vectors of one backbone on one graph of interactions.

    `generator` draws the random numbers of training, such as those of dropout. Without one the encoder computes the vectors
    that are scored.
    """

    def __init__(self, backbone: Any, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        self.backbone, self.device, self.dtype = backbone, device, dtype
        self.generator: torch.Generator | None = None
        self.held_out: Tensor | None = None  # the interactions to be predicted, by their position in the order of CSR

    def start_epoch(self, generator: torch.Generator) -> None:
        """Take the random numbers of this epoch from a generator."""
        self.generator = generator

    @abstractmethod
    def encode(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        """The vectors of these users and of these items (None: all), without gradients. Both lists are of distinct numbers."""

    @abstractmethod
    def backpropagate(self, gradients: TableGradients) -> Tensor | float:
        """Replace the gradients by the vectors last encoded, named users and items, with those by the tables.

        Returns the value of what the encoder itself adds to the loss, whose gradients are added too.
        """


class TableEncoder(Encoder):
    """MF: the vectors are rows of the tables."""

    def encode(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        return select_rows(tables["users"], users), select_rows(tables["items"], items)

    def backpropagate(self, gradients: TableGradients) -> Tensor | float:
        return 0.0


class LightGCNEncoder(Encoder):
    """1/(L + 1) · Σ_{l=0..L} Âˡ E of the tables E.

    The last product is of the batch's rows alone. The map is symmetric, so gradients G take the same way back, in Horner's form
    G + Â(G + Â(G + …)), where the first product reads the batch's rows alone.
    """

    def __init__(self, backbone: Any, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(backbone, x, device, dtype)
        self.graph = InteractionGraph(x, device, dtype)

    def encode(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        graph, n_layers = self.graph, self.backbone.n_layers
        all_users, all_items = tables["users"], tables["items"]
        p, q = select_rows(all_users, users), select_rows(all_items, items)
        for layer in range(n_layers):
            is_last = layer == n_layers - 1
            rows = (users, items) if is_last else (None, None)
            all_users, all_items = (
                sum_along_edges(graph.to_users, graph.weights, all_items, rows[0]),
                sum_along_edges(graph.to_items, graph.item_weights, all_users, rows[1]),
            )
            p = p + (all_users if is_last else select_rows(all_users, users))
            q = q + (all_items if is_last else select_rows(all_items, items))
        return p / (n_layers + 1), q / (n_layers + 1)

    def backpropagate(self, gradients: TableGradients) -> Tensor | float:
        graph, n_layers = self.graph, self.backbone.n_layers
        (users, by_users), (items, by_items) = gradients["users"], gradients["items"]
        user_rows, item_rows, p, q = users, items, by_users, by_items  # of the batch; of all after the first product
        for _ in range(n_layers):
            p, q = (
                add_rows(sum_from_columns(graph.to_users, graph.weights, item_rows, q), users, by_users),
                add_rows(sum_from_columns(graph.to_items, graph.item_weights, user_rows, p), items, by_items),
            )
            user_rows = item_rows = None
        gradients["users"], gradients["items"] = (None, p / (n_layers + 1)), (None, q / (n_layers + 1))
        return 0.0


class AutogradEncoder(Encoder):
    """An encoder whose gradients PyTorch derives."""

    @abstractmethod
    def forward(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        """The vectors of these users and items (None: all)."""

    def auxiliary_loss(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> Tensor | None:
        """What the encoder adds to the loss in training; None: nothing."""
        return None

    def encode(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.generator is None:
            with torch.no_grad():
                return self.forward(tables, users, items)
        self.leaves = {name: tables[name].detach().requires_grad_() for name in self.backbone.tables}
        self.outputs = self.forward(self.leaves, users, items)
        self.auxiliary = self.auxiliary_loss(self.leaves, users, items)
        return self.outputs[0].detach(), self.outputs[1].detach()

    def backpropagate(self, gradients: TableGradients) -> Tensor | float:
        outputs, by_outputs = list(self.outputs), [gradients.pop(name)[1] for name in ("users", "items")]
        if self.auxiliary is not None:
            outputs.append(self.auxiliary)
            by_outputs.append(torch.ones_like(self.auxiliary))
        derived = torch.autograd.grad(outputs, list(self.leaves.values()), by_outputs, allow_unused=True)
        gradients |= {
            name: (None, gradient) for name, gradient in zip(self.leaves, derived, strict=True) if gradient is not None
        }
        value = 0.0 if self.auxiliary is None else self.auxiliary.detach().double()
        del self.outputs, self.leaves, self.auxiliary  # frees the graph of autograd
        return value


def select_rows(table: Tensor, rows: Tensor | None) -> Tensor:
    """These rows of a table; None: all."""
    return table if rows is None else table.index_select(0, rows)


def add_rows(table: Tensor, rows: Tensor | None, vectors: Tensor) -> Tensor:
    """Add vectors to these rows of a table, in place; None: to all."""
    return table.add_(vectors) if rows is None else table.index_add_(0, rows, vectors)


def scatter_rows(rows: Tensor | None, gradient: Tensor, n: int) -> Tensor:
    """The gradient by all n rows, given that by these; None: all."""
    return gradient if rows is None else gradient.new_zeros((n, gradient.shape[1])).index_copy_(0, rows, gradient)
