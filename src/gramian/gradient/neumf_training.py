"""Training of NeuMF, in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gramian.core.epochs import TrainingState
from gramian.data.interactions import Interactions
from gramian.gradient.factor_training import unique_with_inverse
from gramian.gradient.neumf import NeuMF
from gramian.gradient.trainer import Trainer, gradient_of, seed_generator
from gramian.progress import progress_bar


class NeuMFTrainer(Trainer):
    """Trains on batches of interactions, each with draws of its own."""

    recipe: NeuMF

    def __init__(self, recipe: NeuMF, events: Interactions, state: TrainingState) -> None:
        super().__init__(recipe, events, state, tuple(recipe.shapes(events)))
        self.rows, self.n_items = self.to_tensor(events.rows), events.n_items

    def train_epoch(self, number: int, learning_rate: float) -> float:
        generator = seed_generator(self.device, self.recipe.seed, number)
        order = torch.randperm(len(self.rows), generator=generator, device=self.device)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with progress_bar(f"epoch {number + 1}", len(order)) as advance:
            for batch in order.split(self.recipe.batch_size):
                shape = (len(batch), self.recipe.n_negatives)
                negatives = torch.randint(self.n_items, shape, generator=generator, device=self.device)
                total += self.step(self.rows[batch], self.columns[batch], negatives, learning_rate) * len(batch)
                advance(len(batch))
        return float(total) / len(order)

    def step(self, users: Tensor, items: Tensor, negatives: Tensor, learning_rate: float) -> Tensor:
        """Take a step on interactions with a row of negatives each, and return the mean loss with the penalty."""
        batch_users, user_positions = unique_with_inverse(users, len(self.sizes))
        batch_items, item_positions = unique_with_inverse(torch.cat([items[:, None], negatives], 1), self.n_items)
        rows = {"users": batch_users, "items": batch_items}
        leaves = {name: self.tables[name].detach().requires_grad_() for name in self.tables.names if name not in rows}
        leaves |= {name: self.tables[name].index_select(0, index).requires_grad_() for name, index in rows.items()}
        loss = self.batch_loss(leaves, user_positions, item_positions)
        loss.backward()
        self.tables.steps += 1
        with torch.no_grad():
            for name, leaf in leaves.items():
                self.tables.update(name, rows.get(name), gradient_of(leaf), learning_rate)
        return loss.detach().double()

    def batch_loss(self, tables: dict[str, Tensor], users: Tensor, items: Tensor) -> Tensor:
        """The mean loss of interactions: rows of users, and for each the rows of its positive and then of its negatives."""
        p, q = tables["users"].index_select(0, users), tables["items"].index_select(0, items.reshape(-1))
        scores = score_tower(tables, p.repeat_interleave(items.shape[1], 0), q, self.recipe).view(items.shape)
        losses = softplus(-scores[:, 0]) + softplus(scores[:, 1:]).sum(1)
        squares = q.square().sum(1).view(items.shape)
        lengths = p.square().sum(1) + squares[:, 0] + squares[:, 1:].mean(1)
        return (losses + self.recipe.l2 * lengths).mean()


def score_tower(tables: dict[str, Tensor], p: Tensor, q: Tensor, recipe: NeuMF) -> Tensor:
    """The score of each pair of rows."""
    k = recipe.rank
    code = torch.cat([p[:, k:], q[:, k:]], 1)
    for layer in range(recipe.n_layers):
        code = (code @ tables[f"weight{layer}"] + tables[f"bias{layer}"]).relu()
    return (torch.cat([p[:, :k] * q[:, :k], code], 1) @ tables["output"])[:, 0]
