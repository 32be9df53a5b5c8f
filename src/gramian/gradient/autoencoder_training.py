"""Training of the nonlinear autoencoders, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from gramian.core.epochs import TrainingState
from gramian.data.interactions import Interactions
from gramian.gradient.autoencoders import Autoencoder
from gramian.gradient.trainer import Trainer, gradient_of, seed_generator
from gramian.progress import progress_bar


class AutoencoderTrainer(Trainer):
    """Trains an autoencoder on batches of users, each with the scores of all items."""

    recipe: Autoencoder

    def __init__(self, recipe: Autoencoder, events: Interactions, state: TrainingState) -> None:
        super().__init__(recipe, events, state, tuple(recipe.shapes(events)))
        self.users = torch.nonzero(self.sizes)[:, 0]

    def train_epoch(self, number: int, learning_rate: float) -> float:
        generator = seed_generator(self.device, self.recipe.seed, number)
        order = self.users[torch.randperm(len(self.users), generator=generator, device=self.device)]
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with progress_bar(f"epoch {number + 1}", len(order)) as advance:
            for users in order.split(self.recipe.batch_size):
                weights = {name: self.tables[name].requires_grad_() for name in self.tables.names}
                for weight in weights.values():
                    weight.grad = None
                loss = self.batch_loss(weights, users, number, generator)
                loss.backward()
                total += loss.detach() * len(users)
                self.tables.steps += 1
                with torch.no_grad():
                    for name, weight in weights.items():
                        self.tables.update(name, None, gradient_of(weight), learning_rate)
                advance(len(users))
        return float(total) / len(order)

    def batch_loss(self, weights: dict[str, Tensor], users: Tensor, number: int, generator: torch.Generator) -> Tensor:
        """The mean loss of these users in epoch `number`, with dropout on their histories, and the penalties."""
        sizes, row, _, columns = self.user_rows(users)
        keep = 1 - self.recipe.dropout
        is_kept = torch.rand(len(row), generator=generator, device=self.device) < keep
        inputs = is_kept / (keep * sizes[row] ** 0.5) if self.recipe.normalised else is_kept / keep
        offsets, inputs = sizes.cumsum(0) - sizes, inputs.to(weights["weight0"].dtype)
        code = embedding_bag(columns, weights["weight0"], offsets, mode="sum", per_sample_weights=inputs)
        if "users" in weights:
            code = code + weights["users"][users]
        penalty: Tensor | float = 0.0
        for layer, activation in enumerate(self.recipe.activations):
            code = (code @ weights[f"weight{layer}"] if layer else code) + weights[f"bias{layer}"]
            if activation == "none":  # the code of Mult-VAE is a normal distribution: its mean and log-variance
                mean, log_variance = code.chunk(2, 1)
                divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
                penalty = self.divergence_weight(number) * divergence.mean()
                noise = torch.randn(mean.shape, generator=generator, device=self.device, dtype=mean.dtype)
                code = mean + noise * (log_variance / 2).exp()
            else:
                code = code.tanh() if activation == "tanh" else code.sigmoid()
        scores = code @ weights["output"].T + weights["output_bias"]
        positive_sum = torch.zeros(len(users), dtype=scores.dtype, device=self.device).index_add(0, row, scores[row, columns])
        normalizer = sizes * scores.logsumexp(1) if self.recipe.normalised else softplus(scores).sum(1)
        if self.recipe.l2:
            penalty = penalty + self.recipe.l2 * sum(weight.square().sum() for weight in weights.values())
        return (normalizer - positive_sum).mean() + penalty

    def divergence_weight(self, number: int) -> float:
        """The weight of Mult-VAE's divergence in epoch `number`: it grows linearly during the warm-up."""
        recipe: Any = self.recipe
        return recipe.divergence * min(1.0, (number + 1) / recipe.warm_up)
